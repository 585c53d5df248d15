# Generated from docs/openapi.json by `cargo xtask types`. Do not edit.
"""The requests and replies of the HTTP interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from ._wire import KeyValues, Selection


class ChangedRule(Struct, frozen=True, kw_only=True):
    """A rule that changes."""

    rule: str
    """The name of the rule."""
    fields: list[RuleField] = []
    """The fields that change: those of a rule, `overrides`, and `managed_by` for a rule that belonged to no set."""
    starts_empty: bool
    """Whether what the rule has counted is forgotten: its window has another type or length, or it groups by other keys."""


class _Check(Struct, frozen=True, omit_defaults=True):
    key_values: KeyValues
    """What is about to happen. The rules that apply are found by these key-values."""


class Check(_Check, frozen=True, omit_defaults=True, kw_only=True):
    """A check of a decision."""

    estimate: bool | None = None
    """`hits` is an estimate: a commit may state the actual hits, and a rollback refunds the windows. Default: `false`."""
    hits: int | None = None
    """How much to take: 0 to 2^53−1. 0 takes nothing and only reports. Default: 1."""
    name: str | None = None
    """The name of the check within the decision, each once. A commit needs it to state the actual hits."""
    require_match: bool | None = None
    """If no rule applies, refuse the decision with `NoRuleApplies`. Default: `false`."""


class CheckReply(Struct, frozen=True, kw_only=True):
    """The result of a check."""

    allowed: bool
    """Whether the check took its hits or, with `dry_run`, would have taken them. With `report`: whether it was within all
    limits.
    """
    limits: list[LimitStatus] = []
    """Every limit that applied, ordered by rule, then by override."""
    retry_after_ms: int | None = None
    """The time in milliseconds after which the same check would pass if nothing else happened; `null` if it is
    allowed, never passes, or the time is not known.
    """
    status: int | None = None
    """Only in a batch: the HTTP status that the single check would have."""


class Counter(Struct, frozen=True, kw_only=True):
    """A counter: how much is in use for exact key-values."""

    key_values: KeyValues
    """The key-values of the counter."""
    counters: int
    """How much is in use, including leases."""
    leased: int
    """How much of it leases hold."""


class CounterReply(Struct, frozen=True, kw_only=True):
    """A counter after taking or giving back, with the result of the check."""

    key_values: KeyValues
    """The key-values of the counter."""
    counters: int
    """How much is in use, including leases."""
    leased: int
    """How much of it leases hold."""
    allowed: bool
    """Always `true`. A refused change is answered with 409."""
    limits: list[LimitStatus] = []
    """Every limit that applied, ordered by rule, then by override."""
    retry_after_ms: int | None = None
    """Always `null`."""


class DecisionEvent(Struct, frozen=True, kw_only=True):
    """The event of a decision."""

    stream: str
    """The name of the stream."""
    event: str
    """The text of the event."""
    status: EventStatus
    """What became of the event."""
    time: int
    """When the event was accepted, in epoch milliseconds."""
    publishes_at: int
    """When the event is published if the decision is committed by then, in epoch milliseconds. A later commit publishes
    it at once.
    """


class DecisionStatus(Struct, frozen=True, kw_only=True):
    """A decision."""

    operation_id: str
    """The client's id for the operation."""
    state: DecisionState
    """Whether the decision is open, or how it has ended."""
    repeated: bool
    """Whether an earlier request made the decision."""
    late: bool
    """Whether the decision was recorded after it had ended in another way."""
    owner: str | None = None
    """The holder's name for itself, or `null`."""
    position: int | None = None
    """The position of the change that made the decision or, if it has ended, of its end; `null` in a dry run."""
    fencing_token: int | None = None
    """A number that grows with every decision and every lock of the namespace; `null` in a dry run."""
    held_ms: int
    """The time since the decision was made, in milliseconds. If it has ended: until then."""
    expires_in_ms: int | None = None
    """The time until the decision expires without a heartbeat, in milliseconds; `null` if it has ended."""
    ttl_ms: int
    """The ttl in milliseconds: a heartbeat extends the decision to this time from now."""
    limits: list[LimitOfDecision] = []
    """Every limit that applies to the checks, in the order of the checks, then by rule, then by override."""
    values: list[LimitValue] = []
    """The values of the limits in which the decision holds, in the order of the request."""
    locks: list[HeldLock] = []
    """The locks."""
    event: DecisionEvent | None = None
    """The event; `null` if the decision has none, or if its stream was deleted."""
    status: int | None = None
    """Only in a batch: the HTTP status that the single call would have."""


