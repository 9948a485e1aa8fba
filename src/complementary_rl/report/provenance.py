"""Where numbers come from: the command, the commit, the machine."""

import os
import platform
import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from complementary_rl import __version__

_GIT_SECONDS = 10


class Machine(BaseModel):
    """The machine a run was made on. `memory_gb` is None where the system does not tell."""

    model_config = ConfigDict(frozen=True)

    system: str
    processor: str
    cores: int
    memory_gb: float | None
    python: str
    torch: str | None
    accelerators: tuple[str, ...] = ()


class Provenance(BaseModel):
    """How to make a run again. `commit` is None when the package is not a git checkout; it ends in "+" when files had been changed."""

    model_config = ConfigDict(frozen=True)

    command: str
    version: str
    commit: str | None
    seed: int
    config_hash: str
    machine: Machine

    @classmethod
    def current(cls, command: str, seed: int, config_hash: str) -> "Provenance":
        """Of this process."""
        return cls(
            command=command,
            version=__version__,
            commit=current_commit(),
            seed=seed,
            config_hash=config_hash,
            machine=current_machine(),
        )


def current_commit() -> str | None:
    """The commit of the checkout this package runs from, or None."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1]
    if not (checkout / ".git").exists() or package != checkout / "src" / "complementary_rl":
        return None
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return commit and commit + ("+" if changed else "")


def current_machine() -> Machine:
    """This machine. Torch and its accelerators are named if torch is loaded; it is not imported for this."""
    torch = sys.modules.get("torch")
    accelerators = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch is not None else []
    return Machine(
        system=f"{platform.system()} {platform.machine()}",
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_gb=_memory_gb(),
        python=platform.python_version(),
        torch=str(torch.__version__) if torch is not None else None,
        accelerators=tuple(accelerators),
    )


def peak_memory_gb() -> float | None:
    """The most resident memory this process has had, in GB (10⁹ bytes); None on systems that do not tell."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e9 if sys.platform == "darwin" else peak * 1024 / 1e9


def _git(checkout: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(checkout), *arguments], capture_output=True, text=True, timeout=_GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None
