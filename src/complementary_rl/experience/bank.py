"""The experience bank M: what was written, by which generation, how it fared; on disk, with what retrieval needs in memory.

    Bank ─┬─ BankStore    one SQLite file: entries, operation log, generations, retrievals, outcomes, credits
          ├─ LiveEntries  counters and vector indexes of the live entries, rebuilt from the store on opening
          └─ Embedder     key texts → vectors

Every operation costs the same in a bank of ten and of ten thousand entries. See docs/bank.md for the rules and the guarantees.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from complementary_rl.config import BankConfig, RetrievalConfig
from complementary_rl.errors import BankError
from complementary_rl.experience import jsonl, parquet, store, transfer
from complementary_rl.experience.embedding import CachedEmbedder, Embedder
from complementary_rl.experience.posterior import Posterior
from complementary_rl.experience.reading import BankReader
from complementary_rl.experience.records import LogRecord, generation_to_row
from complementary_rl.experience.retrieval import Choice, Query, Retrieved
from complementary_rl.experience.retriever import Retriever
from complementary_rl.experience.revert import Reverted, revert
from complementary_rl.experience.routing import Route
from complementary_rl.experience.state import Added, BankState, Draft
from complementary_rl.types import Entry, Generation

__all__ = ["Added", "Bank", "LogRecord", "Query", "Retrieved", "Reverted", "Route"]

_DEFAULT_RETRIEVAL = RetrievalConfig.model_validate({})


class Bank(BankReader):
    """One bank, open: written to and searched here, read as `BankReader` says. Safe to use from several threads; only one process may
    have it open for writing.

    Steps never run back: an operation that names an earlier step than the bank has seen is logged at the latest one.
    """

    def __init__(self, state: BankState, embedder: CachedEmbedder) -> None:
        """Use `Bank.open`."""
        super().__init__(state, embedder)
        self._retriever = Retriever(state, embedder)

    @classmethod
    def open(
        cls,
        path: Path,
        config: BankConfig,
        embedder: Embedder,
        *,
        run_id: str | None,
        read_only: bool = False,
        make: bool = True,
        retrieval: RetrievalConfig | None = None,
    ) -> Self:
        """Open the bank at `path`; without `read_only` and with `make` it is made if there is none.

        `run_id` must be the one the bank was made with; None accepts any, and a bank without a run (an imported one) becomes the
        run's that opens it first. `retrieval` is where eviction by value takes its posterior from. Read-only, retrieval keeps to the
        entries and counters of the moment of opening, whoever writes meanwhile, and moves none.

        A bank of an older schema is migrated; read-only, a copy of it in memory. Raises BankError (the message names the remedy)
        when the file is damaged, no bank, being written by another process, of a newer schema, of another run, or filled by another
        embedder.
        """
        opened = store.BankStore(path, read_only=read_only, make=make)
        try:
            cached = embedder if isinstance(embedder, CachedEmbedder) else CachedEmbedder(embedder)
            dimensions = _claim(opened, cached, run_id)
            state = BankState(opened, config, cached, dimensions, Posterior.of(retrieval or _DEFAULT_RETRIEVAL))
            return cls(state, cached)
        except BaseException:
            opened.close()
            raise

    @staticmethod
    def restore(source: Path, destination: Path) -> None:
        """Replace the bank at `destination` by the copy that `checkpoint_to` wrote. Raises BankError when `source` is no usable
        bank or `destination` is being written."""
        store.restore(source, destination)

    @staticmethod
    def import_from(source: Path, destination: Path) -> int:
        """Make a bank from a JSONL file or a Parquet folder that a bank was exported to, equal to it, except that it belongs to the
        run that opens it first. Returns the number of rows. Raises BankError when there is a bank already or `source` is not a
        complete export, UserError where pyarrow is needed and missing."""
        return transfer.import_bank(source, destination, parquet if source.is_dir() else jsonl)

    def close(self) -> None:
        """Close the file and let others write. Idempotent."""
        with self._state.lock:
            self._state.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def run_id(self) -> str:
        with self._state.lock:
            return self._state.store.meta()["run_id"]

    def transaction(self) -> AbstractContextManager[None]:
        """Group operations: all of them are kept, or none if anything in it raises. Holds the bank's lock: never await inside.

        Operations outside are each a transaction of their own; when it returns, its work survives the death of the process.
        Raises InfrastructureError when the disk is full, and the bank is as it was before.
        """
        return self._state.transaction()

    # --- writing -----------------------------------------------------------------------------------------------------------------

    def add(
        self, text: str, *, key_text: str, scope: str, step: int, generation_id: str | None = None, parents: Sequence[int] = ()
    ) -> Added:
        """File a new entry under `key_text` in `scope`. A full bank first evicts one by its policy.

        A text that a live entry of that key and scope holds already becomes a vote for that one: `generation_id` joins its
        `writers`, its own `generation_id` (who earns the credit) stays. Texts under `min_chars` and junk are refused, those over
        `max_chars` cut off.
        """
        with self.transaction():
            return self._state.write(Draft("add", text, key_text, scope, generation_id, parents), step)

    def update(self, target: int, text: str, *, key_text: str, scope: str, step: int, generation_id: str | None = None) -> Added:
        """Replace an entry: the new one takes the target's key and scope, has it as parent, and starts without statistics.

        With `bank.protect_proven` a target that has proven itself stays beside it, and the two compete.
        If the target is gone already (counted as `gone`) the text is added under `key_text` and `scope`. If another entry of
        the target's key says the same, that one gets a vote and the target retires; if the target itself does, it gets the vote.
        """
        with self.transaction():
            if self.is_live(target):
                old = self.entry(target)
                retire = [] if self._state.keeps_proven(old.stats) else [target]
                return self._state.write(Draft("update", text, old.key_text, old.scope, generation_id, [target], retire), step)
            self._state.counters["gone"] += 1
            known = self._state.store.rows("SELECT id FROM entries WHERE id = ?", (target,))
            return self._state.write(Draft("update", text, key_text, scope, generation_id, [target] if known else []), step)

    def merge(
        self,
        targets: Sequence[int],
        text: str,
        *,
        step: int,
        key_text: str | None = None,
        scope: str | None = None,
        generation_id: str | None = None,
    ) -> Added:
        """Replace several entries by one that has them as parents and the sum of their statistics.

        Its key and scope are the first target's unless given. Refused, so that the caller can look again, when a target is not
        live any more. A live entry outside `targets` that says the same is merged with them.
        """
        with self.transaction():
            wanted = list(dict.fromkeys(targets))
            gone = [str(target) for target in wanted if not self.is_live(target)]
            if gone or not wanted:
                reason = f"no longer live: {', '.join(gone)}" if gone else "nothing to merge"
                return self._state.refuse("merge", "conflict", reason, step, generation_id)
            first = self.entry(wanted[0])
            draft = Draft("merge", text, key_text or first.key_text, scope or first.scope, generation_id, wanted, wanted)
            return self._state.write(draft, step)

    def drop(self, ids: Iterable[int], *, step: int, generation_id: str | None = None) -> list[int]:
        """Retire entries; returns those that were live."""
        with self.transaction():
            dropped = [entry_id for entry_id in dict.fromkeys(ids) if self.is_live(entry_id)]
            if dropped:
                step = self._state.tick(step)
                self._state.retire(dropped, step)
                self._state.log("drop", step, dropped, retired=dropped, generation=generation_id)
            return dropped

    def revert(self, operation_id: int, *, step: int) -> Reverted:
        """Undo an operation: the entries it retired come back with the statistics they have now, the entry it made retires.

        Where that is more entries than before, a full bank first evicts by its policy. Raises BankError, which says why and what
        to do, for an operation that is unknown, was reverted already, or was built on since.
        """
        with self.transaction():
            return revert(self._state, operation_id, step)

    def record_return(self, *, step: int, generation_id: str | None = None) -> None:
        """Log that the extractor found nothing worth keeping."""
        with self.transaction():
            self._state.log("return", self._state.tick(step), (), generation=generation_id)

    def record_generations(self, generations: Iterable[Generation]) -> None:
        """Keep the tokens of extractor generations for training. Ids must be new."""
        with self.transaction():
            self._state.store.run_many(
                "INSERT INTO generations VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (generation_to_row(g) for g in generations)
            )

    def record_free(self, rollouts: Iterable[tuple[str, bool]]) -> None:
        """Count rollouts without experience, as (scope, success): what guided ones of other tasks' entries are compared with."""
        with self.transaction():
            for scope, success in rollouts:
                self._state.routing.count_free(scope, success)

    def record_outcomes(
        self, step: int, outcomes: Iterable[tuple[int, bool | None, str]], *, scopes: Mapping[str, str] | None = None
    ) -> None:
        """Count what rollouts made of the entries they were shown: (entry id, success, trajectory id).

        None for success: the rollout was lost; it was shown and nothing more is known. Retired entries are counted too.
        `scopes`: trajectory id → the scope it was played in, where that is known; see `routing` for what comes of it.
        """
        known = scopes or {}
        with self.transaction():
            step = self._state.tick(step)
            for entry_id, success, trajectory_id in outcomes:
                won, lost = success is True, success is False
                self._state.store.run(
                    "UPDATE entries SET shown = shown + 1, successes = successes + ?, failures = failures + ? WHERE id = ?",
                    (won, lost, entry_id),
                )
                self._state.store.run(
                    "INSERT INTO outcomes (step, entry_id, trajectory_id, success, scope) VALUES (?, ?, ?, ?, ?)",
                    (step, entry_id, trajectory_id, success, scope := known.get(trajectory_id)),
                )
                if scope is not None and success is not None and scope != self._state.scope(entry_id):
                    self._state.routing.count_guided(entry_id, scope, success)
                self._state.live.count_outcome(entry_id, success)

    def record_credits(self, step: int, credits: Iterable[tuple[str, float, int]]) -> None:
        """Log credits r̄(m): (generation id, value, rollouts it was averaged over)."""
        with self.transaction():
            step = self._state.tick(step)
            self._state.store.run_many(
                "INSERT INTO credits (step, generation_id, value, rollouts) VALUES (?, ?, ?, ?)",
                ((step, *credit) for credit in credits),
            )

    def mark_trained(self, generation_ids: Iterable[str], update: int) -> None:
        """Count that the extractor's update number `update` trained these generations, for every entry they wrote."""
        with self.transaction():
            step = self._state.clock
            for generation_id in generation_ids:
                self._state.store.run(
                    "UPDATE entries SET trained = trained + 1, last_trained_update = ? WHERE generation_id = ?",
                    (update, generation_id),
                )
                self._state.store.run(
                    "INSERT INTO trainings (step, generation_id, update_number) VALUES (?, ?, ?)", (step, generation_id, update)
                )

    # --- retrieval ---------------------------------------------------------------------------------------------------------------

    def retrieve(
        self, queries: Sequence[Query], *, step: int, retrieval: RetrievalConfig, training: bool
    ) -> list[list[list[Retrieved]]]:
        """Choose entries for each query: a list of up to `sets` sets of up to `k`, no entry twice; [] when nothing is near enough.

        All queries of a call see the bank as it was before it. `training` counts each chosen entry as retrieved at `step`
        and logs it; without it nothing moves and nothing is written.
        """
        chosen = self.choose(queries, step=step, retrieval=retrieval, training=training)
        return self.hand_out(queries, chosen, step=step, training=training)

    def choose(self, queries: Sequence[Query], *, step: int, retrieval: RetrievalConfig, training: bool) -> list[list[Choice]]:
        """The first half of `retrieve`: which entries, without counting them, best first. Searches a snapshot of the index: other
        threads may write meanwhile. Texts that are equal are embedded and searched once."""
        return self._retriever.choose(queries, step=step, config=retrieval, training=training)

    def hand_out(
        self, queries: Sequence[Query], chosen: Sequence[Sequence[Choice]], *, step: int, training: bool
    ) -> list[list[list[Retrieved]]]:
        """The other half: count what `choose` chose, fetch its texts, deal it out. An entry that retired in between is still shown,
        as it would be to a rollout that had just begun."""
        return self._retriever.hand_out(queries, chosen, step=step, training=training)

    def search_text(self, query: str, limit: int) -> list[tuple[Entry, float]]:
        """The live entries of all scopes whose keys are nearest to a text, with their cosine; nearest first."""
        with self._state.lock:
            return [(self.entry(entry_id), similarity) for entry_id, similarity in self._retriever.nearest(query, limit)]


def _claim(opened: store.BankStore, embedder: Embedder, run_id: str | None) -> int:
    """Check that a bank is this run's and this embedder's, or make it so where it is nobody's yet; returns its dimensions."""
    path, meta = opened.path, opened.meta()
    if not meta:
        if not opened.may_be_new:
            raise store.no_bank_yet(path)
        meta = {"run_id": "", "embedder": embedder.name, "dimensions": str(embedder.dimensions)}
        opened.set_meta(**meta)
    if run_id is not None and meta["run_id"] not in ("", run_id):
        raise BankError(
            f"{path} belongs to run {meta['run_id']!r}, not to {run_id!r}; choose another run directory, or start a run "
            f"from a copy of it with --bank.source {path}"
        )
    if meta["embedder"] != embedder.name:
        raise BankError(
            f"{path} was filled by the embedder {meta['embedder']!r} and bank.embedder is {embedder.name!r}; their vectors cannot "
            f"be compared: set bank.embedder = {meta['embedder']!r}, or start a new bank"
        )
    if run_id is not None and not meta["run_id"] and not opened.read_only:
        opened.set_meta(run_id=run_id)
    return int(meta["dimensions"])
