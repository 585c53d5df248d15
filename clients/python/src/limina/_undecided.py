"""Counts the requests that a middleware let pass or refused without a decision, and says so in the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from . import _fork
from ._clock import now
from .errors import Unavailable

SECONDS_BETWEEN_LINES = 60.0
_log = logging.getLogger("limina")


class Undecided:
    """`client.undecided`: how many requests the middleware of this client passed or refused because it got no decision."""

    def __init__(self, clock: Callable[[], float] = now) -> None:
        self.passed = 0
        self.refused = 0
        self._clock = clock
        self._next_line: float | None = None
        self._logged = 0
        self.after_fork()
        _fork.watch(self)

    def count(self, error: Unavailable, *, passed: bool) -> None:
        """Counts a request. Writes a warning into the log `limina`, at most once a minute."""
        with self._lock:
            if passed:
                self.passed += 1
            else:
                self.refused += 1
            at = self._clock()
            if self._next_line is not None and at < self._next_line:
                return
            total = self.passed + self.refused
            new, self._logged, self._next_line = total - self._logged, total, at + SECONDS_BETWEEN_LINES
        action = "passed" if passed else "were refused"
        _log.warning("no decision from the limiter: %d requests %s since the last such line; %s", new, action, error)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
