"""A scripted actor: it says what its script says, episode by episode, through a real tokenizer."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.types import Generation
from helpers.models import tiny_tokenizer

CUT = "…"
"""A line that ends with this is cut off at the token limit: no stop token follows."""


class ScriptedActor:
    """Plays `script[session][turn]`; a session without a script, or past its end, says "go". The context holds `max_context` tokens.

    Special tokens in its lines become the tokens, as only a model can say them.
    """

    name = "actor"
    version = 7

    def __init__(
        self, script: Mapping[str, Sequence[str]] | None = None, *, max_context: int = 10_000, tokenizer: Any = None
    ) -> None:
        self.script = script or {}
        self.max_context = max_context
        self.tokenizer = tokenizer or tiny_tokenizer()
        self.requests: list[SampleRequest] = []
        self.batches: list[list[str]] = []
        self.released: list[str] = []

    def ids(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    async def sample(self, requests: Sequence[SampleRequest], params: SamplingParams) -> list[Generation]:
        self.requests += requests
        self.batches.append([request.id for request in requests])
        return [self._say(request, params) for request in requests]

    def release(self, sessions: Sequence[str]) -> None:
        self.released += sessions

    def _say(self, request: SampleRequest, params: SamplingParams) -> Generation:
        assert request.session is not None
        turn = int(request.id.rpartition("/")[2])
        lines = self.script.get(request.session, ())
        line = lines[turn] if turn < len(lines) else "go"
        ids = self.ids(line.removesuffix(CUT)) + (() if line.endswith(CUT) else (self.tokenizer.eos_token_id,))
        stop: Literal["stop", "length", "context"] = "length" if line.endswith(CUT) else "stop"
        if len(request.prompt_ids) + len(ids) > self.max_context:
            ids, stop = (), "context"
        logprobs = tuple(-token / 100 for token in ids)
        return Generation(request.id, self.name, self.version, request.prompt_ids, ids, logprobs, stop, params.temperature)
