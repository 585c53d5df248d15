"""What the calls take and return.

Fields have the names of the HTTP interface. Durations in answers are whole milliseconds (`…_ms`), instants are epoch milliseconds.
Fields that a newer server adds are ignored.
"""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from ._clock import Seconds, milliseconds
from ._wire import KeyValue

Item = TypeVar("Item")


class Page(Struct, Generic[Item], frozen=True):
    """A page of a list. `next` is the `after` of the next page, or `None` on the last one."""

    items: list[Item]
    next: str | None = None


# The limiter.


class LimitStatus(Struct, frozen=True):
    """A limit that applied to a check."""

    rule: str | None
    limit: int
    used: int
    exceeded: bool
    group: dict[str, KeyValue] = {}
    override: str | None = None
    remaining: int | None = None
    reset_ms: int | None = None
    shadow: bool = False
    waiting: int = 0
    check: str | int | None = None


class Decision(Struct, frozen=True):
    """The answer to a check. A refusal is a value: look at `allowed`."""

    allowed: bool
    limits: list[LimitStatus] = []
    retry_after_ms: int | None = None

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same check would pass if nothing else happened. `None`: allowed, not known, or never."""
        return None if self.retry_after_ms is None else self.retry_after_ms / 1000


class Window(Struct, frozen=True, omit_defaults=True):
    """The span in which hits count. Made by `fixed`, `sliding` and `bucket`."""

    type: Literal["fixed", "sliding", "bucket"]
    per_ms: int
    burst: int | None = None


def fixed(per: Seconds) -> Window:
    """Spans aligned to the epoch: the cheapest window."""
    return Window("fixed", milliseconds(per))


def sliding(per: Seconds) -> Window:
    """Never more than the limit in any span of this length."""
    return Window("sliding", milliseconds(per))


def bucket(per: Seconds, burst: int | None = None) -> Window:
    """The limit is refilled evenly over `per`, and at most `burst` (default: the limit) can be taken at once."""
    return Window("bucket", milliseconds(per), burst)


class Rule(Struct, frozen=True, omit_defaults=True):
    """Limits what is in use, or what happens in a window, for each combination of the values of its `group_by` keys.

    What the server returned can be sent back as it is.
    """

    name: str
    limit: int
    group_by: list[str] = []
    selection: dict[str, Any] = {}
    window: Window | None = None
    shadow: bool = False
    durability: Literal["durable", "relaxed"] | None = None
    description: str | None = None
    overrides: int | list[Override] = 0
    managed_by: str | None = None
    created_position: int | None = None


class Override(Struct, frozen=True, omit_defaults=True):
    """Replaces the limit of a rule for exact values."""

    name: str
    key_values: dict[str, KeyValue]
    limit: int
    burst: int | None = None
    rule: str | None = None
    created_position: int | None = None


class RuleMatch(Struct, frozen=True):
    """A rule that would apply, and its overrides that would."""

    name: str
    limit: int
    group: dict[str, KeyValue] = {}
    matching_overrides: list[Override] = []


class Group(Struct, frozen=True):
    """A group of a rule, and how much of its limit is used."""

    group: dict[str, KeyValue]
    limit: int
    used: int
    override: str | None = None
    remaining: int | None = None
    reset_ms: int | None = None
    waiting: int = 0


class RuleSet(Struct, frozen=True):
    """A named set of rules that is replaced as a whole."""

    rules: list[Rule]
    overrides: Literal["closed", "open"] = "closed"
    name: str | None = None
    created_position: int | None = None


class RuleSetInfo(Struct, frozen=True):
    """A rule set in a list. `rules` is how many it has."""

    name: str
    rules: int
    overrides: Literal["closed", "open"] = "closed"
    created_position: int | None = None


class RuleChange(Struct, frozen=True):
    """A rule that a rule set changes. If `starts_empty`, what was counted so far is forgotten."""

    rule: str
    fields: list[str] = []
    starts_empty: bool = False


class SetConflict(Struct, frozen=True, rename={"override_name": "override"}):
    """Why a rule set cannot be put: a rule of another set (`managed_by`), or an override of a client that is in the way."""

    rule: str
    code: str
    managed_by: str | None = None
    override_name: str | None = None


class RuleSetChanges(Struct, frozen=True):
    """What putting a rule set has changed, or would change."""

    created: list[str] = []
    changed: list[RuleChange] = []
    deleted: list[str] = []
    conflicts: list[SetConflict] = []


class Counter(Struct, frozen=True):
    """What is in use under one exact set of key-values."""

    key_values: dict[str, KeyValue]
    counters: int
    leased: int = 0
    allowed: bool = True
    limits: list[LimitStatus] = []
    retry_after_ms: int | None = None


class LeaseStatus(Struct, frozen=True):
    """A lease as everybody may see it."""

    lease_id: str
    key_values: dict[str, KeyValue]
    hits: int
    held_ms: int
    expires_in_ms: int
    fencing_token: int
    owner: str | None = None
    ttl_ms: int | None = None
    operation_id: str | None = None


# Locks.


class Lock(Struct, frozen=True):
    """One exact, non-empty set of key-values to lock."""

    key_values: dict[str, KeyValue]
    mode: Literal["exclusive", "shared"] = "exclusive"


class LockStatus(Struct, frozen=True):
    """A grant of locks as everybody may see it."""

    lock_id: str
    locks: list[Lock]
    held_ms: int
    expires_in_ms: int
    fencing_token: int
    owner: str | None = None
    waiting: int = 0
    ttl_ms: int | None = None
    operation_id: str | None = None


# The ledger.


class Hold(Struct, frozen=True, omit_defaults=True):
    """An amount to hold in a limit. `limit_id`, `context` and `ceiling` are for a limit that `create_missing` makes."""

    limit_name: str
    value: int
    ceiling: int | None = None
    limit_id: str | None = None
    context: dict[str, str] | None = None


class Value(Struct, frozen=True):
    """The sums of a limit. `total_value` is committed plus held."""

    limit_name: str
    commit_value: int
    hold_value: int
    total_value: int
    limit_id: str | None = None


class Held(Struct, frozen=True):
    """The answer to a hold, a commit or a rollback. `values` are those at `position`."""

    operation_id: str
    position: int
    values: list[Value] = []
    skipped: list[str] = []


class Values(Struct, frozen=True):
    """Values of limits at one position."""

    position: int
    values: list[Value]


class LedgerLimit(Struct, frozen=True):
    """A limit of the ledger: an account with an optional ceiling."""

    name: str
    commit_value: int
    hold_value: int
    total_value: int
    limit_id: str | None = None
    context: dict[str, str] = {}
    ceiling: int | None = None
    available: int | None = None
    created_position: int | None = None


class OperationHold(Struct, frozen=True):
    """An operation's hold in one limit."""

    limit_name: str
    state: str
    held_value: int
    committed_value: int | None = None
    expired: bool = False
    expires_in_ms: int | None = None
    held_at: int | None = None
    deleted: bool = False


