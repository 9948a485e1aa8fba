"""From configuration to engine: where the weights are, on which device, and whether they can be used for chat."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ModelConfig
from complementary_rl.engines.local.engine import LocalEngine
from complementary_rl.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_EMBEDDED = "embedded:"


def make_local_engine(name: str, model: ModelConfig, *, keep_reference: bool = False) -> LocalEngine:
    """Load a model and its tokenizer and put a local engine around them; `keep_reference` keeps a frozen copy of the weights.

    Raises UserError when the model cannot be found or loaded, has no tokenizer or chat template, when the device is not there,
    or when `model.max_context` is more than the model has.
    """
    path = _resolve(model.path)
    device = _device(model.device)
    tokenizer = _tokenizer(path)
    stop_ids = ChatCodec(tokenizer).stop_ids
    weights = _weights(path).to(device)
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


def _resolve(path: str) -> str:
    """A folder, or a hub name. Something that looks like a folder must be one."""
    if path.startswith(_EMBEDDED):
        from complementary_rl.models.embedded import resolve

        return str(resolve(path))
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise UserError(f"{path} has no config.json; model.path must be a folder written by save_pretrained")
        return str(folder)
    if folder.exists() or folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise UserError(f"model folder {path} does not exist; give a folder, a hub name such as Qwen/Qwen3-0.6B, or embedded:actor")
    return path


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch asserts when it was built without the backend
        raise UserError(f"device {name} cannot be used here ({_first_line(error)}); use auto, cpu or cuda:0") from error
    return device


def _tokenizer(path: str) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} has no tokenizer that can be loaded ({_first_line(error)}); save one beside the model") from error
    return tokenizer


def _weights(path: str) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} cannot be loaded as a causal language model ({_first_line(error)})") from error


def _max_context(path: str, config: Any, wanted: int | None) -> int:
    held: int | None = getattr(config, "max_position_embeddings", None)
    if held is not None and (wanted or 0) > held:
        raise UserError(f"model.max_context is {wanted} but {path} was made for {held} tokens; lower it")
    limit = wanted or held
    if limit is None:
        raise UserError(f"{path} does not say how long its context is; set model.max_context")
    return limit


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
