"""The extractor's loop: Eq 3 with the weights of Eq 7 whenever |Bφ| credited generations have gathered."""

from typing import Any

from complementary_rl.config import ExtractorConfig
from complementary_rl.engines.protocol import Engine, LossTerm
from complementary_rl.experience.manager import ExperienceManager
from complementary_rl.objectives.cispo import CispoLoss, cispo_samples
from complementary_rl.training.optim import optim_params


async def extractor_update(
    engine: Engine, manager: ExperienceManager, config: ExtractorConfig, *, update: int
) -> dict[str, Any] | None:
    """One extractor update, or None while the buffer holds fewer than `config.batch_size` fresh credited generations.

    Generations more than `config.max_staleness` versions old are dropped and counted by the buffer.
    """
    batch = manager.take_extractor_batch(engine.version, update=update)
    if batch is None:
        return None
    samples = cispo_samples(
        batch,
        retrain_gap=config.retrain_gap,
        retrain_alpha=config.retrain_alpha,
        update=update,
        negative_scale=config.negative_scale,
        weighted_mean=config.weighted_mean,
    )
    loss = CispoLoss(
        config.clip_low, config.clip_high, kl_coefficient=config.kl_coefficient, entropy_coefficient=config.entropy_coefficient
    )
    metrics = await engine.update([LossTerm("extractor", samples, loss)], optim_params(config.optim))
    manager.mark_trained([item.generation.id for item in batch], update=update)
    version = await engine.publish()
    credits = [item.credit for item in batch]
    return {
        **metrics,
        "version": version,
        "credit": sum(credits) / len(credits),
        "negative_share": sum(credit < 0 for credit in credits) / len(credits),
        "lag": sum(version - 1 - item.generation.version for item in batch) / len(batch),
    }
