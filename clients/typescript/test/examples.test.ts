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

test("job: two run at a time, a third is refused, and one whose slot is lost stops", async (context) => {
  const limina = new Limina(server.url);
  const jobs = [start(context, "job.mjs", { PAGE_MS: "600000" }), start(context, "job.mjs", { PAGE_MS: "600000" })];
  const outputs = jobs.map(outputOf);
  const [first] = await Promise.all(jobs.map((job) => firstMatch(job, /fencing token (\d+)/)));
  assert.match(await outputOf(start(context, "job.mjs")), /refused/);

  for await (const lease of limina.leases.list()) {
    if (lease.fencing_token === Number(first)) await limina.leases.forceRelease(lease.lease_id);
  }
  assert.match(await outputOf(start(context, "job.mjs", { PAGE_MS: "1" })), /page 3 is done/);
  assert.match(await outputs[0]!, /stopped: the slot is lost/);
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

async function outputOf(child: ChildProcess): Promise<string> {
  let output = "";
  child.stdout!.on("data", (data: Buffer) => (output += data.toString()));
  await once(child, "close");
  return output;
}
