/**
 * The documents of the API, as they travel: what a page of the reference or an answer of `curl` shows can be typed in as it stands.
 * `test/types.check.ts` holds these types against the OpenAPI document.
 */

/** A value of a key-value. The type is part of the value: `1`, `"1"` and `true` are different. */
export type Value = string | number | boolean;
export type KeyValues = Record<string, Value>;

/** Conditions on one key. All of them must hold. */
export interface Tests {
  eq?: Value;
  ne?: Value;
  lt?: Value;
  lte?: Value;
  gt?: Value;
  gte?: Value;
  in?: Value[];
  prefix?: string;
  exists?: boolean;
}
export type Selection = Record<string, Value | Tests>;

/** What a query looks for. All given fields must hold. */
export interface Query {
  where?: Selection;
  min_keys?: number;
  max_keys?: number;
  any?: Query[];
  all?: Query[];
}

/** Rules are found by their `group_by` keys. */
export interface RuleQuery {
  where?: Record<string, { exists: boolean }>;
  min_keys?: number;
  max_keys?: number;
  any?: RuleQuery[];
  all?: RuleQuery[];
}

// Limiter

export interface Check {
  key_values: KeyValues;
  /** How much to take. Default: 1. */
  hits?: number;
  /** Decide, but take nothing. */
  dry_run?: boolean;
  /** If no rule applies, the check is an error instead of allowed. */
  require_match?: boolean;
  /** It has happened already: count it, whatever the limits say. */
  report?: boolean;
}

export interface CheckReply {
  allowed: boolean;
  /** Every limit that applied. */
  limits: LimitStatus[];
  /** When the same check would pass if nothing else happened; null if that is not known, or never. */
  retry_after_ms: number | null;
}

export interface LimitStatus {
  rule: string | null;
  override: string | null;
  group: KeyValues;
  limit: number;
  used: number;
  remaining: number | null;
  reset_ms: number | null;
  shadow: boolean;
  exceeded: boolean;
  /** How many requests wait in the group. */
  waiting?: number;
}

export type NewWindow =
  | { type: "fixed" | "sliding"; per: string }
  | { type: "fixed" | "sliding"; per_ms: number }
  | { type: "bucket"; per: string; burst?: number | null }
  | { type: "bucket"; per_ms: number; burst?: number | null };

export interface Window {
  type: "fixed" | "sliding" | "bucket";
  per_ms: number;
  burst: number | null;
}

export interface NewRule {
  limit: number;
  group_by?: string[];
  selection?: Selection | null;
  window?: NewWindow | null;
  shadow?: boolean;
  durability?: "durable" | "relaxed" | null;
  description?: string | null;
}

export interface Rule {
  name: string;
  group_by: string[];
  selection: Selection;
  limit: number;
  window: Window | null;
  shadow: boolean;
  durability: "durable" | "relaxed";
  description: string | null;
  /** How many overrides the rule has. */
  overrides: number;
  /** The rule set that the rule belongs to. */
  managed_by: string | null;
  created_position: number;
}

export type RulePatch = Partial<Omit<NewRule, "group_by">>;

export interface MatchedRule extends Rule {
  group: KeyValues;
  matching_overrides: Override[];
}

export interface NewOverride {
  key_values: KeyValues;
  limit: number;
  burst?: number | null;
}

export interface Override {
  rule: string;
  name: string;
  key_values: KeyValues;
  limit: number;
  burst: number | null;
  created_position: number;
}

export interface Group {
  group: KeyValues;
  override: string | null;
  limit: number;
  used: number;
  remaining: number | null;
  reset_ms: number | null;
  waiting: number;
}

/** A named set of rules with their overrides, replaced whole or not at all. */
export interface NewRuleSet {
  rules: (NewRule & { name: string; overrides?: (NewOverride & { name: string })[] })[];
  /** `open`: clients may make overrides of their own. Default: `closed`. */
  overrides?: "closed" | "open";
}

export interface RuleSet {
  name: string;
  rules: (Omit<Rule, "overrides"> & { overrides: Override[] })[];
  overrides: "closed" | "open";
  created_position: number;
}

export interface RuleSetInfo {
  name: string;
  /** How many rules the set has. */
  rules: number;
  overrides: "closed" | "open";
  created_position: number;
}

/** What putting a rule set has changed, or would change. */
export interface RuleSetChanges {
  created: string[];
  changed: { rule: string; fields: string[]; starts_empty: boolean }[];
  deleted: string[];
  /** Why it would be refused. Empty unless this is a dry run. */
  conflicts: { rule: string; code: string; managed_by: string | null; override: string | null }[];
}

export interface Counter {
  key_values: KeyValues;
  counters: number;
  /** How much of it leases hold. */
  leased: number;
}
export type CounterReply = Counter & CheckReply;

export interface LeaseGrant {
  lease_id: string;
  session_id: string;
  fencing_token: number;
  expires_in_ms: number;
  limits: LimitStatus[];
}

export interface Lease {
  lease_id: string;
  fencing_token: number;
  key_values: KeyValues;
  hits: number;
  owner: string | null;
  held_ms: number;
  expires_in_ms: number;
  ttl_ms: number;
}

// Locks

export type LockMode = "exclusive" | "shared";

export interface WantedLock {
  key_values: KeyValues;
  mode?: LockMode;
}

export interface HeldLock {
  key_values: KeyValues;
  mode: LockMode;
}

export interface LockGrant {
  lock_id: string;
  session_id: string;
  fencing_token: number;
  expires_in_ms: number;
  locks: HeldLock[];
}

