"""Many threads on one bank: whole transactions only, whatever ends a thread's work half-way, and nobody waits for good."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from helpers.banks import KEYS, add, open_bank, retrieve

from complementary_rl.config import RetrievalConfig
from complementary_rl.errors import BankError
from complementary_rl.experience.bank import Bank
from complementary_rl.seeds import rng

VALUE = RetrievalConfig(score="value")
TIMEOUT = 30.0


def together(*jobs: Callable[[], None]) -> None:
    """Run jobs in threads that start at once; raises what any of them raised, and when one does not end."""
    failures: list[BaseException] = []
    ready = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        try:
            ready.wait(TIMEOUT)
            job()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
        assert not thread.is_alive(), "a thread waits for good"
    if failures:
        raise failures[0]


@pytest.mark.parametrize("ending", [RuntimeError, KeyboardInterrupt, asyncio.CancelledError, SystemExit])
def test_work_that_ends_half_way_leaves_nothing_and_blocks_nobody(tmp_path, ending):
    """Transactions of three operations, every third of them broken off after the first or second."""

    def write(name: int) -> None:
        random = rng("threads", name)
        for i in range(20):
            breaks_off = i % 3 == 2
            try:
                with bank.transaction():
                    entry = add(bank, f"{'lost' if breaks_off else 'kept'} {name}.{i}", key=KEYS[i % 3])
                    if breaks_off and random.random() < 0.5:
                        raise ending
                    bank.record_outcomes(0, [(entry, True, f"{name}.{i}")])
                    if breaks_off:
                        raise ending
                    bank.update(entry, f"kept {name}.{i}, refined", key_text=KEYS[0], scope="rooms", step=0)
            except ending:
                continue

    def look() -> None:
        for i in range(40):
            for shown in retrieve(bank, VALUE, k=5, seed=i, training=i % 2 == 0):
                assert all("lost" not in each.text for each in shown)
            assert all("refined" in entry.text for entry in bank.entries())

    with open_bank(tmp_path / "b") as bank:
        together(*(lambda name=name: write(name) for name in range(3)), look, look)
        entries = bank.entries(live_only=False)
        assert len(entries) == 2 * 3 * 14
        assert not any("lost" in entry.text for entry in entries)
        assert bank.rebuild(0) == bank.entries()
        assert bank._state.store.rows("SELECT count(*) FROM outcomes") == [(3 * 14,)]
    with open_bank(tmp_path / "b") as bank:
        assert bank.entries(live_only=False) == entries


def test_of_many_that_undo_one_operation_one_does(tmp_path):
    done: list[str] = []

    def undo(operation: int) -> None:
        try:
            bank.revert(operation, step=1)
            done.append("reverted")
        except BankError as error:
            assert "reverted already" in str(error)
            done.append("refused")

    with open_bank(tmp_path / "b") as bank:
        bank.merge([add(bank, "first"), add(bank, "second")], "both", step=0)
        together(*(lambda: undo(3) for _ in range(6)))
        assert sorted(done) == ["refused"] * 5 + ["reverted"]
        assert [entry.text for entry in bank.entries()] == ["first", "second"]
        assert bank.rebuild(1) == bank.entries()


def test_checkpoints_and_exports_beside_writers_are_of_one_moment(tmp_path):
    """Entries come in pairs: a copy that holds half a pair was not of one moment."""

    def write() -> None:
        for i in range(60):
            with bank.transaction():
                add(bank, f"left {i}")
                add(bank, f"right {i}")

    def copy() -> None:
        for i in range(4):
            bank.checkpoint_to(tmp_path / f"copy-{i}")
            bank.export_jsonl(tmp_path / f"export-{i}")
            Bank.import_from(tmp_path / f"export-{i}", tmp_path / f"imported-{i}")

    def export_beside() -> None:
        """As `crl bank export` of a run that is going on: by another connection."""
        for i in range(4, 10):
            with open_bank(tmp_path / "b", read_only=True) as reader:
                reader.export_jsonl(tmp_path / f"export-{i}")
            Bank.import_from(tmp_path / f"export-{i}", tmp_path / f"imported-{i}")

    with open_bank(tmp_path / "b") as bank:
        together(write, copy, export_beside)
        assert len(bank) == 120
    for path in [*tmp_path.glob("copy-?"), *tmp_path.glob("imported-?")]:
        with open_bank(path) as copied:
            assert len(copied) % 2 == 0
            assert copied.rebuild(0) == copied.entries()


def test_an_export_of_a_bank_that_is_being_written_is_of_one_moment(tmp_path, monkeypatch):
    with open_bank(tmp_path / "b") as writer, open_bank(tmp_path / "b", read_only=True) as reader:
        add(writer, "before")
        stream = reader._state.store.stream

        def disturbed(sql: str):
            yield from stream(sql)
            add(writer, f"while {sql} was read")

        monkeypatch.setattr(reader._state.store, "stream", disturbed)
        reader.export_jsonl(tmp_path / "export.jsonl")
        assert len(writer) > 10
    Bank.import_from(tmp_path / "export.jsonl", tmp_path / "copy")
    with open_bank(tmp_path / "copy") as copied:
        assert [entry.text for entry in copied.rebuild(0)] == [entry.text for entry in copied.entries()] == ["before"]
