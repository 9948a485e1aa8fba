"""How many answers of an extractor can be taken as they stand, with and without constrained decoding?

    python -m benchmarks.constrained_operations                     32 episodes, SmolLM2, not timed on quiet cores yet
    python -m benchmarks.constrained_operations --episodes 64 --model Qwen/Qwen3-0.6B

Episodes of the shipped config `smollm2_minihack`, played by chance from fixed seeds; half of them pretend to have been shown an entry, so
that updates are possible. Both arms read the same episodes with the same seeds.
"""

import argparse
import asyncio
from collections import Counter
from time import perf_counter

from complementary_rl.config import Config
from complementary_rl.config_file import load_config
from complementary_rl.configs import find_config
from complementary_rl.envs.protocol import Suite, TextEnv
from complementary_rl.envs.registry import configured_suite
from complementary_rl.experience.extractor import Distilled
from complementary_rl.experience.transcript import Transcript
from complementary_rl.seeds import rng
from complementary_rl.training.session import open_extractor
from complementary_rl.types import Task

_ENTRY = "Walk towards the staircase down as soon as you see it."
_BATCH = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32)
    parser.add_argument("--model", default="packaged:smollm2")
    parser.add_argument("--show", type=int, default=2, help="answers printed of each arm")
    arguments = parser.parse_args()
    for constrained in (False, True):
        config = load_config(
            find_config("smollm2_minihack"),
            [
                f"extractor.model.path={arguments.model!r}",
                f"extractor.constrained={str(constrained).lower()}",
                "extractor.max_operations=3",
            ],
        )
        asyncio.run(_measure(config, arguments.episodes, arguments.show))


async def _measure(config: Config, episodes: int, show: int) -> None:
    """Print a line after every batch, for all answers so far."""
    suite = configured_suite(config.env)
    transcripts = _played(suite, episodes)
    engine, extractor = open_extractor(config, suite.instructions_for)
    start = perf_counter()
    answers: list[Distilled] = []
    try:
        for first in range(0, episodes, _BATCH):
            read = await extractor.distill(transcripts[first : first + _BATCH], {1: _ENTRY})
            answers += [answer for answer in read if isinstance(answer, Distilled)]
            print(
                f"constrained={config.extractor.constrained!s:<5} {_summary(answers)}, {perf_counter() - start:.0f} s", flush=True
            )
    finally:
        engine.close()
    for answer in answers[:show]:
        print(f"    {extractor.text(answer.generation)!r}", flush=True)


def _summary(answers: list[Distilled]) -> str:
    parsable, well_formed = (sum(getattr(answer.parsed, name) for answer in answers) for name in ("parsable", "well_formed"))
    kinds = Counter(operation.kind for answer in answers for operation in answer.parsed.operations)
    cut_off = sum(answer.generation.stop_reason == "length" for answer in answers)
    tokens = sum(len(answer.generation.token_ids) for answer in answers)
    return (
        f"answers {len(answers)}, as they stand {well_formed}, with repairs {parsable}, cut off {cut_off}, operations {dict(kinds)}, "
        f"{tokens} tokens"
    )


def _played(suite: Suite, episodes: int) -> list[Transcript]:
    tasks = suite.tasks("train")
    env = suite.make_env()
    try:
        return [_episode(env, tasks[number % len(tasks)], number) for number in range(episodes)]
    finally:
        env.close()


def _episode(env: TextEnv, task: Task, number: int) -> Transcript:
    random = rng("constrained-operations", number)
    observation, info = env.reset(task, number)
    turns, total, over = [], 0.0, False
    while not over:
        action = str(random.choice(list(info["actions"])))
        turns.append((observation, action))
        observation, reward, terminated, truncated, told = env.step(action)
        info, total, over = info | told, total + reward, terminated or truncated
    shown = (1,) if number % 2 else ()
    return Transcript(f"benchmark/{number}", task, 0, tuple(turns), observation, bool(info["success"]), total, entry_ids=shown)


if __name__ == "__main__":
    main()
