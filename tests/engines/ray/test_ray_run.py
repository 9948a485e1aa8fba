"""A whole run on Ray, two ranks for each model: the metrics of the local engines', a checkpoint that they read, an export."""

from pathlib import Path
from typing import Any

import pytest
from helpers.runs import records, timeless, tiny_config
from transformers import AutoModelForCausalLM

from complementary_rl.training.run import export_run, train

pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(900)]

ON_RAY = (
    "actor.engine=ray",
    "extractor.engine=ray",
    "cluster.actor={train = 2}",
    "cluster.extractor={train = 2}",
    "cluster.heartbeat=60",
)


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Nested tables and lists as dotted names."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        return {name: leaf for key, inner in value.items() for name, leaf in flat(inner, f"{path}.{key}").items()}
    return {path: value}


def test_a_lockstep_run_is_that_of_the_local_engines(tmp_path: Path) -> None:
    train(tiny_config(tmp_path / "local"))
    config = tiny_config(tmp_path / "ray", *ON_RAY)
    train(config)
    ours, theirs = timeless(tmp_path / "ray"), timeless(tmp_path / "local")
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert flat(mine) == pytest.approx(flat(other), rel=1e-3, abs=1e-6)
    assert records(tmp_path / "ray", "extractor")
    (actor, _) = export_run(config, tmp_path / "export")
    assert AutoModelForCausalLM.from_pretrained(actor).num_parameters() > 0
    # Where it runs is nobody's business: the same run goes on in one process.
    train(tiny_config(tmp_path / "ray", "run.steps=3"), resume=True)
