"""From configuration to engine: where the weights are, on which device, and whether they can be used for chat."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ClusterConfig, ModelConfig, VllmConfig, WorkersConfig
from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.local.loading import (
    GIB,
    check_vocabulary,
    first_line,
    load_model,
    load_tokenizer,
    model_need,
    read_config,
)
from complementary_rl.engines.local.lora import add_adapters
from complementary_rl.engines.local.shared_base import share_base
from complementary_rl.engines.memory import free_memory
from complementary_rl.engines.protocol import Engine
from complementary_rl.engines.vllm.engine import VllmEngine
from complementary_rl.errors import UserError
from complementary_rl.models.names import public_name, resolve

_OWN: dict[str, Any] = {"lora": None, "max_context": None, "gradient_checkpointing": False}
"""Settings in which models on one base may differ."""


def make_local_engine(
    name: str, model: ModelConfig, *, keep_reference: bool = False, beside: tuple[ModelConfig, Engine] | None = None
) -> LocalEngine:
    """Load a model and its tokenizer and put a local engine around them; `keep_reference` keeps a frozen copy of the start weights.

    `beside` is an engine that has not computed yet, and what it was made of: where both train LoRA adapters on one base, its frozen
    weights are shared instead of loaded again.

    Raises UserError when the model cannot be found, loaded or held in memory, has no tokenizer or chat template, when the device is not
    there, or when `model.max_context` is more than the model has.
    """
    path = resolve(model.path)
    device = make_device(model.device)
    tokenizer = load_tokenizer(path)
    stop_ids = ChatCodec(tokenizer).stop_ids
    weights = _on_base_of(beside, model) or load_model(path, model, device, keep_reference=keep_reference)
    check_vocabulary(path, tokenizer, weights)
    return LocalEngine(
        name,
        weights,
        tokenizer,
        stop_ids=stop_ids,
        max_context=_max_context(path, weights.config, model.max_context),
        dtype=getattr(torch, model.dtype),
        keep_reference=keep_reference,
        gradient_checkpointing=model.gradient_checkpointing,
    )


def make_ray_engine(name: str, model: ModelConfig, cluster: ClusterConfig, *, keep_reference: bool = False) -> Engine:
    """Put an engine on Ray around a model, named "actor" or "extractor", with the processes that `cluster` gives it.

    Raises UserError as `make_local_engine`, and when Ray is not installed, cannot be joined, or has not the resources.
    """
    from complementary_rl.engines.ray.connection import check_room, connect, disconnect

    path = resolve(model.path)
    if Path(path).is_dir() and ":" not in model.path:
        model = model.model_copy(update={"path": str(Path(path).absolute())})
    tokenizer = load_tokenizer(path)
    max_context = _max_context(path, read_config(path), model.max_context)
    workers: WorkersConfig = getattr(cluster, name)
    connect(cluster)
    try:
        check_room(name, workers)
        from complementary_rl.engines.ray.engine import RayEngine
    except BaseException:
        disconnect()
        raise
    return RayEngine(
        name, model, tokenizer, max_context=max_context, workers=workers, cluster=cluster, keep_reference=keep_reference
    )


def with_vllm(engine: Engine, model: ModelConfig, settings: VllmConfig) -> VllmEngine:
    """Have vLLM servers sample what `engine`, made of `model`, trains. Raises UserError, and closes the engine, when they cannot."""
    try:
        stop_ids = ChatCodec(engine.tokenizer).stop_ids
        return VllmEngine(engine, settings, stop_ids=stop_ids, adapters=model.lora is not None)
    except BaseException:
        engine.close()
        raise


def check_memory_of(models: Mapping[str, ModelConfig], *, references: Collection[str] = ()) -> None:
    """Raises UserError when the models cannot be trained side by side, by name, on the devices they are for; those in `references` keep a
    frozen copy of their start weights. No weights are read."""
    needs: dict[str, tuple[ModelConfig, torch.device, int]] = {}
    for name, model in models.items():
        need = model_need(resolve(model.path), model, keep_reference=name in references)
        shared = any(_same_base(model, other) for other, _, _ in needs.values())
        needs[name] = model, make_device(model.device), need.held - shared * need.frozen
    for device in {device for _, device, _ in needs.values()}:
        here = {name: held for name, (_, where, held) in needs.items() if where == device}
        free = free_memory(device)
        if sum(here.values()) > free:
            told = " and ".join(f"{name} {held / GIB:.1f} GiB" for name, held in here.items())
            raise UserError(
                f"weights, gradients and optimiser need {told}, and {device} has {free / GIB:.1f} GiB free; train adapters "
                "(lora.rank = 16), on one base for both models if need be, choose smaller models, or free memory"
            )


def _same_base(one: ModelConfig, other: ModelConfig) -> bool:
    """Whether both are adapters on the same frozen weights."""
    return one.lora is not None and other.lora is not None and one.model_copy(update=_OWN) == other.model_copy(update=_OWN)


def _on_base_of(beside: tuple[ModelConfig, Engine] | None, model: ModelConfig) -> Any | None:
    """A model over the frozen weights of the engine `beside`, with adapters of its own; None where they differ in more than adapters."""
    if beside is None or model.lora is None:
        return None
    settings, engine = beside
    if isinstance(engine, VllmEngine):
        engine = engine.trainer
    if not isinstance(engine, LocalEngine) or not _same_base(settings, model):
        return None
    base = share_base(engine.model)
    add_adapters(base, model.lora, base=public_name(model.path))
    return base


def make_device(name: str) -> torch.device:
    """The device of `model.device`. Raises UserError when it cannot be used."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts when it was built without the backend
        raise UserError(f"device {name} cannot be used here ({first_line(error)}); use auto, cpu or cuda:0") from error
    return device


def _max_context(path: str, config: Any, wanted: int | None) -> int:
    held: int | None = getattr(config, "max_position_embeddings", None)
    if held is not None and (wanted or 0) > held:
        raise UserError(f"model.max_context is {wanted} but {path} was made for {held} tokens; lower it")
    limit = wanted or held
    if limit is None:
        raise UserError(f"{path} does not say how long its context is; set model.max_context")
    return limit
