"""Activations that are computed again in the backward pass instead of being kept for it."""

from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint

from complementary_rl.errors import UserError

recomputed = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
"""Call a function now and again in the backward pass. Nothing here draws random numbers, so there is no generator to restore."""


def recompute_layers(model: Any) -> None:
    """Have every decoder layer of `model` keep its input only: memory of one layer instead of all, for one more forward pass.

    transformers' own switch asks for training mode, which brings dropout back where a layer applies it by itself. Raises UserError for
    models whose layers are not marked as such.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UserError(f"{model.config.model_type} models cannot recompute their layers; set model.gradient_checkpointing = false")
    for layer in layers:
        layer.forward = partial(recomputed, layer.forward)


def keep_activations(model: Any) -> None:
    """Take `recompute_layers` back."""
    for module in model.modules():
        vars(module).pop("forward", None)