class Entry(Struct, frozen=True, kw_only=True):
    """One entry in the history of a limit, with the sums after it."""

    position: int
    """The position of the change."""
    time: int
    """When the change happened, in epoch milliseconds."""
    operation_id: str
    """The operation that made the change."""
    type: EntryType
    """The type of the change."""
    value: int
    """The value that was held, committed or freed."""
    commit_value: int
    """The sum of all commits, after the change."""
    hold_value: int
    """The sum of all open holds, after the change."""
    total_value: int
    """`commit_value` + `hold_value`."""


class Event(Struct, frozen=True, omit_defaults=True):
    """The event of a decision."""

    stream: str
    """The name of the stream. It must exist."""
    event: str
    """The text of the event, 1–1,024 bytes. Events with the same text are duplicates."""


class EventTime(Struct, frozen=True, kw_only=True):
    """An event and its time."""

    event: str
    """The text of the event."""
    time: int
    """When the event was accepted, in epoch milliseconds."""


class FinalizationReply(Struct, frozen=True, kw_only=True):
    """The result of a commit or rollback. A repeated request returns the result of the first one."""

    operation_id: str
    """The operation."""
    position: int
    """The position of the commit or rollback."""
    values: list[LimitValue] = []
    """The values of the limits at that position."""


class Group(Struct, frozen=True, kw_only=True):
    """A group of a rule."""

    group: KeyValues
    """The group: the `group_by` keys with their values, or the key-values of the override."""
    override: str | None = None
    """The name of the override whose limit applies; `null` if this is the rule's own limit."""
    limit: int
    """The limit; for a bucket, its burst. −1: no limit."""
    used: int
    """How much is used. For a bucket: the burst minus the whole tokens left."""
    remaining: int | None = None
    """`limit` − `used`, at least 0; `null` if there is no limit."""
    reset_ms: int | None = None
    """The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
    or if it is more than 2^53−1.
    """
    waiting: int
    """The number of requests that wait in the group."""


class Groups(Struct, frozen=True, kw_only=True):
    """The groups of a rule that use the most of their limits."""

    items: list[Group] = []
    """The groups. Those that use the largest part of their limit come first; groups without a limit come last, ordered by
    what they use. Groups that use nothing are absent.
    """
    next: str | None = None
    """Always `null`: there are no further pages."""
    complete: bool
    """Whether these are certainly the groups that use the most. `false` if the namespace has so many groups, or so large
    ones,
    that not all of them could be looked at or returned.
    """


class HeldLock(Struct, frozen=True, kw_only=True):
    """One of the locks of a grant."""

    key_values: KeyValues
    """The key-values that identify the lock."""
    mode: LockMode
    """How the lock is held."""


class _Hold(Struct, frozen=True, omit_defaults=True):
    limit_name: str
    """The name of the limit."""
    value: int
    """The value to hold; it may be negative or 0."""


class Hold(_Hold, frozen=True, omit_defaults=True, kw_only=True):
    """The value to hold in one limit."""

    ceiling: int | None = None
    """If this hold creates the limit: its ceiling, which this hold must not exceed either. Absent: no ceiling."""
    context: Context | None = None
    """If this hold creates the limit: the client's notes about it."""
    limit_id: str | None = None
    """If this hold creates the limit: the client's own id for it."""


class HoldReply(Struct, frozen=True, kw_only=True):
    """The result of a hold."""

    operation_id: str
    """The operation."""
    position: int
    """The position of the last request with which the operation held something."""
    values: list[LimitValue] = []
    """The values of the limits at that position, in the order of the request."""
    skipped: list[str] = []
    """The limits that were skipped, because the operation already had an open hold of the same value there."""


class Incubating(Struct, frozen=True, kw_only=True):
    """All incubating events of a stream: accepted, and neither published nor invalidated yet."""

    clock: int
    """The clock of the last change that this list includes."""
    events: list[IncubatingEvent] = []
    """The events, in the order in which they were accepted."""


