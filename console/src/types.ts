// Generated from docs/openapi.json by `cargo xtask types`. Do not edit.
import type { Num } from "./json";
import type { KeyValue, KeyValues } from "./keyvalues";

/** A management action: who did what, from where, and what it changed. */
export interface AuditRecord {
  /** When it was done, in epoch milliseconds. */
  time: number;
  /** The namespace in which it was done. */
  namespace: string;
  /** The position of the change. For the deletion of a namespace, that of the last change before it. */
  position: number;
  /** The id of the request, which its answer had as `X-Request-Id`. `null` for what the server does itself. */
  request_id: string | null;
  /** What was done, such as `put_rule` or `force_release_lock`. */
  action: string;
  /** With what: a name or id; `RULE/OVERRIDE` for an override; the key-values of a counter as JSON. */
  target: string;
  /** The name of the token. `null` on a server without tokens, and for what the server does itself. */
  actor?: string | null;
  /** The address from which the client's connection came. `null` for what the server does itself. */
  address?: string | null;
  /** How it was afterwards. `null` if it no longer existed. */
  after?: Record<string, unknown> | null;
  /**
   * How it was before, as a read returns it. `null` if it did not exist. If it is larger than 16 KiB, an object with
   * `summary`.
   */
  before?: Record<string, unknown> | null;
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

/** `GET /v1/cluster`: the nodes, the shards, and which node owns each shard. */
export interface Cluster {
  /** The name of the node that answers. */
  node: string;
  /** All nodes. A server with the embedded store has only itself. */
  nodes: Node[];
  /** All shards, ordered by number; with `?namespace=`, only the shard of that namespace. */
  shards: Shard[];
}

/** At most 64 entries, keys of 1–256 bytes, values of up to 1,024 bytes. */
export type Context = Record<string, string>;

/** A counter: how much is in use for exact key-values. */
export interface Counter {
  /** The key-values of the counter. */
  key_values: KeyValues;
  /** How much is in use, including leases. */
  counters: Num;
  /** How much of it leases hold. */
  leased: Num;
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
  value: Num;
  /** The sum of all commits, after the change. */
  commit_value: Num;
  /** The sum of all open holds, after the change. */
  hold_value: Num;
  /** `commit_value` + `hold_value`. */
  total_value: Num;
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

/** A group of a rule. */
export interface Group {
  /** The group: the `group_by` keys with their values, or the key-values of the override. */
  group: KeyValues;
  /** The name of the override whose limit applies; `null` if this is the rule's own limit. */
  override: string | null;
  /** The limit; for a bucket, its burst. −1: no limit. */
  limit: Num;
  /** How much is used. For a bucket: the burst minus the whole tokens left. */
  used: Num;
  /** `limit` − `used`, at least 0; `null` if there is no limit. */
  remaining: Num | null;
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
  hits: Num;
  /** The holder's name for itself, or `null`. */
  owner: string | null;
  /** The time since the lease was granted, in milliseconds. */
  held_ms: number;
  /** The time until the lease expires without a heartbeat, in milliseconds. */
  expires_in_ms: number;
  /** The ttl in milliseconds: a heartbeat extends the lease to this time from now. */
  ttl_ms: number;
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
  ceiling: Num | null;
  /** The sum of all commits. */
  commit_value: Num;
  /** The sum of all open holds. */
  hold_value: Num;
  /** `commit_value` + `hold_value`. */
  total_value: Num;
  /** The largest value that could be held now, or `null` if the limit has no ceiling. 0 if the ceiling is reached. */
  available: Num | null;
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
  limit: Num;
  /**
   * How much is used: after this check if it was allowed or is a `report`, otherwise unchanged. For a bucket: the burst
   * minus the
   * whole tokens left.
   */
  used: Num;
  /** `limit` − `used`, at least 0; `null` if there is no limit. */
  remaining: Num | null;
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

/** One limit that applied to a check. */
export interface LimitStatus {
  /** The name of the rule. */
  rule: string | null;
  /** The name of the override; `null` if this is the rule's own limit. */
  override: string | null;
  /** The group: the `group_by` keys with their values, or the key-values of the override. */
  group: KeyValues;
  /** The limit; for a bucket, its burst. −1: no limit. */
  limit: Num;
  /**
   * How much is used: after this check if it was allowed or is a `report`, otherwise unchanged. For a bucket: the burst
   * minus the
   * whole tokens left.
   */
  used: Num;
  /** `limit` − `used`, at least 0; `null` if there is no limit. */
  remaining: Num | null;
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
  commit_value: Num;
  /** The sum of all open holds. */
  hold_value: Num;
  /** `commit_value` + `hold_value`. */
  total_value: Num;
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
  /** The number of requests that wait for any of these locks. */
  waiting: number;
}

/** How a lock is held. */
export type LockMode = "exclusive" | "shared";

/** The rules that apply. */
export interface MatchReply {
  /** The rules, ordered by name. */
  rules: RuleMatch[];
}

/** A namespace: everything in it has one order, and nothing is shared with another namespace. */
export interface Namespace {
  /** The name of the namespace. */
  namespace: string;
  /** The position of the last change. Positions grow with every change of the namespace. */
  position: number;
}

/** A node of the cluster. */
export interface Node {
  /** The name of the node. */
  node: string;
  /**
   * Whether the node serves requests. For another node: whether it is alive and not about to stop; false while the database
   * does not
   * answer.
   */
  ready: boolean;
  /** Whether the node is about to stop and hands its shards over. */
  leaving: boolean;
  /** The address at which other nodes reach it; absent with the embedded store. */
  address?: string | null;
}

/** An operation with all its holds. */
export interface Operation {
  /** The client's id for the operation. */
  operation_id: string;
  /** The position of the last request with which the operation held something. */
  position: number;
  /** The state of the operation as a whole. */
  state: State;
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
  state: State;
  /** The value that was held. */
  held_value: Num;
  /** The value that was committed, or `null` if the hold was not committed. */
  committed_value: Num | null;
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

/** An override: another limit for exact values. */
export interface Override {
  /** The rule that the override belongs to. */
  rule: string;
  /** The name, unique within the rule. */
  name: string;
  /** The override applies to checks that have all these key-values. */
  key_values: KeyValues;
  /** The limit that replaces the limit of the rule. −1: no limit. */
  limit: Num;
  /** The most that the bucket can contain; `null` for the limit, and if the rule is not a bucket. */
  burst: Num | null;
  /** The position at which the override was created. */
  created_position: number;
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
  limit: Num;
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

/** A rule that applies, with its group and those of its overrides that apply. */
export interface RuleMatch {
  /** The name, unique within the namespace. */
  name: string;
  /** Each distinct combination of these keys' values is a group with a limit of its own. */
  group_by: string[];
  /** Conditions that key-values must satisfy so that the rule applies, besides having all `group_by` keys. */
  selection: Selection;
  /** How much may be in use in a group, or happen in it within the window. −1: no limit. */
  limit: Num;
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
  limit: Num;
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

/** A shard: the unit of ownership. Each namespace belongs to one shard. */
export interface Shard {
  /** The number of the shard, from 0. */
  shard: number;
  /**
   * Whether the shard serves requests; `false` while it is being opened, or while the database does not answer. For a shard
   * of another
   * node: whether that node is alive.
   */
  open: boolean;
  /** A number that grows whenever the shard is taken over, handed over or opened; absent with the embedded store. */
  epoch?: number | null;
  /** The name of the node that owns the shard; `null` while no node does. */
  owner?: string | null;
}

/** The state of a hold, or of an operation as a whole. */
export type State = "held" | "committed" | "rolled_back";

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

/** The time span in which hits count. */
export interface Window {
  /** The type of the window. */
  type: WindowType;
  /** The length of the window in milliseconds. */
  per_ms: number;
  /** The most that a bucket can contain; `null` for the limit, and for the other types. */
  burst: Num | null;
}

/** The type of a window. */
export type WindowType = "fixed" | "sliding" | "bucket";
