/** What the conformance scripts cannot show: JavaScript's own traps, and answers that a server never gives. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { Invalid, Limina, Lost, Refused, Unavailable, type KeyValues } from "limina";
import { milliseconds } from "#internal/duration.js";
import { serverSentEvents } from "#internal/sse.js";
import { Transport } from "#internal/transport.js";
import { fakeFetch, never, type Sent } from "./support/fake.js";

const ALLOWED = { status: 200, body: { allowed: true, limits: [], retry_after_ms: null } };
const DECISION = { operation_id: "o", fencing_token: 7, expires_in_ms: 60_000 };

test("durations", () => {
  const check = (text: string | number, ms: number) => assert.equal(milliseconds(text), ms);
  check("250ms", 250);
  check("1m30s", 90_000);
  check("2d", 172_800_000);
  check("1m5ms", 60_005);
  check(0, 0);
  check(1500, 1500);
  for (const wrong of ["", "10", "s", "1s1m", "-1s", "1.5s", 1.5, -1, NaN]) assert.throws(() => milliseconds(wrong), RangeError);
});

test("server-sent events are read across any cut of the bytes", async () => {
  const text = ': comment\n\nid: 1\ndata: {"a":"🌮\u2028"}\n\nretry: 1000\n\ndata:two\r\ndata: lines\r\n\r\ndata: cut off';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 2, 3, bytes.length]) {
    const read = [];
    for await (const data of serverSentEvents(pieces(bytes, size))) read.push(data);
    assert.deepEqual(read, ['{"a":"🌮\u2028"}', "two\nlines"]);
  }
});

test("names that would lead to another path are refused before anything is sent", async () => {
  const { fetch, sent } = fakeFetch(() => ({ status: 204 }));
  const client = new Limina("http://limina", { fetch });
  await assert.rejects(client.rules.delete(".."), Invalid);
  await assert.rejects(client.events.get(""), Invalid);
  await assert.rejects(client.with({ namespace: "." }).check({}), Invalid);
  await assert.rejects(client.events.follow("..").next(), Invalid);
  assert.equal(sent.length, 0);
  await client.rules.delete("a/../ö");
  assert.equal(sent[0]!.path, "/v1/ns/default/limiter/rules/a%2F..%2F%C3%B6");
});

test("a token that no header can have is refused, and not shown", async () => {
  const { fetch, sent } = fakeFetch(() => ALLOWED);
  for (const token of ["limina_SECRET\nx", "limina_SECRET\0", "limina_SECRET\x7f", "limina_SECRETü", "limina_SECRET€"]) {
    assert.throws(
      () => new Limina("http://limina", { token, fetch }),
      (error) => error instanceof Invalid && !inspect(error).includes("_SECRET"),
    );
  }
  await new Limina("http://limina", { token: " \n", fetch }).check({});
  assert.equal(sent[0]!.token, null);
});

test("what `fetch` would report as a failure of the network is refused as a mistake, and not shown", async () => {
  for (const url of ["http://user:SECRET@limina", "limina:7070"]) {
    assert.throws(
      () => new Limina(url),
      (error) => error instanceof Invalid && !error.message.includes("SECRET"),
    );
  }
  const check = new Limina("http://127.0.0.1:1").check({}, { idempotencyKey: "SECRET\nx" });
  await assert.rejects(check, (error) => error instanceof Invalid && !error.message.includes("SECRET"));
});

/** In Node.js a redirection that is not followed has its status. The scripts test that. Browsers hide the status. */
test("a redirection of which a browser does not tell the status is Invalid", async () => {
  let redirect: string | undefined;
  const fetch = async (_input: unknown, init?: RequestInit) => {
    redirect = init?.redirect;
    return { type: "opaqueredirect", status: 0, ok: false, headers: new Headers(), text: async () => "" } as Response;
  };
  const client = new Limina("http://limina", { fetch });
  for (const call of [() => client.check({}), () => client.rules.get("r"), () => client.events.follow("s").next()]) {
    redirect = undefined;
    await assert.rejects(call, (error) => error instanceof Invalid && error.status === undefined);
    assert.equal(redirect, "manual");
  }
});

