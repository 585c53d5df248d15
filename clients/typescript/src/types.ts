// Generated from docs/openapi.json by `cargo xtask types`. Do not edit.

/** How much a check that was an estimate has really taken. */
export interface ActualHits {
  /** The name of the check. */
  name: string;
  /** The actual hits: 0 to 2^53−1. */
  hits: number;
}

/** The value to commit in one limit. */
export interface ActualValue {
  /** The name of the limit. The decision must hold in it. */
  limit_name: string;
  /** The value: without `record`, 0 or a value with the sign of the held one and not larger. */
  value: number;
}

/** The value to hold in one limit. */
export interface Change {
  /** The name of the limit. */
  limit_name: string;
  /** The value to hold; it may be negative or 0. */
  value: number;
  /** If this hold creates the limit: its ceiling, which this hold must not exceed either. Absent: no ceiling. */
  ceiling?: number | null;
  /** If this hold creates the limit: the client's notes about it. */
  context?: Context | null;
  /** If this hold creates the limit: the client's own id for it. */
  limit_id?: string | null;
}

/** A rule that changes. */
export interface ChangedRule {
  /** The name of the rule. */
  rule: string;
  /** The fields that change: those of a rule, `overrides`, and `managed_by` for a rule that belonged to no set. */
  fields: RuleField[];
  /** Whether what the rule has counted is forgotten: its window has another type or length, or it groups by other keys. */
  starts_empty: boolean;
}

/** `POST /check`: take hits from every limit that applies, or from none. */
export interface Check {
  /** What is about to happen. The rules that apply are found by these key-values. */
  key_values: KeyValues;
  /** Decide, but take nothing. Default: `false`. */
  dry_run?: boolean;
  /** How much to take: 0 to 2^53−1. 0 takes nothing and only reports. Default: 1. */
  hits?: number;
  /**
   * It has happened already: count it whatever the limits say, so that a bucket goes into debt. The answer is 200, and
   * `allowed` says whether it was within all limits. Not together with `dry_run`. Default: `false`.
   */
  report?: boolean;
  /**
   * If no rule applies, refuse the check with `NoRuleApplies`, so that a misspelt key cannot switch a limit off. Default:
   * `false`: then the check is allowed.
   */
  require_match?: boolean;
}

/** The result of a check. */
export interface CheckReply {
  /**
   * Whether the check took its hits or, with `dry_run`, would have taken them. With `report`: whether it was within all
   * limits.
   */
  allowed: boolean;
  /** Every limit that applied, ordered by rule, then by override. */
  limits: LimitStatus[];
  /**
   * The time in milliseconds after which the same check would pass if nothing else happened; `null` if it is
   * allowed, never passes, or the time is not known.
   */
  retry_after_ms: number | null;
  /** Only in a batch: the HTTP status that the single check would have. */
  status?: number;
}

/**
 * `POST /decisions/{operation_id}/commit`: it has happened, at these amounts. What is not named ends at its default: an
 * estimate as it was taken, a hold as it was held.
 */
export interface CommitDecision {
  /** The actual hits of checks that are estimates. Each check may occur once. */
  checks?: ActualHits[];
  /** The values to commit. Each limit may occur once. */
  holds?: ActualValue[];
  /**
   * It has happened anyway: book more than was held, past a ceiling, and also after the decision has expired or was
   * released by force. Default: `false`.
   */
  record?: boolean;
}

/** The code with which a PUT of a rule set is refused. */
export type ConflictCode = "RuleManagedBySet" | "OverridesConflict" | "OverrideAlreadyExists";

/** At most 64 entries, keys of 1–256 bytes, values of up to 1,024 bytes. */
export type Context = Record<string, string>;

/** A counter: how much is in use for exact key-values. */
export interface Counter {
  /** The key-values of the counter. */
  key_values: KeyValues;
  /** How much is in use, including leases. */
  counters: number;
  /** How much of it leases hold. */
  leased: number;
}

/** A counter after taking or giving back, with the result of the check. */
export interface CounterReply {
  /** The key-values of the counter. */
  key_values: KeyValues;
  /** How much is in use, including leases. */
  counters: number;
  /** How much of it leases hold. */
  leased: number;
  /** Always `true`. A refused change is answered with 409. */
  allowed: boolean;
  /** Every limit that applied, ordered by rule, then by override. */
  limits: LimitStatus[];
  /** Always `null`. */
  retry_after_ms: number | null;
}

/**
 * `POST /rules/{name}/overrides` and `PUT …/overrides/{override}`: create an override, or replace everything except
 * its name.
 */
export interface CreateOverride {
  /**
   * The override applies to checks that have all these key-values. Every `group_by` key of the rule is required;
   * more are allowed.
   */
  key_values: KeyValues;
  /** The limit that replaces the limit of the rule: at most 2^53−1. −1: no limit. */
  limit: number;
  /** The name, unique within the rule. In a PUT it may be absent; otherwise it must be the name in the path. */
  name: string;
  /** Only if the rule is a bucket: the most that it can contain, 1 to 2^53−1. Default: this limit. */
  burst?: number | null;
}

