"""Several vLLM servers that serve one version of one model to a run.

publish  ──► the new weights on every server, by a folder that it reads; if one refuses, the old ones again on those that had taken them
fault    ──► wait until the server is healthy, bring it to the version served now, send the request again: at most `fault_budget` times
"""

import threading
import time
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from complementary_rl.config import VllmConfig
from complementary_rl.engines.vllm.server import Server, ServerFault, UnknownModelError
from complementary_rl.errors import InfrastructureError, UserError

_POLL_SECONDS = 0.5
_PROBE_IDS = [5, 6, 7, 8]
_PROBE_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Weights:
    """One version: the folder it was written to, and the name that requests ask for."""

    version: int
    folder: Path
    model: str


class Serving:
    """The servers of `settings` for the model `name`, whose sequences have `max_context` tokens at most. `adapters`: what is published are
    PEFT adapters, loaded beside each other; else whole weights, which take the place of the server's.

    Threads may share it, but nothing may be sampled while `publish` runs: the owner sees to that.
    """

    def __init__(self, name: str, settings: VllmConfig, *, max_context: int, adapters: bool) -> None:
        self._name = name
        self._settings = settings
        self._max_context = max_context
        self._adapters = adapters
        self._servers = [Server(url, timeout=settings.timeout) for url in settings.urls]
        self._recovered = dict.fromkeys(self._servers, 0)
        """How often each was brought back: who sees a fault of before then need not do it again."""
        self._stale: set[Server] = set()
        """Those that may hold other weights than the ones served."""
        self._born: dict[Server, float | None] = {}
        self._lock = threading.Lock()
        self._served: Weights | None = None
        self._base = ""
        self._prefix = f"{name}-{uuid.uuid4().hex[:8]}"
        self._spent = 0
        self._told: list[str] = []

    def check(self) -> None:
        """Find out whether the servers can do what is asked of them. Raises UserError when one cannot, or is not there."""
        for server in self._servers:
            try:
                cards = server.get("/v1/models")["data"]
                base = next(card for card in cards if card.get("parent") is None)
                self._base = base["id"]
                self._check_logprobs(server)
                if not self._adapters and server.born() is None:
                    self._tell(
                        f"{server.url} does not tell when it began (/metrics): a restart between two requests would go unseen"
                    )
            except (ServerFault, ValueError, LookupError, StopIteration, TypeError) as error:
                raise UserError(f"{self._name}.vllm: {server.url} cannot be used as a vLLM server: {error}") from error
            if (held := base.get("max_model_len")) is not None and held < self._max_context:
                raise UserError(
                    f"{self._name}.vllm: {server.url} holds sequences of {held} tokens, the model is used with {self._max_context}: start "
                    f"it with --max-model-len {self._max_context}, or lower {self._name}.model.max_context"
                )

    def complete(self, key: str, body: dict[str, Any]) -> dict[str, Any]:
        """The choice that the weights served now make for a completions request. Requests with one `key` go to one server, whose prefix
        cache knows them. Raises ValueError for a request the server refuses, InfrastructureError when the fault budget is spent."""
        server = self._servers[zlib.crc32(key.encode()) % len(self._servers)]
        while True:
            assert self._served is not None
            seen = self._recovered[server]
            try:
                if server in self._stale:
                    raise ServerFault(f"{server.url} was started again, or left with other weights")
                answer = server.post("/v1/completions", {"model": self._served.model, **body})
                choice: dict[str, Any] = answer["choices"][0]
                return choice
            except (ServerFault, UnknownModelError) as error:
                self._recover(server, error, seen)
            except (LookupError, TypeError) as error:
                self._recover(server, ServerFault(f"{server.url} answered without a choice"), seen, cause=error)

    def look_for_restarts(self) -> None:
        """Notice servers that were started again since they got the weights: they hold those of the start, and would not tell. (One that
        lost its adapters tells.)"""
        if self._adapters:
            return
        for server in self._servers:
            try:
                if server.born() != self._born[server]:
                    self._stale.add(server)
            except (ServerFault, ValueError):  # the requests to come meet the same
                self._stale.add(server)

    def publish(self, folder: Path, version: int) -> None:
        """Serve what is in `folder`. Raises InfrastructureError or ValueError with the old version on every server that answers; before
        anything was published, UserError."""
        old, new = self._served, Weights(version, folder, f"{self._prefix}-{folder.name}" if self._adapters else self._base)
        for server in self._servers:
            try:
                self._bring(server, new)
            except (ValueError, InfrastructureError) as error:
                if old is None:
                    raise UserError(f"{self._name}.vllm: {server.url} does not take weights: {error}. {self._remedy()}") from error
                self._return_to(old)
                raise
        self._served = new
        if old is not None:
            self._forget(old)

    def close(self) -> None:
        """Take what was loaded beside the base model off the servers again, as far as they still answer."""
        if self._served is not None:
            self._forget(self._served)

    def take_events(self) -> list[str]:
        """What was done about faults since the last call."""
        with self._lock:
            told, self._told = self._told, []
        return told

    def _bring(self, server: Server, weights: Weights) -> None:
        while True:
            seen = self._recovered[server]
            try:
                self._load(server, weights)
                return
            except ServerFault as error:
                self._recover(server, error, seen)

    def _load(self, server: Server, weights: Weights) -> None:
        if not self._adapters:
            call = {"method": "reload_weights", "kwargs": {"weights_path": str(weights.folder)}, "timeout": self._settings.timeout}
            self._born[server] = server.born()
            server.post("/collective_rpc", call)
            server.post("/reset_prefix_cache")
        elif weights.model not in {card["id"] for card in server.get("/v1/models")["data"]}:
            server.post("/v1/load_lora_adapter", {"lora_name": weights.model, "lora_path": str(weights.folder)})

    def _return_to(self, old: Weights) -> None:
        for server in self._servers:
            try:
                self._load(server, old)
            except (ServerFault, ValueError) as error:
                self._stale.add(server)
                self._tell(f"{server.url} could not be brought back to version {old.version}: {error}")

    def _forget(self, weights: Weights) -> None:
        for server in self._servers if self._adapters else ():
            try:
                server.post("/v1/unload_lora_adapter", {"lora_name": weights.model})
            except (ServerFault, ValueError) as error:  # an adapter too many costs memory, nothing else
                self._tell(f"{server.url} keeps version {weights.version}: {error}")

    def _recover(self, server: Server, fault: Exception, seen: int, *, cause: Exception | None = None) -> None:
        """Bring a server back to what is served now; of those who met the same fault, one does it and the others wait."""
        with self._lock:
            if self._recovered[server] > seen:
                return
            start = time.monotonic()
            while True:
                if self._spent >= self._settings.fault_budget:
                    raise InfrastructureError(
                        f"the vLLM servers of the {self._name} failed {self._spent + 1} times, more than {self._name}.vllm.fault_budget = "
                        f"{self._settings.fault_budget}; the last: {fault}. Continue from the last checkpoint with --resume"
                    ) from (cause or fault)
                self._spent += 1
                try:
                    self._await_health(server)
                    if self._served is not None:
                        self._load(server, self._served)
                except ServerFault as another:
                    fault = another
                    continue
                break
            self._stale.discard(server)
            self._recovered[server] += 1
            self._told.append(
                f"{fault}; asked again after {time.monotonic() - start:.1f} s ({self._spent} of {self._settings.fault_budget})"
            )

    def _await_health(self, server: Server) -> None:
        deadline = time.monotonic() + self._settings.restart_timeout
        while True:
            try:
                server.get("/health")
                return
            except (ServerFault, ValueError) as error:
                if time.monotonic() > deadline:
                    raise ServerFault(f"{error}, for {self._settings.restart_timeout:g} s") from error
            time.sleep(_POLL_SECONDS)

    def _check_logprobs(self, server: Server) -> None:
        """Whether log-probs are of the distribution that is sampled from: they must change with the temperature."""
        ask = {"model": self._base, "prompt": _PROBE_IDS, "max_tokens": 1, "logprobs": 3, "seed": 0, "return_token_ids": True}
        ones, twos = (server.post("/v1/completions", {**ask, "temperature": t})["choices"][0] for t in (1.0, 2.0))
        if len(ones.get("token_ids") or ()) != 1:
            raise ValueError("it does not return token ids; vLLM 0.10.2 and later do")
        # The likeliest tokens, at both temperatures in this order; without the processed log-probs also with these values.
        first, second = (sorted(c["logprobs"]["top_logprobs"][0].values(), reverse=True) for c in (ones, twos))
        if all(abs(a - b) < _PROBE_TOLERANCE for a, b in zip(first[:3], second[:3], strict=True)):
            raise ValueError("its log-probs leave the temperature out; start it with --logprobs-mode processed_logprobs")

    def _remedy(self) -> str:
        if self._adapters:
            return (
                "Start it with --enable-lora, a --max-lora-rank not below model.lora.rank, and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
            )
        return f"Start it with VLLM_SERVER_DEV_MODE=1, and let it see {self._name}.vllm.exchange under the same path"

    def _tell(self, message: str) -> None:
        with self._lock:
            self._told.append(message)
