"""From configuration to engine: where the weights are, on which device, and whether they can be used for chat."""

from collections.abc import Collection, Mapping
from typing import Any

import torch

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ModelConfig
from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.engines.local.loading import GIB, first_line, load_model, load_tokenizer, model_need
from complementary_rl.engines.local.lora import add_adapters
from complementary_rl.engines.local.shared_base import share_base
from complementary_rl.engines.memory import free_memory
from complementary_rl.engines.protocol import Engine
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
    embedded = weights.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > embedded:
        raise UserError(
            f"{path}: the tokenizer has {len(tokenizer)} tokens but the model embeds {embedded}; they do not belong together"
        )
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
    if not _same_base(settings, model):
        return None
    assert isinstance(engine, LocalEngine)
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
