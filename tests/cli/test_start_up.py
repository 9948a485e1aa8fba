"""`crl` answers at once: no command loads a model's library to explain itself."""

import os
import resource
import subprocess
import sys

import pytest

COMMANDS = [
    [],
    *([name] for name in ("quickstart", "train", "eval", "report", "export", "configs", "bank", "envs")),
    *(["bank", name] for name in ("ls", "show", "search", "history", "log", "revert", "export", "import")),
    *(["envs", name] for name in ("ls", "check", "play")),
]
HEAVY = ("torch", "transformers", "nle", "minihack", "matplotlib", "sentence_transformers", "numpy")
PROGRAM = """
import sys
from complementary_rl.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print("LOADED", *(name for name in {heavy!r} if name in sys.modules))
"""
LIMIT = 0.5


def ask_for_help(command: list[str]) -> tuple[str, float]:
    """The output and the seconds of processor time: what does not depend on who else is using the machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "COLUMNS": "160"}
    arguments = [sys.executable, "-c", PROGRAM.format(heavy=HEAVY), *command, "--help"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("command", COMMANDS, ids=[" ".join(command) or "crl" for command in COMMANDS])
def test_help_is_quick_and_loads_nothing_heavy(command: list[str]) -> None:
    seconds = []
    for _ in range(3):
        output, taken = ask_for_help(command)
        assert "Usage:" in output
        assert output.splitlines()[-1].strip() == "LOADED"
        seconds.append(taken)
        if taken < LIMIT:
            return
    raise AssertionError(f"crl {' '.join(command)} --help took {min(seconds):.2f} s")
