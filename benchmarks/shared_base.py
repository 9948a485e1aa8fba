"""Memory of two models with LoRA adapters over one base, beside two models trained in full. Needs the extra `peft`.

    python -m benchmarks.shared_base
    python -m benchmarks.shared_base --model DIR

Counted are the bytes of all different tensors after one optimiser step of each model: weights, gradients, AdamW's state. The sampler's copy
of what is trained is left out on both sides.
"""

import argparse
from collections.abc import Iterator
from typing import Any

from benchmarks.models import load, print_machine, torch
from benchmarks.synthetic import print_table
from complementary_rl.engines.local.shared_base import share_base

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded:actor", help="a name of `crl models ls`, or a folder")
    parser.add_argument("--rank", type=int, default=16)
    options = parser.parse_args()
    print_machine()
    actor = with_adapters(load(options.model), options.rank)
    shared = used(actor, with_adapters(share_base(actor), options.rank))
    del actor
    full = used(load(options.model), load(options.model))
    rows = [
        [what, f"{full[what] / MIB:,.1f} MiB", f"{shared[what] / MIB:,.1f} MiB", f"{shared[what] / full[what]:.2f}"]
        for what in full
    ]
    print_table([options.model, "two in full", f"two adapters of rank {options.rank} on one base", "ratio"], rows)


def with_adapters(model: Any, rank: int) -> Any:
    import peft

    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"), model)
    return model


def used(*models: Any) -> dict[str, int]:
    """Bytes of the models' weights, and of everything that is held right after a step."""
    weights = {id(p): p.nbytes for model in models for p in model.parameters()}
    held = dict(weights)
    for model in models:
        held |= {id(tensor): tensor.nbytes for tensor in after_a_step(model)}
    return {"weights": sum(weights.values()), "weights, gradients and AdamW's state": sum(held.values())}


def after_a_step(model: Any) -> Iterator[torch.Tensor]:
    """Gradients and optimiser state, which stay alive with the model."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.optimizer = torch.optim.AdamW(trained, lr=1e-6, fused=True)
    ids = torch.arange(5, 21).unsqueeze(0)
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    model.optimizer.step()
    for parameter in trained:
        assert parameter.grad is not None
        yield parameter.grad
        yield from model.optimizer.state[parameter].values()


if __name__ == "__main__":
    main()
