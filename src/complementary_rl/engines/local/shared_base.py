"""One frozen set of weights under the adapters of two models.

actor      W + BA   ┐
                    ├─ W: the same tensors, in memory once
extractor  W + B'A' ┘
"""

import copy
from typing import Any

from complementary_rl.engines.local.recompute import keep_activations


def share_base(model: Any) -> Any:
    """The model that `model`, a PreTrainedModel with LoRA adapters, was before they were added, over the same frozen tensors.

    It is a module tree of its own, to which other adapters can be added: nothing that is done to one model, in whatever thread, selects
    or changes what the other computes with. Raises ValueError when `model` has trainable weights that are no adapter's, since what one
    model learnt the other would see.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    if any(parameter.requires_grad and ".lora_" not in name for name, parameter in model.named_parameters()):
        raise ValueError("a base can be shared only if all that is trained are adapters")
    frozen = {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}
    base = copy.deepcopy(model, frozen)
    for name, module in list(base.named_modules()):
        if isinstance(module, BaseTunerLayer):
            parent, _, place = name.rpartition(".")
            setattr(base.get_submodule(parent), place, module.get_base_layer())
    vars(base).pop("peft_config", None)
    keep_activations(base)
    return base
