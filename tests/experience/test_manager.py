import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from complementary_rl.config import Config, SamplingConfig
from complementary_rl.errors import InfrastructureError
from complementary_rl.experience import distiller, manager, waiting
from complementary_rl.experience.bank import Bank
from complementary_rl.experience.extractor import Extractor
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.experience.merge import Merger
from complementary_rl.experience.questions import Answer, Question
from complementary_rl.prompts import PromptSet
from complementary_rl.types import Trajectory
from tests.helpers.banks import open_bank
from tests.helpers.scripted import ScriptedEngine, episode, task


class World:
    """A manager with a real bank and a scripted extractor."""

    def __init__(self, path: Path, reply: Callable[[str], str], *, judge: Any = None, context: int = 4096, **sections: Any) -> None:
        extractor = {"batch_size": 2, "sampling": SamplingConfig(max_new_tokens=200), **sections.pop("extractor", {})}
        self.config = Config.model_validate({"extractor": extractor, **sections})
        self.engine = ScriptedEngine(reply, max_context=context)
        self.bank = open_bank(path, **self.config.bank.model_dump(include={"junk_filter"}))
        codec, prompts = self.engine.codec, PromptSet.load("compact")
        reader = Extractor(self.engine, codec, prompts, self.config.extractor, run_seed=0, instructions=lambda task: "")
        self.manager = ExperienceManager(self.bank, reader, self.config, judge=judge)

    def read(self, *episodes: Trajectory) -> None:
        async def run() -> None:
            await self.manager.submit(episodes)
            await self.manager.drain()

        asyncio.run(run())

    def texts(self) -> list[str]:
        return [entry.text for entry in self.bank.entries()]


def room_note(prompt: str) -> str:
    """Adds a note that names the outcome and the number of turns."""
    outcome = prompt.splitlines()[-1]
    return f'[{{"op":"add","text":"{outcome} after {prompt.count("north")}"}}]'


def question(number: int = 1, of: int = 0) -> Question:
    return Question(f"s1-g{of}-m0/ask{number}", task(of), "which way?", "at 3 4", seed=number)


def test_episodes_become_entries_filed_under_their_task(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)
    world.read(episode(0, 0, step=3, success=True), episode(1, 0, step=3, turns=4))
    entries = world.bank.entries()
    assert [(e.text, e.key_text, e.scope, e.created_step, e.generation_id) for e in entries] == [
        ("success after 2", "Find the exit of room 0.", "rooms", 3, "d/s3-g0-m0"),
        ("failure after 4", "Find the exit of room 1.", "rooms", 3, "d/s3-g1-m0"),
    ]
    metrics = world.manager.take_metrics()
    assert metrics["distilled"] == metrics["add"] == metrics["added"] == 2
    assert metrics["entry_chars"] == 15
    assert metrics["written_tokens"] > 0
    assert metrics["bank_size"] == 2
    assert metrics["queue"] == 0
    assert "distilled" not in world.manager.take_metrics(), "counts are since the last call"


def test_updates_replace_what_was_shown(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"update","id":1,"text":"better"}]')
    world.bank.add("old note", key_text=task(0).description, scope="rooms", step=0)
    world.read(episode(0, 0, entries=(1,)))
    [entry] = world.bank.entries()
    assert (entry.text, entry.parents) == ("better", (1,))
    assert world.manager.take_metrics()["update"] == 1


def test_a_shown_entry_that_retired_meanwhile_is_still_quoted(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)
    world.bank.add("old note", key_text=task(0).description, scope="rooms", step=0)
    world.bank.drop([1], step=0)
    world.read(episode(0, 0, entries=(1,)))
    assert "shown 1: old note" in world.engine.prompts()[0]


def test_garbage_changes_nothing_is_counted_and_credited_as_configured(tmp_path: Path) -> None:
    replies = {"garbage": "no idea", "return": '[{"op":"return"}]'}
    world = World(tmp_path / "bank.sqlite", lambda prompt: replies["garbage" if "room 0" in prompt else "return"])
    world.read(episode(0, 0), episode(1, 0))
    assert world.texts() == []
    metrics = world.manager.take_metrics()
    assert metrics["unparsable"] == metrics["return"] == metrics["credits"] == metrics["negative_credits"] == 1
    assert world.manager.buffer.state_dict()["waiting"] == [["d/s0-g0-m0", 0, -1.0, 1]], "returned gives no credit by default"
    assert world.bank.generations(["d/s0-g0-m0", "d/s0-g1-m0"])[0].token_ids