/** `POST /rules` and `PUT /rules/{name}`: create a rule, or replace everything except its name and its overrides. */
export interface CreateRule {
  /**
   * How much may be in use in a group, or happen in it within the window: at most 2^53−1. −1: no limit. 0: nothing
   * passes.
   */
  limit: number;
  /** The name, unique within the namespace. In a PUT it may be absent; otherwise it must be the name in the path. */
  name: string;
  /** The client's notes about the rule, up to 1,024 bytes. */
  description?: string | null;
  /** Whether the answer to a check waits for the disk. Default: `relaxed` with a window, `durable` without one. */
  durability?: Durability | null;
  /**
   * Each distinct combination of these keys' values is a group with a limit of its own. Empty: one group for
   * everything. Default: empty.
   */
  group_by?: string[];
  /**
   * Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. Default:
   * none.
   */
  selection?: Selection | null;
  /** Count and report, but never refuse. Default: `false`. */
  shadow?: boolean;
  /** The window in which hits count. Absent: hits count until they are given back. */
  window?: NewWindow | null;
}

/** A decision. */
export interface Decision {
  /** The client's id for the operation. */
  operation_id: string;
  /** Whether the decision is open, or how it has ended. */
  state: DecisionState;
  /** Whether an earlier request made the decision. */
  repeated: boolean;
  /** Whether the decision was recorded after it had ended in another way. */
  late: boolean;
  /** The holder's name for itself, or `null`. */
  owner: string | null;
  /** The position of the change that made the decision or, if it has ended, of its end; `null` in a dry run. */
  position: number | null;
  /** A number that grows with every decision and every lock of the namespace; `null` in a dry run. */
  fencing_token: number | null;
  /** The time since the decision was made, in milliseconds. If it has ended: until then. */
  held_ms: number;
  /** The time until the decision expires without a heartbeat, in milliseconds; `null` if it has ended. */
  expires_in_ms: number | null;
  /** The ttl in milliseconds: a heartbeat extends the decision to this time from now. */
  ttl_ms: number;
  /** Every limit that applies to the checks, in the order of the checks, then by rule, then by override. */
  limits: LimitOfDecision[];
  /** The values of the limits in which the decision holds, in the order of the request. */
  values: LimitValue[];
  /** The locks. */
  locks: HeldLock[];
  /** The event; `null` if the decision has none, or if its stream was deleted. */
  event: EventOfDecision | null;
  /** Only in a batch: the HTTP status that the single call would have. */
  status?: number;
}

/** A check of a decision. */
export interface DecisionCheck {
  /** What is about to happen. The rules that apply are found by these key-values. */
  key_values: KeyValues;
  /** `hits` is an estimate: a commit may state the actual hits, and a rollback refunds the windows. Default: `false`. */
  estimate?: boolean;
  /** How much to take: 0 to 2^53−1. 0 takes nothing and only reports. Default: 1. */
  hits?: number;
  /** The name of the check within the decision, each once. A commit needs it to state the actual hits. */
  name?: string | null;
  /** If no rule applies, refuse the decision with `NoRuleApplies`. Default: `false`. */
  require_match?: boolean;
}

/** The event of a decision. */
export interface DecisionEvent {
  /** The name of the stream. It must exist. */
  stream: string;
  /** The text of the event, 1–1,024 bytes. Events with the same text are duplicates. */
  event: string;
}

/** The state of a decision. */
export type DecisionState = "waiting" | "open" | "committed" | "rolled_back" | "expired";

/** Whether the answer to a check waits for the disk. */
export type Durability = "durable" | "relaxed";

/** One entry in the history of a limit, with the sums after it. */
export interface Entry {
  /** The position of the change. */
  position: number;
  /** When the change happened, in epoch milliseconds. */
  time: number;
  /** The operation that made the change. */
  operation_id: string;
  /** The type of the change. */
  type: EntryType;
  /** The value that was held, committed or freed. */
  value: number;
  /** The sum of all commits, after the change. */
  commit_value: number;
  /** The sum of all open holds, after the change. */
  hold_value: number;
  /** `commit_value` + `hold_value`. */
  total_value: number;
}

/** The type of an entry in the history of a limit. */
export type EntryType = "hold" | "commit" | "rollback" | "expiry" | "overage";

/** The event of a decision. */
export interface EventOfDecision {
  /** The name of the stream. */
  stream: string;
  /** The text of the event. */
  event: string;
  /** What became of the event. */
  status: EventStatus;
  /** When the event was accepted, in epoch milliseconds. */
  time: number;
  /**
   * When the event is published if the decision is committed by then, in epoch milliseconds. A later commit publishes
   * it at once.
   */
  publishes_at: number;
}

/** What became of the event of a decision. */
export type EventStatus = "submitted" | "published" | "invalidated";

/** An event and its time. */
export interface EventTime {
  /** The text of the event. */
  event: string;
  /** When the event was accepted, in epoch milliseconds. */
  time: number;
}

/** `POST /commit` and `POST /rollback`: finish holds of an operation, all that are named, or none. */
export interface Finalization {
  /** The operation that made the holds. */
  operation_id: string;
  /** The holds to finish. Each limit may occur once. Absent: all open holds of the operation, with their held values. */
  changes?: FinalizationChange[] | null;
}