export interface Lock {
  lock_id: string;
  owner: string | null;
  locks: HeldLock[];
  held_ms: number;
  expires_in_ms: number;
  ttl_ms: number;
  fencing_token: number;
  waiting: number;
}

// Ledger

export interface NewLimit {
  name: string;
  limit_id?: string | null;
  context?: Record<string, string> | null;
  ceiling?: number | null;
}

export interface Limit {
  name: string;
  limit_id: string | null;
  context: Record<string, string>;
  ceiling: number | null;
  commit_value: number;
  hold_value: number;
  total_value: number;
  /** The largest value that can be held now; null without a ceiling. */
  available: number | null;
  created_position: number;
}

export interface Change {
  limit_name: string;
  value: number;
  /** For a limit that `create_missing` makes. */
  limit_id?: string | null;
  context?: Record<string, string> | null;
  ceiling?: number | null;
}

export interface Hold {
  operation_id: string;
  changes: Change[];
  skip_existing_holds?: boolean;
  create_missing?: boolean;
  expires_after?: string;
}

export interface Finalization {
  operation_id: string;
  /** Without it, every open hold of the operation is finished at its held value. */
  changes?: { limit_name: string; value?: number }[];
}

export interface LimitValue {
  limit_name: string;
  limit_id: string | null;
  commit_value: number;
  hold_value: number;
  total_value: number;
}

export interface HoldReply {
  operation_id: string;
  position: number;
  values: LimitValue[];
  skipped: string[];
}

export interface FinalizationReply {
  operation_id: string;
  position: number;
  values: LimitValue[];
}

export interface ValuesReply {
  position: number;
  values: LimitValue[];
}

export type OperationState = "held" | "committed" | "rolled_back";

export interface Operation {
  operation_id: string;
  position: number;
  state: OperationState;
  holds: OperationHold[];
}

export interface OperationHold {
  limit_name: string;
  limit_id: string | null;
  deleted: boolean;
  state: OperationState;
  held_value: number;
  committed_value: number | null;
  held_at: number;
  hold_position: number;
  final_position: number | null;
  expires_at: number | null;
  expires_in_ms: number | null;
  expired: boolean;
}

export interface Entry {
  position: number;
  time: number;
  operation_id: string;
  type: "hold" | "commit" | "rollback" | "expiry" | "overage";
  value: number;
  commit_value: number;
  hold_value: number;
  total_value: number;
}

// Decisions

export interface DecisionRequest {
  operation_id: string;
  owner?: string;
  ttl?: string;
  wait?: string;
  dry_run?: boolean;
  /** If a slot or a ceiling refuses, name those who hold it. */
  explain?: boolean;
  checks?: DecisionCheck[];
  holds?: Change[];
  create_missing?: boolean;
  locks?: WantedLock[];
  event?: { stream: string; event: string };
}

export interface DecisionCheck {
  /** Needed to settle the check at its actual hits. */
  name?: string;
  key_values: KeyValues;
  hits?: number;
  require_match?: boolean;
  /** `hits` is an estimate: the commit says what it really was. */
  estimate?: boolean;
}

/** What has really happened. What it does not name ends as it was estimated or held. */
export interface CommitRequest {
  checks?: { name: string; hits: number }[];
  holds?: { limit_name: string; value: number }[];
  /** Book it even beyond what was held, and even after the decision has expired. */
  record?: boolean;
}

export type DecisionState = "waiting" | "open" | "committed" | "rolled_back" | "expired";

export interface Decision {
  operation_id: string;
  state: DecisionState;
  /** Whether an earlier request made the decision. */
  repeated: boolean;
  /** Null in a dry run. */
  position: number | null;
  /** Null in a dry run. */
  fencing_token: number | null;
  /** Null once it has ended. */
  expires_in_ms: number | null;
  limits: (LimitStatus & { check: string | number })[];
  values: LimitValue[];
  locks: HeldLock[];
  event: { stream: string; event: string; status: "submitted" | "published" | "invalidated"; time: number; publishes_at: number } | null;
}

export type OpenDecision = Decision & { position: number; fencing_token: number; expires_in_ms: number };

// Events

export type StreamMode = "only_once" | "strictly_once";

export interface NewStream {
  mode: StreamMode;
  duration: string;
  max_events?: number;
  key_frame_every?: string;
}

export interface Stream {
  name: string;
  mode: StreamMode;
  duration_ms: number;
  max_events: number;
  key_frame_every_ms: number;
  clock: number;
  incubating: number;
}

export interface Submitted {
  status: "submitted";
  event: string;
  time: number;
  clock: number;
  publishes_at: number;
}

export interface Incubating {
  clock: number;
  events: { event: string; time: number; publishes_at: number }[];
}

/** A change of a stream, or a snapshot of all its incubating events. */
export type Message =
  | { messageType: "SUBMITTED_EVENT" | "INVALIDATED_EVENT" | "PUBLISHED_EVENT"; clock: number; eventTime: { event: string; time: number } }
  | { messageType: "KEY_FRAME"; clock: number; snapshot: { event: string; time: number; status: "Valid" }[] };

// Around it

export interface Namespace {
  namespace: string;
  position: number;
}

/** A request that was refused, as it happens. Fields that do not apply are null. */
export interface Refusal {
  time: number;
  namespace: string;
  family: string;
  code: string;
  rule: string | null;
  limit_name: string | null;
  stream: string | null;
  key_values: KeyValues | null;
  operation_id: string | null;
}
