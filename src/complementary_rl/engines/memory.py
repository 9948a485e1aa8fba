"""How much memory a model takes, by formula, and how much is there.

P parameters, of which T are trained (full: T = P, LoRA: its adapters); b bytes per parameter of `dtype`:

    sampling only    b·P
    full             4·P trainer + b·P sampler + 4·P gradient + 8·P AdamW                       [+ b·P reference]
    LoRA             b·P shared by trainer and sampler + (4 + b)·T adapters + 4·T + 8·T         [reference: + b·T]
    KV cache         2 · layers · KV heads · head size · b per token and sequence
    activations      layers · (8·H + 4·I) · 4 per trained token in a micro-batch; H hidden size, I MLP size
                     with gradient checkpointing (layers · H + 8·H + 4·I) · 4: the layers' inputs, and one layer in full

What stays in memory all the time is the first three; the other two depend on how much is sampled and trained at once.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from complementary_rl.config import ModelConfig

_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes, and numbers of parameters. `held` is needed from start to end by a model that is trained and sampled from in one process;
    `sampling` is what an untrained model would need, `training` what trainers alone do, the reference included, `frozen` the part of
    `held` that another model with adapters on the same base shares."""

    parameters: int
    trained: int
    sampling: int
    training: int
    held: int
    frozen: int
    kv_cache_per_token: int
    activations_per_token: int


def memory_need(config: Any, parameters: int, trained: int, settings: ModelConfig, *, keep_reference: bool = False) -> MemoryNeed:
    """The need of a model with `parameters` in all and `trained` trained ones; `config` is its transformers configuration."""
    width = getattr(torch, settings.dtype).itemsize
    frozen = width * (parameters - trained)
    training = frozen + 16 * trained + keep_reference * width * trained
    hidden, layers = config.hidden_size, config.num_hidden_layers
    heads = getattr(config, "num_attention_heads", 1)  # models without are refused where their layers are looked at
    head_size = getattr(config, "head_dim", None) or hidden // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    mlp = getattr(config, "intermediate_size", None) or 4 * hidden
    layer = 8 * hidden + 4 * mlp
    return MemoryNeed(
        parameters=parameters,
        trained=trained,
        sampling=width * parameters,
        training=training,
        held=training + width * trained,
        frozen=frozen,
        kv_cache_per_token=2 * layers * kv_heads * head_size * width,
        activations_per_token=(layers * hidden + layer if settings.gradient_checkpointing else layers * layer) * 4,
    )


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had on `device`; on the CPU what the system has left, and at most what its container may use."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    return min(int(psutil.virtual_memory().available), _container_limit())


def _container_limit() -> int:
    try:
        limit = _CONTAINER_LIMIT.read_text().strip()
    except OSError:  # no cgroup v2
        limit = "max"
    return sys.maxsize if limit == "max" else int(limit)
