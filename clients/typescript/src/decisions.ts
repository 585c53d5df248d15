/** Decisions: limits, holds, locks and an event, all of it or nothing, under one operation id. */
import { milliseconds, type Duration } from "./duration.js";
import { Unavailable } from "./errors.js";
import { Guard } from "./guard.js";
import type { Scope } from "./scope.js";
import { randomId } from "./transport.js";
import type { CommitDecision, Decision, DecisionState, NewDecision } from "./types.js";

/** What has really been used: by the name of a check, or the name of a limit of the ledger. */
export type Actual = Record<string, number>;

export interface DecideOptions extends Omit<NewDecision, "operation_id" | "ttl" | "wait" | "dry_run"> {
  /** The id under which retries and the end find the decision. Without it, the client makes one that cannot be guessed. */
  operation_id?: string;
  /** How long it lives without a heartbeat. Default: 60 s. */
  ttl?: Duration;
  /** How long to wait for locks and slots. Default: 0. */
  wait?: Duration;
  signal?: AbortSignal;
}

/** A decision that is open: only a dry run and a decision that has ended lack these. */
export type OpenDecision = Decision & { position: number; fencing_token: number; expires_in_ms: number };

/** A decision that is open. Leaving the block without `commit` rolls it back. */
export class DecisionGuard extends Guard<OpenDecision> {
  readonly #end: (how: "commit" | "rollback", body?: object) => Promise<Decision>;
  readonly #request: DecideOptions;
  #perhapsCommitted = false;

  constructor(scope: Scope, request: DecideOptions, decision: OpenDecision, sentAt: number, ttlMs: number) {
    const path = `/decisions/${encodeURIComponent(decision.operation_id)}`;
    const end = (how: "commit" | "rollback", body?: object) => scope.call<Decision>("POST", `${path}/${how}`, { body });
    super(decision, sentAt, ttlMs, {
      heartbeat: (timeoutMs) => scope.heartbeat(`${path}/heartbeat`, timeoutMs),
      giveBack: () => end("rollback"),
    });
    this.#end = end;
    this.#request = request;
  }

  get operationId(): string {
    return this.grant.operation_id;
  }

  /**
   * It has happened. What `actual` does not name ends as it was estimated or held. With `record`, amounts beyond what was held, and
   * a decision that has expired, are booked too.
   */
  async commit(actual: Actual = {}, { record = false }: { record?: boolean } = {}): Promise<Decision> {
    const body: CommitDecision = { ...this.#settle(actual), ...(record && { record }) };
    try {
      const decision = await this.ending(() => this.#end("commit", body));
      this.stop();
      return decision;
    } catch (error) {
      // The commit may be recorded. A rollback on the way out would contradict it.
      this.#perhapsCommitted = error instanceof Unavailable && error.done === "unknown";
      throw error;
    }
  }

  /** It has not happened. */
  rollback(): Promise<void> {
    return this.release();
  }

  override async leave(): Promise<void> {
    if (this.#perhapsCommitted) this.stop();
    else await super.leave();
  }

  #settle(actual: Actual): CommitDecision {
    const checks: CommitDecision["checks"] = [];
    const holds: CommitDecision["holds"] = [];
    for (const [name, amount] of Object.entries(actual)) {
      const isCheck = this.#request.checks?.some((check) => check.name === name);
      const isHold = this.#request.holds?.some((hold) => hold.limit_name === name);
      if (isCheck === isHold) {
        throw new TypeError(`${JSON.stringify(name)} must be the name of one check or of one hold of this decision`);
      }
      if (isCheck) checks.push({ name, hits: amount });
      else holds.push({ limit_name: name, value: amount });
    }
    return { ...(checks.length > 0 && { checks }), ...(holds.length > 0 && { holds }) };
  }
}

export async function decide(scope: Scope, { signal, ...request }: DecideOptions): Promise<DecisionGuard> {
  const ttlMs = milliseconds(request.ttl ?? "60s");
  const waitMs = milliseconds(request.wait ?? 0);
  const operationId = request.operation_id ?? randomId();
  const body = { ...request, operation_id: operationId, ttl: `${ttlMs}ms`, wait: `${waitMs}ms` };
  const { body: decision, sentAt } = await scope.exchange("POST", "/decisions", { body, waitMs, signal }).catch((error: unknown) => {
    // If it was decided all the same, nobody but this function knows its id.
    const perhapsDecided = signal?.aborted || (error instanceof Unavailable && error.done === "unknown");
    if (perhapsDecided && request.operation_id === undefined) new Decisions(scope).rollback(operationId).catch(() => {});
    throw error;
  });
  return new DecisionGuard(scope, request, decision as OpenDecision, sentAt, ttlMs).start();
}

/** `client.decisions`: decisions by their id, without a guard. */
export class Decisions {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  get(operationId: string): Promise<Decision> {
    return this.#scope.call("GET", `/decisions/${encodeURIComponent(operationId)}`);
  }

  list(query: { state?: DecisionState; owner?: string; older_than?: string; limit?: number } = {}): AsyncGenerator<Decision> {
    return this.#scope.list("GET", "/decisions", { query });
  }

  /** Decides nothing: answers what would be decided now. Throws `Refused` where it would be refused. */
  async dryRun({ signal, ttl, wait: _, ...request }: DecideOptions): Promise<Decision> {
    const body = { operation_id: randomId(), ...request, dry_run: true, ...(ttl !== undefined && { ttl: `${milliseconds(ttl)}ms` }) };
    return this.#scope.call("POST", "/decisions", { body, keyless: true, safe: true, signal });
  }

  commit(operationId: string, body: CommitDecision = {}): Promise<Decision> {
    return this.#scope.call("POST", `/decisions/${encodeURIComponent(operationId)}/commit`, { body });
  }

  rollback(operationId: string): Promise<Decision> {
    return this.#scope.call("POST", `/decisions/${encodeURIComponent(operationId)}/rollback`);
  }

  heartbeat(operationId: string): Promise<Decision> {
    return this.#scope.call("POST", `/decisions/${encodeURIComponent(operationId)}/heartbeat`, { keyless: true, safe: true });
  }
}