test("an amount that JavaScript would round is an error", async () => {
  const { fetch } = fakeFetch(() => ({ status: 200, body: '{"position": 1, "values": [{"commit_value": 9007199254740993}]}' }));
  await assert.rejects(new Limina("http://limina", { fetch }).ledger.values(["a"]), /commit_value.*too large/);
});

test("a stream on which nothing arrives any more is closed", async () => {
  const transport = new Transport("http://limina", undefined, async (_input, init) => {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode("data: 1\n\n"));
        init!.signal!.addEventListener("abort", () => controller.error(init!.signal!.reason));
      },
    });
    return new Response(body);
  });
  const events = serverSentEvents(await transport.open({ method: "GET", path: "/" }, 60_000, 20));
  assert.equal((await events.next()).value, "1");
  await assert.rejects(events.next(), (error) => error instanceof Unavailable && /within 20 ms/.test(error.message));
});

describe("batches", () => {
  test("a call is written when it is made, and fails alone if it cannot be written or read", async () => {
    const results = ({ checks }: any) =>
      checks.map(({ key_values: { user } }: any) => `{"status": 200, "allowed": true, "limits": [{"group": {"user": ${BigInt(user)}}}]}`);
    const { fetch, sent } = fakeFetch(({ body }: Sent) =>
      "checks" in body ? { status: 200, body: `{"results": [${results(body)}]}` } : ALLOWED,
    );
    const client = new Limina("http://limina", { fetch });
    const reused = { user: 0 as number | bigint };
    const users = [1, 2, 10n, 2 ** 60, 3];
    const calls = users.map((user) => client.check(Object.assign(reused, { user }) as KeyValues));
    const outcomes = await Promise.allSettled(calls);
    assert.deepEqual(outcomes.map(({ status }) => status), ["fulfilled", "fulfilled", "rejected", "rejected", "fulfilled"]);
    assert.match(String((outcomes[3] as PromiseRejectedResult).reason), /user.*too large/);
    assert.deepEqual(sent.flatMap(({ body }) => body.checks ?? [body]).map(({ key_values }: any) => key_values.user), [1, 2, 2 ** 60, 3]);
  });

  test("a call that is never sent fails in time, and nothing was done", async () => {
    const { fetch, sent } = fakeFetch(({ body }: Sent) => (body.key_values.n === 0 ? ALLOWED : never));
    const client = new Limina("http://limina", { fetch, timeout: 50 });
    // The first call of a process takes milliseconds. If so much time passed between the next two, the second would be sent.
    await client.check({ n: 0 });
    const [first, second] = await Promise.allSettled([client.check({ n: 1 }), client.check({ n: 2 })]);
    assert.equal(doneOf(first), "unknown");
    assert.equal(doneOf(second), "no");
    assert.deepEqual(sent.map(({ body }) => body.key_values.n), [0, 1]);
  });

  test("while a request pauses before its retry, others do not wait for it", async () => {
    let failed = false;
    const { fetch, sent } = fakeFetch(({ body }: Sent) => {
      if (failed || body.key_values.n !== 1) return ALLOWED;
      failed = true;
      return { status: 503, headers: { "Retry-After": "1" }, body: { code: "Overloaded", detail: "" } };
    });
    const client = new Limina("http://limina", { fetch });
    const slow = client.check({ n: 1 });
    await client.check({ n: 2 });
    await slow;
    assert.deepEqual(sent.map(({ body }) => body.key_values.n), [1, 2, 1]);
  });

  test("an answer that does not fit its batch is an unknown outcome for each call", async () => {
    const { fetch } = fakeFetch(({ path }) => (path.endsWith("/batch") ? { status: 200, body: { results: [] } } : ALLOWED));
    const client = new Limina("http://limina", { fetch });
    const results = await Promise.allSettled([1, 2, 3].map((n) => client.check({ n })));
    assert.deepEqual(results.map(doneOf), [undefined, "unknown", "unknown"]);
  });
});

