"""The circuit breaker: when checks fail, the client stops asking for a while, and fails them at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from . import _fork
from ._clock import Seconds, now, seconds
from .errors import LiminaError, Unavailable


@dataclass(frozen=True, slots=True)
class Breaker:
    """The settings of the circuit breaker.

    It opens after `failures` requests for checks in a row that got no decision, or when no such request has been answered for
    `hang`. For the time `pause` every check then fails at once. After that one request is sent: its answer closes the breaker, and
    its failure begins another pause.
    """

    failures: int = 5
    hang: Seconds = 1.0
    pause: Seconds = 1.0


class Circuit:
    """The state of the circuit breaker of a client. Its clock is an argument, so that tests need not sleep."""

    def __init__(self, settings: Breaker | None, clock: Callable[[], float] = now) -> None:
        self._settings = settings
        self._clock = clock
        self._failures = 0
        self._open_until: float | None = None
        self._begin_anew()
        _fork.watch(self)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
        self._in_flight = 0
        self._silent_since: float | None = None
        """When the first request left that was sent after the last answer. `None`: nothing was sent since then."""
        self._probing = False

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def refuse_if_open(self) -> None:
        """Raises `Unavailable` if a check would not be sent now."""
        if self._settings is not None:
            with self._lock:
                self._look(self._settings)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Surrounds one request for checks. Raises `Unavailable` instead of letting it leave while the breaker is open."""
        if self._settings is None:
            yield
            return
        settings = self._settings
        with self._lock:
            self._look(settings)
            probe = self._probing = self.is_open
            self._in_flight += 1
            if self._silent_since is None:
                self._silent_since = self._clock()
        answered = failed = False
        try:
            yield
            answered = True
        except Unavailable:
            failed = True
            raise
        except LiminaError:
            answered = True
            raise
        finally:
            with self._lock:
                self._end(settings, answered, failed, probe)

    def _look(self, settings: Breaker) -> None:
        at = self._clock()
        if self._open_until is None and self._hangs(settings, at):
            self._open_until = at + seconds(settings.pause)
        if self._open_until is not None and (self._probing or at < self._open_until):
            left = max(0.0, self._open_until - at)
            raise Unavailable("the circuit breaker is open: earlier checks got no answer", done="no", retry_after=left)

    def _hangs(self, settings: Breaker, at: float) -> bool:
        return self._in_flight > 0 and self._silent_since is not None and at - self._silent_since >= seconds(settings.hang)

    def _end(self, settings: Breaker, answered: bool, failed: bool, probe: bool) -> None:
        at = self._clock()
        hangs = self._hangs(settings, at)
        self._in_flight = max(0, self._in_flight - 1)
        if probe:
            self._probing = False
        if answered:
            self._failures, self._open_until, self._silent_since = 0, None, None
            return
        if self._in_flight == 0:
            self._silent_since = None
        if failed:
            self._failures += 1
            opens = self._open_until is None and (hangs or self._failures >= settings.failures)
            if opens or (probe and self._open_until is not None):
                self._open_until = at + seconds(settings.pause)

    def after_fork(self) -> None:
        # The requests of the parent never end in the child.
        self._begin_anew()
