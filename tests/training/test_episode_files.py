"""Readable episodes are written whatever an environment says."""

import json
from pathlib import Path

from complementary_rl.training.metrics import write_episodes


def test_a_lone_surrogate_does_not_stop_a_run(tmp_path: Path) -> None:
    write_episodes(tmp_path / "episodes" / "step_0.jsonl", [{"observation": "a \ud800 b"}])
    assert json.loads((tmp_path / "episodes" / "step_0.jsonl").read_text(encoding="utf-8")) == {"observation": "a ? b"}
