"""Books what calls have used, in a thread of its own.

So a call can end in any event loop, in any thread and in a finalizer, and also while the server is away.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .. import _fork
from .._sync.client import Limina
from .._wire import MOST_IN_A_BATCH, Request, encode, new_key, split_batch
from ..errors import LiminaError, Unavailable
from ..types import Hold
from ._metrics import Metrics
from ._tokens import Use

log = logging.getLogger("limina.litellm")
MOST_PENDING = 100_000
LATE_TTL = 3600
LONGEST_PAUSE = 2.0
LONGEST_CLOSE = 5.0


@dataclass(slots=True, eq=False)
class Settlement:
    """How a decision ends."""

    operation_id: str
    used: Callable[[], Use | None]
    """Computed in the thread of the settler, because counting tokens takes time. `None`: nothing was used, so it is rolled back."""
    hold_names: Sequence[str] = ()
    late: Late | None = None
    """For a call that passed without a decision."""
    done: Future[None] = field(default_factory=Future)

    def commit(self, use: Use) -> dict[str, Any]:
        # It has happened, so it is booked in any case: also past the estimate, and after the `ttl`.
        body = {"holds": [{"limit_name": name, "value": use.cost} for name in self.hold_names], "record": True}
        if self.late is None:
            body["checks"] = [{"name": "tokens", "hits": use.tokens}]
        return {"operation_id": self.operation_id, **{name: value for name, value in body.items() if value}}


@dataclass(frozen=True, slots=True)
class Late:
    """What a decision would have held and counted."""

    holds: Sequence[Hold]
    tokens_about: dict[str, Any]


class _Problem(msgspec.Struct):
    status: int
    code: str | None = None
    detail: str | None = None


class Settler:
    def __init__(self, client: Limina, metrics: Metrics) -> None:
        self._client = client
        self._metrics = metrics
        self._begin()
        _fork.watch(self)
        atexit.register(self.close)

    def _begin(self) -> None:
        # A finalizer may put something into this queue at any time, also while this thread does so.
        self._queue: queue.SimpleQueue[Settlement | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing: float | None = None

    def after_fork(self) -> None:
        """What the parent has not booked yet stays with the parent."""
        self._begin()

    def start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="limina-settler", daemon=True)
                self._thread.start()

    def submit(self, settlement: Settlement) -> None:
        """Never blocks, and never raises."""
        if self._queue.qsize() >= MOST_PENDING:
            self._metrics.count("settle_failed")
            _finish(settlement)
            return
        self._queue.put(settlement)

    def close(self) -> None:
        """Books what is waiting, for at most five seconds."""
        thread = self._thread
        if thread is not None and thread.is_alive():
            self._closing = time.monotonic() + LONGEST_CLOSE
            self._queue.put(None)
            thread.join(LONGEST_CLOSE)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first]
            while len(batch) < MOST_IN_A_BATCH and not self._queue.empty():
                following = self._queue.get()
                if following is None:
                    self._queue.put(None)
                    break
                batch.append(following)
            try:
                self._settle(batch)
            except Exception:  # Later calls still need this thread.
                log.exception("the use of %s calls was not booked", len(batch))
                self._metrics.count("settle_failed", len(batch))
            for settlement in batch:
                _finish(settlement)

    def _settle(self, batch: Sequence[Settlement]) -> None:
        uses = [(settlement, settlement.used()) for settlement in batch]
        decided = [(settlement, use) for settlement, use in uses if settlement.late is None]
        self._send("commit", [(settlement, settlement.commit(use)) for settlement, use in decided if use is not None])
        unused = [settlement for settlement, use in decided if use is None]
        self._send("rollback", [(settlement, {"operation_id": settlement.operation_id}) for settlement in unused])
        for settlement, use in uses:
            if settlement.late is not None and use is not None:
                self._book_late(settlement, settlement.late, use)

    def _send(self, how: str, pairs: Sequence[tuple[Settlement, dict[str, Any]]]) -> None:
        """Sends a batch until each item has an answer. A repeated item returns its first answer."""
        waiting = list(pairs)
        while waiting:
            again: list[tuple[Settlement, dict[str, Any]]] = []
            answers = self._until_it_is_there(functools.partial(self._ask, how, waiting))
            for pair, answer in zip(waiting, answers, strict=True):
                if answer.status >= 500:
                    again.append(pair)
                elif answer.status < 300 or how == "rollback":
                    self._metrics.count("settled")  # A decision that has already ended needs no rollback.
                    _finish(pair[0])
                else:
                    self._metrics.count("settle_failed")
                    log.error("the use of a call was not booked: %s: %s", answer.code, answer.detail)
            if again:
                self._metrics.count("settle_retries")
                self._pause(0.1)
            waiting = again

    def _ask(self, how: str, pairs: Sequence[tuple[Settlement, dict[str, Any]]]) -> list[_Problem]:
        namespace = self._client._namespace
        body = {"operations": [item for _, item in pairs]}
        request = Request("POST", namespace.path(f"decisions/{how}/batch"), encode(body), new_key(), repeatable=True)
        reply = namespace.transport.call(request)
        return [msgspec.json.decode(item.body, type=_Problem) for item in split_batch(reply, len(pairs))]

    def _book_late(self, settlement: Settlement, late: Late, use: Use) -> None:
        """Each step can be repeated: after a lost answer, the same request returns the first one."""
        # A hold of 0 always fits, and the actual amount is recorded past the ceiling.
        holds = [Hold(hold.limit_name, 0, ceiling=hold.ceiling) for hold in late.holds]
        costs = dict.fromkeys(settlement.hold_names, use.cost)
        client, name = self._client, settlement.operation_id
        steps: list[Callable[[], object]] = [
            lambda: client.check(late.tokens_about, use.tokens, report=True, idempotency_key=name),
        ]
        if holds:
            steps += [
                lambda: client.decide(name, holds=holds, create_missing=True, ttl=LATE_TTL, heartbeats=False),
                lambda: client.decisions.commit(name, holds=costs, record=True),
            ]
        try:
            for step in steps:
                self._until_it_is_there(step)
            self._metrics.count("settled_late")
        except LiminaError as error:
            self._metrics.count("settle_failed")
            log.error("a call that passed without a decision was not booked: %s", error)

    def _until_it_is_there(self, call: Callable[[], Any]) -> Any:
        for attempt in itertools.count():
            try:
                return call()
            except Unavailable as error:
                if attempt == 0:
                    log.warning("the use of calls cannot be booked now, and will be tried again: %s", error)
                self._metrics.count("settle_retries")
                self._pause(min(LONGEST_PAUSE, 0.1 * 2**attempt))
                if self._closing is not None and time.monotonic() > self._closing:
                    raise

    def _pause(self, seconds: float) -> None:
        time.sleep(seconds)


def _finish(settlement: Settlement) -> None:
    if not settlement.done.done():
        settlement.done.set_result(None)
