"""Can this model be used, and what would it cost? Everything is tried in the order in which a run would meet it.

tokenizer ─► dialogue ─► memory ─► engine ─► sample, score the same tokens, one update
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import LoraConfig, ModelConfig
from complementary_rl.engines.factory import make_device, make_local_engine
from complementary_rl.engines.local.loading import GIB, load_tokenizer, model_need
from complementary_rl.engines.memory import free_memory
from complementary_rl.engines.protocol import Engine, LossTerm, OptimParams, SampleRequest, SamplingParams, TrainingSample
from complementary_rl.errors import UserError
from complementary_rl.models.names import resolve
from complementary_rl.objectives.distillation import NextTokenLoss
from complementary_rl.objectives.samples import generation_sample
from complementary_rl.prompts import PromptSet
from complementary_rl.types import Message, TokenIds

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Verdict = Literal["ok", "warning", "broken"]

SEQUENCES, NEW_TOKENS = 4, 24
AGREEMENT = {"float32": 1e-3, "bfloat16": 0.3, "float16": 0.05}
"""Largest |log-prob of sampler − of trainer| of one token that rounding explains, by `dtype`."""
_REPLIES = ("<ask>Where is the exit?</ask>", "go north")


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    verdict: Verdict
    text: str


@dataclass(slots=True)
class ModelCheck:
    """All findings, in order; what comes after a broken check that it needs is not there."""

    path: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def usable(self) -> bool:
        """Whether a run could train this model with these settings."""
        return all(finding.verdict != "broken" for finding in self.findings)

    def add(self, check: str, verdict: Verdict, text: str) -> None:
        self.findings.append(Finding(check, verdict, text))

    def attempt(self, check: str, action: Callable[[], None]) -> bool:
        """Run `action`; a UserError is what breaks."""
        try:
            action()
        except UserError as error:
            self.add(check, "broken", str(error))
        return self.usable


def check_model(settings: ModelConfig, prompts: str = "instruct") -> ModelCheck:
    """Check the model of `settings` with the actor's prompts of the set `prompts`."""
    check = ModelCheck(settings.path)
    if not check.attempt("prompts", lambda: _check_dialogue(check, settings, prompts)):
        return check
    if check.attempt("memory", lambda: _check_memory(check, settings)):
        check.attempt("engine", lambda: _check_engine(check, settings, prompts))
    return check


def _check_dialogue(check: ModelCheck, settings: ModelConfig, prompts: str) -> None:
    tokenizer = load_tokenizer(resolve(settings.path))
    codec = ChatCodec(tokenizer)
    check.add(
        "tokenizer", "ok", f"{len(tokenizer):,} tokens; a turn ends with {tokenizer.convert_ids_to_tokens(sorted(codec.stop_ids))}"
    )
    messages = _dialogue(prompts)
    ids = _as_played(codec, tokenizer, messages)
    expected = tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in messages], add_generation_prompt=True, return_dict=False
    )
    if list(ids) == list(expected):
        check.add(
            "dialogue", "ok", f"three turns with a question to the extractor: {len(ids)} tokens, as the template renders them"
        )
    else:
        check.add(
            "dialogue",
            "warning",
            "three turns are not what the template renders of the whole: earlier turns stay as they were sampled",
        )
    unstable = codec.check_prefix_stability()
    check.add(
        "prefix", "warning" if unstable else "ok", "; ".join(unstable) or "a later turn never changes the rendering of earlier ones"
    )


def _check_memory(check: ModelCheck, settings: ModelConfig) -> None:
    path, device = resolve(settings.path), make_device(settings.device)
    free = free_memory(device)
    full = model_need(path, settings.model_copy(update={"lora": None}))
    chosen = model_need(path, settings)
    needs = {"sample": full.sampling, "train all weights": full.held}
    try:
        needs["train adapters"] = (
            chosen if settings.lora else model_need(path, settings.model_copy(update={"lora": LoraConfig()}))
        ).held
    except UserError as error:
        check.add("adapters", "broken" if settings.lora else "warning", str(error))
    told = ", ".join(f"{what} {size / GIB:.2f} GiB" for what, size in needs.items())
    check.add(
        "memory",
        "ok" if chosen.held < free else "broken",
        f"{told}; per token in the cache {chosen.kv_cache_per_token / 1024:.0f} KiB, per token of a micro-batch about "
        f"{chosen.activations_per_token / 1024:.0f} KiB; {device} has {free / GIB:.1f} GiB free",
    )


