/** What a call needs to know besides its request: the server, the namespace, and how patient the caller is. */
import type { Batches } from "./batch.js";
import { failure, Invalid, NotFound, type Reply } from "./errors.js";
import type { Requests } from "./guard.js";
import { exact, headerValue, randomId, type HttpRequest, type Transport } from "./transport.js";

export type Method = HttpRequest["method"];

export interface CallOptions {
  body?: object | undefined;
  query?: Record<string, string | number | boolean | undefined> | undefined;
  /** Sends no `Idempotency-Key`: the request changes nothing, or it is a heartbeat, whose kept answer would extend nothing. */
  keyless?: boolean;
  /** A key of the caller's choice. */
  key?: string | undefined;
  /** Repeating the request is harmless, although it has no key. */
  safe?: boolean;
  /** How long the server may wait before it answers. */
  waitMs?: number;
  signal?: AbortSignal | undefined;
  /** The request is a check, and goes through the circuit breaker. */
  isCheck?: boolean;
}

export interface Settings {
  readonly namespace: string;
  readonly timeoutMs: number;
  readonly retries: number;
}

export class Scope implements Settings {
  readonly namespace: string;
  readonly timeoutMs: number;
  readonly retries: number;
  /** Calls of scopes with the same id may travel together. */
  readonly id: string;

  constructor(
    readonly transport: Transport,
    readonly batches: Batches,
    settings: Settings,
  ) {
    ({ namespace: this.namespace, timeoutMs: this.timeoutMs, retries: this.retries } = settings);
    this.id = JSON.stringify([this.namespace, this.timeoutMs, this.retries]);
  }

  with(changed: Partial<Settings>): Scope {
    return new Scope(this.transport, this.batches, { ...this, ...changed });
  }

  /** Calls a path below the namespace, and returns the body of the answer. */
  async call<T>(method: Method, path: string, options: CallOptions = {}): Promise<T> {
    return (await this.exchange(method, path, options)).body as T;
  }

  async exchange(method: Method, path: string, options: CallOptions = {}): Promise<Reply> {
    const reply = await this.ask(method, path, options);
    const error = failure(reply);
    if (error) throw error;
    return reply;
  }

  /** As `exchange`, except that an error other than `Unavailable` is returned as an answer. */
  async ask(method: Method, path: string, options: CallOptions): Promise<Reply> {
    const request = this.request(method, path, options);
    // The server's clock may run slower than this one, by a twentieth at most.
    const timeoutMs = this.timeoutMs + ((options.waitMs ?? 0) * 17) / 16;
    const { signal } = options;
    const safe = method === "GET" || request.key !== undefined || options.safe === true;
    const { transport } = this;
    const attempt = () =>
      options.isCheck ? transport.attemptCheck(request, timeoutMs, signal) : transport.attempt(request, timeoutMs, signal);
    const isOver = () => options.isCheck === true && transport.circuit.isOpen;
    return exact(await transport.persist({ ...this, signal, isOver }, safe, attempt));
  }

  request(method: Method, path: string, { body, query, key, keyless }: CallOptions): HttpRequest {
    const request: HttpRequest = { method, path: this.path(path, query) };
    if (body !== undefined) request.body = JSON.stringify(body);
    if (key !== undefined) request.key = headerValue("the idempotency key", key);
    else if (!keyless && (method === "POST" || method === "PUT")) request.key = randomId();
    return request;
  }

  /** A path with its query: below the namespace, unless it begins with `/v1`. */
  path(path: string, query: CallOptions["query"] = {}): string {
    const whole = path.startsWith("/v1") ? path : `/v1/ns/${encodeURIComponent(this.namespace)}${path}`;
    // `fetch` resolves `.` and `..`, even encoded. These are valid names nowhere, and here they would lead to another path.
    const misleading = whole.slice(1).split("/").find((segment) => ["", ".", ".."].includes(segment));
    if (misleading !== undefined) throw new Invalid(`${JSON.stringify(misleading)} is not a valid name`);
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return search === "" ? whole : `${whole}?${search}`;
  }

  /** The requests of a guard over a lock or a lease. */
  grantRequests(path: string, sessionId: string): Requests {
    return {
      heartbeat: (timeoutMs) => this.heartbeat(`${path}/heartbeat`, timeoutMs, { session_id: sessionId }),
      giveBack: () => this.#release(path, sessionId),
    };
  }

  /** One heartbeat. It touches neither the budget of retries nor a key: the guard itself tries again. */
  async heartbeat(path: string, timeoutMs: number, body?: object): Promise<Reply> {
    const request = this.request("POST", path, { body, keyless: true });
    const reply = await this.transport.attempt(request, Math.min(timeoutMs, this.timeoutMs));
    const error = failure(reply);
    if (error) throw error;
    return reply;
  }

  /** If the answer to an earlier attempt was lost, 404 means that it was executed. */
  async #release(path: string, sessionId: string): Promise<void> {
    const request = this.request("DELETE", path, { query: { session_id: sessionId } });
    let attempts = 0;
    const reply = await this.transport.persist(this, true, (retry) => {
      attempts = retry + 1;
      return this.transport.attempt(request, this.timeoutMs);
    });
    const error = failure(reply);
    if (error && !(error instanceof NotFound && attempts > 1)) throw error;
  }

  /** Reads a list page by page, as far as the caller iterates. */
  async *list<T>(method: Method, path: string, { query, ...options }: CallOptions = {}): AsyncGenerator<T, void, undefined> {
    let after: string | undefined;
    do {
      const page = await this.call<{ items: T[]; next: string | null }>(method, path, {
        ...options,
        keyless: true,
        safe: true,
        query: { ...query, ...(after !== undefined && { after }) },
      });
      yield* page.items;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }
}