def test_returned_earns_what_the_configuration_says(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"return"}]', credit={"returned": 0.25, "unparsable": None})
    world.read(episode(0, 0))
    assert world.manager.buffer.state_dict()["waiting"] == [["d/s0-g0-m0", 0, 0.25, 1]]


def test_an_answer_whose_every_text_is_junk_is_counted_and_credited(tmp_path: Path) -> None:
    replies = {
        "room 0": ["be careful", "explore more"],
        "room 1": ["be careful", "the exit is in the west"],
        "room 2": ["no"],
        "room 3": ["find the exit of room 3"],
    }

    def reply(prompt: str) -> str:
        texts = next(texts for room, texts in replies.items() if room in prompt)
        return json.dumps([{"op": "add", "text": text} for text in texts])

    world = World(tmp_path / "bank.sqlite", reply)
    world.read(*(episode(group, 0) for group in range(4)))
    assert world.texts() == ["the exit is in the west"]
    metrics = world.manager.take_metrics()
    assert {name: n for name, n in metrics.items() if name.startswith("refused")} == {
        "refused": 5, "refused_answers": 3, "refused_boilerplate": 3, "refused_short": 1, "refused_restates_task": 1
    }  # fmt: skip
    assert metrics["bank_refused_boilerplate"] == 3
    waiting_credits = world.manager.buffer.state_dict()["waiting"]
    assert waiting_credits == [[f"d/s0-g{group}-m0", 0, -1.0, 1] for group in (0, 2, 3)]


def test_refused_answers_earn_what_the_configuration_says(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"add","text":"be careful"}]', credit={"refused": None})
    world.read(episode(0, 0))
    assert world.manager.buffer.state_dict()["waiting"] == []
    assert world.manager.take_metrics()["refused_answers"] == 1


def test_junk_in_a_merge_costs_what_junk_in_an_addition_costs(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"merge","ids":[1,2],"text":"be careful"}]')
    for text in ("the exit is in the west", "the exit is not in the east"):
        world.bank.add(text, key_text="Find the exit of room 0.", scope="rooms", step=0)
    asyncio.run(world.manager.merge(1))
    assert world.manager.buffer.state_dict()["waiting"] == [["m/s1-0", 0, -1.0, 1]]
    assert world.manager.take_metrics()["merge_refused"] == 1


def test_an_extractor_that_writes_garbage_for_ever_stops_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: "]]]{{{" * 20)
    world.read(*(episode(group, member) for group in range(4) for member in range(8)))
    assert world.manager.take_metrics()["unparsable"] == 32
    assert world.manager.set_aside == []


def test_credit_reaches_every_recent_writer_of_a_text(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"add","text":"go west"}]')
    world.read(episode(0, 0), episode(0, 1))
    [entry] = world.bank.entries()
    guided = [episode(0, m, step=1, entries=(entry.id,), success=m < 3) for m in range(4)]
    asyncio.run(world.manager.record_rollouts([*guided, episode(0, 4, step=1)], 1))
    waiting_credits = world.manager.buffer.state_dict()["waiting"]
    assert waiting_credits == [["d/s0-g0-m0", 0, 0.5, 4], ["d/s0-g0-m1", 0, 0.5, 4]]
    stats = world.bank.entry(entry.id).stats
    assert (stats.shown, stats.successes, stats.failures) == (4, 3, 1)
    batch = world.manager.take_extractor_batch(0, update=0)
    assert batch is not None
    assert [item.generation.id for item in batch] == ["d/s0-g0-m0", "d/s0-g0-m1"]
    world.manager.mark_trained(["d/s0-g0-m0", "d/s0-g0-m1"], update=0)
    assert world.bank.entry(entry.id).stats.trained == 1
    assert world.manager.take_extractor_batch(0, update=1) is None