class IncubatingEvent(Struct, frozen=True, kw_only=True):
    """An incubating event."""

    event: str
    """The text of the event."""
    time: int
    """When the event was accepted, in epoch milliseconds."""
    publishes_at: int
    """When the event will be published unless it is invalidated, in epoch milliseconds."""


class InvalidatedEvent(Struct, frozen=True, kw_only=True, tag_field="messageType", tag="INVALIDATED_EVENT"):
    """A duplicate invalidated the event. It will not be published."""

    clock: int
    """The clock of this change."""
    eventTime: EventTime
    """The event."""


class KeyFrame(Struct, frozen=True, kw_only=True, tag_field="messageType", tag="KEY_FRAME"):
    """All incubating events: the first message to a new follower, then repeated periodically."""

    clock: int
    """The clock of this change."""
    snapshot: list[SnapshotEvent] = []
    """The incubating events, in the order in which they were accepted."""


class LeaseGrant(Struct, frozen=True, kw_only=True):
    """A lease that was granted."""

    lease_id: str
    """The id of the lease."""
    session_id: str
    """A secret of the holder. Heartbeats and the release need it."""
    fencing_token: int
    """A number that grows with every lease of the namespace."""
    expires_in_ms: int
    """The time until the lease expires without a heartbeat, in milliseconds."""
    limits: list[LimitStatus] = []
    """Every limit that applied, ordered by rule, then by override."""


class LeaseStatus(Struct, frozen=True, kw_only=True):
    """A lease."""

    lease_id: str
    """The id of the lease."""
    operation_id: str | None = None
    """The decision that the lease is a part of, or `null`."""
    fencing_token: int
    """A number that grows with every lease of the namespace."""
    key_values: KeyValues
    """The key-values with which the hits were taken."""
    hits: int
    """How much the lease holds."""
    owner: str | None = None
    """The holder's name for itself, or `null`."""
    held_ms: int
    """The time since the lease was granted, in milliseconds."""
    expires_in_ms: int
    """The time until the lease expires without a heartbeat, in milliseconds."""
    ttl_ms: int
    """The ttl in milliseconds: a heartbeat extends the lease to this time from now."""


class LedgerLimit(Struct, frozen=True, kw_only=True):
    """A limit with its current values."""

    name: str
    """The name, unique within the namespace."""
    limit_id: str | None = None
    """The client's own id for the limit, or `null`."""
    context: Context
    """The client's notes about the limit."""
    ceiling: int | None = None
    """The ceiling, or `null` if the limit has none."""
    commit_value: int
    """The sum of all commits."""
    hold_value: int
    """The sum of all open holds."""
    total_value: int
    """`commit_value` + `hold_value`."""
    available: int | None = None
    """The largest value that could be held now, or `null` if the limit has no ceiling. 0 if the ceiling is reached."""
    created_position: int
    """The position at which the limit was created."""


class LimitOfDecision(Struct, frozen=True, kw_only=True):
    """A limit that applies to a check of a decision."""

    rule: str | None = None
    """The name of the rule."""
    override: str | None = None
    """The name of the override; `null` if this is the rule's own limit."""
    group: KeyValues
    """The group: the `group_by` keys with their values, or the key-values of the override."""
    limit: int
    """The limit; for a bucket, its burst. −1: no limit."""
    used: int
    """How much is used: after this check if it was allowed or is a `report`, otherwise unchanged. For a bucket: the burst
    minus the
    whole tokens left.
    """
    remaining: int | None = None
    """`limit` − `used`, at least 0; `null` if there is no limit."""
    reset_ms: int | None = None
    """The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
    or if it is more than 2^53−1.
    """
    shadow: bool
    """Whether the rule only counts and reports."""
    exceeded: bool
    """Whether the check asked for more than remained, or earlier requests wait for it."""
    waiting: int
    """The number of requests that wait in the group."""
    check: str | int
    """The check."""


class LimitStatus(Struct, frozen=True, kw_only=True):
    """One limit that applied to a check."""

    rule: str | None = None
    """The name of the rule."""
    override: str | None = None
    """The name of the override; `null` if this is the rule's own limit."""
    group: KeyValues
    """The group: the `group_by` keys with their values, or the key-values of the override."""
    limit: int
    """The limit; for a bucket, its burst. −1: no limit."""
    used: int
    """How much is used: after this check if it was allowed or is a `report`, otherwise unchanged. For a bucket: the burst
    minus the
    whole tokens left.
    """
    remaining: int | None = None
    """`limit` − `used`, at least 0; `null` if there is no limit."""
    reset_ms: int | None = None
    """The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
    or if it is more than 2^53−1.
    """
    shadow: bool
    """Whether the rule only counts and reports."""
    exceeded: bool
    """Whether the check asked for more than remained, or earlier requests wait for it."""
    waiting: int
    """The number of requests that wait in the group."""


