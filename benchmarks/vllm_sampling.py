"""New tokens per second of multi-turn rollouts: the local sampler beside a vLLM server on the same machine, with the same weights.

    python -m benchmarks.vllm_sampling http://127.0.0.1:8000 --model DIR

Start the server as docs/vllm.md says, with --enable-prefix-caching and the model in DIR. Both sides play the rollouts of
`benchmarks.sampling`, in turns; times are on the clock, since the server's processor time is its own. Before that: how long a publication
takes, and how far the log-probs that the server told are from what the trainer computes for the same tokens.
"""

import argparse
import asyncio
import time
from collections.abc import Sequence

from benchmarks.models import print_machine, ratio, take_turns
from benchmarks.sampling import Texts, with_sampler
from benchmarks.synthetic import print_table, spread
from complementary_rl.config import ModelConfig, VllmConfig
from complementary_rl.engines.factory import make_local_engine, with_vllm
from complementary_rl.engines.protocol import Engine, SampleRequest, SamplingParams
from complementary_rl.objectives.samples import generation_sample
from complementary_rl.types import Generation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url", help="of the vLLM server")
    parser.add_argument("--model", required=True, help="folder that the server serves as well")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of the first prompt")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--observation", type=int, default=40, help="tokens shown after each action")
    parser.add_argument("--new", type=int, default=8, help="tokens sampled per turn")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    model = ModelConfig(
        path=options.model, device="cpu", max_context=options.prompt + options.turns * (options.new + options.observation)
    )
    local = make_local_engine("actor", model)
    engine = with_vllm(local, model, VllmConfig(urls=(options.url,)))
    print_machine()
    try:
        print(f"publication of the whole weights: {published(engine):.2f} s")
        print(f"log-probs of server and trainer differ by {disagreement(engine):.1e} at most\n")
        texts = Texts(options, local.model.config.vocab_size)
        sides = {"local": Blocking(local), "vllm": Blocking(engine)}
        times = take_turns(
            {name: lambda side=side: with_sampler(side, texts, options) for name, side in sides.items()},  # type: ignore[misc]
            options.repeats,
        )
        tokens = options.groups * options.members * options.turns * options.new
        print_table(
            [options.model.rsplit("/", 1)[-1], "new tokens per second"],
            [[name, spread([tokens / s for s in side.wall], digits=1)] for name, side in times.items()],
        )
        print(f"\nlocal / vllm: {ratio(times['vllm'].wall, times['local'].wall)} on the clock (medians of {options.repeats})")
        print("\n".join(engine.take_events()))
    finally:
        engine.close()


class Blocking:
    """An engine as `with_sampler` calls a sampler."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.release = engine.release

    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams, version: int) -> list[Generation]:
        del version
        return asyncio.run(self._engine.sample(requests, params))


def published(engine: Engine) -> float:
    start = time.perf_counter()
    asyncio.run(engine.publish())
    return time.perf_counter() - start


def disagreement(engine: Engine) -> float:
    """At a temperature that is not 1, where log-probs of another distribution would show."""
    requests = [SampleRequest(str(n), tuple(range(100, 100 + n)), seed=n) for n in (5, 20, 60)]
    generations = asyncio.run(engine.sample(requests, SamplingParams(temperature=0.7, max_new_tokens=12)))
    rows = asyncio.run(engine.logprobs([generation_sample(g, advantage=1.0, weight=1.0) for g in generations]))
    return max(
        abs(told - found)
        for generation, row in zip(generations, rows, strict=True)
        for told, found in zip(generation.logprobs, row.tolist()[len(generation.prompt_ids) :], strict=True)
    )


if __name__ == "__main__":
    main()
