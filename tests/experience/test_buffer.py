"""The extractor's buffer: one sample per generation, oldest first, stale ones dropped, Eq 7 counters moved, state that returns."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from complementary_rl.experience.buffer import BufferedCredit, ExtractorBuffer
from complementary_rl.experience.credit import Credit


def make_buffer(max_staleness: int = 8, retrain_gap: int = 1) -> ExtractorBuffer:
    return ExtractorBuffer(max_staleness=max_staleness, retrain_gap=retrain_gap)


def ids(batch: list[BufferedCredit]) -> list[str]:
    return [item.generation_id for item in batch]


def test_one_sample_per_generation_with_the_mean_over_its_rollouts():
    buffer = make_buffer()
    buffer.add("a", 0, Credit(1.0, 1))
    buffer.add("b", 0, Credit(-1.0, 2))
    buffer.add("a", 0, Credit(-1.0, 3))
    assert len(buffer) == 2
    assert buffer.take(2, version=0, update=0) == [BufferedCredit("a", 0, -0.5, 4), BufferedCredit("b", 0, -1.0, 2)]
    assert len(buffer) == 0


def test_a_generation_comes_from_one_version():
    buffer = make_buffer()
    buffer.add("a", 0, Credit(1.0))
    with pytest.raises(AssertionError, match="one version"):
        buffer.add("a", 1, Credit(1.0))


def test_nothing_is_taken_until_a_whole_batch_is_there():
    buffer = make_buffer()
    for index in range(3):
        buffer.add(str(index), 0, Credit(1.0))
    assert not buffer.ready(4, version=0, update=0)
    assert buffer.take(4, version=0, update=0) == []
    assert len(buffer) == 3
    buffer.add("3", 0, Credit(1.0))
    assert buffer.ready(4, version=0, update=0)
    assert len(buffer.take(4, version=0, update=0)) == 4


def test_oldest_version_first_then_order_of_arrival():
    buffer = make_buffer()
    for generation_id, version in [("new", 3), ("old", 1), ("older", 0), ("new too", 3), ("old too", 1)]:
        buffer.add(generation_id, version, Credit(0.0))
    assert ids(buffer.take(4, version=3, update=0)) == ["older", "old", "old too", "new"]


def test_stale_generations_are_dropped_and_counted():
    buffer = make_buffer(max_staleness=2)
    buffer.add("stale", 0, Credit(1.0))
    buffer.add("edge", 1, Credit(1.0))
    buffer.add("fresh", 3, Credit(1.0))
    assert not buffer.ready(3, version=3, update=0)
    assert ids(buffer.take(2, version=3, update=0)) == ["edge", "fresh"]
    assert (buffer.dropped_stale, len(buffer)) == (1, 0)


def test_counters_are_incremented():
    buffer = make_buffer(retrain_gap=0)
    for update in (4, 5, 9):
        buffer.add("a", 0, Credit(1.0))
        buffer.mark_trained(ids(buffer.take(1, version=0, update=update)), update=update)
    assert buffer.times_trained("a") == 3
    buffer.add("a", 0, Credit(1.0))
    (item,) = buffer.take(1, version=0, update=10)
    assert (item.times_trained, item.last_trained_update) == (3, 9)


def test_a_generation_just_trained_waits_for_the_gap_and_keeps_gathering():
    buffer = make_buffer(retrain_gap=1)
    buffer.add("a", 0, Credit(1.0))
    buffer.mark_trained(ids(buffer.take(1, version=0, update=0)), update=0)
    buffer.add("a", 0, Credit(1.0))
    assert buffer.take(1, version=1, update=1) == []
    buffer.add("a", 0, Credit(-1.0))
    assert buffer.take(1, version=2, update=2) == [BufferedCredit("a", 0, 0.0, 2, times_trained=1, last_trained_update=0)]


def test_counters_of_generations_too_old_to_train_are_forgotten():
    buffer = make_buffer(max_staleness=2, retrain_gap=0)
    for version in range(50):
        for index in range(4):
            buffer.add(f"{version}-{index}", version, Credit(1.0))
        buffer.mark_trained(ids(buffer.take(4, version=version, update=version)), update=version)
        assert len(buffer.state_dict()["counters"]) <= 3 * 4
    assert buffer.times_trained("49-0") == 1


def test_state_comes_back_and_continues_the_same():
    def feed(buffer: ExtractorBuffer, step: int) -> list[BufferedCredit]:
        for index in range(5):
            buffer.add(f"{(step * 3 + index) % 11}", 0, Credit((index - 2) / 3, 1 + index))
        batch = buffer.take(4, version=step // 4, update=step)
        buffer.mark_trained(ids(batch), update=step)
        return batch

    unbroken = make_buffer(max_staleness=3)
    for step in range(6):
        feed(unbroken, step)
    resumed = make_buffer(max_staleness=3)
    resumed.load_state_dict(json.loads(json.dumps(unbroken.state_dict())))
    for step in range(6, 20):
        assert feed(unbroken, step) == feed(resumed, step)
    assert unbroken.state_dict() == resumed.state_dict()
    assert unbroken.dropped_stale > 0


def test_a_batch_in_training_survives_a_crash():
    buffer = make_buffer()
    buffer.add("a", 0, Credit(1.0))
    buffer.add("b", 0, Credit(1.0))
    buffer.take(2, version=0, update=0)
    buffer.add("a", 0, Credit(0.0))
    resumed = make_buffer()
    resumed.load_state_dict(buffer.state_dict())
    assert resumed.take(2, version=0, update=0) == [BufferedCredit("a", 0, 0.5, 2), BufferedCredit("b", 0, 1.0, 1)]


events = st.lists(st.tuples(st.integers(0, 9), st.integers(-4, 4), st.integers(1, 4)), max_size=60)


@given(events, st.integers(1, 4))
def test_no_rollout_is_lost_or_counted_twice(added, batch_size):
    buffer = make_buffer(retrain_gap=0)
    taken: list[BufferedCredit] = []
    for update, (key, value, rollouts) in enumerate(added):
        buffer.add(str(key), 0, Credit(value / 4, rollouts))
        batch = buffer.take(batch_size, version=0, update=update)
        assert len(batch) in (0, batch_size)
        assert len(set(ids(batch))) == len(batch)
        buffer.mark_trained(ids(batch), update=update)
        taken += batch
    rest = buffer.take(len(buffer), version=0, update=len(added)) if len(buffer) else []
    everything = taken + rest
    assert sum(item.rollouts for item in everything) == sum(rollouts for _, _, rollouts in added)
    total = sum(item.credit * item.rollouts for item in everything)
    assert total == pytest.approx(sum(value / 4 * rollouts for _, value, rollouts in added), abs=1e-9)


def test_the_untrained_come_before_those_trained_already() -> None:
    buffer = ExtractorBuffer(max_staleness=9, retrain_gap=0)
    for name in ("popular", "other"):
        buffer.add(name, 0, Credit(1.0))
    buffer.mark_trained([item.generation_id for item in buffer.take(2, version=0, update=0)], update=0)
    buffer.add("popular", 0, Credit(1.0))
    buffer.add("fresh", 1, Credit(1.0))
    assert [item.generation_id for item in buffer.take(1, version=1, update=5)] == ["fresh"]
