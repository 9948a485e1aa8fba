"""How far small actors get in each suite, as they are, next to chance and the suite's expert.

    python -m benchmarks.success
    python -m benchmarks.success alfworld webshop --actors embedded:actor models/small --observation-tokens 192
    python -m benchmarks.success webshop --options '{"webshop": {"items": 60}}'

Without names: all registered suites that can be made here. Actors are model names or folders that read the prompts named `compact`, such
as `scripts/warm_start.py` writes; nothing is trained and no experience is shown. Chance and expert play the training tasks that
`benchmarks.envs` gives them, actors these and as many held-out ones. An episode that fills the actor's context is lost by the actor.
"""

import argparse
import asyncio
import json
from typing import Any

from benchmarks.envs import rounds_of, spread_of, success, wanted
from benchmarks.synthetic import np, print_machine, print_table
from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ModelConfig
from complementary_rl.engines.factory import make_local_engine
from complementary_rl.engines.protocol import Engine, SamplingParams
from complementary_rl.envs.pool import EnvPool
from complementary_rl.envs.protocol import Suite
from complementary_rl.envs.registry import make_suite, suite_names
from complementary_rl.errors import InfrastructureError, UserError
from complementary_rl.prompts import PromptSet
from complementary_rl.rollout.plan import EpisodePlan
from complementary_rl.rollout.runner import RolloutRunner
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Split, Task

Rounds = list[list[tuple[Task, int]]]
_WORKERS, _STEP_SECONDS = 4, 120.0
_SPLITS: dict[Split, str] = {"train": "train", "heldout": "held-out"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", help="names; all registered ones without")
    parser.add_argument("--actors", nargs="+", default=["embedded:actor"], metavar="MODEL")
    parser.add_argument("--options", type=json.loads, default={}, help='of suites, as JSON: {"webshop": {"items": 60}}')
    parser.add_argument("--episodes", type=int, default=20, help="per seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--new-tokens", type=int, default=32, help="most of an action")
    parser.add_argument("--observation-tokens", type=int, help="longer ones lose their middle; as long as they are without")
    options = parser.parse_args()
    print_machine()
    engines = {name: make_local_engine("actor", ModelConfig(path=name, device="cpu")) for name in options.actors}
    columns = [f"{name}, {split}" for name in engines for split in _SPLITS.values()]
    rows = [row(name, engines, options) for name in options.suites or suite_names()]
    print_table(["suite", "chance", "expert", *columns], rows)
    print(f"\nmean over {options.seeds} seeds (least–most), {options.episodes} episodes each; temperature {options.temperature}")
    for engine in engines.values():
        engine.close()


def row(name: str, engines: dict[str, Engine], options: argparse.Namespace) -> list[str]:
    try:
        suite = make_suite(name, **options.options.get(name, {}))
    except UserError as error:
        return [name, wanted(error), *["–"] * (1 + 2 * len(engines))]
    played = rounds_of(suite, "train", options.episodes, options.seeds)
    env = suite.make_env()
    chance, _ = success(suite, env, played, expert=False)
    expert = success(suite, env, played, expert=True)[0] if suite.expert(*played[0][0]) is not None else "–"
    env.close()
    splits = {split: rounds_of(suite, split, options.episodes, options.seeds) for split in _SPLITS}
    found = [of_actor(suite, engine, rounds, options) for engine in engines.values() for rounds in splits.values()]
    print(f"{name}: {', '.join(found)}", flush=True)
    return [name, chance, expert, *found]


def of_actor(suite: Suite, engine: Engine, rounds: Rounds, options: Any) -> str:
    """Success of an actor that samples, and the share of its episodes that filled its context where there were any."""
    if not rounds[0]:
        return "–"
    pool = EnvPool(suite, timeout=max(_STEP_SECONDS, 2 * suite.step_seconds), workers=_WORKERS)
    runner = RolloutRunner(
        suite,
        pool,
        engine,
        ChatCodec(engine.tokenizer),
        PromptSet.load("compact"),
        max_observation_tokens=options.observation_tokens,
    )
    params = SamplingParams(temperature=options.temperature, max_new_tokens=options.new_tokens)
    shares, full = [], []
    try:
        for number, episodes in enumerate(rounds):
            plans = [
                EpisodePlan(f"r{number}-e{i}", task, 0, i, 0, seed, derive_seed("success", number, i))
                for i, (task, seed) in enumerate(episodes)
            ]
            done, faults = asyncio.run(runner.run(plans, params))
            if faults:
                raise InfrastructureError(f"{suite.name}: {len(faults)} episodes lost, the first: {faults[0].message}")
            shares.append(float(np.mean([episode.success for episode in done])))
            full += [episode.overlong for episode in done]
    finally:
        pool.close()
    filled = f", context full in {np.mean(full):.2f}" if any(full) else ""
    return spread_of(shares) + filled


if __name__ == "__main__":
    main()
