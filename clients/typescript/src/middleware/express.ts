/** `limina/express`: limits the requests of an Express application. */
import type { NextFunction, Request, RequestHandler, Response } from "express";
import type { Limina } from "../client.js";
import { limiter, type LimitOptions } from "./limit.js";

export type { LimitOptions };

export function limit(client: Limina, options: LimitOptions<Request>): RequestHandler {
  const judge = limiter(client, options);
  return (request: Request, response: Response, next: NextFunction) => {
    judge(request)
      .then(({ headers, refusal }) => {
        if (response.headersSent) return; // Somebody else has answered meanwhile, such as a timeout.
        response.set(headers);
        if (refusal) response.status(refusal.status).end(refusal.body);
        else next();
      })
      .catch(next);
  };
}