describe("signals", () => {
  test("abort a request that waits for a lock", async () => {
    const { fetch } = fakeFetch(() => never);
    const abort = new AbortController();
    const waiting = new Limina("http://limina", { fetch }).lock({ job: "x" }, { ttl: "10s", wait: "5m", signal: abort.signal });
    abort.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
  });

  test("abort a wait between two checks", async () => {
    const { fetch, sent } = fakeFetch(() => ({
      status: 429,
      body: { code: "LimitReached", allowed: false, limits: [], retry_after_ms: 60_000 },
    }));
    const abort = new AbortController();
    const waiting = new Limina("http://limina", { fetch }).wait({ n: 1 }, { atMost: "1h", signal: abort.signal });
    setTimeout(() => abort.abort(new Error("enough")), 10);
    await assert.rejects(waiting, /enough/);
    assert.equal(sent.length, 1);
  });
});

describe("guards", () => {
  test("a guard whose timers could not run is lost all the same", async (context) => {
    const { fetch } = fakeFetch(() => ({ status: 200, body: { lock_id: "l", session_id: "s", fencing_token: 1, expires_in_ms: 60_000 } }));
    const guard = await new Limina("http://limina", { fetch }).lock({ job: "x" }, { ttl: 60_000 });
    assert.equal(guard.lost, false);
    const later = performance.now() + 60_000;
    context.mock.method(performance, "now", () => later);
    assert.equal(guard.lost, true);
  });

  test("a grant that was waited for longer than its ttl is confirmed, and then has all its time", async (context) => {
    let waited = 0;
    const real = performance.now.bind(performance);
    context.mock.method(performance, "now", () => real() + waited);
    const { fetch, sent } = fakeFetch(({ path }) => {
      if (path.endsWith("/locks")) waited = 30_000;
      return { status: 200, body: { lock_id: "l", session_id: "s", fencing_token: 1, expires_in_ms: 10_000 } };
    });
    const guard = await new Limina("http://limina", { fetch }).lock({ job: "x" }, { ttl: "10s", wait: "1m" });
    assert.equal(guard.lost, false);
    assert.deepEqual(sent.map(({ path }) => path), ["/v1/ns/default/locks", "/v1/ns/default/locks/l/heartbeat"]);
  });

  test("the signal of a lost guard says why", async () => {
    const gone = { status: 404, body: { code: "LockNotFound", detail: "It has expired." } };
    const { fetch } = fakeFetch(({ path }) =>
      path.endsWith("/heartbeat") ? gone : { status: 200, body: { lock_id: "l", session_id: "s", fencing_token: 1, expires_in_ms: 30_000 } },
    );
    const guard = await new Limina("http://limina", { fetch }).lock({ job: "x" }, { ttl: 150 });
    const alive = setInterval(() => {}, 1000); // A guard does not keep the process alive.
    await new Promise((resolve) => guard.signal.addEventListener("abort", resolve));
    clearInterval(alive);
    assert.ok(guard.signal.reason instanceof Lost);
    assert.match(guard.signal.reason.message, /LockNotFound/);
    assert.deepEqual([guard.lost, guard.remainingMs], [true, 0]);
  });
});

