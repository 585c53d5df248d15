/** What the middleware of all frameworks share: ask the limiter, and say in HTTP what it answered. */
import type { Limina } from "../client.js";
import { Unavailable } from "../errors.js";
import type { CheckResult } from "../limiter.js";
import type { KeyValues } from "../types.js";

export interface LimitOptions<Request> {
  /** What is about to happen, for the rules to match. `null`: this request is not limited. */
  keyValues: (request: Request) => KeyValues | null | Promise<KeyValues | null>;
  /** How much the request takes. Default: 1. */
  hits?: number | ((request: Request) => number);
  /** What happens to requests while the limiter cannot be asked. Default: `"allow"`. */
  onUnavailable?: "allow" | "refuse";
  /**
   * Whether answers have `RateLimit-Policy` and `RateLimit`. Default: true. The server sends them only with a single check, so with `false`
   * the checks of concurrent requests travel together.
   */
  headers?: boolean;
  /** Called for each request without a decision. These requests are also counted in `client.undecided`. */
  onUndecided?: (error: Unavailable, request: Request) => void;
}

/** What to do with a request: let it pass (no `refusal`), or answer it. Either way with these headers. */
export interface Verdict {
  headers: Record<string, string>;
  refusal?: { status: number; body: string };
}

export type Limiter<Request> = (request: Request) => Promise<Verdict>;

/**
 * Makes the function that judges requests. The limiter is asked once, without retries: a request that waits for retries costs its
 * user more than `onUnavailable` does. Mistakes, such as a missing token, are errors: they must not switch the limits off.
 */
export function limiter<Request>(client: Limina, options: LimitOptions<Request>): Limiter<Request> {
  const { keyValues, hits = 1, onUnavailable = "allow", onUndecided, headers = true } = options;
  const impatient = client.with({ retries: 0 });
  return async (request) => {
    const about = await keyValues(request);
    if (about === null) return { headers: {} };
    try {
      const taken = typeof hits === "number" ? hits : hits(request);
      const result = await impatient.check(about, { hits: taken, alone: headers });
      return verdict(headers ? result : { ...result, headers: retryAfter(result.retry_after_ms) });
    } catch (error) {
      // Frameworks answer with the `status` of an error. The limiter's 401 must not become one for the user.
      if (!(error instanceof Unavailable)) throw new Error("the limiter refuses to be asked", { cause: error });
      client.undecided.count(error, onUnavailable === "allow");
      try {
        onUndecided?.(error, request);
      } catch (mistake) {
        // The callback only observes: its mistakes must not fail requests.
        console.error("limina: onUndecided failed:", mistake);
      }
      return onUnavailable === "allow" ? { headers: {} } : unavailable(error);
    }
  };
}

export function verdict({ allowed, retry_after_ms, violated_policies, headers }: CheckResult): Verdict {
  if (allowed) return { headers };
  return answer(429, headers, retry_after_ms, {
    type: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: "A limit is reached",
    code: "LimitReached",
    "violated-policies": violated_policies,
  });
}

function unavailable({ retryAfterMs = 1000 }: Unavailable): Verdict {
  const title = "The limiter is not available";
  return answer(503, retryAfter(retryAfterMs || 1), retryAfterMs, { type: "about:blank", title, code: "LimiterUnavailable" });
}

function retryAfter(ms: number | null): Record<string, string> {
  return ms === null ? {} : { "Retry-After": String(Math.ceil(ms / 1000)) };
}

function answer(status: number, passedOn: Record<string, string>, retryAfterMs: number | null, problem: object): Verdict {
  const headers: Record<string, string> = { ...passedOn, "Content-Type": "application/problem+json" };
  return { headers, refusal: { status, body: JSON.stringify({ ...problem, status, retry_after_ms: retryAfterMs }) } };
}
