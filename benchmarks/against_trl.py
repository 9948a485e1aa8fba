"""GRPO end to end beside TRL's GRPOTrainer: episodes per second, and the rewards of both.

    python -m venv trl && trl/bin/pip install torch==2.13.0
    trl/bin/pip install trl datasets '.[minihack]'
    python -m benchmarks.against_trl --python trl/bin/python

The embedded actor in the dark rooms of the quickstart, method `baseline`: the same groups (tasks, starts), sampling temperature, token
limit of a turn, advantages, sequence ratio and AdamW on both sides, and the same number of steps. TRL plays by its own multi-turn loop
(`environment_factory`): the actor was taught to reply with a bare action, so that a reply is read as a call of the environment's only
tool. That loop has no end of an episode but a reply without a call; after the last action it samples one reply more. Each side runs in
a process of its own and they take turns; loading is not counted. `--worker` is what these processes run.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parents[1]
TIMEOUT = 7200.0
OVER = "out"
"""What the environment says on TRL's side when an episode has ended."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter that has TRL")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=2, help="runs of each side; each has a seed of its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", choices=["ours", "trl"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        steps = train_ours(options) if options.worker == "ours" else train_trl(options)
        print(json.dumps(steps))
        return
    compare(options)


def compare(options: argparse.Namespace) -> None:
    from benchmarks.models import np, print_machine
    from benchmarks.synthetic import print_table, spread

    print_machine()
    pythons = {"ours": Path(sys.executable), "trl": options.python}
    runs: dict[str, list[list[dict[str, float]]]] = {"ours": [], "trl": []}
    for seed in range(options.seed, options.seed + options.repeats):
        for side, python in pythons.items():
            runs[side].append(_run(side, python, seed, options))
    episodes = options.groups * options.members
    rates: dict[str, dict[str, Any]] = {}
    for side, of_side in runs.items():
        # The first step warms caches up.
        steps = [step for run in of_side for step in run[1:]]
        rates[side] = {clock: episodes / np.array([step[clock] for step in steps]) for clock in ("processor", "wall")}
    rows = [[side, spread(rate["processor"], digits=1), spread(rate["wall"], digits=1)] for side, rate in rates.items()]
    print_table(["", "episodes per processor second", "per second"], rows)
    times = {clock: np.median(rates["ours"][clock]) / np.median(rates["trl"][clock]) for clock in ("processor", "wall")}
    print(f"\nours / TRL: {times['processor']:.2f} by processor time, {times['wall']:.2f} on the clock (medians over steps)\n")
    curves = {side: np.mean([[step["reward"] for step in run] for run in of_side], axis=0) for side, of_side in runs.items()}
    fifth = max(1, options.steps // 5)
    print_table(
        ["mean reward, steps", *(f"{start}–{start + fifth - 1}" for start in range(0, options.steps, fifth))],
        [
            [side, *(f"{curve[start : start + fifth].mean():.2f}" for start in range(0, options.steps, fifth))]
            for side, curve in curves.items()
        ],
    )


def _run(side: str, python: Path, seed: int, options: argparse.Namespace) -> list[dict[str, float]]:
    """Per step `wall`, `processor` (seconds) and `reward`."""
    command = [str(python), "-m", "benchmarks.against_trl", "--worker", side, "--seed", str(seed)]
    command += [f"--{name}={getattr(options, name)}" for name in ("steps", "groups", "members")]
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")] if side == "ours" else [str(ROOT / "src")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TRL_EXPERIMENTAL_SILENCE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    steps: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return steps


def configuration(options: argparse.Namespace, directory: Path | None = None) -> Any:
    """The quickstart's baseline."""
    from complementary_rl.config_file import load_config
    from complementary_rl.configs import find_config

    changes = [
        "run.method='baseline'",
        f"run.steps={options.steps}",
        f"run.seed={options.seed}",
        f"env.groups_per_step={options.groups}",
        f"env.group_size={options.members}",
        "self_distillation.enabled=false",
    ]
    return load_config(find_config("quickstart"), changes + ([f"run.dir={str(directory)!r}"] if directory else []))


def train_ours(options: argparse.Namespace) -> list[dict[str, float]]:
    from complementary_rl.training.schedule import Schedule
    from complementary_rl.training.session import open_session

    steps: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        config = configuration(options, Path(name) / "run")
        session = open_session(config, config.run.dir)
        clock = Clock()

        def record(entry: dict[str, Any]) -> None:
            if entry["kind"] == "step":
                steps.append(clock.lap() | {"reward": entry["rollout"]["free"]["reward"]})

        try:
            asyncio.run(Schedule(session, record).run())
        finally:
            session.close()
    return steps


def train_trl(options: argparse.Namespace) -> list[dict[str, float]]:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from complementary_rl.envs.registry import configured_suite, parts_of
    from complementary_rl.models.names import resolve
    from complementary_rl.prompts import PromptSet
    from complementary_rl.rollout.plan import group_seed, tasks_for_step

    torch.set_num_threads(1)
    config = configuration(options)
    suite = configured_suite(config.env)
    parts, actor, prompts = parts_of(suite, "train"), config.actor, PromptSet.load(config.actor.prompts)
    tasks = {task.id: task for part in parts for task in part.tasks}
    rows = [
        {
            "prompt": [{"role": "user", "content": ""}],
            "task": task.id,
            "start": str(group_seed(options.seed, "train", step, group, task)),
        }
        for step in range(options.steps)
        for group, task in enumerate(tasks_for_step(parts, options.groups, step, options.seed))
    ]
    steps: list[dict[str, float]] = []
    clock = Clock()

    class Laps(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
            if "reward" in logs:
                steps.append(clock.lap() | {"reward": logs["reward"]})

    path = resolve(actor.model.path)
    with tempfile.TemporaryDirectory() as name:
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32),
            args=GRPOConfig(
                output_dir=name,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                report_to=[],
                save_strategy="no",
                logging_steps=1,
                disable_tqdm=True,
                shuffle_dataset=False,
                max_steps=options.steps,
                seed=options.seed,
                per_device_train_batch_size=options.groups * options.members,
                num_generations=options.members,
                max_completion_length=640,
                generation_kwargs={"max_new_tokens": actor.sampling.max_new_tokens},
                temperature=actor.sampling.temperature,
                top_k=0,
                beta=0.0,
                epsilon=actor.clip_epsilon,
                importance_sampling_level="sequence",
                loss_type="grpo",
                learning_rate=actor.optim.lr,
                lr_scheduler_type="constant",
                adam_beta1=actor.optim.betas[0],
                adam_beta2=actor.optim.betas[1],
                weight_decay=actor.optim.weight_decay,
                max_grad_norm=actor.optim.max_grad_norm,
            ),
            processing_class=_bare_actions(path),
            train_dataset=Dataset.from_list(rows),
            environment_factory=lambda: Room(suite, tasks, prompts),
            callbacks=[Laps()],
        )
        clock.lap()
        trainer.train()
    return steps


