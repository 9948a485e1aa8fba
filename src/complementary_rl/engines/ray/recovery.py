"""How many dead or hung processes of a model a run survives, and what is told about them."""

import threading

from complementary_rl.engines.ray.calls import WorkerFault
from complementary_rl.errors import InfrastructureError


class Recoveries:
    """`limit` restarts for the model `name`. Threads may share it."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._spent = 0
        self._told: list[str] = []
        self._lock = threading.Lock()

    def spend(self, fault: WorkerFault) -> None:
        """Take one restart. Raises InfrastructureError when none is left."""
        with self._lock:
            if self._spent == self._limit:
                raise InfrastructureError(
                    f"processes of the {self._name} failed {self._spent + 1} times, cluster.fault_budget = {self._limit}; the last: "
                    f"{fault}. Continue from the last checkpoint with --resume"
                ) from fault
            self._spent += 1

    def tell(self, fault: WorkerFault, what: str, seconds: float) -> None:
        """Note what was done about a fault."""
        with self._lock:
            self._told.append(f"{fault}; {what} in {seconds:.1f} s ({self._spent} of {self._limit})")

    def take(self) -> list[str]:
        """What was noted since the last call."""
        with self._lock:
            told, self._told = self._told, []
        return told
