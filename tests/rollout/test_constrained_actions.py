"""Actors held to the actions that their environment lists."""

from typing import Any

import pytest
from helpers.chat_tokenizers import QWEN3, with_template
from helpers.rollouts import plan, play
from helpers.suites import CountEnv

from complementary_rl.config_file import load_config
from complementary_rl.engines.protocol import Choice
from complementary_rl.errors import UserError


class ListingEnv(CountEnv):
    """Offers "go" and "stay", and after the first action "go" alone; what it does not repeat still holds."""

    def reset(self, task: Any, seed: int) -> tuple[str, dict[str, Any]]:
        observation, info = super().reset(task, seed)
        return observation, info | {"actions": ["go", "stay"]}

    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, info | ({"actions": ("go",)} if self.count == 1 else {})


def test_every_turn_is_a_choice_of_what_the_environment_offers_then() -> None:
    played = play([plan("a"), plan("b")], env=ListingEnv, constrained=True)
    choices = {request.id: request.choice for request in played.actor.requests}
    assert choices["a/0"] == choices["b/0"] == Choice(("go", "stay"))
    assert choices["a/1"] == choices["a/2"] == Choice(("go",))
    assert played.episodes["a"].success
    free = play([plan("a")], env=ListingEnv)
    assert {request.choice for request in free.actor.requests} == {None}


@pytest.mark.parametrize(
    ("prompt", "opened", "closed"), [("", True, True), ("<think>\\n", False, True), ("<think>\\n\\n</think>\\n\\n", False, False)]
)
def test_a_model_that_thinks_may_do_so_first(prompt: str, opened: bool, closed: bool) -> None:
    tokenizer = with_template(
        "qwen3", QWEN3.replace(r"'<|im_start|>assistant\n' }}{% endif", rf"'<|im_start|>assistant\n{prompt}' }}}}{{% endif")
    )
    opening, closing = tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    played = play([plan("a")], env=ListingEnv, tokenizer=tokenizer, constrained=True)
    expected = Choice(("go", "stay"), opening if opened else None, closing if closed else None)
    assert played.actor.requests[0].choice == expected


def test_an_environment_that_lists_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r'count does not list the actions of task .count/0.*info\["actions"\]'):
        play([plan("a")], constrained=True)


def test_there_is_no_room_for_questions() -> None:
    with pytest.raises(UserError, match=r"actor\.constrained leaves no room for a question"):
        load_config(None, ["actor.constrained=true", "tool.enabled=true"])
