/** A `fetch` that answers by a function, for what the real server cannot be brought to do. */
export interface Sent {
  method: string;
  path: string;
  body: any;
  key: string | null;
  token: string | null;
}

type Answer = { status: number; body?: unknown; headers?: Record<string, string> };

export function fakeFetch(answer: (sent: Sent) => Answer | Promise<Answer>): { fetch: typeof fetch; sent: Sent[] } {
  const sent: Sent[] = [];
  return {
    sent,
    fetch: async (input, init = {}) => {
      const { pathname, search } = new URL(String(input));
      const headers = new Headers(init.headers);
      const one = {
        method: init.method ?? "GET",
        path: pathname + search,
        body: init.body === undefined ? undefined : JSON.parse(String(init.body)),
        key: headers.get("Idempotency-Key"),
        token: headers.get("Authorization"),
      };
      sent.push(one);
      const aborted = new Promise<never>((_, reject) => {
        init.signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
      });
      const { status, body, headers: extra } = await Promise.race([answer(one), aborted]);
      const type = { "Content-Type": "application/json", ...extra };
      return new Response(body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body), { status, headers: type });
    },
  };
}

/** An answer that never comes. */
export const never = new Promise<never>(() => {});
