/** The client: one object for a server and a namespace. */
import { Batches } from "./batch.js";
import type { BreakerOptions } from "./breaker.js";
import { decide, Decisions, type DecideOptions, type DecisionGuard } from "./decisions.js";
import { milliseconds, type Duration } from "./duration.js";
import { Events, refusals } from "./events.js";
import type { Guard } from "./guard.js";
import { Ledger } from "./ledger.js";
import * as limiter from "./limiter.js";
import { lock, Locks, type LockOptions, type LockTarget } from "./locks.js";
import { Scope } from "./scope.js";
import { Transport } from "./transport.js";
import type { KeyValues, LeaseGrant, LockGrant, Namespace, Refusal } from "./types.js";
import type { Undecided } from "./undecided.js";

export interface Options {
  /** The token, if the server has tokens. */
  token?: string;
  /** Default: `default`. */
  namespace?: string;
  /** How long one attempt may take. A request that waits at the server has this much more than its wait. Default: 2 s. */
  timeout?: Duration;
  /** How often a failed request is repeated, where that is safe. Default: 2. */
  retries?: number;
  /** For checks: if they get no answer, the client stops asking for a second, and fails them at once. `false` switches this off. */
  breaker?: BreakerOptions | false;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

export class Limina {
  readonly rules: limiter.Rules;
  readonly ruleSets: limiter.RuleSets;
  readonly counters: limiter.Counters;
  readonly leases: limiter.Leases;
  readonly locks: Locks;
  readonly ledger: Ledger;
  readonly decisions: Decisions;
  readonly events: Events;
  readonly #scope: Scope;

  constructor(url: string, options?: Options);
  /** @internal */
  constructor(scope: Scope);
  constructor(target: string | Scope, { token, namespace = "default", timeout = "2s", retries = 2, breaker, fetch }: Options = {}) {
    const scope =
      target instanceof Scope
        ? target
        : new Scope(new Transport(target, token, fetch, breaker), new Batches(), { namespace, timeoutMs: milliseconds(timeout), retries });
    this.#scope = scope;
    this.rules = new limiter.Rules(scope);
    this.ruleSets = new limiter.RuleSets(scope);
    this.counters = new limiter.Counters(scope);
    this.leases = new limiter.Leases(scope);
    this.locks = new Locks(scope);
    this.ledger = new Ledger(scope);
    this.decisions = new Decisions(scope);
    this.events = new Events(scope);
  }

  /** How many requests the middleware of this client passed or refused without a decision. */
  get undecided(): Undecided {
    return this.#scope.transport.undecided;
  }

  /** A client of the same server with other settings. Both share batches and the budget of retries. */
  with({ namespace, timeout, retries }: Pick<Options, "namespace" | "timeout" | "retries">): Limina {
    return new Limina(
      this.#scope.with({
        ...(namespace !== undefined && { namespace }),
        ...(timeout !== undefined && { timeoutMs: milliseconds(timeout) }),
        ...(retries !== undefined && { retries }),
      }),
    );
  }

  /** Takes from every limit that applies, or from none. A refusal is a value, not an error. */
  check(keyValues: KeyValues, options?: limiter.CheckOptions): Promise<limiter.CheckResult> {
    return limiter.check(this.#scope, keyValues, options);
  }

  /** Repeats a check until it is allowed, or until that cannot happen in time any more. */
  wait(keyValues: KeyValues, options: limiter.WaitOptions): Promise<limiter.CheckResult> {
    return limiter.wait(this.#scope, keyValues, options);
  }

  /** Takes from every limit that applies, and holds it until the guard is released. Throws `Refused`. */
  lease(keyValues: KeyValues, options: limiter.LeaseOptions): Promise<Guard<LeaseGrant>> {
    return limiter.lease(this.#scope, keyValues, options);
  }

  /** Takes one lock, or several at once. Throws `Refused`. */
  lock(target: LockTarget, options: LockOptions): Promise<Guard<LockGrant>> {
    return lock(this.#scope, target, options);
  }

  /** Decides over limits, holds, locks and an event at once: all of it, or nothing. Throws `Refused`. */
  decide(request: DecideOptions): Promise<DecisionGuard> {
    return decide(this.#scope, request);
  }

  /** What is being refused in the namespace, as it happens. */
  refusals({ signal }: { signal?: AbortSignal } = {}): AsyncGenerator<Refusal, void, undefined> {
    return refusals(this.#scope, signal);
  }

  /** The namespaces of the server. */
  namespaces(query: { limit?: number } = {}): AsyncGenerator<Namespace> {
    return this.#scope.list("GET", "/v1/ns", { query });
  }

  /** Removes this client's namespace, with all that it holds. */
  deleteNamespace(): Promise<void> {
    return this.#scope.call("DELETE", "");
  }
}
