"""What the embedded models can do before any training: python scripts/measure_embedded_models.py (half a minute).

Plays real NetHack dark rooms without a hint, with the right region and with a wrong one, and lets the extractor read those episodes.
"""

import asyncio
from collections import Counter

import numpy as np

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ExtractorConfig, ModelConfig
from complementary_rl.engines import make_engine
from complementary_rl.engines.protocol import SamplingParams
from complementary_rl.envs.minihack.dark_rooms import DarkRooms
from complementary_rl.envs.pool import EnvPool
from complementary_rl.experience.extractor import Distilled, Extractor
from complementary_rl.prompts import PromptSet
from complementary_rl.rollout.plan import EpisodePlan, Shown
from complementary_rl.rollout.runner import RolloutRunner
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Trajectory

EPISODES, ROOMS = 256, 64
REGIONS = ("north-west", "north", "north-east", "west", "centre", "east", "south-west", "south", "south-east")


async def play(hint: str) -> list[Trajectory]:
    suite = DarkRooms(rooms=ROOMS)
    actor = make_engine("actor", ModelConfig.model_validate({"path": "embedded:actor"}))
    pool = EnvPool(suite, timeout=30.0, workers=2)
    runner = RolloutRunner(suite, pool, actor, ChatCodec(actor.tokenizer), PromptSet.load("compact"), max_turns=suite.max_turns)
    plans = []
    for i in range(EPISODES):
        task = suite.tasks("train")[i % ROOMS]
        right = suite.region(task)
        named = right if hint == "right" else [region for region in REGIONS if region != right][i % 8]
        shown = Shown() if hint == "none" else Shown(((1, f"the exit is in the {named}"),))
        plans.append(EpisodePlan(f"{hint}{i}", task, 0, i, 0, derive_seed("start", i), derive_seed("draw", i), shown))
    try:
        trajectories, _ = await runner.run(plans, SamplingParams(max_new_tokens=8))
    finally:
        pool.close()
        actor.close()
    return trajectories


async def distil(trajectories: list[Trajectory]) -> list[Distilled]:
    config = ExtractorConfig.model_validate({"sampling": {"max_new_tokens": 48}})
    engine = make_engine("extractor", ModelConfig.model_validate({"path": "embedded:extractor"}))
    extractor = Extractor(engine, ChatCodec(engine.tokenizer), PromptSet.load("compact"), config, run_seed=0, instructions="")
    texts = {entry: "the exit is in the centre" for trajectory in trajectories for entry in trajectory.entry_ids}
    try:
        return [item for item in await extractor.distill(trajectories, texts) if isinstance(item, Distilled)]
    finally:
        engine.close()


async def main() -> None:
    suite, everything = DarkRooms(rooms=ROOMS), []
    for hint in ("none", "right", "wrong"):
        trajectories = await play(hint)
        everything += trajectories
        print(f"actor, hint {hint:<6} success {np.mean([t.success for t in trajectories]):.2f}  n={len(trajectories)}")
    for won in (True, False):
        items = await distil([t for t in everything if t.success is won])
        kinds = Counter(operation.kind for item in items for operation in item.parsed.operations)
        kinds["unparsable"] = sum(not item.parsed.parsable for item in items)
        judged = [
            (suite.judge_entry(item.trajectory.task, operation.text), " not " in operation.text)
            for item in items
            for operation in item.parsed.operations
            if operation.text
        ]
        for name, negative in (("positive", False), ("negative", True)):
            claims = [bool(right) for right, is_negative in judged if is_negative is negative and right is not None]
            share = f"{np.mean(claims):.2f}" if claims else "–"
            print(f"extractor after {'success' if won else 'failure'}: {name} claims right {share} of {len(claims)}")
        print(f"  of {len(items)} episodes: {dict(kinds)}")


if __name__ == "__main__":
    asyncio.run(main())
