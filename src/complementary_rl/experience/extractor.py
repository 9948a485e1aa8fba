"""The extractor's three jobs: distil finished episodes, merge chunks of the bank, answer questions. Each is one batched call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ExtractorConfig
from complementary_rl.engines.protocol import Engine, SampleRequest, SamplingParams
from complementary_rl.experience.operation_schemas import distillation_schema, merge_schema
from complementary_rl.experience.operations import Parsed, parse_distillation, parse_merge, strip_thinking
from complementary_rl.experience.questions import Question
from complementary_rl.experience.transcript import Transcript, shortened
from complementary_rl.prompts import PromptSet
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Entry, Generation, Message, Task, TokenIds

SHORTEST_TEXT = 16
"""Characters to which texts are cut at most, when an episode does not fit the context."""
CHARS_PER_TOKEN = 32
"""An episode with more characters per token of the context than this cannot fit, so that it need not be encoded to see it."""
CONSTRAINED_CHARS_PER_TOKEN = 2
"""Characters that a constrained text may have per token there is for the answer: few enough that it ends before the tokens do."""


@dataclass(frozen=True, slots=True)
class Distilled:
    """What the extractor made of one episode. `cut_turns` turns were left out of the prompt to fit the context; `shortened` also
    tells of an episode that lost only parts of long texts."""

    transcript: Transcript
    generation: Generation
    parsed: Parsed
    cut_turns: int
    shortened: bool


@dataclass(frozen=True, slots=True)
class TooLong:
    """An episode the extractor cannot read: even without a turn its prompt has `tokens` tokens, and `limit` fit."""

    transcript: Transcript
    tokens: int
    limit: int

    def __str__(self) -> str:
        return (
            f"its prompt has {self.tokens} tokens without any turn and the extractor takes {self.limit}; use an extractor with more "
            "context or lower extractor.sampling.max_new_tokens"
        )


@dataclass(frozen=True, slots=True)
class Merged:
    """What the extractor made of one chunk of entries."""

    chunk: tuple[Entry, ...]
    generation: Generation
    parsed: Parsed


@dataclass(frozen=True, slots=True)
class _Prompt:
    ids: TokenIds
    cut_turns: int
    shortened: bool


def distillation_id(episode_id: str) -> str:
    """The id of the generation in which the extractor read an episode."""
    return f"d/{episode_id}"


class Extractor:
    """Prompts, samples and parses with one engine. Every draw derives from `run_seed` and what it is for.

    `instructions` gives the rules of a task, for prompt sets that quote them. At most half of the context is kept for what is sampled,
    whatever `config.sampling.max_new_tokens` says; prompts get the rest.
    """

    def __init__(
        self,
        engine: Engine,
        codec: ChatCodec,
        prompts: PromptSet,
        config: ExtractorConfig,
        *,
        run_seed: int,
        instructions: Callable[[Task], str],
    ) -> None:
        self.engine = engine
        self._codec = codec
        self._prompts = prompts
        self._config = config
        self._run_seed = run_seed
        self._instructions = instructions
        self._new_tokens = min(config.sampling.max_new_tokens, engine.max_context // 2)
        self._prompt_limit = engine.max_context - self._new_tokens

    async def distill(self, transcripts: Sequence[Transcript], texts: Mapping[int, str]) -> list[Distilled | TooLong]:
        """Read episodes (`texts`: entry id → text of what they were shown) and propose operations; one call, in order.

        From an episode that does not fit, the middle of long texts and turns from the middle are left out, with a mark in their
        place. The generation is named by `distillation_id`.
        """
        prompts = [self._distill_prompt(transcript, texts) for transcript in transcripts]
        fitting = [
            (transcript, prompt) for transcript, prompt in zip(transcripts, prompts, strict=True) if isinstance(prompt, _Prompt)
        ]
        generations = iter(
            await self._sample(
                [distillation_id(transcript.id) for transcript, _ in fitting],
                [prompt.ids for _, prompt in fitting],
                self._new_tokens,
                [self._distillation_schema(transcript) for transcript, _ in fitting],
            )
        )
        return [
            prompt if isinstance(prompt, TooLong) else self._distilled(transcript, next(generations), prompt)
            for transcript, prompt in zip(transcripts, prompts, strict=True)
        ]

    def too_long(self, task: Task) -> TooLong | None:
        """Whether no episode of `task` can be read, however much of it is left out."""
        prompt = self._distill_prompt(Transcript("check", task, 0, (), "", None, None), {})
        return prompt if isinstance(prompt, TooLong) else None

    async def merge(self, chunks: Sequence[Sequence[Entry]], ids: Sequence[str]) -> list[Merged | None]:
        """Consolidate chunks of entries, one generation (named by `ids`) each; None for a chunk that does not fit the context."""
        prompts = [self._encode("merge", entries=list(chunk)) for chunk in chunks]
        fits = [len(prompt) <= self._prompt_limit for prompt in prompts]
        generations = iter(
            await self._sample(
                [name for name, fit in zip(ids, fits, strict=True) if fit],
                [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit],
                self._new_tokens,
                [self._merge_schema(chunk) for chunk, fit in zip(chunks, fits, strict=True) if fit],
            )
        )
        return [self._merged(chunk, next(generations)) if fit else None for chunk, fit in zip(chunks, fits, strict=True)]

    async def answer(
        self, questions: Sequence[Question], entries: Sequence[Sequence[str]], max_new_tokens: int
    ) -> list[Generation | None]:
        """Answer questions from the texts found for each, nearest first. The farthest are left out of a prompt that does not fit
        the context, and None stands for a question that does not fit even alone. The generation has the question's id."""
        prompts = [self._answer_prompt(question, found) for question, found in zip(questions, entries, strict=True)]
        asked = [(question.id, prompt) for question, prompt in zip(questions, prompts, strict=True) if prompt is not None]
        generations = iter(
            await self._sample(
                [name for name, _ in asked], [ids for _, ids in asked], min(max_new_tokens, self._new_tokens), [None] * len(asked)
            )
        )
        return [None if prompt is None else next(generations) for prompt in prompts]

    def text(self, generation: Generation) -> str:
        """What a generation says, without a thinking model's reasoning."""
        return strip_thinking(self._codec.decode(generation.token_ids))

    async def _sample(
        self, ids: Sequence[str], prompts: Sequence[TokenIds], max_new_tokens: int, schemas: Sequence[str | None]
    ) -> list[Generation]:
        requests = [
            SampleRequest(identity, prompt, derive_seed(self._run_seed, "extractor", identity), schema=schema)
            for identity, prompt, schema in zip(ids, prompts, schemas, strict=True)
        ]
        params = SamplingParams(temperature=self._config.sampling.temperature, max_new_tokens=max_new_tokens)
        return await self.engine.sample(requests, params) if requests else []

    def _distillation_schema(self, transcript: Transcript) -> str | None:
        if not self._config.constrained:
            return None
        return distillation_schema(
            len(transcript.entry_ids), max_operations=self._config.max_operations, max_chars=self._constrained_chars
        )

    def _merge_schema(self, chunk: Sequence[Entry]) -> str | None:
        return merge_schema(len(chunk), max_chars=self._constrained_chars) if self._config.constrained else None

    @property
    def _constrained_chars(self) -> int:
        return CONSTRAINED_CHARS_PER_TOKEN * self._new_tokens

    def _distilled(self, transcript: Transcript, generation: Generation, prompt: _Prompt) -> Distilled:
        text = self._codec.decode(generation.token_ids)
        parsed = parse_distillation(text, shown=transcript.entry_ids, max_operations=self._config.max_operations)
        return Distilled(transcript, generation, parsed, prompt.cut_turns, prompt.shortened)

    def _merged(self, chunk: Sequence[Entry], generation: Generation) -> Merged:
        parsed = parse_merge(self._codec.decode(generation.token_ids), shown=[entry.id for entry in chunk])
        return Merged(tuple(chunk), generation, parsed)

    def _distill_prompt(self, transcript: Transcript, texts: Mapping[int, str]) -> _Prompt | TooLong:
        first_cut = max(SHORTEST_TEXT, self._prompt_limit // 8)
        kept, chars = len(transcript.turns), first_cut if transcript.chars > CHARS_PER_TOKEN * self._prompt_limit else None
        while True:
            ids = self._encode("distill", **self._distill_variables(shortened(transcript, kept, chars), texts))
            if len(ids) <= self._prompt_limit:
                return _Prompt(ids, len(transcript.turns) - kept, shortened=chars is not None)
            # Long texts go first: one page of tool output should not cost the turns around it.
            if chars is None:
                chars = first_cut
            elif kept:
                kept = min(kept - 1, kept * self._prompt_limit // len(ids))
            elif chars > SHORTEST_TEXT:
                chars = max(SHORTEST_TEXT, chars // 2)
            else:
                return TooLong(transcript, len(ids), self._prompt_limit)

    def _distill_variables(self, transcript: Transcript, texts: Mapping[int, str]) -> dict[str, object]:
        given = transcript.instructions
        variables: dict[str, object] = {
            "instructions": self._instructions(transcript.task) if given is None else given,
            "description": transcript.task.description,
            "entries": [texts[entry] for entry in transcript.entry_ids],
            "turns": transcript.turns,
            "final_observation": transcript.final_observation,
            "max_operations": self._config.max_operations,
        }
        # Absent rather than None, which a template would take for a failure.
        outcome = {"success": transcript.success, "reward": transcript.reward}
        return variables | {name: value for name, value in outcome.items() if value is not None}

    def _answer_prompt(self, question: Question, entries: Sequence[str]) -> TokenIds | None:
        for kept in range(len(entries), -1, -1):
            ids = self._encode(
                "answer",
                instructions=self._instructions(question.task),
                description=question.task.description,
                entries=list(entries[:kept]),
                observation=question.observation,
                question=question.question,
            )
            if len(ids) <= self._prompt_limit:
                return ids
        return None

    def _encode(self, name: str, **variables: object) -> TokenIds:
        return self._codec.open([Message("user", self._prompts.render(name, **variables))])
