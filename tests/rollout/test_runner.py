"""Episodes played turn by turn with a scripted actor."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from helpers.actors import CUT, ScriptedActor
from helpers.models import STOP_ID
from helpers.rollouts import HINT, Played, answer, plan, play
from helpers.suites import CountEnv, CountSuite, Step, hang, task

from complementary_rl.experience.gate import Offer, Verdict
from complementary_rl.experience.questions import Answer, Question
from complementary_rl.objectives.samples import trajectory_samples
from complementary_rl.prompts import PromptSet
from complementary_rl.rollout.tool import NO_ANSWER, AskForm
from complementary_rl.types import Condition, Task


async def silence(questions: Sequence[Question], step: int) -> list[Answer | None]:
    await asyncio.sleep(60)
    raise AssertionError("nobody waits that long")


def test_tokens_masks_and_turns_of_a_guided_episode_are_exactly_these() -> None:
    played = play([plan(shown=HINT)], {"e": ["go", "east" + CUT, " go "]})
    episode = played.episodes["e"]
    ids = played.actor.ids
    user, end, assistant = 3, STOP_ID, 4
    opening = (user, *ids("Say go three times.\nhint: say go\nlevel 0, start 0"), end, assistant)
    # The second turn closes the first, which sampled its stop token itself; the third must add the one that was cut off.
    second = (user, *ids("heard 1"), end, assistant)
    third = (end, user, *ids("heard 2"), end, assistant)
    assert [turn.new_ids for turn in episode.turns] == [opening, second, third]
    said = [(*ids("go"), end), ids("east"), (*ids(" go "), end)]
    assert [turn.generation.token_ids for turn in episode.turns] == said
    assert [turn.action for turn in episode.turns] == ["go", "east", "go"]
    assert [turn.observation for turn in episode.turns] == ["level 0, start 0", "heard 1", "heard 2"]
    assert episode.final_observation == "heard 3"
    [sample] = trajectory_samples(episode, 1.0, 1.0)
    assert sample.token_ids == (*opening, *said[0], *second, *said[1], *third, *said[2])
    expected = [False] * len(opening) + [True] * 3 + [False] * len(second) + [True] + [False] * len(third) + [True] * 5
    assert list(sample.mask) == expected
    # What the sampler was shown at the last turn is what the trainer sees before its last words.
    assert played.actor.requests[-1].prompt_ids == sample.token_ids[: -len(said[2])]
    assert sample.logprobs[len(opening) :][:3] == tuple(-token / 100 for token in said[0])
    assert sample.temperature == 0.7


def test_a_finished_episode_says_what_it_was() -> None:
    episode = play([plan(shown=HINT, seed=3)]).episodes["e"]
    assert (episode.condition, episode.entry_ids, episode.answer_ids) == (Condition.GUIDED, (3,), ())
    assert (episode.step, episode.group, episode.member, episode.seed) == (4, 1, 2, 3)
    assert (episode.reward, episode.success, episode.n_actions, episode.stop_reason) == (1.0, True, 3, "terminated")
    assert episode.turns[0].observation == "level 0, start 3"


def test_a_free_episode_sees_no_experience_and_a_guided_one_keeps_the_prompt_it_would_have_had_without() -> None:
    played = play([plan("guided", shown=HINT), plan("free")])
    free, guided = played.episodes["free"], played.episodes["guided"]
    assert free.condition is Condition.FREE
    assert free.turns[0].new_ids == free.free_prompt_ids == guided.free_prompt_ids != guided.turns[0].new_ids
    assert "hint" not in played.actor.tokenizer.decode(free.turns[0].new_ids)


def test_active_episodes_take_their_turn_in_one_batch_and_results_keep_the_order_of_the_plans() -> None:
    def two(env: CountEnv, action: str, result: Step) -> Step:
        return (*result[:2], True, False, {"success": False}) if action == "stop" else result

    plans = [plan(name) for name in ("c", "a", "b")]
    played = play(plans, {"a": ["stop"]}, env=lambda: CountEnv(two))
    assert played.actor.batches == [["c/0", "a/0", "b/0"], ["c/1", "b/1"], ["c/2", "b/2"]]
    assert played.order == ["c", "a", "b"]


def test_every_turn_has_its_own_seed_whatever_else_is_in_the_batch() -> None:
    alone = play([plan("e")]).actor.requests
    among = play([plan("other", sampling_seed=12), plan("e")]).actor.requests
    seeds = [request.seed for request in alone]
    assert len(set(seeds)) == 3
    assert [request.seed for request in among if request.session == "e"] == seeds
    assert not {request.seed for request in among if request.session == "other"} & set(seeds)


def test_the_turn_limit_ends_an_episode_without_success() -> None:
    episode = play([plan()], max_turns=2).episodes["e"]
    assert (episode.stop_reason, episode.n_actions, episode.success, episode.reward) == ("turns", 2, False, 0.0)


def test_rules_and_turn_limit_are_those_of_the_task() -> None:
    class PerTask(CountSuite):
        def instructions_for(self, task: Task) -> str:
            return f"Rules of {task.id}."

        def max_turns_for(self, task: Task) -> int:
            return 1 + task.seed

    played = Played(ScriptedActor(), PerTask())
    plans = [plan("short", task=task(0)), plan("long", task=task(1))]
    asyncio.run(played.run(plans, max_turns=None))
    assert {name: episode.n_actions for name, episode in played.episodes.items()} == {"short": 1, "long": 2}
    played.runner.prompts = PromptSet.load("instruct")
    opened = played.runner.codec.decode(played.runner.opening(task(1), "at 1 2", [], False))
    assert opened.count("Rules of count/1.") == 1
    again = Played(ScriptedActor(), PerTask())
    asyncio.run(again.run(plans, max_turns=2))
    assert again.episodes["short"].n_actions == 2, "a limit that is given holds for every task"


def test_a_full_context_ends_an_episode_and_what_was_played_stays() -> None:
    whole = play([plan()]).episodes["e"]
    limit = sum(len(turn.new_ids) + len(turn.generation.token_ids) for turn in whole.turns[:2])
    cut = play([plan()], max_context=limit).episodes["e"]
    assert (cut.stop_reason, cut.n_actions, cut.success) == ("context", 2, False)
    assert cut.turns == whole.turns[:2]
    assert play([plan()], max_context=3).episodes["e"].turns == ()


def test_sessions_are_released_after_the_run_and_environments_reused() -> None:
    played = play([plan("a"), plan("b")])
    assert sorted(played.actor.released) == ["a", "b"]
    assert all(environment.closed for environment in played.suite.made)


def test_sessions_are_released_when_the_engine_fails() -> None:
    class Failing(ScriptedActor):
        async def sample(self, requests: Any, params: Any) -> Any:
            raise RuntimeError("out of memory")

    actor = Failing()
    with pytest.raises(RuntimeError, match="out of memory"):
        asyncio.run(Played(actor, CountSuite()).run([plan("a")]))
    assert actor.released == ["a"]


# --- search_and_ask -----------------------------------------------------------------------------------------------------------------


def test_a_question_is_answered_and_is_a_turn_that_costs_no_action() -> None:
    played = play([plan(shown=HINT, tool=True)], {"e": ["<ask>where to?</ask>"]}, ask=answer)
    episode = played.episodes["e"]
    assert [turn.kind for turn in episode.turns] == ["ask", "act", "act", "act"]
    assert (episode.n_actions, episode.answer_ids) == (3, ("e/ask1",))
    assert [turn.observation for turn in episode.turns][:2] == ["level 0, start 0", "answer: on where to?\nlevel 0, start 0"]
    assert episode.turns[1].new_ids == (
        3,
        *played.actor.ids("answer: on where to?\nlevel 0, start 0"),
        STOP_ID,
        4,
    )
    [[question]] = played.asked
    assert (question.question, question.observation, question.task.id) == ("where to?", "level 0, start 0", "count/0")
    assert "ask: allowed" in played.actor.tokenizer.decode(episode.turns[0].new_ids)


def test_free_rollouts_never_have_the_tool() -> None:
    with pytest.raises(AssertionError, match="free rollout"):
        plan(tool=True)
    played = play([plan()], {"e": ["<ask>where to?</ask>"]}, ask=answer)
    assert played.asked == []
    assert [turn.kind for turn in played.episodes["e"].turns] == ["act"] * 3


def test_a_guided_rollout_without_the_tool_is_not_answered_either() -> None:
    played = play([plan(shown=HINT)], {"e": ["<ask>where to?</ask>"]}, ask=answer)
    assert played.asked == []
    assert "ask" not in played.actor.tokenizer.decode(played.episodes["e"].turns[0].new_ids)


def test_questions_beyond_the_budget_go_to_the_environment() -> None:
    asks = ["<ask>one</ask>", "<ask>two</ask>", "<ask>three</ask>"]
    played = play([plan(shown=HINT, tool=True)], {"e": asks}, ask=answer, budget=2)
    episode = played.episodes["e"]
    assert [turn.kind for turn in episode.turns] == ["ask", "ask", "act", "act", "act"]
    assert episode.answer_ids == ("e/ask1", "e/ask2")
    assert episode.turns[3].observation == "heard 1"
    seeds = [question.seed for batch in played.asked for question in batch]
    assert len(set(seeds)) == 2


def test_an_answer_that_does_not_come_in_time_is_told_and_the_episode_goes_on() -> None:
    played = play([plan(shown=HINT, tool=True)], {"e": ["<ask>where to?</ask>"]}, ask=silence, timeout=0.05)
    episode = played.episodes["e"]
    assert (episode.success, episode.answer_ids) == (True, ())
    assert NO_ANSWER in played.actor.tokenizer.decode(episode.turns[1].new_ids)


def test_questions_of_one_turn_are_asked_together() -> None:
    plans = [plan(name, shown=HINT, tool=True) for name in ("a", "b")]
    played = play(plans, {"a": ["<ask>x</ask>"], "b": ["<ask>y</ask>"]}, ask=answer)
    assert [[question.question for question in batch] for batch in played.asked] == [["x", "y"]]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("<ask>where?</ask>", "where?"),
        ("hm <ask> a\nb </ask> <ask>c</ask>", "a\nb"),
        ("<ask></ask>", None),
        ("<ask>where?", None),
        ("north", None),
    ],
)
def test_what_counts_as_a_question(text: str, question: str | None) -> None:
    assert AskForm().question(text) == question


# --- the gate -----------------------------------------------------------------------------------------------------------------------


class ScriptedGate:
    """Gives each rollout the verdict its id asks for."""

    def __init__(self) -> None:
        self.offers: list[Offer] = []

    async def judge(self, offers: Sequence[Offer], step: int) -> list[Verdict | None]:
        self.offers += offers
        verdicts = {
            "accept": Verdict("accept"),
            "refine": Verdict("refine", "say go go go"),
            "reject": Verdict("reject"),
            "mumble": None,
        }
        return [verdicts[offer.id] for offer in offers]


def test_the_gate_decides_what_is_shown() -> None:
    gate = ScriptedGate()
    names = ("accept", "refine", "reject", "mumble")
    played = play([*(plan(name, shown=HINT, tool=True) for name in names), plan("free")], gate=gate, ask=answer)
    assert [offer.id for offer in gate.offers] == list(names), "a free rollout has nothing to be judged"
    assert {offer.observation for offer in gate.offers} == {"level 0, start 0"}
    opened = {name: played.actor.tokenizer.decode(episode.turns[0].new_ids) for name, episode in played.episodes.items()}
    assert opened["accept"] == opened["mumble"]
    assert "hint: say go" in opened["accept"]
    assert "hint: say go go go" in opened["refine"]
    assert opened["reject"] == opened["free"]
    conditions = {name: (episode.condition, episode.entry_ids, episode.gate_score) for name, episode in played.episodes.items()}
    assert conditions == {
        "accept": (Condition.GUIDED, (3,), 1.0),
        "refine": (Condition.GUIDED, (3,), 0.5),
        "reject": (Condition.FREE, (), 0.0),
        "mumble": (Condition.GUIDED, (3,), None),
        "free": (Condition.FREE, (), None),
    }


def test_a_rejecting_rollout_loses_the_tool_too() -> None:
    played = play([plan("reject", shown=HINT, tool=True)], {"reject": ["<ask>where?</ask>"]}, gate=ScriptedGate(), ask=answer)
    assert played.asked == []
    assert played.episodes["reject"].turns[0].kind == "act"


# --- faults -------------------------------------------------------------------------------------------------------------------------


def _raise(env: CountEnv, action: str, result: Step) -> Any:
    raise RuntimeError("the level fell apart")


def _hang(env: CountEnv, action: str, result: Step) -> Any:
    hang()
    return result


FAULTS: dict[str, Callable[[CountEnv, str, Step], Any]] = {
    "raised": _raise,
    "hung": _hang,
    "bad_observation": lambda env, action, result: (b"bytes", *result[1:]),
    "bad_reward": lambda env, action, result: (result[0], 1e308, *result[2:]),
    "bad_success": lambda env, action, result: (*result[:2], True, False, {}),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_takes_its_episode_and_leaves_the_others(kind: str) -> None:
    def sometimes(env: CountEnv, action: str, result: Step) -> Any:
        return FAULTS[kind](env, action, result) if action == "east" else result

    played = play([plan("good"), plan("bad"), plan("fine")], {"bad": ["go", "east"]}, env=lambda: CountEnv(sometimes))
    assert played.order == ["good", "fine"]
    assert all(episode.success for episode in played.episodes.values())
    [fault] = played.faults
    assert (fault.plan.id, fault.kind) == ("bad", kind)
    assert sorted(played.actor.released) == ["bad", "fine", "good"]


def test_an_environment_that_cannot_begin_is_a_fault_too() -> None:
    class Broken(CountEnv):
        def reset(self, task: Any, seed: int) -> Any:
            if seed == 1:
                raise OSError("no such level")
            return super().reset(task, seed)

    played = play([plan("good"), plan("bad", seed=1)], env=Broken)
    assert played.order == ["good"]
    assert [(fault.plan.id, fault.kind) for fault in played.faults] == [("bad", "raised")]
    assert "no such level" in played.faults[0].message


def test_times_are_handed_out_once() -> None:
    played = play([plan()])
    times = played.runner.take_times()
    assert times["environment"] > 0
    assert played.runner.take_times() == dict.fromkeys(times, 0.0)


# --- long episodes ------------------------------------------------------------------------------------------------------------------


def test_long_observations_lose_their_middle_and_are_counted() -> None:
    def talkative(env: CountEnv, action: str, result: Step) -> Step:
        return (f"begin{'.' * 500}end {env.count}", *result[1:])

    played = play([plan()], env=lambda: CountEnv(talkative), max_observation_tokens=20)
    episode = played.episodes["e"]
    assert [turn.observation for turn in episode.turns[1:]] == [f"begin......[489 tokens left out].....end {n}" for n in (1, 2)]
    assert played.actor.tokenizer.decode(episode.turns[1].new_ids) == f"<|user|>{episode.turns[1].observation}<|end|><|assistant|>"
    assert episode.cut_observations == 2, "the opening was short, and nobody was shown the last"
    assert play([plan()], max_observation_tokens=20).episodes["e"].cut_observations == 0
    assert play([plan()], max_observation_tokens=10).episodes["e"].cut_observations == 1, "the opening counts"
