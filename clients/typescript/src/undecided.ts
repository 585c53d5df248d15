/** Counts the requests that a middleware let pass or refused without a decision, and says so in the log. */
import type { Unavailable } from "./errors.js";

const MS_BETWEEN_LINES = 60_000;

/** `client.undecided`: how many requests the middleware of this client passed or refused because it got no decision. */
export class Undecided {
  #passed = 0;
  #refused = 0;
  #logged = 0;
  #nextLine = -Infinity;
  readonly #clock: () => number;

  /** @internal */
  constructor(clock: () => number = () => performance.now()) {
    this.#clock = clock;
  }

  get passed(): number {
    return this.#passed;
  }

  get refused(): number {
    return this.#refused;
  }

  /** Counts a request. Writes a warning to the console, at most once a minute. */
  count(error: Unavailable, passed: boolean): void {
    if (passed) this.#passed += 1;
    else this.#refused += 1;
    const now = this.#clock();
    if (now < this.#nextLine) return;
    const total = this.#passed + this.#refused;
    const action = passed ? "passed" : "were refused";
    const line = `${total - this.#logged} requests ${action} since the last such line; ${error.message}`;
    [this.#logged, this.#nextLine] = [total, now + MS_BETWEEN_LINES];
    console.warn(`limina: no decision from the limiter: ${line}`);
  }
}
