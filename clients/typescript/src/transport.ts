/**
 * One HTTP exchange, and its repetition.
 *
 * The rule for repetitions: an attempt that certainly did nothing is always repeated. An attempt whose outcome is unknown is
 * repeated only if the request is `safe`: a read, or a request with a key or an id under which the server recognizes it.
 */
import { Circuit, type BreakerOptions } from "./breaker.js";
import { sleep } from "./duration.js";
import { failure, Invalid, unavailability, Unavailable, type Reply } from "./errors.js";
import { Undecided } from "./undecided.js";

export interface HttpRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The path and the query, after the URL of the server. */
  path: string;
  body?: string;
  /** The `Idempotency-Key`. Every attempt of one call sends the same. */
  key?: string;
  headers?: Record<string, string>;
}

/** How long a caller waits for one attempt, and how many retries follow it. */
export interface Patience {
  readonly timeoutMs: number;
  readonly retries: number;
  readonly signal?: AbortSignal | undefined;
  /** Whether a failed attempt must be the last one. */
  readonly isOver?: () => boolean;
}

/** What all clients of one server share: its address, and the budget of retries. */
export class Transport {
  readonly #url: string;
  readonly #token: string | undefined;
  readonly #fetch: typeof fetch;
  readonly circuit: Circuit;
  readonly undecided = new Undecided();
  #budget = FULL_BUDGET;

  constructor(url: string, token: string | undefined, fetcher: typeof fetch | undefined, breaker: BreakerOptions | false | undefined) {
    this.circuit = new Circuit(breaker);
    const { protocol, username, password, href } = new URL(url);
    // `fetch` would report these as failures of the network, and show the password.
    if (!/^https?:$/.test(protocol)) throw new Invalid("the URL must begin with http:// or https://");
    if (username !== "" || password !== "") throw new Invalid("the URL must not contain a user or a password");
    this.#url = href.replace(/\/+$/, "");
    // A token that is read from a file often ends with a line break. A blank token is none.
    this.#token = headerValue("the token", token?.trim() ?? "") || undefined;
    this.#fetch = fetcher ?? ((input, init) => globalThis.fetch(input, init));
  }

  /** Sends a request once. Returns any HTTP answer; throws `Unavailable` if there is none. */
  async attempt(request: HttpRequest, timeoutMs: number, signal?: AbortSignal): Promise<Reply> {
    const exchange = new Exchange(signal);
    exchange.within(timeoutMs);
    const sentAt = performance.now();
    try {
      const response = await this.#send(request, exchange.signal);
      const text = await response.text();
      // Most answers have no long number, and need no look at every value.
      const isExact = !LONG_NUMBER.test(text);
      const [status, body, headers] = [response.status, parse(text, response), passedOn(response)];
      return { status, body, retryAfterMs: retryAfter(response), sentAt, isExact, headers };
    } catch (error) {
      throw exchange.explain(error);
    } finally {
      exchange.end();
    }
  }

  /** As `attempt`, for checks. Only they go through the circuit breaker: their callers know what to do without an answer. */
  attemptCheck(request: HttpRequest, timeoutMs: number, signal?: AbortSignal): Promise<Reply> {
    return this.circuit.request(
      () => this.attempt(request, timeoutMs, signal),
      (reply) => unavailability(reply) === undefined,
    );
  }

  /**
   * Opens a stream of bytes that has no end. `timeoutMs` is for the head of the answer, and `idleMs` for every wait for bytes after it.
   */
  async open(request: HttpRequest, timeoutMs: number, idleMs: number, signal?: AbortSignal): Promise<AsyncGenerator<Uint8Array>> {
    const exchange = new Exchange(signal);
    exchange.within(timeoutMs);
    const sentAt = performance.now();
    try {
      const response = await this.#send(request, exchange.signal);
      if (response.ok) return readAll(response.body!, exchange, idleMs);
      const body = parse(await response.text(), response);
      throw failure({ status: response.status, body, retryAfterMs: retryAfter(response), sentAt, isExact: true, headers: {} })!;
    } catch (error) {
      exchange.end();
      throw exchange.explain(error);
    }
  }

  /** Repeats `attempt` as the rule above allows. Returns an answer that is not `Unavailable`. */
  async persist(patience: Patience, safe: boolean, attempt: (retry: number) => Promise<Reply>): Promise<Reply> {
    let unknown = false;
    for (let retry = 0; ; ) {
      let error: Unavailable;
      try {
        const reply = await attempt(retry);
        if (unavailability(reply) === undefined) {
          this.#budget = Math.min(FULL_BUDGET, this.#budget + RETURNED);
          return reply;
        }
        error = failure(reply) as Unavailable;
      } catch (thrown) {
        if (!(thrown instanceof Unavailable)) throw thrown;
        error = thrown;
      }
      unknown ||= error.done === "unknown";
      retry += 1;
      const repeat = (safe || error.done === "no") && this.mayRetry(retry, patience, error.retryAfterMs);
      if (!repeat) throw unknown && error.done === "no" ? perhapsDone(error) : error;
      await sleep(pause(retry, error.retryAfterMs), patience.signal);
    }
  }

