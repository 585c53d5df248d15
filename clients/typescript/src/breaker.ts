/** The circuit breaker: when checks fail, the client stops asking for a while, and fails them at once. */
import { milliseconds, type Duration } from "./duration.js";
import { Unavailable } from "./errors.js";

/**
 * The settings of the circuit breaker. It opens after `failures` requests for checks in a row that got no decision, or when no such
 * request has been answered for `hang`. For the time `pause` every check then fails at once. After that one request is sent: its
 * answer closes the breaker, and its failure begins another pause.
 */
export interface BreakerOptions {
  /** Default: 5. */
  failures?: number;
  /** Default: 1 s. */
  hang?: Duration;
  /** Default: 1 s. */
  pause?: Duration;
}

/** The state of the circuit breaker of a client. Its clock is an argument, so that tests need not sleep. */
export class Circuit {
  readonly #maxFailures: number;
  readonly #hangMs: number;
  readonly #pauseMs: number;
  readonly #clock: () => number;
  #failures = 0;
  #openUntil: number | undefined;
  #probing = false;
  #inFlight = 0;
  /** When the first request left that was sent after the last answer. `undefined`: nothing was sent since then. */
  #silentSince: number | undefined;

  constructor(options: BreakerOptions | false = {}, clock: () => number = () => performance.now()) {
    const { failures = 5, hang = "1s", pause = "1s" } = options || { failures: Infinity, hang: 0 };
    this.#maxFailures = failures;
    this.#hangMs = options === false ? Infinity : milliseconds(hang);
    this.#pauseMs = milliseconds(pause);
    this.#clock = clock;
  }

  get isOpen(): boolean {
    return this.#openUntil !== undefined;
  }

  /** Throws `Unavailable` if a check would not be sent now. */
  refuseIfOpen(): void {
    const now = this.#clock();
    if (this.#openUntil === undefined && this.#hangs(now)) this.#openUntil = now + this.#pauseMs;
    if (this.#openUntil === undefined || (!this.#probing && now >= this.#openUntil)) return;
    const retryAfterMs = Math.max(0, this.#openUntil - now);
    throw new Unavailable("no", "the circuit breaker is open: earlier checks got no answer", { retryAfterMs });
  }

  /**
   * Sends one request for checks, or throws `Unavailable` instead while the breaker is open. `isAnswer` says of what was returned
   * whether it is a decision of the server.
   */
  async request<T>(send: () => Promise<T>, isAnswer: (answer: T) => boolean): Promise<T> {
    this.refuseIfOpen();
    const isProbe = this.isOpen;
    if (isProbe) this.#probing = true;
    this.#inFlight += 1;
    this.#silentSince ??= this.#clock();
    try {
      const answer = await send();
      this.#end(isProbe, isAnswer(answer) ? "answered" : "failed");
      return answer;
    } catch (error) {
      this.#end(isProbe, error instanceof Unavailable ? "failed" : "abandoned");
      throw error;
    }
  }

  #hangs(now: number): boolean {
    return this.#inFlight > 0 && this.#silentSince !== undefined && now - this.#silentSince >= this.#hangMs;
  }

  #end(isProbe: boolean, outcome: "answered" | "failed" | "abandoned"): void {
    const now = this.#clock();
    const hangs = this.#hangs(now);
    this.#inFlight -= 1;
    if (isProbe) this.#probing = false;
    if (outcome === "answered") {
      this.#failures = 0;
      this.#openUntil = this.#silentSince = undefined;
      return;
    }
    if (this.#inFlight === 0) this.#silentSince = undefined;
    if (outcome === "abandoned") return;
    this.#failures += 1;
    const opens = this.#openUntil === undefined ? hangs || this.#failures >= this.#maxFailures : isProbe;
    if (opens) this.#openUntil = now + this.#pauseMs;
  }
}