/** How to finish the hold in one limit. */
export interface FinalizationChange {
  /** The name of the limit. */
  limit_name: string;
  /**
   * The value to commit: 0, or a value with the sign of the held one and not larger. The rest is freed. Absent: the
   * held value. A rollback ignores it and frees the whole hold.
   */
  value?: number | null;
}

/** The result of a commit or rollback. A repeated request returns the result of the first one. */
export interface FinalizationReply {
  /** The operation. */
  operation_id: string;
  /** The position of the commit or rollback. */
  position: number;
  /** The values of the limits at that position. */
  values: LimitValue[];
}

/** A group of a rule. */
export interface Group {
  /** The group: the `group_by` keys with their values, or the key-values of the override. */
  group: KeyValues;
  /** The name of the override whose limit applies; `null` if this is the rule's own limit. */
  override: string | null;
  /** The limit; for a bucket, its burst. −1: no limit. */
  limit: number;
  /** How much is used. For a bucket: the burst minus the whole tokens left. */
  used: number;
  /** `limit` − `used`, at least 0; `null` if there is no limit. */
  remaining: number | null;
  /**
   * The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
   * or if it is more than 2^53−1.
   */
  reset_ms: number | null;
  /** The number of requests that wait in the group. */
  waiting: number;
}

/** The groups of a rule that use the most of their limits. */
export interface Groups {
  /**
   * The groups. Those that use the largest part of their limit come first; groups without a limit come last, ordered by
   * what they use. Groups that use nothing are absent.
   */
  items: Group[];
  /** Always `null`: there are no further pages. */
  next: string | null;
  /**
   * Whether these are certainly the groups that use the most. `false` if the namespace has so many groups, or so large ones,
   * that not all of them could be looked at or returned.
   */
  complete: boolean;
}

/** One of the locks of a grant. */
export interface HeldLock {
  /** The key-values that identify the lock. */
  key_values: KeyValues;
  /** How the lock is held. */
  mode: LockMode;
}

/** `POST /hold`: hold values in one or more limits, in all of them or in none. */
export interface Hold {
  /** The client's id for the operation, which later commits or rolls back the holds. */
  operation_id: string;
  /** The values to hold. Each limit may occur once. */
  changes: Change[];
  /** Create the limits that do not exist. Default: `false`. */
  create_missing?: boolean;
  /** Roll the holds back automatically after this time: 1 ms–366 d. Absent: they never expire. */
  expires_after?: string | null;
  /** The same in milliseconds, in place of `expires_after`. */
  expires_after_ms?: number | null;
  /**
   * Skip the limits in which the operation already has an open hold of the same value, instead of answering
   * `DuplicateOperation`. Default: `false`.
   */
  skip_existing_holds?: boolean;
}

/** The result of a hold. */
export interface HoldReply {
  /** The operation. */
  operation_id: string;
  /** The position of the last request with which the operation held something. */
  position: number;
  /** The values of the limits at that position, in the order of the request. */
  values: LimitValue[];
  /** The limits that were skipped, because the operation already had an open hold of the same value there. */
  skipped: string[];
}

/** All incubating events of a stream: accepted, and neither published nor invalidated yet. */
export interface Incubating {
  /** The clock of the last change that this list includes. */
  clock: number;
  /** The events, in the order in which they were accepted. */
  events: IncubatingEvent[];
}

/** An incubating event. */
export interface IncubatingEvent {
  /** The text of the event. */
  event: string;
  /** When the event was accepted, in epoch milliseconds. */
  time: number;
  /** When the event will be published unless it is invalidated, in epoch milliseconds. */
  publishes_at: number;
}

/** A duplicate invalidated the event. It will not be published. */
export interface InvalidatedEvent {
  /** The clock of this change. */
  clock: number;
  /** The event. */
  eventTime: EventTime;
  /** What happened. */
  messageType: "INVALIDATED_EVENT";
}

/** All incubating events: the first message to a new follower, then repeated periodically. */
export interface KeyFrame {
  /** The clock of this change. */
  clock: number;
  /** The incubating events, in the order in which they were accepted. */
  snapshot: SnapshotEvent[];
  /** What happened. */
  messageType: "KEY_FRAME";
}

/**
 * A string of up to 1,024 bytes, an integer, a float or a boolean. The type is part of the value: `1`, `1.0`, `"1"` and
 * `true` differ. Requests may also use the typed form: `DataType` 0–4 are unsigned integers of 8, 16, 32 and 64 bits and
 * machine size, 5–9 signed integers of the same sizes, 10 and 11 floats of 32 and 64 bits, 12 strings.
 */
export type KeyValue = string | number | boolean;

/** At most 64 keys of 1–256 bytes. */
export type KeyValues = Record<string, KeyValue>;

/** A lease. */
export interface Lease {
  /** The id of the lease. */
  lease_id: string;
  /** The decision that the lease is a part of, or `null`. */
  operation_id: string | null;
  /** A number that grows with every lease of the namespace. */
  fencing_token: number;
  /** The key-values with which the hits were taken. */
  key_values: KeyValues;
  /** How much the lease holds. */
  hits: number;
  /** The holder's name for itself, or `null`. */
  owner: string | null;
  /** The time since the lease was granted, in milliseconds. */
  held_ms: number;
  /** The time until the lease expires without a heartbeat, in milliseconds. */
  expires_in_ms: number;
  /** The ttl in milliseconds: a heartbeat extends the lease to this time from now. */
  ttl_ms: number;
}

