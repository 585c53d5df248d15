/** The ledger: reserve an amount, then commit it or give it back. */
import { COMMIT, HOLD, type Kind } from "./batch.js";
import { failure } from "./errors.js";
import type { Scope } from "./scope.js";
import type * as api from "./types.js";

/** `client.ledger` */
export class Ledger {
  readonly limits: Limits;
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
    this.limits = new Limits(scope);
  }

  /** Holds all amounts, or none. Throws `Refused` if a ceiling would be exceeded. */
  hold(hold: api.Hold): Promise<api.HoldReply> {
    return this.#batched(HOLD, hold);
  }

  commit(finalization: api.Finalization): Promise<api.FinalizationReply> {
    return this.#batched(COMMIT, finalization);
  }

  rollback(finalization: api.Finalization): Promise<api.FinalizationReply> {
    return this.#scope.call("POST", "/ledger/rollback", { body: finalization });
  }

  /** The values of limits: the latest, those that an operation saw, or those at a position. */
  values(limitNames: string[], at: { operation_id?: string } | { position?: number } = {}): Promise<api.ValuesReply> {
    const body = { limit_names: limitNames, ...at };
    return this.#scope.call("POST", "/ledger/values", { body, keyless: true, safe: true });
  }

  /** Every open hold of the operation expires so long after now; `null`: never. */
  extend(operationId: string, expiresAfter: string | null): Promise<api.Operation> {
    return this.#scope.call("POST", "/ledger/extend", { body: { operation_id: operationId, expires_after: expiresAfter } });
  }

  operation(operationId: string): Promise<api.Operation> {
    return this.#scope.call("GET", `/ledger/operations/${encodeURIComponent(operationId)}`);
  }

  /** The operations with open holds. */
  operations(query: { older_than?: string; limit_name?: string; limit?: number } = {}): AsyncGenerator<api.Operation> {
    return this.#scope.list("GET", "/ledger/operations", { query: { state: "held", ...query } });
  }

  async #batched<T>(kind: Kind, body: object): Promise<T> {
    const reply = await this.#scope.batches.send(this.#scope, kind, body);
    const error = failure(reply);
    if (error) throw error;
    return reply.body as T;
  }
}

/** `client.ledger.limits` */
export class Limits {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  create(limit: api.NewLimit): Promise<api.Limit> {
    return this.#scope.call("POST", "/ledger/limits", { body: limit });
  }

  list(query: { order?: "used"; limit?: number } = {}): AsyncGenerator<api.Limit> {
    return this.#scope.list("GET", "/ledger/limits", { query });
  }

  get(name: string): Promise<api.Limit> {
    return this.#scope.call("GET", this.#path(name));
  }

  patch(name: string, changes: api.LimitPatch): Promise<api.Limit> {
    return this.#scope.call("PATCH", this.#path(name), { body: changes });
  }

  /** Deletes the limit with its history, unless a hold is open in it. */
  delete(name: string): Promise<void> {
    return this.#scope.call("DELETE", this.#path(name));
  }

  /** The history of the limit. */
  entries(name: string, query: { limit?: number } = {}): AsyncGenerator<api.Entry> {
    return this.#scope.list("GET", `${this.#path(name)}/entries`, { query });
  }

  #path(name: string): string {
    return `/ledger/limits/${encodeURIComponent(name)}`;
  }
}
