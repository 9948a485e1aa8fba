"""What each `run.method` switches on. The loops read these flags; no method has a loop of its own."""

from dataclasses import dataclass

from complementary_rl.config import Config, Method


@dataclass(frozen=True, slots=True)
class MethodFlags:
    """`guided`: share of a group's rollouts that are offered experience, None as `env.guided_share` says. `condition_wise`: each half
    has its own baseline (Eq 4/5)."""

    guided: float | None = None
    condition_wise: bool = True
    distil: bool = True
    train_actor: bool = True
    train_extractor: bool = True

    @property
    def experience(self) -> bool:
        """Whether the run has a bank at all."""
        return self.guided != 0

    @property
    def extractor(self) -> bool:
        """Whether the run needs the extractor model."""
        return self.distil or self.train_extractor


METHODS: dict[Method, MethodFlags] = {
    "complementary": MethodFlags(),
    "baseline": MethodFlags(guided=0.0, distil=False, train_extractor=False),
    "static_online": MethodFlags(train_extractor=False),
    "offline": MethodFlags(distil=False, train_extractor=False),
    "exp_only": MethodFlags(train_actor=False),
    "all_guided": MethodFlags(guided=1.0, condition_wise=False),
    "pooled": MethodFlags(condition_wise=False),
}


def guided_members(config: Config, step: int) -> int:
    """How many rollouts of each group are offered experience at an actor step.

    None is alone in its half, where it would have no baseline: one guided rollout becomes two, as does one free rollout, where a share on
    its way to 0 or 1 passes them.
    """
    size, fixed = config.env.group_size, METHODS[config.run.method].guided
    if fixed is not None:
        return round(size * fixed)
    first, last = config.env.guided_share, config.env.guided_share_end
    share = first if last is None else first + (last - first) * min(1.0, step / max(1, config.run.steps - 1))
    guided = round(size * share)
    return min(max(guided, 2), size - 2) if 0 < guided < size else guided