class LimitValue(Struct, frozen=True, kw_only=True):
    """The values of one limit at one position."""

    limit_name: str
    """The name of the limit."""
    limit_id: str | None = None
    """The client's own id for the limit, or `null`."""
    commit_value: int
    """The sum of all commits."""
    hold_value: int
    """The sum of all open holds."""
    total_value: int
    """`commit_value` + `hold_value`."""


class _Lock(Struct, frozen=True, omit_defaults=True):
    key_values: KeyValues
    """The key-values that identify the lock, at least one."""


class Lock(_Lock, frozen=True, omit_defaults=True, kw_only=True):
    """One of several locks to acquire."""

    mode: LockMode | None = None
    """The mode. Default: `exclusive`."""


class LockGrant(Struct, frozen=True, kw_only=True):
    """A grant: one or more locks that are held together."""

    lock_id: str
    """The id of the grant."""
    session_id: str
    """A secret of the holder. Heartbeats and the release need it."""
    fencing_token: int
    """A number that grows with every grant of the namespace. The protected resource should reject a token that is
    smaller than one it has seen.
    """
    expires_in_ms: int
    """The time until the grant expires without a heartbeat, in milliseconds."""
    locks: list[HeldLock] = []
    """The locks that are held."""


class LockStatus(Struct, frozen=True, kw_only=True):
    """A grant, as everybody can read it."""

    lock_id: str
    """The id of the grant."""
    operation_id: str | None = None
    """The decision that the grant is a part of, or `null`."""
    owner: str | None = None
    """The holder's name for itself, or `null`."""
    locks: list[HeldLock] = []
    """The locks that are held."""
    held_ms: int
    """The time since the grant, in milliseconds."""
    expires_in_ms: int
    """The time until the grant expires without a heartbeat, in milliseconds."""
    ttl_ms: int
    """The ttl in milliseconds: a heartbeat extends the grant to this time from now."""
    fencing_token: int
    """A number that grows with every grant of the namespace."""
    waiting: int
    """The number of requests that wait for any of these locks. Above a few thousand, it is the length of the longest queue."""


class MatchReply(Struct, frozen=True, kw_only=True):
    """The rules that apply."""

    rules: list[RuleMatch] = []
    """The rules, ordered by name."""


class Operation(Struct, frozen=True, kw_only=True):
    """An operation with all its holds."""

    operation_id: str
    """The client's id for the operation."""
    position: int
    """The position of the last request with which the operation held something."""
    state: OperationState
    """The state of the operation as a whole."""
    holds: list[OperationHold] = []
    """The holds, in the order in which they were made."""


class OperationHold(Struct, frozen=True, kw_only=True):
    """The hold of an operation in one limit."""

    limit_name: str
    """The name of the limit."""
    limit_id: str | None = None
    """The client's own id for the limit, or `null`."""
    deleted: bool
    """Whether the limit was deleted after the hold had ended. A limit that was created later under the same name is
    another limit.
    """
    state: OperationState
    """The state of the hold."""
    held_value: int
    """The value that was held."""
    committed_value: int | None = None
    """The value that was committed, or `null` if the hold was not committed."""
    held_at: int
    """When the value was held, in epoch milliseconds."""
    hold_position: int
    """The position of the hold."""
    final_position: int | None = None
    """The position of the commit, rollback or expiry; `null` while the hold is open."""
    expires_at: int | None = None
    """When the hold expires or would have expired, in epoch milliseconds; `null` if it never expires."""
    expires_in_ms: int | None = None
    """The time until the hold expires; `null` if it never does, or is no longer open."""
    expired: bool
    """Whether the hold was rolled back because it had expired."""


class _Override(Struct, frozen=True, omit_defaults=True):
    key_values: KeyValues
    """The override applies to checks that have all these key-values. Every `group_by` key of the rule is required;
    more are allowed.
    """
    limit: int
    """The limit that replaces the limit of the rule: at most 2^53−1. −1: no limit."""
    name: str
    """The name, unique within the rule. In a PUT it may be absent; otherwise it must be the name in the path."""


