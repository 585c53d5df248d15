"""Keeps grants alive: heartbeats from threads of their own, and the deadline after which a grant is lost.

The threads are separate from the caller's threads and from any event loop: a program that computes for a minute without yielding
keeps its locks. One thread watches all deadlines of a client and never waits for the network. A few others send heartbeats.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import queue
import ssl
import threading
import weakref
from collections.abc import Callable

import msgspec

from . import _fork
from ._clock import now
from ._sync.transport import Transport
from ._wire import Config, Reply, Request
from .errors import Conflict, LiminaError, NotFound, Unavailable

log = logging.getLogger("limina")
MOST_SENDERS = 16
LONGEST_SLEEP = 60.0


class Grant:
    """What a guard holds: until when it certainly holds it, and whether it is lost."""

    def __init__(self, keeper: Keeper, reply: Reply, *, ttl: float, path: str, body: bytes, release: Request) -> None:
        """`reply` granted it, a POST of `body` to `path` is its heartbeat, and `release` gives it back."""
        self.ttl = ttl
        self._keeper = keeper
        self._path = path
        self._body = body
        self.release = release
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._lost = False
        self._over = False
        self._pid = os.getpid()
        # The server granted it after the request left. So it lives at least this long.
        self.deadline = reply.sent_at + self._expires_in(reply)
        self.next_beat = reply.sent_at + ttl / 3
        self.beating = False
        self.entry = -1
        """The number of its entry in the agenda. An earlier entry means nothing any more."""

    @property
    def lost(self) -> bool:
        if now() >= self.deadline:
            # Noted before it is told: the answer to a late heartbeat must not take it back.
            self.lose()
        return self._lost

    @property
    def remaining(self) -> float:
        return max(0.0, self.deadline - now())

    @property
    def of_this_process(self) -> bool:
        """False in a child process that was forked while the parent held the grant: the parent still holds it."""
        return self._pid == os.getpid()

    @property
    def late(self) -> bool:
        """So much time has passed since the request left that a heartbeat is due now."""
        return self.remaining < self.ttl * 2 / 3

    def keep(self) -> None:
        """Sends heartbeats from now on."""
        self._keeper.add(self)

    def end(self) -> None:
        """It is released, or about to be: no more heartbeats, and it cannot be lost any more."""
        self._over = True

    def give_back(self) -> None:
        """Releases it in the background: whoever asked for it is gone, and nobody else knows of it."""
        self.end()
        self._keeper.give_back(self.release)

    def on_lost(self, listener: Callable[[], None]) -> None:
        with self._lock:
            if not self._lost:
                self._listeners.append(listener)
                return
        listener()

    def lose(self) -> None:
        with self._lock:
            if self._lost or self._over:
                return
            self._lost = True
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            try:
                listener()
            except Exception:  # The other guards still need this thread.
                log.exception("a listener of a lost grant failed")

    def resume(self) -> None:
        """The end has failed, and the grant is still held."""
        self._over = False
        self.keep()

    def beat(self, most: float) -> None:
        """Sends one heartbeat and waits at most so many seconds for its answer. Raises `NotFound` or `Conflict` if the grant is
        gone, and another error if that is not known."""
        try:
            reply = self._keeper.send(self._path, self._body, most)
        except (NotFound, Conflict):
            self.lose()
            raise
        except Exception:
            # Only the deadline decides: the lock is still held, as long as nobody has said otherwise.
            self.next_beat = now() + self.ttl / 12
            raise
        self.deadline = max(self.deadline, reply.sent_at + self._expires_in(reply))
        self.next_beat = reply.sent_at + self.ttl / 3

    def confirm(self) -> None:
        """Sends the first heartbeat of a grant whose answer took long. Raises if the grant is gone or cannot be confirmed before
        its deadline, which may have passed while the request waited."""
        try:
            self.beat(self.ttl)
        except Unavailable:
            if self.remaining == 0:
                raise

    @property
    def alive(self) -> bool:
        return not self._over and not self._lost

    def _expires_in(self, reply: Reply) -> float:
        milliseconds = reply.read(_Expiry).expires_in_ms
        return self.ttl if milliseconds is None else milliseconds / 1000


class _Expiry(msgspec.Struct):
    expires_in_ms: int | None = None


class Keeper:
    """Watches the grants of a client. Holds them weakly: a guard that nobody refers to any more ends with its `ttl`."""

    def __init__(self, config: Config, tls: ssl.SSLContext | None) -> None:
        self._timeout = config.timeout
        self._transport = Transport(config, tls, None)
        self._begin()
        _fork.watch(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._agenda: list[tuple[float, int, weakref.ref[Grant]]] = []
        self._numbers = itertools.count()
        self._due: queue.SimpleQueue[Grant | None] = queue.SimpleQueue()
        self._watcher: threading.Thread | None = None
        self._senders = 0
        self._idle = threading.Semaphore(0)
        self._closed = False

    def after_fork(self) -> None:
        self._begin()

    def add(self, grant: Grant) -> None:
        with self._changed:
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, name="limina-keeper", daemon=True)
                self._watcher.start()
        self._schedule(grant)

    def send(self, path: str, body: bytes, most: float) -> Reply:
        """Sends a heartbeat, once, and waits at most so many seconds."""
        return self._transport.attempt(Request("POST", path, body, timeout=min(self._timeout, most)))

    def give_back(self, release: Request) -> None:
        def send() -> None:
            try:
                self._transport.call(release)
            except LiminaError as error:  # Its `ttl` ends it.
                log.info("a grant that nobody waits for was not released: %s", error)

        threading.Thread(target=send, name="limina-release", daemon=True).start()

    def close(self) -> None:
        """Ends the threads. Grants that are still held end with their `ttl`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        for _ in range(self._senders):
            self._due.put(None)
        self._transport.close()

    def _schedule(self, grant: Grant) -> None:
        with self._changed:
            # Read here: the entry that is pushed last replaces the others, so it must know the latest state.
            when = grant.deadline if grant.beating else min(grant.next_beat, grant.deadline)
            grant.entry = next(self._numbers)
            heapq.heappush(self._agenda, (when, grant.entry, weakref.ref(grant)))
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._agenda or self._agenda[0][0] > now()):
                    # The clock may jump when the machine wakes up, and `wait` does not notice it: look again from time to time.
                    pause = self._agenda[0][0] - now() if self._agenda else LONGEST_SLEEP
                    self._changed.wait(min(max(pause, 0.0), LONGEST_SLEEP))
                if self._closed:
                    return
                grant = self._pop()
            if grant is not None and grant.alive:
                self._look_at(grant)

    def _pop(self) -> Grant | None:
        """Takes the first entry of the agenda. Returns its grant, unless a later entry of the grant has replaced it."""
        _, entry, reference = heapq.heappop(self._agenda)
        grant = reference()
        return grant if grant is not None and grant.entry == entry else None

    def _look_at(self, grant: Grant) -> None:
        if now() >= grant.deadline:
            grant.lose()
            return
        if not grant.beating and now() >= grant.next_beat:
            grant.beating = True
            if not self._idle.acquire(blocking=False) and self._senders < MOST_SENDERS:
                self._senders += 1
                threading.Thread(target=self._send, name="limina-heartbeat", daemon=True).start()
            self._due.put(grant)
        self._schedule(grant)

    def _send(self) -> None:
        while (grant := self._due.get()) is not None:
            if grant.alive:
                try:
                    grant.beat(max(0.001, grant.remaining))
                except LiminaError as error:  # The grant has noted what follows from it.
                    log.info("a heartbeat failed: %s", error)
                except Exception:  # The other guards still need this thread.
                    log.exception("a heartbeat failed")
            grant.beating = False
            if grant.alive:
                self._schedule(grant)
            del grant
            self._idle.release()
