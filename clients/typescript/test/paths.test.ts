/** Every request of the client is one that the OpenAPI document describes, and every operation of the document has a method here. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Limina } from "limina";
import { fakeFetch } from "./support/fake.js";

const document = JSON.parse(readFileSync(new URL("../../../../docs/openapi.json", import.meta.url), "utf8")) as {
  paths: Record<string, Record<string, unknown>>;
};

/**
 * Reached in another way: batches form automatically, `PUT /counters` is the same as POST, and guards send heartbeats. The audit and the
 * Thrift door are for other programs.
 */
const NOT_CALLED = new Set([
  ...["POST /limiter/check/batch", "POST /ledger/hold/batch", "POST /ledger/commit/batch", "POST /ledger/rollback/batch"],
  ...["POST /decisions/batch", "POST /decisions/commit/batch", "POST /decisions/rollback/batch", "PUT /limiter/counters"],
  ...["POST /locks/{lock_id}/heartbeat", "POST /limiter/leases/{lease_id}/heartbeat", "GET /audit", "POST /liminator/v1"],
]);

const NAME = "{name}";

test("the client and the OpenAPI document agree on paths", async () => {
  const fake = fakeFetch(() => ({ status: 200, body: { items: [], next: null, rules: [], fencing_token: 1, expires_in_ms: 60_000 } }));
  const client = new Limina("http://limina", { namespace: "{namespace}", fetch: fake.fetch });
  await callEverything(client);

  const described = new Set(
    Object.entries(document.paths)
      .filter(([path]) => path.startsWith("/v1/ns/{namespace}"))
      .flatMap(([path, methods]) => Object.keys(methods).map((method) => general(method, path))),
  );
  const called = new Set(fake.sent.map(({ method, path }) => general(method, decodeURIComponent(path.split("?")[0]!))));

  // Families that the document does not describe yet.
  const families = ["/decisions", "/limiter/rule-sets"].filter((family) => ![...described].some((one) => one.includes(family)));
  const unknown = [...called].filter((one) => !described.has(one) && !families.some((family) => one.includes(family)));
  assert.deepEqual(unknown, []);
  const exceptions = new Set([...NOT_CALLED].map((one) => general(...(one.split(" ") as [string, string]))));
  assert.deepEqual([...described].filter((one) => !called.has(one) && !exceptions.has(one)), []);
});

/** A method and a path below the namespace, with all names alike. */
function general(method: string, path: string): string {
  return `${method.toUpperCase()} ${path.replace("/v1/ns/{namespace}", "").replace(/\{\w+\}|undefined/g, NAME)}`;
}

async function callEverything(client: Limina): Promise<void> {
  const { rules, ruleSets, counters, leases, locks, ledger, decisions, events } = client;
  const overrides = rules.overrides(NAME);
  const lists = [
    ...[rules.list(), rules.query({}), overrides.list(), overrides.query({}), ruleSets.list(), counters.query({}), leases.list()],
    ...[locks.list(), locks.query({}), ledger.limits.list(), ledger.limits.entries(NAME), ledger.operations(), decisions.list()],
    ...[events.list()],
  ];
  for (const list of lists) await list.next();

  await client.check({});
  await (await client.lease({}, { ttl: "60s" })).release();
  await (await client.lock({ a: 1 }, { ttl: "60s" })).release();
  await (await client.decide({ operation_id: NAME })).rollback();
  await client.deleteNamespace();
  await rules.create({ name: NAME, limit: 1 });
  await rules.get(NAME);
  await rules.put(NAME, { limit: 1 });
  await rules.patch(NAME, { limit: 1 });
  await rules.delete(NAME);
  await rules.match({});
  await rules.groups(NAME);
  await overrides.create({ name: NAME, key_values: {}, limit: 1 });
  await overrides.get(NAME);
  await overrides.put(NAME, { key_values: {}, limit: 1 });
  await overrides.patch(NAME, { limit: 1 });
  await overrides.delete(NAME);
  await ruleSets.get(NAME);
  await ruleSets.put(NAME, { rules: [] });
  await ruleSets.delete(NAME);
  await counters.add({}, 1);
  await counters.set({}, 1);
  await leases.get(NAME);
  await leases.forceRelease(NAME);
  await locks.get(NAME);
  await locks.forceRelease(NAME);
  await ledger.hold({ operation_id: NAME, changes: [] });
  await ledger.commit({ operation_id: NAME });
  await ledger.rollback({ operation_id: NAME });
  await ledger.values([NAME]);
  await ledger.extend(NAME, null);
  await ledger.operation(NAME);
  await ledger.limits.create({ name: NAME });
  await ledger.limits.get(NAME);
  await ledger.limits.patch(NAME, {});
  await ledger.limits.delete(NAME);
  await decisions.get(NAME);
  await decisions.commit(NAME);
  await decisions.heartbeat(NAME);
  await events.put(NAME, { mode: "only_once", duration: "1s" });
  await events.get(NAME);
  await events.delete(NAME);
  await events.submit(NAME, "e");
  await events.incubating(NAME);
  // The fake answer is no stream: it ends at once, and following would go on for ever.
  for (const endless of [(signal: AbortSignal) => events.follow(NAME, { signal }), (signal: AbortSignal) => client.refusals({ signal })]) {
    const abort = new AbortController();
    const first = endless(abort.signal).next();
    setImmediate(() => abort.abort(new Error("enough")));
    await assert.rejects(first, /enough/);
  }
}
