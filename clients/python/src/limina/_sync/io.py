"""What differs between threads and asyncio: sleeping, state that belongs to a process, batches.

`_async/io.py` has the same names for asyncio.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from .. import _fork
from .._wire import MOST_IN_A_BATCH, Reply
from ..errors import LiminaError, Unavailable

T = TypeVar("T")

sleep = time.sleep


class Local(Generic[T]):
    """A value for each process: connections must not be shared with a forked child."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._value: T | None = None
        _fork.watch(self)

    def get(self) -> T:
        if self._value is None:
            with self._lock:
                if self._value is None:
                    self._value = self._make()
        return self._value

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._value = None


def in_thread(work: Callable[[], T]) -> T:
    """Runs blocking work. Here the caller's thread may block."""
    return work()


def Listener(listener: Callable[[], None]) -> Callable[[], None]:
    """A listener for heartbeats. It is called in the thread that sends them."""
    return listener


class _Waiting:
    """A call in the queue. Its thread sleeps until there is an outcome, or until it has to send the next batch."""

    def __init__(self, item: bytes) -> None:
        self.item = item
        self.wake = threading.Event()
        self.outcome: Reply | LiminaError | None = None
        self.leads = False
        self.sent = False


class Batcher:
    """Sends an item at once if none is in flight. Items that arrive meanwhile travel together in the next request.

    There is no thread in the background: the thread whose request is answered wakes the first one in the queue, which then sends
    the whole queue.
    """

    def __init__(self, send: Callable[[list[bytes]], list[Reply | LiminaError]], timeout: float) -> None:
        self._send = send
        self._timeout = timeout
        self.accepted = 0
        """How many items were ever submitted."""
        self._lock = threading.Lock()
        self._in_flight = False
        self._queue: deque[_Waiting] = deque()

    def submit(self, item: bytes) -> Reply:
        with self._lock:
            self.accepted += 1
            alone = not self._in_flight
            if alone:
                self._in_flight = True
            else:
                waiting = _Waiting(item)
                self._queue.append(waiting)
                batch = self._take() if len(self._queue) >= MOST_IN_A_BATCH else []
        outcome: Reply | LiminaError | None
        if alone:
            try:
                (outcome,) = self._send([item])
            finally:
                self._land()
        else:
            batch = batch or self._sleep(waiting)
            if batch:
                self._fly(batch, lands=waiting.leads)
            if waiting.outcome is None:  # Sent by another thread.
                waiting.wake.wait()
            outcome = waiting.outcome
        assert outcome is not None
        if isinstance(outcome, LiminaError):
            raise outcome
        return outcome

    def _sleep(self, waiting: _Waiting) -> list[_Waiting]:
        """Sleeps until the call has an outcome, or has to send the batch that is returned."""
        try:
            waiting.wake.wait(self._timeout)
            with self._lock:
                if waiting.leads:
                    batch = self._take()
                    if not batch:  # A full batch has left in between, with this call in it.
                        self._in_flight = False
                    waiting.wake.clear()
                    return batch
                if waiting.outcome is None and not waiting.sent:
                    self._queue.remove(waiting)
                    waiting.outcome = Unavailable("no request could be sent in time", done="no")
            return []
        except BaseException:  # KeyboardInterrupt: the others must not wait for this thread.
            with self._lock:
                if not waiting.sent:
                    self._queue.remove(waiting)
                lands = waiting.leads
            if lands:
                self._land()
            raise

    def _take(self) -> list[_Waiting]:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), MOST_IN_A_BATCH))]
        for waiting in batch:
            waiting.sent = True
        return batch

    def _fly(self, batch: list[_Waiting], *, lands: bool) -> None:
        outcomes: list[Reply | LiminaError] = [Unavailable("the request was interrupted", done="unknown") for _ in batch]
        try:
            outcomes = self._send([waiting.item for waiting in batch])
        finally:
            for waiting, outcome in zip(batch, outcomes, strict=True):
                waiting.outcome = outcome
                waiting.wake.set()
            if lands:
                self._land()

    def _land(self) -> None:
        with self._lock:
            if self._queue:
                self._queue[0].leads = True
                self._queue[0].wake.set()
            else:
                self._in_flight = False
