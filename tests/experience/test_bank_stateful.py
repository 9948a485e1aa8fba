"""Random lives of a bank beside a model of it in plain Python: after every step both hold the same, live, on disk and in the log."""

import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from helpers.banks import KEYS, open_bank
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from complementary_rl.errors import BankError
from complementary_rl.experience.bank import Bank
from complementary_rl.seeds import rng
from complementary_rl.types import EntryStats

CAPACITY = 5
TEXTS = st.integers(0, 3).map("note {}".format)
CHOICE = st.integers(0, 10**6)


@dataclass
class Known:
    text: str
    key: str
    live: bool = True
    shown: int = 0
    successes: int = 0
    failures: int = 0
    votes: int = 0


@dataclass
class Operation:
    kind: str
    made: list[int] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    voted: list[int] = field(default_factory=list)
    reverted: bool = False

    @property
    def changed(self) -> list[int]:
        return self.made + self.retired


@dataclass
class Model:
    """Entry and operation ids count from 1 in order of appearance."""

    entries: dict[int, Known] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)

    def live(self) -> list[int]:
        return [i for i, known in self.entries.items() if known.live]

    def twin(self, text: str, key: str, ignoring: list[int]) -> int | None:
        return next(
            (i for i in self.live() if i not in ignoring and (self.entries[i].text, self.entries[i].key) == (text, key)), None
        )

    def retire(self, ids: list[int]) -> None:
        for i in ids:
            self.entries[i].live = False

    def make_room(self, incoming: int) -> None:
        while len(self.live()) + incoming > CAPACITY:
            oldest = self.live()[0]
            self.retire([oldest])
            self.operations.append(Operation("evict", retired=[oldest]))

    def write(self, kind: str, text: str, key: str, retire: list[int]) -> None:
        twin = self.twin(text, key, retire if kind == "merge" else [])
        if twin is not None and kind != "merge":
            retired = [i for i in retire if i != twin]
            self.retire(retired)
            self.entries[twin].votes += 1
            self.operations.append(Operation("vote", retired=retired, voted=[twin]))
            return
        retire = retire if twin is None else [*retire, twin]
        self.retire(retire)
        self.make_room(1)
        parents = [self.entries[i] for i in retire] if kind == "merge" else []
        sums = {name: sum(getattr(p, name) for p in parents) for name in ("shown", "successes", "failures", "votes")}
        self.entries[len(self.entries) + 1] = Known(text, key, **sums)
        self.operations.append(Operation(kind, made=[len(self.entries)], retired=retire))

    def may_revert(self, number: int) -> bool:
        undone = self.operations[number - 1]
        if undone.reverted or undone.kind == "revert" or not undone.changed:
            return False
        for later in self.operations[number:]:
            touches = set(later.changed + later.voted) & set(undone.changed)
            if touches and later.changed and not later.reverted and later.kind != "revert":
                return False
        texts = [(self.entries[i].text, self.entries[i].key) for i in undone.retired]
        return all(self.twin(text, key, undone.made) is None for text, key in texts)

    def revert(self, number: int) -> None:
        undone = self.operations[number - 1]
        self.retire(undone.made)
        self.make_room(len(undone.retired))
        for i in undone.retired:
            self.entries[i].live = True
        undone.reverted = True
        self.operations.append(Operation("revert", made=list(undone.retired), retired=list(undone.made)))