def test_of_many_writers_the_newest_are_credited(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"add","text":"go west"}]')
    world.read(*(episode(0, m) for m in range(10)))
    asyncio.run(world.manager.record_rollouts([episode(0, 0, step=1, entries=(1,), success=True)], 1))
    credited = [name for name, *_ in world.manager.buffer.state_dict()["waiting"]]
    assert credited == [f"d/s0-g0-m{m}" for m in range(2, 10)]


def test_the_gates_score_is_added_to_the_outcome(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)
    world.read(episode(0, 0))
    lost = episode(0, 0, step=1, entries=(1,))
    asyncio.run(world.manager.record_rollouts([lost], 1, gate_scores={lost.id: 1.0}))
    assert world.manager.buffer.state_dict()["waiting"] == [["d/s0-g0-m0", 0, 0.0, 1]]


def test_without_training_the_buffer_stays_empty(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: "garbage" if "room 1" in prompt else room_note(prompt))
    still = ExperienceManager(world.bank, world.manager._extractor, world.config, train_extractor=False)

    async def run() -> None:
        await still.submit([episode(0, 0), episode(1, 0)])
        await still.drain()
        await still.record_rollouts([episode(0, 0, step=1, entries=(1,), success=True)], 1)

    asyncio.run(run())
    assert len(still.buffer) == 0
    assert world.bank.entry(1).stats.successes == 1


def test_held_out_tasks_never_reach_the_bank(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)
    held_out = episode(0, 0, of=task(0, split="heldout"))
    with pytest.raises(AssertionError, match="held-out"):
        world.read(held_out)
    with pytest.raises(AssertionError, match="held-out"):
        asyncio.run(world.manager.record_rollouts([held_out], 0))


def test_best_and_worst_of_a_group_are_read_by_turns(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, distill={"per_group": 3})
    group = [episode(0, m, turns=2 + m, success=m in (2, 5)) for m in range(8)]
    world.read(*group, episode(1, 0))
    read = [request.id for call in world.engine.calls for request in call]
    assert read == ["d/s0-g0-m2", "d/s0-g0-m5", "d/s0-g0-m7", "d/s0-g1-m0"]


def test_retrieval_gives_different_sets_and_evaluation_moves_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, retrieval={"entries_per_group": 2, "recency_steps": 0})
    world.read(episode(0, 0, success=True), episode(0, 1, turns=3))
    tasks = [task(0), task(9, scope="elsewhere")]
    [best, nothing] = asyncio.run(world.manager.retrieve(tasks, [1, 2], 4, training=False))
    assert len(best) == 1
    assert nothing == []
    assert [e.stats.retrieved for e in world.bank.entries()] == [0, 0]
    [sets, _] = asyncio.run(world.manager.retrieve(tasks, [1, 2], 4, training=True))
    assert sorted(text for entries in sets for _, text in entries) == ["failure after 3", "success after 2"]
    assert world.manager.take_metrics()["lag_steps"] == 4, "from the episode to the first retrieval"
    asyncio.run(world.manager.retrieve(tasks, [1, 2], 6, training=True))
    assert "lag_steps" not in world.manager.take_metrics()


def test_questions_are_answered_from_the_bank_and_earn_credit(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: "go west" if "question:" in prompt else room_note(prompt))
    world.read(episode(0, 0, success=True))
    lost = Question("s1-g9-m0/ask1", task(9, scope="elsewhere"), "which way?", "at 3 4", seed=1)
    answers = asyncio.run(world.manager.ask([question(), lost], 1))
    assert answers == [Answer("go west", "s1-g0-m0/ask1"), None]
    assert "entry: success after 2" in world.engine.prompts()[-1]
    metrics = world.manager.take_metrics()
    assert (metrics["questions"], metrics["answers"]) == (2, 1)
    asked = episode(0, 0, step=1, entries=(1,), answers=("s1-g0-m0/ask1",), success=True)
    asyncio.run(world.manager.record_rollouts([asked], 1))
    assert ["s1-g0-m0/ask1", 0, 1.0, 1] in world.manager.buffer.state_dict()["waiting"]


