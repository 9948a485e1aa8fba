"""The bank file as a product: two writers, damage, strange files, a full disk, readers, threads."""

import fcntl
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from helpers.banks import KEYS, add, live, open_bank, retrieve

from complementary_rl.config import BankConfig, RetrievalConfig
from complementary_rl.errors import BankError, InfrastructureError
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.embedding import HashingEmbedder
from complementary_rl.experience.schema import VERSION
from complementary_rl.experience.store import create

VALUE = RetrievalConfig(score="value")
TESTS = Path(__file__).parents[1]


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r})\n" + textwrap.dedent(script)
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )


# --- more than one process -------------------------------------------------------------------------------------------------------


def test_a_second_writer_is_told_who_writes(tmp_path):
    path = tmp_path / "bank.sqlite"
    script = """
        from pathlib import Path
        from helpers.banks import open_bank
        from complementary_rl.errors import BankError
        try:
            open_bank(Path(sys.argv[1]))
        except BankError as error:
            print(error)
    """
    with open_bank(path):
        out, err = start(script, str(path)).communicate(timeout=30)
        assert f"pid {os.getpid()}" in out, err
        assert "read-only" in out
        with pytest.raises(BankError, match="being written"):
            open_bank(path)
    out, err = start(script, str(path)).communicate(timeout=30)
    assert (out, err) == ("", "")


def test_readers_see_a_bank_that_is_being_written_and_do_not_hold_it_up(tmp_path):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as writer:
        first = add(writer, "first")
        with open_bank(path, read_only=True, run_id=None) as reader:
            second = add(writer, "second")
            assert [r.entry_id for r in retrieve(reader, VALUE, k=5)[0]] == [first]
            assert reader.entry(second).text == "second"
        with open_bank(path, read_only=True) as reader:
            assert len(reader) == 2


def test_nothing_moves_in_a_read_only_bank(tmp_path):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        live(bank, range(3))
    before = path.read_bytes()
    with open_bank(path, read_only=True, run_id=None) as bank:
        entries = bank.entries()
        retrieve(bank, VALUE, step=9, training=False)
        bank.search_text("vault", 3)
        for change in (
            lambda: add(bank, "note"),
            lambda: bank.record_outcomes(0, [(1, True, "t")]),
            lambda: bank.drop([1], step=0),
            lambda: retrieve(bank, VALUE, training=True),
        ):
            with pytest.raises(BankError, match="read-only"):
                change()
        assert bank.entries() == entries
    assert path.read_bytes() == before


