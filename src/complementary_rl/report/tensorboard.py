"""TensorBoard events beside metrics.jsonl (`log.tensorboard = true`)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from complementary_rl.errors import UserError
from complementary_rl.report.tail import number

_NOT_CURVES = frozenset({"step", "update"})


class TensorBoardWriter:
    """Writes the numbers of metrics records as scalars named by their path, such as ``step/rollout/guided/success``.

    The x axis is the actor step, for extractor records the extractor update. A resumed run writes a new event file, whose steps replace
    those that the run went back over.
    """

    def __init__(self, directory: Path, first_step: int = 0) -> None:
        """Raises UserError when the `tensorboard` package is missing."""
        check_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory), purge_step=first_step or None)

    def record(self, record: Mapping[str, Any]) -> None:
        """Write one metrics record; text and other kinds of values are left to metrics.jsonl."""
        kind = str(record.get("kind", "other"))
        step = int(number(record, "update" if kind == "extractor" else "step") or 0)
        for name, value in _scalars(record):
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """Write out what is buffered."""
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def check_tensorboard() -> None:
    """Raises UserError when the `tensorboard` package is missing: better before a run has begun."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise UserError(
            "log.tensorboard needs the tensorboard package: `pip install 'complementary-rl[tensorboard]'`, "
            "or set log.tensorboard = false"
        ) from error


def _scalars(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from _scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and (prefix or name not in _NOT_CURVES):
            yield f"{prefix}{name}", float(value)
