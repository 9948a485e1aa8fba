"""Making what was written survive a power loss."""

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """fsync a file or a directory (after a rename in it)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