def test_an_answer_that_does_not_come_in_time_is_none(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, tool={"timeout": 0.05})
    world.read(episode(0, 0))

    async def run() -> list[Answer | None]:
        world.engine.gate = asyncio.Event()
        return await world.manager.ask([question()], 1)

    assert asyncio.run(run()) == [None]
    assert world.manager.take_metrics()["answers_late"] == 1


def test_an_extractor_that_fails_costs_the_answers_only(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)
    world.read(episode(0, 0))
    world.engine.reply = lambda prompt: 1 / 0
    assert asyncio.run(world.manager.ask([question()], 1)) == [None]
    assert "ZeroDivisionError" in world.manager.take_events()[0]


def test_a_bad_episode_is_set_aside_with_its_cause_and_takes_no_other_with_it(tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        if "room 1" in prompt:
            raise RuntimeError("out of memory")
        return room_note(prompt)

    world = World(tmp_path / "bank.sqlite", reply, distill={"max_attempts": 2})
    world.read(episode(0, 0), episode(1, 0), episode(2, 0))
    assert [e.key_text for e in world.bank.entries()] == ["Find the exit of room 0.", "Find the exit of room 2."]
    [poison] = world.manager.set_aside
    assert (poison.episode_id, poison.cause) == ("s0-g1-m0", "RuntimeError: out of memory")
    assert [len(call) for call in world.engine.calls] == [3, 1, 1, 1, 1]
    metrics = world.manager.take_metrics()
    assert (metrics["retries"], metrics["set_aside"], metrics["distilled"]) == (3, 1, 2)
    assert "out of memory" in world.manager.take_events()[0]
    restored = World(tmp_path / "other.sqlite", reply)
    restored.manager.load_state_dict(json.loads(json.dumps(world.manager.state_dict())))
    assert restored.manager.set_aside == [poison]


def test_a_failure_that_passes_costs_a_retry_only(tmp_path: Path) -> None:
    calls: list[str] = []

    def reply(prompt: str) -> str:
        calls.append(prompt)
        if len(calls) == 1:
            raise RuntimeError("a hiccup")
        return room_note(prompt)

    world = World(tmp_path / "bank.sqlite", reply)
    world.read(episode(0, 0), episode(1, 0))
    assert len(world.texts()) == 2
    assert world.manager.set_aside == []


def test_what_does_not_fit_the_context_is_set_aside_at_once(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, context=400)
    world.bank.add(" ".join(f"word{i}" for i in range(200)), key_text="a room", scope="rooms", step=0)
    world.read(episode(0, 0, entries=(1,)), episode(1, 0))
    assert "more context" in world.manager.set_aside[0].cause
    assert world.texts()[1:] == ["failure after 2"]


def test_an_extractor_that_fails_for_ever_stops_the_run(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: 1 / 0, distill={"max_attempts": 1})
    with pytest.raises(InfrastructureError, match=r"16 episodes in a row.*ZeroDivisionError"):
        world.read(*(episode(0, m) for m in range(40)))
    assert len(world.manager._distilling.queue) == 24, "the rest is not thrown away"


def test_a_full_queue_is_read_where_there_is_no_worker(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, distill={"queue_size": 4, "batch_size": 3})
    world.read(*(episode(g, 0) for g in range(10)))
    assert len(world.texts()) == 10
    assert max(len(call) for call in world.engine.calls) == 3


def test_the_queue_survives_a_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)
    episodes = [episode(g, 0, step=2, success=g == 1) for g in range(3)]
    asyncio.run(world.manager.submit(episodes))
    state = json.loads(json.dumps(world.manager.state_dict()))
    restored = World(tmp_path / "other.sqlite", room_note)
    restored.manager.load_state_dict(state)
    for one in (world, restored):
        asyncio.run(one.manager.drain())
    assert restored.bank.entries() == world.bank.entries()
    assert len(restored.texts()) == 3
    assert json.loads(json.dumps(restored.manager.state_dict())) == json.loads(json.dumps(world.manager.state_dict()))


