/** The limiter: checks, rules, overrides, rule sets, counters and leases. */
import { CHECK } from "./batch.js";
import { milliseconds, sleep, type Duration } from "./duration.js";
import { codeOf, failure, type Reply } from "./errors.js";
import { Guard } from "./guard.js";
import type { Scope } from "./scope.js";
import type * as api from "./types.js";

export interface CheckOptions extends Omit<api.Check, "key_values"> {
  /** Makes the check repeatable, and durable even where only relaxed rules apply. It then travels alone. */
  idempotencyKey?: string;
  /** Sends the check without others. Its result has the `headers` of the answer. */
  alone?: boolean;
}

/** The answer to a check. */
export interface CheckResult extends api.CheckReply {
  /** The limits that refuse, by their names in the header `RateLimit-Policy`. Empty if the check is allowed. */
  violated_policies: string[];
  /**
   * `RateLimit-Policy`, `RateLimit` and `Retry-After` as the server sent them: for a service to pass on to its own client. Empty if the
   * check travelled with others.
   */
  headers: Record<string, string>;
}

export interface WaitOptions extends Omit<CheckOptions, "idempotencyKey" | "alone"> {
  /** How long to wait at most. */
  atMost: Duration;
  signal?: AbortSignal;
}

/** Takes from every limit that applies, or from none. A refusal is a value. */
export async function check(scope: Scope, keyValues: api.KeyValues, options: CheckOptions = {}): Promise<CheckResult> {
  const { idempotencyKey: key, alone = key !== undefined, ...fields } = options;
  const body: api.Check = { key_values: keyValues, ...fields };
  const reply = alone
    ? await scope.ask("POST", CHECK.single, { body, key, keyless: key === undefined, isCheck: true })
    : await scope.batches.send(scope, CHECK, body);
  return decisionOf(reply);
}

function decisionOf(reply: Reply): CheckResult {
  if (reply.status >= 400 && codeOf(reply) !== "LimitReached") throw failure(reply)!;
  const { allowed, limits, retry_after_ms, "violated-policies": violated_policies = [] } = reply.body as api.CheckReply & {
    "violated-policies"?: string[];
  };
  return { allowed, limits, retry_after_ms, violated_policies, headers: reply.headers };
}

/**
 * Repeats a check until it is allowed. Returns the last refusal if it cannot be allowed in time, or if time alone does not cure it:
 * wait for slots with a lease instead.
 */
export async function wait(scope: Scope, keyValues: api.KeyValues, options: WaitOptions): Promise<CheckResult> {
  const { atMost, signal, ...fields } = options;
  const deadline = performance.now() + milliseconds(atMost);
  for (;;) {
    signal?.throwIfAborted();
    const decision = await check(scope, keyValues, fields);
    const { allowed, retry_after_ms: after } = decision;
    const left = deadline - performance.now();
    if (allowed || after === null || after > left) return decision;
    // Whoever was refused together should not come back together.
    await sleep(Math.min(left, after + Math.random() * Math.max(10, after / 10)), signal);
  }
}

export interface LeaseOptions {
  /** How long the lease is held without a heartbeat: 100 ms–24 h. */
  ttl: Duration;
  /** How long to wait for slots: 0–5 min. Default: 0. */
  wait?: Duration;
  hits?: number;
  owner?: string;
  require_match?: boolean;
  signal?: AbortSignal;
}

/** Takes from every limit that applies, and holds it until the guard is released. */
export async function lease(scope: Scope, keyValues: api.KeyValues, options: LeaseOptions): Promise<Guard<api.LeaseGrant>> {
  const { ttl, wait = 0, signal, ...fields } = options;
  const [ttlMs, waitMs] = [milliseconds(ttl), milliseconds(wait)];
  const body = { key_values: keyValues, ttl: `${ttlMs}ms`, ...(waitMs > 0 && { wait: `${waitMs}ms` }), ...fields };
  const { body: grant, sentAt } = await scope.exchange("POST", "/limiter/leases", { body, waitMs, signal });
  const { lease_id, session_id } = grant as api.LeaseGrant;
  const path = `/limiter/leases/${encodeURIComponent(lease_id)}`;
  return new Guard(grant as api.LeaseGrant, sentAt, ttlMs, scope.grantRequests(path, session_id)).start();
}

/** `client.rules` */
export class Rules {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  create(rule: api.CreateRule): Promise<api.Rule> {
    return this.#scope.call("POST", "/limiter/rules", { body: rule });
  }

  list(query: { limit?: number } = {}): AsyncGenerator<api.Rule> {
    return this.#scope.list("GET", "/limiter/rules", { query });
  }

  get(name: string): Promise<api.Rule> {
    return this.#scope.call("GET", rulePath(name));
  }

  /** Creates the rule, or replaces all of it except its name and its overrides. */
  put(name: string, rule: api.NewRule): Promise<api.Rule> {
    return this.#scope.call("PUT", rulePath(name), { body: rule });
  }

  patch(name: string, changes: api.RulePatch): Promise<api.Rule> {
    return this.#scope.call("PATCH", rulePath(name), { body: changes });
  }

