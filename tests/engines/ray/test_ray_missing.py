"""What is said where Ray is not installed."""

import sys
from pathlib import Path

import pytest
from helpers.models import save_tiny_model

from complementary_rl.config import ClusterConfig, ModelConfig
from complementary_rl.engines import make_engine
from complementary_rl.errors import UserError


def test_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    model = ModelConfig(path=str(save_tiny_model(tmp_path / "tiny")))
    with pytest.raises(UserError, match=r"pip install 'complementary-rl\[ray\]'"):
        make_engine("actor", model, cluster=ClusterConfig())
