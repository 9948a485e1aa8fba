"""`studies/results/NAME.json`: what each run of a study came to, and where from. Small, committed, all that a report reads."""

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from complementary_rl.config_file import config_hash
from complementary_rl.errors import UserError
from complementary_rl.report.provenance import Machine
from studies.declaration import Study
from studies.measures import FinishedRun, curve, measure
from studies.runs import Cell

RESULTS = Path(__file__).parent / "results"


class RunRecord(BaseModel):
    """One run of a study."""

    model_config = ConfigDict(frozen=True)

    variant: str
    seed: int
    config_hash: str
    commit: str | None
    machine: str
    steps: int
    measures: dict[str, float | None]
    curves: dict[str, dict[str, list[float]]]


class StudyResults(BaseModel):
    """All finished runs of a study: variants in the order of the declaration, then seeds."""

    study: str
    command: str
    runs: list[RunRecord] = []

    def values(self, variant: str, name: str, seeds: Sequence[int]) -> list[float | None]:
        """A measure by seed; None where there is no such run or it has no such measure."""
        found = {run.seed: run.measures.get(name) for run in self.runs if run.variant == variant}
        return [found.get(seed) for seed in seeds]

    def of(self, variant: str, seeds: Sequence[int]) -> list[RunRecord]:
        """The runs of a variant on these seeds."""
        return [run for run in self.runs if run.variant == variant and run.seed in seeds]

    def seeds(self) -> list[int]:
        """Seeds of any run."""
        return sorted({run.seed for run in self.runs})


def collect(study: Study, done: Sequence[Cell], into: Path) -> StudyResults:
    """Add finished runs to the file `into` (in place of an earlier record of the same variant and seed); returns all of it."""
    kept = {(run.variant, run.seed): run for run in read(study, into).runs}
    kept |= {(cell.variant, cell.seed): _record(study, cell) for cell in done}
    order = {variant: index for index, variant in enumerate(study.variants)}
    runs = sorted((run for run in kept.values() if run.variant in order), key=lambda run: (order[run.variant], run.seed))
    results = StudyResults(study=study.name, command=f"python -m studies run {study.name}", runs=runs)
    into.parent.mkdir(parents=True, exist_ok=True)
    into.write_text(_compact(results), encoding="utf-8")
    return results


def read(study: Study, path: Path) -> StudyResults:
    """The results in a file; none where there is no file. Raises UserError for a damaged one."""
    if not path.exists():
        return StudyResults(study=study.name, command="")
    try:
        return StudyResults.model_validate_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); restore it, or remove it and run the study again") from error


def _record(study: Study, cell: Cell) -> RunRecord:
    run = FinishedRun(cell.directory)
    provenance = run.summary.provenance
    return RunRecord(
        variant=cell.variant,
        seed=cell.seed,
        config_hash=config_hash(cell.config),
        commit=provenance.commit,
        machine=_machine(provenance.machine),
        steps=run.summary.steps,
        measures={name: _rounded(measure(run, name)) for name in study.measures},
        curves={name: curve(run, name) for name in study.curves},
    )


def _machine(machine: Machine) -> str:
    parts = [
        machine.processor,
        f"{machine.cores} cores",
        f"{machine.memory_gb} GB",
        *machine.accelerators,
        f"torch {machine.torch}",
    ]
    return ", ".join(parts)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _compact(results: StudyResults) -> str:
    """A line per run, so that a change of one run is one line in a diff."""
    data = results.model_dump()
    runs = ",\n".join(f"  {json.dumps(run, ensure_ascii=False)}" for run in data.pop("runs"))
    head = json.dumps(data, ensure_ascii=False)[:-1]
    return f'{head}, "runs": [\n{runs}\n]}}\n'
