/**
 * An API that lets each client make 5 requests a minute.
 *
 *     LIMINA_URL=http://localhost:7070 node examples/express.mjs
 */
import express from "express";
import { Limina } from "limina";
import { limit } from "limina/express";

const limina = new Limina(process.env.LIMINA_URL ?? "http://localhost:7070", { timeout: process.env.TIMEOUT ?? "200ms" });
await limina.rules.put("api", { group_by: ["client"], limit: 5, window: { type: "sliding", per: "1m" } });

const app = express();
app.use(limit(limina, { keyValues: (request) => ({ client: request.ip ?? "unknown" }) }));
app.get("/", (_request, response) => response.send("hello\n"));

const server = app.listen(Number(process.env.PORT ?? 3000), () => {
  console.log(`listening on http://localhost:${server.address().port}`);
});
