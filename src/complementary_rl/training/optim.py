"""From configuration to the engine's optimiser settings."""

from complementary_rl.config import OptimConfig
from complementary_rl.engines.protocol import OptimParams


def optim_params(config: OptimConfig) -> OptimParams:
    """The engine's view of an optimiser section; the field names are the same on purpose."""
    return OptimParams(**config.model_dump())
