"""Names of places that recur: an adjective and a noun, 40 × 40 combinations. A name is the key under which a place is remembered."""

import numpy as np

ADJECTIVES = (
    "Amber", "Ancient", "Ashen", "Azure", "Bitter", "Brazen", "Broken", "Bronze", "Carved", "Copper",
    "Crimson", "Crystal", "Dusty", "Ebony", "Emerald", "Faded", "Forgotten", "Frozen", "Gilded", "Golden",
    "Hollow", "Iron", "Ivory", "Jade", "Lonely", "Marble", "Misty", "Mossy", "Narrow", "Painted",
    "Pale", "Quiet", "Rusty", "Sapphire", "Scarlet", "Silent", "Silver", "Sunken", "Velvet", "Winding",
)  # fmt: skip

NOUNS = (
    "Alcove", "Antechamber", "Arcade", "Archive", "Armory", "Atrium", "Bathhouse", "Cellar", "Chamber", "Chapel",
    "Cistern", "Cloister", "Court", "Crypt", "Den", "Dormitory", "Forge", "Foundry", "Gallery", "Granary",
    "Grotto", "Hall", "Kitchen", "Laboratory", "Library", "Lodge", "Nursery", "Observatory", "Pantry", "Parlor",
    "Refectory", "Sanctum", "Scriptorium", "Shrine", "Stable", "Study", "Theater", "Tomb", "Vault", "Workshop",
)  # fmt: skip

COUNT = len(ADJECTIVES) * len(NOUNS)


def titles(random: np.random.Generator) -> list[str]:
    """All names, each once. A word comes back only when all words have been used: names that share none are easiest to tell apart."""
    adjectives, nouns = random.permutation(ADJECTIVES), random.permutation(NOUNS)
    return [
        f"{adjective} {nouns[(first + shift) % len(nouns)]}"
        for shift in range(len(nouns))
        for first, adjective in enumerate(adjectives)
    ]