def test_evaluation_moves_nothing_in_a_bank_open_for_writing(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        live(bank, range(3))
        entries, counts = bank.entries(live_only=False), bank.counts()
        bank.export_jsonl(tmp_path / "before")
        for seed in range(5):
            retrieve(bank, VALUE, seed=seed, step=50, training=False)
            retrieve(bank, RetrievalConfig(score="paper"), seed=seed, step=50, training=False)
        bank.export_jsonl(tmp_path / "after")
        assert (bank.entries(live_only=False), bank.counts()) == (entries, counts)
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_bank_in_a_directory_one_may_not_write_can_be_read(tmp_path):
    with open_bank(tmp_path / "bank.sqlite") as bank:
        add(bank, "note")
    tmp_path.chmod(0o555)
    try:
        with open_bank(tmp_path / "bank.sqlite", read_only=True) as bank:
            assert len(bank) == 1
    finally:
        tmp_path.chmod(0o755)


# --- files that are no bank, or not this one -------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("content", [b"not a database, but long enough to have a header" * 40, os.urandom(8192)])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, content, read_only):
    path = tmp_path / "bank.sqlite"
    path.write_bytes(content)
    with pytest.raises(BankError, match="damaged or no bank"):
        open_bank(path, read_only=read_only)
    assert path.read_bytes() == content


@pytest.mark.parametrize("page", [1, 4, 9])
def test_a_damaged_bank_is_refused(tmp_path, page):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        live(bank, range(3))
    content = bytearray(path.read_bytes())
    content[4096 * page : 4096 * page + 2048] = os.urandom(2048)
    path.write_bytes(content)
    with pytest.raises(BankError, match="checkpoint"):
        open_bank(path)


def test_a_truncated_bank_is_refused(tmp_path):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        live(bank, range(3))
    path.write_bytes(path.read_bytes()[: 4096 * 7 + 100])
    with pytest.raises(BankError, match="damaged"):
        open_bank(path)


def test_another_program_s_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "bank.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE photos (id)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(BankError, match="not an experience bank"):
        open_bank(path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(tmp_path):
    path = tmp_path / "bank.sqlite"
    open_bank(path).close()
    newer = sqlite3.connect(path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    with pytest.raises(BankError, match="pip install -U"):
        open_bank(path)


def test_another_run_s_bank_is_refused_unless_any_will_do(tmp_path):
    path = tmp_path / "bank.sqlite"
    open_bank(path, run_id="mine").close()
    with pytest.raises(BankError, match=r"'mine'.*'other'.*bank.source"):
        open_bank(path, run_id="other")
    with open_bank(path, run_id=None) as bank:
        assert bank.run_id == "mine"


def test_another_embedder_is_refused(tmp_path):
    path = tmp_path / "bank.sqlite"
    open_bank(path).close()
    with pytest.raises(BankError, match=r"set bank\.embedder = 'hashing'"):
        open_bank(path, embedder=HashingEmbedder(dimensions=64))


def test_a_bank_that_is_not_there_is_not_made_by_looking(tmp_path):
    with pytest.raises(BankError, match="no bank at"):
        open_bank(tmp_path / "bank.sqlite", read_only=True)
    (tmp_path / "empty").touch()
    with pytest.raises(BankError, match="no bank yet"):
        open_bank(tmp_path / "empty", read_only=True)
    assert not (tmp_path / "bank.sqlite").exists()


def test_a_path_that_cannot_be_opened_is_explained(tmp_path):
    with pytest.raises(BankError, match="choose a directory"):
        open_bank(tmp_path / "missing" / "bank.sqlite")
    (tmp_path / "folder").mkdir()
    with pytest.raises(BankError, match="is a folder, not a bank"):
        open_bank(tmp_path / "folder")


def test_a_failed_opening_keeps_no_lock(tmp_path):
    path = tmp_path / "bank.sqlite"
    open_bank(path, run_id="mine").close()
    for _ in range(2):
        with pytest.raises(BankError, match="belongs to run"):
            open_bank(path, run_id="other")
    open_bank(path, run_id="mine").close()


def test_names_with_special_characters_are_paths_like_any_other(tmp_path):
    path = tmp_path / "a?b#c %41.sqlite"
    open_bank(path).close()
    assert path.exists()


# --- a full disk -----------------------------------------------------------------------------------------------------------------


def fill(bank: Bank) -> int:
    """Add until the disk is full; returns how many were acknowledged."""
    store = bank._state.store
    pages = store.rows("PRAGMA page_count")[0][0]
    store.run(f"PRAGMA max_page_count = {pages + 12}")
    for i in range(10_000):
        try:
            add(bank, f"note {i} " + "x" * 500, key=f"key {i}")
        except InfrastructureError as error:
            assert "full" in str(error)
            assert "intact" in str(error)
            return i
    raise AssertionError("the disk never filled up")


def test_a_full_disk_loses_nothing_acknowledged(tmp_path):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        first = add(bank, "before")
        acknowledged = fill(bank)
        assert acknowledged > 5
        assert len(bank) == 1 + acknowledged
        assert bank.rebuild(0) == bank.entries()
        assert retrieve(bank, VALUE)[0][0].entry_id == first
        with pytest.raises(InfrastructureError), bank.transaction():
            for i in range(100):
                add(bank, "y" * 1000, key=f"more {i}")
        assert len(bank) == 1 + acknowledged
        bank._state.store.run("PRAGMA max_page_count = 100000")
        add(bank, "there is room again", key=KEYS[1])
    with open_bank(path) as bank:
        assert len(bank) == 2 + acknowledged
        assert bank.rebuild(0) == bank.entries()


def test_a_checkpoint_that_finds_no_room_leaves_the_earlier_one(tmp_path, monkeypatch):
    target = tmp_path / "bank.copy"
    with open_bank(tmp_path / "bank.sqlite") as bank:
        add(bank, "note")
        bank.checkpoint_to(target)
        before = target.read_bytes()
        monkeypatch.setattr("os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(InfrastructureError, match="No space left"):
            bank.checkpoint_to(target)
    assert target.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir() if "partial" in p.name) == []


FULL = """
    import resource
    from pathlib import Path
    from helpers.banks import open_bank
    from complementary_rl.errors import InfrastructureError
    from complementary_rl.experience.bank import Bank
    home = Path(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))  # no file may grow beyond: as a disk without room
    with open_bank(home / "bank.sqlite", read_only=True) as bank:
        for work in (
            lambda: Bank.import_from(home / "export.jsonl", home / "imported"),
            lambda: Bank.restore(home / "bank.sqlite", home / "restored"),
            lambda: bank.checkpoint_to(home / "checkpoint"),
            lambda: bank.export_jsonl(home / "out.jsonl"),
        ):
            try:
                work()
            except InfrastructureError as error:
                print(error)
"""


def test_copies_that_find_no_room_leave_nothing_behind(tmp_path):
    with open_bank(tmp_path / "bank.sqlite") as bank:
        live(bank, range(6))
        bank.export_jsonl(tmp_path / "export.jsonl")
    assert (tmp_path / "export.jsonl").stat().st_size > 40_000
    before = {path.name for path in tmp_path.iterdir()}
    out, err = start(FULL, str(tmp_path)).communicate(timeout=30)
    assert len(out.splitlines()) == 4, (out, err)
    left = {path.name for path in tmp_path.iterdir()} - before
    assert left <= {"bank.sqlite-wal", "bank.sqlite-shm"}
    with open_bank(tmp_path / "bank.sqlite") as bank:
        assert bank.rebuild(5) == bank.entries()


# --- a file that another program locks -------------------------------------------------------------------------------------------


def test_a_file_locked_by_another_program_is_waited_for_and_then_told(tmp_path, monkeypatch):
    monkeypatch.setattr("complementary_rl.experience.store._BUSY_TIMEOUT", 0.2)
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        add(bank, "before")
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InfrastructureError, match=r"locked.*\(or the file\) and resume"):
            add(bank, "in vain")
        assert [entry.text for entry in bank.entries()] == ["before"]
        release = threading.Timer(0.05, other.close)
        release.start()
        add(bank, "after a short wait")
        release.join()
        assert bank.rebuild(0) == bank.entries()


# --- a torn write-ahead log ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", ["cut", "zeros", "noise"])
def test_a_torn_write_ahead_log_gives_the_bank_of_an_earlier_moment(tmp_path, torn):
    """As losing power may leave it."""
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        for i in range(30):
            add(bank, f"note {i}", step=i)
        files = {name: (tmp_path / name).read_bytes() for name in ("bank.sqlite", "bank.sqlite-wal")}
    log = files["bank.sqlite-wal"]
    kept = len(log) * 2 // 3
    tail = {"cut": b"", "zeros": bytes(len(log) - kept), "noise": os.urandom(len(log) - kept)}[torn]
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "bank.sqlite").write_bytes(files["bank.sqlite"])
    (tmp_path / "torn" / "bank.sqlite-wal").write_bytes(log[:kept] + tail)
    with open_bank(tmp_path / "torn" / "bank.sqlite") as bank:
        assert 10 < len(bank) < 30
        assert [entry.text for entry in bank.entries()] == [f"note {i}" for i in range(len(bank))]
        assert bank.rebuild(29) == bank.entries()
        add(bank, "and on", step=30)


# --- backup and restore ----------------------------------------------------------------------------------------------------------


def test_restoring_replaces_what_was_there_with_its_write_ahead_log(tmp_path):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        add(bank, "kept")
        bank.checkpoint_to(tmp_path / "copy")
        add(bank, "lost")
        copies = {name: (tmp_path / name).read_bytes() for name in ("bank.sqlite", "bank.sqlite-wal")}
    for name, content in copies.items():
        (tmp_path / name).write_bytes(content)  # as a killed process leaves it
    Bank.restore(tmp_path / "copy", path)
    with open_bank(path) as bank:
        assert [entry.text for entry in bank.entries()] == ["kept"]


def test_restoring_refuses_what_is_no_bank_and_what_is_in_use(tmp_path):
    path = tmp_path / "bank.sqlite"
    with open_bank(path) as bank:
        add(bank, "note")
        bank.checkpoint_to(tmp_path / "copy")
        with pytest.raises(BankError, match="being written"):
            Bank.restore(tmp_path / "copy", path)
    (tmp_path / "bad").write_bytes(b"x" * 5000)
    for source in ("bad", "missing"):
        with pytest.raises(BankError):
            Bank.restore(tmp_path / source, path)
    with open_bank(path) as bank:
        assert len(bank) == 1


def test_two_cannot_import_into_one_place_at_once(tmp_path):
    with open_bank(tmp_path / "bank.sqlite") as bank:
        add(bank, "note")
        bank.export_jsonl(tmp_path / "export.jsonl")
    with create(tmp_path / "copy", VERSION), pytest.raises(BankError, match="being written"):
        Bank.import_from(tmp_path / "export.jsonl", tmp_path / "copy")


# --- threads ---------------------------------------------------------------------------------------------------------------------


def test_threads_may_share_a_bank(tmp_path):
    failures = []
    with open_bank(tmp_path / "b") as bank:
        add(bank, "note 0")
        stop = threading.Event()

        def read() -> None:
            try:
                while not stop.is_set():
                    assert retrieve(bank, VALUE, k=3, training=False)[0]
                    bank.counts()
            except Exception as error:
                failures.append(error)

        def write(name: int) -> None:
            try:
                for i in range(40):
                    with bank.transaction():
                        entry = add(bank, f"note {name}.{i}", generation=f"{name}.{i}")
                        retrieve(bank, VALUE, training=True)
                        bank.record_outcomes(0, [(entry, True, "t")])
            except Exception as error:
                failures.append(error)

        reader = threading.Thread(target=read)
        writers = [threading.Thread(target=write, args=(i,)) for i in range(3)]
        for thread in [reader, *writers]:
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        reader.join()
        assert failures == []
        assert len(bank) == 121
        assert bank.rebuild(0) == bank.entries()


def test_no_operation_costs_more_in_a_larger_bank(tmp_path):
    def seconds(bank: Bank, name: str) -> float:
        started = time.perf_counter()
        with bank.transaction():
            for i in range(100):
                entry = add(bank, f"{name} {i}", key=KEYS[i % 3])
                bank.record_outcomes(0, [(entry, True, "t")])
                bank.update(entry, f"{name} {i}, refined", key_text=KEYS[0], scope="rooms", step=0)
        return time.perf_counter() - started

    with open_bank(tmp_path / "b", capacity=10_000, eviction="value") as bank:
        small = min(seconds(bank, f"small {i}") for i in range(3))
        with bank.transaction():
            for i in range(10_000):
                add(bank, f"filling {i}", key=KEYS[i % 3])
        large = min(seconds(bank, f"large {i}") for i in range(3))
        assert bank.counts()["evict"] > 300
    assert large < 5 * small


# --- what must not become a bank -------------------------------------------------------------------------------------------------


def test_a_file_without_a_bank_in_it_stays_as_it_is_unless_one_is_to_be_made(tmp_path):
    path = tmp_path / "bank.sqlite"
    path.touch()
    with pytest.raises(BankError, match="holds no bank yet"):
        Bank.open(path, BankConfig(), HashingEmbedder(), run_id=None, make=False)
    assert path.read_bytes() == b""
    assert list(tmp_path.iterdir()) == [path], "no lock stays behind"
    open_bank(path).close()
    Bank.open(path, BankConfig(), HashingEmbedder(), run_id=None, make=False).close()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "special file"])
def test_what_is_no_file_is_said_to_be_none(tmp_path, make, read_only, request):
    make(tmp_path / "bank.sqlite")
    with pytest.raises(BankError, match=rf"is a {request.node.callspec.id.partition('-')[0]}, not a bank"):
        open_bank(tmp_path / "bank.sqlite", read_only=read_only)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_lock_whose_file_was_taken_away_keeps_nobody_out_and_is_not_taken_for_one(tmp_path, monkeypatch):
    """Between opening the lock's file and locking it, its holder closes: the one that is locked then is no longer there."""
    path = tmp_path / "bank.sqlite"
    holder = open_bank(path)
    real, closed = fcntl.flock, []

    def flock(file, how):
        if not closed:
            closed.append(True)
            holder.close()
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with open_bank(path):
        assert path.with_name("bank.sqlite.lock").exists()
        with pytest.raises(BankError, match="being written"):
            open_bank(path)
