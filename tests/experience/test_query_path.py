"""The query path: micro-batches, coalescing, deadlines, cancellation, and that lockstep and evaluation do not take it."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from helpers.banks import add, open_bank

from complementary_rl.config import Config, RetrievalConfig
from complementary_rl.experience.bank import Bank, Query
from complementary_rl.experience.embedding import HashingEmbedder, Vectors
from complementary_rl.experience.index import Snapshot
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.experience.query_path import QueryPath
from complementary_rl.experience.tally import Tally
from complementary_rl.types import Task

FOREVER = 3600.0


class Recording(HashingEmbedder):
    """Remembers its batches; while `hold` is cleared it does not answer, while `fail` is set it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.hold = threading.Event()
        self.hold.set()
        self.called = threading.Event()
        self.fail = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.called.set()
        assert self.hold.wait(10)
        if self.fail:
            raise RuntimeError("no model")
        return super().embed(texts)


class World:
    def __init__(self, folder: Path) -> None:
        self.embedder = Recording()
        self.bank = open_bank(folder / "bank.sqlite", embedder=self.embedder)
        self.ids = [add(self.bank, f"advice about room {i}", key=f"Room {i}.") for i in range(6)]
        self.tally = Tally()
        self.paths: list[QueryPath] = []
        self.embedder.batches.clear()
        self.embedder.called.clear()

    def path(self, **retrieval: object) -> QueryPath:
        self.paths.append(QueryPath(self.bank, RetrievalConfig.model_validate(retrieval), self.tally))
        return self.paths[-1]

    def manager(self, schedule: str, **retrieval: object) -> ExperienceManager:
        config = Config.model_validate({"run": {"schedule": schedule}, "retrieval": retrieval})
        return ExperienceManager(self.bank, None, config, train_extractor=False)

    def retrieved(self) -> list[int]:
        return [self.bank.entry(i).stats.retrieved for i in self.ids]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.embedder.hold.set()
    for path in made.paths:
        path.close()
    made.bank.close()


def query(room: int, seed: int = 0) -> Query:
    return Query(f"Which way in room {room}?", "rooms", 1, seed)


def task(room: int) -> Task:
    return Task(f"t{room}", "rooms", f"Which way in room {room}?", 0, scope="rooms")


async def soon(condition: threading.Event) -> None:
    assert await asyncio.to_thread(condition.wait, 10)


def test_b_queries_of_different_callers_go_together_with_one_embedding_call(world: World) -> None:
    path = world.path(batch_size=4, max_wait=FOREVER)

    async def run() -> list[object]:
        async with asyncio.timeout(10):
            return await asyncio.gather(*(path.retrieve([query(room)], 0) for room in (1, 2, 1, 3)))

    found = asyncio.run(run())
    assert world.embedder.batches == [["Which way in room 1?", "Which way in room 2?", "Which way in room 3?"]]
    assert [sets[0][0][0].text for sets in found] == [f"advice about room {room}" for room in (1, 2, 1, 3)]
    assert world.retrieved() == [0, 2, 1, 1, 0, 0]


def test_fewer_than_b_go_when_t_max_has_passed(world: World) -> None:
    path = world.path(batch_size=100, max_wait=0.02)

    async def run() -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(*(path.retrieve([query(room)], 0) for room in range(3)))
            await path.retrieve([query(4)], 0)

    asyncio.run(run())
    assert [len(batch) for batch in world.embedder.batches] == [3, 1]


def test_a_call_that_carries_b_queries_takes_along_who_waits(world: World) -> None:
    path = world.path(batch_size=3, max_wait=FOREVER)

    async def run() -> None:
        async with asyncio.timeout(10):
            await asyncio.gather(path.retrieve([query(0)], 0), path.retrieve([query(1), query(2), query(3)], 0))

    asyncio.run(run())
    assert [len(batch) for batch in world.embedder.batches] == [4]


