"""Batched sampling with a KV cache that outlives the call, so that a turn of an episode re-reads only what is new.

requests → slots (longest common prefix with what a session has cached) → prefill of the rest → draw, decode one token, draw, …
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from complementary_rl.engines.grammar import Grammars, Matcher
from complementary_rl.engines.local.decoder import Decoder
from complementary_rl.engines.local.draw import draw
from complementary_rl.engines.local.kv_arena import ArenaCache, KVArena
from complementary_rl.engines.local.padding import Padding, padded_groups
from complementary_rl.engines.local.prefill import common_prefix, shared_prefixes
from complementary_rl.engines.local.slots import Slot, SlotTable
from complementary_rl.engines.protocol import SampleRequest, SamplingParams
from complementary_rl.errors import InfrastructureError
from complementary_rl.seeds import rng
from complementary_rl.types import Generation, TokenIds

PREFILL_TOKENS = 8192
"""Token budget (padding included) of one prefill pass."""
PREFILL_PADDING = Padding(share=0.5, least=512)
MASK_ELEMENTS = 1 << 24
"""Most elements of an attention mask; longer chunks are read in pieces."""
COMPACT_BELOW = 0.75
"""When fewer than this share of a batch still runs, the finished rows leave it."""


@dataclass(eq=False, slots=True)
class _Row:
    """One request on its way: `slot.cached` is what has been read of `prompt + tokens`."""

    request: SampleRequest
    slot: Slot
    uniforms: Tensor  # [max_new_tokens] float64
    matcher: Matcher | None = None
    tokens: list[int] = field(default_factory=list)
    allowed: list[TokenIds] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    stop_reason: Literal["stop", "length", "context"] | None = None

    @property
    def unread(self) -> list[int]:
        return list(self.request.prompt_ids[len(self.slot.cached) :])


class Sampler:
    """Samples from `decoder`. `stop_ids` end a generation and are its last token; sequences never exceed `max_context` tokens.

    `grammars` is for requests with a schema or a choice.
    """

    def __init__(
        self, decoder: Decoder, *, name: str, stop_ids: frozenset[int], max_context: int, grammars: Grammars | None = None
    ) -> None:
        self.decoder = decoder
        self.name = name
        self.stop_ids = stop_ids
        self.max_context = max_context
        self._grammars = grammars
        self._arena = KVArena()
        self._table = SlotTable(self._arena)

    @torch.inference_mode()
    def sample(self, requests: Sequence[SampleRequest], params: SamplingParams, version: int) -> list[Generation]:
        """One generation per request, in order. Raises ValueError for an empty prompt, ids out of range or a session named twice,
        InfrastructureError when the model's logits are not finite."""
        self._check(requests, params)
        rows = [self._open(request, params) if len(request.prompt_ids) < self.max_context else None for request in requests]
        readable = [row for row in rows if row is not None]
        try:
            if readable:
                self._generate(readable, params)
        except BaseException:
            self.forget()
            self._arena.clear()  # a NaN left in it would pass through the masks
            raise
        for row in readable:
            if row.slot.session is None:
                self._table.free(row.slot)
        return [self._generation(request, row, params, version) for request, row in zip(requests, rows, strict=True)]

    def release(self, sessions: Sequence[str]) -> None:
        """Give the caches of these sessions back."""
        self._table.free_sessions(sessions)

    def forget(self) -> None:
        """Drop all caches, as after a change of the weights."""
        self._table.clear()

    def _check(self, requests: Sequence[SampleRequest], params: SamplingParams) -> None:
        if params.max_new_tokens < 1 or params.temperature < 0 or params.top_k < 0 or not 0 < params.top_p <= 1:
            raise ValueError(
                f"{self.name}: {params} is out of range (max_new_tokens ≥ 1, temperature ≥ 0, top_k ≥ 0, 0 < top_p ≤ 1)"
            )
        sessions = [request.session for request in requests if request.session is not None]
        if len(set(sessions)) != len(sessions):
            raise ValueError(f"{self.name}: two requests of one call name the same session")
        for request in requests:
            ids = request.prompt_ids
            if request.schema is not None and request.choice is not None:
                raise ValueError(f"{self.name}: request {request.id!r} has a schema and a choice")
            if not ids:
                raise ValueError(f"{self.name}: request {request.id!r} has an empty prompt")
            if min(ids) < 0 or max(ids) >= self.decoder.vocab_size:
                raise ValueError(f"{self.name}: request {request.id!r} has token ids outside 0…{self.decoder.vocab_size - 1}")

    def _open(self, request: SampleRequest, params: SamplingParams) -> _Row:
        slot = self._table.claim(request.session)
        # The last token is always read again: its logits are what the first draw needs.
        known = min(common_prefix(slot.cached, request.prompt_ids), len(request.prompt_ids) - 1)
        del slot.cached[known:]
        uniforms = torch.from_numpy(rng(request.seed).random(params.max_new_tokens))
        return _Row(request, slot, uniforms, self._matcher(request))

    def _matcher(self, request: SampleRequest) -> Matcher | None:
        constraint = request.schema if request.choice is None else request.choice
        if constraint is None:
            return None
        assert self._grammars is not None
        return self._grammars.matcher(constraint)

    def _generate(self, rows: list[_Row], params: SamplingParams) -> None:
        batch = self._to_front(rows)
        logits = self._prefill(batch)
        uniforms_BN = self._uniforms(batch)
        for step in range(params.max_new_tokens):
            tokens, logprobs = draw(self._chosen(batch, logits), uniforms_BN[:, step], params, self._allowed(batch))
            self._record(batch, tokens.tolist(), logprobs.tolist(), last=step + 1 == params.max_new_tokens)
            running = [row for row in batch if row.stop_reason is None]
            if not running:
                break
            if len(running) < COMPACT_BELOW * len(batch):
                batch = self._to_front(running)
                uniforms_BN = self._uniforms(batch)
            logits = self._decode(batch)

    def _record(self, batch: list[_Row], tokens: list[int], logprobs: list[float], *, last: bool) -> None:
        for row, token, logprob in zip(batch, tokens, logprobs, strict=True):
            if row.stop_reason is not None:
                continue
            if not math.isfinite(logprob):
                raise InfrastructureError(
                    f"{self.name}: the model's logits are not finite; its weights or its dtype cannot be used"
                )
            row.tokens.append(token)
            row.logprobs.append(logprob)
            if row.matcher is not None and token not in self.stop_ids:
                row.matcher.accept(token)
            if token in self.stop_ids:
                row.stop_reason = "stop"
            elif last:
                row.stop_reason = "length"
            elif len(row.request.prompt_ids) + len(row.tokens) >= self.max_context:
                row.stop_reason = "context"

    def _chosen(self, batch: list[_Row], logits: Tensor) -> Tensor:
        """`logits` [B, V] with what a choice rules out at −∞; the rows keep what they were left."""
        for index, row in enumerate(batch):
            if row.request.choice is None or row.matcher is None or row.stop_reason is not None:
                continue
            if row.matcher.thinks:
                row.allowed.append(())
                continue
            allowed = row.matcher.allowed().nonzero().squeeze(1)
            row.allowed.append(tuple(allowed.tolist()))
            allowed = allowed.to(logits.device)
            logits[index] = torch.full_like(logits[index], float("-inf")).scatter_(0, allowed, logits[index, allowed])
        return logits

    def _allowed(self, batch: list[_Row]) -> Tensor | None:
        """[B, V] the tokens that each row may draw by its schema; None when no row has one."""
        if all(row.request.schema is None for row in batch):
            return None
        everything = torch.ones(self.decoder.vocab_size, dtype=torch.bool)
        free = [row.request.schema is None or row.matcher is None or row.stop_reason is not None for row in batch]
        rows = [
            everything if row.matcher is None or is_free else row.matcher.allowed()
            for row, is_free in zip(batch, free, strict=True)
        ]
        return torch.stack(rows).to(self.decoder.device)

    def _decode(self, batch: list[_Row]) -> Tensor:
        """Read each row's last token; logits [B, V] of the next. A finished row that has not left yet repeats its own last step."""
        lengths = [len(row.slot.cached) for row in batch]
        self._arena.reserve(len(batch), max(lengths) + 1)
        ids = self._tensor([row.tokens[-1] for row in batch]).unsqueeze(1)
        positions = self._tensor(lengths).unsqueeze(1)
        cache = ArenaCache(self._arena, range(len(batch)), positions, length=max(lengths) + 1, fresh=False)
        hidden = self.decoder.hidden_cached(ids, positions, cache)
        for row in batch:
            if row.stop_reason is None:
                row.slot.cached.append(row.tokens[-1])
        return self.decoder.logits(hidden[:, -1])

    def _prefill(self, batch: list[_Row]) -> Tensor:
        """Read what is unread of every prompt, shared beginnings once; logits [B, V] after the last tokens."""
        last_hidden: dict[int, Tensor] = {}
        fresh = [row for row in batch if not row.slot.cached]
        shares = shared_prefixes([row.request.prompt_ids for row in fresh])
        if shares:
            donors = [row for index, row in enumerate(fresh) if index not in shares]
            self._read(donors, last_hidden)
            self._copy_prefixes(fresh, shares)
        self._read([row for row in batch if row.slot.index not in last_hidden], last_hidden)
        return self.decoder.logits(torch.stack([last_hidden[index] for index in range(len(batch))]))

    def _copy_prefixes(self, fresh: list[_Row], shares: dict[int, tuple[int, int]]) -> None:
        targets = [fresh[row].slot for row in shares]
        sources = [fresh[donor].slot for donor, _ in shares.values()]
        self._arena.copy([s.index for s in sources], [t.index for t in targets], max(tokens for _, tokens in shares.values()))
        for target, source, (_, tokens) in zip(targets, sources, shares.values(), strict=True):
            target.cached = source.cached[:tokens]

    def _read(self, rows: list[_Row], last_hidden: dict[int, Tensor]) -> None:
        for group in padded_groups([len(row.unread) for row in rows], PREFILL_TOKENS, PREFILL_PADDING):
            self._read_group([rows[index] for index in group], last_hidden)

    def _read_group(self, rows: list[_Row], last_hidden: dict[int, Tensor]) -> None:
        """Read the unread prompt tokens of `rows` at once, right-padded; the state after each row's last token goes to
        `last_hidden` under the row's slot. Padding writes behind the row's end, where the next tokens will overwrite it."""
        unread = [row.unread for row in rows]
        width, past = max(map(len, unread)), max(len(row.slot.cached) for row in rows)
        self._arena.reserve(0, past + width)
        ids = self._tensor([tokens + [0] * (width - len(tokens)) for tokens in unread])
        starts = self._tensor([len(row.slot.cached) for row in rows]).unsqueeze(1)
        slots = _as_range([row.slot.index for row in rows])
        piece = max(1, min(PREFILL_TOKENS // len(rows), MASK_ELEMENTS // (len(rows) * (past + width))))
        for offset in range(0, width, piece):
            chunk = ids[:, offset : offset + piece]
            positions = starts + torch.arange(offset, offset + chunk.shape[1], device=ids.device)
            fresh = past == 0 and offset == 0
            cache = ArenaCache(self._arena, slots, positions, length=past + offset + chunk.shape[1], fresh=fresh)
            # Padding may stand beyond the context, where learnt position embeddings end.
            hidden = self.decoder.hidden_cached(chunk, positions.clamp(max=self.max_context - 1), cache)
            for index, (row, tokens) in enumerate(zip(rows, unread, strict=True)):
                if offset < len(tokens) <= offset + piece:
                    last_hidden[row.slot.index] = hidden[index, len(tokens) - 1 - offset]
        for row, tokens in zip(rows, unread, strict=True):
            row.slot.cached.extend(tokens)

    def _to_front(self, rows: list[_Row]) -> list[_Row]:
        self._table.bring_to_front([row.slot for row in rows])
        return sorted(rows, key=lambda row: row.slot.index)

    def _uniforms(self, batch: list[_Row]) -> Tensor:
        return torch.stack([row.uniforms for row in batch]).to(self.decoder.device)

    def _tensor(self, values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, device=self.decoder.device)

    def _generation(self, request: SampleRequest, row: _Row | None, params: SamplingParams, version: int) -> Generation:
        if row is None:
            return Generation(request.id, self.name, version, request.prompt_ids, (), (), "context", params.temperature)
        assert row.stop_reason is not None
        return Generation(
            id=request.id,
            model=self.name,
            version=version,
            prompt_ids=request.prompt_ids,
            token_ids=tuple(row.tokens),
            logprobs=tuple(row.logprobs),
            stop_reason=row.stop_reason,
            temperature=params.temperature,
            allowed=tuple(row.allowed),
        )


def _as_range(slots: list[int]) -> range | list[int]:
    run = range(slots[0], slots[0] + len(slots))
    return run if slots == list(run) else slots
