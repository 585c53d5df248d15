/** `limina/hono`: limits the requests of a Hono application. */
import type { Context, MiddlewareHandler } from "hono";
import type { Limina } from "../client.js";
import { limiter, type LimitOptions } from "./limit.js";

export type { LimitOptions };

export function limit(client: Limina, options: LimitOptions<Context>): MiddlewareHandler {
  const judge = limiter(client, options);
  return async (context, next) => {
    const { headers, refusal } = await judge(context);
    if (refusal) return context.newResponse(refusal.body, refusal.status as 429 | 503, headers);
    await next();
    // Afterwards, because a handler's own `Response` does not have what was set before. What an inner limiter said stays.
    for (const [name, value] of Object.entries(headers)) if (!context.res.headers.has(name)) context.header(name, value);
    return undefined;
  };
}