def test_batches_and_their_size_do_not_change_the_bank(tmp_path: Path) -> None:
    episodes = [episode(g, m, turns=1 + (g * m) % 5, success=m == 1) for g in range(3) for m in range(4)]
    one = World(tmp_path / "one.sqlite", room_note, distill={"batch_size": 1})
    many = World(tmp_path / "many.sqlite", room_note, distill={"batch_size": 64})
    one.read(*episodes)
    many.read(*episodes)
    assert one.bank.entries() == many.bank.entries()
    seeds = [{request.id: request.seed for call in world.engine.calls for request in call} for world in (one, many)]
    assert seeds[0] == seeds[1]


def test_the_share_of_useful_entries_is_measured_and_trains_nothing(tmp_path: Path) -> None:
    def judge(_: Any, text: str) -> bool | None:
        return None if "after 9" in text else text.startswith("success")

    world = World(tmp_path / "bank.sqlite", room_note, judge=judge)
    world.read(episode(0, 0, success=True), episode(0, 1), episode(0, 2, turns=9), episode(0, 3, turns=5))
    metrics = world.manager.take_metrics()
    assert metrics["useful_share_entries"] == pytest.approx(1 / 3)
    assert metrics["useful_share_won_entries"] == 1.0
    assert (metrics["judged_entries"], metrics["useful_entries"]) == (3, 1)
    assert len(world.manager.buffer) == 0


# --- the background worker ---------------------------------------------------------------------------------------------------------


def test_the_worker_distils_while_the_actor_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, distill={"batch_size": 2})

    async def run() -> None:
        world.engine.gate = asyncio.Event()
        world.manager.start()
        await world.manager.submit([episode(g, 0) for g in range(5)])
        await asyncio.sleep(0.01)
        assert world.texts() == [], "the extractor is still at it"
        world.engine.gate.set()
        await world.manager.drain()
        assert len(world.texts()) == 5
        await world.manager.stop(1.0)

    asyncio.run(run())
    assert [len(call) for call in world.engine.calls] == [2, 2, 1]


def test_submit_waits_for_room_and_drops_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, distill={"batch_size": 2, "queue_size": 3})

    async def run() -> None:
        world.engine.gate = asyncio.Event()
        world.manager.start()
        submitting = asyncio.create_task(world.manager.submit([episode(g, 0) for g in range(8)]))
        await asyncio.sleep(0.02)
        assert not submitting.done()
        assert world.manager.take_metrics()["queue"] == 3
        world.engine.gate.set()
        await submitting
        await world.manager.drain()
        await world.manager.stop(1.0)

    asyncio.run(run())
    assert len(world.texts()) == 8


def test_a_submitter_that_is_cancelled_leaves_the_queue_usable(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, distill={"batch_size": 1, "queue_size": 1})

    async def run() -> None:
        world.engine.gate = asyncio.Event()
        world.manager.start()
        submitting = asyncio.create_task(world.manager.submit([episode(g, 0) for g in range(3)]))
        await asyncio.sleep(0.01)
        submitting.cancel()
        await asyncio.gather(submitting, return_exceptions=True)
        world.engine.gate.set()
        await world.manager.drain()
        await world.manager.submit([episode(5, 0)])
        await world.manager.drain()
        await world.manager.stop(1.0)

    asyncio.run(run())
    assert [e.key_text for e in world.bank.entries()] == ["Find the exit of room 0.", "Find the exit of room 5."]


def test_what_the_worker_is_reading_is_in_the_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)

    async def run() -> dict[str, Any]:
        world.engine.gate = asyncio.Event()
        world.manager.start()
        await world.manager.submit([episode(0, 0)])
        await asyncio.sleep(0.01)
        assert world.engine.calls, "it is being read"
        state = world.manager.state_dict()
        world.manager._worker.cancel()
        return state

    restored = World(tmp_path / "other.sqlite", room_note)
    restored.manager.load_state_dict(json.loads(json.dumps(asyncio.run(run()))))
    assert world.texts() == []
    asyncio.run(restored.manager.drain())
    assert restored.texts() == ["failure after 2"]