class Operation(Struct, frozen=True):
    """What became of an operation of the ledger."""

    operation_id: str
    state: str
    position: int
    holds: list[OperationHold] = []


class Entry(Struct, frozen=True):
    """A line of a limit's history."""

    position: int
    operation_id: str
    type: str
    value: int
    time: int
    commit_value: int
    hold_value: int
    total_value: int


# Events.


class Stream(Struct, frozen=True):
    """A stream of events."""

    name: str
    mode: Literal["only_once", "strictly_once"]
    duration_ms: int
    max_events: int
    key_frame_every_ms: int
    clock: int
    incubating: int = 0


class Submitted(Struct, frozen=True):
    """An accepted event. It is published at `publishes_at`, unless it is invalidated before."""

    event: str
    time: int
    clock: int
    publishes_at: int
    status: str = "submitted"


class IncubatingEvent(Struct, frozen=True):
    event: str
    time: int
    publishes_at: int | None = None


class Incubating(Struct, frozen=True):
    """The events of a stream that are accepted and not yet published."""

    clock: int
    events: list[IncubatingEvent]


class EventTime(Struct, frozen=True):
    event: str
    time: int


class Change(Struct, frozen=True):
    """A change of a stream. Each has the next `clock` value."""

    kind: Literal["submitted", "invalidated", "published"]
    clock: int
    event: str
    time: int


class KeyFrame(Struct, frozen=True):
    """All incubating events of a stream as of `clock`. It replaces everything that a follower knows."""

    clock: int
    snapshot: list[EventTime]


# Decisions.


class Check(Struct, frozen=True, omit_defaults=True):
    """A check within a decision. Give it a `name` and `estimate=True` to settle the actual amount at the commit."""

    key_values: dict[str, KeyValue]
    hits: int = 1
    name: str | None = None
    estimate: bool = False
    require_match: bool = False


class Event(Struct, frozen=True):
    """An event within a decision. It is published after the commit, and invalidated by a rollback."""

    stream: str
    event: str


class DecisionEvent(Struct, frozen=True):
    """The event of a decision. `status` is `submitted`, `published` or `invalidated`."""

    stream: str
    event: str
    status: str = "submitted"
    time: int | None = None
    publishes_at: int | None = None


class DecisionStatus(Struct, frozen=True):
    """A decision over limits, holds, locks and an event, and what became of it."""

    operation_id: str
    state: Literal["waiting", "open", "committed", "rolled_back", "expired"]
    position: int | None = None
    fencing_token: int | None = None
    expires_in_ms: int | None = None
    repeated: bool = False
    late: bool = False
    owner: str | None = None
    held_ms: int | None = None
    ttl_ms: int | None = None
    limits: list[LimitStatus] = []
    values: list[Value] = []
    locks: list[Lock] = []
    event: DecisionEvent | None = None
