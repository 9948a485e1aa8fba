"""Merges of near-duplicates: which entries meet, when a merge is due, and that both modes go on after a resume as if unbroken."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from complementary_rl.experience.bank import Bank
from complementary_rl.experience.near_duplicates import NearDuplicates
from complementary_rl.experience.strands import read_strands
from tests.helpers.banks import AngleEmbedder, add, open_bank
from tests.helpers.merging import KEEP_ALL, Bench, texts_of

ROOM = "room @1"
MERGE_ALL = '[{"op":"merge","ids":[1,2],"text":"both @1"}]'


def bench(path: Path, answer: str = KEEP_ALL, **settings: Any) -> Bench:
    return Bench(path, lambda prompt: answer, embedder=AngleEmbedder(), **{"mode": "clusters", "similarity": 0.95, **settings})


def fill(bank: Bank, *texts: str, key: str = ROOM) -> list[int]:
    return [add(bank, text, key=key) for text in texts]


def share(bench: Bench) -> float:
    return bench.tally.take()["near_duplicate_share"]


def redundant(bench: Bench) -> bool:
    return asyncio.run(bench.merger.redundant())


def test_near_duplicates_of_one_task_meet_the_most_redundant_first(tmp_path: Path) -> None:
    b = bench(tmp_path / "bank.sqlite")
    pair = fill(b.bank, "north @0.5", "north @0.49")
    fill(b.bank, "alone @0")
    three = fill(b.bank, "south @1", "south @0.999", "south @0.998")
    fill(b.bank, "also south @1", "other @0.7", key="another room @0.2")
    b.run()
    assert b.chunks() == [three, pair], "entries of another task, and those that resemble none, are not read"
    assert [len(call) for call in b.engine.calls] == [2], "one batched call"
    assert share(b) == pytest.approx(5 / 8)


def test_a_cluster_is_bounded_and_so_is_a_merge(tmp_path: Path) -> None:
    b = bench(tmp_path / "bank.sqlite", chunk=3, max_chunks=2)
    ids = fill(b.bank, *(f"note {i} @1" for i in range(10)))
    for step in range(3):
        b.run(step)
    chunks = b.chunks()
    assert chunks[:2] == [ids[:3], ids[3:6]]
    assert all(len(chunk) <= 3 for chunk in chunks)
    assert {entry for chunk in chunks for entry in chunk} == set(ids), "in the end all of them were read"
    assert len(chunks) == 4


def test_a_kept_cluster_is_read_again_only_when_it_grew(tmp_path: Path) -> None:
    b = bench(tmp_path / "bank.sqlite")
    ids = fill(b.bank, "north @1", "north @0.999")
    b.run(1)
    b.run(2)
    assert b.chunks() == [ids]
    [new] = fill(b.bank, "north @0.998")
    b.run(3)
    assert b.chunks()[1:] == [[*ids, new]]


def test_what_was_merged_meets_the_rest(tmp_path: Path) -> None:
    b = bench(tmp_path / "bank.sqlite", MERGE_ALL, chunk=2)
    ids = fill(b.bank, "north @1", "north @0.999", "north @0.998")
    b.run(1)
    assert b.chunks() == [ids[:2]]
    b.run(2)
    assert [(entry.text, entry.parents) for entry in b.bank.entries()] == [("both @1", (ids[2], 4))]
    b.run(3)
    assert len(b.chunks()) == 2


def test_entries_alone_under_their_keys_must_be_about_like_tasks(tmp_path: Path) -> None:
    b = bench(tmp_path / "bank.sqlite")
    near = [*fill(b.bank, "north @1", key="hall @1"), *fill(b.bank, "to the north @1", key="the hall @0.999")]
    fill(b.bank, "go north @1", key="a river @0.2")
    b.run()
    assert b.chunks() == [near]


def test_the_count_follows_what_comes_and_goes(tmp_path: Path) -> None:
    with open_bank(tmp_path / "bank.sqlite", embedder=AngleEmbedder()) as bank:
        near = NearDuplicates(bank, 0.95)
        ids: list[int] = []

        def look(kept_up: NearDuplicates) -> tuple[float, list[int]]:
            asyncio.run(kept_up.update(read_strands(bank)))
            return kept_up.share(), kept_up.unread()

        assert look(near) == (0.0, [])
        for step in range(6):
            ids += fill(bank, *(f"note {step}.{i} @{1 - 0.07 * i}" for i in range(12)))
            fill(bank, f"single {step} @1", key=f"key {step} @{1 - 0.01 * step}")
            bank.drop(ids[step::5], step=step)
            bank.merge([entry.id for entry in bank.entries(key_text=ROOM)][:3], f"merged {step} @0.9", step=step)
            assert look(near) == look(NearDuplicates(bank, 0.95)), "counted again from nothing it is the same"
        bank.drop(ids, step=9)
        look(near)
        bank.drop([entry.id for entry in bank.entries()], step=9)
        assert look(near) == (0.0, [])


def test_many_alike_are_counted_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("complementary_rl.experience.near_duplicates._MANY", 3)
    b = bench(tmp_path / "bank.sqlite", chunk=20)
    ids = fill(b.bank, *(f"note {i} @1" for i in range(9)))
    b.run(1)
    assert b.chunks() == [ids]
    b.bank.drop(ids[1:], step=2)
    b.run(2)
    b.tally.take()
    b.run(3)
    assert share(b) == 0.0


@pytest.mark.parametrize("mode", ["clusters", "chunks"])
def test_redundancy_makes_a_merge_due_until_it_was_read(tmp_path: Path, mode: str) -> None:
    b = bench(tmp_path / "bank.sqlite", mode=mode, redundancy=0.5)
    fill(b.bank, "north @1", "west @0.5", "south @0", "east @0.8")
    assert not redundant(b)
    fill(b.bank, "north @0.999")
    assert not redundant(b), "2 of 5"
    fill(b.bank, "west @0.49")
    assert redundant(b), "4 of 6"
    assert redundant(b), "as long as nobody has read them"
    b.run(1)
    b.run(2)
    assert not redundant(b), "the extractor kept them: asking again would change nothing"
    fill(b.bank, "north @0.998", "west @0.48")
    assert not redundant(b), "2 new of 8"
    fill(b.bank, *(f"again {i} @0" for i in range(6)))
    assert redundant(b)


def test_a_cluster_whose_parents_changed_is_read_again_within_a_bound(tmp_path: Path) -> None:
    b = bench(tmp_path / "bank.sqlite", MERGE_ALL, max_chunks=1)
    ids = fill(b.bank, *(f"note {i} @1" for i in range(4)))

    async def run(step: int) -> None:
        b.engine.gate = asyncio.Event()
        merging = asyncio.create_task(b.merger.run(step))
        async with asyncio.timeout(30):
            while len(b.engine.calls) < step:  # noqa: ASYNC110 (the engine has no event for it)
                await asyncio.sleep(0.001)
        # The second of the chunk is rewritten while the extractor reads.
        b.bank.update(b.chunks()[-1][1], f"rewritten {step} @1", key_text=ROOM, scope="rooms", step=step)
        b.engine.gate.set()
        await merging

    for step in (1, 2, 3):
        asyncio.run(run(step))
    counts = b.tally.take()
    assert (counts["merge_conflict"], counts["merge_retries"], counts["merge_given_up"]) == (3, 2, 1)
    assert [chunk[0] for chunk in b.chunks()] == [ids[0]] * 3, "what is left of it, with what came instead"
    b.engine.gate = None
    b.run(4)
    assert len(b.bank) == 3, "another cluster has its turn"


def test_an_answer_that_cannot_be_read_is_asked_for_again_within_a_bound(tmp_path: Path) -> None:
    b = bench(tmp_path / "bank.sqlite", "let me think")
    fill(b.bank, "north @1", "north @0.999")
    for step in range(4):
        b.run(step)
    # Three tries around the first, three around the second.
    assert b.tally.take()["merge_unparsable"] == 6
    assert len(b.bank) == 2


def test_a_cluster_that_breaks_the_extractor_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        if "poison" in prompt:
            raise RuntimeError("out of memory")
        return KEEP_ALL

    b = Bench(tmp_path / "bank.sqlite", reply, embedder=AngleEmbedder(), mode="clusters", similarity=0.95, max_chunks=1)
    fill(b.bank, "poison a @1", "poison b @1", "poison c @1")
    good = fill(b.bank, "north @0", "north @0.01")
    for step in range(9):
        with pytest.raises(RuntimeError):
            b.run(step)
    b.run(9)
    assert b.chunks()[-1] == good


@pytest.mark.parametrize("mode", ["clusters", "chunks"])
def test_a_resumed_merger_goes_on_bit_for_bit(tmp_path: Path, mode: str) -> None:
    """With the checkpoint's bank and state, written as JSON, every later chunk and entry is the same."""

    def reply(prompt: str) -> str:
        texts = texts_of(prompt)
        if len(texts) % 2:
            return KEEP_ALL
        return json.dumps([{"op": "merge", "ids": [1, 2], "text": texts[0].replace("note", "joint")}])

    def opened(path: Path) -> Bench:
        settings = {"mode": mode, "similarity": 0.9, "redundancy": 0.2, "max_chunks": 2, "chunk": 3}
        return Bench(path, reply, embedder=AngleEmbedder(), **settings)

    def live(b: Bench, step: int) -> None:
        for i in range(5):
            text = f"note {step}.{i} @{round(abs((7 * step + 3 * i) % 11 / 10 - 0.05), 2)}"
            add(b.bank, text, key=f"key {i % 3} @1", step=step)
        add(b.bank, f"note {step} @1", key=f"single {step} @{1 - step / 100}", step=step)
        if asyncio.run(b.merger.redundant()):
            b.run(step)

    def story(b: Bench) -> Any:
        entries = [(e.id, e.text, e.parents, e.retired_step, e.generation_id) for e in b.bank.entries(live_only=False)]
        return entries, b.bank.log(1000), json.dumps(b.merger.state_dict()), b.tally.take()

    whole = opened(tmp_path / "whole.sqlite")
    for step in range(5):
        live(whole, step)
    whole.bank.checkpoint_to(tmp_path / "checkpoint.sqlite")
    state = json.dumps(whole.merger.state_dict())
    whole.tally.take()
    Bank.restore(tmp_path / "checkpoint.sqlite", tmp_path / "resumed.sqlite")
    resumed = opened(tmp_path / "resumed.sqlite")
    resumed.merger.load_state_dict(json.loads(state))
    before = len(whole.chunks())
    for step in range(5, 9):
        live(whole, step)
        live(resumed, step)
    assert story(resumed) == story(whole)
    assert resumed.chunks() == whole.chunks()[before:]
    assert len(resumed.chunks()) >= 4