def test_callers_get_what_one_call_would_have_given(world: World, tmp_path: Path) -> None:
    queries = [Query(f"Which way in room {i % 4}?", "rooms", 2, seed=i, sets=2) for i in range(12)]
    (tmp_path / "twin").mkdir()
    twin = World(tmp_path / "twin")
    expected = twin.bank.retrieve(queries, step=3, retrieval=RetrievalConfig(score="value"), training=True)
    path = world.path(batch_size=12, score="value")

    async def run() -> list[object]:
        return await asyncio.gather(*(path.retrieve([query], 3) for query in queries))

    assert asyncio.run(run()) == [[sets] for sets in expected]
    assert world.retrieved() == twin.retrieved()
    twin.bank.close()


def test_steps_are_not_mixed(world: World) -> None:
    path = world.path(batch_size=2, searches=1)

    async def run() -> None:
        await asyncio.gather(path.retrieve([query(1)], 4), path.retrieve([query(2)], 5))

    asyncio.run(run())
    assert [world.bank.entry(i).stats.last_retrieved_step for i in world.ids[1:3]] == [4, 5]


def test_a_late_answer_is_none_and_counts_for_nothing(world: World) -> None:
    path = world.path(timeout=0.05, searches=1)
    world.embedder.hold.clear()

    async def run() -> None:
        assert await path.retrieve([query(1), query(2)], 0) is None
        waiting = asyncio.create_task(path.retrieve([query(3)], 0))
        assert await waiting is None, "the thread is still busy"
        world.embedder.hold.set()
        found = None
        while found is None:
            found = await path.retrieve([query(4)], 0)
        assert found[0][0][0].text == "advice about room 4"

    asyncio.run(asyncio.wait_for(run(), 10))
    assert world.retrieved()[1:4] == [0, 0, 0]
    assert world.tally.take()["retrievals_late"] >= 3


def test_a_late_answer_makes_the_rollouts_free(world: World) -> None:
    manager = world.manager("async", timeout=0.05)
    world.embedder.hold.clear()
    assert asyncio.run(manager.retrieve([task(1), task(2)], [0, 1], 0, training=True)) == [[], []]
    assert manager.take_metrics()["retrievals_late"] == 2
    world.embedder.hold.set()
    manager.close()


def test_who_is_cancelled_leaves_the_others_served_and_is_not_counted(world: World) -> None:
    path = world.path(batch_size=3, max_wait=FOREVER)
    world.embedder.hold.clear()

    async def run() -> None:
        gathering = asyncio.create_task(path.retrieve([query(0)], 0))
        await asyncio.sleep(0)
        gathering.cancel()
        searching, served = asyncio.create_task(path.retrieve([query(1)], 0)), asyncio.create_task(path.retrieve([query(2)], 0))
        await soon(world.embedder.called)
        searching.cancel()
        await asyncio.sleep(0)
        world.embedder.hold.set()
        found = await served
        assert found is not None
        assert found[0][0][0].text == "advice about room 2"
        assert gathering.cancelled()
        assert searching.cancelled()

    asyncio.run(asyncio.wait_for(run(), 10))
    assert world.embedder.batches == [["Which way in room 1?", "Which way in room 2?"]]
    assert world.retrieved() == [0, 0, 1, 0, 0, 0]


def test_an_embedder_that_fails_tells_every_caller_and_the_path_goes_on(world: World) -> None:
    path = world.path(batch_size=2, max_wait=0.01)
    world.embedder.fail = True

    async def run() -> None:
        failed = await asyncio.gather(*(path.retrieve([query(room)], 0) for room in (1, 2)), return_exceptions=True)
        assert [str(error) for error in failed] == ["no model"] * 2
        world.embedder.fail = False
        assert await path.retrieve([query(1)], 0)

    asyncio.run(asyncio.wait_for(run(), 10))


