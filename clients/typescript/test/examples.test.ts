/** Starts every example, as a user would. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { on, once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { Limina } from "limina";
import { firstMatch, startServer, type Server } from "./support/server.js";

let server: Server;
before(async () => void (server = await startServer()));
after(() => server.stop());

test("express: the sixth request in a minute is refused", async (context) => {
  const example = start(context, "express.mjs", { PORT: "0", TIMEOUT: "30s" });
  const url = await firstMatch(example, /listening on (\S+)/);
  const answers = [];
  for (let request = 0; request < 6; request++) answers.push(await fetch(url));
  assert.deepEqual(answers.map(({ status }) => status), [200, 200, 200, 200, 200, 429]);
  assert.match(answers[4]!.headers.get("RateLimit")!, /^"api";r=0;t=\d+$/);
  assert.ok(Number(answers[5]!.headers.get("Retry-After")) > 0);
});

test("job: two run at a time, and a third is refused", async (context) => {
  const limina = new Limina(server.url);
  const busy = await Promise.all([start(context, "job.mjs", { PAGE_MS: "600000" }), start(context, "job.mjs", { PAGE_MS: "600000" })].map(running));
  assert.ok(busy[0] !== busy[1]);
  assert.match(await outputOf(start(context, "job.mjs")), /refused/);

  const held = [];
  for await (const lease of limina.leases.list()) held.push(lease);
  assert.equal(held.length, 2);
  await limina.leases.forceRelease(held[0]!.lease_id);
  assert.match(await outputOf(start(context, "job.mjs", { PAGE_MS: "1" })), /page 3 is done/);
});

test("follow: prints what is submitted and published", async (context) => {
  const limina = new Limina(server.url);
  const example = start(context, "follow.mjs", { DURATION: "10ms" });
  const lines = on(createInterface(example.stdout!), "line");
  const next = async () => ((await lines.next()).value as [string])[0];
  assert.match(await next(), /0 events are incubating/);
  await limina.events.submit("orders", "order 4711");
  assert.match(await next(), /order 4711 is submitted/);
  assert.match(await next(), /order 4711 is published/);
});

function start(context: { after(run: () => void): void }, name: string, env: Record<string, string> = {}): ChildProcess {
  const path = fileURLToPath(new URL(`../../examples/${name}`, import.meta.url));
  const child = spawn(process.execPath, [path], { env: { ...process.env, LIMINA_URL: server.url, ...env } });
  child.stderr.pipe(process.stderr);
  context.after(() => void child.kill());
  return child;
}

function running(child: ChildProcess): Promise<string> {
  return firstMatch(child, /fencing token (\d+)/);
}

async function outputOf(child: ChildProcess): Promise<string> {
  let output = "";
  child.stdout!.on("data", (data: Buffer) => (output += data.toString()));
  await once(child, "close");
  assert.equal(child.exitCode, 0);
  return output;
}
