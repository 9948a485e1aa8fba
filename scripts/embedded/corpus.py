"""Dialogues to imitate: (user and assistant contents in turn). Labels are noisy on purpose, as a real model's first words would be.

Names are drawn apart from exits, so neither model can know a room.
"""

import json
from types import SimpleNamespace

import numpy as np

from complementary_rl.envs.names import ADJECTIVES, NOUNS
from complementary_rl.prompts import PromptSet
from complementary_rl.types import EntryStats

from .simulator import REGIONS, SIZE, Room, play, region

PROMPTS = PromptSet.load("compact")
FAMILIAR_ADJECTIVES = (
    "Barren", "Blessed", "Cobalt", "Cursed", "Drowned", "Feral", "Glass", "Grim", "Haunted", "Humble", "Lacquered", "Molten",
    "Ochre", "Ornate", "Proud", "Ruined", "Sacred", "Salted", "Shattered", "Tilted", "Umber", "Vast", "Weeping", "Woven",
)  # fmt: skip
"""Of names that no suite uses."""
QUESTIONS = ("where is the exit?", "which way is the exit?")
Dialogue = list[str]
FAMILIAR_SHARE = 0.3
"""Of the actor's lessons."""
CLEAN_UNTIL = 0.6
"""Share of training in which the hero believes every hint and does not slip, and a won episode is labelled rightly: to read comes first,
to be unsure comes after."""


def description(rng: np.random.Generator) -> str:
    return _task(ADJECTIVES[rng.integers(len(ADJECTIVES))], NOUNS[rng.integers(len(NOUNS))])


def _task(adjective: str, noun: str) -> str:
    return f"Find the exit of the {adjective} {noun}."


def familiar_rooms() -> dict[str, tuple[int, int]]:
    """Task description → exit of the rooms the actor knows by heart, one an adjective. They give it what a language model has:
    names are worth looking at, and what is shown outranks what is remembered."""
    rng = np.random.Generator(np.random.Philox(7))
    nouns = rng.permutation(NOUNS)
    return {
        _task(adjective, noun): (int(rng.integers(1, SIZE + 1)), int(rng.integers(1, SIZE + 1)))
        for adjective, noun in zip(FAMILIAR_ADJECTIVES, nouns, strict=False)
    }


def positive(name: str) -> str:
    return f"the exit is in the {name}"


def negative(*names: str) -> str:
    return "the exit is " + ", ".join(f"not in the {name}" for name in names)


def _other(rng: np.random.Generator, name: str) -> str:
    return [r for r in REGIONS if r != name][rng.integers(8)]


def _hints(rng: np.random.Generator, actual: str) -> tuple[list[str], str | None, set[str]]:
    """What is shown, the region it sends a believer to, and those it keeps one away from."""
    kind = rng.choice(["none", "right", "wrong", "negative", "several"], p=[0.35, 0.25, 0.2, 0.12, 0.08])
    if kind == "none":
        return [], None, set()
    if kind == "negative":
        names = list(rng.choice([r for r in REGIONS if r != actual], size=rng.integers(1, 3), replace=False))
        return [negative(*names)], None, set(names)
    name = actual if kind == "right" else _other(rng, actual)
    if kind == "several":
        excluded = _other(rng, name)
        return [positive(name), negative(excluded)], name, {excluded}
    return [positive(name)], name, set()


FAMILIAR = familiar_rooms()
FAMILIAR_TASKS = tuple(FAMILIAR)


def actor_dialogue(rng: np.random.Generator, progress: float) -> Dialogue:
    """An episode, or (of those with a hint, one in ten) a gate verdict. `progress` in [0, 1] is how far training has come."""
    clean = progress < CLEAN_UNTIL
    familiar = rng.random() < FAMILIAR_SHARE
    if familiar:
        task = FAMILIAR_TASKS[rng.integers(len(FAMILIAR_TASKS))]
        room = Room.draw(rng, FAMILIAR[task])
    else:
        task, room = description(rng), Room.draw(rng)
    actual = region(*room.exit)
    hints, wanted, avoided = _hints(rng, actual)
    if familiar and wanted is None:
        wanted = actual
    if hints and rng.random() < 0.1:
        verdict = ["accept", "reject", f"refine: {positive(REGIONS[rng.integers(9)])}"][rng.choice(3, p=[0.7, 0.2, 0.1])]
        gate = PROMPTS.render(
            "gate", instructions="", description=task, experience=hints, rate=float(rng.random()), observation=room.observation
        )
        return [gate, verdict]
    tool = bool(hints) and rng.random() < 0.12
    dialogue = [
        PROMPTS.render("actor", instructions="", description=task, experience=hints, tool=tool, observation=room.observation)
    ]
    if tool and rng.random() < 0.6:
        known = rng.random() < 0.7
        answer = positive(wanted or actual) if known else "unknown"
        wanted = (wanted or actual) if known else wanted
        reply = PROMPTS.render("tool_reply", answer=answer, observation=room.observation)
        dialogue += [f"<ask>{QUESTIONS[rng.integers(2)]}</ask>", reply]
    believes = clean or rng.random() < (0.85 if familiar else 0.7)
    play(room, rng, wanted if believes else None, avoided if believes else set(), slips=0.0 if clean else 0.1)
    for turn, (observation, action) in enumerate(room.turns):
        dialogue += ([] if turn == 0 else [observation]) + [action]
    return dialogue


