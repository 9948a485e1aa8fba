"""Export to Parquet and back: lossless, readable by others, refused when incomplete, explained when pyarrow is missing."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from helpers.banks import add, generation, live, open_bank

from complementary_rl.errors import BankError, UserError
from complementary_rl.experience.bank import Bank


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow.parquet", reason="needs the extra `parquet`")


def dump(bank: Bank, path: Path) -> bytes:
    bank.export_jsonl(path)
    return path.read_bytes()


def exported(tmp_path: Path) -> Path:
    with open_bank(tmp_path / "b", duplicate_similarity=0.99) as bank:
        live(bank, range(4))
        bank.export_parquet(tmp_path / "out.parquet")
    return tmp_path / "out.parquet"


def test_parquet_loses_nothing(tmp_path, arrow, monkeypatch):
    monkeypatch.setattr("complementary_rl.experience.parquet._BATCH", 7)
    text = 'a\x00b \u2028 🧭 "quoted" \\ \r\n'
    with open_bank(tmp_path / "b", duplicate_similarity=0.99) as bank:
        live(bank, range(4))
        add(bank, text, key=text, scope=text, step=4)
        bank.revert(bank.log(1)[0].id, step=4)
        bank.record_credits(4, [("g", 0.1 + 0.2, 3)])
        bank.record_outcomes(4, [(1, None, "lost")])
        rows = bank.export_parquet(tmp_path / "out.parquet")
        before, entries = dump(bank, tmp_path / "before"), bank.entries(live_only=False)
    assert Bank.import_from(tmp_path / "out.parquet", tmp_path / "copy") == rows
    with open_bank(tmp_path / "copy", duplicate_similarity=0.99) as copy:
        assert dump(copy, tmp_path / "after") == before
        assert copy.entries(live_only=False) == entries
        assert copy.generations(["g1-1"]) == [generation("g1-1")]
        assert copy.rebuild(4) == copy.entries()
        live(copy, range(5, 7))
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_an_empty_bank_goes_out_and_comes_back(tmp_path, arrow):
    with open_bank(tmp_path / "b") as bank:
        bank.export_parquet(tmp_path / "out.parquet")
    Bank.import_from(tmp_path / "out.parquet", tmp_path / "copy")
    with open_bank(tmp_path / "copy") as copy:
        assert len(copy) == 0


def test_tables_are_parquet_files_that_anything_reads(tmp_path, arrow):
    folder = exported(tmp_path)
    table = arrow.read_table(folder / "entries.parquet")
    with open_bank(tmp_path / "b", read_only=True) as bank:
        entries = bank.entries(live_only=False)
    assert table.column("text").to_pylist() == [entry.text for entry in entries]
    assert table.column("retired_step").to_pylist() == [entry.retired_step for entry in entries]
    assert str(table.schema.field("successes").type) == "int64"


def no_file(folder: Path) -> None:
    (folder / "entries.parquet").unlink()


def torn_file(folder: Path) -> None:
    path = folder / "operations.parquet"
    path.write_bytes(path.read_bytes()[:-100])


def another_file(folder: Path) -> None:
    shutil.copy(folder / "lineage.parquet", folder / "writers.parquet")


def no_manifest(folder: Path) -> None:
    (folder / "bank.json").unlink()


def change(**values):
    def damage(folder: Path) -> None:
        manifest = json.loads((folder / "bank.json").read_text())
        (folder / "bank.json").write_text(json.dumps({**manifest, **values}))

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (no_file, r"entries\.parquet cannot be read"),
        (torn_file, r"operations\.parquet cannot be read"),
        (another_file, r"writers\.parquet, row 1: no row"),
        (no_manifest, "cannot be read"),
        (change(format="photos"), "not an exported bank"),
        (change(schema=99), "pip install -U"),
        (change(rows={"photos": 1}), r"photos\.parquet cannot be read"),
        (change(rows={"entries": 1}), "entries.parquet"),
    ],
)
def test_a_bad_folder_is_refused_and_leaves_no_bank(tmp_path, arrow, damage, message):
    folder = exported(tmp_path)
    damage(folder)
    with pytest.raises(BankError, match=message):
        Bank.import_from(folder, tmp_path / "copy")
    assert not list(tmp_path.glob("*copy*"))


def test_a_folder_that_is_there_is_not_written_over(tmp_path, arrow):
    folder = exported(tmp_path)
    before = (folder / "entries.parquet").read_bytes()
    with open_bank(tmp_path / "b", duplicate_similarity=0.99) as bank, pytest.raises(BankError, match="is a folder already"):
        bank.export_parquet(folder)
    assert (folder / "entries.parquet").read_bytes() == before


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "folder").mkdir()
    with open_bank(tmp_path / "b") as bank, pytest.raises(UserError, match=r"complementary-rl\[parquet\]"):
        bank.export_parquet(tmp_path / "out.parquet")
    with pytest.raises(UserError, match=r"complementary-rl\[parquet\]"):
        Bank.import_from(tmp_path / "folder", tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "folder"]
