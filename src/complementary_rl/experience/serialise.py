"""Trajectories as JSON and back, without loss: what waits in a queue must survive a checkpoint."""

from dataclasses import fields
from typing import Any

from complementary_rl.types import Condition, Generation, Task, Trajectory, Turn


def trajectory_to_json(trajectory: Trajectory) -> dict[str, Any]:
    """A JSON-able dict; `trajectory_from_json` gives an equal trajectory, floats bit for bit."""
    return {
        **_values(trajectory),
        "task": _values(trajectory.task),
        "condition": trajectory.condition.value,
        "turns": [{**_values(turn), "generation": _values(turn.generation)} for turn in trajectory.turns],
    }


def trajectory_from_json(values: dict[str, Any]) -> Trajectory:
    """The trajectory that `trajectory_to_json` was given."""
    return Trajectory(
        **_frozen(values)
        | {
            "task": Task(**values["task"]),
            "condition": Condition(values["condition"]),
            "turns": tuple(
                Turn(**_frozen(turn) | {"generation": Generation(**_frozen(turn["generation"]))}) for turn in values["turns"]
            ),
        }
    )


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _frozen(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