def test_writers_do_not_wait_for_a_search(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.path(max_wait=0.0)
    multiplying, go_on = threading.Event(), threading.Event()
    search = Snapshot.search

    def slow(*arguments: object) -> object:
        multiplying.set()
        assert go_on.wait(10)
        return search(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Snapshot, "search", slow)

    async def run() -> None:
        asked = asyncio.create_task(path.retrieve([Query("Room 1.", "rooms", 1, 0), Query("Room 7.", "rooms", 1, 0)], 0))
        await soon(multiplying)
        world.bank.drop([world.ids[1]], step=0)
        add(world.bank, "written meanwhile", key="Room 7.")
        go_on.set()
        found = await asked
        assert found is not None
        shown = [hand[0].text for sets in found for hand in sets]
        assert "written meanwhile" not in shown, "a search sees the bank as it was at its start"
        assert "advice about room 1" not in shown, "what has left in the meantime is not offered"

    asyncio.run(asyncio.wait_for(run(), 10))


def test_retrievals_and_writes_at_the_same_time_lose_nothing(world: World) -> None:
    path = world.path(batch_size=4, max_wait=0.0, searches=3)

    async def run() -> int:
        asked = [asyncio.create_task(path.retrieve([query(i % 6, seed=i)], i // 50)) for i in range(200)]
        for i in range(60):
            written = world.bank.add(f"more advice {i}", key_text=f"Room {i % 9}.", scope="rooms", step=i // 15).entry_id
            if i % 3 == 0:
                world.bank.drop([written], step=i // 15)
            await asyncio.sleep(0)
        found = await asyncio.gather(*asked)
        assert all(sets is not None and len(sets[0]) == 1 for sets in found)
        return sum(len(hand) for sets in found for hands in sets for hand in hands)

    taken = asyncio.run(asyncio.wait_for(run(), 30))
    assert sum(entry.stats.retrieved for entry in world.bank.entries(live_only=False)) == taken
    assert world.bank.rebuild(step=100) == world.bank.entries()


def test_evaluation_waits_for_nobody_and_moves_nothing(world: World) -> None:
    manager = world.manager("async", batch_size=1000, max_wait=FOREVER, timeout=0.001)
    before = world.bank.counts()
    [[[shown]]] = asyncio.run(asyncio.wait_for(manager.retrieve([task(3)], [0], 7, training=False), 10))
    assert shown == (world.ids[3], "advice about room 3")
    assert world.bank.counts() == before
    assert world.retrieved() == [0] * 6
    manager.close()


def test_lockstep_waits_for_nobody_knows_no_deadline_and_starts_no_thread(world: World) -> None:
    manager = world.manager("lockstep", batch_size=1000, max_wait=FOREVER, timeout=1e-9)
    threads = threading.active_count()
    found = asyncio.run(asyncio.wait_for(manager.retrieve([task(3), task(4)], [0, 1], 7, training=True), 10))
    assert [sets[0][0][0] for sets in found] == world.ids[3:5]
    assert threading.active_count() == threads
    assert not {"embedding_hit_share", "queries_per_search"} & manager.take_metrics().keys(), "a resumed run must log the same"


def test_metrics_tell_batches_and_cache_hits(world: World) -> None:
    manager = world.manager("async", batch_size=2)
    world.bank.embedder.take_metrics()

    async def run() -> None:
        for step in range(2):
            await asyncio.gather(*(manager.retrieve([task(room)], [room], step, training=True) for room in (1, 2)))

    asyncio.run(run())
    metrics = manager.take_metrics()
    assert metrics["queries_per_search"] == 2
    assert metrics["embedded_texts"] == 2
    assert metrics["embedding_hit_share"] == 0.5
    assert "embedding_hit_share" not in manager.take_metrics()
    manager.close()


def test_a_cache_shared_by_threads_embeds_a_text_once(tmp_path: Path) -> None:
    embedder = Recording()
    with open_bank(tmp_path / "b", embedder=embedder) as bank:
        embedder.hold.clear()
        threads = [threading.Thread(target=search, args=(bank, "the same text")) for _ in range(3)]
        for thread in threads:
            thread.start()
        embedder.hold.set()
        for thread in threads:
            thread.join(10)
    assert embedder.batches.count(["the same text"]) == 1


def search(bank: Bank, text: str) -> None:
    bank.search_text(text, 1)
