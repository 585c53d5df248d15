/**
 * Measures what batching brings: 64 concurrent single checks, and one check at a time, each with batching and with one request for
 * each check.
 *
 *     LIMINA_BIN=… node bench.mjs [SECONDS]
 *
 * Batching has no switch. The rival is the same client's request for one check, sent past the queue.
 */
import { Limina } from "limina";
import { Batches } from "#internal/batch.js";
import { Scope } from "#internal/scope.js";
import { Transport } from "#internal/transport.js";
import { startServer } from "./build/test/support/server.js";

const CALLERS = 64;
const seconds = Number(process.argv[2] ?? 5);

const server = await startServer();
try {
  const client = new Limina(server.url, { timeout: "10s" });
  await client.rules.create({ name: "bench", group_by: ["caller"], limit: 1_000_000_000, window: { type: "fixed", per: "1h" } });
  const scope = new Scope(new Transport(server.url), new Batches(), { namespace: "default", timeoutMs: 10_000, retries: 2 });
  const batched = (key_values) => client.check(key_values);
  const single = (key_values) => scope.call("POST", "/limiter/check", { body: { key_values }, keyless: true });
  await latencies([batched, single], 0.3);

  const [together, apart] = [await rate(batched), await rate(single)];
  console.log(`${CALLERS} callers, batching          ${number(together)} checks/s`);
  console.log(`${CALLERS} callers, one request each  ${number(apart)} checks/s`);
  console.log(`batching is ${(together / apart).toFixed(1)} × as fast\n`);

  const [withBatching, without] = await latencies([batched, single], seconds);
  console.log(`1 caller, batching            ${number(withBatching * 1000)} µs (median)`);
  console.log(`1 caller, one request each    ${number(without * 1000)} µs (median)`);
  console.log(`batching takes ${(withBatching / without).toFixed(2)} × as long`);
} finally {
  await server.stop();
}

/** Checks per second of callers that each wait for their answer before they ask again. */
async function rate(check) {
  const started = performance.now();
  const until = started + seconds * 1000;
  let checks = 0;
  const callers = Array.from({ length: CALLERS }, async (_, caller) => {
    for (; performance.now() < until; checks++) mustBeAllowed(await check({ caller }));
  });
  await Promise.all(callers);
  return (checks * 1000) / (performance.now() - started);
}

/** The median latency of each way to check, in milliseconds. They take turns, so that a busy machine slows them alike. */
async function latencies(ways, seconds) {
  const measured = ways.map(() => []);
  for (const until = performance.now() + seconds * 1000; performance.now() < until; ) {
    for (const [place, check] of ways.entries()) {
      const started = performance.now();
      mustBeAllowed(await check({ caller: 0 }));
      measured[place].push(performance.now() - started);
    }
  }
  return measured.map((values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]);
}

function mustBeAllowed({ allowed }) {
  if (!allowed) throw new Error("the benchmark's limit is reached");
}

function number(value) {
  return Math.round(value).toLocaleString("en").padStart(9);
}