class Clock:
    """Seconds between laps, on the clock and of the processor."""

    def __init__(self) -> None:
        self._last = perf_counter(), process_time()

    def lap(self) -> dict[str, float]:
        before, self._last = self._last, (perf_counter(), process_time())
        return {"wall": self._last[0] - before[0], "processor": self._last[1] - before[1]}


def _bare_actions(path: str) -> Any:
    """The actor's tokenizer, with replies that are calls of `act` until the environment has said `OVER`."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    # TRL renders calls only to see that a template can: sequences are put together of what was sampled.
    tokenizer.chat_template = (
        "{% for m in messages %}<|{{ 'user' if m['role'] == 'tool' else m['role'] }}|>"
        "{% for call in m.get('tool_calls') or [] %}{{ call['function']['name'] }} {{ call['function']['arguments'] }}{% endfor %}"
        "{{ m['content'] }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    over = tokenizer.encode(f"{OVER}<|end|><|assistant|>", add_special_tokens=False)

    def parse_response(ids: list[int], prefix: list[int], **kwargs: Any) -> dict[str, Any]:
        said = tokenizer.decode(ids, skip_special_tokens=True)
        if prefix[-len(over) :] == over:
            return {"role": "assistant", "content": said}
        call = {"type": "function", "function": {"name": "act", "arguments": {"action": said}}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    tokenizer.response_template = {}
    tokenizer.parse_response = parse_response
    return tokenizer


class Room:
    """One of TRL's environments."""

    def __init__(self, suite: Any, tasks: dict[str, Any], prompts: Any) -> None:
        self._suite, self._tasks, self._prompts = suite, tasks, prompts
        self._env = suite.make_env()
        self._reward = 0.0

    def reset(self, task: str, start: str, **row: Any) -> str:
        observation, _ = self._env.reset(self._tasks[task], int(start))
        self._reward = 0.0
        return self._prompts.render(
            "actor",
            instructions=self._suite.instructions_for(self._tasks[task]),
            description=self._tasks[task].description,
            experience=[],
            tool=False,
            tool_call=False,
            observation=observation,
        )

    def act(self, action: str) -> str:
        """Take an action.

        Args:
            action: What to do.
        """
        observation, reward, terminated, truncated, _ = self._env.step(action.strip())
        self._reward += reward
        return OVER if terminated or truncated else observation

    def get_reward(self) -> float:
        return self._reward


if __name__ == "__main__":
    main()
