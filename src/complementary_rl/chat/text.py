"""Text to token ids in which no text, whatever it says, can become a token that means something to the chat.

A tokenizer finds its added tokens (`<|im_end|>`, `</s>`, `<tool_call>`) in any text it is given. Here they are divided: those that
can carry structure are *structural*, and text is encoded by a copy of the tokenizer that does not know them. Added tokens made of
white space alone (runs of blanks, in some models) carry none and stay.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from complementary_rl.readable import without_middle

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class TextEncoder:
    """Encodes untrusted text; `structural` are the ids that it never returns."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        added = {id: token.content for id, token in tokenizer.added_tokens_decoder.items()}
        # A character that the vocabulary lacks has to become something; unless the unknown token also has another role
        # (in GPT-2 it ends texts), it means nothing to a chat.
        unknown = {tokenizer.unk_token_id} - {tokenizer.eos_token_id, tokenizer.bos_token_id, tokenizer.pad_token_id}
        self.structural: frozenset[int] = frozenset(id for id, content in added.items() if not _blank(content)) - unknown
        self._plain = _without_structure(tokenizer.backend_tokenizer)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, none of them structural. Characters that only a structural token can express are left out."""
        try:
            ids: list[int] = self._plain.encode(text, add_special_tokens=False).ids
        except TypeError:  # how tokenizers refuses surrogates, which careless decoding leaves behind: join pairs, replace halves
            return self.encode(_without_surrogates(text))
        return ids if self.structural.isdisjoint(ids) else self._encode_in_pieces(text)

    def shortened(self, text: str, limit: int) -> str:
        """`text`, or if it has more than `limit` (≥ 2) tokens, its beginning and end of so many together, with a mark between."""
        whole = _without_surrogates(text)
        spans = self._plain.encode(whole, add_special_tokens=False).offsets
        if len(spans) <= limit:
            return text
        end = spans[(limit + 1) // 2 - 1][1]
        # A character of several tokens is kept or left out as one.
        start = max(end, spans[-(limit // 2)][0])
        return without_middle(whole, end, start, f"{len(spans) - limit} tokens")

    def _encode_in_pieces(self, text: str) -> list[int]:
        # The vocabulary itself holds the structural token as a word, and the model found it: cut inside each such word.
        encoding = self._plain.encode(text, add_special_tokens=False)
        spans = [span for id, span in zip(encoding.ids, encoding.offsets, strict=True) if id in self.structural]
        cuts = [0, *(start + 1 for start, end in spans if end - start > 1), len(text)]
        if len(cuts) == 2:
            return [id for id in encoding.ids if id not in self.structural]
        return [id for start, end in pairwise(cuts) for id in self.encode(text[start:end])]

    def split(self, trusted: str) -> Iterator[int | str]:
        """Cut a chat template's own text into structural token ids and the text between them."""
        encoding = self._tokenizer(trusted, add_special_tokens=False, return_offsets_mapping=True, truncation=False, verbose=False)
        position = 0
        for id, (start, end) in zip(encoding["input_ids"], encoding["offset_mapping"], strict=True):
            if id in self.structural:
                if start > position:
                    yield trusted[position:start]
                yield id
                position = end
        if position < len(trusted):
            yield trusted[position:]


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _blank(content: str) -> bool:
    return not content.replace("▁", " ").strip()


def _without_structure(backend: Tokenizer) -> Tokenizer:
    """A copy of the tokenizer that knows only its blank added tokens and neither truncates nor adds tokens of its own."""
    state: dict[str, Any] = json.loads(backend.to_str())
    vocabulary = state["model"]["vocab"]
    kept = []
    if isinstance(vocabulary, dict):
        kept = [token for token in state["added_tokens"] if _blank(token["content"])]
        # Ids of added tokens that the vocabulary lacks are dealt anew on loading: without the others these would change.
        vocabulary.update({token["content"]: token["id"] for token in kept})
    state |= {"added_tokens": kept, "post_processor": None, "truncation": None, "padding": None}
    for step in _pre_tokenizers(state["pre_tokenizer"]):
        # "first" marks the beginning of a text; what we encode stands behind a structural token.
        if step["type"] == "Metaspace" and step.get("prepend_scheme") == "first":
            step["prepend_scheme"] = "never"
    return Tokenizer.from_str(json.dumps(state, ensure_ascii=False))


def _pre_tokenizers(state: dict[str, Any] | None) -> list[dict[str, Any]]:
    if state is None:
        return []
    return list(state["pretokenizers"]) if state["type"] == "Sequence" else [state]
