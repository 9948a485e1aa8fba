"""Episodes on MiniHack levels, opened by name and closed with the test, and what their observations show."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from complementary_rl.envs.registry import make_suite


class Start(Protocol):
    def __call__(self, level: str, task: int = 0, seed: int = 0, **options: Any) -> tuple[Any, str]:
        """Open an episode of `minihack/<level>`: (environment, observation)."""
        ...


@contextmanager
def episodes() -> Iterator[Start]:
    with ExitStack() as stack:

        def start(level: str, task: int = 0, seed: int = 0, **options: Any) -> tuple[Any, str]:
            suite = make_suite(f"minihack/{level}", **options)
            env = suite.make_env()
            stack.callback(env.close)
            return env, env.reset(suite.tasks("train")[task], seed)[0]

        yield start


def drawn(observation: str) -> list[str]:
    """The lines of the map."""
    lines = observation.splitlines()
    return lines[lines.index("Map (north is up):") + 1 : next(i for i, line in enumerate(lines) if line.startswith("Legend: "))]
