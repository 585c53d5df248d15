/** Locks: exclusive or shared, one or several at once. */
import { milliseconds, type Duration } from "./duration.js";
import { Guard } from "./guard.js";
import type { Scope } from "./scope.js";
import type * as api from "./types.js";

export interface LockOptions {
  /** How long the lock is held without a heartbeat: 100 ms–24 h. */
  ttl: Duration;
  /** How long to wait for it: 0–5 min. Default: 0. */
  wait?: Duration;
  /** For all locks that do not name their own. Default: exclusive. */
  mode?: api.LockMode;
  owner?: string;
  signal?: AbortSignal;
}

/** What to lock: key-values, or several locks that are granted together. */
export type LockTarget = api.KeyValues | (api.KeyValues | api.WantedLock)[];

export async function lock(scope: Scope, target: LockTarget, options: LockOptions): Promise<Guard<api.LockGrant>> {
  const { ttl, wait = 0, mode, signal, ...fields } = options;
  const [ttlMs, waitMs] = [milliseconds(ttl), milliseconds(wait)];
  const wanted = Array.isArray(target) ? { locks: target.map((one) => wantedLock(one, mode)) } : wantedLock(target, mode);
  const body = { ...wanted, ttl: `${ttlMs}ms`, wait: `${waitMs}ms`, ...fields };
  const { body: grant, sentAt } = await scope.exchange("POST", "/locks", { body, waitMs, signal });
  const { lock_id, session_id } = grant as api.LockGrant;
  const path = `/locks/${encodeURIComponent(lock_id)}`;
  return new Guard(grant as api.LockGrant, sentAt, ttlMs, scope.grantRequests(path, session_id)).start();
}

function wantedLock(one: api.KeyValues | api.WantedLock, mode: api.LockMode | undefined): api.WantedLock {
  const wanted = typeof one.key_values === "object" ? (one as api.WantedLock) : { key_values: one as api.KeyValues };
  return mode === undefined ? wanted : { mode, ...wanted };
}

/** `client.locks`: who holds which lock. To take one, use `client.lock`. */
export class Locks {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  list(query: { limit?: number } = {}): AsyncGenerator<api.Lock> {
    return this.#scope.list("GET", "/locks", { query });
  }

  get(lockId: string): Promise<api.Lock> {
    return this.#scope.call("GET", `/locks/${encodeURIComponent(lockId)}`);
  }

  query(query: api.Query): AsyncGenerator<api.Lock> {
    return this.#scope.list("POST", "/locks/query", { body: query });
  }

  /** Ends somebody else's lock, as an operator. */
  forceRelease(lockId: string): Promise<void> {
    return this.#scope.call("DELETE", `/locks/${encodeURIComponent(lockId)}`, { query: { force: true } });
  }
}
