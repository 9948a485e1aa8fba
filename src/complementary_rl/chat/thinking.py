"""Thinking: which tokens of a turn are, and what later prompts hold of a turn whose thinking the template drops.

sampled     <think> \\n so … </think> \\n\\n north <|im_end|>
thinking    └──────────────────────────────┘
remembered                                     north <|im_end|>     the same ids, cut and never encoded again
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from complementary_rl.types import TokenIds, Turn

OPENING, CLOSING = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class ThinkingTags:
    """The two tags of a tokenizer that has a token for each.

    `prompt` is the template's generation prompt, which may open the thinking, or close it at once to switch it off; `stop_ids` end
    a generation and are no thinking; `is_newline` tells tokens of newlines alone, which templates take away behind thinking.
    """

    opening: int
    closing: int
    prompt: TokenIds
    stop_ids: frozenset[int]
    is_newline: Callable[[int], bool]

    @property
    def to_come(self) -> tuple[int | None, int] | None:
        """The tags that a turn may hold: (opening, closing), without the first where the prompt has opened the thinking, None where it has
        closed it."""
        if self.closing in self.prompt:
            return None
        return None if self.opening in self.prompt else self.opening, self.closing

    def span(self, sampled: Sequence[int]) -> tuple[int, int] | None:
        """The thinking of a turn as positions counted from the first sampled token (the tokens that the generation prompt opens it
        with are negative), or None.

        As templates do, everything up to the last closing tag is thinking. Thinking that was cut off goes to the end of the turn.
        """
        opened = len(self.prompt) - self.prompt.index(self.opening) if self.opening in self.prompt else 0
        if self.closing in sampled:
            end = len(sampled) - list(reversed(sampled)).index(self.closing)
            while end < len(sampled) and self.is_newline(sampled[end]):
                end += 1
            return -opened, end
        if opened and self.closing in self.prompt:
            return -opened, 0
        if not opened and self.opening not in sampled:
            return None
        start = -opened if opened else list(sampled).index(self.opening)
        return start, len(sampled) - (bool(sampled) and sampled[-1] in self.stop_ids)


def remembered(turn: Turn) -> TokenIds:
    """A turn without its thinking: prompt ids and sampled ids."""
    ids = turn.new_ids + turn.generation.token_ids
    if turn.thinking is None:
        return ids
    start, end = (len(turn.new_ids) + position for position in turn.thinking)
    return ids[:start] + ids[end:]


def prompt_runs(turns: Sequence[Turn]) -> list[tuple[TokenIds, list[Turn]]]:
    """Cut an episode where its prompts do not extend each other, because thinking was dropped.

    Each run is what its first prompt holds of the turns before, and its turns; the prompt of a turn is ``past + new_ids + sampled + … +
    new_ids`` over its run. An episode that drops nothing is one run.
    """
    runs: list[tuple[TokenIds, list[Turn]]] = []
    for index, turn in enumerate(turns):
        if not runs or (turn.drops_thinking and any(earlier.thinking for earlier in runs[-1][1])):
            runs.append((tuple(chain.from_iterable(map(remembered, turns[:index]))), []))
        runs[-1][1].append(turn)
    return runs
