"""What can go wrong, one class a kind.

A refused *check* is no error: it is a `Decision` with `allowed = False`. Every other call either returns what it promises or raises
one of these errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Done = Literal["no", "unknown"]


class LiminaError(Exception):
    """Base of all errors of this package."""

    def __init__(self, message: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, or `None` if there was no answer."""
        self.problem: Mapping[str, Any] = problem or {}
        """The problem document (RFC 9457) of the answer, with the fields that help a program. Empty if there was none."""

    @property
    def code(self) -> str | None:
        """The stable code of the error, such as `RuleNotFound`. Programs should use it rather than the message."""
        code = self.problem.get("code")
        return code if isinstance(code, str) else None

    @property
    def request_id(self) -> str | None:
        """The id of the request, by which the server's log and audit name it."""
        request_id = self.problem.get("request_id")
        return request_id if isinstance(request_id, str) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), self.__dict__.copy())


class Invalid(LiminaError):
    """The request is wrong and always will be: 400, 413, 422 and the like. This is a bug in the caller."""

    @property
    def field(self) -> str | None:
        """The path of the offending part of the request, such as `changes[0].value`."""
        field = self.problem.get("field")
        return field if isinstance(field, str) else None


class Unauthorized(LiminaError):
    """401: no token, or one that is not valid (any more)."""


class Forbidden(LiminaError):
    """403: the token does not have the right."""

    @property
    def needs(self) -> str | None:
        """The right that the token lacks, such as `shop/limiter:use`."""
        needs = self.problem.get("needs")
        return needs if isinstance(needs, str) else None


class NotFound(LiminaError):
    """404: the rule, the limit, the operation, the lock … does not exist (any more)."""


class Conflict(LiminaError):
    """409: the state at the server does not permit it."""


class Refused(Conflict):
    """The answer is no: a limit, a ceiling, a lock, an earlier event or a quota stands in the way. Nothing was taken."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same request would pass if nothing else happened. `None`: not known, or never."""
        milliseconds = self.problem.get("retry_after_ms")
        return milliseconds / 1000 if isinstance(milliseconds, int | float) else None


class Unavailable(LiminaError):
    """There was no decision: the server is away, too slow, overloaded, starting or stopping."""

    def __init__(
        self,
        message: str,
        *,
        done: Done,
        retry_after: float | None = None,
        status: int | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, status=status, problem=problem)
        self.done: Done = done
        """`"no"`: nothing was done. `"unknown"`: it may have been done, for example because the answer was lost."""
        self.retry_after = retry_after
        """Seconds to wait before the next attempt, if the server said so."""


class Lost(LiminaError):
    """A guard has lost its grant: stop the work. Raised by `raise_if_lost`."""


# Codes that mean "no", whatever their status is.
_REFUSALS = frozenset(
    {
        "LimitReached",
        "LimitExceeded",
        "LockHeld",
        "LockWaitTimeout",
        "EventConflict",
        "Refused",
        "StreamFull",
        "QuotaExceeded",
    }
)
_KINDS: Mapping[int, type[LiminaError]] = {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict}
# Nothing was done, although the code is not one of a 503.
_NOT_DONE = frozenset({408, 429, 503})


def error_from(status: int, problem: Mapping[str, Any], retry_after: float | None = None) -> LiminaError:
    """The error for an answer with this status, which is at least 400, and this problem document."""
    code = problem.get("code")
    detail = problem.get("detail") or problem.get("title") or "no explanation"
    message = f"{status} {code}: {detail}" if code else f"HTTP status {status}"
    if code in _REFUSALS:
        return Refused(message, status=status, problem=problem)
    if code in ("OutcomeUnknown", "IdempotencyKeyInUse"):
        return Unavailable(message, done="unknown", retry_after=retry_after, status=status, problem=problem)
    if code == "ClientHungUp" or status in _NOT_DONE:
        return Unavailable(message, done="no", retry_after=retry_after, status=status, problem=problem)
    if status >= 500:
        return Unavailable(message, done="unknown", retry_after=retry_after, status=status, problem=problem)
    return _KINDS.get(status, Invalid)(message, status=status, problem=problem)


def _rebuild(kind: type[LiminaError], message: str, state: dict[str, Any]) -> LiminaError:
    """Unpickles an error: between processes, errors travel with their fields."""
    error = kind.__new__(kind, message)
    error.args = (message,)
    error.__dict__.update(state)
    return error
