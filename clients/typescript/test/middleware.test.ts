/** The middleware of all frameworks, by the same cases: requests that pass, are refused, and come while the limiter is away. */
import assert from "node:assert/strict";
import { createServer, type Server as HttpServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import express from "express";
import Fastify, { type FastifyReply, type FastifyRequest } from "fastify";
import { Hono } from "hono";
import { getRequestListener } from "@hono/node-server";
import { Limina } from "limina";
import * as forExpress from "limina/express";
import * as forFastify from "limina/fastify";
import * as forHono from "limina/hono";
import { startServer, type Server } from "./support/server.js";

type Options = Omit<forExpress.LimitOptions<unknown>, "keyValues">;

/** Each application answers `/` with `hello`. The header `client` names who asks; requests without it are not limited. */
const FRAMEWORKS: Record<string, (limina: Limina, options: Options) => Promise<HttpServer>> = {
  async express(limina, options) {
    const app = express();
    app.use(forExpress.limit(limina, { keyValues: (request) => about(request.get("client")), ...options }));
    app.get("/", (_request, response) => void response.send("hello"));
    return createServer(app);
  },
  async fastify(limina, options) {
    const app = Fastify();
    app.addHook("onRequest", forFastify.limit(limina, { keyValues: (request) => about(request.headers["client"]), ...options }));
    app.get("/", async () => "hello");
    await app.ready();
    return app.server;
  },
  async hono(limina, options) {
    const app = new Hono();
    app.use(forHono.limit(limina, { keyValues: (context) => about(context.req.header("client")), ...options }));
    app.get("/", (context) => context.text("hello"));
    return createServer(getRequestListener(app.fetch));
  },
};

const about = (client: string | string[] | undefined) => (client === undefined ? null : { client: String(client) });

let server: Server;
before(async () => {
  server = await startServer();
  const limina = new Limina(server.url, { timeout: "30s", breaker: false });
  await limina.rules.create({ name: 'per "client"', group_by: ["client"], limit: 2, window: { type: "sliding", per: "1d" } });
  await limina.rules.create({ name: "rate", group_by: ["client"], limit: 60, window: { type: "bucket", per: "1h", burst: 5 } });
  await limina.rules.create({ name: "shadow", group_by: ["client"], limit: 1, shadow: true, window: { type: "sliding", per: "1d" } });
});
after(() => server.stop());

for (const [name, serve] of Object.entries(FRAMEWORKS)) {
  describe(name, () => {
    test("lets pass with RateLimit headers, then refuses with problem+json", async () => {
      await using app = await listen(await serve(new Limina(server.url, { timeout: "30s", breaker: false }), {}));
      const ask = () => fetch(app.url, { headers: { client: name } });
      const [first, second, third] = [await ask(), await ask(), await ask()];

      assert.equal(first.status, 200);
      assert.equal(await first.text(), "hello");
      assert.equal(first.headers.get("RateLimit-Policy"), '"per %22client%22";q=2;w=86400, "rate";q=60;w=3600;burst=5');
      assert.match(first.headers.get("RateLimit")!, /^"per %22client%22";r=1;t=\d+, "rate";r=4;t=\d+$/);
      assert.match(second.headers.get("RateLimit")!, /;r=0;/);

      assert.equal(third.status, 429);
      assert.match(third.headers.get("Content-Type")!, /^application\/problem\+json/);
      assert.ok(Number(third.headers.get("Retry-After")) > 0);
      const problem = (await third.json()) as Record<string, unknown>;
      assert.equal(problem["code"], "LimitReached");
      assert.deepEqual(problem["violated-policies"], ["per %22client%22"]);
    });

    test("takes as many hits as the option says, and none where there are no key-values", async () => {
      await using app = await listen(await serve(new Limina(server.url, { timeout: "30s", breaker: false }), { hits: () => 3 }));
      assert.equal((await fetch(app.url, { headers: { client: `${name} with hits` } })).status, 429);
      const free = await fetch(app.url);
      assert.equal(free.status, 200);
      assert.equal(free.headers.get("RateLimit"), null);
    });

    test("without headers a refusal still says when to retry", async () => {
      const options = { hits: 3, headers: false };
      await using app = await listen(await serve(new Limina(server.url, { timeout: "30s", breaker: false }), options));
      const refused = await fetch(app.url, { headers: { client: `${name} without headers` } });
      assert.deepEqual([refused.status, refused.headers.get("RateLimit"), refused.headers.get("RateLimit-Policy")], [429, null, null]);
      assert.deepEqual(((await refused.json()) as Record<string, unknown>)["violated-policies"], ["per %22client%22"]);
    });

    test("follows onUnavailable while the limiter is away", async (context) => {
      context.mock.method(console, "warn", () => {});
      const away = new Limina("http://127.0.0.1:1");
      await using allowing = await listen(await serve(away, {}));
      assert.equal((await fetch(allowing.url, { headers: { client: "x" } })).status, 200);
      await using refusing = await listen(await serve(away, { onUnavailable: "refuse" }));
      const refused = await fetch(refusing.url, { headers: { client: "x" } });
      assert.equal(refused.status, 503);
      assert.equal(refused.headers.get("Retry-After"), "1");
      assert.equal(((await refused.json()) as Record<string, unknown>)["code"], "LimiterUnavailable");
    });

    test("does not hide a mistake, and does not blame the user for it", async (context) => {
      context.mock.method(console, "error", () => {});
      const mistaken = new Limina(server.url, { namespace: "\n", timeout: "30s", breaker: false });
      await using app = await listen(await serve(mistaken, {}));
      assert.equal((await fetch(app.url, { headers: { client: "x" } })).status, 500);
    });
  });
}

test("express and fastify: a request that somebody else has answered meanwhile is left alone", async () => {
  const limina = new Limina(server.url, { timeout: "30s", breaker: false });
  const touched: string[] = [];
  const touch = (what: string) => () => touched.push(what);
  await new Promise<void>((resolve) => {
    const response = {
      get headersSent() {
        setImmediate(resolve);
        return true;
      },
      set: touch("set"),
      status: touch("status"),
    };
    const middleware = forExpress.limit(limina, { keyValues: () => ({ client: "express, late" }) });
    middleware({} as express.Request, response as unknown as express.Response, touch("next"));
  });
  const reply = { sent: true, headers: touch("headers"), code: touch("code") };
  const hook = forFastify.limit(limina, { keyValues: () => ({ client: "fastify, late" }) });
  assert.equal(await hook({} as FastifyRequest, reply as unknown as FastifyReply), reply);
  assert.deepEqual(touched, []);
});

test("hono: a handler's own Response has the headers, and an inner limiter's stay", async () => {
  const limina = new Limina(server.url, { timeout: "30s", breaker: false });
  const app = new Hono();
  app.use(forHono.limit(limina, { keyValues: () => ({ client: "hono, outer" }) }));
  app.use("/inner", forHono.limit(limina, { keyValues: () => ({ client: "hono, inner" }), hits: 2 }));
  app.get("/", () => new Response("hello"));
  app.get("/inner", () => new Response("hello"));
  assert.match((await app.request("/")).headers.get("RateLimit")!, /;r=1;/);
  assert.match((await app.request("/inner")).headers.get("RateLimit")!, /;r=0;/);
});

async function listen(app: HttpServer): Promise<AsyncDisposable & { url: string }> {
  app.listen(0, "127.0.0.1");
  await once(app, "listening");
  return {
    url: `http://127.0.0.1:${(app.address() as AddressInfo).port}/`,
    [Symbol.asyncDispose]: async () => {
      app.closeAllConnections();
      app.close();
    },
  };
}