  /** Whether there may be a retry number `retry` (1, 2, …). If so, it is taken from the budget. */
  mayRetry(retry: number, { retries, timeoutMs, isOver }: Patience, retryAfterMs = 0): boolean {
    if (isOver?.() || retry > retries || retryAfterMs > timeoutMs || this.#budget < 1) return false;
    this.#budget -= 1;
    return true;
  }

  async #send({ method, path, body, key, headers }: HttpRequest, signal: AbortSignal): Promise<Response> {
    const sent: Record<string, string> = { ...headers };
    if (this.#token !== undefined) sent["Authorization"] = `Bearer ${this.#token}`;
    if (key !== undefined) sent["Idempotency-Key"] = key;
    if (body !== undefined) sent["Content-Type"] = "application/json";
    // The answer of another server is no decision of this one.
    const options = { method, headers: sent, signal, cache: "no-store", redirect: "manual" } as const;
    return this.#fetch(this.#url + path, { ...options, ...(body !== undefined && { body }) });
  }
}

/** Refuses what no header can have. `fetch` would report it as a failure of the network, and show the value. */
export function headerValue(name: string, value: string): string {
  if (!/^[\t -~]*$/.test(value)) throw new Invalid(`${name} contains characters that a header cannot have`);
  return value;
}

async function* readAll(body: ReadableStream<Uint8Array>, exchange: Exchange, idleMs: number): AsyncGenerator<Uint8Array> {
  try {
    for (const reader = body.getReader(); ; ) {
      exchange.within(idleMs);
      const { done, value } = await reader.read();
      exchange.within(undefined);
      if (done) return;
      yield value;
    }
  } catch (error) {
    throw exchange.explain(error);
  } finally {
    exchange.end();
    exchange.abort();
  }
}

/** The budget keeps a fleet of clients from multiplying the load of a server that is in trouble. */
const FULL_BUDGET = 10;
const RETURNED = 0.1;

/** The pause before retry 1, 2, …: random, so that clients do not return together, and after what the server asked for. */
export function pause(retry: number, retryAfterMs: number | undefined): number {
  return (retryAfterMs ?? 0) + Math.random() * Math.min(2000, 100 * 2 ** (retry - 1));
}

/** 128 random bits. `crypto.randomUUID` is not used because browsers have it only on secure pages. */
export function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A running exchange: it can be aborted by the caller's signal and by a timer, and knows afterwards which of them it was. */
class Exchange {
  readonly #controller = new AbortController();
  readonly #caller: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timedOut: number | undefined;

  constructor(caller: AbortSignal | undefined) {
    this.#caller = caller;
    caller?.throwIfAborted();
    caller?.addEventListener("abort", this.abort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  readonly abort = (): void => this.#controller.abort();

  within(ms: number | undefined): void {
    clearTimeout(this.#timer);
    if (ms === undefined) return;
    this.#timer = setTimeout(() => {
      this.#timedOut = ms;
      this.abort();
    }, ms);
  }

  explain(error: unknown): unknown {
    if (this.#caller?.aborted) return this.#caller.reason;
    if (this.#timedOut !== undefined) {
      return new Unavailable("unknown", `no answer within ${Math.round(this.#timedOut)} ms`, {}, { cause: error });
    }
    // `fetch` and the reader of a body report every failure of the network as a TypeError.
    if (!(error instanceof TypeError)) return error;
    const cause = error.cause as { code?: string; message?: string } | undefined;
    const done = NEVER_SENT.has(cause?.code ?? "") ? "no" : "unknown";
    return new Unavailable(done, cause?.message || cause?.code || error.message, {}, { cause: error });
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.abort);
  }
}

/** Failures of Node's `fetch` before a connection existed. A browser does not tell: there the outcome is unknown. */
const NEVER_SENT = new Set([
  ...["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "EADDRNOTAVAIL"],
  ...["EMFILE", "ENFILE", "UND_ERR_CONNECT_TIMEOUT"],
]);

function perhapsDone(last: Unavailable): Unavailable {
  const reply: Partial<Reply> = { body: last.problem, retryAfterMs: last.retryAfterMs };
  if (last.status !== undefined) reply.status = last.status;
  return new Unavailable("unknown", `${last.message} (an earlier attempt may have been executed)`, reply, { cause: last });
}

/** The headers of an answer that a service passes on to its own client. */
function passedOn({ headers }: Response): Record<string, string> {
  const found = ["RateLimit-Policy", "RateLimit", "Retry-After"].map((name) => [name, headers.get(name)]);
  return Object.fromEntries(found.filter(([, value]) => value !== null));
}

function retryAfter(response: Response): number | undefined {
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  return Number.isFinite(seconds) ? seconds * 1000 : undefined;
}

/** Reads the body of an answer. An answer of Limina is JSON or 204; a success that is neither comes from something in between. */
function parse(text: string, { ok, status, headers, type }: Response): unknown {
  if (status === 204) return undefined;
  // A browser hides the status of a redirection.
  if (type === "opaqueredirect") throw new Invalid("the server answered with a redirection");
  if (status >= 300 && status < 400) throw new Invalid(`the server answered with status ${status}`, { status });
  try {
    if (!headers.get("Content-Type")?.includes("json")) throw new SyntaxError("the answer is not JSON");
    return JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    if (!ok) return undefined;
    throw new Unavailable("unknown", `the answer cannot be read: ${error.message}`, { status }, { cause: error });
  }
}

/** Only numbers of 16 digits and more can be inexact. */
const LONG_NUMBER = /\d{16}/;

/**
 * Returns the answer. Throws if it has a 64-bit integer beyond ±(2^53−1), which JavaScript has rounded: a wrong amount is worse than
 * an error. The answer to a batch is checked item by item, so that one caller's number fails no other caller.
 */
export function exact(reply: Reply): Reply {
  if (!reply.isExact) JSON.stringify(reply.body, refuseInexact);
  return reply;
}

function refuseInexact(key: string, value: unknown): unknown {
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value as number) <= 2 ** 64) {
    throw new RangeError(`the field ${JSON.stringify(key)} of the answer is too large for a JavaScript number`);
  }
  return value;
}
