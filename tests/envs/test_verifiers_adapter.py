"""Verifiers' environments as suites and suites as verifiers' environments, with real ones of both."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers.v1", reason="needs the extra 'verifiers'")

from complementary_rl.envs.checker import check_env
from complementary_rl.envs.protocol import Suite
from complementary_rl.envs.registry import make_suite
from complementary_rl.envs.sokoban.suite import Sokoban
from complementary_rl.errors import UserError
from complementary_rl.seeds import derive_seed

# Written against verifiers as its documentation has it: a question, an answer, a reward; and one that talks back.
SUMS = """
import asyncio
import verifiers.v1 as vf

class SumData(vf.TaskData):
    answer: str

class Sum(vf.Task[SumData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == self.data.answer)

class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        for n in range(12):
            data = SumData(name=f"sum {n}", prompt=f"What is {n} + 2?", system_prompt="Answer with a number.", answer=str(n + 2))
            yield Sum(data, self.config.task)

__all__ = ["Sums"]
"""
TALK = (
    SUMS.replace('__all__ = ["Sums"]', "")
    + """
class TalkConfig(vf.EnvConfig):
    guesser: vf.AgentConfig = vf.AgentConfig()

class Talk(vf.Env[TalkConfig]):
    async def run(self, task, agents):
        async with agents.guesser.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated and segment.last_reply != task.data.answer:
                if segment.last_reply == "fail":
                    raise RuntimeError("no such luck")
                if segment.last_reply == "sleep":
                    await asyncio.sleep(60)
                segment = await interaction.turn(f"Not {segment.last_reply}.")

__all__ = ["Sums", "Talk"]
"""
)
PLUGINS = {
    "sums_for_tests": SUMS,
    "talk_for_tests": TALK,
    "two_for_tests": TALK.replace("    guesser:", "    other: vf.AgentConfig = vf.AgentConfig()\n    guesser:"),
    "stop_for_tests": SUMS.replace(
        "    @vf.reward",
        "    @vf.stop\n    async def enough(self, trace: vf.Trace) -> bool:\n        return False\n\n    @vf.reward",
    ),
}


@pytest.fixture(autouse=True)
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in PLUGINS.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)


def made(id: str, **options: Any) -> Suite:
    return make_suite("verifiers", id=id, **{"train_tasks": 6, "heldout_tasks": 2} | options)


def test_a_question_is_an_episode_of_one_turn() -> None:
    suite = made("sums_for_tests")
    task = suite.tasks("train")[3]
    assert (task.description, suite.instructions_for(task)) == ("sum 3", "Answer with a number.")
    assert [task.seed for task in suite.tasks("heldout")] == [6, 7]
    env = suite.make_env()
    assert env.reset(task, 0) == ("What is 3 + 2?", {})
    assert env.step("5")[1:] == (1.0, True, False, {"success": True})
    env.reset(task, 0)
    assert env.step("6")[1:] == (0.0, True, False, {"success": False})
    env.close()


@pytest.mark.parametrize("id", ["sums_for_tests", "talk_for_tests"])
def test_suites_from_verifiers_keep_the_protocol(id: str) -> None:
    report = check_env(made(id, max_turns=3))
    assert report.ok, str(report)


def test_only_what_is_new_is_told() -> None:
    suite = made("talk_for_tests")
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    assert env.step("7") == ("Not 7.", 0.0, False, False, {})
    assert env.step("8")[0] == "Not 8."
    assert env.step("2")[1:] == (1.0, True, False, {"success": True})
    env.close()


def test_an_episode_that_runs_out_of_turns_is_scored_and_no_success() -> None:
    suite = made("talk_for_tests", max_turns=2, solved_at=0.0)
    env = suite.make_env()
    env.reset(suite.tasks("train")[0], 0)
    assert [env.step("7")[1:] for _ in range(2)][-1] == (0.0, False, True, {"success": False})
    env.close()


def test_an_error_or_a_silence_of_the_environment_is_a_fault_of_the_episode_alone() -> None:
    suite = made("talk_for_tests", timeout=6.0)
    env = suite.make_env()
    task = suite.tasks("train")[0]
    env.reset(task, 0)
    with pytest.raises(RuntimeError, match="no such luck"):
        env.step("fail")
    env.reset(task, 0)
    start = time.monotonic()
    with pytest.raises(TimeoutError, match=r"did not go on within 6 s"):
        env.step("sleep")
    assert time.monotonic() - start < 30
    assert env.reset(task, 0)[0] == "What is 0 + 2?"
    env.close()


@pytest.mark.parametrize(
    ("id", "options", "words"),
    [
        ("no_such_taskset", {}, "verifiers cannot play 'no_such_taskset' here: .*not found"),
        ("sums_for_tests", {"taskset": {"size": 3}}, "size"),
        ("sums_for_tests", {"train_tasks": 20}, "has 12 tasks; lower train_tasks"),
        ("two_for_tests", {}, "the agents other, guesser; an actor can be one only"),
        ("stop_for_tests", {}, "hooks between agent and model"),
    ],
)
def test_what_cannot_be_played_is_told(id: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        made(id, **options)


def test_verifiers_own_textarena_taskset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("textarena", reason="needs the extra 'textarena'")
    import nltk

    # The word list that the game would load.
    (tmp_path / "corpora/words").mkdir(parents=True)
    for name in ("en", "en-basic"):
        (tmp_path / "corpora/words" / name).write_text("apple\n")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    monkeypatch.setattr(nltk, "download", lambda *args, **options: True)
    suite = made("textarena", taskset={"game": "Hangman-v0"})
    env = suite.make_env()
    opening, _ = env.reset(suite.tasks("train")[0], 0)
    assert "Hangman" in opening
    for letter in "aple":
        told, reward, over, _, info = env.step(f"[{letter}]")
    assert (reward, over, info["success"]) == (1.0, True, True), told
    env.close()


def sokoban(**options: Any) -> Suite:
    taskset = {"suite": "sokoban", "options": {"levels": 3, "heldout_levels": 2}} | options
    return made("complementary-rl-verifiers", taskset=taskset, train_tasks=2, heldout_tasks=1)


def test_there_and_back_again_a_suite_is_solved_through_verifiers_by_its_expert() -> None:
    suite, ours = sokoban(), Sokoban(levels=3, heldout_levels=2)
    theirs, task = suite.tasks("train")[1], ours.tasks("train")[1]
    assert (theirs.description, suite.instructions_for(theirs)) == (task.description, ours.instructions)
    expert = ours.expert(task, derive_seed("verifiers", 0, task.id))
    env = suite.make_env()
    told, _ = env.reset(theirs, 0)
    observation, over = told.removeprefix(f"{task.description}\n\n"), False
    while not over:
        action = expert(observation)
        assert action is not None
        observation, reward, over, _, info = env.step(action)
    assert (reward, info["success"]) == (1.0, True)
    env.close()
    report = check_env(suite, episodes=2)
    assert report.ok, str(report)


def test_the_other_way_tasks_have_names_and_splits() -> None:
    import verifiers.v1 as vf

    config = vf.resolve_env_config(
        {"taskset": {"id": "complementary-rl-verifiers", "suite": "sokoban", "split": "heldout", "options": {"heldout_levels": 2}}}
    )
    tasks = list(vf.load_environment(config).taskset)
    assert [task.key for task in tasks] == ["sokoban/heldout-0", "sokoban/heldout-1"]
    with pytest.raises(UserError, match="did you mean 'sokoban'"):
        sokoban(suite="sokobann")


def test_the_other_way_a_model_plays_through_verifiers_own_loop() -> None:
    """Verifiers runs the episode and its null harness asks an endpoint, here a stand-in that gives the expert's actions."""
    import shutil

    if shutil.which("uv") is None:
        pytest.skip("verifiers' own programs need uv")
    import verifiers.v1 as vf
    from aiohttp import web

    ours = Sokoban(levels=2)
    task = ours.tasks("train")[0]
    expert = ours.expert(task, derive_seed("verifiers", 0, task.id))

    async def complete(request: web.Request) -> web.Response:
        asked = (await request.json())["messages"][-1]["content"].removeprefix(f"{task.description}\n\n")
        message = {"role": "assistant", "content": expert(asked)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({"id": "x", "object": "chat.completion", "created": 0, "model": "expert", "choices": [choice]})

    async def main() -> vf.Episode:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        env = vf.load_environment(
            vf.resolve_env_config({"taskset": {"id": "complementary-rl-verifiers", "suite": "sokoban", "options": {"levels": 2}}})
        )
        client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="NO_KEY_NEEDED")
        async with env.serving():
            episode = await env.run_episode(next(iter(env.taskset)), vf.ModelContext(model="expert", client=client))
        await runner.cleanup()
        return episode

    episode = asyncio.run(asyncio.wait_for(main(), 110))
    assert episode.errors == []
    (trace,) = episode.traces
    assert (trace.errors, trace.reward, trace.metrics["success"]) == ([], 1.0, 1.0)
