"""Configuration: TOML in, overrides, refusals that name the field and the remedy."""

import tomllib
from pathlib import Path

import pytest

from complementary_rl.config import Config
from complementary_rl.config_file import config_hash, dump_config, load_config, parse_config
from complementary_rl.configs import find_config, shipped
from complementary_rl.errors import ConfigError


def test_resolved_config_reads_back_equal() -> None:
    config = load_config(None, ["run.method=baseline", "env.options={rooms=4}", "actor.optim.betas=[0.8, 0.9]"])
    assert parse_config(tomllib.loads(dump_config(config))) == config


@pytest.mark.parametrize("name", sorted(shipped()))
def test_every_shipped_config_loads(name: str) -> None:
    config = load_config(find_config(name))
    assert parse_config(tomllib.loads(dump_config(config))) == config


def test_overrides_apply_in_order_and_reach_nested_fields() -> None:
    config = load_config(None, ["actor.optim.lr=1e-3", "actor.optim.lr=2e-3", "run.name=plain words"])
    assert config.actor.optim.lr == 2e-3
    assert config.run.name == "plain words"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("actor.optm.lr=3", "actor.optm: unknown setting; did you mean 'actor.optim'?"),
        ("actor.optim.learning=3", "actor.optim.learning: unknown setting"),
        ("retreival.score=value", "retreival: unknown setting; did you mean 'retrieval'?"),
        ("env.group_size=7", "env.group_size is 7: it must be even"),
        ("env.group_size=2", "must be at least 4"),
        ("actor.model.lora.rnk=3", "actor.model.lora.rnk: unknown setting; did you mean 'actor.model.lora.rank'?"),
        ("actor.model.lora.rank=0", "actor.model.lora.rank: Input should be greater than or equal to 1"),
        ("run.steps=0", "run.steps: Input should be greater than or equal to 1 (given: 0)"),
        ("run.method=magic", "run.method: Input should be 'complementary'"),
        ("actor.optim=3", "actor.optim: Input should be a valid dictionary"),
        ("nonsense", "not of the form section.field=value"),
        ("run.name.deeper=1", "run.name"),
        ("retrieval.entries_per_group=5", "a group has 4 guided rollouts"),
        ("credit.rule=contrast", "set retrieval.entries_per_group to 2 or more"),
        ("actor.updates_per_batch=9", "a step has 8 groups"),
        ("actor.engine=rya", "actor.engine: Input should be 'local' or 'ray' (given: 'rya')"),
        ("cluster.actor.sample=0", "cluster.actor.sample: Input should be greater than or equal to 1 (given: 0)"),
        ("cluster.extractor.train=2", "extractor.engine is 'local'; set extractor.engine = 'ray'"),
    ],
)
def test_bad_settings_are_refused_with_path_and_remedy(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r".*") as error:
        load_config(None, [override])
    assert message in str(error.value)


def test_devices_are_given_by_ray() -> None:
    with pytest.raises(ConfigError, match=r"set cluster\.actor\.train_gpus"):
        load_config(None, ["actor.engine=ray", "actor.model.device=cuda:0"])


def test_the_hash_knows_what_is_computed_not_by_how_many() -> None:
    local, ray = load_config(), load_config(None, ["actor.engine=ray", "cluster.actor.train=4"])
    assert config_hash(local) == config_hash(ray) != config_hash(load_config(None, ["actor.optim.lr=1e-3"]))


def test_credit_relative_to_the_free_half_needs_one() -> None:
    with pytest.raises(ConfigError, match="'all_guided' has none"):
        load_config(None, ["run.method=all_guided", "credit.rule=relative"])


def test_odd_groups_are_fine_where_no_group_is_split() -> None:
    assert load_config(None, ["run.method=baseline", "env.group_size=3"]).env.group_size == 3


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[run\nsteps = 3")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(broken)
    with pytest.raises(ConfigError, match=r"no shipped config of that name; shipped: .*quickstart"):
        find_config("quickstrat")


def test_the_hash_knows_what_shapes_results_and_nothing_else() -> None:
    base = load_config(None)
    assert config_hash(base) == config_hash(load_config(None, ["run.name=other", "run.dir=elsewhere"]))
    assert config_hash(base) != config_hash(load_config(None, ["run.seed=1"]))


def test_every_field_has_help() -> None:
    def missing(model: type, path: str) -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            nested = getattr(field.annotation, "model_fields", None)
            if nested is not None:
                found += missing(field.annotation, f"{path}{name}.")
            elif not field.description:
                found.append(f"{path}{name}")
        return found

    assert missing(Config, "") == []
