"""Where a level's experience is filed: on one shelf with all others, or on a shelf of its own under a name that is a key."""

from dataclasses import dataclass

from complementary_rl.envs.names import COUNT, titles
from complementary_rl.errors import UserError
from complementary_rl.seeds import rng
from complementary_rl.types import Split


@dataclass(frozen=True, slots=True)
class Place:
    """What a suite needs to make a level's task: its id, its bank scope, and its name, such as "Painted Stable", where it has one."""

    id: str
    scope: str
    title: str | None


def places(suite: str, scope: str, levels: int, heldout_levels: int, seed: int) -> dict[Split, list[Place]]:
    """The places of both splits; names are drawn from `seed`. More levels of one split leave the other split as it is.

    With `scope` "shared" the levels are numbered and share the scope `suite`; with "level" each has a name and its own scope. Raises
    UserError for options out of range.
    """
    if levels < 1 or heldout_levels < 0:
        raise UserError(f"{suite}: levels ({levels}) must be at least 1, heldout_levels ({heldout_levels}) at least 0")
    counts: tuple[tuple[Split, int], ...] = (("train", levels), ("heldout", heldout_levels))
    if scope == "shared":
        return {split: [Place(f"{suite}/{split}-{index}", suite, None) for index in range(count)] for split, count in counts}
    if scope != "level":
        raise UserError(f"{suite}: scope must be 'shared' or 'level', not {scope!r}")
    if levels + heldout_levels > COUNT:
        raise UserError(f"{suite}: there are names for {COUNT} levels; with scope 'level' ask for fewer levels")
    order = titles(rng(suite, seed, "names"))
    return {
        "train": [named(suite, title) for title in order[:levels]],
        "heldout": [named(suite, title) for title in order[::-1][:heldout_levels]],
    }


def named(suite: str, title: str) -> Place:
    """A place with a name and a shelf of its own."""
    identity = f"{suite}/{title.lower().replace(' ', '-')}"
    return Place(identity, identity, title)