class Override(_Override, frozen=True, omit_defaults=True, kw_only=True):
    """`POST /rules/{name}/overrides` and `PUT …/overrides/{override}`: create an override, or replace everything except
    its name.
    """

    burst: int | None = None
    """Only if the rule is a bucket: the most that it can contain, 1 to 2^53−1. Default: this limit."""


class OverrideStatus(Struct, frozen=True, kw_only=True):
    """An override: another limit for exact values."""

    rule: str
    """The rule that the override belongs to."""
    name: str
    """The name, unique within the rule."""
    key_values: KeyValues
    """The override applies to checks that have all these key-values."""
    limit: int
    """The limit that replaces the limit of the rule. −1: no limit."""
    burst: int | None = None
    """The most that the bucket can contain; `null` for the limit, and if the rule is not a bucket."""
    created_position: int
    """The position at which the override was created."""


class PublishedEvent(Struct, frozen=True, kw_only=True, tag_field="messageType", tag="PUBLISHED_EVENT"):
    """The duration passed without a duplicate that invalidates the event."""

    clock: int
    """The clock of this change."""
    eventTime: EventTime
    """The event."""


class _Rule(Struct, frozen=True, omit_defaults=True):
    name: str
    """The name, unique within the namespace."""
    limit: int
    """How much may be in use in a group, or happen in it within the window: at most 2^53−1. −1: no limit. 0: nothing
    passes.
    """


class Rule(_Rule, frozen=True, omit_defaults=True, kw_only=True):
    """A rule of a set, with its overrides."""

    description: str | None = None
    """The client's notes about the rule, up to 1,024 bytes."""
    durability: Durability | None = None
    """Whether the answer to a check waits for the disk. Default: `relaxed` with a window, `durable` without one."""
    group_by: list[str] | None = None
    """Each distinct combination of these keys' values is a group with a limit of its own. Empty: one group for
    everything. Default: empty.
    """
    overrides: list[Override] | None = None
    """The overrides of the rule that belong to the set, each name and each key-values once; each has a name. Default:
    none.
    """
    selection: Selection | None = None
    """Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. Default:
    none.
    """
    shadow: bool | None = None
    """Count and report, but never refuse. Default: `false`."""
    window: Window | None = None
    """The window in which hits count. Absent: hits count until they are given back."""


class RuleMatch(Struct, frozen=True, kw_only=True):
    """A rule that applies, with its group and those of its overrides that apply."""

    name: str
    """The name, unique within the namespace."""
    group_by: list[str] = []
    """Each distinct combination of these keys' values is a group with a limit of its own."""
    selection: Selection
    """Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys."""
    limit: int
    """How much may be in use in a group, or happen in it within the window. −1: no limit."""
    window: WindowStatus | None = None
    """The window in which hits count; `null` if they count until they are given back."""
    shadow: bool
    """Whether the rule only counts and reports, and never refuses."""
    durability: Durability
    """Whether the answer to a check waits for the disk."""
    description: str | None = None
    """The client's notes about the rule, or `null`."""
    overrides: int
    """The number of overrides of the rule."""
    managed_by: str | None = None
    """The rule set that the rule belongs to, which alone can change it, or `null`. `file` is the server's rules file."""
    created_position: int
    """The position at which the rule was created."""
    group: KeyValues
    """The group: the `group_by` keys with their values."""
    matching_overrides: list[OverrideStatus] = []
    """The overrides that apply, ordered by name. If there is any, the own limit of the rule refuses nothing."""


class RuleSet(Struct, frozen=True, kw_only=True):
    """A rule set with its rules. It can be sent back with PUT."""

    name: str
    """The name, unique within the namespace."""
    rules: list[SetRuleStatus] = []
    """The rules, ordered by name."""
    overrides: SetOverrides
    """Whether clients may make overrides of the rules."""
    created_position: int
    """The position at which the set was created."""


class RuleSetChanges(Struct, frozen=True, kw_only=True):
    """What putting a rule set has changed, or would change."""

    created: list[str] = []
    """The names of the rules that are created, ordered."""
    changed: list[ChangedRule] = []
    """The rules that change, or whose overrides do, ordered by name."""
    deleted: list[str] = []
    """The names of the rules that are deleted, ordered."""
    conflicts: list[SetConflict] = []
    """Why putting the set is refused, ordered by rule. Empty unless this is a dry run."""


