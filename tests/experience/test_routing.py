"""Entries of other tasks: their own floor, and the guard that ends what does harm."""

import asyncio
from pathlib import Path

import pytest
from helpers.banks import AngleEmbedder, add, open_bank, retrieve
from helpers.scripted import episode
from typer.testing import CliRunner

from complementary_rl.cli.main import app
from complementary_rl.config import Config, RetrievalConfig
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.experience.routing import LEAST_ROLLOUTS, wilson_upper

ACROSS = RetrievalConfig(cross_task=True)


def offered(bank: Bank, scope: str = "rivers", config: RetrievalConfig = ACROSS, k: int = 1, training: bool = False) -> list[int]:
    sets = retrieve(bank, config, scope=scope, k=k, training=training)
    return [entry.entry_id for hand in sets for entry in hand]


def play(
    bank: Bank, entry: int, won: int, lost: int, *, free: tuple[int, int] = (0, 0), scope: str = "rivers", step: int = 1
) -> None:
    """Free rollouts (won, lost) of a scope, then guided ones."""
    bank.record_free([(scope, i % 2 == 0) for i in range(2 * min(free))] + [(scope, free[0] > free[1])] * abs(free[0] - free[1]))
    outcomes = [True] * won + [False] * lost
    named = [(entry, outcome, f"{step}.{i}") for i, outcome in enumerate(outcomes)]
    bank.record_outcomes(step, named, scopes={name: scope for _, _, name in named})


def test_the_bound_is_the_wilson_interval_s():
    assert wilson_upper(0, 8) == pytest.approx(0.2527, abs=1e-4)
    assert wilson_upper(5, 10) == pytest.approx(0.7307, abs=1e-3)
    assert wilson_upper(8, 8) == pytest.approx(1.0)


@pytest.mark.parametrize(("floor", "least", "found"), [(0.5, 0.0, [3]), (0.7, 0.0, []), (-1.0, 0.0, [3, 2]), (-1.0, 0.5, [3])])
def test_other_scopes_have_a_floor_of_their_own(tmp_path, floor, least, found):
    with open_bank(tmp_path / "b", embedder=AngleEmbedder()) as bank:
        own = add(bank, "own note", key="task @0.55", scope="rivers")
        add(bank, "far away", key="task @0.4", scope="rooms")
        add(bank, "nearby", key="task @0.6", scope="rooms")
        config = RetrievalConfig(cross_task=True, cross_task_floor=floor, min_similarity=least)
        chosen = [entry.entry_id for hand in retrieve(bank, config, text="asked @1", scope="rivers", k=3) for entry in hand]
        assert chosen == [own, *found]
        alone = config.model_copy(update={"cross_task": False})
        assert [e.entry_id for hand in retrieve(bank, alone, text="asked @1", scope="rivers", k=3) for e in hand] == [own]


