"""Engines: one per trained model. `protocol` says what one does; `make_engine` builds one from a configuration."""

from typing import TYPE_CHECKING

from complementary_rl.config import ModelConfig

if TYPE_CHECKING:
    from complementary_rl.engines.protocol import Engine


def make_engine(
    name: str, model: ModelConfig, *, keep_reference: bool = False, beside: "tuple[ModelConfig, Engine] | None" = None
) -> "Engine":
    """The engine of one model, named "actor" or "extractor" (any name will do); see `factory.make_local_engine`."""
    from complementary_rl.engines.factory import make_local_engine

    return make_local_engine(name, model, keep_reference=keep_reference, beside=beside)
