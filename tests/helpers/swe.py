"""What tests of the SWE suite share: whether sandboxes work here."""

import functools

import pytest

from complementary_rl.envs.swe.sandbox import require_bubblewrap
from complementary_rl.errors import UserError


@functools.cache
def _why_not() -> str:
    try:
        require_bubblewrap()
    except UserError as error:
        return str(error)
    return ""


needs_sandbox = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "sandboxes work here")
"""Skips, with the reason, where bubblewrap cannot run. Continuous integration installs no system packages, so it may skip there."""
