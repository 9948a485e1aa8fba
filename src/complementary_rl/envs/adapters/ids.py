"""Ids of environments that other packages register."""

import difflib
from collections.abc import Iterable

from complementary_rl.errors import UserError


def check_id(package: str, id: str, known: Iterable[str]) -> None:
    """Raise UserError, with the nearest one, unless `id` is among those that `package` knows."""
    names = sorted(known)
    if id not in names:
        near = difflib.get_close_matches(id, names, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {len(names)}, such as {', '.join(names[:3])}"
        raise UserError(f"{package} has no environment {id!r}: {hint}")
