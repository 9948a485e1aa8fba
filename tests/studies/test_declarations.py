"""Every declaration holds together and resolves to configurations; a broken one says what is wrong."""

from pathlib import Path

import pytest

from complementary_rl.errors import ConfigError
from studies import declaration
from studies.declaration import load, names
from studies.measures import CURVES, MEASURES


@pytest.mark.parametrize("name", names())
def test_every_variant_of_every_study_is_a_valid_configuration(name: str) -> None:
    study = load(name)
    configs = [study.resolve(variant, seed=1) for variant in study.variants]
    assert all(config.run.steps == (study.steps or config.run.steps) for config in configs)
    assert len({config.model_dump_json() for config in configs}) == len(configs), "two variants are the same run"


@pytest.mark.parametrize("name", names())
def test_every_declared_measure_and_curve_exists(name: str) -> None:
    study = load(name)
    assert set(study.curves) <= set(CURVES)
    for measure in study.measures:
        arm, colon, part = measure.partition(": ")
        suites = study.resolve(next(iter(study.variants)), 1).env.options.get("suites")
        assert measure in MEASURES or (colon and arm in ("guided", "free") and isinstance(suites, dict) and part in suites), measure


@pytest.mark.parametrize("name", names())
def test_reported_seeds_are_not_development_seeds(name: str) -> None:
    seeds = load(name).seeds
    assert seeds.reported
    assert not set(seeds.reported) & {0, 11, *seeds.development}


def _declare(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    monkeypatch.setattr(declaration, "DECLARATIONS", folder)
    head = 'title = "t"\nquestion = "q"\nconfig = "quickstart"\nmeasures = ["free"]\n'
    (folder / "mine.toml").write_text(head + text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[seeds]\ndevelopment = [1]\n[variants.a]\n", "both development and reported"),
        ('[[comparisons]]\nof = ["b", "free"]\nagainst = ["a", "free"]\n[variants.a]\n', "names the variant 'b'"),
        ('[[comparisons]]\nof = ["a", "guided"]\nagainst = ["a", "free"]\n[variants.a]\n', "names the measure 'guided'"),
        ("[variant.a]\n", "variant"),
        ("variants = ", "not valid TOML"),
    ],
)
def test_a_declaration_that_does_not_hold_together_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, message: str
) -> None:
    _declare(monkeypatch, tmp_path, text)
    with pytest.raises(ConfigError, match=message):
        load("mine")


def test_a_setting_that_does_not_exist_names_study_and_variant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _declare(monkeypatch, tmp_path, '[variants.a]\n"run.methd" = "baseline"\n')
    with pytest.raises(ConfigError, match=r"study mine, variant 'a'.*did you mean 'run\.method'"):
        load("mine").resolve("a", 1)
    with pytest.raises(ConfigError, match="no study 'yours'; declared: mine"):
        load("yours")
