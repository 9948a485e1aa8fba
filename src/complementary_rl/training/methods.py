"""What each `run.method` switches on. The loops read these flags; no method has a loop of its own."""

from dataclasses import dataclass

from complementary_rl.config import Method


@dataclass(frozen=True, slots=True)
class MethodFlags:
    """`guided`: share of a group's rollouts that are offered experience. `condition_wise`: each half has its own baseline (Eq 4/5)."""

    guided: float = 0.5
    condition_wise: bool = True
    distil: bool = True
    train_actor: bool = True
    train_extractor: bool = True

    @property
    def experience(self) -> bool:
        """Whether the run has a bank at all."""
        return self.guided > 0

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
