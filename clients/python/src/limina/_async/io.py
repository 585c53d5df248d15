"""What differs between asyncio and threads: sleeping, state that belongs to an event loop, acquiring, batches.

`_sync/io.py` has the same names for threads.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from .. import _fork
from .._wire import MOST_IN_A_BATCH, Reply
from ..errors import LiminaError, Unavailable

T = TypeVar("T")

sleep = asyncio.sleep


class AsyncLocal(Generic[T]):
    """A value for each event loop: connections belong to the loop that opened them."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: dict[asyncio.AbstractEventLoop, T] = {}
        _fork.watch(self)

    def get(self) -> T:
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            # Connections refer to their loop, so weak references would keep both.
            for ended in [known for known in list(self._values) if known.is_closed()]:
                self._values.pop(ended, None)
            value = self._values[loop] = self._make()
        return value

    def after_fork(self) -> None:
        self._values = {}


async def in_thread(work: Callable[[], T]) -> T:
    """Runs blocking work without blocking the event loop."""
    return await asyncio.to_thread(work)


class AsyncListener:
    """Calls a listener in the event loop that it was made in: heartbeats run in other threads."""

    def __init__(self, listener: Callable[[], None]) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody is left to be told.
            self._loop.call_soon_threadsafe(self._listener)


class AsyncGuarded(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


G = TypeVar("G", bound=AsyncGuarded)


class Acquiring(Generic[G]):
    """A guard that is being acquired: `async with client.lock(…) as lock`, or `lock = await client.lock(…)`."""

    def __init__(self, acquire: Coroutine[Any, Any, G]) -> None:
        self._acquire = acquire

    def __await__(self) -> Generator[Any, None, G]:
        return self._acquire.__await__()

    async def __aenter__(self) -> G:
        self._guard = await self._acquire
        return self._guard

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._guard.__aexit__(kind, error, trace)


class _Waiting:
    """A call in the queue."""

    def __init__(self, item: bytes, outcome: asyncio.Future[Reply]) -> None:
        self.item = item
        self.outcome = outcome
        self.expiry: asyncio.TimerHandle | None = None


class AsyncBatcher:
    """Sends an item at once if none is in flight. Items that arrive meanwhile travel together in the next request."""

    def __init__(self, send: Callable[[list[bytes]], Awaitable[list[Reply | LiminaError]]], timeout: float) -> None:
        self._send = send
        self._timeout = timeout
        self.accepted = 0
        """How many items were ever submitted."""
        self._in_flight = False
        self._queue: deque[_Waiting] = deque()
        self._flights: set[asyncio.Task[None]] = set()

    async def submit(self, item: bytes) -> Reply:
        self.accepted += 1
        if not self._in_flight:
            # Alone: sent by the caller itself, without a detour over the queue.
            self._in_flight = True
            try:
                (outcome,) = await self._send([item])
            finally:
                self._land()
            if isinstance(outcome, LiminaError):
                raise outcome
            return outcome

        loop = asyncio.get_running_loop()
        waiting = _Waiting(item, loop.create_future())
        waiting.expiry = loop.call_later(self._timeout, self._expire, waiting)
        self._queue.append(waiting)
        if len(self._queue) >= MOST_IN_A_BATCH:
            self._launch(lands=False)
        return await waiting.outcome

    def _launch(self, *, lands: bool) -> None:
        """Sends the head of the queue, in a task of its own: no caller's cancellation may harm the calls of others."""
        batch: list[_Waiting] = []
        while self._queue and len(batch) < MOST_IN_A_BATCH:
            waiting = self._queue.popleft()
            assert waiting.expiry is not None
            waiting.expiry.cancel()
            if not waiting.outcome.done():  # Otherwise its caller has been cancelled.
                batch.append(waiting)
        if batch:
            flight = asyncio.get_running_loop().create_task(self._fly(batch, lands=lands))
            self._flights.add(flight)
            flight.add_done_callback(self._flights.discard)
        elif lands:
            self._in_flight = False

    async def _fly(self, batch: list[_Waiting], *, lands: bool) -> None:
        try:
            outcomes = await self._send([waiting.item for waiting in batch])
            for waiting, outcome in zip(batch, outcomes, strict=True):
                if waiting.outcome.done():
                    continue
                if isinstance(outcome, LiminaError):
                    waiting.outcome.set_exception(outcome)
                else:
                    waiting.outcome.set_result(outcome)
        except Exception as error:
            for waiting in batch:
                if not waiting.outcome.done():
                    waiting.outcome.set_exception(error)
        finally:
            for waiting in batch:  # Those without an outcome: the event loop is being shut down.
                waiting.outcome.cancel()
            if lands:
                self._land()

    def _land(self) -> None:
        if self._queue:
            self._launch(lands=True)
        else:
            self._in_flight = False

    def _expire(self, waiting: _Waiting) -> None:
        self._queue.remove(waiting)
        if not waiting.outcome.done():
            waiting.outcome.set_exception(Unavailable("no request could be sent in time", done="no"))
