/** Plays the conformance scripts that all clients share. With LIMINA_TEST=smoke, only those that are marked so. */
import { readdirSync, readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { CONFORMANCE, Proxy } from "./support/proxy.js";
import { play, type Script } from "./support/script.js";
import { startServer, type Server } from "./support/server.js";

/** Most scripts mostly wait, so several are played at a time, each through a proxy of its own. */
const LANES = 4;

let server: Server;
let features: Set<string>;
const idle: Proxy[] = [];

before(async () => {
  server = await startServer();
  idle.push(...(await Promise.all(Array.from({ length: LANES }, () => Proxy.start(server.url)))));
  const problem = (await (await fetch(`${server.url}/v1/decisions`)).json()) as { code?: string };
  features = new Set(problem.code === "NotFound" ? [] : ["decisions"]);
});

after(async () => {
  for (const proxy of idle) proxy.stop();
  await server.stop();
});

describe("conformance", { concurrency: LANES }, () => {
  for (const file of readdirSync(`${CONFORMANCE}scripts`)) {
    for (const script of JSON.parse(readFileSync(`${CONFORMANCE}scripts/${file}`, "utf8")) as Script[]) {
      if (process.env["LIMINA_TEST"] === "smoke" && !script.tags?.includes("smoke")) continue;
      test(`${file}: ${script.name}`, async (context) => {
        const missing = script.needs?.find((feature) => !features.has(feature));
        if (missing) return context.skip(`the server does not have ${missing}`);
        const proxy = idle.pop()!;
        try {
          await play(script, server.url, proxy);
        } finally {
          idle.push(proxy);
        }
      });
    }
  }
});
