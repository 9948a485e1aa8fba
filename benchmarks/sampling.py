"""New tokens per second of multi-turn rollouts: the local sampler beside `transformers.generate`, which reads the whole prompt every turn.

    python -m benchmarks.sampling
    python -m benchmarks.sampling --model DIR --groups 2 --members 4

Groups share their first prompt; every turn each episode samples `--new` tokens and is shown `--observation` more. Nothing stops early, so
both sides read and write sequences of the same length. They take turns; generate keeps no log-probs, the sampler does.
"""

import argparse
from typing import Any

from benchmarks.models import load, np, print_machine, ratio, take_turns, torch
from benchmarks.synthetic import print_table, spread
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.sampler import Sampler
from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.types import TokenIds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded:actor", help="a name of `crl models ls`, or a folder")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=200, help="tokens of the first prompt")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--observation", type=int, default=40, help="tokens shown after each action")
    parser.add_argument("--new", type=int, default=8, help="tokens sampled per turn")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    model = load(options.model)
    print_machine()
    sampler = Sampler(Decoder(model), name="benchmark", stop_ids=frozenset(), max_context=model.config.max_position_embeddings)
    texts = Texts(options, model.config.vocab_size)
    times = take_turns(
        {"sampler": lambda: with_sampler(sampler, texts, options), "generate": lambda: with_generate(model, texts, options)},
        options.repeats,
    )
    tokens = options.groups * options.members * options.turns * options.new
    rows = [
        [name, spread([tokens / s for s in side.processor], digits=0), spread([tokens / s for s in side.wall], digits=0)]
        for name, side in times.items()
    ]
    print_table([options.model, "new tokens per processor second", "per second"], rows)
    sampled, generated = times["sampler"], times["generate"]
    print(
        f"\nsampler / generate: {ratio(generated.processor, sampled.processor)} by processor time, "
        f"{ratio(generated.wall, sampled.wall)} on the clock (medians of {options.repeats})"
    )


class Texts:
    """The tokens that the environment says: the first prompt of each group, and what every episode is shown after a turn."""

    def __init__(self, options: argparse.Namespace, vocabulary: int) -> None:
        random = np.random.default_rng(0)
        shape = (options.groups * options.members, options.turns, options.observation)
        openings = random.integers(5, vocabulary, (options.groups, options.prompt))
        self.openings: list[TokenIds] = [tuple(opening) for opening in openings.repeat(options.members, axis=0).tolist()]
        self.observations = random.integers(5, vocabulary, shape).tolist()


def with_sampler(sampler: Sampler, texts: Texts, options: argparse.Namespace) -> None:
    prompts = list(texts.openings)
    params = SamplingParams(max_new_tokens=options.new)
    for turn in range(options.turns):
        requests = [SampleRequest(str(i), prompt, turn, session=str(i)) for i, prompt in enumerate(prompts)]
        said = sampler.sample(requests, params, version=0)
        prompts = [
            (*prompt, *generation.token_ids, *shown[turn])
            for prompt, generation, shown in zip(prompts, said, texts.observations, strict=True)
        ]
    sampler.release([str(i) for i in range(len(prompts))])


def with_generate(model: Any, texts: Texts, options: argparse.Namespace) -> None:
    ids = torch.tensor(texts.openings)
    for turn in range(options.turns):
        said = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            top_k=0,
            min_new_tokens=options.new,
            max_new_tokens=options.new,
            pad_token_id=0,
        )
        ids = torch.cat([said, torch.tensor([shown[turn] for shown in texts.observations])], dim=1)


if __name__ == "__main__":
    main()
