"""Completions that follow a JSON schema or are one of a few texts: which tokens may come next, by llguidance
(https://github.com/guidance-ai/llguidance)."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from complementary_rl.engines.protocol import Choice
from complementary_rl.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_BLANK = r"[ \n]{0,2}"
"""What may stand between thinking and a choice."""


def check_constrained_decoding(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raises UserError when the library is not installed, or does not know this kind of tokenizer."""
    _compiler(tokenizer)


class Grammars:
    """Compiles schemas and choices for one tokenizer, whose model has `vocab_size` tokens; `stop_ids` may come where a completion is
    complete."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", *, vocab_size: int, stop_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._stop_ids = sorted(stop_ids)
        self._compiler: Any = None

    def matcher(self, constraint: "str | Choice") -> "Matcher":
        """For one completion under a schema or a choice. Raises ValueError for what cannot be compiled, such as a choice of nothing."""
        from llguidance import LLMatcher

        if self._compiler is None:
            self._compiler = _compiler(self._tokenizer, n_vocab=self._vocab_size, eos_token=self._stop_ids)
        opening = closing = None
        if isinstance(constraint, str):
            grammar = LLMatcher.grammar_from_json_schema(constraint)
        else:
            grammar = LLMatcher.grammar_from_regex(_one_of(constraint))
            opening, closing = constraint.opening, constraint.closing
        matcher = LLMatcher(self._compiler, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(f"{constraint!r} cannot be compiled: {matcher.get_error()}")
        return Matcher(matcher, self._vocab_size, opening, closing)


class Matcher:
    """Follows one completion token by token; `opening` and `closing` as in `Choice`."""

    def __init__(self, matcher: Any, vocab_size: int, opening: int | None = None, closing: int | None = None) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._opening = opening
        self._closing = closing
        self.thinks = closing is not None and opening is None
        """Whether anything may come next."""

    def allowed(self) -> Tensor:
        """[V] bool on the CPU: the tokens that may come next, at least one."""
        if self.thinks:
            return torch.ones(self._vocab_size, dtype=torch.bool)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = torch.from_numpy(np.unpackbits(bits, count=self._vocab_size, bitorder="little").view(bool))
        if self._opening is not None:
            allowed[self._opening] = True
        return allowed

    def accept(self, token: int) -> None:
        """Go on behind `token`, which was allowed."""
        if self.thinks:
            self.thinks = token != self._closing
            return
        self.thinks, self._opening = token == self._opening, None
        if self.thinks:
            return
        if not self._matcher.consume_token(token):
            raise AssertionError(f"token {token} was not allowed: {self._matcher.get_error()}")


def _one_of(choice: Choice) -> str:
    if not choice.texts:
        raise ValueError("a choice needs a text to choose")
    texts = "|".join(re.escape(text) for text in choice.texts)
    return f"({texts})" if choice.closing is None else f"{_BLANK}({texts})"


def _compiler(tokenizer: Any, **settings: Any) -> Any:
    """What compiles grammars for `tokenizer`; takes about a second."""
    try:
        from llguidance.hf import from_tokenizer
    except ImportError as error:
        raise UserError(
            "constrained decoding needs llguidance: `pip install 'complementary-rl[constrained]'`, or leave it out"
        ) from error
    try:
        return from_tokenizer(tokenizer, **settings)
    except ValueError as error:
        raise UserError(
            f"constrained decoding: llguidance does not know this kind of tokenizer ({error}); choose a model with byte-level or "
            "byte-fallback tokens, or leave it out"
        ) from error