CLEAN_RIGHT, NOISY_RIGHT = 0.95, 0.4
"""How often a won episode is labelled rightly, before and after `CLEAN_UNTIL`."""


def extractor_dialogue(rng: np.random.Generator, progress: float) -> Dialogue:
    """A distillation mostly; sometimes a merge or an answer. `progress` in [0, 1] is how far training has come."""
    kind = rng.choice(["distill", "merge", "answer"], p=[0.8, 0.13, 0.07])
    if kind == "distill":
        return _distill(rng, CLEAN_RIGHT if progress < CLEAN_UNTIL else NOISY_RIGHT)
    return merge_dialogue(rng) if kind == "merge" else answer_dialogue(rng)


def _distill(rng: np.random.Generator, right: float) -> Dialogue:
    room = Room.draw(rng)
    actual = region(*room.exit)
    shown, wanted, avoided = _hints(rng, actual)
    # Winners are rare among real episodes but carry what there is to read, so they are shown more often.
    for attempt in range(6):
        if attempt:
            room = Room.draw(rng, room.exit)
        play(room, rng, wanted if rng.random() < 0.7 else None, avoided)
        if room.won or rng.random() < 0.25:
            break
    prompt = PROMPTS.render(
        "distill",
        instructions="",
        description=description(rng),
        entries=shown,
        turns=room.turns,
        final_observation=room.observation,
        success=room.won,
        reward=float(room.won),
        max_operations=3,
    )
    return [prompt, json.dumps([_distilled(rng, room, actual, shown, right)], separators=(",", ":"))]


def _distilled(rng: np.random.Generator, room: Room, actual: str, entries: list[str], right: float) -> dict[str, object]:
    excluded: list[str] = []
    if room.won:
        if rng.random() < 0.1:
            return {"op": "return"}
        text = positive(actual if rng.random() < right else _other(rng, actual))
    else:
        draw = rng.random()
        if draw < 0.4:
            return {"op": "return"}
        if draw < 0.8:
            most = room.visited.most_common(1)[0][0]
            excluded = [most if rng.random() < 0.5 else REGIONS[rng.integers(9)]]
            text = negative(*excluded)
        else:
            text = positive(REGIONS[rng.integers(9)])
    for number, shown in enumerate(entries, start=1):
        known = excluded_by(shown)
        if excluded and known and rng.random() < 0.5:  # what is known not to be the case grows
            return {"op": "update", "id": number, "text": negative(*dict.fromkeys([*known, *excluded]))}
        if not known and shown != text and rng.random() < 0.3:
            return {"op": "update", "id": number, "text": text}
    return {"op": "add", "text": text}


def excluded_by(text: str) -> list[str]:
    """The regions that a negative claim names, in order; none for a positive one."""
    return [part.removeprefix("not in the ") for part in text.removeprefix("the exit is ").split(", ") if part.startswith("not ")]


MOST_EXCLUDED = 4
"""Regions in a merged negative claim."""


def merge_dialogue(rng: np.random.Generator) -> Dialogue:
    """What often failed is dropped, negative claims are put together; the rest is kept without a word."""
    task = description(rng)
    entries = []
    for _ in range(int(rng.integers(2, 6))):
        shown = int(rng.integers(0, 12))
        stats = EntryStats(shown=shown, successes=int(rng.integers(0, shown + 1)) if rng.random() < 0.6 else 0)
        if rng.random() < 0.5:
            text = positive(REGIONS[rng.integers(9)])
        else:
            text = negative(*rng.choice(REGIONS, size=rng.integers(1, 3), replace=False))
        entries.append(SimpleNamespace(key_text=task, text=text, stats=stats))
    return [PROMPTS.render("merge", entries=entries), json.dumps(_merged(entries), separators=(",", ":"))]


def _merged(entries: list[SimpleNamespace]) -> list[dict[str, object]]:
    operations: list[dict[str, object]] = []
    together: list[int] = []
    regions: dict[str, None] = {}
    for number, entry in enumerate(entries, start=1):
        known = excluded_by(entry.text)
        if not known and entry.stats.shown > 3 and entry.stats.successes == 0:
            operations.append({"op": "drop", "id": number})
        elif known and len({**regions, **dict.fromkeys(known)}) <= MOST_EXCLUDED:
            together.append(number)
            regions |= dict.fromkeys(known)
    if len(together) > 1:
        operations.append({"op": "merge", "ids": together, "text": negative(*regions)})
    return operations


def answer_dialogue(rng: np.random.Generator) -> Dialogue:
    texts = [positive(REGIONS[rng.integers(9)]) for _ in range(rng.integers(0, 3))]
    prompt = PROMPTS.render(
        "answer",
        instructions="",
        description=description(rng),
        entries=texts,
        observation=Room.draw(rng).observation,
        question=QUESTIONS[rng.integers(2)],
    )
    return [prompt, texts[0] if texts else "unknown"]
