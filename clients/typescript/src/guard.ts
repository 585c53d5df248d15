/**
 * A guard keeps a lock, a lease or a decision alive by heartbeats, and knows until when it is certainly held.
 *
 * The server counts from the moment at which it handles a request, which is after the request left. So the guard counts from when
 * the request left: at its deadline the grant may still exist, but before its deadline nobody else can have it. A failed heartbeat
 * says nothing about the grant. Only the server's word, or the deadline, makes it lost.
 */
import { backgroundTimer } from "./duration.js";
import { Conflict, LiminaError, Lost, NotFound, Unavailable, type Reply } from "./errors.js";

/** What the server answered when it granted. */
export interface Grant {
  fencing_token: number;
  expires_in_ms: number;
}

/** How a guard talks to the server about its grant. */
export interface Requests {
  /** One heartbeat, without retries. */
  heartbeat(timeoutMs: number): Promise<Reply>;
  /** Gives the grant back: releases, or rolls back. */
  giveBack(): Promise<unknown>;
}

/** A lock or a lease that is held. Use it with `await using`, or call `leave()` in `finally`. */
export class Guard<G extends Grant> implements AsyncDisposable {
  /** The server's answer: ids, limits, locks, values. */
  readonly grant: G;
  /** Is aborted with `Lost` when the grant is lost. Pass it to the work that the grant protects. */
  readonly signal: AbortSignal;

  readonly #controller = new AbortController();
  readonly #requests: Requests;
  readonly #ttlMs: number;
  #deadline: number;
  #ended = false;
  #gone = false;
  #ending = false;
  #stopBeat = () => {};
  #stopDeadline = () => {};

  constructor(grant: G, sentAt: number, ttlMs: number, requests: Requests) {
    this.grant = grant;
    this.signal = this.#controller.signal;
    this.#requests = requests;
    this.#ttlMs = ttlMs;
    this.#deadline = sentAt + grant.expires_in_ms;
  }

  /** Grows with every grant of the namespace. The protected resource rejects a token smaller than one that it has seen. */
  get fencingToken(): number {
    return this.grant.fencing_token;
  }

  /** Whether the grant has ended, or may have ended. It is judged by the clock, so it is right even if timers run late. */
  get lost(): boolean {
    if (!this.#ended && !this.signal.aborted && this.remainingMs === 0) this.#lose();
    return this.signal.aborted;
  }

  /** How long the grant is certainly held without a further heartbeat. */
  get remainingMs(): number {
    return this.signal.aborted ? 0 : Math.max(0, this.#deadline - performance.now());
  }

  /** Gives the grant back. Throws if the server cannot be told; its `ttl` then ends the grant. */
  async release(): Promise<void> {
    if (this.#ended) return;
    this.stop();
    await this.#requests.giveBack();
  }

  /** Releases without throwing: an error of the work must not be hidden by one of its end. For `finally`. */
  async leave(): Promise<void> {
    if (this.#gone) return;
    await this.release().catch((error: unknown) => {
      if (!(error instanceof LiminaError)) throw error;
    });
  }

  /** `await using` leaves the guard at the end of its block. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.leave();
  }

  /**
   * Begins to beat. If the grant took so long to arrive that less than two thirds of its time are certainly left, a heartbeat comes
   * first: a request that waited for its turn was granted long after it left.
   */
  async start(): Promise<this> {
    const late = this.remainingMs < (this.#ttlMs * 2) / 3;
    const error = late ? await this.#beat(this.#ttlMs) : undefined;
    if (error && isGone(error)) throw error;
    if (error && this.remainingMs === 0) {
      void this.leave();
      throw error;
    }
    this.#watchDeadline();
    this.#scheduleBeat(error);
    return this;
  }

  /** Runs a request that ends the grant. A heartbeat that finds the grant ended meanwhile proves nothing: it may be this end. */
  protected async ending<T>(request: () => Promise<T>): Promise<T> {
    this.#ending = true;
    try {
      return await request();
    } finally {
      this.#ending = false;
    }
  }

  /** Ends the heartbeats: the grant is no longer this guard's to keep. */
  protected stop(): void {
    this.#ended = true;
    this.#stopBeat();
    this.#stopDeadline();
  }

  #scheduleBeat(failed: LiminaError | undefined): void {
    this.#stopBeat = backgroundTimer(() => {
      void this.#beat(this.remainingMs).then((error) => {
        if (this.#ended || this.signal.aborted) return;
        if (error && isGone(error) && !this.#ending) this.#lose(error);
        else this.#scheduleBeat(error);
      });
    }, this.#ttlMs / (failed ? 12 : 3));
  }

  async #beat(timeoutMs: number): Promise<LiminaError | undefined> {
    try {
      const { sentAt, body } = await this.#requests.heartbeat(timeoutMs);
      this.#deadline = sentAt + (body as Grant).expires_in_ms;
      if (!this.#ended && !this.signal.aborted) this.#watchDeadline();
      return undefined;
    } catch (error) {
      return error instanceof LiminaError ? error : new Unavailable("unknown", String(error), {}, { cause: error });
    }
  }

  #watchDeadline(): void {
    this.#stopDeadline();
    this.#stopDeadline = backgroundTimer(() => this.#lose(), this.remainingMs);
  }

  #lose(cause?: LiminaError): void {
    this.#gone = cause !== undefined;
    this.#stopBeat();
    this.#stopDeadline();
    const why = cause ? `the server has ended it: ${cause.message}` : "no heartbeat succeeded in time";
    this.#controller.abort(new Lost(why, {}, { cause }));
  }
}

/** Whether the answer to a heartbeat says that the grant no longer exists. Every other failure says nothing about the grant. */
function isGone(error: LiminaError): boolean {
  return error instanceof NotFound || error instanceof Conflict;
}