describe("decisions", () => {
  const request = {
    operation_id: "o",
    checks: [{ name: "tokens", key_values: { tenant: "a" }, hits: 4000, estimate: true }],
    holds: [{ limit_name: "budget", value: 500 }],
  };

  test("a commit settles checks and holds by their names, and ends the guard", async () => {
    const { fetch, sent } = fakeFetch(() => ({ status: 200, body: DECISION }));
    const guard = await new Limina("http://limina", { fetch }).decide(request);
    assert.equal(guard.fencingToken, 7);
    await assert.rejects(guard.commit({ token: 1 }), /"token" must be the name/);
    await guard.commit({ tokens: 812, budget: 100 }, { record: true });
    await guard.leave();
    assert.deepEqual(sent.map(({ path }) => path), ["/v1/ns/default/decisions", "/v1/ns/default/decisions/o/commit"]);
    assert.deepEqual(sent[1]!.body, {
      checks: [{ name: "tokens", hits: 812 }],
      holds: [{ limit_name: "budget", value: 100 }],
      record: true,
    });
    assert.ok(sent.every(({ key }) => key !== null));
  });

  test("an id that the caller does not give is made, and cannot be guessed", async () => {
    const { fetch, sent } = fakeFetch(({ body }) => ({ status: 200, body: { ...DECISION, ...body } }));
    const client = new Limina("http://limina", { fetch });
    for (let n = 0; n < 2; n++) await (await client.decide({ locks: [{ key_values: { a: 1 } }] })).rollback();
    const [first, second] = sent.filter(({ path }) => path.endsWith("/decisions")).map(({ body }) => body.operation_id);
    assert.match(first, /^[0-9a-f]{32}$/);
    assert.notEqual(first, second);
  });

  test("a decision that was perhaps made under an id that nobody knows is rolled back", async () => {
    const { fetch, sent } = fakeFetch(({ path }) => (path.endsWith("/decisions") ? { status: 500 } : { status: 200, body: DECISION }));
    const client = new Limina("http://limina", { fetch, retries: 0 });
    const locks = [{ key_values: { a: 1 } }];
    await assert.rejects(client.decide({ locks, operation_id: "known" }), Unavailable);
    await assert.rejects(client.decide({ locks }), Unavailable);
    const id = sent[1]!.body.operation_id;
    assert.deepEqual(sent.slice(2).map(({ path }) => path), [`/v1/ns/default/decisions/${id}/rollback`]);
  });

  test("a heartbeat that finds the decision ended by the commit under way does not make it lost", async () => {
    let commit: (answer: { status: number; body: object }) => void = () => {};
    let beats = 0;
    const { fetch } = fakeFetch(({ path }) => {
      if (path.endsWith("/commit")) return new Promise((resolve) => (commit = resolve));
      if (!path.endsWith("/heartbeat")) return { status: 200, body: DECISION };
      // The second beat shows that the first one, which found nothing, was taken note of.
      if (++beats === 2) commit({ status: 200, body: DECISION });
      return { status: 404, body: { code: "OperationNotFound", detail: "" } };
    });
    const guard = await new Limina("http://limina", { fetch, timeout: "60s" }).decide({ ...request, ttl: 150 });
    await guard.commit();
    assert.equal(guard.lost, false);
  });

  const endings: [string, { status: number; body: object }, string[]][] = [
    ["a commit that may have been executed is not rolled back", { status: 500, body: {} }, ["commit"]],
    ["a commit that was refused is rolled back", { status: 409, body: { code: "CommitExceedsHold", detail: "" } }, ["commit", "rollback"]],
  ];
  for (const [name, answer, expected] of endings) {
    test(name, async () => {
      const { fetch, sent } = fakeFetch(({ path }) => (path.endsWith("/commit") ? answer : { status: 200, body: DECISION }));
      const guard = await new Limina("http://limina", { fetch, retries: 0 }).decide(request);
      await assert.rejects(guard.commit());
      await guard.leave();
      assert.deepEqual(sent.slice(1).map(({ path }) => path.split("/").at(-1)), expected);
    });
  }

  test("a refusal names what refuses", async () => {
    const body = { code: "Refused", detail: "no", refused_by: ["locks"], locks: [{ code: "LockHeld" }] };
    const { fetch } = fakeFetch(() => ({ status: 409, body }));
    const refused = await new Limina("http://limina", { fetch }).decide(request).catch((error: unknown) => error);
    assert.ok(refused instanceof Refused);
    assert.deepEqual(refused.problem?.["refused_by"], ["locks"]);
  });
});

function doneOf(result: PromiseSettledResult<unknown>): string | undefined {
  if (result.status === "fulfilled") return undefined;
  assert.ok(result.reason instanceof Unavailable, String(result.reason));
  return result.reason.done;
}

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}
