/** The circuit breaker, and the count of requests without a decision, by a clock that the tests move. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Invalid, Limina, Unavailable } from "limina";
import { Circuit, type BreakerOptions } from "#internal/breaker.js";
import { Undecided } from "#internal/undecided.js";
import { limiter } from "#internal/middleware/limit.js";
import { fakeFetch } from "./support/fake.js";

const OPEN = { name: "Unavailable", message: /circuit breaker/ };

class Fixture {
  now = 100_000;
  readonly circuit: Circuit;

  constructor(options?: BreakerOptions | false) {
    this.circuit = new Circuit(options, () => this.now);
  }

  async fail(): Promise<void> {
    await assert.rejects(this.#send(() => Promise.reject(new Unavailable("unknown", "no answer"))), { message: "no answer" });
  }

  async succeed(): Promise<void> {
    assert.equal(await this.#send(async () => true), true);
  }

  async refuses(retryAfterMs: number): Promise<void> {
    await assert.rejects(this.#send(() => assert.fail("the request was sent")), { ...OPEN, done: "no", retryAfterMs });
  }

  /** Sends a request that is answered when the returned function is called. */
  begin(): (answer: boolean) => Promise<unknown> {
    let end!: (answer: boolean) => void;
    const sent = this.#send(() => new Promise<boolean>((resolve) => (end = resolve)));
    return (answer) => (end(answer), sent);
  }

  #send(send: () => Promise<boolean>): Promise<boolean> {
    return this.circuit.request(send, (answer) => answer);
  }
}

describe("the circuit breaker", () => {
  test("opens after 5 failures in a row", async () => {
    const at = new Fixture();
    for (let time = 0; time < 4; time++) await at.fail();
    await at.succeed();
    for (let time = 0; time < 4; time++) await at.fail();
    assert.equal(at.circuit.isOpen, false);
    await at.begin()(false); // An answer that is no decision, such as 503.
    await at.refuses(1000);
  });

  test("lets one request decide after the pause", async () => {
    const at = new Fixture({ failures: 1 });
    await at.fail();
    at.now += 900;
    await at.refuses(100);
    at.now += 100;
    const probe = at.begin();
    await at.refuses(0);
    await probe(true);
    assert.equal(at.circuit.isOpen, false);
    await at.fail();
    at.now += 1000;
    await at.fail();
    await at.refuses(1000);
  });

  test("lets another request try after a probe that was aborted", async () => {
    const at = new Fixture({ failures: 1 });
    await at.fail();
    at.now += 1000;
    const aborted = at.circuit.request(() => Promise.reject(new DOMException("aborted", "AbortError")), () => true);
    await assert.rejects(aborted, { name: "AbortError" });
    assert.equal(at.circuit.isOpen, true);
    await at.succeed();
    assert.equal(at.circuit.isOpen, false);
  });

  test("opens when nothing was answered for a second, and when a request fails after a second", async () => {
    const at = new Fixture();
    const hanging = at.begin();
    at.now += 999;
    at.circuit.refuseIfOpen();
    at.now += 1;
    await at.refuses(1000);
    await hanging(true);
    assert.equal(at.circuit.isOpen, false);
    const failing = at.begin();
    at.now += 1000;
    await failing(false);
    assert.equal(at.circuit.isOpen, true);
  });

  test("takes no slow request beside answered ones for a hang", async () => {
    const at = new Fixture();
    const slow = at.begin();
    for (let time = 0; time < 10; time++) {
      at.now += 900;
      await at.succeed();
    }
    at.now += 60_000;
    await at.succeed();
    await slow(true);
    assert.equal(at.circuit.isOpen, false);
  });

  test("stops the checks of a client and their retries, but not its locks", async () => {
    const { fetch, sent } = fakeFetch(() => ({ status: 503 }));
    const client = new Limina("http://limina", { fetch, retries: 9, breaker: { failures: 1 } });
    await assert.rejects(client.check({ a: 1 }), { name: "Unavailable", status: 503 });
    assert.equal(sent.length, 1);
    await assert.rejects(client.check({ a: 1 }), OPEN);
    await assert.rejects(client.with({ namespace: "b" }).check({ a: 1 }, { alone: true }), OPEN);
    assert.equal(sent.length, 1);
    await assert.rejects(client.with({ retries: 0 }).lock({ a: 1 }, { ttl: "10s" }), { name: "Unavailable", status: 503 });
    assert.equal(sent.length, 2);
  });

  test("stays closed if the server calls the checks invalid, or if it is switched off", async () => {
    const invalid = fakeFetch(() => ({ status: 400, body: { code: "InvalidField" } }));
    const client = new Limina("http://limina", { fetch: invalid.fetch, breaker: { failures: 1 } });
    for (let time = 0; time < 7; time++) await assert.rejects(client.check({ a: 1 }), Invalid);
    const away = fakeFetch(() => ({ status: 503 }));
    const without = new Limina("http://limina", { fetch: away.fetch, retries: 0, breaker: false });
    for (let time = 0; time < 7; time++) await assert.rejects(without.check({ a: 1 }), { status: 503 });
    assert.equal(away.sent.length, 7);
  });
});

test("requests without a decision are counted, and logged once a minute", (context) => {
  const lines: string[] = [];
  context.mock.method(console, "warn", (line: string) => lines.push(line));
  let now = 0;
  const undecided = new Undecided(() => now);
  const error = new Unavailable("no", "away");
  for (let time = 0; time < 3; time++) undecided.count(error, true);
  now += 59_999;
  undecided.count(error, false);
  assert.equal(lines.length, 1);
  now += 1;
  undecided.count(error, true);
  assert.deepEqual([undecided.passed, undecided.refused], [4, 1]);
  assert.deepEqual(lines, [
    "limina: no decision from the limiter: 1 requests passed since the last such line; away",
    "limina: no decision from the limiter: 4 requests passed since the last such line; away",
  ]);
});

test("the middleware reports each request without a decision, and asks no longer when the breaker is open", async (context) => {
  context.mock.method(console, "warn", () => {});
  const mistakes = context.mock.method(console, "error", () => {});
  const { fetch, sent } = fakeFetch(() => ({ status: 503 }));
  const client = new Limina("http://limina", { fetch });
  const reported: string[] = [];
  const judge = limiter<string>(client, {
    keyValues: (request) => ({ request }),
    onUndecided(error, request) {
      reported.push(`${request}: ${error.done}`);
      throw new Error("a mistake in the callback fails no request");
    },
  });
  for (let time = 0; time < 7; time++) assert.deepEqual(await judge(`r${time}`), { headers: {} });
  assert.equal(sent.length, 5);
  assert.deepEqual(reported, ["r0", "r1", "r2", "r3", "r4", "r5", "r6"].map((request) => `${request}: no`));
  assert.equal(mistakes.mock.callCount(), 7);
  const refusal = await limiter<string>(client, { keyValues: () => ({}), onUnavailable: "refuse" })("r");
  assert.deepEqual([refusal.refusal!.status, refusal.headers["Retry-After"]], [503, "1"]);
  assert.deepEqual([client.undecided.passed, client.undecided.refused], [7, 1]);
});
