/**
 * Automatic batching: calls of one kind that are made while a request of this kind is in flight travel together in the next request.
 *
 * A call that finds no request in flight is sent at once, so batching never delays a single call. The server handles a batch for
 * little more than a single request, so batching pays off exactly when there is load.
 */
import { backgroundTimer, sleep } from "./duration.js";
import { unavailability, Unavailable, type Reply } from "./errors.js";
import type { Scope } from "./scope.js";
import { exact, pause } from "./transport.js";

/** A kind of request that has a form for many items. */
export interface Kind {
  single: string;
  batch: string;
  /** The field of the batch that holds the items. */
  field: "checks" | "operations";
  /** Whether requests bear an `Idempotency-Key`. One key is for the whole batch. */
  keyed: boolean;
}

export const CHECK: Kind = { single: "/limiter/check", batch: "/limiter/check/batch", field: "checks", keyed: false };
export const HOLD: Kind = { single: "/ledger/hold", batch: "/ledger/hold/batch", field: "operations", keyed: true };
export const COMMIT: Kind = { single: "/ledger/commit", batch: "/ledger/commit/batch", field: "operations", keyed: true };

const MAX_ITEMS = 256;
const MAX_IDLE_LANES = 64;

/** The lanes: one for each kind, namespace, timeout and number of retries. */
export class Batches {
  readonly #lanes = new Map<string, Lane>();

  /** Sends an item, alone or with others. Returns its own answer. */
  async send(scope: Scope, kind: Kind, item: object): Promise<Reply> {
    // Written now: the caller may change the object while it waits in the queue, and what cannot be written must fail alone.
    const json = JSON.stringify(item);
    const { circuit } = scope.transport;
    const isOver = () => kind === CHECK && circuit.isOpen;
    // Here too, because a check must not queue behind a request that hangs.
    if (kind === CHECK) circuit.refuseIfOpen();
    for (let retry = 1; ; retry++) {
      const reply = exact(await this.#lane(scope, kind).send(json));
      // The lane repeats requests. An item that failed inside a batch that was answered is repeated here.
      if (unavailability(reply) !== "no" || !scope.transport.mayRetry(retry, { ...scope, isOver }, reply.retryAfterMs)) return reply;
      await sleep(pause(retry, reply.retryAfterMs));
    }
  }

  #lane(scope: Scope, kind: Kind): Lane {
    const id = kind.single + scope.id;
    let lane = this.#lanes.get(id);
    if (!lane) {
      // Idle lanes are kept for the next call, unless there are many, as in a program that uses many namespaces.
      lane = new Lane(scope, kind, () => this.#lanes.size > MAX_IDLE_LANES && this.#lanes.delete(id));
      this.#lanes.set(id, lane);
    }
    return lane;
  }
}

interface Waiting {
  /** The item, as JSON. */
  item: string;
  answer: (reply: Reply) => void;
  fail: (error: unknown) => void;
  /** When the call's time is over, by `performance.now()`. */
  deadline: number;
  stopTimer: () => void;
}

class Lane {
  readonly #queue: Waiting[] = [];
  #inFlight = 0;
  #unfinished = 0;

  constructor(
    readonly scope: Scope,
    readonly kind: Kind,
    readonly onIdle: () => unknown,
  ) {}

  send(item: string): Promise<Reply> {
    const { timeoutMs } = this.scope;
    if (this.#inFlight === 0) return this.#exchange([item], timeoutMs).then((replies) => replies[0]!);
    return new Promise((answer, fail) => {
      const deadline = performance.now() + timeoutMs;
      this.#queue.push({ item, answer, fail, deadline, stopTimer: backgroundTimer(() => this.#expire(), timeoutMs) });
      if (this.#queue.length >= MAX_ITEMS) this.#sendQueued();
    });
  }

  /** Fails the calls that have waited for as long as they have time for an answer. */
  #expire(): void {
    const { timeoutMs } = this.scope;
    const soon = performance.now() + Math.min(5, timeoutMs / 10);
    while (this.#queue.length > 0 && this.#queue[0]!.deadline <= soon) {
      const { fail, stopTimer } = this.#queue.shift()!;
      stopTimer();
      fail(new Unavailable("no", `not sent within ${timeoutMs} ms: earlier requests are unanswered`));
    }
  }

  /** Sends what is queued. There are never more than fit into one request. */
  #sendQueued(): void {
    const calls = this.#queue.splice(0);
    for (const { stopTimer } of calls) stopTimer();
    // The time of a call includes its time in the queue. A request has as much time as the newest of its calls.
    const timeoutMs = calls.at(-1)!.deadline - performance.now();
    this.#exchange(calls.map(({ item }) => item), timeoutMs).then(
      (replies) => calls.forEach(({ answer }, place) => answer(replies[place]!)),
      (error: unknown) => calls.forEach(({ fail }) => fail(error)),
    );
  }

  /** Sends items in one request, with its retries. Returns the answer to each of them. */
  async #exchange(items: string[], timeoutMs: number): Promise<Reply[]> {
    const { scope, kind } = this;
    const alone = items.length === 1;
    this.#unfinished += 1;
    try {
      const request = scope.request("POST", alone ? kind.single : kind.batch, { keyless: !kind.keyed });
      request.body = alone ? items[0]! : `{"${kind.field}":[${items.join()}]}`;
      const { transport } = scope;
      const isCheck = kind === CHECK;
      const isOver = () => isCheck && transport.circuit.isOpen;
      const reply = await transport.persist({ ...scope, isOver }, kind.keyed, async (retry) => {
        // While this request pauses before a retry, it is not in flight: others need not wait for it.
        this.#inFlight += 1;
        try {
          const left = retry > 0 ? scope.timeoutMs : timeoutMs;
          return await (isCheck ? transport.attemptCheck(request, left) : transport.attempt(request, left));
        } finally {
          this.#inFlight -= 1;
          this.#expire();
          if (this.#inFlight === 0 && this.#queue.length > 0) this.#sendQueued();
        }
      });
      return alone ? [reply] : itemsOf(reply, items.length);
    } finally {
      this.#unfinished -= 1;
      if (this.#unfinished === 0) this.onIdle();
    }
  }
}

/** The answers to the items of a batch. An answer to the batch as a whole (401, 413, …) is the answer to each of them. */
function itemsOf(reply: Reply, count: number): Reply[] {
  if (reply.status >= 400) return Array.from({ length: count }, () => reply);
  const { results } = reply.body as { results?: { status: number }[] };
  if (results?.length !== count) throw new Unavailable("unknown", "the answer to a batch does not fit its request", reply);
  return results.map((result) => {
    const { status, ...body } = result;
    return { ...reply, status, headers: {}, body: status < 400 ? body : result };
  });
}
