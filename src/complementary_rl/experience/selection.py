"""Which episodes of a group the extractor reads, when it cannot read them all."""

from collections.abc import Sequence

from complementary_rl.types import Trajectory


def best_and_worst(group: Sequence[Trajectory], limit: int | None) -> list[Trajectory]:
    """At most `limit` episodes, best and worst by turns, so that a small share still holds both outcomes; all when None.

    Better is more reward, then fewer actions, then the lower member number. The result is in the order of `group`.
    """
    if limit is None or limit >= len(group):
        return list(group)
    ranked = sorted(group, key=lambda trajectory: (-trajectory.reward, trajectory.n_actions, trajectory.member))
    chosen = {trajectory.id for trajectory in ranked[: (limit + 1) // 2] + ranked[len(ranked) - limit // 2 :]}
    return [trajectory for trajectory in group if trajectory.id in chosen]
