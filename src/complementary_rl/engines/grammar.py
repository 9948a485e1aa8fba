"""Completions that follow a JSON schema: which tokens may come next, by llguidance (https://github.com/guidance-ai/llguidance)."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from complementary_rl.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def check_constrained_decoding(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raises UserError when the library is not installed, or does not know this kind of tokenizer."""
    _compiler(tokenizer)


class Grammars:
    """Compiles schemas for one tokenizer, whose model has `vocab_size` tokens; `stop_ids` may come where a completion is complete."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, vocab_size: int, stop_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._stop_ids = sorted(stop_ids)
        self._compiler: Any = None

    def matcher(self, schema: str) -> "Matcher":
        """For one completion. Raises ValueError for a schema that cannot be compiled."""
        from llguidance import LLMatcher

        if self._compiler is None:
            self._compiler = _compiler(self._tokenizer, n_vocab=self._vocab_size, eos_token=self._stop_ids)
        matcher = LLMatcher(self._compiler, LLMatcher.grammar_from_json_schema(schema), log_level=0)
        if matcher.is_error():
            raise ValueError(f"the schema cannot be compiled: {matcher.get_error()}")
        return Matcher(matcher, self._vocab_size)


class Matcher:
    """Follows one completion token by token."""

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    def allowed(self) -> Tensor:
        """[V] bool on the CPU: the tokens that may come next, at least one."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return torch.from_numpy(np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(bool))

    def accept(self, token: int) -> None:
        """Go on behind `token`, which was allowed."""
        if not self._matcher.consume_token(token):
            raise AssertionError(f"token {token} was not allowed: {self._matcher.get_error()}")


def _compiler(tokenizer: Any, **settings: Any) -> Any:
    """What compiles grammars for `tokenizer`; takes about a second."""
    try:
        from llguidance.hf import from_tokenizer
    except ImportError as error:
        raise UserError(
            "extractor.constrained needs llguidance: `pip install 'complementary-rl[constrained]'`, or leave it out"
        ) from error
    try:
        return from_tokenizer(tokenizer, **settings)
    except ValueError as error:
        raise UserError(
            f"extractor.constrained: llguidance does not know this kind of tokenizer ({error}); choose a model with byte-level or "
            "byte-fallback tokens, or leave it out"
        ) from error
