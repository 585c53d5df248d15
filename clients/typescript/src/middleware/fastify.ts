/** `limina/fastify`: a hook that limits the requests of a Fastify application: `app.addHook("onRequest", limit(…))`. */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { Limina } from "../client.js";
import { limiter, type LimitOptions } from "./limit.js";

export type { LimitOptions };

export function limit(
  client: Limina,
  options: LimitOptions<FastifyRequest>,
): (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply | void> {
  const judge = limiter(client, options);
  return async (request, reply) => {
    const { headers, refusal } = await judge(request);
    if (reply.sent) return reply; // Somebody else has answered meanwhile, such as a timeout.
    reply.headers(headers);
    if (refusal) return reply.code(refusal.status).send(refusal.body);
  };
}
