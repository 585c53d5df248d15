/** What the middleware of all frameworks share: ask the limiter, and say in HTTP what it answered. */
import type { Limina } from "../client.js";
import { Unavailable } from "../errors.js";
import type { CheckReply, KeyValues, LimitStatus } from "../types.js";

export interface LimitOptions<Request> {
  /** What is about to happen, for the rules to match. `null`: this request is not limited. */
  keyValues: (request: Request) => KeyValues | null | Promise<KeyValues | null>;
  /** How much the request takes. Default: 1. */
  hits?: number | ((request: Request) => number);
  /** What happens to requests while the limiter cannot be asked. Default: `"allow"`. */
  onUnavailable?: "allow" | "refuse";
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
  const { keyValues, hits = 1, onUnavailable = "allow" } = options;
  const impatient = client.with({ retries: 0 });
  return async (request) => {
    const about = await keyValues(request);
    if (about === null) return { headers: {} };
    try {
      return verdict(await impatient.check(about, { hits: typeof hits === "number" ? hits : hits(request) }));
    } catch (error) {
      // Frameworks answer with the `status` of an error. The limiter's 401 must not become one for the user.
      if (!(error instanceof Unavailable)) throw new Error("the limiter refuses to be asked", { cause: error });
      return onUnavailable === "allow" ? { headers: {} } : unavailable(error);
    }
  };
}

export function verdict({ allowed, limits, retry_after_ms }: CheckReply): Verdict {
  const headers = rateLimitHeaders(limits, retry_after_ms);
  if (allowed) return { headers };
  const refusing = limits.filter((limit) => limit.exceeded && !limit.shadow);
  return answer(429, headers, retry_after_ms, {
    type: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    title: "A limit is reached",
    code: "LimitReached",
    "violated-policies": refusing.map(policyName),
  });
}

function unavailable({ retryAfterMs = 1000 }: Unavailable): Verdict {
  const title = "The limiter is not available";
  return answer(503, {}, retryAfterMs, { type: "about:blank", title, code: "LimiterUnavailable" });
}

function answer(status: number, headers: Record<string, string>, retryAfterMs: number | null, problem: object): Verdict {
  headers["Content-Type"] = "application/problem+json";
  if (retryAfterMs !== null) headers["Retry-After"] = String(Math.ceil(retryAfterMs / 1000));
  return { headers, refusal: { status, body: JSON.stringify({ ...problem, status, retry_after_ms: retryAfterMs }) } };
}

/**
 * `RateLimit-Policy` and `RateLimit` for the tightest limits, as the server writes them (draft-ietf-httpapi-ratelimit-headers). The
 * length of a window is not part of a check's answer, so the policy leaves it out.
 */
function rateLimitHeaders(limits: LimitStatus[], retryAfterMs: number | null): Record<string, string> {
  const enforced = limits.filter((limit) => !limit.shadow && limit.limit >= 0 && limit.rule !== null);
  if (enforced.length === 0) return {};
  const share = ({ remaining, limit }: LimitStatus) => (limit === 0 ? 0 : remaining! / limit);
  enforced.sort((a, b) => Number(b.exceeded) - Number(a.exceeded) || share(a) - share(b) || a.remaining! - b.remaining!);
  const [policy, state]: [string[], string[]] = [[], []];
  for (const limit of enforced.slice(0, MAX_LIMITS)) {
    const resetMs = limit.exceeded && retryAfterMs !== null ? Math.min(limit.reset_ms ?? Infinity, retryAfterMs) : limit.reset_ms;
    policy.push(`"${policyName(limit)}";q=${limit.limit}`);
    state.push(`"${policyName(limit)}";r=${limit.remaining}${resetMs === null ? "" : `;t=${Math.ceil(resetMs / 1000)}`}`);
  }
  return { "RateLimit-Policy": policy.join(", "), RateLimit: state.join(", ") };
}

const MAX_LIMITS = 8;

function policyName({ rule, override }: LimitStatus): string {
  return [rule!, ...(override === null ? [] : [override])].map(printable).join("/");
}

/** Percent-encodes what a structured field's string cannot hold. */
function printable(name: string): string {
  return name.replace(/[^\x20-\x7e]|["\\%]/gu, (character) => encodeURIComponent(character));
}
