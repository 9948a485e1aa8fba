"""Ray itself: started on this machine or joined where it runs, shared by the engines of a process, left when the last one closes."""

import os
import threading
from collections.abc import Sequence
from typing import Any

from complementary_rl.config import ClusterConfig, WorkersConfig
from complementary_rl.errors import UserError

_lock = threading.Lock()
_engines = 0
_ours = False


def connect(cluster: ClusterConfig) -> None:
    """Join Ray, or start it when `cluster.address` is None; to be undone by `disconnect`. Raises UserError when Ray is not installed or
    cannot be reached."""
    global _engines, _ours
    ray = _import_ray()
    with _lock:
        if not ray.is_initialized():
            _start(ray, cluster)
            _ours = True
        _engines += 1


def disconnect() -> None:
    """Leave Ray with the last engine that joined it; what somebody else started goes on."""
    global _engines, _ours
    with _lock:
        _engines -= 1
        if _engines == 0 and _ours:
            _import_ray().shutdown()
            _ours = False


def check_room(name: str, workers: WorkersConfig) -> None:
    """Raises UserError when Ray has not the resources of the processes of the model `name`, whoever uses them now."""
    import ray

    there: dict[str, float] = ray.cluster_resources()
    wanted = {
        "CPU": float(workers.train + workers.sample),
        "GPU": workers.train * workers.train_gpus + workers.sample * workers.sample_gpus,
    }
    for kind, count in wanted.items():
        if count > there.get(kind, 0.0):
            raise UserError(
                f"cluster.{name} asks for {count:g} {kind}s and Ray has {there.get(kind, 0.0):g} (one CPU for each process, and GPUs as "
                "train_gpus and sample_gpus say); lower them, or join a larger cluster with cluster.address"
            )


def _start(ray: Any, cluster: ClusterConfig) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # of all ranks that lose the same one the first has told enough
    # Ray's processes run at nice 15: beside any other work they would hardly run at all, and look hung.
    os.environ.setdefault("RAY_worker_niceness", "0")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if cluster.address is None:
        # Processes may well outnumber cores: what waits for another does not compute.
        processes = sum(_processes((cluster.actor, cluster.extractor)))
        cpus = max(os.cpu_count() or 1, processes)
        ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
        return
    try:
        ray.init(address=cluster.address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"cluster.address: Ray at {cluster.address} cannot be joined ({error}); start it with `ray start --head`, or leave it out"
        ) from error


def _processes(models: Sequence[WorkersConfig]) -> list[int]:
    return [workers.train + workers.sample for workers in models]


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "engine 'ray' needs Ray: `pip install 'complementary-rl[ray]'`, or set actor.engine and extractor.engine to 'local'"
        ) from error
    return ray