class RuleSetInfo(Struct, frozen=True, kw_only=True):
    """A rule set without its rules."""

    name: str
    """The name, unique within the namespace."""
    rules: int
    """The number of its rules."""
    overrides: SetOverrides
    """Whether clients may make overrides of the rules."""
    created_position: int
    """The position at which the set was created."""


class RuleStatus(Struct, frozen=True, kw_only=True):
    """A rule."""

    name: str
    """The name, unique within the namespace."""
    group_by: list[str] = []
    """Each distinct combination of these keys' values is a group with a limit of its own."""
    selection: Selection
    """Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys."""
    limit: int
    """How much may be in use in a group, or happen in it within the window. −1: no limit."""
    window: WindowStatus | None = None
    """The window in which hits count; `null` if they count until they are given back."""
    shadow: bool
    """Whether the rule only counts and reports, and never refuses."""
    durability: Durability
    """Whether the answer to a check waits for the disk."""
    description: str | None = None
    """The client's notes about the rule, or `null`."""
    overrides: int
    """The number of overrides of the rule."""
    managed_by: str | None = None
    """The rule set that the rule belongs to, which alone can change it, or `null`. `file` is the server's rules file."""
    created_position: int
    """The position at which the rule was created."""


class SetConflict(Struct, frozen=True, kw_only=True):
    """Why a rule set cannot be put."""

    rule: str
    """The name of the rule."""
    code: ConflictCode
    """The code with which the PUT is refused."""
    managed_by: str | None = None
    """For `RuleManagedBySet`: the set that the rule belongs to; otherwise `null`."""
    override: str | None = None
    """For the other codes: the client's override that is in the way; otherwise `null`."""


class SetRuleStatus(Struct, frozen=True, kw_only=True):
    """A rule of a set, with its overrides."""

    name: str
    """The name, unique within the namespace."""
    group_by: list[str] = []
    """Each distinct combination of these keys' values is a group with a limit of its own."""
    selection: Selection
    """Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys."""
    limit: int
    """How much may be in use in a group, or happen in it within the window. −1: no limit."""
    window: WindowStatus | None = None
    """The window in which hits count; `null` if they count until they are given back."""
    shadow: bool
    """Whether the rule only counts and reports, and never refuses."""
    durability: Durability
    """Whether the answer to a check waits for the disk."""
    description: str | None = None
    """The client's notes about the rule, or `null`."""
    overrides: list[OverrideStatus] = []
    """The overrides of the rule that belong to the set, ordered by name. Overrides that clients have made in an open set
    are not among them.
    """
    managed_by: str
    """The set."""
    created_position: int
    """The position at which the rule was created."""


class SnapshotEvent(Struct, frozen=True, kw_only=True):
    """An event of a key frame."""

    event: str
    """The text of the event."""
    time: int
    """When the event was accepted, in epoch milliseconds."""
    status: SnapshotStatus
    """Always `Valid`."""


class Stream(Struct, frozen=True, kw_only=True):
    """A stream of events."""

    name: str
    """The name, unique within the namespace."""
    mode: StreamMode
    """What a duplicate does."""
    duration_ms: int
    """How long an event blocks duplicates of itself, in milliseconds."""
    max_events: int
    """How many distinct events the stream can remember at once."""
    key_frame_every_ms: int
    """How often followers receive all incubating events, in milliseconds."""
    clock: int
    """The clock of the last change. Every change of the stream adds 1."""
    incubating: int
    """The number of incubating events."""


class Submitted(Struct, frozen=True, kw_only=True):
    """An event that was accepted."""

    status: SubmittedStatus
    """Always `submitted`."""
    event: str
    """The text of the event."""
    time: int
    """When the event was accepted, in epoch milliseconds."""
    clock: int
    """The clock of this change."""
    publishes_at: int
    """When the event will be published unless it is invalidated, in epoch milliseconds."""


class SubmittedEvent(Struct, frozen=True, kw_only=True, tag_field="messageType", tag="SUBMITTED_EVENT"):
    """An event was accepted and incubates."""

    clock: int
    """The clock of this change."""
    eventTime: EventTime
    """The event."""


