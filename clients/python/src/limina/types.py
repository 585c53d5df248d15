"""What the calls take and return.

Fields have the names of the HTTP interface. Durations in answers are whole milliseconds (`…_ms`), instants are epoch milliseconds.
Fields that a newer server adds are ignored.

`_schemas` has the requests and replies as the API's reference describes them. This file adds what only Python has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from ._clock import Seconds, milliseconds
from ._schemas import *  # noqa: F403
from ._schemas import CheckReply, InvalidatedEvent, PublishedEvent, SubmittedEvent, Window

Item = TypeVar("Item")


class Page(Struct, Generic[Item], frozen=True):
    """A page of a list. `next` is the `after` of the next page, or `None` on the last one."""

    items: list[Item]
    next: str | None = None


class Decision(CheckReply, frozen=True, kw_only=True):
    """The answer to a check. A refusal is a value: look at `allowed`."""

    violated_policies: list[str] = msgspec.field(name="violated-policies", default_factory=list)
    """The limits that refuse, by their names in the header `RateLimit-Policy`."""
    headers: Mapping[str, str] = {}
    """`ratelimit-policy`, `ratelimit` and `retry-after` as the server sent them: for a service to pass on to its own client. Empty
    if the check travelled with others."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same check would pass if nothing else happened. `None`: allowed, not known, or never."""
        return None if self.retry_after_ms is None else self.retry_after_ms / 1000


class Change(Struct, frozen=True):
    """A change of a stream. Each has the next `clock` value."""

    kind: Literal["submitted", "invalidated", "published"]
    clock: int
    event: str
    time: int

    @classmethod
    def of(cls, message: SubmittedEvent | InvalidatedEvent | PublishedEvent) -> Change:
        """A message in which something happened to one event."""
        kind: Literal["submitted", "invalidated", "published"]
        match message:
            case SubmittedEvent():
                kind = "submitted"
            case InvalidatedEvent():
                kind = "invalidated"
            case PublishedEvent():
                kind = "published"
        return cls(kind, message.clock, message.eventTime.event, message.eventTime.time)


def fixed(per: Seconds) -> Window:
    """Spans aligned to the epoch: the cheapest window."""
    return Window("fixed", per_ms=milliseconds(per))


def sliding(per: Seconds) -> Window:
    """Never more than the limit in any span of this length."""
    return Window("sliding", per_ms=milliseconds(per))


def bucket(per: Seconds, burst: int | None = None) -> Window:
    """The limit is refilled evenly over `per`, and at most `burst` (default: the limit) can be taken at once."""
    return Window("bucket", per_ms=milliseconds(per), burst=burst)
