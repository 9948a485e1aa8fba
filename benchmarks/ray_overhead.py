"""Seconds of a training step on Ray over those of the local engine, side by side: sample a batch, update on it, publish.

    python -m benchmarks.ray_overhead

Both engines hold the same model and take turns, so that whatever else the machine does strikes both. The local engine has one thread, as
each process of Ray has.
"""

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from benchmarks.synthetic import print_machine, print_table, spread
from complementary_rl.config import ClusterConfig, ModelConfig, WorkersConfig
from complementary_rl.engines import make_engine
from complementary_rl.engines.protocol import Engine, LossTerm, OptimParams, SampleRequest, SamplingParams
from complementary_rl.objectives.grpo import GrpoLoss
from complementary_rl.objectives.samples import generation_sample
from complementary_rl.types import TokenIds

PHASES = ("sample", "update", "publish")


@dataclass(frozen=True, slots=True)
class Step:
    """What one step came to: the tokens that were sampled, the metrics of the update, and seconds by phase."""

    tokens: list[TokenIds]
    metrics: dict[str, float]
    seconds: dict[str, float]


def requests(step: int, rows: int, prompt: int) -> list[SampleRequest]:
    """`rows` prompts, of which neighbours share all but the last tokens, for step number `step`."""
    return [
        SampleRequest(f"{step}-{row}", (*range(10, 10 + prompt), 10 + row % 7, 20 + step % 50), 1000 * step + row, f"episode {row}")
        for row in range(rows)
    ]


async def train_step(engine: Engine, asked: Sequence[SampleRequest], new_tokens: int) -> Step:
    """Sample `asked`, praise and blame by turns, update and publish."""
    times = [perf_counter()]
    generations = await engine.sample(asked, SamplingParams(max_new_tokens=new_tokens))
    times.append(perf_counter())
    samples = [generation_sample(g, 1.0 - 2.0 * (i % 2), 1 / len(asked)) for i, g in enumerate(generations)]
    metrics = await engine.update([LossTerm("grpo", samples, GrpoLoss("token"))], OptimParams(lr=1e-4))
    times.append(perf_counter())
    await engine.publish()
    times.append(perf_counter())
    seconds = {phase: after - before for phase, before, after in zip(PHASES, times, times[1:], strict=False)}
    return Step([g.token_ids for g in generations], metrics, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded:actor")
    parser.add_argument("--train", type=int, default=2, help="trainer ranks")
    parser.add_argument("--sample", type=int, default=1, help="samplers")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=100)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print_machine()
    model = ModelConfig(path=options.model)
    start = perf_counter()
    cluster = ClusterConfig(actor=WorkersConfig(train=options.train, sample=options.sample))
    engines = {"ray": make_engine("actor", model, cluster=cluster), "local": make_engine("actor", model)}
    print(f"Ray and its {options.train + options.sample} processes up in {perf_counter() - start:.1f} s\n")
    steps: dict[str, list[Step]] = {name: [] for name in engines}
    for number in range(options.steps + 1):
        for name, engine in engines.items():
            asked = requests(number, options.rows, options.prompt)
            steps[name].append(asyncio.run(train_step(engine, asked, options.new_tokens)))
    for engine in engines.values():
        engine.close()
    same = sum(a.tokens == b.tokens for a, b in zip(steps["ray"], steps["local"], strict=True))
    ray, local = steps["ray"][1:], steps["local"][1:]  # the first step of either warms up
    rows = []
    for phase in (*PHASES, "step"):
        there, here = ([sum(s.seconds.values()) if phase == "step" else s.seconds[phase] for s in side] for side in (ray, local))
        ratio = [a / b for a, b in zip(there, here, strict=True)]
        rows.append([phase, spread(there, 1e3), spread(here, 1e3), spread(ratio, digits=2)])
    print_table(["", "Ray, ms", "local, ms", "ratio"], rows)
    print(f"\nmedian (least–most) of {options.steps} steps; the same tokens in {same} of {options.steps + 1} steps")


if __name__ == "__main__":
    main()