def test_stop_distils_what_is_left_within_its_time(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note, distill={"batch_size": 1})

    async def run() -> None:
        world.manager.start()
        await world.manager.submit([episode(g, 0) for g in range(3)])
        await world.manager.stop(1.0)
        assert len(world.texts()) == 3
        world.engine.gate = asyncio.Event()
        world.manager.start()
        await world.manager.submit([episode(g, 1) for g in range(2)])
        await world.manager.stop(0.05)

    asyncio.run(run())
    assert world.manager.take_metrics()["queue"] == 2
    assert "2 episodes still waited" in world.manager.take_events()[0]


def test_waiting_ends_with_the_worker_that_fails(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", room_note)

    async def run() -> None:
        world.engine.gate = asyncio.Event()
        worker = world.manager.start()
        await world.manager.submit([episode(0, 0)])
        await asyncio.sleep(0.01)

        def full_disk(_: Any) -> None:
            raise InfrastructureError("the disk is full")

        world.bank.record_generations = full_disk
        world.engine.gate.set()
        with pytest.raises(InfrastructureError, match="disk is full"):
            await world.manager.drain()
        assert worker.done()
        with pytest.raises(InfrastructureError, match="disk is full"):
            await world.manager.stop(1.0)

    asyncio.run(run())
    assert len(world.manager._distilling.queue) == 1


def test_a_hung_extractor_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(distiller, "EXTRACTOR_SECONDS", 0.06)
    monkeypatch.setattr(waiting, "WARN_SECONDS", 0.02)
    world = World(tmp_path / "bank.sqlite", room_note)

    async def run() -> None:
        world.engine.gate = asyncio.Event()
        await world.manager.submit([episode(0, 0)])
        await world.manager.drain()

    with pytest.raises(InfrastructureError, match=r"distillation waited 0 s for the extractor to read 1 episodes \(1 are queued\)"):
        asyncio.run(run())
    assert "distillation has been waiting for the extractor" in caplog.text


def test_a_queue_that_stands_still_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "QUEUE_SECONDS", 0.05)
    world = World(tmp_path / "bank.sqlite", room_note, distill={"queue_size": 1})

    async def run() -> None:
        world.engine.gate = asyncio.Event()
        world.manager.start()
        await world.manager.submit([episode(0, 0), episode(1, 0)])

    with pytest.raises(
        InfrastructureError, match=r"the actor's loop waited .* for room for episode s0-g1-m0; .* 1 episodes queued"
    ):
        asyncio.run(run())


def test_the_worker_merges_in_the_background(tmp_path: Path) -> None:
    world = World(
        tmp_path / "bank.sqlite", lambda prompt: '[{"op":"drop","id":1}]' if prompt.endswith("merge") else room_note(prompt)
    )
    for text in ("first note", "second note"):
        world.bank.add(text, key_text=task(0).description, scope="rooms", step=0)

    async def run() -> None:
        world.engine.gate = asyncio.Event()
        world.manager.start()
        await world.manager.submit([episode(1, 0)])
        await world.manager.merge(0)
        await world.manager.merge(1)
        assert len(world.bank) == 2, "the call has left word and returned"
        world.engine.gate.set()
        await world.manager.submit([episode(2, 0)])
        await world.manager.drain()
        await world.manager.stop(1.0)

    asyncio.run(run())
    assert world.texts()[:2] == ["second note", "failure after 2"]
    metrics = world.manager.take_metrics()
    assert (metrics["merges"], metrics["merges_skipped"], metrics["merge_drop"]) == (1, 1, 1)


def test_a_merged_entry_earns_for_the_generation_that_merged_it(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"merge","ids":[1,2],"text":"both notes"}]')
    parents = []
    for number, text in enumerate(("first note", "second note")):
        added = world.bank.add(text, key_text=task(0).description, scope="rooms", step=0, generation_id=f"d/{number}")
        assert added.entry_id is not None
        parents.append(added.entry_id)
        world.bank.record_outcomes(0, [(added.entry_id, number == 0, "before")])
    asyncio.run(world.manager.merge(1))
    [merged] = world.bank.entries()
    assert (merged.parents, merged.stats.shown, merged.stats.successes) == (tuple(parents), 2, 1)
    assert world.bank.writers(merged.id) == ["m/s1-0"]
    asyncio.run(world.manager.record_rollouts([episode(0, 0, step=2, entries=(merged.id,), success=True)], 2))
    assert world.manager.buffer.state_dict()["waiting"] == [["m/s1-0", 0, 1.0, 1]], "and for nobody else"
    [taken] = world.bank.generations(["m/s1-0"])
    assert taken.token_ids


