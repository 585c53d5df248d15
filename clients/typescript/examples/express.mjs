/**
 * An API that lets each client make 5 requests a minute.
 *
 *     LIMINA_URL=http://localhost:7070 node examples/express.mjs
 */
import express from "express";
import { Limina, Unavailable } from "limina";
import { limit } from "limina/express";

const limina = new Limina(process.env.LIMINA_URL ?? "http://localhost:7070", { timeout: process.env.TIMEOUT ?? "200ms" });
try {
  await limina.rules.put("api", { group_by: ["client"], limit: 5, window: { type: "sliding", per: "1m" } });
} catch (error) {
  // The rule of an earlier start is still there. Without one, nothing is limited.
  if (!(error instanceof Unavailable)) throw error;
  console.warn(`the rule could not be put: ${error.message}`);
}

const app = express();
app.use(limit(limina, { keyValues: (request) => ({ client: request.ip ?? "unknown" }) }));
app.get("/", (_request, response) => response.send("hello\n"));

const server = app.listen(Number(process.env.PORT ?? 3000), () => {
  console.log(`listening on http://localhost:${server.address().port}`);
});
