"""Tokenizer and weights from a folder or the hub, checked: what cannot work is said here, before anything is trained.

path ─► tokenizer ─► skeleton (no weights) ─► is there memory? ─► weights ─► complete? finite? ─► LoRA adapters
"""

from typing import TYPE_CHECKING, Any

import torch

from complementary_rl.config import ModelConfig
from complementary_rl.engines.local.lora import add_adapters
from complementary_rl.engines.memory import MemoryNeed, free_memory, memory_need
from complementary_rl.errors import UserError
from complementary_rl.models.names import public_name

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GIB = 1 << 30


def load_tokenizer(path: str) -> "PreTrainedTokenizerBase":
    """Raises UserError when there is none that can be loaded."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path)
    except Exception as error:  # readers of vocabularies raise whatever a damaged file leads them to
        raise UserError(f"{path} has no tokenizer that can be loaded ({first_line(error)}); save one beside the model") from error


def load_model(path: str, settings: ModelConfig, device: torch.device, *, keep_reference: bool = False) -> Any:
    """The PreTrainedModel in `path` on `device`: all of it trainable and float32, or, with `settings.lora`, frozen in `settings.dtype` with
    float32 adapters that change nothing yet.

    Raises UserError when the model cannot be loaded, is damaged or incomplete, or when training it needs more memory than is free.
    """
    check_memory(path, model_need(path, settings, keep_reference=keep_reference), device)
    return read_model(path, settings, device)


def read_model(path: str, settings: ModelConfig, device: torch.device) -> Any:
    """As `load_model`, whether there is memory to train it or not."""
    model = _read(path, settings).to(device)
    _check_finite(path, model)
    if settings.lora is not None:
        add_adapters(model, settings.lora, base=public_name(settings.path))
    return model


def model_need(path: str, settings: ModelConfig, *, keep_reference: bool = False) -> MemoryNeed:
    """What training the model in `path` needs, without reading its weights. Raises UserError as `load_model`."""
    return need_of(path, read_config(path), settings, keep_reference=keep_reference)


def need_of(path: str, config: Any, settings: ModelConfig, *, keep_reference: bool = False) -> MemoryNeed:
    """What training a model of this transformers configuration needs; `path` is what errors call it. Raises UserError for one that is no
    causal language model, or has no layers that `settings.lora` names."""
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            skeleton: Any = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
    except Exception as error:  # a configuration that contradicts itself fails anywhere in the model's code
        raise _unloadable(path, error) from error
    if settings.lora is not None:
        add_adapters(skeleton, settings.lora)
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in skeleton.parameters()]
    trained = sum(size for size, trains in sizes if trains)
    return memory_need(config, sum(size for size, _ in sizes), trained, settings, keep_reference=keep_reference)


def read_config(path: str) -> Any:
    """The transformers configuration of the model in `path`. Raises UserError when there is none that can be read."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(path)
    except Exception as error:  # a configuration that contradicts itself fails anywhere in the model's code
        raise _unloadable(path, error) from error


def check_vocabulary(path: str, tokenizer: "PreTrainedTokenizerBase", model: Any) -> None:
    """Raises UserError when the tokenizer has tokens that the model does not embed."""
    embedded = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > embedded:
        raise UserError(
            f"{path}: the tokenizer has {len(tokenizer)} tokens but the model embeds {embedded}; they do not belong together"
        )


def check_memory(path: str, need: MemoryNeed, device: torch.device) -> None:
    """Raises UserError when `need.held` is more than is free on `device`."""
    free = free_memory(device)
    if need.held > free:
        raise UserError(
            f"training {path} needs {need.held / GIB:.1f} GiB for weights, gradients and optimiser, and {device} has {free / GIB:.1f} GiB "
            "free; train adapters (model.lora.rank = 16), choose a smaller model, or free memory"
        )


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def _read(path: str, settings: ModelConfig) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=torch.float32 if settings.lora is None else getattr(torch, settings.dtype),
            attn_implementation=None if settings.attention == "auto" else settings.attention,
            output_loading_info=True,
        )
    except ImportError as error:
        raise UserError(
            f"model.attention {settings.attention} cannot be used here ({first_line(error)}); use sdpa or auto"
        ) from error
    except Exception as error:  # safetensors, torch and every architecture have errors of their own for a damaged file
        raise _unloadable(path, error) from error
    model, found = loaded
    if missing := sorted(found["missing_keys"]):
        raise UserError(
            f"{path} lacks the weights of {missing[0]}"
            + (f" and {len(missing) - 1} more" if missing[1:] else "")
            + "; they would be "
            "random: fetch the model again, or give a folder that holds a causal language model"
        )
    return model


def _check_finite(path: str, model: Any) -> None:
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise UserError(f"{path}: {name} holds values that are not finite; the weights are damaged or do not fit the dtype")


def _unloadable(path: str, error: Exception) -> UserError:
    return UserError(f"{path} cannot be loaded as a causal language model ({first_line(error)})")
