"""Engines: one per trained model. `protocol` says what one does; `make_engine` builds one from a configuration."""

from typing import TYPE_CHECKING

from complementary_rl.config import ClusterConfig, ModelConfig, VllmConfig

if TYPE_CHECKING:
    from complementary_rl.engines.protocol import Engine


def make_engine(
    name: str,
    model: ModelConfig,
    *,
    cluster: ClusterConfig | None = None,
    vllm: VllmConfig | None = None,
    keep_reference: bool = False,
    beside: "tuple[ModelConfig, Engine] | None" = None,
) -> "Engine":
    """The engine of one model, named "actor" or "extractor": in this process (where any name will do), or on Ray with the processes of
    `cluster`. With `vllm` it samples from these servers. See `factory.make_local_engine`, `make_ray_engine` and `with_vllm`."""
    from complementary_rl.engines.factory import make_local_engine, make_ray_engine, with_vllm

    if cluster is not None:
        engine: Engine = make_ray_engine(name, model, cluster, keep_reference=keep_reference)
    else:
        engine = make_local_engine(name, model, keep_reference=keep_reference, beside=beside)
    return engine if vllm is None else with_vllm(engine, model, vllm)