class Lives(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.model, self.step, self.was = Model(), 0, []
        self.bank = open_bank(self.folder / "bank.sqlite", capacity=CAPACITY)

    def teardown(self) -> None:
        if hasattr(self, "bank"):
            try:
                assert [self.bank.rebuild(step) for step in range(len(self.was))] == self.was
            finally:
                self.bank.close()
                shutil.rmtree(self.folder)

    def pick(self, choice: int, count: int) -> list[int]:
        """Up to `count` live entries."""
        live = self.model.live()
        start = choice % max(1, len(live))
        return (live + live)[start : start + min(count, len(live))]

    @rule(text=TEXTS, key=st.sampled_from(KEYS[:2]))
    def add(self, text: str, key: str) -> None:
        self.bank.add(text, key_text=key, scope="rooms", step=self.step)
        self.model.write("add", text, key, [])

    @rule(text=TEXTS, choice=CHOICE)
    def update(self, text: str, choice: int) -> None:
        for target in self.pick(choice, 1):
            self.bank.update(target, text, key_text="unused", scope="unused", step=self.step)
            self.model.write("update", text, self.model.entries[target].key, [target])

    @rule(text=TEXTS, choice=CHOICE, count=st.integers(1, 3))
    def merge(self, text: str, choice: int, count: int) -> None:
        targets = self.pick(choice, count)
        if targets:
            self.bank.merge(targets, text, step=self.step)
            self.model.write("merge", text, self.model.entries[targets[0]].key, targets)

    @rule(choice=CHOICE, count=st.integers(1, 3))
    def drop(self, choice: int, count: int) -> None:
        ids = self.pick(choice, count)
        assert self.bank.drop(ids, step=self.step) == ids
        if ids:
            self.model.retire(ids)
            self.model.operations.append(Operation("drop", retired=ids))

    @rule(choice=CHOICE)
    def revert(self, choice: int) -> None:
        possible = [number for number in range(1, 1 + len(self.model.operations)) if self.model.may_revert(number)]
        if possible:
            number = possible[choice % len(possible)]
            self.bank.revert(number, step=self.step)
            self.model.revert(number)

    @rule(choice=CHOICE)
    def revert_anything(self, choice: int) -> None:
        number = 1 + choice % (1 + len(self.model.operations))
        if number > len(self.model.operations) or not self.model.may_revert(number):
            with pytest.raises(BankError):
                self.bank.revert(number, step=self.step)

    @rule(choice=CHOICE, success=st.sampled_from([True, False, None]))
    def outcome(self, choice: int, success: bool | None) -> None:
        """Of any entry, retired ones included."""
        if self.model.entries:
            entry_id = 1 + choice % len(self.model.entries)
            self.bank.record_outcomes(self.step, [(entry_id, success, "t")])
            known = self.model.entries[entry_id]
            known.shown += 1
            known.successes += success is True
            known.failures += success is False

    @rule()
    def next_step(self) -> None:
        self.was.append(self.bank.entries())
        self.step += 1

    @rule(text=TEXTS, choice=CHOICE)
    def fail_half_way(self, text: str, choice: int) -> None:
        with contextlib.suppress(ZeroDivisionError), self.bank.transaction():
            self.bank.add(text, key_text=KEYS[2], scope="rooms", step=self.step)
            self.bank.drop(self.pick(choice, 2), step=self.step)
            raise ZeroDivisionError

    @rule(restore=st.sampled_from([False, False, False, True]))
    def reopen(self, restore: bool) -> None:
        """Or go back to a checkpoint of now."""
        if restore:
            self.bank.checkpoint_to(self.folder / "copy")
            self.bank.add("lost again", key_text=KEYS[0], scope="rooms", step=self.step)
        self.bank.close()
        if restore:
            Bank.restore(self.folder / "copy", self.folder / "bank.sqlite")
        self.bank = open_bank(self.folder / "bank.sqlite", capacity=CAPACITY)

    @invariant()
    def both_hold_the_same(self) -> None:
        entries = self.bank.entries(live_only=False)
        assert {e.id: (e.text, e.key_text, e.retired_step is None) for e in entries} == {
            i: (known.text, known.key, known.live) for i, known in self.model.entries.items()
        }
        for entry in entries:
            known = self.model.entries[entry.id]
            counts = {name: getattr(known, name) for name in ("shown", "successes", "failures", "votes")}
            assert entry.stats == EntryStats(**counts)
        assert [record.kind for record in self.bank.log(10**6)] == [operation.kind for operation in self.model.operations]
        assert [record.reverted_by is not None for record in self.bank.log(10**6)] == [o.reverted for o in self.model.operations]
        live = self.bank.entries()
        assert self.bank.rebuild(self.step) == live
        assert (
            sorted(entry.id for entry, _ in self.bank.search_text(KEYS[0], 10**6))
            == [entry.id for entry in live]
            == self.model.live()
        )
        assert len(live) <= CAPACITY


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=10, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("life", range(3))
def test_long_lives(life):
    """Hypothesis favours short lives and shrinks what fails; these are long and the same every time."""
    machine, random = Lives(), rng("bank", "life", life)

    def text() -> str:
        return f"note {random.integers(4)}"

    def choice() -> int:
        return int(random.integers(10**6))

    rules = [
        lambda: machine.add(text=text(), key=KEYS[choice() % 2]),
        lambda: machine.update(text=text(), choice=choice()),
        lambda: machine.merge(text=text(), choice=choice(), count=1 + choice() % 3),
        lambda: machine.drop(choice=choice(), count=1),
        lambda: machine.revert(choice=choice()),
        lambda: machine.revert_anything(choice=choice()),
        lambda: machine.outcome(choice=choice(), success=[True, False, None][choice() % 3]),
        lambda: machine.next_step(),
        lambda: machine.fail_half_way(text=text(), choice=choice()),
        lambda: machine.reopen(restore=choice() % 4 == 0),
    ]
    often = np.array([6, 3, 3, 2, 5, 5, 3, 2, 1, 1])
    machine.start()
    try:
        for place in random.choice(len(rules), size=120, p=often / often.sum()):
            rules[place]()
            machine.both_hold_the_same()
    finally:
        machine.teardown()
    undone = {operation.kind for operation in machine.model.operations if operation.reverted}
    assert len(undone) >= 3