/** A lease that was granted. */
export interface LeaseGrant {
  /** The id of the lease. */
  lease_id: string;
  /** A secret of the holder. Heartbeats and the release need it. */
  session_id: string;
  /** A number that grows with every lease of the namespace. */
  fencing_token: number;
  /** The time until the lease expires without a heartbeat, in milliseconds. */
  expires_in_ms: number;
  /** Every limit that applied, ordered by rule, then by override. */
  limits: LimitStatus[];
}

/** A limit with its current values. */
export interface Limit {
  /** The name, unique within the namespace. */
  name: string;
  /** The client's own id for the limit, or `null`. */
  limit_id: string | null;
  /** The client's notes about the limit. */
  context: Context;
  /** The ceiling, or `null` if the limit has none. */
  ceiling: number | null;
  /** The sum of all commits. */
  commit_value: number;
  /** The sum of all open holds. */
  hold_value: number;
  /** `commit_value` + `hold_value`. */
  total_value: number;
  /** The largest value that could be held now, or `null` if the limit has no ceiling. 0 if the ceiling is reached. */
  available: number | null;
  /** The position at which the limit was created. */
  created_position: number;
}

/** A limit that applies to a check of a decision. */
export interface LimitOfDecision {
  /** The name of the rule. */
  rule: string | null;
  /** The name of the override; `null` if this is the rule's own limit. */
  override: string | null;
  /** The group: the `group_by` keys with their values, or the key-values of the override. */
  group: KeyValues;
  /** The limit; for a bucket, its burst. −1: no limit. */
  limit: number;
  /**
   * How much is used: after this check if it was allowed or is a `report`, otherwise unchanged. For a bucket: the burst
   * minus the
   * whole tokens left.
   */
  used: number;
  /** `limit` − `used`, at least 0; `null` if there is no limit. */
  remaining: number | null;
  /**
   * The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
   * or if it is more than 2^53−1.
   */
  reset_ms: number | null;
  /** Whether the rule only counts and reports. */
  shadow: boolean;
  /** Whether the check asked for more than remained, or earlier requests wait for it. */
  exceeded: boolean;
  /** The number of requests that wait in the group. */
  waiting: number;
  /** The check. */
  check: string | number;
}

/** `PATCH /limits/{name}`: change the given fields. `null` removes a field. */
export interface LimitPatch {
  /** The new ceiling. It applies to later holds. Existing holds and commits stay, even if they exceed it. */
  ceiling?: number | null;
  /** The new context. It replaces the whole old one. */
  context?: Context | null;
}

/** One limit that applied to a check. */
export interface LimitStatus {
  /** The name of the rule. */
  rule: string | null;
  /** The name of the override; `null` if this is the rule's own limit. */
  override: string | null;
  /** The group: the `group_by` keys with their values, or the key-values of the override. */
  group: KeyValues;
  /** The limit; for a bucket, its burst. −1: no limit. */
  limit: number;
  /**
   * How much is used: after this check if it was allowed or is a `report`, otherwise unchanged. For a bucket: the burst
   * minus the
   * whole tokens left.
   */
  used: number;
  /** `limit` − `used`, at least 0; `null` if there is no limit. */
  remaining: number | null;
  /**
   * The time in milliseconds after which nothing that is used now counts any more; `null` without a window, if never,
   * or if it is more than 2^53−1.
   */
  reset_ms: number | null;
  /** Whether the rule only counts and reports. */
  shadow: boolean;
  /** Whether the check asked for more than remained, or earlier requests wait for it. */
  exceeded: boolean;
  /** The number of requests that wait in the group. */
  waiting: number;
}

/** The values of one limit at one position. */
export interface LimitValue {
  /** The name of the limit. */
  limit_name: string;
  /** The client's own id for the limit, or `null`. */
  limit_id: string | null;
  /** The sum of all commits. */
  commit_value: number;
  /** The sum of all open holds. */
  hold_value: number;
  /** `commit_value` + `hold_value`. */
  total_value: number;
}

/** A grant, as everybody can read it. */
export interface Lock {
  /** The id of the grant. */
  lock_id: string;
  /** The decision that the grant is a part of, or `null`. */
  operation_id: string | null;
  /** The holder's name for itself, or `null`. */
  owner: string | null;
  /** The locks that are held. */
  locks: HeldLock[];
  /** The time since the grant, in milliseconds. */
  held_ms: number;
  /** The time until the grant expires without a heartbeat, in milliseconds. */
  expires_in_ms: number;
  /** The ttl in milliseconds: a heartbeat extends the grant to this time from now. */
  ttl_ms: number;
  /** A number that grows with every grant of the namespace. */
  fencing_token: number;
  /** The number of requests that wait for any of these locks. Above a few thousand, it is the length of the longest queue. */
  waiting: number;
}

