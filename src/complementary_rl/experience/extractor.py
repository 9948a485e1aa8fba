"""The extractor's three jobs: distil finished episodes, merge chunks of the bank, answer questions. Each is one batched call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ExtractorConfig
from complementary_rl.engines.protocol import Engine, SampleRequest, SamplingParams
from complementary_rl.experience.operations import Parsed, parse_distillation, parse_merge, strip_thinking
from complementary_rl.experience.questions import Question
from complementary_rl.prompts import PromptSet
from complementary_rl.seeds import derive_seed
from complementary_rl.types import Entry, Generation, Message, TokenIds, Trajectory


@dataclass(frozen=True, slots=True)
class Distilled:
    """What the extractor made of one episode. `cut_turns` turns were left out of the prompt to fit the context."""

    trajectory: Trajectory
    generation: Generation
    parsed: Parsed
    cut_turns: int


@dataclass(frozen=True, slots=True)
class TooLong:
    """An episode the extractor cannot read: even without a turn its prompt has `tokens` tokens, and `limit` fit."""

    trajectory: Trajectory
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


class Extractor:
    """Prompts, samples and parses with one engine. Every draw derives from `run_seed` and what it is for.

    `instructions` are the suite's rules, for prompt sets that quote them. At most half of the context is kept for what is sampled,
    whatever `config.sampling.max_new_tokens` says; prompts get the rest.
    """

    def __init__(
        self, engine: Engine, codec: ChatCodec, prompts: PromptSet, config: ExtractorConfig, *, run_seed: int, instructions: str
    ) -> None:
        self.engine = engine
        self._codec = codec
        self._prompts = prompts
        self._config = config
        self._run_seed = run_seed
        self._instructions = instructions
        self._new_tokens = min(config.sampling.max_new_tokens, engine.max_context // 2)
        self._prompt_limit = engine.max_context - self._new_tokens

    async def distill(self, trajectories: Sequence[Trajectory], texts: Mapping[int, str]) -> list[Distilled | TooLong]:
        """Read episodes (`texts`: entry id → text of what they were shown) and propose operations; one call, in order.

        From an episode that does not fit, turns are left out of the middle. The generation is named ``d/`` and the trajectory's id.
        """
        prompts = [self._distill_prompt(trajectory, texts) for trajectory in trajectories]
        fitting = [
            (trajectory, prompt) for trajectory, prompt in zip(trajectories, prompts, strict=True) if isinstance(prompt, _Prompt)
        ]
        generations = iter(
            await self._sample(
                [f"d/{trajectory.id}" for trajectory, _ in fitting], [prompt.ids for _, prompt in fitting], self._new_tokens
            )
        )
        return [
            prompt if isinstance(prompt, TooLong) else self._distilled(trajectory, next(generations), prompt.cut_turns)
            for trajectory, prompt in zip(trajectories, prompts, strict=True)
        ]

    async def merge(self, chunks: Sequence[Sequence[Entry]], ids: Sequence[str]) -> list[Merged | None]:
        """Consolidate chunks of entries, one generation (named by `ids`) each; None for a chunk that does not fit the context."""
        prompts = [self._encode("merge", entries=list(chunk)) for chunk in chunks]
        fits = [len(prompt) <= self._prompt_limit for prompt in prompts]
        generations = iter(
            await self._sample(
                [name for name, fit in zip(ids, fits, strict=True) if fit],
                [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit],
                self._new_tokens,
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
            await self._sample([name for name, _ in asked], [ids for _, ids in asked], min(max_new_tokens, self._new_tokens))
        )
        return [None if prompt is None else next(generations) for prompt in prompts]

    def text(self, generation: Generation) -> str:
        """What a generation says, without a thinking model's reasoning."""
        return strip_thinking(self._codec.decode(generation.token_ids))

    async def _sample(self, ids: Sequence[str], prompts: Sequence[TokenIds], max_new_tokens: int) -> list[Generation]:
        requests = [
            SampleRequest(identity, prompt, derive_seed(self._run_seed, "extractor", identity))
            for identity, prompt in zip(ids, prompts, strict=True)
        ]
        params = SamplingParams(temperature=self._config.sampling.temperature, max_new_tokens=max_new_tokens)
        return await self.engine.sample(requests, params) if requests else []

    def _distilled(self, trajectory: Trajectory, generation: Generation, cut_turns: int) -> Distilled:
        text = self._codec.decode(generation.token_ids)
        parsed = parse_distillation(text, shown=trajectory.entry_ids, max_operations=self._config.max_operations)
        return Distilled(trajectory, generation, parsed, cut_turns)

    def _merged(self, chunk: Sequence[Entry], generation: Generation) -> Merged:
        parsed = parse_merge(self._codec.decode(generation.token_ids), shown=[entry.id for entry in chunk])
        return Merged(tuple(chunk), generation, parsed)

    def _distill_prompt(self, trajectory: Trajectory, texts: Mapping[int, str]) -> _Prompt | TooLong:
        turns = [(turn.observation, turn.action) for turn in trajectory.turns]
        kept = len(turns)
        while True:
            head, tail = turns[: (kept + 1) // 2], turns[len(turns) - kept // 2 :]
            ids = self._encode(
                "distill",
                instructions=self._instructions,
                description=trajectory.task.description,
                entries=[texts[entry] for entry in trajectory.entry_ids],
                turns=head + tail,
                final_observation=trajectory.final_observation,
                success=trajectory.success,
                reward=trajectory.reward,
                max_operations=self._config.max_operations,
            )
            if len(ids) <= self._prompt_limit:
                return _Prompt(ids, len(turns) - kept)
            if not kept:
                return TooLong(trajectory, len(ids), self._prompt_limit)
            kept = min(kept - 1, kept * self._prompt_limit // len(ids))

    def _answer_prompt(self, question: Question, entries: Sequence[str]) -> TokenIds | None:
        for kept in range(len(entries), -1, -1):
            ids = self._encode(
                "answer",
                instructions=self._instructions,
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