def test_a_merge_if_redundant_looks_first(tmp_path: Path) -> None:
    world = World(
        tmp_path / "bank.sqlite",
        lambda prompt: '[{"op":"drop","id":1}]',
        merge={"mode": "clusters", "redundancy": 0.5, "similarity": 0.7},
    )

    def note(text: str) -> None:
        world.bank.add(text, key_text=task(0).description, scope="rooms", step=0)

    for text in ("the exit is in the north-west", "mind the grid bugs", "kick the door until it opens"):
        note(text)
    asyncio.run(world.manager.merge(1, if_redundant=True))
    metrics = world.manager.take_metrics()
    assert (metrics["near_duplicate_share"], "merges" in metrics, world.engine.calls) == (0.0, False, [])
    note("the exit is in the north-west corner")
    asyncio.run(world.manager.merge(2, if_redundant=True))
    metrics = world.manager.take_metrics()
    assert (metrics["merges"], metrics["merges_for_redundancy"], metrics["merge_drop"]) == (1, 1, 1)
    assert metrics["near_duplicate_share"] == 0.5
    assert "the exit is in the north-west" not in world.texts()


def test_word_of_a_merge_is_not_lost_while_the_worker_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: '[{"op":"drop","id":1}]', merge={"redundancy": 1.0})
    for text in ("first note", "second one"):
        world.bank.add(text, key_text=task(0).description, scope="rooms", step=0)

    async def run() -> None:
        world.manager.start()
        looking, go_on = asyncio.Event(), asyncio.Event()

        async def look(merger: Merger) -> bool:
            looking.set()
            await go_on.wait()
            return False

        monkeypatch.setattr(Merger, "redundant", look)
        await world.manager.merge(0, if_redundant=True)
        await asyncio.wait_for(looking.wait(), 5)
        await world.manager.merge(1)
        await world.manager.merge(2, if_redundant=True)
        state = world.manager.state_dict()["merge_due"]
        assert json.loads(json.dumps(state)) == [2, False]
        go_on.set()
        async with asyncio.timeout(5):
            while len(world.bank) == 2:  # noqa: ASYNC110 (the bank has no event for it)
                await asyncio.sleep(0.01)
        await world.manager.stop(1.0)

    asyncio.run(run())
    assert world.manager.take_metrics()["merges"] == 1
    world.manager.load_state_dict({**world.manager.state_dict(), "merge_due": [2, False]})
    assert world.manager.state_dict()["merge_due"] == [2, False]


def test_a_merge_that_fails_changes_nothing_and_is_told(tmp_path: Path) -> None:
    world = World(tmp_path / "bank.sqlite", lambda prompt: 1 / 0)
    for text in ("first note", "second note"):
        world.bank.add(text, key_text=task(0).description, scope="rooms", step=0)
    asyncio.run(world.manager.merge(3))
    assert len(world.bank) == 2
    assert world.manager.take_metrics()["merge_failures"] == 1
    assert "the merge of step 3" in world.manager.take_events()[0]


def test_without_an_extractor_the_bank_is_still_served(tmp_path: Path) -> None:
    bank: Bank = open_bank(tmp_path / "bank.sqlite")
    bank.add("first note", key_text=task(0).description, scope="rooms", step=0)
    offline = ExperienceManager(bank, None, Config(), train_extractor=False)
    [[[shown]]] = asyncio.run(offline.retrieve([task(0)], [1], 0, training=True))
    assert shown == (1, "first note")
    asyncio.run(offline.record_rollouts([episode(0, 0, entries=(1,), success=True)], 0))
    assert offline.take_metrics()["queue"] == 0
    offline.load_state_dict(json.loads(json.dumps(offline.state_dict())))