class ValuesReply(Struct, frozen=True, kw_only=True):
    """The values of limits at one position."""

    position: int
    """The position."""
    values: list[LimitValue] = []
    """The values, in the order of the request."""


class _Window(Struct, frozen=True, omit_defaults=True):
    type: Literal["fixed", "sliding", "bucket"]
    """The type of the window."""


class Window(_Window, frozen=True, omit_defaults=True, kw_only=True):
    """The time span in which hits count."""

    burst: int | None = None
    """Only for a bucket: the most that it can contain, 1 to 2^53−1. Default: the limit."""
    per: str | None = None
    """The length of the window: 1 ms–366 d. For a bucket: the time in which the whole limit is refilled."""
    per_ms: int | None = None
    """The length of the window in milliseconds, in place of `per`."""


class WindowStatus(Struct, frozen=True, kw_only=True):
    """The time span in which hits count."""

    type: WindowType
    """The type of the window."""
    per_ms: int
    """The length of the window in milliseconds."""
    burst: int | None = None
    """The most that a bucket can contain; `null` for the limit, and for the other types."""


ConflictCode = Literal["RuleManagedBySet", "OverridesConflict", "OverrideAlreadyExists"]
"""The code with which a PUT of a rule set is refused."""

Context = Mapping[str, str]
"""At most 64 entries, keys of 1–256 bytes, values of up to 1,024 bytes."""

DecisionState = Literal["waiting", "open", "committed", "rolled_back", "expired"]
"""The state of a decision."""

Durability = Literal["durable", "relaxed"]
"""Whether the answer to a check waits for the disk."""

EntryType = Literal["hold", "commit", "rollback", "expiry", "overage"]
"""The type of an entry in the history of a limit."""

EventStatus = Literal["submitted", "published", "invalidated"]
"""What became of the event of a decision."""

LockMode = Literal["exclusive", "shared"]
"""How a lock is held."""

Message = SubmittedEvent | InvalidatedEvent | PublishedEvent | KeyFrame
"""A message to the followers of a stream."""

OperationState = Literal["held", "committed", "rolled_back"]
"""The state of a hold, or of an operation as a whole."""

RuleField = Literal["group_by", "selection", "limit", "window", "shadow", "durability", "description", "overrides", "managed_by"]
"""A field of a rule."""

SetOverrides = Literal["closed", "open"]
"""Whether clients may make overrides of the rules of a set."""

SnapshotStatus = Literal["Valid"]
"""The status of an event in a key frame."""

StreamMode = Literal["only_once", "strictly_once"]
"""What a duplicate of an event does."""

SubmittedStatus = Literal["submitted"]
"""The status of an event that was accepted."""

WindowType = Literal["fixed", "sliding", "bucket"]
"""The type of a window."""

__all__ = [
    "ChangedRule",
    "Check",
    "CheckReply",
    "ConflictCode",
    "Context",
    "Counter",
    "CounterReply",
    "DecisionEvent",
    "DecisionState",
    "DecisionStatus",
    "Durability",
    "Entry",
    "EntryType",
    "Event",
    "EventStatus",
    "EventTime",
    "FinalizationReply",
    "Group",
    "Groups",
    "HeldLock",
    "Hold",
    "HoldReply",
    "Incubating",
    "IncubatingEvent",
    "InvalidatedEvent",
    "KeyFrame",
    "LeaseGrant",
    "LeaseStatus",
    "LedgerLimit",
    "LimitOfDecision",
    "LimitStatus",
    "LimitValue",
    "Lock",
    "LockGrant",
    "LockMode",
    "LockStatus",
    "MatchReply",
    "Message",
    "Operation",
    "OperationHold",
    "OperationState",
    "Override",
    "OverrideStatus",
    "PublishedEvent",
    "Rule",
    "RuleField",
    "RuleMatch",
    "RuleSet",
    "RuleSetChanges",
    "RuleSetInfo",
    "RuleStatus",
    "SetConflict",
    "SetOverrides",
    "SetRuleStatus",
    "SnapshotEvent",
    "SnapshotStatus",
    "Stream",
    "StreamMode",
    "Submitted",
    "SubmittedEvent",
    "SubmittedStatus",
    "ValuesReply",
    "Window",
    "WindowStatus",
    "WindowType",
]
