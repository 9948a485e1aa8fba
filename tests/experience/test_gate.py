import asyncio
import json
from typing import Any

import pytest

from complementary_rl.config import GateConfig
from complementary_rl.experience.gate import Gate, Offer, SuccessRates, Verdict, apply_verdict, parse_verdict
from complementary_rl.prompts import PromptSet
from tests.helpers.scripted import ScriptedEngine, episode, task

ENTRIES = ((3, "go west"), (5, "mind the trap"))


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("accept", Verdict("accept")),
        (" Accept.\n", Verdict("accept")),
        ("REJECT", Verdict("reject")),
        ("<think>is it so?</think> reject", Verdict("reject")),
        ("refine: go north: then west", Verdict("refine", "go north: then west")),
        ("Refine : go north", Verdict("refine", "go north")),
        ("refine:", None),
        ("refine", None),
        ("accept: yes", None),
        ("acceptable", None),
        ("I reject", None),
        ("", None),
    ],
)
def test_verdicts(text: str, verdict: Verdict | None) -> None:
    assert parse_verdict(text) == verdict


def test_scores_of_eq_8() -> None:
    assert [Verdict(kind).score for kind in ("accept", "refine", "reject")] == [1.0, 0.5, 0.0]


def test_what_is_shown_after_a_verdict() -> None:
    assert apply_verdict(ENTRIES, Verdict("accept")) == ENTRIES
    assert apply_verdict(ENTRIES, None) == ENTRIES
    assert apply_verdict(ENTRIES, Verdict("reject")) == ()
    assert apply_verdict(ENTRIES, Verdict("refine", "go north")) == ((3, "go north"),)


def test_the_success_rate_runs_per_scope_and_forgets() -> None:
    rates = SuccessRates()
    assert rates.rate("rooms") is None
    rates.record([episode(0, m, success=m < 3) for m in range(4)])
    assert rates.rate("rooms") == pytest.approx(0.75, abs=0.01)
    rates.record([episode(0, m) for m in range(2000)])
    assert rates.rate("rooms") == pytest.approx(0.0, abs=0.01)
    rates.record([episode(0, 0, success=True, of=task(0, scope="rivers"))])
    assert rates.rate("rivers") == 1.0
    restored = SuccessRates()
    restored.load_state_dict(json.loads(json.dumps(rates.state_dict())))
    assert restored.rate("rooms") == rates.rate("rooms")


def make(reply: Any, *, warmup: int = 2, seen: bool = True) -> tuple[Gate, ScriptedEngine]:
    engine = ScriptedEngine(reply)
    rates = SuccessRates()
    if seen:
        rates.record([episode(0, m, success=m == 0) for m in range(4)])
    config = GateConfig(enabled=True, warmup_steps=warmup, max_new_tokens=32)
    return Gate(
        engine, engine.codec, PromptSet.load("compact"), config, rates, temperature=0.8, instructions=lambda task: ""
    ), engine


def offer(member: int) -> Offer:
    return Offer(f"s5-g0-m{member}", task(0), "at 1 2", ENTRIES, seed=100 + member)


def test_the_actor_sees_the_entries_and_its_own_success_rate() -> None:
    gate, engine = make(lambda prompt: "accept")
    assert asyncio.run(gate.judge([offer(0), offer(1)], 5)) == [Verdict("accept")] * 2
    assert engine.prompts()[0] == (
        "Find the exit of room 0.\nhint: go west\nhint: mind the trap\nsuccess rate 0.25\naccept, refine or reject?"
    )
    [requests] = engine.calls
    assert [(request.id, request.seed, request.session) for request in requests] == [
        ("s5-g0-m0/gate", 100, None),
        ("s5-g0-m1/gate", 101, None),
    ]
    assert (engine.params[0].temperature, engine.params[0].max_new_tokens) == (0.8, 32)


def test_nobody_is_asked_in_the_warm_up_or_before_the_first_rollout() -> None:
    for gate, engine in (make(lambda prompt: "reject", warmup=6), make(lambda prompt: "reject", seen=False)):
        assert asyncio.run(gate.judge([offer(0)], 5)) == [None]
        assert engine.calls == []


def test_what_is_not_understood_is_no_verdict() -> None:
    gate, _ = make(lambda prompt: "hmm")
    assert asyncio.run(gate.judge([offer(0)], 5)) == [None]