  delete(name: string): Promise<void> {
    return this.#scope.call("DELETE", rulePath(name));
  }

  /** The rules that would apply to these key-values. */
  async match(keyValues: api.KeyValues): Promise<api.RuleMatch[]> {
    const body = { key_values: keyValues };
    const { rules } = await this.#scope.call<api.MatchReply>("POST", "/limiter/rules/match", { body, ...READ });
    return rules;
  }

  query(query: api.RuleQuery): AsyncGenerator<api.Rule> {
    return this.#scope.list("POST", "/limiter/rules/query", { body: query });
  }

  /** The groups that use the most of their limits, at most 1,000. */
  async groups(name: string, query: { limit?: number } = {}): Promise<api.Group[]> {
    const path = `${rulePath(name)}/groups`;
    return (await this.#scope.call<api.Groups>("GET", path, { query: { order: "used", ...query } })).items;
  }

  overrides(rule: string): Overrides {
    return new Overrides(this.#scope, rule);
  }
}

/** `client.rules.overrides("rule")` */
export class Overrides {
  readonly #scope: Scope;
  readonly #path: string;

  constructor(scope: Scope, rule: string) {
    this.#scope = scope;
    this.#path = `${rulePath(rule)}/overrides`;
  }

  create(override: api.CreateOverride): Promise<api.Override> {
    return this.#scope.call("POST", this.#path, { body: override });
  }

  list(query: { limit?: number } = {}): AsyncGenerator<api.Override> {
    return this.#scope.list("GET", this.#path, { query });
  }

  get(name: string): Promise<api.Override> {
    return this.#scope.call("GET", this.#one(name));
  }

  put(name: string, override: api.NewOverride): Promise<api.Override> {
    return this.#scope.call("PUT", this.#one(name), { body: override });
  }

  patch(name: string, changes: api.OverridePatch): Promise<api.Override> {
    return this.#scope.call("PATCH", this.#one(name), { body: changes });
  }

  delete(name: string): Promise<void> {
    return this.#scope.call("DELETE", this.#one(name));
  }

  query(query: api.Query): AsyncGenerator<api.Override> {
    return this.#scope.list("POST", `${this.#path}/query`, { body: query });
  }

  #one(name: string): string {
    return `${this.#path}/${encodeURIComponent(name)}`;
  }
}

/** `client.ruleSets`: named sets of rules, each replaced whole or not at all. */
export class RuleSets {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  list(query: { limit?: number } = {}): AsyncGenerator<api.RuleSetInfo> {
    return this.#scope.list("GET", "/limiter/rule-sets", { query });
  }

  get(set: string): Promise<api.RuleSet> {
    return this.#scope.call("GET", setPath(set));
  }

  /** Makes the set exactly this, in one step, or changes nothing. A set that was read can be put back. */
  put(set: string, rules: api.NewRuleSet | api.RuleSet): Promise<api.RuleSetChanges> {
    return this.#scope.call("PUT", setPath(set), { body: rules });
  }

  /** What `put` would change. */
  diff(set: string, rules: api.NewRuleSet | api.RuleSet): Promise<api.RuleSetChanges> {
    return this.#scope.call("PUT", setPath(set), { body: rules, query: { dry_run: true }, ...READ });
  }

  /** Deletes the set and its rules. */
  delete(set: string): Promise<void> {
    return this.#scope.call("DELETE", setPath(set));
  }
}

/** `client.counters`: what is in use, for exact key-values. */
export class Counters {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** Takes (a positive number, as a check does) or gives back (a negative one). */
  add(keyValues: api.KeyValues, counters: number): Promise<api.CounterReply> {
    return this.#scope.call("POST", "/limiter/counters", { body: { key_values: keyValues, counters } });
  }

  /** Sets the part that no lease holds, without asking any rule. */
  set(keyValues: api.KeyValues, counters: number): Promise<api.Counter> {
    return this.#scope.call("PUT", "/limiter/counters/set", { body: { key_values: keyValues, counters } });
  }

  query(query: api.Query): AsyncGenerator<api.Counter> {
    return this.#scope.list("POST", "/limiter/counters/query", { body: query });
  }
}

/** `client.leases`: who holds what. To take a lease, use `client.lease`. */
export class Leases {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  list(query: { owner?: string; limit?: number } = {}): AsyncGenerator<api.Lease> {
    return this.#scope.list("GET", "/limiter/leases", { query });
  }

  get(leaseId: string): Promise<api.Lease> {
    return this.#scope.call("GET", `/limiter/leases/${encodeURIComponent(leaseId)}`);
  }

  /** Ends somebody else's lease, as an operator. */
  forceRelease(leaseId: string): Promise<void> {
    return this.#scope.call("DELETE", `/limiter/leases/${encodeURIComponent(leaseId)}`, { query: { force: true } });
  }
}

/** A request that changes nothing, whatever its method. */
const READ = { keyless: true, safe: true } as const;

const rulePath = (name: string) => `/limiter/rules/${encodeURIComponent(name)}`;
const setPath = (set: string) => `/limiter/rule-sets/${encodeURIComponent(set)}`;
