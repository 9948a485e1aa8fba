"""How runs begin: from nothing, from a given bank, or not at all."""

import shutil
from pathlib import Path

import pytest
from helpers.banks import add, open_bank
from helpers.models import save_tiny_model
from helpers.runs import bank_tables, parity_config, records

from complementary_rl.config import BankConfig
from complementary_rl.errors import BankError, CheckpointError, ConfigError, UserError
from complementary_rl.experience.embedding import HashingEmbedder
from complementary_rl.training.given_bank import start_from
from complementary_rl.training.run import train
from complementary_rl.training.session import open_session


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A bank of four: shown with success, with failure and loss, never, and retired."""
    path = tmp_path / "given.sqlite"
    with open_bank(path, run_id="another") as bank:
        ids = [
            add(bank, f"the exit is in the {place}", scope="parity/0", generation="g")
            for place in ("north", "west", "south", "east")
        ]
        bank.record_outcomes(40, [(ids[0], True, "t"), (ids[0], True, "t"), (ids[1], False, "t"), (ids[1], None, "t")])
        bank.drop([ids[3]], step=41)
    return path


def test_a_given_bank_is_copied_with_its_outcomes_and_without_its_past(given: Path, tmp_path: Path) -> None:
    with open_bank(tmp_path / "bank.sqlite", run_id="new") as bank:
        assert start_from(given, bank, BankConfig()) == 3
        entries = bank.entries()
        assert bank.run_id == "new"
    assert [entry.text.rpartition(" ")[2] for entry in entries] == ["north", "west", "south"]
    stats = [(entry.stats.shown, entry.stats.successes, entry.stats.failures) for entry in entries]
    assert stats == [(2, 2, 0), (2, 0, 1), (0, 0, 0)]
    assert all(entry.generation_id is None and entry.scope == "parity/0" and entry.created_step == 0 for entry in entries)


def test_what_came_with_a_given_bank_is_undone_like_anything_else(given: Path, tmp_path: Path) -> None:
    with open_bank(tmp_path / "bank.sqlite") as bank:
        start_from(given, bank, BankConfig())
        before = bank.entries()
        north, west, south = (entry.id for entry in before)
        merged = bank.merge([north, west], "the exit is in the north-west", step=1).entry_id
        merge = bank.log(1)[0].id
        with pytest.raises(BankError, match=rf"built on since; revert first, in this order: {merge} \(merge\)"):
            bank.revert(1, step=1)
        done = bank.revert(merge, step=2)
        assert (done.revived, done.retired) == ([north, west], [merged])
        assert bank.entries() == before, "with the outcomes they came with"
        given_by = next(record.id for record in bank.history(south) if record.kind == "add")
        assert bank.revert(given_by, step=3).retired == [south]
        assert [entry.id for entry in bank.entries()] == [north, west]
        assert bank.rebuild(0) == before
        assert bank.rebuild(3) == bank.entries()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_export_is_as_good_as_a_bank(given: Path, tmp_path: Path, form: str) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="needs the extra `parquet`")
    with open_bank(given, run_id=None, read_only=True) as source:
        {"jsonl": source.export_jsonl, "parquet": source.export_parquet}[form](tmp_path / f"export.{form}")
    tables = []
    for name in (given, tmp_path / f"export.{form}"):
        with open_bank(tmp_path / f"{name.stem}-copy.sqlite") as bank:
            start_from(name, bank, BankConfig())
        tables.append(bank_tables(tmp_path / f"{name.stem}-copy.sqlite")["entries"])
    assert tables[0] == tables[1]


def test_what_is_no_bank_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with open_bank(tmp_path / "bank.sqlite") as bank:
        with pytest.raises(ConfigError, match=r"bank\.source: there is no file"):
            start_from(tmp_path / "nowhere.sqlite", bank, BankConfig())
        with pytest.raises(BankError, match="not"):
            start_from(tmp_path / "notes.txt", bank, BankConfig())
        assert bank.embedder.name == HashingEmbedder().name


def test_offline_needs_a_bank_and_baseline_takes_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^bank\.source: method 'offline'"):
        parity_config(tmp_path, "run.method=offline")
    with pytest.raises(ConfigError, match=r"^bank\.source: method 'baseline'"):
        parity_config(tmp_path, "run.method=baseline", "bank.source=bank.sqlite")


def test_the_whole_method_goes_on_from_a_given_bank(given: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ("run.warmup_steps=0", "retrieval.min_similarity=-1", "retrieval.cross_task=true", f"bank.source={given}")
    train(parity_config(run, *options))
    assert "guided" in records(run, "step")[0]["rollout"]
    # Another run from the same bank finds it untouched.
    with open_bank(given, run_id="another", read_only=True) as bank:
        assert len(bank) == 3


def test_a_bank_in_the_way_is_kept(given: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(given, run / "bank.sqlite")
    with pytest.raises(UserError, match=r"--bank\.source"):
        train(parity_config(run))
    assert len(bank_tables(run / "bank.sqlite")["entries"]) == 4


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.suite=minihack/dark-romms", "did you mean 'minihack/dark-rooms'"),
        ("env.options={roms = 3}", "no option 'roms'"),
        ("actor.model.path=/nowhere/model", "does not exist"),
        ("extractor.model.path=/nowhere/model", "does not exist"),
        ("actor.prompts=compcat", "compact"),
        ("extractor.prompts=compcat", "compact"),
        ("bank.embedder=/nowhere/embedder", "embedder"),
        ("bank.source=/nowhere/bank.sqlite", "no file"),
    ],
)
def test_a_run_that_cannot_start_leaves_the_directory_to_the_corrected_one(override: str, message: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(UserError, match=message):
        train(parity_config(run, override))
    assert not run.exists()


@pytest.mark.parametrize(("missing", "message"), [("tokenizer", "no tokenizer"), ("template", "chat template")])
def test_a_model_that_cannot_chat_is_refused(missing: str, message: str, tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model")
    patterns = {"tokenizer": "tokenizer*", "template": "chat_template*"}
    found = list(model.glob(patterns[missing]))
    assert found
    for path in found:
        path.unlink()
    with pytest.raises(UserError, match=message):
        train(parity_config(tmp_path / "run", f"actor.model.path={model}"))


def test_a_directory_that_cannot_be_made_is_the_users_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be written"):
        train(parity_config(tmp_path / "file" / "run"))


def test_two_processes_do_not_train_in_one_directory(tmp_path: Path) -> None:
    config = parity_config(tmp_path / "run", "run.method=baseline", "run.steps=1")
    session = open_session(config, tmp_path / "run")
    try:
        with pytest.raises(UserError, match="another process is training"):
            open_session(config, tmp_path / "run", resume=True)
    finally:
        session.close()
    open_session(config, tmp_path / "run", resume=True).close()


def test_a_damaged_record_of_the_run_is_no_traceback(tmp_path: Path) -> None:
    config = parity_config(tmp_path / "run", "run.method=baseline", "run.steps=1")
    open_session(config, tmp_path / "run").close()
    (tmp_path / "run" / "run.json").write_text("{")
    with pytest.raises(CheckpointError, match="is damaged"):
        open_session(config, tmp_path / "run", resume=True)
