"""The eight compass words, their steps on the map (x grows east, y grows south), and NetHack's keys for them."""

STEPS: dict[str, tuple[int, int]] = {
    "north": (0, -1),
    "north-east": (1, -1),
    "east": (1, 0),
    "south-east": (1, 1),
    "south": (0, 1),
    "south-west": (-1, 1),
    "west": (-1, 0),
    "north-west": (-1, -1),
}

KEYS: dict[str, int] = {word: ord(key) for word, key in zip(STEPS, "kulnjbhy", strict=True)}

_WORDS = {step: word for word, step in STEPS.items()}


def towards(dx: int, dy: int) -> str:
    """The word of the next king-move towards a place `dx` east and `dy` south of here; not (0, 0)."""
    return _WORDS[(dx > 0) - (dx < 0), (dy > 0) - (dy < 0)]
