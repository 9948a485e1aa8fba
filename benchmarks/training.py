"""Training tokens per second and peak memory: the local trainer beside a bare PyTorch loop.

    python -m benchmarks.training
    python -m benchmarks.training --model DIR --samples 4 --lengths 256 --microbatch 512

Both sides make the same AdamW steps on the clipped surrogate of the same samples, in the same micro-batches where all are equally long
(`--lengths N`). With `--lengths LEAST MOST` the bare loop takes samples in their order, as many as the token budget allows, and pads
them; the trainer sorts them by length. The bare loop makes the logits of all tokens.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.models import load, np, peak_bytes, print_machine, ratio, take_turns, torch
from benchmarks.synthetic import print_table, spread
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.microbatch import collate, split_samples, trained_length
from complementary_rl.engines.local.trainer import Trainer
from complementary_rl.engines.protocol import LossTerm, OptimParams, TrainingSample
from complementary_rl.objectives.grpo import GrpoLoss

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded:actor", help="a name of `crl models ls`, or a folder")
    parser.add_argument("--samples", type=int, default=32)
    parser.add_argument("--lengths", type=int, nargs="+", default=[232], help="tokens of a sample, or least and most")
    parser.add_argument("--trained", type=float, default=0.2, help="share of the tokens that the model sampled")
    parser.add_argument("--microbatch", type=int, default=16_384, help="tokens with padding")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print_machine()
    samples = make_samples(options)
    plain, ours, saving = (
        Bare(load(options.model), options.microbatch),
        trainer(options),
        trainer(options, gradient_checkpointing=True),
    )
    optim = OptimParams(max_tokens_per_microbatch=options.microbatch)
    term = LossTerm("actor", samples, GrpoLoss(ratio="token"))
    sides: dict[str, Callable[[], object]] = {
        "bare loop": lambda: plain.step(samples, optim),
        "trainer": lambda: ours.update([term], optim),
        "trainer, gradient_checkpointing": lambda: saving.update([term], optim),
    }
    times = take_turns(sides, options.repeats)
    tokens = sum(map(trained_length, samples))
    padding = {"bare loop": padding_share(samples, in_order(samples, options.microbatch))}
    rows = [
        [
            name,
            spread([tokens / s for s in side.processor], digits=0),
            ratio(times["bare loop"].processor, side.processor),
            ratio(times["bare loop"].wall, side.wall),
            f"{padding.get(name, padding_share(samples, split_samples(samples, options.microbatch))):.1%}",
            f"{peak_bytes(sides[name]) / MIB:.0f} MiB",
        ]
        for name, side in times.items()
    ]
    header = [
        "tokens per processor second",
        "over the bare loop's",
        "the same on the clock",
        "padding",
        "peak above the state held",
    ]
    print_table([options.model, *header], rows)
    print(f"\nmedians of {options.repeats}; the bare loop and the trainer in turns")


def trainer(options: argparse.Namespace, *, gradient_checkpointing: bool = False) -> Trainer:
    decoder = Decoder(load(options.model))
    return Trainer(
        decoder,
        compute_dtype=torch.float32,
        reference=None,
        max_context=decoder.config.max_position_embeddings,
        gradient_checkpointing=gradient_checkpointing,
    )


def make_samples(options: argparse.Namespace) -> list[TrainingSample]:
    """Episodes in which the model spoke in runs of eight tokens, the last of them at the end."""
    random = np.random.default_rng(0)
    samples = []
    for length in random.integers(options.lengths[0], options.lengths[-1], options.samples, endpoint=True).tolist():
        spoken = (np.arange(length)[::-1] // 8) % max(1, round(1 / options.trained)) == 0
        spoken[0] = False
        ids = random.integers(5, 700, length).tolist()
        old = np.where(spoken, -6.0, 0.0).tolist()
        samples.append(TrainingSample(tuple(ids), tuple(spoken.tolist()), tuple(old), random.normal(), 1 / options.samples))
    return samples


class Bare:
    """What one would write without this package."""

    def __init__(self, model: Any, budget: int) -> None:
        self.model, self.budget = model, budget
        self.optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    def step(self, samples: Sequence[TrainingSample], optim: OptimParams) -> None:
        for indices in in_order(samples, self.budget):
            batch = collate([samples[index] for index in indices], self.model.device)
            logits = self.model(batch.token_ids, use_cache=False).logits[:, :-1]
            mask = batch.mask[:, 1:]
            logprobs = torch.log_softmax(logits, -1).gather(2, batch.token_ids[:, 1:, None]).squeeze(2)
            ratio = ((logprobs - batch.old_logprobs[:, 1:]) * mask).clamp(-20, 20).exp()
            advantages = batch.advantages[:, None]
            objective = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
            loss = -(batch.weights[:, None] * objective * mask / mask.sum(1, keepdim=True)).sum()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), optim.max_grad_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = optim.lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def in_order(samples: Sequence[TrainingSample], budget: int) -> list[list[int]]:
    """Batches of as many samples as fit when each is padded to the longest of all."""
    rows = max(1, budget // max(map(trained_length, samples)))
    return [list(range(start, min(start + rows, len(samples)))) for start in range(0, len(samples), rows)]


def padding_share(samples: Sequence[TrainingSample], groups: Sequence[Sequence[int]]) -> float:
    lengths = list(map(trained_length, samples))
    computed = sum(len(group) * max(lengths[index] for index in group) for group in groups)
    return 1 - sum(lengths) / computed


if __name__ == "__main__":
    main()