/** A grant: one or more locks that are held together. */
export interface LockGrant {
  /** The id of the grant. */
  lock_id: string;
  /** A secret of the holder. Heartbeats and the release need it. */
  session_id: string;
  /**
   * A number that grows with every grant of the namespace. The protected resource should reject a token that is
   * smaller than one it has seen.
   */
  fencing_token: number;
  /** The time until the grant expires without a heartbeat, in milliseconds. */
  expires_in_ms: number;
  /** The locks that are held. */
  locks: HeldLock[];
}

/** How a lock is held. */
export type LockMode = "exclusive" | "shared";

/** The rules that apply. */
export interface MatchReply {
  /** The rules, ordered by name. */
  rules: RuleMatch[];
}

/** A message to the followers of a stream. */
export type Message = SubmittedEvent | InvalidatedEvent | PublishedEvent | KeyFrame;

/** A namespace: everything in it has one order, and nothing is shared with another namespace. */
export interface Namespace {
  /** The name of the namespace. */
  namespace: string;
  /** The position of the last change. Positions grow with every change of the namespace. */
  position: number;
}

/** `POST /decisions`: take, hold, lock and submit at one instant, or nothing. At least one part. */
export type NewDecision = {
  /**
   * The client's id for the operation. Operations of the ledger share these ids. Whoever knows the id can end the
   * decision, so choose one that cannot be guessed.
   */
  operation_id: string;
  /** What is taken from limits of the limiter, in this order: a later check sees what an earlier one takes. */
  checks?: DecisionCheck[];
  /** Create the limits of the ledger that do not exist. Default: `false`. */
  create_missing?: boolean;
  /** Decide, but move nothing, and do not wait. Default: `false`. */
  dry_run?: boolean;
  /** An event that is published after the commit. */
  event?: DecisionEvent | null;
  /** If a slot or a ceiling refuses, name those who hold it. Default: `false`. */
  explain?: boolean;
  /** What is held in limits of the ledger. Each limit may occur once. */
  holds?: Change[];
  /** The locks. Each may occur once. */
  locks?: WantedLock[];
  /** The client's name for itself, which everybody can read. Absent: none. */
  owner?: string | null;
  /** How long the decision stays open without a heartbeat: 100 ms–24 h. Default: 60 s. */
  ttl?: string | null;
  /** The ttl in milliseconds, in place of `ttl`. */
  ttl_ms?: number | null;
  /** How long to wait for locks and slots: 0–5 min. Default: 0. In a batch it must be 0. */
  wait?: string | number | null;
  /** The wait in milliseconds, in place of `wait`. */
  wait_ms?: number | null;
} & ({ checks: DecisionCheck[] } | { holds: Change[] } | { locks: WantedLock[] } | { event: DecisionEvent });

/** `POST /limits`: create a limit. */
export interface NewLimit {
  /** The name, unique within the namespace. */
  name: string;
  /** The committed value plus all positive open holds must not exceed the ceiling. Absent: no ceiling. */
  ceiling?: number | null;
  /** The client's notes about the limit: at most 64 entries, keys of 1–256 bytes, values of up to 1,024 bytes. */
  context?: Context | null;
  /** The client's own id for the limit, 1–256 bytes. The server only stores and returns it. */
  limit_id?: string | null;
}

/**
 * `POST /rules/{name}/overrides` and `PUT …/overrides/{override}`: create an override, or replace everything except
 * its name.
 */
export interface NewOverride {
  /**
   * The override applies to checks that have all these key-values. Every `group_by` key of the rule is required;
   * more are allowed.
   */
  key_values: KeyValues;
  /** The limit that replaces the limit of the rule: at most 2^53−1. −1: no limit. */
  limit: number;
  /** Only if the rule is a bucket: the most that it can contain, 1 to 2^53−1. Default: this limit. */
  burst?: number | null;
  /** The name, unique within the rule. In a PUT it may be absent; otherwise it must be the name in the path. */
  name?: string | null;
}

/** `POST /rules` and `PUT /rules/{name}`: create a rule, or replace everything except its name and its overrides. */
export interface NewRule {
  /**
   * How much may be in use in a group, or happen in it within the window: at most 2^53−1. −1: no limit. 0: nothing
   * passes.
   */
  limit: number;
  /** The client's notes about the rule, up to 1,024 bytes. */
  description?: string | null;
  /** Whether the answer to a check waits for the disk. Default: `relaxed` with a window, `durable` without one. */
  durability?: Durability | null;
  /**
   * Each distinct combination of these keys' values is a group with a limit of its own. Empty: one group for
   * everything. Default: empty.
   */
  group_by?: string[];
  /** The name, unique within the namespace. In a PUT it may be absent; otherwise it must be the name in the path. */
  name?: string | null;
  /**
   * Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. Default:
   * none.
   */
  selection?: Selection | null;
  /** Count and report, but never refuse. Default: `false`. */
  shadow?: boolean;
  /** The window in which hits count. Absent: hits count until they are given back. */
  window?: NewWindow | null;
}

/** `PUT /rule-sets/{set}`: make the set exactly this. */
export interface NewRuleSet {
  /** The rules of the set, each name once. */
  rules: NewSetRule[];
  /** Whether clients may make overrides of the rules. Default: `closed`. */
  overrides?: SetOverrides | null;
}