def _check_engine(check: ModelCheck, settings: ModelConfig, prompts: str) -> None:
    start = time.perf_counter()
    engine = make_local_engine("actor", settings)
    try:
        check.add(
            "weights", "ok", f"loaded in {time.perf_counter() - start:.0f} s; the context holds {engine.max_context:,} tokens"
        )
        codec = ChatCodec(engine.tokenizer)
        prompt = _as_played(codec, engine.tokenizer, _dialogue(prompts))
        if len(prompt) + NEW_TOKENS > engine.max_context:
            raise UserError(
                f"the dialogue has {len(prompt)} tokens and the context holds {engine.max_context}; raise model.max_context"
            )
        asyncio.run(_try_out(check, engine, prompt, AGREEMENT[settings.dtype]))
    finally:
        engine.close()


async def _try_out(check: ModelCheck, engine: Engine, prompt: TokenIds, tolerance: float) -> None:
    requests = [SampleRequest(f"check-{i}", prompt, seed=i) for i in range(SEQUENCES)]
    start = time.perf_counter()
    generations = await engine.sample(requests, SamplingParams(max_new_tokens=NEW_TOKENS))
    sampled, sampling = sum(len(generation.token_ids) for generation in generations), time.perf_counter() - start
    samples = [generation_sample(generation, advantage=1.0, weight=1.0) for generation in generations]
    worst = _disagreement(samples, [row.tolist() for row in await engine.logprobs(samples)])
    check.add(
        "agreement",
        "ok" if worst <= tolerance else "broken",
        f"log-probs of sampler and trainer differ by {worst:.1e} at most, {tolerance:.0e} is allowed"
        + ("" if worst <= tolerance else "; importance ratios would be wrong: set model.dtype float32 or another model.attention"),
    )
    start = time.perf_counter()
    metrics = await engine.update([LossTerm("check", samples, NextTokenLoss())], OptimParams(lr=0.0))
    training = time.perf_counter() - start
    check.add(
        "speed",
        "ok" if not metrics["skipped"] else "broken",
        f"{sampled / sampling:.0f} new tokens/s ({SEQUENCES} sequences behind one prompt of {len(prompt)}), "
        f"training {metrics['tokens'] / training:.0f} tokens/s; first calls, so an estimate"
        + ("; the gradient is not finite" if metrics["skipped"] else ""),
    )


def _dialogue(prompts: str) -> list[Message]:
    """A prompt that offers the tool, a question, its answer, an action, and what the environment shows then."""
    templates = PromptSet.load(prompts)
    opening = templates.render(
        "actor",
        instructions="Reply with go north, go south, go east or go west.",
        description="Find the exit of the Amber Gallery.",
        experience=["The exit is in the north."],
        tool=True,
        observation="You see a wall in the west.",
    )
    reply = templates.render("tool_reply", answer="In the north.", observation="You see a wall in the west.")
    contents = [opening, _REPLIES[0], reply, _REPLIES[1], "You see the exit."]
    return [Message("assistant" if turn % 2 else "user", content) for turn, content in enumerate(contents)]


def _as_played(codec: ChatCodec, tokenizer: "PreTrainedTokenizerBase", messages: Sequence[Message]) -> TokenIds:
    """The ids an episode would have, had the model sampled the assistant's turns; they end with a generation prompt."""
    ids = codec.open(messages[:1])
    for said, heard in zip(messages[1::2], messages[2::2], strict=True):
        sampled = tuple(tokenizer.encode(said.content, add_special_tokens=False))
        ids += sampled + codec.extend(sampled, [heard])
    return ids


def _disagreement(samples: Sequence[TrainingSample], scored: Sequence[Sequence[float]]) -> float:
    pairs = zip(samples, scored, strict=True)
    return max(abs(a - b) for sample, row in pairs for a, b in zip(sample.logprobs, row, strict=True))
