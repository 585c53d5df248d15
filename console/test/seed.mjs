// Fills a server with something to look at.

export class Client {
  constructor(url, token) {
    this.url = url;
    this.token = token;
  }
  async call(method, path, body, signal) {
    const headers = { ...(body && { "content-type": "application/json" }), ...(this.token && { authorization: `Bearer ${this.token}` }) };
    const answer = await fetch(this.url + path, { method, headers, body: body && JSON.stringify(body), signal });
    const text = await answer.text();
    return { status: answer.status, body: text && JSON.parse(text) };
  }
  /** A call that has to succeed. */
  async must(method, path, body) {
    const { status, body: answer } = await this.call(method, path, body);
    if (status >= 300) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(answer)}`);
    return answer;
  }
}

const TENANTS = ["acme", "globex", "initech", "umbrella", "hooli", "wayne", "stark", "tyrell"];

/** A shop with a bit of everything: full limits, held locks, open operations, incubating events. */
export async function fill(client, ns = "shop") {
  const at = (path) => `/v1/ns/${ns}/${path}`;
  const rule = (body) => client.must("POST", at("limiter/rules"), body);
  await rule({ name: "api/per-tenant", group_by: ["tenant"], limit: 600, window: { type: "sliding", per: "1m" }, description: "What one tenant may ask of the API." });
  await rule({ name: "api/per-address", group_by: ["address"], limit: 60000, window: { type: "bucket", per: "1m", burst: 200 } });
  await rule({ name: "builds/at-once", group_by: ["team"], limit: 2, description: "Two builds at once for each team." });
  await rule({ name: "exports/large", group_by: ["tenant"], selection: { rows: { gte: 100000 } }, limit: 1, window: { type: "fixed", per: "1h" } });
  await rule({ name: "mail/daily", group_by: ["tenant", "campaign"], limit: 10000, window: { type: "fixed", per: "24h" }, shadow: true });
  await client.must("POST", at("limiter/rules/api%2Fper-tenant/overrides"), { name: "acme-gold", key_values: { tenant: "acme" }, limit: 2400 });
  for (const [n, tenant] of TENANTS.entries())
    await client.call("POST", at("limiter/check"), { key_values: { tenant }, hits: [1400, 600, 430, 330, 260, 140, 60, 20][n] });
  for (let n = 0; n < 12; n++) await client.call("POST", at("limiter/check"), { key_values: { tenant: "globex", address: "10.0.0.1" } });
  for (const [owner, team] of [["builder-3", "web"], ["builder-7", "web"], ["builder-1", "mobile"]])
    await client.must("POST", at("limiter/leases"), { key_values: { team, branch: "main" }, ttl: "10m", owner });
  for (let n = 0; n < 5; n++) await client.call("POST", at("limiter/leases"), { key_values: { team: "web", branch: "fix" }, ttl: "10m", owner: "builder-9" });
  for (const [owner, key_values, mode] of [
    ["worker-1", { order: 4711 }, "exclusive"],
    ["worker-2", { order: 4712 }, "exclusive"],
    ["report-nightly", { job: "invoices", tenant: "acme" }, "exclusive"],
    ["reader-4", { table: "prices" }, "shared"],
  ])
    await client.must("POST", at("locks"), { key_values, mode, ttl: "5m", owner });
  for (let n = 0; n < 3; n++) await client.call("POST", at("locks"), { key_values: { order: 4711 }, ttl: "10s", owner: "worker-9" });
  for (const [name, ceiling] of [["card-1/daily", 1000], ["merchant-7/daily", 250000], ["provider-7/hourly", 40000], ["budget/acme/2026-11", 5000000]])
    await client.must("POST", at("ledger/limits"), { name, ceiling, context: { currency: "EUR" } });
  await client.must("POST", at("ledger/limits"), { name: "turnover" });
  for (let n = 1; n <= 40; n++) {
    const operation_id = `pay-${n}`;
    const value = 300 + ((n * 7919) % 1900);
    const changes = [["merchant-7/daily", value], ["provider-7/hourly", value], ["turnover", value]].map(([limit_name, value]) => ({ limit_name, value }));
    const { status } = await client.call("POST", at("ledger/hold"), { operation_id, changes, ...(n % 9 === 0 && { expires_after: "10m" }) });
    if (status !== 200) continue;
    if (n % 5 === 4) await client.must("POST", at("ledger/rollback"), { operation_id });
    else if (n % 9 !== 0 && n < 37) await client.must("POST", at("ledger/commit"), { operation_id });
  }
  await client.must("POST", at("ledger/hold"), { operation_id: "card-a", changes: [{ limit_name: "card-1/daily", value: 700 }] });
  await client.must("POST", at("ledger/commit"), { operation_id: "card-a", changes: [{ limit_name: "card-1/daily", value: 650 }] });
  await client.must("POST", at("ledger/hold"), { operation_id: "card-b", changes: [{ limit_name: "card-1/daily", value: 300 }], expires_after: "15m" });
  for (let n = 0; n < 4; n++) await client.call("POST", at("ledger/hold"), { operation_id: `card-c${n}`, changes: [{ limit_name: "card-1/daily", value: 120 }] });
  await client.must("PUT", at("events/mails"), { mode: "only_once", duration: "20s" });
  await client.must("PUT", at("events/deploys"), { mode: "strictly_once", duration: "1m" });
  for (const event of ["welcome, ann", "welcome, bob", "invoice 2026-11"]) await client.call("POST", at("events/mails"), { event });
  await client.call("POST", at("events/mails"), { event: "welcome, ann" });
  await client.must("POST", "/v1/ns/billing/ledger/limits", { name: "budget" });
  await client.must("PUT", at("limiter/rule-sets/plans"), {
    rules: [
      { name: "plans/free", group_by: ["account"], selection: { plan: "free" }, limit: 20, window: { type: "sliding", per: "1m" }, description: "Accounts that pay nothing." },
      { name: "plans/pro", group_by: ["account"], selection: { plan: "pro" }, limit: 2000, window: { type: "sliding", per: "1m" }, overrides: [{ name: "acme", key_values: { account: "acme" }, limit: 9000 }] },
    ],
  });
  await client.must("PUT", at("limiter/rule-sets/models"), {
    rules: [
      { name: "models/tokens", group_by: ["model_tokens"], limit: 200000, window: { type: "sliding", per: "1m" } },
      { name: "models/at-once", group_by: ["gpu"], limit: 2, description: "Calls of a model at the same time." },
    ],
    overrides: "open",
  });
  await client.must("POST", at("limiter/check"), { key_values: { plan: "free", account: "initech" }, hits: 17 });
  const decide = (operation_id, more) =>
    client.call("POST", at("decisions"), {
      operation_id,
      ttl: "30m",
      checks: [{ name: "tokens", key_values: { model_tokens: "opus" }, hits: 48000, estimate: true }, { key_values: { gpu: "h100" } }],
      holds: [{ limit_name: "budget/acme/2026-11", value: 52000 }],
      ...more,
    });
  await decide("chat-811", { owner: "gateway-2" });
  await client.must("POST", at("decisions/chat-811/commit"), { checks: [{ name: "tokens", hits: 31000 }], holds: [{ limit_name: "budget/acme/2026-11", value: 33700 }] });
  await decide("chat-812", { owner: "gateway-1", locks: [{ key_values: { session: "s-812" } }], event: { stream: "mails", event: "answer 812" } });
  await decide("chat-813", { owner: "gateway-3" });
  await decide("chat-814", { owner: "gateway-3", holds: [{ limit_name: "card-1/daily", value: 900 }] });
}

/** Requests that wait until `signal` is aborted: for a lock, a slot, and a decision. */
export function waiters(client, signal, ns = "shop") {
  const send = (path, body) => client.call("POST", `/v1/ns/${ns}/${path}`, { wait: "5m", ...body }, signal).catch(() => {});
  for (const owner of ["worker-5", "worker-6"]) void send("locks", { key_values: { order: 4711 }, ttl: "10s", owner });
  void send("limiter/leases", { key_values: { team: "web", branch: "next" }, ttl: "10m", owner: "builder-8" });
  void send("decisions", { operation_id: "chat-815", owner: "gateway-2", ttl: "30m", checks: [{ key_values: { gpu: "h100" } }] });
}

/** Keeps asking, so that the charts move. Ends when `signal` is aborted. */
export async function traffic(client, signal, ns = "shop") {
  let n = 0;
  waiters(client, signal, ns);
  while (!signal.aborted) {
    n++;
    const burst = 6 + Math.round(5 * Math.sin(n / 9));
    const calls = Array.from({ length: burst }, (_, k) => {
      // The first tenants ask more often than the last ones.
      const tenant = TENANTS[Math.floor(TENANTS.length * ((0.618 * (n * 12 + k)) % 1) ** 2)];
      return client.call("POST", `/v1/ns/${ns}/limiter/check`, { key_values: { tenant, address: `10.0.0.${k}` } }).catch(() => {});
    });
    if (n % 4 === 0) calls.push(client.call("POST", `/v1/ns/${ns}/locks`, { key_values: { order: 4711 }, ttl: "10s", owner: "worker-9" }).catch(() => {}));
    if (n % 10 === 0) calls.push(client.call("POST", `/v1/ns/${ns}/events/mails`, { event: `receipt ${n}` }).catch(() => {}));
    if (n % 6 === 0) calls.push(client.call("POST", `/v1/ns/${ns}/limiter/leases`, { key_values: { team: "web", branch: "fix" }, ttl: "10m" }).catch(() => {}));
    if (n % 8 === 0) calls.push(client.call("POST", `/v1/ns/${ns}/decisions`, { operation_id: `chat-${900 + n}`, checks: [{ key_values: { gpu: "h100" } }] }).catch(() => {}));
    await Promise.all(calls);
    await new Promise((done) => setTimeout(done, 120));
  }
}
