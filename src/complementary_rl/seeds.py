"""Random state from identity: every seed is a hash of *what* it is for, so the order of completion cannot change results."""

import hashlib

import numpy as np


def derive_seed(*identity: str | int) -> int:
    """Hash an identity such as ``(run_seed, "episode", task_id, group, member, turn)`` to an unsigned 63-bit seed.

    Strings and integers are kept apart (``1`` and ``"1"`` differ) and so are boundaries (``("a", "b")`` and ``("ab",)``).
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in identity:
        encoded = f"{type(part).__name__}:{part}".encode()
        digest.update(len(encoded).to_bytes(4, "little"))
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "little") >> 1


def rng(*identity: str | int) -> np.random.Generator:
    """A NumPy generator (Philox, counter-based) for an identity; see `derive_seed`."""
    return np.random.Generator(np.random.Philox(derive_seed(*identity)))
