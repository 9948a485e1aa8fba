"""Which episodes are played: a pure function of the run's seed and the step."""

from collections import Counter

from helpers.suites import task

from complementary_rl.envs.protocol import Part
from complementary_rl.rollout.plan import Shown, group_seed, sampling_seed, tasks_for_step

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
