// The bodies of the API, as far as the console reads them.
import type { Num } from "./json";
import type { KeyValues } from "./keyvalues";

export type Page<T> = { items: T[]; next: string | null };
export type Window = { type: "fixed" | "sliding" | "bucket"; per_ms: number; burst?: number | null };
export type Rule = {
  name: string;
  group_by: string[];
  selection: Record<string, any>;
  limit: Num;
  window: Window | null;
  shadow: boolean;
  durability: "durable" | "relaxed";
  description: string | null;
  overrides: number;
  managed_by: string | null;
  created_position: number;
};
/** A rule set in a list: how many rules it has, and whether clients may make overrides of them. */
export type RuleSetInfo = { name: string; rules: number; overrides: "open" | "closed"; created_position: number };
export type RuleSet = Omit<RuleSetInfo, "rules"> & { rules: (Omit<Rule, "overrides"> & { overrides: Override[] })[] };
export type Override = { rule: string; name: string; key_values: KeyValues; limit: Num; burst: Num | null };
export type Group = {
  group: KeyValues;
  override: string | null;
  limit: Num;
  used: Num;
  remaining: Num | null;
  reset_ms: number | null;
  waiting: number;
};
export type LimitStatus = Group & { rule: string | null; shadow: boolean; exceeded: boolean };
export type CheckReply = { allowed: boolean; limits: LimitStatus[]; retry_after_ms: number | null };
export type RuleMatch = Rule & { group: KeyValues; matching_overrides: Override[] };
export type Lock = {
  lock_id: string;
  owner: string | null;
  locks: { key_values: KeyValues; mode: "exclusive" | "shared" }[];
  held_ms: number;
  expires_in_ms: number;
  ttl_ms: number;
  fencing_token: number;
  waiting: number;
  operation_id?: string | null;
};
export type Lease = {
  lease_id: string;
  owner: string | null;
  key_values: KeyValues;
  hits: number;
  held_ms: number;
  expires_in_ms: number;
  ttl_ms: number;
  fencing_token: number;
  operation_id?: string | null;
};
export type Limit = {
  name: string;
  limit_id: string | null;
  context: Record<string, string>;
  ceiling: Num | null;
  commit_value: Num;
  hold_value: Num;
  total_value: Num;
  available: Num | null;
  created_position: number;
};
export type LimitValue = { limit_name: string; commit_value: Num; hold_value: Num; total_value: Num };
export type Entry = {
  position: number;
  time: number;
  type: string;
  operation_id: string;
  value: Num;
  commit_value: Num;
  hold_value: Num;
  total_value: Num;
};
export type Hold = {
  limit_name: string;
  state: "held" | "committed" | "rolled_back";
  held_value: Num;
  committed_value: Num | null;
  held_at: number;
  hold_position: number;
  final_position: number | null;
  expires_at: number | null;
  expires_in_ms: number | null;
  expired: boolean;
  deleted: boolean;
};
export type Operation = { operation_id: string; state: string; position: number; holds: Hold[] };
export type Stream = {
  name: string;
  mode: "only_once" | "strictly_once";
  duration_ms: number;
  max_events: number;
  key_frame_every_ms: number;
  clock: number;
  incubating: number;
};
export type Node = { node: string; address?: string | null; ready: boolean; leaving: boolean };
export type Shard = { shard: number; owner?: string | null; open: boolean; epoch?: number | null };
export type Cluster = { node: string; nodes: Node[]; shards: Shard[] };
export type AuditRecord = {
  time: number;
  namespace: string;
  position: number;
  actor: string | null;
  address: string | null;
  action: string;
  target: string;
  before: any;
  after: any;
};
export type Refusal = {
  time: number;
  namespace: string;
  family: string;
  code: string;
  rule: string | null;
  limit_name: string | null;
  stream: string | null;
  key_values: KeyValues | null;
  operation_id: string | null;
};
export type Decision = {
  operation_id: string;
  state: "open" | "committed" | "rolled_back" | "expired";
  owner: string | null;
  /** Where it was made or, if it has ended, where it ended. */
  position: number | null;
  /** Where it was made. */
  fencing_token: number | null;
  held_ms: number;
  ttl_ms: number;
  /** Whether it was booked after it had ended. */
  late: boolean;
  expires_in_ms: number | null;
  limits: (LimitStatus & { check: string | number })[];
  values: LimitValue[];
  locks: { key_values: KeyValues; mode: string }[];
  event: { stream: string; event: string; status: "submitted" | "published" | "invalidated"; time: number; publishes_at: number } | null;
};
