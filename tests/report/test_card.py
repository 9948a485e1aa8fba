"""Model cards, by the files they are made from."""

import json
import re
from pathlib import Path

import pytest
from helpers.models import save_tiny_model
from huggingface_hub import ModelCard

from complementary_rl.config_file import load_config
from complementary_rl.report.card import CURVE, licence_of, write_card
from complementary_rl.report.intervals import Estimate
from complementary_rl.report.provenance import Provenance
from complementary_rl.report.summary import ArmSummary, MethodSummary, RunSummary, write_summary

BASE = "Org/Base-0.6B"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three steps that was evaluated."""
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "run.json").write_text("{}")
    (directory / "config.toml").write_text("")
    steps = [
        {"kind": "step", "step": n, "episodes": 8 * (n + 1), "rollout": {"guided": {"success": 0.5}, "free": {"success": 0.25}}}
        for n in range(3)
    ]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    arms = {"guided": ArmSummary(success=Estimate(mean=0.71, lo=0.65, hi=0.77, n=256))}
    made = Provenance.current("crl train", 3, "abc")
    method = MethodSummary(arms=arms, steps=3, episodes=24, wall_seconds=9.0, provenance=made)
    write_summary(directory, RunSummary(name="run", methods={"complementary": method}))
    return directory


def card(run: Path, folder: Path, *overrides: str) -> ModelCard:
    folder.mkdir(exist_ok=True)
    config = load_config(None, [f"run.dir={str(run)!r}", "run.seed=3", *overrides])
    return ModelCard.load(write_card(folder, run, config))


def test_a_whole_model(run: Path, tmp_path: Path) -> None:
    made = card(run, tmp_path / "actor", f"actor.model.path={BASE}")
    data = made.data.to_dict()
    assert (data["library_name"], data["base_model"], data["license"]) == ("transformers", BASE, "unknown")
    assert "complementary-rl" in data["tags"]
    assert "| minihack/dark-rooms, guided | 0.71 [0.65, 0.77] |" in made.text
    assert "vllm serve ./actor" in made.text
    assert f"![Success in training]({CURVE})" in made.text
    assert (tmp_path / "actor" / CURVE).read_bytes().startswith(b"\x89PNG")
    assert "seed = 3" in made.text
    assert str(tmp_path) not in made.content, "where it was on this machine is nobody's business"


def test_an_adapter_names_its_base_and_how_to_load_it(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "extractor"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": BASE}))
    made = card(run, folder, f"extractor.model.path={BASE}")
    data = made.data.to_dict()
    assert (data["library_name"], data["base_model"]) == ("peft", BASE)
    assert f'AutoModelForCausalLM.from_pretrained("{BASE}")' in made.text and "PeftModel.from_pretrained" in made.text
    assert f"vllm serve {BASE} --enable-lora --lora-modules extractor=./extractor" in made.text


def test_a_base_that_is_a_folder_here_is_named_without_its_path(run: Path, tmp_path: Path) -> None:
    base = save_tiny_model(tmp_path / "base")
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / "adapter_config.json").write_text("{}")
    made = card(
        run, tmp_path / "actor", f"actor.model.path={str(base)!r}", f"bank.source={str(tmp_path / 'old' / 'bank.sqlite')!r}"
    )
    assert str(tmp_path) not in made.content
    assert "`base`, a local folder" in made.text and 'path = "base"' in made.text and 'source = "bank.sqlite"' in made.text
    assert 'from_pretrained("BASE_MODEL")' in made.text


def test_a_run_without_results_says_so(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    (run / "metrics.jsonl").write_text("")
    made = card(run, tmp_path / "actor")
    assert "has not been evaluated" in made.text
    assert CURVE not in made.text
    assert made.data.to_dict()["license"] == "apache-2.0", "of the embedded models"
    assert "base_model" not in made.data.to_dict()


def test_the_licence_is_that_of_the_base(tmp_path: Path) -> None:
    base = save_tiny_model(tmp_path / "base")
    assert licence_of(str(base)) == "unknown"
    (base / "README.md").write_text("---\ntags:\n- x\nlicense: mit\n---\n# license: none\n")
    assert licence_of(str(base)) == "mit"
    (base / "README.md").write_text("license: mit\n")
    assert licence_of(str(base)) == "unknown"
    assert [licence_of(name) for name in ("embedded:actor", "packaged:smollm2")] == ["apache-2.0"] * 2


def test_a_configuration_cannot_break_out_of_its_block(run: Path, tmp_path: Path) -> None:
    made = card(run, tmp_path / "actor", "env.options={text = '````'}")
    assert re.search(r"^`{5}toml$", made.text, re.MULTILINE)
