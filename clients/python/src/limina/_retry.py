"""Whether and when a failed request is sent again. Pure: no clock, no network."""

from __future__ import annotations

import random
import threading

from . import _fork
from .errors import Unavailable


class Budget:
    """Bounds the retries of a client as a whole, so that a struggling server does not get a multiple of its load."""

    SIZE = 10.0
    RETURNED_BY_AN_ANSWER = 0.1

    def __init__(self) -> None:
        self._left = self.SIZE
        self._lock = threading.Lock()
        _fork.watch(self)

    def spend(self) -> bool:
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True

    def answered(self) -> None:
        # Read without the lock: in normal operation the budget is full, and then there is nothing to do.
        if self._left < self.SIZE:
            with self._lock:
                self._left = min(self.SIZE, self._left + self.RETURNED_BY_AN_ANSWER)

    def after_fork(self) -> None:
        self._lock = threading.Lock()


class Retries:
    """The attempts of one call."""

    def __init__(self, budget: Budget, *, retries: int, timeout: float, repeatable: bool) -> None:
        self._budget = budget
        self._retries = retries
        self._timeout = timeout
        self._repeatable = repeatable
        self._unknown = False
        self.made = 0
        """How many retries were begun."""

    def stop(self) -> None:
        """There are no more attempts after the one that failed."""
        self._retries = 0

    def pause(self, error: Unavailable) -> float:
        """The seconds to sleep before the next attempt. Raises the error if there must be none."""
        if error.done == "unknown":
            self._unknown = True
        elif self._unknown:
            # An earlier attempt may have been executed. That a later one was not does not change it.
            error.done = "unknown"
        again = (
            self.made < self._retries
            and (error.done == "no" or self._repeatable)
            and (error.retry_after or 0) <= self._timeout
            and self._budget.spend()
        )
        if not again:
            raise error
        self.made += 1
        return (error.retry_after or 0) + backoff(self.made)


def backoff(attempt: int) -> float:
    """Full jitter: a random time up to a bound that doubles with each attempt."""
    return random.uniform(0, min(2.0, 0.1 * 2 ** (min(attempt, 10) - 1)))
