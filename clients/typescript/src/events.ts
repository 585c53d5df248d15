/** Streams of events: submit to them, and follow them without missing a change. */
import { sleep } from "./duration.js";
import { Unavailable } from "./errors.js";
import type { Scope } from "./scope.js";
import { serverSentEvents } from "./sse.js";
import { pause } from "./transport.js";
import type * as api from "./types.js";

export interface FollowOptions {
  /** The clock of the last message that the caller has. Without it, the stream begins with a key frame. */
  after?: number;
  signal?: AbortSignal;
}

/** `client.events` */
export class Events {
  readonly #scope: Scope;

  constructor(scope: Scope) {
    this.#scope = scope;
  }

  /** Creates the stream, or changes its settings. */
  put(stream: string, settings: api.NewStream): Promise<api.Stream> {
    return this.#scope.call("PUT", streamPath(stream), { body: settings });
  }

  list(query: { limit?: number } = {}): AsyncGenerator<api.Stream> {
    return this.#scope.list("GET", "/events", { query });
  }

  get(stream: string): Promise<api.Stream> {
    return this.#scope.call("GET", streamPath(stream));
  }

  delete(stream: string): Promise<void> {
    return this.#scope.call("DELETE", streamPath(stream));
  }

  /** Throws `Refused` with the code `EventConflict` if the same event happened within the stream's duration. */
  submit(stream: string, event: string): Promise<api.Submitted> {
    return this.#scope.call("POST", streamPath(stream), { body: { event } });
  }

  /** The events that are accepted and not yet published. */
  incubating(stream: string): Promise<api.Incubating> {
    return this.#scope.call("GET", `${streamPath(stream)}/incubating`);
  }

  /**
   * Follows a stream for ever: after any interruption it connects again, and continues after the last message. A key frame comes
   * first, from time to time, and in place of changes that the server no longer keeps.
   */
  async *follow(stream: string, { after, signal }: FollowOptions = {}): AsyncGenerator<api.Message, void, undefined> {
    let clock = after;
    const resume = () => (clock === undefined ? {} : { "Last-Event-ID": String(clock) });
    for await (const message of persistently<api.Message>(this.#scope, `${streamPath(stream)}/stream`, resume, signal)) {
      if (message.messageType !== "KEY_FRAME" && clock !== undefined && message.clock <= clock) continue;
      clock = message.clock;
      yield message;
    }
  }
}

/** What is being refused, as it happens: best effort, from the moment of the call on and a little before. */
export function refusals(scope: Scope, signal?: AbortSignal): AsyncGenerator<api.Refusal, void, undefined> {
  return persistently(scope, "/refusals/stream", () => ({}), signal);
}

/** Reads a stream of server-sent events, and connects again when it ends. The first connection is retried as other requests are. */
async function* persistently<T>(
  scope: Scope,
  path: string,
  headers: () => Record<string, string>,
  signal: AbortSignal | undefined,
): AsyncGenerator<T, void, undefined> {
  let opened = false;
  for (let failures = 0; ; ) {
    let retryAfterMs: number | undefined;
    try {
      const request = { method: "GET", path: scope.path(path), headers: headers() } as const;
      const bytes = await scope.transport.open(request, scope.timeoutMs, IDLE_MS, signal);
      opened = true;
      for await (const data of serverSentEvents(bytes)) {
        failures = 0;
        yield JSON.parse(data) as T;
      }
    } catch (error) {
      if (!(error instanceof Unavailable) || (!opened && failures >= scope.retries)) throw error;
      retryAfterMs = error.retryAfterMs;
    }
    failures += 1;
    await sleep(pause(Math.min(failures, 8), retryAfterMs), signal);
  }
}

/** The server sends a comment after 15 s without a message. After this long without a byte, the connection is dead. */
const IDLE_MS = 45_000;

const streamPath = (stream: string) => `/events/${encodeURIComponent(stream)}`;
