"""An issue as somebody would report it who saw tests fail: what was tried and what came out, and nothing of the package's source."""

import re
from collections.abc import Sequence

from complementary_rl.envs.swe.grading import TestResult
from complementary_rl.envs.swe.tasks import is_test

_FRAME = re.compile(r"^(\S+\.py):\d+: in (\S+)\n", re.MULTILINE)
# Another in every run; the same recipe is to make the same tasks.
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")
_SHOWN_TESTS = 3
_SHOWN_LINES = 12
_LONGEST_LINE = 200


def write_issue(package: str, failures: Sequence[TestResult]) -> str:
    """The text of an issue about `failures`, which are not empty."""
    names = list(dict.fromkeys(_test(failure) for failure in failures))
    fail = f"and {len(names) - 1} more fail" if len(names) > 1 else "fails"
    title = f"{names[0]} {fail}: {_cause(failures[0])}"
    chosen = {_test(failure): failure for failure in reversed(failures)}
    shown = [f"{name}:\n{_what_happened(chosen[name])}" for name in names[:_SHOWN_TESTS]]
    seen = "\n\n".join(shown)
    return f"{title[:_LONGEST_LINE]}\n\n{package} used to do this right, and does not any more. What the tests see:\n\n{seen}"


def _test(failure: TestResult) -> str:
    return failure.name.partition("[")[0].rpartition("::")[2]


def _errors(text: str) -> list[str]:
    return [_ADDRESS.sub("0x…", line[1:].strip())[:_LONGEST_LINE] for line in text.splitlines() if line.startswith("E ")]


def _cause(failure: TestResult) -> str:
    return next(iter(_errors(failure.detail)), "it does not pass")


def _what_happened(failure: TestResult) -> str:
    """The test's own statements, then what pytest says of the error."""
    parts = _FRAME.split(failure.detail)
    statements = [
        line.strip()
        for path, text in zip(parts[1::3], parts[3::3], strict=True)
        if is_test(path)
        for line in text.splitlines()
        if line.strip(" ^~") and not line.startswith("E ")
    ]
    lines = [*(f"    {line[:_LONGEST_LINE]}" for line in statements), *(f"    {line}" for line in _errors(failure.detail))]
    return "\n".join(lines[:_SHOWN_LINES])
