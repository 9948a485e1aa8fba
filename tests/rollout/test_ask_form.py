"""search_and_ask as a tool of the template: offered, called, answered, and refused in the template's own way."""

import json

import pytest
from helpers.chat_tokenizers import make_tokenizer, with_template
from helpers.rollouts import HINT, NOTHING, answer, plan, play
from helpers.tool_templates import QWEN_TOOLS, TOOL_TEMPLATES

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.objectives.distillation import distillation_samples
from complementary_rl.rollout.tool import SEARCH_AND_ASK, AskForm


def call(question: str = "where?") -> str:
    return "<tool_call>\n" + json.dumps({"name": "search_and_ask", "arguments": {"question": question}}) + "\n</tool_call>"


def test_a_template_with_tools_offers_the_tool_and_answers_as_the_tool() -> None:
    played = play([plan(shown=HINT, tool=True)], {"e": [call()]}, tokenizer=with_template("qwen3", QWEN_TOOLS), ask=answer)
    episode, decode = played.episodes["e"], played.actor.tokenizer.decode
    opened = decode(episode.turns[0].new_ids)
    assert json.dumps(SEARCH_AND_ASK) in opened
    assert "ask: allowed" not in opened, "the tag is not offered beside it"
    assert decode(episode.turns[1].new_ids) == (
        "\n<|im_start|>user\n<tool_response>\nanswer: on where?\nlevel 0, start 0\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    assert [turn.kind for turn in episode.turns] == ["ask", "act", "act", "act"]
    assert (episode.answer_ids, episode.n_actions, episode.malformed_calls) == (("e/ask1",), 3, 0)
    assert decode(episode.turns[2].new_ids).startswith("\n<|im_start|>user\nheard 1"), "the environment is no tool"


def test_rollouts_without_the_tool_are_not_offered_it() -> None:
    plans = [plan("free", shown=NOTHING), plan("guided", shown=HINT)]
    played = play(plans, {"free": [call()], "guided": [call()]}, tokenizer=with_template("qwen3", QWEN_TOOLS), ask=answer)
    assert played.asked == []
    for episode in played.episodes.values():
        assert "search_and_ask" not in played.actor.tokenizer.decode(episode.turns[0].new_ids)


def test_a_malformed_call_is_counted_told_and_costs_a_question() -> None:
    script = [call()[:-20], call(), call("and now?"), "go"]
    played = play([plan(shown=HINT, tool=True)], {"e": script}, tokenizer=with_template("qwen3", QWEN_TOOLS), ask=answer, budget=2)
    episode = played.episodes["e"]
    assert [turn.kind for turn in episode.turns] == ["ask", "ask", "act", "act", "act"], "the third is beyond the budget"
    assert (episode.malformed_calls, episode.answer_ids) == (1, ("e/ask2",))
    told = played.actor.tokenizer.decode(episode.turns[1].new_ids)
    assert "<tool_response>\nanswer: not asked: exactly one call" in told
    assert [question.question for batch in played.asked for question in batch] == ["where?"]


def test_self_distillation_takes_tool_schema_call_and_answer_away() -> None:
    tokenizer = with_template("qwen3", QWEN_TOOLS)
    played = play([plan(shown=HINT, tool=True)], {"e": [call()]}, tokenizer=tokenizer, ask=answer)
    [sample] = distillation_samples([played.episodes["e"]], of=1, token_mean=False)
    text = tokenizer.decode(sample.token_ids)
    assert not [word for word in ("tool", "hint", "search_and_ask", "answer") if word in text]
    assert text.count("level 0, start 0") == 1


def test_a_tools_answer_keeps_the_thinking_that_called_it() -> None:
    script = [f"<think>\nhm\n</think>\n\n{call()}", "<think>\nso\n</think>\n\ngo", "go"]
    options = {"tokenizer": with_template("qwen3", QWEN_TOOLS), "ask": answer, "earlier_thinking": "drop"}
    played = play([plan(shown=HINT, tool=True)], {"e": script}, **options)
    texts = [played.actor.tokenizer.decode(request.prompt_ids) for request in played.actor.requests]
    assert [text.count("</think>") for text in texts] == [0, 1, 0, 0]
    assert [turn.drops_thinking for turn in played.episodes["e"].turns] == [False, False, True, True]


def test_without_tool_calls_in_the_template_the_tag_is_the_form() -> None:
    assert AskForm.of(ChatCodec(make_tokenizer("chatml"))) == AskForm()
    assert (AskForm().role, AskForm().tool) == ("user", None)
    assert AskForm().question(call()) is None


@pytest.mark.parametrize("format", TOOL_TEMPLATES)
def test_the_form_is_that_of_the_template(format: str) -> None:
    assert AskForm.of(ChatCodec(with_template(*TOOL_TEMPLATES[format]))).format == format