/** A rule of a set, with its overrides. */
export interface NewSetRule {
  /** The name, unique within the namespace. */
  name: string;
  /**
   * How much may be in use in a group, or happen in it within the window: at most 2^53−1. −1: no limit. 0: nothing
   * passes.
   */
  limit: number;
  /** The client's notes about the rule, up to 1,024 bytes. */
  description?: string | null;
  /** Whether the answer to a check waits for the disk. Default: `relaxed` with a window, `durable` without one. */
  durability?: Durability | null;
  /**
   * Each distinct combination of these keys' values is a group with a limit of its own. Empty: one group for
   * everything. Default: empty.
   */
  group_by?: string[];
  /**
   * The overrides of the rule that belong to the set, each name and each key-values once; each has a name. Default:
   * none.
   */
  overrides?: CreateOverride[];
  /**
   * Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. Default:
   * none.
   */
  selection?: Selection | null;
  /** Count and report, but never refuse. Default: `false`. */
  shadow?: boolean;
  /** The window in which hits count. Absent: hits count until they are given back. */
  window?: NewWindow | null;
}

/** `PUT /events/{stream}`: create a stream, or change everything except its mode. */
export type NewStream = {
  /** What a duplicate does. It cannot change later. */
  mode: StreamMode;
  /** How long an event blocks duplicates of itself, and the time until it is published: 10 ms–30 d. */
  duration?: string | null;
  /** The duration in milliseconds, in place of `duration`. */
  duration_ms?: number | null;
  /** How often followers receive all incubating events: 100 ms–24 h. Default: 10 s. */
  key_frame_every?: string | null;
  /** The same in milliseconds, in place of `key_frame_every`. */
  key_frame_every_ms?: number | null;
  /** How many distinct events the stream can remember at once: 1–1,000,000. Default: 10,000. */
  max_events?: number | null;
  /** The name of the stream. It may be absent; otherwise it must be the name in the path. */
  name?: string | null;
} & ({ duration: string } | { duration_ms: number });

/** The time span in which hits count. */
export type NewWindow = {
  /** The type of the window. */
  type: "fixed" | "sliding" | "bucket";
  /** Only for a bucket: the most that it can contain, 1 to 2^53−1. Default: the limit. */
  burst?: number | null;
  /** The length of the window: 1 ms–366 d. For a bucket: the time in which the whole limit is refilled. */
  per?: string | null;
  /** The length of the window in milliseconds, in place of `per`. */
  per_ms?: number | null;
} & ({ per: string } | { per_ms: number });

/** An operation with all its holds. */
export interface Operation {
  /** The client's id for the operation. */
  operation_id: string;
  /** The position of the last request with which the operation held something. */
  position: number;
  /** The state of the operation as a whole. */
  state: OperationState;
  /** The holds, in the order in which they were made. */
  holds: OperationHold[];
}

/** The hold of an operation in one limit. */
export interface OperationHold {
  /** The name of the limit. */
  limit_name: string;
  /** The client's own id for the limit, or `null`. */
  limit_id: string | null;
  /**
   * Whether the limit was deleted after the hold had ended. A limit that was created later under the same name is
   * another limit.
   */
  deleted: boolean;
  /** The state of the hold. */
  state: OperationState;
  /** The value that was held. */
  held_value: number;
  /** The value that was committed, or `null` if the hold was not committed. */
  committed_value: number | null;
  /** When the value was held, in epoch milliseconds. */
  held_at: number;
  /** The position of the hold. */
  hold_position: number;
  /** The position of the commit, rollback or expiry; `null` while the hold is open. */
  final_position: number | null;
  /** When the hold expires or would have expired, in epoch milliseconds; `null` if it never expires. */
  expires_at: number | null;
  /** The time until the hold expires; `null` if it never does, or is no longer open. */
  expires_in_ms: number | null;
  /** Whether the hold was rolled back because it had expired. */
  expired: boolean;
}

/** The state of a hold, or of an operation as a whole. */
export type OperationState = "held" | "committed" | "rolled_back";

/** An override: another limit for exact values. */
export interface Override {
  /** The rule that the override belongs to. */
  rule: string;
  /** The name, unique within the rule. */
  name: string;
  /** The override applies to checks that have all these key-values. */
  key_values: KeyValues;
  /** The limit that replaces the limit of the rule. −1: no limit. */
  limit: number;
  /** The most that the bucket can contain; `null` for the limit, and if the rule is not a bucket. */
  burst: number | null;
  /** The position at which the override was created. */
  created_position: number;
}

/** `PATCH /rules/{name}/overrides/{override}`: change the given fields. `null` removes the burst. */
export interface OverridePatch {
  /** The new burst: 1 to 2^53−1. */
  burst?: number | null;
  /** The new key-values, as a whole. */
  key_values?: KeyValues;
  /** The new limit: −1 to 2^53−1. */
  limit?: number;
}

/** The duration passed without a duplicate that invalidates the event. */
export interface PublishedEvent {
  /** The clock of this change. */
  clock: number;
  /** The event. */
  eventTime: EventTime;
  /** What happened. */
  messageType: "PUBLISHED_EVENT";
}

