"""LoRA adapters inside a model, by PEFT: the model stays the class it was, with trainable parameters beside frozen ones."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from complementary_rl.config import LoraConfig
from complementary_rl.errors import UserError

_ADAPTER_SEED = 0


def add_adapters(model: Any, lora: LoraConfig, *, base: str = "") -> None:
    """Freeze `model`, which others know as `base`, and add float32 adapters that change nothing yet.

    Their start does not depend on the run: it belongs to the model, as its weights do. Raises UserError when PEFT is missing, or when
    `lora.targets` names no layer.
    """
    try:
        import peft
    except ImportError as error:
        raise UserError(
            "model.lora needs PEFT: `pip install 'complementary-rl[peft]'`, or leave it out to train all weights"
        ) from error
    targets: Any = lora.targets[0] if lora.targets == ("all-linear",) else list(lora.targets)
    settings = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=targets,
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
    kind = model.device.type
    try:
        with (
            torch.random.fork_rng(devices=[] if kind in ("cpu", "meta") else [model.device], device_type="cuda"),
            torch.device("meta") if kind == "meta" else nullcontext(),
        ):
            torch.manual_seed(_ADAPTER_SEED)
            peft.inject_adapter_in_model(settings, model)
    except ValueError as error:
        raise UserError(f"model.lora.targets: {error}") from error
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def adapter_settings(model: Any) -> Any | None:
    """The peft.LoraConfig of the adapters in `model`, or None without any."""
    return getattr(model, "peft_config", {}).get("default")


def save_adapters(model: Any, directory: Path) -> None:
    """Write the adapters in `model` as a folder that `peft.PeftModel.from_pretrained` puts on the base model."""
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    named = {f"base_model.model.{name}": weight.contiguous() for name, weight in weights.items()}
    save_file(named, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    model.peft_config["default"].save_pretrained(directory)
