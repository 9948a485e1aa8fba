"""The extractor's three jobs: distil finished episodes, merge chunks of the bank, answer questions. Each is one batched call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from complementary_rl.chat.codec import ChatCodec
from complementary_rl.config import ExtractorConfig
from complementary_rl.engines.protocol import Engine, SampleRequest, SamplingParams
from complementary_rl.errors import UserError
from complementary_rl.experience.operations import Parsed, parse_distillation, parse_merge
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


class Extractor:
    """Prompts, samples and parses with one engine. Every draw derives from `run_seed` and what it is for.

    `instructions` are the suite's rules, for prompt sets that quote them.
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
        new_tokens = min(config.sampling.max_new_tokens, engine.max_context // 2)
        self._params = SamplingParams(temperature=config.sampling.temperature, max_new_tokens=new_tokens)
        self._prompt_limit = engine.max_context - new_tokens

    async def distill(self, trajectories: Sequence[Trajectory], texts: Mapping[int, str]) -> list[Distilled]:
        """Read episodes (`texts`: entry id → text of what they were shown) and propose operations; one call, in order."""
        prompts = [self._distill_prompt(trajectory, texts) for trajectory in trajectories]
        ids = [f"d/{trajectory.id}" for trajectory in trajectories]
        generations = await self._sample(ids, [prompt for prompt, _ in prompts])
        return [
            Distilled(trajectory, generation, self._parse_distillation(trajectory, generation), cut)
            for trajectory, generation, (_, cut) in zip(trajectories, generations, prompts, strict=True)
        ]

    async def merge(self, chunks: Sequence[Sequence[Entry]], ids: Sequence[str]) -> list[tuple[Generation, Parsed]]:
        """Consolidate chunks of entries, one generation (named by `ids`) each."""
        prompts = [self._encode("merge", entries=list(chunk)) for chunk in chunks]
        generations = await self._sample(ids, prompts)
        return [
            (generation, parse_merge(self._codec.decode(generation.token_ids), targets=[entry.id for entry in chunk]))
            for chunk, generation in zip(chunks, generations, strict=True)
        ]

    async def answer(
        self, questions: Sequence[Question], entries: Sequence[Sequence[str]], max_new_tokens: int
    ) -> list[Generation]:
        """Answer questions from the entries found for each."""
        prompts = [
            self._encode(
                "answer",
                instructions=self._instructions,
                description=question.task.description,
                entries=list(found),
                observation=question.observation,
                question=question.question,
            )
            for question, found in zip(questions, entries, strict=True)
        ]
        params = SamplingParams(
            temperature=self._params.temperature, max_new_tokens=min(max_new_tokens, self._params.max_new_tokens)
        )
        return await self._sample([question.id for question in questions], prompts, params)

    def text(self, generation: Generation) -> str:
        """What a generation says."""
        return self._codec.decode(generation.token_ids).strip()

    async def _sample(
        self, ids: Sequence[str], prompts: Sequence[TokenIds], params: SamplingParams | None = None
    ) -> list[Generation]:
        requests = [
            SampleRequest(identity, prompt, derive_seed(self._run_seed, "extractor", identity))
            for identity, prompt in zip(ids, prompts, strict=True)
        ]
        return await self.engine.sample(requests, params or self._params) if requests else []

    def _parse_distillation(self, trajectory: Trajectory, generation: Generation) -> Parsed:
        return parse_distillation(
            self._codec.decode(generation.token_ids), targets=trajectory.entry_ids, max_operations=self._config.max_operations
        )

    def _distill_prompt(self, trajectory: Trajectory, texts: Mapping[int, str]) -> tuple[TokenIds, int]:
        """The prompt, with turns cut out of the middle until it fits, and how many were. Raises UserError when none fits."""
        turns = [(turn.observation, turn.action) for turn in trajectory.turns]
        kept = len(turns)
        while True:
            head, tail = turns[: (kept + 1) // 2], turns[len(turns) - kept // 2 :]
            prompt = self._encode(
                "distill",
                instructions=self._instructions,
                description=trajectory.task.description,
                entries=[(entry, texts[entry]) for entry in trajectory.entry_ids],
                turns=head + tail,
                final_observation=trajectory.final_observation,
                success=trajectory.success,
                reward=trajectory.reward,
                max_operations=self._config.max_operations,
            )
            if len(prompt) <= self._prompt_limit:
                return prompt, len(turns) - kept
            if not kept:
                raise UserError(
                    f"a distillation prompt without any turn has {len(prompt)} tokens and the extractor takes {self._prompt_limit}; "
                    "use a model with more context or lower extractor.sampling.max_new_tokens"
                )
            kept = min(kept - 1, kept * self._prompt_limit // len(prompt))

    def _encode(self, name: str, **variables: object) -> TokenIds:
        return self._codec.open([Message("user", self._prompts.render(name, **variables))])