/** What a query looks for. All given fields must hold. An empty query finds everything. */
export interface Query {
  /** Every one of these queries holds. */
  all?: Query[];
  /** At least one of these queries holds. Empty or absent: no condition. */
  any?: Query[];
  /** The object has at most this many keys. */
  max_keys?: number | null;
  /** The object has at least this many keys. */
  min_keys?: number | null;
  /** Conditions on the key-values of an object. For rules, only `exists` is allowed, on `group_by` keys. */
  where?: Selection | null;
}

/** A request, or an item of a batch, that was refused. A field that does not apply is `null`. */
export interface Refusal {
  /** When it was refused, in epoch milliseconds. */
  time: number;
  /** The namespace of the request. */
  namespace: string;
  /** The family of the request: `limiter`, `locks`, `events`, `ledger` or `decisions`. */
  family: string;
  /** The error code, as in problem documents. */
  code: string;
  /** The first rule of the limiter that refused the request. */
  rule: string | null;
  /** The first limit of the ledger that refused the request. */
  limit_name: string | null;
  /** The stream that refused the event. */
  stream: string | null;
  /** The group of the rule, or the lock. */
  key_values: KeyValues | null;
  /** The operation of the ledger, or the decision. */
  operation_id: string | null;
}

/** A rule. */
export interface Rule {
  /** The name, unique within the namespace. */
  name: string;
  /** Each distinct combination of these keys' values is a group with a limit of its own. */
  group_by: string[];
  /** Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. */
  selection: Selection;
  /** How much may be in use in a group, or happen in it within the window. −1: no limit. */
  limit: number;
  /** The window in which hits count; `null` if they count until they are given back. */
  window: Window | null;
  /** Whether the rule only counts and reports, and never refuses. */
  shadow: boolean;
  /** Whether the answer to a check waits for the disk. */
  durability: Durability;
  /** The client's notes about the rule, or `null`. */
  description: string | null;
  /** The number of overrides of the rule. */
  overrides: number;
  /** The rule set that the rule belongs to, which alone can change it, or `null`. `file` is the server's rules file. */
  managed_by: string | null;
  /** The position at which the rule was created. */
  created_position: number;
}

/** A field of a rule. */
export type RuleField = "group_by" | "selection" | "limit" | "window" | "shadow" | "durability" | "description" | "overrides" | "managed_by";

/** A rule that applies, with its group and those of its overrides that apply. */
export interface RuleMatch {
  /** The name, unique within the namespace. */
  name: string;
  /** Each distinct combination of these keys' values is a group with a limit of its own. */
  group_by: string[];
  /** Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. */
  selection: Selection;
  /** How much may be in use in a group, or happen in it within the window. −1: no limit. */
  limit: number;
  /** The window in which hits count; `null` if they count until they are given back. */
  window: Window | null;
  /** Whether the rule only counts and reports, and never refuses. */
  shadow: boolean;
  /** Whether the answer to a check waits for the disk. */
  durability: Durability;
  /** The client's notes about the rule, or `null`. */
  description: string | null;
  /** The number of overrides of the rule. */
  overrides: number;
  /** The rule set that the rule belongs to, which alone can change it, or `null`. `file` is the server's rules file. */
  managed_by: string | null;
  /** The position at which the rule was created. */
  created_position: number;
  /** The group: the `group_by` keys with their values. */
  group: KeyValues;
  /** The overrides that apply, ordered by name. If there is any, the own limit of the rule refuses nothing. */
  matching_overrides: Override[];
}

/** `PATCH /rules/{name}`: change the given fields. `null` removes an optional field. */
export interface RulePatch {
  /** The client's notes about the rule, up to 1,024 bytes. */
  description?: string | null;
  /** Whether the answer to a check waits for the disk. `null`: the default for the window. */
  durability?: Durability | null;
  /** The new limit: −1 to 2^53−1. */
  limit?: number;
  /** The new selection, as a whole. */
  selection?: Selection | null;
  /** Whether the rule only counts and reports. `null`: it does not. */
  shadow?: boolean | null;
  /** The new window, as a whole. With another type or another `per`, it starts empty. */
  window?: NewWindow | null;
}

/** What a query looks for. All given fields must hold. An empty query finds everything. */
export interface RuleQuery {
  /** Every one of these queries holds. */
  all?: RuleQuery[];
  /** At least one of these queries holds. Empty or absent: no condition. */
  any?: RuleQuery[];
  /** The object has at most this many keys. */
  max_keys?: number | null;
  /** The object has at least this many keys. */
  min_keys?: number | null;
  /** Conditions on the key-values of an object. For rules, only `exists` is allowed, on `group_by` keys. */
  where?: Record<string, { exists: boolean }> | null;
}

/** A rule set with its rules. It can be sent back with PUT. */
export interface RuleSet {
  /** The name, unique within the namespace. */
  name: string;
  /** The rules, ordered by name. */
  rules: SetRule[];
  /** Whether clients may make overrides of the rules. */
  overrides: SetOverrides;
  /** The position at which the set was created. */
  created_position: number;
}

/** What putting a rule set has changed, or would change. */
export interface RuleSetChanges {
  /** The names of the rules that are created, ordered. */
  created: string[];
  /** The rules that change, or whose overrides do, ordered by name. */
  changed: ChangedRule[];
  /** The names of the rules that are deleted, ordered. */
  deleted: string[];
  /** Why putting the set is refused, ordered by rule. Empty unless this is a dry run. */
  conflicts: SetConflict[];
}

