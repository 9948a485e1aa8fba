"""A bank from what agents did before: their transcripts go through the extractor as a run's own episodes do.

    traces.jsonl ── read, filed, looked through ──→ queue ──→ Distiller ──→ bank.sqlite

A transcript counts as distilled once its generation is in the bank, in one transaction with what it wrote. So an import that was stopped,
however that happened, goes on where it was: call it again.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from complementary_rl.config import Config
from complementary_rl.config_file import config_hash, dump_config, load_config
from complementary_rl.envs.protocol import Suite
from complementary_rl.envs.registry import configured_suite, tasks_of
from complementary_rl.errors import UserError
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.chat_traces import ReadLine, RefusedLine, read_chat_traces
from complementary_rl.experience.distiller import Distiller, SetAside
from complementary_rl.experience.embedding import make_embedder
from complementary_rl.experience.extractor import Extractor, distillation_id
from complementary_rl.experience.tally import Tally
from complementary_rl.training.session import CONFIG_FILE, MARKER, open_extractor
from complementary_rl.types import Split, Task

COUNTED = frozenset({"distilled", "shortened", "add", "update", "return", "unparsable", "dropped_operations", "added", "duplicate"})
"""Counts of docs/experience.md that an import keeps."""

_SPLITS: tuple[Split, Split] = ("train", "heldout")


class Filing:
    """Where transcripts belong among a suite's tasks. One whose goal is the description of a training task, and which names no scope
    itself, is filed with that task; one whose goal only held-out tasks have is refused, since no bank may know of them.

    `unknown` tells why the suite could not be asked, if it could not; then transcripts are filed as they say.
    """

    def __init__(self, config: Config) -> None:
        self.suite: Suite | None = None
        self.unknown = ""
        self._train: dict[str, Task] = {}
        self._held_out: dict[str, Task] = {}
        try:
            suite = configured_suite(config.env)
            self._train, self._held_out = ({task.description: task for task in tasks_of(suite, split)} for split in _SPLITS)
            self.suite = suite
        except UserError as error:
            self.unknown = str(error)

    def file(self, read: ReadLine) -> ReadLine | RefusedLine:
        """The line with its transcript in the right scope, or why it may not be used."""
        transcript = read.transcript
        goal = transcript.task.description
        known = self._train.get(goal)
        if self.suite is None or known is None:
            if goal in self._held_out:
                return RefusedLine(read.number, f"its goal is that of the held-out task {self._held_out[goal].id}")
            return read
        if not read.scoped:
            transcript = replace(transcript, task=replace(transcript.task, env=known.env, scope=known.scope))
        # Rules of its own, or else those of the task whose goal it has.
        rules = transcript.instructions or self.suite.instructions_for(known)
        return replace(read, transcript=replace(transcript, instructions=rules))


@dataclass
class Import:
    """What is in a file of transcripts, and what has become of it so far. `counts` are those named in `COUNTED`."""

    readable: int = 0
    refused: list[RefusedLine] = field(default_factory=list)
    unread_parts: Counter[str] = field(default_factory=Counter)
    unknown_outcomes: int = 0
    known_already: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    set_aside: list[SetAside] = field(default_factory=list)
    entries: int = 0

    @property
    def done(self) -> int:
        """Transcripts dealt with, now or before."""
        return self.known_already + self.counts["distilled"] + len(self.set_aside)

    def take_stock(self, distiller: Distiller, tally: Tally, bank: Bank) -> None:
        """Add what the tally has counted."""
        self.counts.update({name: int(number) for name, number in tally.take().items() if name in COUNTED})
        self.set_aside = list(distiller.set_aside)
        self.entries = len(bank)


def look_through(source: Path, filing: Filing, *, scope: str, strict: bool) -> Import:
    """Read the whole file before anything is distilled.

    Raises UserError when it cannot be read, when nothing in it can, and with `strict` at the first line that cannot.
    """
    found = Import()
    for read in _lines(source, filing, scope):
        if isinstance(read, RefusedLine):
            if strict:
                raise UserError(f"{source}, {read}; mend it, or leave out --strict to pass over such lines")
            found.refused.append(read)
            continue
        found.readable += 1
        found.unread_parts.update(read.unread_parts)
        found.unknown_outcomes += read.transcript.success is None
    if not found.readable:
        first = f"; {found.refused[0]}" if found.refused else ""
        raise UserError(
            f"{source} holds neither an exported bank nor a transcript that can be read ({len(found.refused)} lines refused{first}); "
            "see docs/transcripts.md for the format"
        )
    return found


async def distil_transcripts(
    source: Path, bank_path: Path, config: Config, filing: Filing, found: Import, *, scope: str, on_batch: Callable[[Import], None]
) -> None:
    """Distil what the bank at `bank_path` (made if there is none, with `config` beside it) does not know yet, and keep count in `found`,
    which `look_through` returned.

    `on_batch` is called after every call of the extractor. Raises UserError for a model, bank or directory that cannot be used, and for one
    that is a run's or was begun with other settings; InfrastructureError when the extractor fails again and again. Whatever ends it, what
    was distilled is kept.
    """
    _check_directory(bank_path.parent, config)
    if config.run.threads:
        import torch

        torch.set_num_threads(config.run.threads)
    embedder = make_embedder(config.bank.embedder)
    # The rules are in the transcripts: see `Filing.file`.
    engine, extractor = open_extractor(config, lambda task: "")
    try:
        _make_directory(bank_path.parent)
        with Bank.open(bank_path, config.bank, embedder, run_id=None, retrieval=config.retrieval) as bank:
            (bank_path.parent / CONFIG_FILE).write_text(dump_config(config), encoding="utf-8")
            await _distil(_lines(source, filing, scope), extractor, bank, config, found, on_batch)
    finally:
        engine.close()


def _check_directory(directory: Path, config: Config) -> None:
    if (directory / MARKER).exists():
        raise UserError(
            f"{directory} holds a run, whose bank is its own; distil into another directory and give that bank to a run with "
            "--bank.source"
        )
    known = directory / CONFIG_FILE
    if known.exists() and config_hash(load_config(known)) != config_hash(config):
        raise UserError(
            f"{directory} was begun with other settings (see its {CONFIG_FILE}); leave the options out to go on with those, or choose "
            "another directory"
        )


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{directory} cannot be written ({error.strerror}); choose another place, or free the disk") from error


async def _distil(
    lines: Iterator[ReadLine | RefusedLine],
    extractor: Extractor,
    bank: Bank,
    config: Config,
    found: Import,
    on_batch: Callable[[Import], None],
) -> None:
    tally = Tally()
    # Nobody trains on these generations, so that nothing earns credit.
    distiller = Distiller(bank, extractor, config.distill, tally, credit=lambda generation, output, step: None, judge=None)
    batch = min(config.distill.batch_size, config.distill.queue_size)

    async def read_until(fewer: int) -> None:
        while len(distiller.queue) >= fewer:
            await distiller.read_batch()
            found.take_stock(distiller, tally, bank)
            on_batch(found)

    try:
        for line in lines:
            if isinstance(line, RefusedLine):
                continue
            if bank.recorded([distillation_id(line.transcript.id)]):
                found.known_already += 1
                continue
            await read_until(batch)
            distiller.queue.put(line.transcript)
        await read_until(1)
    finally:
        found.take_stock(distiller, tally, bank)


def _lines(source: Path, filing: Filing, scope: str) -> Iterator[ReadLine | RefusedLine]:
    for line in read_chat_traces(source, default_scope=scope):
        yield filing.file(line) if isinstance(line, ReadLine) else line
