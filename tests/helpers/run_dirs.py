"""Made-up run directories: what training writes, with invented numbers. Only for tests of the faces that read them."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from complementary_rl.config import BankConfig, Config
from complementary_rl.config_file import dump_config
from complementary_rl.experience.bank import Bank, Query
from complementary_rl.experience.embedding import HashingEmbedder
from complementary_rl.report.intervals import bootstrap_interval, ratio_interval
from complementary_rl.report.provenance import Machine, Provenance
from complementary_rl.report.summary import ArmSummary, BankSummary, MethodSummary, RunSummary, write_summary
from complementary_rl.report.times import time_shares

ROOMS = ["Amber Gallery", "Crimson Vault", "Hollow Cistern", "Silent Armoury"]
REGIONS = ["north-west", "north", "east", "south-east", "centre"]
MACHINE = Machine(system="Linux x86_64", processor="Test CPU", cores=2, memory_gb=24.0, python="3.11.7", torch="2.13.0")


def make_run(directory: Path, method: str = "complementary", *, steps: int = 40, finished: bool = True, seed: int = 0) -> Path:
    """A whole run directory; `finished` False is one that was killed half-way: no summary, no evaluation, half a last line."""
    directory.mkdir(parents=True)
    guided = method != "baseline"
    random = np.random.default_rng([seed, len(method)])
    config = Config.model_validate({"run": {"name": method, "steps": steps, "method": method, "seed": seed}})
    (directory / "config.toml").write_text(dump_config(config))
    info = {"run_id": f"{method}-{seed}", "version": "0.1.0", "started": "2026-01-02T03:04:05Z", "method": method, "seed": seed}
    (directory / "run.json").write_text(json.dumps(info))
    if guided:
        make_bank(directory / "bank.sqlite", steps, random)
    records = [step_record(step, steps, guided, random) for step in range(steps)]
    if guided:
        records += [{"kind": "extractor", "step": s, "update": s // 4, **_extractor(s / steps, random)} for s in range(3, steps, 4)]
    arms = _arms(guided, random) if finished else {}
    if finished:
        dumped = {name: arm.model_dump() for name, arm in arms.items()}
        records.append({"kind": "eval", "step": steps, "episodes": steps * 64, **dumped, "shown": 0.97, "faults": 0})
    records.append({"kind": "event", "step": 3, "message": "episode s3-g1-m2 lost, environment raised: <b>boom</b>"})
    lines = [json.dumps(record) for record in records]
    (directory / "metrics.jsonl").write_text("\n".join(lines) + ("\n" if finished else '\n{"kind": "st'))
    write_episode_files(directory / "episodes", steps, guided, random)
    if finished:
        write_summary(directory, RunSummary(name=method, methods={method: _method(directory, arms, records, steps, seed)}))
    return directory


def make_quickstart(directory: Path, *, steps: int = 40) -> Path:
    """A directory with a baseline and a complementary run."""
    for method in ("baseline", "complementary"):
        make_run(directory / method, method, steps=steps)
    return directory


def step_record(step: int, steps: int, guided: bool, random: np.random.Generator) -> dict[str, Any]:
    t = step / steps
    free = 0.10 + (0.45 if guided else 0.20) * (1 - math.exp(-2 * t))
    rollout = {"free": _rollout(free, 32 if guided else 64, random)}
    record: dict[str, Any] = {
        "kind": "step",
        "step": step,
        "episodes": 64 * (step + 1),
        "wall": 1.2 * (step + 1),
        "rollout": rollout,
    }
    record["actor"] = {"grpo/loss": float(random.normal()), "grad_norm": 0.5, "grpo/clip_share": 0.0}
    record["time"] = {
        "rollout_sample": 0.41,
        "rollout_environment": 0.12,
        "rollout_tokens": 0.03,
        "update": 0.35,
        "rollout": 0.57,
        "step": 1.2,
    }
    if guided:
        if step >= 5:
            rollout["guided"] = _rollout(0.12 + 0.66 * (1 - math.exp(-5 * t)), 32, random)
        judged, right = 14, float(random.binomial(14, 0.38 + 0.3 * t))
        record["time"] |= {"distill": 0.11, "extractor_update": 0.06, "submit": 0.01}
        record["experience"] = {
            "distilled": 16.0,
            "add": 11.0,
            "update": 3.0,
            "return": 2.0,
            "added": 9.0 + float(random.integers(3)),
            "duplicate": 3.0 + float(random.integers(3)),
            "judged_entries": float(judged),
            "useful_entries": right,
            "judged_won_entries": 6.0,
            "useful_won_entries": float(random.binomial(6, 0.45 + 0.35 * t)),
            "unparsable": float(random.binomial(16, 0.12 * (1 - t))),
            "bank_size": float(min(4 * step + 8, 3 * steps)),
            "bank_add": 11.0 * step,
            "bank_update": 3.0 * step,
            "bank_vote": 5.0 * step,
            "bank_merge": 1.0 * (step // 10),
            "bank_evict": max(0.0, step - 0.75 * steps) * 4,
            "bank_return": 2.0 * step,
            "bank_duplicate_share": 0.15 + 0.2 * t,
            "bank_never_used_share": 0.5 - 0.3 * t,
            "bank_refused_boilerplate": 2.0 * step,
            "bank_refused_repetition": float(step // 4),
            "bank_refused_restates_task": 0.0,
            "bank_refused_short": 3.0,
            "lag_steps": 1.0,
        }
    return record


def make_bank(path: Path, steps: int, random: np.random.Generator) -> None:
    """Entries with lineage, outcomes and evictions, one of them with hostile text."""
    with Bank.open(path, BankConfig(capacity=120, eviction="value"), HashingEmbedder(), run_id=None) as bank:
        from complementary_rl.config import RetrievalConfig

        value = RetrievalConfig(score="value", trial_rate=0.3)
        for step in range(steps):
            room = ROOMS[step % len(ROOMS)]
            key = f"Find the exit of the {room}."
            region = REGIONS[int(random.integers(len(REGIONS)))]
            added = bank.add(f"the exit is in the {region}", key_text=key, scope="rooms", step=step, generation_id=f"d{step}")
            if step % 5 == 4 and added.entry_id is not None:
                text = f"the exit is not in the {region}, not in the centre"
                bank.update(added.entry_id, text, key_text=key, scope="rooms", step=step, generation_id=f"u{step}")
            live = bank.entries(key_text=key)
            if step % 9 == 8 and len(live) > 2:
                bank.merge(
                    [entry.id for entry in live[:2]], f"the exit is in the {REGIONS[0]}", step=step, generation_id=f"m{step}"
                )
            queries = [Query(key, "rooms", 1, int(random.integers(1 << 30)), 2)]
            shown = [hand[0] for hand in bank.retrieve(queries, step=step, retrieval=value, training=True)[0]]
            right = {entry.entry_id: 0.8 if REGIONS[ROOMS.index(room)] in entry.text else 0.05 for entry in shown}
            won = [(entry, bool(random.random() < p), f"s{step}-{k}") for entry, p in right.items() for k in range(2)]
            bank.record_outcomes(step, won)
        hostile = "</td><script>alert('bank')</script>"
        entry = bank.add(hostile, key_text="Find <i>me</i>.", scope="rooms", step=steps, generation_id="evil").entry_id
        assert entry is not None
        bank.record_outcomes(steps, [(entry, True, f"evil-{k}") for k in range(40)])


def write_episode_files(directory: Path, steps: int, guided: bool, random: np.random.Generator) -> None:
    directory.mkdir()
    for step in (*range(0, steps, max(1, steps // 8)), steps - 1):
        rows = [episode(step, i, guided and i % 2 == 0 and step >= 5, bool(random.random() < 0.5)) for i in range(6)]
        (directory / f"step_{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    final = [episode(steps, i, guided and i % 2 == 0, i % 4 < 2) for i in range(8)]
    final[0]["turns"][1]["observation"] = "<script>alert('episode')</script>"
    (directory / f"eval_{steps}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in final))


def episode(step: int, index: int, guided: bool, success: bool) -> dict[str, Any]:
    room = ROOMS[index % len(ROOMS)]
    length = 5 if success else 16
    turns = [
        {"kind": "act", "observation": f"at {2 + i} {9 - i // 2}", "action": "north-east" if i % 2 else "east"}
        for i in range(length)
    ]
    return {
        "id": f"s{step}-g{index}-m0",
        "step": step,
        "task": {"id": f"dark-rooms/{index}", "description": f"Find the exit of the {room}."},
        "condition": "guided" if guided else "free",
        "entries": [{"id": 7 + index, "text": "the exit is in the north-west"}] if guided else [],
        "turns": turns,
        "final_observation": "at 7 7, out" if success else "at 12 3",
        "reward": float(success),
        "success": success,
        "n_actions": length,
        "stop_reason": "terminated" if success else "turns",
    }


def _rollout(probability: float, n: int, random: np.random.Generator) -> dict[str, float]:
    success = random.binomial(n, probability) / n
    actions = 14.5 - 7 * probability + random.normal() * 0.3
    return {
        "success": success,
        "reward": success,
        "actions": actions,
        "actions_per_success": (14.5 - 7 * probability) / probability + random.normal() * 0.3,
        "n": float(n),
    }


def _extractor(t: float, random: np.random.Generator) -> dict[str, float]:
    noise = float(random.normal())
    return {
        "extractor/entropy": 0.9 - 0.3 * t + 0.03 * noise,
        "extractor/loss": noise,
        "credit": 0.1 * noise,
        "negative_share": float(np.clip(0.55 - 0.1 * t + 0.06 * noise, 0, 1)),
        "version": 1.0,
        "lag": 0.5,
    }


def _arms(guided: bool, random: np.random.Generator) -> dict[str, ArmSummary]:
    rates = {"free": 0.44, "guided": 0.78, "shuffled": 0.12} if guided else {"free": 0.27}
    arms = {}
    for arm, rate in rates.items():
        wins = random.random(256) < rate
        actions = np.where(wins, random.integers(3, 11, 256) + round(5 - 6 * rate), 16).astype(float)
        columns = {
            "success": wins.astype(float),
            "reward": wins.astype(float),
            "actions": actions,
            "actions_when_won": actions[wins],
        }
        estimates = {name: bootstrap_interval(values.tolist(), 0) for name, values in columns.items()}
        per_success = ratio_interval(actions.tolist(), wins.tolist(), 0)
        arms[arm] = ArmSummary(**estimates, actions_per_success=per_success)
    return arms


def _method(directory: Path, arms: dict[str, ArmSummary], records: list[dict[str, Any]], steps: int, seed: int) -> MethodSummary:
    counts = {}
    if (directory / "bank.sqlite").exists():
        with Bank.open(directory / "bank.sqlite", BankConfig(), HashingEmbedder(), run_id=None, read_only=True) as bank:
            counts = bank.counts()
    return MethodSummary(
        arms=arms,
        shown_share=0.97 if counts else None,
        steps=steps,
        episodes=steps * 64,
        extractor_updates=steps // 4 if counts else 0,
        wall_seconds=1.2 * steps,
        time=time_shares(records),
        peak_memory_gb=1.1,
        bank=BankSummary.from_counts(counts, 0.66) if counts else None,
        provenance=Provenance(
            command="crl train quickstart",
            version="0.1.0",
            commit="0123abc",
            seed=seed,
            config_hash="feedc0ffee00",
            machine=MACHINE,
        ),
    )
