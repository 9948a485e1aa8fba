"""Engines: one per trained model. `protocol` says what one does; `make_engine` builds one from a configuration."""

from typing import TYPE_CHECKING

from complementary_rl.config import ClusterConfig, ModelConfig

if TYPE_CHECKING:
    from complementary_rl.engines.protocol import Engine


def make_engine(
    name: str,
    model: ModelConfig,
    *,
    cluster: ClusterConfig | None = None,
    keep_reference: bool = False,
    beside: "tuple[ModelConfig, Engine] | None" = None,
) -> "Engine":
    """The engine of one model, named "actor" or "extractor": in this process (where any name will do), or on Ray with the processes of
    `cluster`. See `factory.make_local_engine` and `factory.make_ray_engine`."""
    from complementary_rl.engines.factory import make_local_engine, make_ray_engine

    if cluster is not None:
        return make_ray_engine(name, model, cluster, keep_reference=keep_reference)
    return make_local_engine(name, model, keep_reference=keep_reference, beside=beside)
