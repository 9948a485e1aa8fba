"""A scripted engine: it answers prompts by a function of their text, through a real tokenizer and the real chat codec."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.experience.transcript import Transcript, transcript_of
from complementary_rl.types import Condition, Generation, Task, Trajectory, Turn
from tests.helpers.chat_tokenizers import make_tokenizer

Reply = Callable[[str], str]


class ScriptedEngine:
    """Samples what `reply` returns for the prompt's text; a reply that raises fails the whole call, as an engine does.

    `calls` holds the requests of every call, `gate` (if set) is awaited first, so that a test can hold the engine up.
    """

    name = "extractor"

    def __init__(self, reply: Reply, *, max_context: int = 4096) -> None:
        self.reply = reply
        self.max_context = max_context
        self.version = 0
        self.tokenizer: Any = make_tokenizer("tiny")
        self.codec = ChatCodec(self.tokenizer)
        self.calls: list[list[SampleRequest]] = []
        self.params: list[SamplingParams] = []
        self.gate: asyncio.Event | None = None

    async def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        self.calls.append(list(requests))
        self.params.append(params)
        version = self.version
        if self.gate is not None:
            await self.gate.wait()
        return [self._generation(request, params, version) for request in requests]

    def prompt(self, request: SampleRequest) -> str:
        """The text of a prompt, without the chat template's frame."""
        text: str = self.tokenizer.decode(list(request.prompt_ids))
        return text.removeprefix("<|user|>").removesuffix("<|end|><|assistant|>")

    def prompts(self) -> list[str]:
        """All prompts so far."""
        return [self.prompt(request) for call in self.calls for request in call]

    def _generation(self, request: SampleRequest, params: SamplingParams, version: int) -> Generation:
        room = min(params.max_new_tokens, self.max_context - len(request.prompt_ids))
        ids = self.tokenizer(self.reply(self.prompt(request)), add_special_tokens=False)["input_ids"]
        ids = [*ids, self.tokenizer.eos_token_id]
        stop = "stop" if len(ids) <= room else "length"
        kept = tuple(ids[:room])
        return Generation(
            request.id, self.name, version, request.prompt_ids, kept, tuple(-0.5 for _ in kept), stop, params.temperature
        )


def task(number: int = 0, **fields: Any) -> Task:
    values: dict[str, Any] = {
        "id": f"room-{number}",
        "env": "rooms",
        "description": f"Find the exit of room {number}.",
        "seed": number,
        "scope": "rooms",
    }
    return Task(**(values | fields))


def episode(
    group: int = 0,
    member: int = 0,
    *,
    step: int = 0,
    turns: int = 2,
    success: bool = False,
    entries: tuple[int, ...] = (),
    answers: tuple[str, ...] = (),
    of: Task | None = None,
) -> Trajectory:
    """A finished episode with readable turns; guided when `entries` were shown."""
    name = f"s{step}-g{group}-m{member}"
    generation = Generation(f"{name}/0", "actor", 0, (), (7, 8), (-0.25, -1 / 3), "stop")
    return Trajectory(
        id=name,
        task=of or task(group),
        condition=Condition.GUIDED if entries else Condition.FREE,
        step=step,
        group=group,
        member=member,
        seed=group,
        entry_ids=entries,
        answer_ids=answers,
        turns=tuple(Turn("act", f"at {t} {t}", (1, 2), generation, f"north {t}") for t in range(turns)),
        free_prompt_ids=(1, 2),
        reward=float(success),
        success=success,
        n_actions=turns,
        stop_reason="terminated" if success else "turns",
        final_observation="out" if success else f"at {turns} {turns}",
    )


def transcript(group: int = 0, member: int = 0, **fields: Any) -> Transcript:
    """The text of such an episode."""
    return transcript_of(episode(group, member, **fields))
