import asyncio
import json
from pathlib import Path

import pytest

from tests.helpers.banks import add
from tests.helpers.merging import KEEP_ALL, Bench, texts_of


def merge_first_two(prompt: str) -> str:
    first, second = texts_of(prompt)[:2]
    return json.dumps([{"op": "merge", "ids": [1, 2], "text": f"({first} + {second})"}])


def test_entries_of_one_task_meet_and_those_alone_meet_in_their_scope(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: KEEP_ALL)
    bench.fill(2, 1, 3, 1)
    add(bench.bank, "elsewhere alone", key="river", scope="rivers")
    bench.run()
    assert bench.chunks() == [[1, 2], [4, 5, 6], [3, 7]]
    assert [len(call) for call in bench.engine.calls] == [3], "the chunks of a round are one batched call"
    assert len(bench.bank) == 8, "entries that are not mentioned are kept"


def test_a_chunks_output_slides_into_the_next(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", merge_first_two)
    bench.fill(8)
    bench.run()
    # 1 and 2 become 9, which slides on together with 3.
    assert bench.chunks()[:3] == [[1, 2, 3, 4], [9, 3, 5, 6], [10, 5, 7, 8]]
    assert all(len(chunk) <= 4 for chunk in bench.chunks())
    merged = bench.bank.entry(9)
    assert (merged.text, merged.parents, merged.key_text, merged.generation_id) == (
        "(note 0.0 + note 0.1)",
        (1, 2),
        "room 0",
        "m/s1-0",
    )
    assert bench.bank.entry(1).retired_step == 1


def test_a_merge_is_bounded_and_the_next_goes_on_where_it_stopped(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: KEEP_ALL, max_chunks=2)
    bench.fill(6, 2, 2)
    for step in range(3):
        bench.run(step)
    first, second = [1, 2, 3, 4], [1, 2, 5, 6]
    assert bench.chunks() == [first, [7, 8], [9, 10], second, [7, 8], [9, 10]]
    ids = [request.id for call in bench.engine.calls for request in call]
    assert len(set(ids)) == len(ids)


def test_a_small_bank_is_read_once_per_merge(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: KEEP_ALL)
    bench.fill(3)
    bench.run()
    assert bench.chunks() == [[1, 2, 3]]
    bench.run(2)
    assert bench.chunks() == [[1, 2, 3]] * 2


def test_nothing_to_merge_asks_nobody(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", merge_first_two)
    bench.run()
    bench.fill(1)
    bench.run()
    assert bench.engine.calls == []


def test_the_cursor_survives_a_checkpoint(tmp_path: Path) -> None:
    def life(name: str, *, checkpoint: bool) -> list[list[int]]:
        bench = Bench(tmp_path / f"{name}.sqlite", merge_first_two, max_chunks=2)
        bench.fill(7, 5, 1, 1, 1)
        chunks: list[list[int]] = []
        for step in range(6):
            bench.run(step)
            chunks, bench_chunks = bench.chunks(), chunks
            assert len(chunks) > len(bench_chunks) or step > 3
            if checkpoint:
                bench.merger.load_state_dict(json.loads(json.dumps(bench.merger.state_dict())))
        return chunks

    assert life("whole", checkpoint=False) == life("resumed", checkpoint=True)


def test_drop_and_merge_are_applied_and_counted(tmp_path: Path) -> None:
    answer = '[{"op":"keep","id":1},{"op":"merge","ids":[2,3],"text":"both"},{"op":"drop","id":4}]'
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: answer)
    bench.fill(4)
    bench.run()
    assert [e.text for e in bench.bank.entries()] == ["note 0.0", "both"]
    assert bench.bank.generations(["m/s1-0"])[0].id == "m/s1-0"
    counts = bench.tally.take()
    assert (counts["merge_chunks"], counts["merge_merge"], counts["merge_drop"]) == (1, 1, 1)


@pytest.mark.parametrize(
    ("texts", "outputs"), [(["-", "."], ["refused"]), (["-", "both"], []), ([], [])], ids=["all", "one of two", "no text"]
)
def test_an_answer_of_which_every_text_was_refused_is_handed_back(texts: list[str], outputs: list[str], tmp_path: Path) -> None:
    merges = [{"op": "merge", "ids": [2 * i + 1, 2 * i + 2], "text": text} for i, text in enumerate(texts)]
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: json.dumps([*merges, {"op": "drop", "id": 5}]), chunk=5)
    bench.fill(5)
    assert [output for _, output in asyncio.run(bench.merger.run(1))] == outputs
    assert bench.tally.take().get("merge_refused", 0.0) == texts.count("-") + texts.count(".")
    assert len(bench.bank) == 4 - texts.count("both")


def test_an_answer_that_cannot_be_read_changes_nothing_and_is_handed_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: "let me think")
    bench.fill(3)
    [(generation, output)] = asyncio.run(bench.merger.run(1))
    assert (generation.id, output) == ("m/s1-0", "unparsable")
    assert len(bench.bank) == 3
    assert bench.tally.take()["merge_unparsable"] == 1


def test_an_entry_retired_while_the_extractor_read_is_skipped_and_counted(tmp_path: Path) -> None:
    answer = '[{"op":"merge","ids":[1,2],"text":"both"},{"op":"drop","id":3}]'
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: answer, max_chunks=1)
    bench.fill(3)

    async def run() -> None:
        bench.engine.gate = asyncio.Event()
        merging = asyncio.create_task(bench.merger.run(1))
        for _ in range(10_000):
            if bench.engine.calls:
                break
            await asyncio.sleep(0.001)
        bench.bank.update(2, "rewritten", key_text="room 0", scope="rooms", step=1)
        bench.engine.gate.set()
        await merging

    asyncio.run(run())
    assert [e.text for e in bench.bank.entries()] == ["note 0.0", "rewritten"]
    counts = bench.tally.take()
    assert counts["merge_conflict"] == 1
    assert counts["merge_drop"] == 1


def test_a_chunk_that_does_not_fit_the_context_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: KEEP_ALL, context=300)
    for text in ("long " * 150, "short"):
        add(bench.bank, text, key="room 0")
    bench.run()
    assert bench.engine.calls == []
    assert bench.tally.take()["merge_too_long"] == 1


def test_a_crowded_strand_is_read_to_its_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "bank.sqlite", lambda prompt: KEEP_ALL, max_chunks=3)
    bench.fill(20)
    for step in range(4):
        bench.run(step)
    assert {entry for chunk in bench.chunks() for entry in chunk} == set(range(1, 21))
