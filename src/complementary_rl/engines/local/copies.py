"""A model as the trainer's copy and as the sampler's: what is frozen in which dtype, what is trained, and what it is called."""

import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from complementary_rl.engines.local.lora import adapter_settings, save_adapters


def frozen_copy(model: Any, dtype: torch.dtype) -> Any:
    """A copy of `model` to sample from. Parameters that are frozen in `dtype` already, as those under LoRA adapters, are shared."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad and p.dtype == dtype}
    return freeze(copy.deepcopy(model, shared), dtype)


def freeze(model: Any, dtype: torch.dtype) -> Any:
    """Make `model` itself one to sample from; returns it."""
    model.requires_grad_(False)
    for parameter in model.parameters():  # buffers stay: rotary frequencies in bf16 would turn by radians at position 1,000
        parameter.data = parameter.data.to(dtype)
    if model.config._attn_implementation == "flash_attention_2":
        model.set_attn_implementation("sdpa")
    return model


def trained_parameters(model: Any) -> dict[str, Tensor]:
    """What is trained, and so what is published and saved, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def describe(name: str, model: Any) -> str:
    """The shape of the model called `name`, by which a checkpoint is known to belong to it."""
    c = model.config
    shape = f"{name}: {c.model_type}, {c.num_hidden_layers} layers × {c.hidden_size}, vocabulary {c.vocab_size}"
    adapters = adapter_settings(model)
    return shape if adapters is None else f"{shape}, LoRA of rank {adapters.r}"


def save_model(model: Any, directory: Path) -> None:
    """Write `model` as a Hugging Face folder, or its adapters as one for PEFT."""
    if adapter_settings(model) is None:
        model.save_pretrained(directory)
    else:
        save_adapters(model, directory)
