// Calls of the server, with the token of this tab.
import { signal } from "@preact/signals";
import { decode, encode } from "./json";
import { namespace } from "./route";

/** A page of a list. `next` is the `after` of the next page. */
export type Page<T> = { items: T[]; next: string | null };

const TOKEN = "limina-token";

/** The token lives as long as the tab. */
export const token = signal(sessionStorage.getItem(TOKEN) ?? "");
/** Set when the server asks for a token, or rejects the one that there is. */
export const tokenWanted = signal(false);

export function setToken(text: string): void {
  if (text) sessionStorage.setItem(TOKEN, text);
  else sessionStorage.removeItem(TOKEN);
  token.value = text;
  tokenWanted.value = false;
}

/** An answer other than success. */
export class Failure extends Error {
  constructor(
    /** 0: the server was not reached. */
    readonly status: number,
    readonly code: string,
    message: string,
    readonly problem: Record<string, any> = {},
  ) {
    super(message);
  }
}

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

async function send(method: Method, path: string, body: unknown, more: RequestInit & { headers?: Record<string, string> }) {
  const headers: Record<string, string> = { ...more.headers };
  if (token.peek()) headers.authorization = `Bearer ${token.peek()}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const init = { ...more, method, headers, body: body === undefined ? undefined : encode(body) };
  let answer: Response;
  try {
    answer = await fetch(path, { ...init, credentials: "omit", cache: "no-store" });
  } catch (error) {
    if (more.signal?.aborted) throw error;
    throw new Failure(0, "NotReached", "The server cannot be reached.");
  }
  if (answer.ok) return answer;
  const text = await answer.text();
  let problem: Record<string, any> = {};
  try {
    problem = decode(text);
  } catch {
    // A proxy may answer with something else than a problem document.
  }
  if (answer.status === 401) tokenWanted.value = true;
  const message = problem.detail ?? problem.title ?? `The server answered ${answer.status}.`;
  throw new Failure(answer.status, problem.code ?? String(answer.status), message, problem);
}

export async function call<T = any>(method: Method, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const answer = await send(method, path, body, { signal });
  const text = await answer.text();
  return text === "" ? (undefined as T) : decode(text);
}

export const get = <T = any>(path: string, signal?: AbortSignal) => call<T>("GET", path, undefined, signal);

export async function text(path: string, signal?: AbortSignal): Promise<string> {
  return (await send("GET", path, undefined, { signal })).text();
}

/** A path of a family in the chosen namespace. Each `${…}` is one segment or value, and is percent-encoded. */
export function at(parts: TemplateStringsArray, ...values: (string | number | undefined)[]): string {
  let path = `/v1/ns/${encodeURIComponent(namespace.value)}/${parts[0]}`;
  values.forEach((value = "", n) => {
    // The browser would resolve these, and the request would go to another path.
    if (["", ".", ".."].includes(String(value)) && !path.includes("?")) throw new Failure(404, "NotFound", "There is nothing with this name.", {});
    path += encodeURIComponent(String(value)) + parts[n + 1];
  });
  return path;
}

export type Sent = { event: string; id: string; data: any };

/** Follows server-sent events by `fetch`, since `EventSource` cannot send a token. Ends when the connection ends. */
export async function follow(path: string, lastId: string, signal: AbortSignal, each: (sent: Sent) => void, opened: () => void) {
  const headers: Record<string, string> = lastId ? { "last-event-id": lastId } : {};
  const answer = await send("GET", path, undefined, { signal, headers });
  opened();
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    buffer += value;
    const events = buffer.split(/\r?\n\r?\n/);
    buffer = events.pop()!;
    for (const text of events) {
      const sent = { event: "message", id: "", data: "" };
      for (const line of text.split(/\r?\n/)) {
        const [, field, rest] = /^(event|id|data):\s?(.*)$/.exec(line) ?? [];
        if (field === "data") sent.data += rest;
        else if (field === "event") sent.event = rest;
        else if (field === "id") sent.id = rest;
      }
      if (sent.data) each({ ...sent, data: decode(sent.data) });
    }
  }
}

/** Follows server-sent events until `stop`, and connects again when the connection is lost. */
export function keepFollowing(
  path: string,
  on: { event: (sent: Sent) => void; opened: () => void; lost: (failure: Failure | null) => void; resume?: boolean },
): () => void {
  const controller = new AbortController();
  let lastId = "";
  void (async () => {
    for (let pause = 500; !controller.signal.aborted; pause = Math.min(2 * pause, 8000)) {
      let failure: Failure | null = null;
      try {
        const each = (sent: Sent) => {
          if (on.resume && sent.id) lastId = sent.id;
          on.event(sent);
        };
        await follow(path, lastId, controller.signal, each, () => {
          pause = 500;
          on.opened();
        });
      } catch (error) {
        if (controller.signal.aborted) return;
        failure = error instanceof Failure ? error : null;
      }
      on.lost(failure);
      // Asking again does not help against these.
      if (failure && [401, 403, 404].includes(failure.status)) return;
      await new Promise((done) => setTimeout(done, pause));
    }
  })();
  return () => controller.abort();
}
