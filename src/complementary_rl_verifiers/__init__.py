"""Where verifiers finds the suites of complementary_rl: taskset ``complementary-rl-verifiers``; see `envs.adapters.as_verifiers`."""

from complementary_rl.envs.adapters.as_verifiers import SuiteEnv, SuiteTaskset

__all__ = ["SuiteEnv", "SuiteTaskset"]