def test_an_entry_that_does_worse_than_free_rollouts_is_no_longer_offered_there(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        harmful = add(bank, "go west")
        assert offered(bank) == [harmful]
        play(bank, harmful, 0, LEAST_ROLLOUTS - 1, free=(8, 8))
        assert offered(bank) == [harmful], "too few to tell"
        play(bank, harmful, 0, 1)
        assert offered(bank) == []
        assert offered(bank, training=True) == []
        assert offered(bank, "rooms") == [harmful], "its own scope has it still"
        assert offered(bank, "caves") == [harmful], "and so has every other"
        assert offered(bank, config=RetrievalConfig(cross_task=True, contamination_guard=False)) == [harmful]
        assert bank.counts()["routing_blocked"] == 1
        [route] = bank.routes(harmful)
        assert (route.scope, route.rollouts, route.successes, route.blocked) == ("rivers", 8, 0, True)
        bank.drop([harmful], step=2)
        assert bank.counts()["routing_blocked"] == 0


@pytest.mark.parametrize(
    ("won", "lost", "free"),
    [(8, 8, (8, 8)), (1, 15, (1, 15)), (3, 5, (8, 8)), (0, 40, (0, 0)), (0, 40, (0, 8))],
    ids=["as good", "as bad", "not clearly worse", "nothing to compare with", "nobody wins"],
)
def test_what_is_not_clearly_worse_stays(tmp_path, won, lost, free):
    with open_bank(tmp_path / "b") as bank:
        entry = add(bank, "go west")
        play(bank, entry, won, lost, free=free)
        assert offered(bank) == [entry]


def test_rollouts_are_compared_with_the_free_ones_of_their_time(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        entry = add(bank, "go west")
        play(bank, entry, 2, 18, free=(2, 18))
        play(bank, entry, 4, 0, free=(500, 0), step=2)  # the actor has learnt
        [route] = bank.routes(entry)
        assert route.expected < 7 < 0.9 * 24
        assert offered(bank) == [entry]


def test_what_the_own_scope_and_lost_rollouts_saw_is_not_compared(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        entry = add(bank, "go west")
        play(bank, entry, 0, 20, free=(10, 0), scope="rooms")
        bank.record_outcomes(1, [(entry, None, "lost")], scopes={"lost": "rivers"})
        bank.record_outcomes(1, [(entry, False, "unknown")] * 20)
        assert bank.routes(entry) == []
        assert bank.entry(entry).stats.shown == 41


def test_a_block_takes_nobody_else_s_place(tmp_path):
    with open_bank(tmp_path / "b", embedder=AngleEmbedder()) as bank:
        near = [add(bank, f"near {i}", key=f"task {i} @0.9", scope="rooms") for i in range(20)]
        far = add(bank, "far away", key="task @0.6", scope="rooms")
        bank.record_free([("rivers", True)])
        for entry in near:
            play(bank, entry, 0, 8)
        assert [e.entry_id for hand in retrieve(bank, ACROSS, text="asked @1", scope="rivers") for e in hand] == [far]


def test_blocks_survive_reopening_exports_and_transactions_that_fail(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        harmful, new = add(bank, "go west"), add(bank, "go north")
        play(bank, harmful, 0, 8, free=(8, 0))
        with pytest.raises(RuntimeError), bank.transaction():
            play(bank, new, 0, 8)
            assert offered(bank) == []
            raise RuntimeError
        assert offered(bank) == [new]
        bank.export_jsonl(tmp_path / "out")
        routes = bank.routes(harmful)
    Bank.import_from(tmp_path / "out", tmp_path / "copy")
    for path in (tmp_path / "b", tmp_path / "copy"):
        for read_only in (False, True):
            with open_bank(path, read_only=read_only, run_id=None) as bank:
                assert offered(bank, k=2) == [new]
                assert bank.routes(harmful) == routes


def test_merged_entries_inherit_evidence_and_rewritten_ones_start_anew(tmp_path):
    with open_bank(tmp_path / "b") as bank:
        first, second = add(bank, "go west"), add(bank, "go to the west")
        play(bank, first, 0, 5, free=(8, 0))
        play(bank, second, 0, 5)
        assert bank.counts()["routing_blocked"] == 0
        merged = bank.merge([first, second], "west it is", step=2).entry_id
        assert bank.routes(merged)[0].rollouts == 10
        assert offered(bank) == []
        rewritten = bank.update(merged, "go south-west", key_text="", scope="", step=3).entry_id
        assert offered(bank) == [rewritten]
        bank.revert(bank.log(1)[0].id, step=4)
        assert offered(bank) == [], "what comes back brings its evidence"


def test_rollouts_tell_the_bank_where_they_were_played(tmp_path: Path) -> None:
    bank = open_bank(tmp_path / "b")
    entry = add(bank, "go west", scope="elsewhere")
    manager = ExperienceManager(bank, None, Config.model_validate({"run": {"schedule": "lockstep"}}), train_extractor=False)
    guided = [episode(0, member, entries=(entry,), success=False) for member in range(4)]
    free = [episode(0, member, success=True) for member in range(4, 8)]
    asyncio.run(manager.record_rollouts([*guided, *free], 1))
    [route] = bank.routes(entry)
    assert (route.scope, route.rollouts, route.successes) == ("rooms", 4, 0)
    assert route.expected == pytest.approx(4.0), "the free half of the same step counts"
    asyncio.run(manager.record_rollouts([*guided, *free], 2))
    assert manager.take_metrics()["bank_routing_blocked"] == 1
    bank.close()


def test_bank_show_tells_where_an_entry_is_no_longer_offered(tmp_path):
    with open_bank(tmp_path / "bank.sqlite") as bank:
        play(bank, add(bank, "go west"), 1, 8, free=(8, 0))
    shown = CliRunner().invoke(app, ["bank", "show", str(tmp_path), "1"]).output
    assert "elsewhere   rivers: 1 of 9 rollouts won, 9.0 expected of free ones; no longer offered there" in shown
