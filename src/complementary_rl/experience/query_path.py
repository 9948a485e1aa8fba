"""The query path of the asynchronous schedule: micro-batches across concurrent callers, searched by a few threads.

    retrieve ─┐ gather until B queries      ┌─→ thread 1 ─┐ cache → one embedding call → snapshot of the index → product → Eq 6
    retrieve ─┼─ or t_max, what is first ─→ ready         ├─→ lock: count, texts ─→ each caller its own
    retrieve ─┘                             └─→ thread W ─┘
        └── deadline: None, and the rollout is free

A thread that becomes free takes all that is ready, up to `_MOST` queries: under load batches grow by themselves and nobody waits for t_max.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from complementary_rl.config import RetrievalConfig
from complementary_rl.experience.bank import Bank, Query, Retrieved
from complementary_rl.experience.tally import Tally

Hands = list[list[Retrieved]]
"""The sets of one query."""

_MOST = 512
"""Queries searched at once. More would make the first caller wait for the last and leave the other threads without work."""


@dataclass(slots=True, eq=False)
class _Request:
    """One caller. `answer` is done early when it is cancelled, or None when it is late."""

    queries: Sequence[Query]
    step: int
    answer: "asyncio.Future[list[Hands] | None]"
    deadline: float


class QueryPath:
    """Training's retrieval for many callers of one event loop. Threads start with the first query; `close` ends them."""

    def __init__(self, bank: Bank, config: RetrievalConfig, tally: Tally) -> None:
        self._bank = bank
        self._config = config
        self._tally = tally
        self._awaited: deque[_Request] = deque()
        """In order of their deadlines; those answered out of turn leave when they come to the front."""
        self._alarm: asyncio.TimerHandle | None = None
        """One for all: a timer per caller costs more than the rest of its way in and out."""
        self._gathering: list[_Request] = []
        self._gathered = 0
        self._flushing: asyncio.Handle | None = None
        self._ready: deque[_Request] = deque()
        self._searching = 0
        self._threads = ThreadPoolExecutor(config.searches, thread_name_prefix="retrieval")

    async def retrieve(self, queries: Sequence[Query], step: int) -> list[Hands] | None:
        """`Bank.retrieve` with ``training=True``, or None when it takes longer than `retrieval.timeout` seconds.

        A caller that is cancelled or late takes nobody with it, and what it would have been shown is not counted unless the search was
        just over. Raises what the embedder or the bank raised.
        """
        loop = asyncio.get_running_loop()
        request = _Request(queries, step, loop.create_future(), loop.time() + self._config.timeout)
        self._awaited.append(request)
        if self._alarm is None:
            self._alarm = loop.call_at(request.deadline, self._give_up)
        self._gather(request)
        try:
            return await request.answer
        finally:
            self._forget_answered()

    def close(self) -> None:
        """Wait for the searches that are running and end the threads. Idempotent."""
        self._threads.shutdown(cancel_futures=True)

    def _forget_answered(self) -> None:
        while self._awaited and self._awaited[0].answer.done():
            self._awaited.popleft()
        if not self._awaited and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _give_up(self) -> None:
        """At the deadline of the oldest request. All have the same time, so the next one due is the next in line."""
        loop = asyncio.get_running_loop()
        self._alarm = None
        while self._awaited:
            request = self._awaited[0]
            if not request.answer.done():
                if request.deadline > loop.time():
                    self._alarm = loop.call_at(request.deadline, self._give_up)
                    return
                self._tally.count("retrievals_late", len(request.queries))
                request.answer.set_result(None)
            self._awaited.popleft()

    def _gather(self, request: _Request) -> None:
        before = self._gathered
        self._gathering.append(request)
        self._gathered += len(request.queries)
        loop = asyncio.get_running_loop()
        if before < self._config.batch_size <= self._gathered:
            if self._flushing is not None:
                self._flushing.cancel()
            self._flushing = loop.call_soon(self._flush)  # who asks in the same turn of the event loop comes along
        elif self._flushing is None:
            self._flushing = loop.call_later(self._config.max_wait, self._flush)

    def _flush(self) -> None:
        """What was gathered is a micro-batch."""
        self._flushing = None
        self._ready.extend(self._gathering)
        self._gathering.clear()
        self._gathered = 0
        self._start_searches()

    def _start_searches(self) -> None:
        while self._ready and self._searching < self._config.searches:
            batch = self._take()
            if batch:
                self._searching += 1
                loop = asyncio.get_running_loop()
                search = loop.run_in_executor(self._threads, self._search, batch)
                search.add_done_callback(lambda done, batch=batch: self._deliver(batch, done))  # type: ignore[misc]

    def _take(self) -> list[_Request]:
        """The next requests that somebody still waits for: one of any size, or several of one step with `_MOST` queries in all."""
        batch: list[_Request] = []
        size = 0
        while self._ready:
            request = self._ready[0]
            if not request.answer.done():
                size += len(request.queries)
                if batch and (size > _MOST or request.step != batch[0].step):
                    break
                batch.append(request)
            self._ready.popleft()
        return batch

    def _search(self, batch: Sequence[_Request]) -> list[tuple[_Request, list[Hands]]]:
        """In a thread. A request that is given up while the search runs is not counted."""
        queries = [query for request in batch for query in request.queries]
        step = batch[0].step
        chosen = iter(self._bank.choose(queries, step=step, retrieval=self._config, training=True))
        found = [(request, [next(chosen) for _ in request.queries]) for request in batch]
        awaited = [(request, choices) for request, choices in found if not request.answer.done()]
        hands = iter(
            self._bank.hand_out(
                [query for request, _ in awaited for query in request.queries],
                [choice for _, choices in awaited for choice in choices],
                step=step,
                training=True,
            )
        )
        return [(request, [next(hands) for _ in request.queries]) for request, _ in awaited]

    def _deliver(self, batch: Sequence[_Request], search: "asyncio.Future[list[tuple[_Request, list[Hands]]]]") -> None:
        self._searching -= 1
        if search.cancelled():  # closed meanwhile
            return
        self._start_searches()
        self._tally.observe("queries_per_search", sum(len(request.queries) for request in batch))
        error = search.exception()
        if error is not None:
            for request in batch:
                if not request.answer.done():
                    request.answer.set_exception(error)
            return
        for request, hands in search.result():
            if not request.answer.done():
                request.answer.set_result(hands)
