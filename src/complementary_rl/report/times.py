"""Where the wall time of training went, from the ``time`` of its step records."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from complementary_rl.report.tail import number

PARTS: dict[str, tuple[str, ...]] = {
    "actor sampling": ("sample", "rollout_sample"),
    "actor update": ("update",),
    "distillation": ("distill",),
    "extractor update": ("extractor_update",),
    "merge": ("merge",),
    "answers": ("ask", "rollout_ask"),
    "gate": ("gate", "rollout_gate"),
    "environment": ("env", "environment", "rollout_environment"),
    "retrieval and bank": ("retrieval", "retrieve", "record", "submit"),
    "prompts and tokens": ("tokens", "rollout_tokens"),
}
"""What a part is called, and the names its seconds have in metrics.jsonl."""

COMPUTE = ("actor sampling", "actor update", "distillation", "extractor update", "merge", "answers", "gate")
"""Parts in which a model computes."""

_TOTALS = frozenset({"step", "rollout"})
"""Seconds that contain others."""
_PART_OF = {name: part for part, names in PARTS.items() for name in names}


class TimeShares(BaseModel):
    """Seconds by part of the steps of a run; "other" is what no part accounts for. `compute_share`: share in which a model computed."""

    model_config = ConfigDict(frozen=True)

    seconds: dict[str, float]
    compute_share: float | None


def time_shares(records: Iterable[Mapping[str, Any]]) -> TimeShares:
    """Sum the parts over the step records among `records`; the names of a step's total ("step", "rollout") are not parts."""
    seconds: dict[str, float] = {}
    total = 0.0
    for record in records:
        times = record.get("time")
        if record.get("kind") != "step" or not isinstance(times, Mapping):
            continue
        told = {name: value for name in times if (value := number(times, name)) is not None}
        parts = {name: value for name, value in told.items() if name not in _TOTALS}
        for name, value in parts.items():
            part = _PART_OF.get(name, "other")
            seconds[part] = seconds.get(part, 0.0) + value
        known = sum(parts.values())
        whole = told.get("step", known)
        total += max(whole, known)
        seconds["other"] = seconds.get("other", 0.0) + max(0.0, whole - known)
    ordered = {part: seconds[part] for part in (*PARTS, "other") if seconds.get(part, 0.0) > 0}
    computed = sum(ordered.get(part, 0.0) for part in COMPUTE)
    return TimeShares(seconds=ordered, compute_share=computed / total if total > 0 else None)
