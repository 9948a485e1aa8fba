"""How a call to a process ends, and how often it may end badly; with processes that hold nothing."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from complementary_rl.config import ClusterConfig, WorkersConfig
from complementary_rl.errors import InfrastructureError, UserError

ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]

from complementary_rl.engines.ray.calls import HEALTH, Patience, Worker, WorkerFault  # noqa: E402
from complementary_rl.engines.ray.connection import check_room, connect, disconnect  # noqa: E402
from complementary_rl.engines.ray.recovery import Recoveries  # noqa: E402


class Idler:
    """Does nothing, or what it should not."""

    def ping(self) -> tuple[str, int]:
        return ray.get_runtime_context().get_node_id(), os.getpid()

    def work(self, fault: str) -> str:
        if fault == "dead":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hung":
            os.kill(os.getpid(), signal.SIGSTOP)  # another thread may take the signal while this one goes on
        if fault in {"hung", "slow"}:
            time.sleep(30)
        if fault == "lonely":
            raise RuntimeError("Connection closed by peer")
        if fault == "data":
            raise UserError("such data cannot be")
        return "done"


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    connect(ClusterConfig(actor=WorkersConfig(train=2, sample=2)))
    yield
    disconnect()
    assert not ray.is_initialized()


@pytest.fixture
def worker(cluster: None) -> Iterator[Worker]:
    made = Worker("idler", ray.remote(num_cpus=1, max_restarts=0, concurrency_groups={HEALTH: 1})(Idler).remote())
    Patience(240, 60).meet([made])
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("fault", "patience", "message"),
    [
        ("dead", Patience(240, 60), "idler is gone"),
        ("hung", Patience(240, 4), "gave no sign of life for 4 s"),
        ("slow", Patience(3, 60), "took longer than 3 s"),
        ("lonely", Patience(240, 60), "lost the others .*closed by peer"),
    ],
)
def test_faults_of_processes_are_told_apart(worker: Worker, fault: str, patience: Patience, message: str) -> None:
    with pytest.raises(WorkerFault, match=message) as raised:
        patience.all({worker: worker.call("work", fault)})
    worker.kill(raised.value)
    assert worker.home is not None
    deadline = time.monotonic() + 60
    while alive(worker.home[1]):
        assert time.monotonic() < deadline, "its memory and its GPU would be lost"
        time.sleep(0.05)


def test_faults_of_data_come_as_they_were_raised(worker: Worker) -> None:
    with pytest.raises(UserError, match=r"^such data cannot be$"):
        Patience(240, 60).all({worker: worker.call("work", "data")})
    assert Patience(240, 60).all({worker: worker.call("work", "")}) == ["done"]


def test_the_budget_of_faults_ends() -> None:
    recoveries = Recoveries("actor", 1)
    fault = WorkerFault(Worker("actor sampler 0", None), "is gone")
    recoveries.spend(fault)
    recoveries.tell(fault, "sampler replaced", 2.0)
    assert recoveries.take() == ["actor sampler 0 is gone; sampler replaced in 2.0 s (1 of 1)"]
    assert recoveries.take() == []
    with pytest.raises(InfrastructureError, match=r"cluster\.fault_budget = 1; the last: actor sampler 0 is gone"):
        recoveries.spend(fault)


def test_what_ray_has_no_room_for_is_refused(cluster: None) -> None:
    check_room("actor", WorkersConfig(train=2, sample=2))
    with pytest.raises(UserError, match=r"cluster\.actor asks for 1 GPUs and Ray has 0"):
        check_room("actor", WorkersConfig(sample_gpus=1.0))


def alive(pid: int) -> bool:
    import psutil

    known: Any = psutil.pid_exists(pid) and psutil.Process(pid).status()
    return bool(known) and known != psutil.STATUS_ZOMBIE