/** A rule set without its rules. */
export interface RuleSetInfo {
  /** The name, unique within the namespace. */
  name: string;
  /** The number of its rules. */
  rules: number;
  /** Whether clients may make overrides of the rules. */
  overrides: SetOverrides;
  /** The position at which the set was created. */
  created_position: number;
}

/** Conditions by key. All of them must hold. At most 64 keys of 1–256 bytes. */
export type Selection = Record<string, KeyValue | Tests>;

/** Why a rule set cannot be put. */
export interface SetConflict {
  /** The name of the rule. */
  rule: string;
  /** The code with which the PUT is refused. */
  code: ConflictCode;
  /** For `RuleManagedBySet`: the set that the rule belongs to; otherwise `null`. */
  managed_by: string | null;
  /** For the other codes: the client's override that is in the way; otherwise `null`. */
  override: string | null;
}

/** Whether clients may make overrides of the rules of a set. */
export type SetOverrides = "closed" | "open";

/** A rule of a set, with its overrides. */
export interface SetRule {
  /** The name, unique within the namespace. */
  name: string;
  /** Each distinct combination of these keys' values is a group with a limit of its own. */
  group_by: string[];
  /** Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. */
  selection: Selection;
  /** How much may be in use in a group, or happen in it within the window. −1: no limit. */
  limit: number;
  /** The window in which hits count; `null` if they count until they are given back. */
  window: Window | null;
  /** Whether the rule only counts and reports, and never refuses. */
  shadow: boolean;
  /** Whether the answer to a check waits for the disk. */
  durability: Durability;
  /** The client's notes about the rule, or `null`. */
  description: string | null;
  /**
   * The overrides of the rule that belong to the set, ordered by name. Overrides that clients have made in an open set
   * are not among them.
   */
  overrides: Override[];
  /** The set. */
  managed_by: string;
  /** The position at which the rule was created. */
  created_position: number;
}

/** An event of a key frame. */
export interface SnapshotEvent {
  /** The text of the event. */
  event: string;
  /** When the event was accepted, in epoch milliseconds. */
  time: number;
  /** Always `Valid`. */
  status: SnapshotStatus;
}

/** The status of an event in a key frame. */
export type SnapshotStatus = "Valid";

/** A stream of events. */
export interface Stream {
  /** The name, unique within the namespace. */
  name: string;
  /** What a duplicate does. */
  mode: StreamMode;
  /** How long an event blocks duplicates of itself, in milliseconds. */
  duration_ms: number;
  /** How many distinct events the stream can remember at once. */
  max_events: number;
  /** How often followers receive all incubating events, in milliseconds. */
  key_frame_every_ms: number;
  /** The clock of the last change. Every change of the stream adds 1. */
  clock: number;
  /** The number of incubating events. */
  incubating: number;
}

/** What a duplicate of an event does. */
export type StreamMode = "only_once" | "strictly_once";

/** An event that was accepted. */
export interface Submitted {
  /** Always `submitted`. */
  status: SubmittedStatus;
  /** The text of the event. */
  event: string;
  /** When the event was accepted, in epoch milliseconds. */
  time: number;
  /** The clock of this change. */
  clock: number;
  /** When the event will be published unless it is invalidated, in epoch milliseconds. */
  publishes_at: number;
}

/** An event was accepted and incubates. */
export interface SubmittedEvent {
  /** The clock of this change. */
  clock: number;
  /** The event. */
  eventTime: EventTime;
  /** What happened. */
  messageType: "SUBMITTED_EVENT";
}

/** The status of an event that was accepted. */
export type SubmittedStatus = "submitted";

/** Tests on the value of one key. All given tests must hold. If the key is absent, only `exists: false` holds. */
export interface Tests {
  /** The value equals this one, including its type. */
  eq?: KeyValue;
  /** `true`: the key is present. `false`: the key is absent. */
  exists?: boolean;
  /** The value is greater than this one. */
  gt?: KeyValue;
  /** The value is greater than or equal to this one. */
  gte?: KeyValue;
  /** The value equals one of these. */
  in?: KeyValue[];
  /**
   * The value is less than this one: numbers are compared by number, strings by bytes. Values of other types never
   * are.
   */
  lt?: KeyValue;
  /** The value is less than or equal to this one. */
  lte?: KeyValue;
  /** The value differs from this one. A value of another type differs. */
  ne?: KeyValue;
  /** The value is a string that starts with this one. */
  prefix?: string;
}

/** The values of limits at one position. */
export interface ValuesReply {
  /** The position. */
  position: number;
  /** The values, in the order of the request. */
  values: LimitValue[];
}

/** One of several locks to acquire. */
export interface WantedLock {
  /** The key-values that identify the lock, at least one. */
  key_values: KeyValues;
  /** The mode. Default: `exclusive`. */
  mode?: LockMode | null;
}

/** The time span in which hits count. */
export interface Window {
  /** The type of the window. */
  type: WindowType;
  /** The length of the window in milliseconds. */
  per_ms: number;
  /** The most that a bucket can contain; `null` for the limit, and for the other types. */
  burst: number | null;
}

/** The type of a window. */
export type WindowType = "fixed" | "sliding" | "bucket";
