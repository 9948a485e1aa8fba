"""Names of the dark rooms: an adjective and a noun, 40 × 40 combinations."""

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
