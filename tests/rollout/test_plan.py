"""Which episodes are played: a pure function of the run's seed and the step."""

from collections import Counter
from collections.abc import Sequence

import pytest
from helpers.suites import task

from complementary_rl.envs.protocol import Part
from complementary_rl.rollout.plan import Shown, group_seed, sampling_seed, tasks_for_step
from complementary_rl.seeds import rng
from complementary_rl.types import Task

TASKS = [task(number) for number in range(5)]
ALONE = [Part("count", TASKS)]


def test_a_step_draws_the_same_tasks_whenever_it_is_asked() -> None:
    straight = [tasks_for_step(ALONE, 2, step, run_seed=1) for step in range(10)]
    assert [tasks_for_step(ALONE, 2, step, run_seed=1) for step in (7, 3)] == [straight[7], straight[3]]


def test_passes_over_all_tasks_are_shuffled_and_complete() -> None:
    drawn = [t.id for step in range(10) for t in tasks_for_step(ALONE, 2, step, run_seed=1)]
    passes = [drawn[start : start + 5] for start in range(0, 20, 5)]
    assert all(len(set(one)) == 5 for one in passes)
    assert len({tuple(one) for one in passes}) > 1
    other = [t.id for step in range(10) for t in tasks_for_step(ALONE, 2, step, run_seed=2)]
    assert other != drawn


def test_more_groups_than_tasks_play_every_task_as_often() -> None:
    counts = Counter(t.id for t in tasks_for_step(ALONE, 10, 0, run_seed=0))
    assert set(counts.values()) == {2}


def test_a_suite_of_one_part_is_played_as_it_always_was() -> None:
    """The order that published results depend on: passes over permutations drawn from (seed, "task-order", pass)."""
    order = [TASKS[int(place)] for epoch in range(8) for place in rng(1, "task-order", epoch).permutation(5)]
    assert [t for step in range(20) for t in tasks_for_step(ALONE, 2, step, run_seed=1)] == order
    assert [t for step in range(5) for t in tasks_for_step([Part("count", TASKS, 0.3)], 8, step, run_seed=1)] == order


# --- mixtures -----------------------------------------------------------------------------------------------------------------------


def mixed(weights: Sequence[float], tasks: int = 5) -> list[Part]:
    return [
        Part(f"p{index}", [task(number, id=f"p{index}/{number}") for number in range(tasks)], weight)
        for index, weight in enumerate(weights)
    ]


def part_of(one: Task) -> str:
    return one.id.partition("/")[0]


@pytest.mark.parametrize("weights", [(1, 1, 1), (2, 1), (3.0, 0.5, 0.5), (0.1, 0.2, 0.7), (1, 1, 1, 1, 1, 1), (100, 1)])
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_no_part_is_ever_far_from_its_share(weights: tuple[float, ...], groups: int) -> None:
    played: Counter[str] = Counter()
    for step in range(60):
        drawn = [part_of(t) for t in tasks_for_step(mixed(weights), groups, step, run_seed=0)]
        assert drawn == sorted(drawn), "part by part, so that minibatches of every n-th group are mixed"
        played.update(drawn)
        due = [(step + 1) * groups * weight / sum(weights) for weight in weights]
        assert all(abs(played[f"p{index}"] - share) <= 1.0 + 1e-9 for index, share in enumerate(due))


def test_a_step_of_a_mixture_is_the_same_whenever_it_is_asked() -> None:
    parts = mixed((0.1, 0.2, 0.7, 3))
    straight = [tasks_for_step(parts, 7, step, run_seed=3) for step in range(40)]
    assert [tasks_for_step(parts, 7, step, run_seed=3) for step in range(39, -1, -1)] == straight[::-1]
    assert sorted(t.id for step in range(20) for t in tasks_for_step(parts, 14, step, run_seed=3)) == sorted(
        t.id for step in straight for t in step
    ), "steps are windows of one order"


def test_every_part_passes_over_its_tasks_in_the_order_of_a_run_of_it_alone() -> None:
    parts = [mixed((1,), 5)[0], Part("p1", [task(number, id=f"p1/{number}") for number in range(3)], 2.0)]
    drawn = [t for step in range(30) for t in tasks_for_step(parts, 3, step, run_seed=1)]
    for part, groups in zip(parts, (1, 2), strict=True):
        alone = [t for step in range(30) for t in tasks_for_step([part], groups, step, run_seed=1)]
        assert [t for t in drawn if part_of(t) == part.name] == alone


def test_evaluation_never_meets_a_state_or_a_draw_of_training() -> None:
    train = {group_seed(0, "train", step, group, t) for step in range(50) for group in range(4) for t in TASKS}
    held = {group_seed(0, "eval", 0, group, t) for group in range(256) for t in TASKS}
    assert not train & held
    drawn = {sampling_seed(0, "train", step, group, member) for step in range(50) for group in range(4) for member in range(8)}
    assert len(drawn) == 50 * 4 * 8
    assert not drawn & {sampling_seed(0, "eval", 0, group, 0) for group in range(256)}


def test_a_group_shares_its_initial_state_and_nothing_else() -> None:
    seeds = {group_seed(0, "train", step, group, TASKS[0]) for step in range(3) for group in range(3)}
    assert len(seeds) == 9
    assert len({group_seed(0, "train", 0, 0, t) for t in TASKS}) == len(TASKS)


def test_what_was_shown_keeps_its_rank() -> None:
    shown = Shown(((7, "b"), (2, "a")))
    assert (shown.ids, shown.texts) == ((7, 2), ["b", "a"])
