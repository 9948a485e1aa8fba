"""Tasks that cannot fit a model's context are found before anything is trained."""

from collections.abc import Sequence

from complementary_rl.envs.protocol import Part
from complementary_rl.errors import UserError
from complementary_rl.experience.extractor import Extractor
from complementary_rl.rollout.runner import RolloutRunner


def check_actor_context(runner: RolloutRunner, parts: Sequence[Part], max_new_tokens: int) -> None:
    """Raises UserError when rules and description of a part's first task leave no room for an action of `max_new_tokens`.

    The observation comes on top, so that passing says nothing about later turns; an episode whose context is full ends there.
    """
    limit = runner.engine.max_context
    for part in parts:
        tokens = len(runner.opening(part.tasks[0], "", [], False))
        if tokens + max_new_tokens > limit:
            raise UserError(
                f"the first prompt of {part.name} has {tokens} tokens without its observation, an action may have "
                f"{max_new_tokens}, and the actor's context holds {limit}; raise actor.model.max_context, choose a model with more, or "
                "shorter actor.prompts"
            )


def check_extractor_context(extractor: Extractor, parts: Sequence[Part]) -> None:
    """Raises UserError when no episode of a part's first task could be read."""
    for part in parts:
        if (refusal := extractor.too_long(part.tasks[0])) is not None:
            raise UserError(f"the extractor cannot read episodes of {part.name}: {refusal}")
