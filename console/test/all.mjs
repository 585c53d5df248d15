// Every screen of the console in a real browser, against a real server.
//   node test/all.mjs smoke|full [PART OF A TEST'S NAME]
import assert from "node:assert/strict";
import { join } from "node:path";
import { SCREENSHOTS, cleanUp, openPage, runTests, startBrowser, startServer, test } from "./harness.mjs";
import { Client, fill, traffic } from "./seed.mjs";

const LAPTOP = { width: 1280, height: 800 };
const PHONE = { width: 390, height: 844 };
const isFull = process.argv[2] === "full";
const [server, browser] = await Promise.all([startServer(), startBrowser()]);
const client = new Client(server.url);
await fill(client);
let page = await openPage(browser);

const open = (path, ns = "shop") => page.goto(`${server.url}/console/${path}${path.includes("?") ? "&" : "?"}ns=${encodeURIComponent(ns)}`);
const see = (text, within = page.locator("main")) => within.getByText(text).first().waitFor();
const row = (text) => page.locator("tbody tr", { hasText: text }).first();
const press = (name, within = page) => within.getByRole("button", { name }).first().click();
const confirm = () => page.locator("dialog [data-action]").click();
const gone = (locator) => locator.waitFor({ state: "detached" });
/** The parameter of the address, once it has changed to this. */
const address = (name, value) => page.waitForURL((url) => (url.searchParams.get(name) ?? "") === value);
const width = () => page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);

test("the root leads to the console, which shows what happens now", async () => {
  await page.goto(server.url);
  await page.waitForURL(/\/console$/);
  await open("now");
  await see("when this page opened");
  await page.locator(".kpi-value", { hasText: "/s" }).first().waitFor();
  await page.locator("canvas").first().waitFor();
  await see("api/per-tenant", page.locator(".ranking").first());
  await see("card-1/daily", page.locator(".ranking").nth(1));
});

test("a refusal leads to its rule, to who uses it up, and to the override that cures it", async () => {
  await open("refusals");
  await page.locator("[data-filter]").fill("builds");
  await address("q", "builds");
  await press("Why?", row("builds/at-once"));
  const why = page.getByRole("complementary", { name: "Why" });
  await see("Still full", why);
  await see("builder-3", why);
  await see("builder-7", why);
  // The address alone brings the same panel.
  await page.reload();
  await press("Give this group another limit", why);
  await page.locator("dialog [name=limit]").fill("5");
  await confirm();
  await see("There is room again", why);
  const { body } = await client.call("POST", "/v1/ns/shop/limiter/check", { key_values: { team: "web" }, dry_run: true });
  assert.deepEqual([body.allowed, body.limits[0].limit, body.limits[0].override], [true, 5, "web"]);
  await page.keyboard.press("Escape");
  await gone(why);
});

test("refusals are live, and wait while the list is paused", async () => {
  await open("refusals?family=locks");
  await row("LockHeld").waitFor();
  await press("Pause");
  const before = await page.locator("tbody tr").count();
  await client.call("POST", "/v1/ns/shop/locks", { key_values: { order: 4712 }, ttl: "10s" });
  await page.getByRole("button", { name: /Resume \(\d+ new\)/ }).waitFor();
  assert.equal(await page.locator("tbody tr").count(), before);
  await page.keyboard.press("p");
  await row("4712").waitFor();
  await press("Why?", row("4712"));
  await see("worker-2", page.locator(".panel"));
});

test("why a ceiling refused", async () => {
  await open("refusals?q=card-1");
  await press("Why?", row("card-1/daily"));
  await see("card-b", page.locator(".panel"));
  await press("Change the ceiling");
  await page.locator("dialog [name=ceiling]").fill("not a number");
  await confirm();
  await see("Write a whole number", page.locator("dialog"));
  await page.locator("dialog [name=ceiling]").fill("2000");
  await confirm();
  await gone(page.locator("dialog"));
  assert.equal((await client.must("GET", "/v1/ns/shop/ledger/limits/card-1%2Fdaily")).ceiling, 2000);
});

test("try it: which rules match, whether it would pass, and the same as curl", async () => {
  await open("try");
  await page.locator("main [data-filter]").fill("tenant=globex rows:=200000");
  await see("It would be refused.");
  await see("Rule api/per-tenant allows 600");
  await row("exports/large").waitFor();
  await address("kv", "tenant=globex rows:=200000");
  assert.match(await page.locator(".command pre").innerText(), /^curl --json '{"key_values": {"tenant": "globex", "rows": 200000}, "hits": 1, "dry_run": true}'/);
  await page.locator("main [data-filter]").fill("nobody=here");
  await see("No rule applies");
  await page.locator("main [data-filter]").fill("tenant");
  await see("Write tenant=text");
  // A dry run counts nothing.
  const { items } = await client.must("GET", "/v1/ns/shop/limiter/rules/exports%2Flarge/groups");
  assert.deepEqual(items, []);
});

test("a rule shows its groups by use, and a row makes an override", async () => {
  await open("rules");
  await page.locator("main [data-filter]").first().fill("api/");
  await gone(row("builds/at-once"));
  await row("api/per-tenant").click();
  await address("rule", "api/per-tenant");
  const groups = page.getByRole("table", { name: "Groups" });
  await groups.getByText("600 / 600").first().waitFor();
  await press("Override", groups.locator("tr", { hasText: "umbrella" }));
  await page.locator("dialog [name=name]").fill("umbrella-more");
  await page.locator("dialog [name=limit]").fill("900");
  await confirm();
  await groups.getByText("umbrella-more").waitFor();
  const overrides = page.getByRole("table", { name: "Overrides" });
  await press("Delete", overrides.locator("tr", { hasText: "umbrella-more" }));
  await confirm();
  await gone(overrides.getByText("umbrella-more"));
});

test("an override of a bucket begins with its rate, not with its burst", async () => {
  const window = { type: "bucket", per: "1m", burst: 20 };
  await client.must("POST", "/v1/ns/shop/limiter/rules", { name: "steady", group_by: ["meter"], limit: 60, window });
  await client.must("POST", "/v1/ns/shop/limiter/check", { key_values: { meter: "m" }, hits: 20 });
  await open("rules?rule=steady");
  const limit = page.locator("dialog [name=limit]");
  for (const proposed of ["60", "90"]) {
    await press(proposed === "60" ? "Override" : "Change", page.getByRole("table", { name: "Groups" }).locator("tr", { hasText: "meter" }));
    await limit.waitFor();
    assert.equal(await limit.inputValue(), proposed);
    await limit.fill("90");
    await confirm();
    await gone(limit);
  }
  await client.must("DELETE", "/v1/ns/shop/limiter/rules/steady");
});

test("a namespace that is no name is not looked for elsewhere", async () => {
  await page.goto(`${server.url}/console/rules?ns=..`);
  await page.getByLabel("Namespace").first().waitFor();
  assert.doesNotMatch(await page.locator("body").innerText(), /\.\./);
});

test("deleting a rule asks for its name", async () => {
  await client.must("POST", "/v1/ns/shop/limiter/rules", { name: "short-lived", group_by: [], limit: 1 });
  await open("rules?rule=short-lived");
  await press("Delete");
  await page.locator("dialog [name=confirmation]").fill("another");
  await confirm();
  await see("This is not the rule's name.", page.locator("dialog"));
  assert.equal((await client.call("GET", "/v1/ns/shop/limiter/rules/short-lived")).status, 200);
  await page.locator("dialog [name=confirmation]").fill("short-lived");
  await confirm();
  await row("api/per-tenant").waitFor();
  assert.equal((await client.call("GET", "/v1/ns/shop/limiter/rules/short-lived")).status, 404);
});

test("a lock is released by force, after a question", async () => {
  await open("locks");
  await press("Release", row("report-nightly"));
  await press("Cancel", page.locator("dialog"));
  await row("report-nightly").waitFor();
  await press("Release", row("report-nightly"));
  await see("report-nightly still believes", page.locator("dialog"));
  await confirm();
  await gone(row("report-nightly"));
  await page.locator("main [data-filter]").fill("order:=4711");
  await gone(row("reader-4"));
  await row("worker-1").waitFor();
  await page.getByRole("tab", { name: "Slots" }).click();
  await press("Release", row("builder-1"));
  await confirm();
  await gone(row("builder-1"));
});

test("the ledger: values as of a position, and the life of an operation", async () => {
  await open("ledger");
  await row("provider-7/hourly").click();
  await see("As of a position");
  const { items } = await client.must("GET", "/v1/ns/shop/ledger/limits/provider-7%2Fhourly/entries?limit=10");
  const entry = items[5];
  await page.locator("input[type=range]").fill(String(entry.position));
  await address("position", String(entry.position));
  const group = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
  await see(`committed ${group(entry.commit_value)}`, page.locator(".as-of"));
  await see(`held ${group(entry.hold_value)}`, page.locator(".as-of"));
  await page.getByRole("link", { name: "pay-3", exact: true }).first().click();
  await see("Committed", page.locator(".life"));
  await open("ledger?tab=operations");
  await press("Roll back", row("card-b"));
  await confirm();
  await gone(row("card-b"));
  await open("ledger?operation=card-b");
  await see("Rolled back", page.locator(".life"));
});

test("a rule of a set is changed with its set", async () => {
  await open("rules");
  await row("plans/free").getByText("set plans").waitFor();
  await page.getByRole("tab", { name: "Rule sets" }).click();
  await row("plans").click();
  await address("set", "plans");
  await row("plans/free").click();
  await see("The rule is changed with its set, and so are its overrides.");
  await page.getByRole("table", { name: "Groups" }).getByText("17 / 20").waitFor();
  assert.equal(await page.getByRole("button", { name: /Change limit|Only watch|Delete|Override/ }).count(), 0);
  // In an open set, clients make overrides.
  await open("rules?rule=models/at-once");
  await see("overrides can also be made here");
  await press("Override", page.getByRole("table", { name: "Groups" }));
  await press("Cancel", page.locator("dialog"));
});

test("a decision waits, is granted, and ends", async () => {
  const checks = [{ key_values: { gpu: "a100" }, hits: 2 }];
  const made = await client.must("POST", "/v1/ns/shop/decisions", {
    operation_id: "req-1",
    owner: "gw-3",
    ttl: "10m",
    holds: [{ limit_name: "turnover", value: 5 }],
    event: { stream: "mails", event: "answer 1" },
    locks: [{ key_values: { session: "s-1" } }],
    checks,
  });
  assert.equal(made.state, "open");
  await open("decisions?operation=req-2");
  await see("There is no such decision");
  const granted = client.must("POST", "/v1/ns/shop/decisions", { operation_id: "req-2", ttl: "10m", wait: "5m", checks });
  await see("Waiting", page.locator(".life"));
  await open("try?kv=gpu%3Da100");
  await see("2 in use, and an earlier request waits");
  await open("rules?rule=models/at-once");
  await page.getByRole("table", { name: "Groups" }).locator("tr", { hasText: "a100" }).locator(".badge", { hasText: "1" }).waitFor();
  await open("decisions");
  await row("gw-3").click();
  for (const text of ["turnover", "s-1", "models/at-once", "answer 1"]) await see(text);
  await see("expires in", page.locator(".life"));
  await client.must("POST", "/v1/ns/shop/decisions/req-1/commit", {});
  await see("Committed", page.locator(".life"));
  await see("What it held");
  assert.equal((await granted).state, "open");
  await open("decisions?operation=req-2");
  await press("Roll back");
  await press("Cancel", page.locator("dialog"));
  await press("Roll back");
  await confirm();
  await see("Rolled back", page.locator(".life"));
});

test("an operator ends the wait of a decision", async () => {
  await client.must("POST", "/v1/ns/shop/decisions", { operation_id: "req-4", ttl: "10m", locks: [{ key_values: { session: "s-4" } }] });
  const refused = client.call("POST", "/v1/ns/shop/decisions", { operation_id: "req-5", wait: "5m", locks: [{ key_values: { session: "s-4" } }] });
  await open("decisions?operation=req-5");
  await press("End the wait");
  await see("its client is answered at once", page.locator("dialog"));
  await confirm();
  assert.equal((await refused).body.code, "Refused");
  await see("It was refused.");
});

test("why a decision was refused: all of its causes", async () => {
  const { status } = await client.call("POST", "/v1/ns/shop/decisions", {
    operation_id: "req-3",
    checks: [{ key_values: { gpu: "h100" }, hits: 2 }],
    holds: [{ limit_name: "card-1/daily", value: 90000 }],
  });
  assert.equal(status, 429);
  await open("decisions");
  await press("Why?", page.getByRole("table", { name: "Refused decisions" }).locator("tr", { hasText: "req-3" }));
  const why = page.getByRole("complementary", { name: "Why" });
  await see("refused as a whole", why);
  await see("models/at-once", why);
  await see("gateway-1", why);
  await see("card-1/daily", why);
  await open("decisions?operation=req-3");
  await see("It was refused.");
});

test("a stream is live", async () => {
  await open("streams");
  await row("deploys").click();
  await see("live");
  await see("Nothing incubates");
  await client.must("POST", "/v1/ns/shop/events/deploys", { event: "web 42" });
  await see("web 42", page.locator(".incubating"));
  await see("submitted", page.locator(".changes"));
  await client.call("POST", "/v1/ns/shop/events/deploys", { event: "web 42" });
  await see("invalidated", page.locator(".changes"));
  await see("Nothing incubates");
});

test("the cluster says where a namespace is", async () => {
  await open("cluster");
  const { shards } = await client.must("GET", "/v1/cluster?namespace=shop");
  await page.locator(".shard.home", { hasText: String(shards[0].shard) }).waitFor();
  await see("all open");
});

test("the audit says what was changed", async () => {
  await open("audit");
  await page.locator("main [data-filter]").fill("patch_limit");
  await row("card-1/daily").click();
  const record = page.locator(".panel");
  await see("2000", record.locator("ins"));
  await see("1000", record.locator("del"));
  await open("audit?scope=all");
  await row("billing").waitFor();
});

test("namespaces, keys, and an empty namespace", async () => {
  await open("rules");
  await row("api/per-tenant").waitFor();
  await page.getByRole("button", { name: "billing", exact: true }).click();
  await address("ns", "billing");
  await see("This namespace has no rules");
  await page.locator("main").click();
  await page.keyboard.press("g");
  await page.keyboard.press("b");
  await row("budget").waitFor();
  await page.keyboard.press("?");
  await see("next, previous row", page.locator("dialog"));
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  assert.ok(await page.locator("main [data-filter]").evaluate((field) => field === document.activeElement));
  const few = ["now", "rules", "decisions", "ledger"];
  const more = ["refusals", "try", "rules?tab=sets", "locks", "locks?tab=slots", "ledger?tab=operations", "streams", "audit"];
  for (const screen of isFull ? [...few, ...more] : few) {
    await open(screen, "void");
    await page.locator(".empty").first().waitFor();
  }
  await open("nonsense");
  await see("This address leads nowhere");
});

const EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>';
const RIGHT_TO_LEFT = "safe\u202egnp.exe\u200b";
/** 256 bytes, with marks at its beginning. */
const LONG = `\u202e\u200b${"x".repeat(250)}`;

test("hostile names stay text, and break no layout", async () => {
  const at = (path) => `/v1/ns/${encodeURIComponent(EVIL)}/${path}`;
  for (const name of [EVIL, RIGHT_TO_LEFT, LONG, "__proto__", ...(isFull ? ["a'b\"c", "{{7*7}}"] : [])]) {
    const rule = await client.must("POST", at("limiter/rules"), { name, group_by: [name], limit: 1, description: name });
    await client.must("POST", at("limiter/leases"), { key_values: { [name]: name }, ttl: "5m", owner: name });
    await client.call("POST", at("limiter/check"), { key_values: { [name]: name } });
    await client.must("POST", at("locks"), { key_values: { [name]: name }, ttl: "5m", owner: name });
    await client.must("POST", at("ledger/limits"), { name, ceiling: 10, context: { [name]: name } });
    await client.must("POST", at("ledger/hold"), { operation_id: name, changes: [{ limit_name: name, value: 5 }] });
    await client.call("POST", at("ledger/hold"), { operation_id: `${name.slice(0, 250)}-2`, changes: [{ limit_name: name, value: 6 }] });
    await client.must("PUT", at(`events/${encodeURIComponent(name)}`), { mode: "only_once", duration: "5m" });
    await client.must("POST", at(`events/${encodeURIComponent(name)}`), { event: name });
    assert.equal(rule.name, name);
    const key_values = { [`d-${name.slice(0, 200)}`]: name };
    await client.must("PUT", at(`limiter/rule-sets/${encodeURIComponent(name)}`), { rules: [{ name: `set-${name.slice(0, 200)}`, group_by: Object.keys(key_values), limit: 1, description: name }] });
    const decision = { owner: name, ttl: "5m", checks: [{ name, key_values }], holds: [{ limit_name: name, value: 1 }], locks: [{ key_values }] };
    await client.must("POST", at("decisions"), { operation_id: `d-${name.slice(0, 200)}`, ...decision, event: { stream: name, event: `d-${name}` } });
    await client.call("POST", at("decisions"), { operation_id: `r-${name.slice(0, 200)}`, ...decision });
  }
  const encoded = encodeURIComponent;
  const screens = ["now", "refusals", "rules", "rules?tab=sets", "decisions", "locks", "locks?tab=slots", "ledger", "ledger?tab=operations", "streams", "audit"];
  for (const name of isFull ? [EVIL, RIGHT_TO_LEFT, LONG] : [EVIL]) {
    const why = encoded(JSON.stringify({ time: 0, family: "limiter", code: name, rule: name, key_values: { [name]: name } }));
    screens.push(`rules?rule=${encoded(name)}`, `ledger?limit=${encoded(name)}`, `ledger?operation=${encoded(name)}`, `streams?stream=${encoded(name)}`, `refusals?why=${why}`);
    screens.push(`rules?set=${encoded(name)}`, `decisions?operation=${encoded(`d-${name.slice(0, 200)}`)}`, `decisions?operation=${encoded(`r-${name.slice(0, 200)}`)}`);
    screens.push(`try?kv=${encoded(`${JSON.stringify(name)}=${JSON.stringify(name)}`)}`);
  }
  // A phone is where a long name does the most harm.
  for (const viewport of isFull ? [LAPTOP, PHONE] : [PHONE]) {
    await page.setViewportSize(viewport);
    for (const screen of screens) {
      await open(screen, EVIL);
      await page.locator("main .name, main .pair, main .banner, main h1").first().waitFor();
      await page.waitForFunction(() => !document.querySelector(".loading"));
      assert.equal(await page.locator("main img, main script").count(), 0, screen);
      // Nothing that reorders or hides text reaches the page as it is.
      const text = (await page.locator("#app").innerText()) + (await page.title());
      assert.ok(!/[\u202e\u200b]/.test(text), `${screen} shows a mark as it is`);
      assert.ok((await width()) <= 0, `${screen} is wider than ${viewport.width} pixels`);
    }
  }
  await page.setViewportSize(LAPTOP);
  await open(`rules?rule=${encoded(RIGHT_TO_LEFT)}`, EVIL);
  await see("U+202E");
  await see("U+200B");
  // The override of a hostile group names exactly that group.
  const groups = page.getByRole("table", { name: "Groups" });
  await press("Override", groups);
  await page.locator("dialog [name=name]").fill("o");
  await page.locator("dialog [name=limit]").fill("7");
  await confirm();
  await gone(page.locator("dialog"));
  const made = await client.must("GET", at(`limiter/rules/${encoded(RIGHT_TO_LEFT)}/overrides/o`));
  assert.deepEqual(made.key_values, { [RIGHT_TO_LEFT]: RIGHT_TO_LEFT });
});

test("numbers that JavaScript would round keep their digits", async () => {
  const send = (path, body) => fetch(`${server.url}/v1/ns/exact/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body });
  await send("limiter/rules", '{"name": "r", "group_by": ["id"], "limit": 1}');
  for (const id of ["9007199254740993", "1.0"]) await send("limiter/check", `{"key_values": {"id": ${id}}}`);
  await send("ledger/limits", '{"name": "all", "ceiling": 9223372036854775807}');
  await open("rules?rule=r", "exact");
  for (const id of ["9007199254740993", "1.0"]) {
    await press("Override", page.getByRole("table", { name: "Groups" }).locator("tr", { hasText: id }));
    await page.locator("dialog [name=limit]").fill("3");
    await confirm();
    await gone(page.locator("dialog"));
  }
  const overrides = await (await fetch(`${server.url}/v1/ns/exact/limiter/rules/r/overrides`)).text();
  assert.ok(overrides.includes('{"id":9007199254740993}') && overrides.includes('{"id":1.0}'), overrides);
  await open("ledger", "exact");
  await see("9\u202f223\u202f372\u202f036\u202f854\u202f775\u202f807");
});

test("a token is asked for, stays in the tab, and shows only what it may see", async () => {
  const guarded = await startServer({ admin: ["cluster:admin"], reader: ["shop/limiter:read"] });
  const manager = new Client(guarded.url, guarded.secrets.admin);
  await manager.must("POST", "/v1/ns/shop/limiter/rules", { name: "builds/at-once", group_by: ["team"], limit: 2 });
  await manager.must("POST", "/v1/ns/shop/limiter/check", { key_values: { team: "web" } });
  const admin = page;
  try {
    page = await openPage(browser);
    await page.goto(`${guarded.url}/console/rules?ns=shop`);
    await page.locator("dialog [name=token]").fill("limina_wrong");
    await press("Use it");
    await see("The server rejects this token", page.locator("dialog"));
    await page.locator("dialog [name=token]").fill(guarded.secrets.reader);
    await press("Use it");
    await row("builds/at-once").waitFor();
    const kept = await page.evaluate(() => [document.cookie, JSON.stringify(localStorage), Object.values(sessionStorage).join()]);
    assert.deepEqual(kept, ["", "{}", guarded.secrets.reader]);
    const hidden = [["now", "cluster:read"], ["ledger", "shop/ledger:read"], ["audit", "manage"]];
    if (isFull) hidden.push(["cluster", "cluster:read"], ["locks", "shop/locks:read"], ["decisions", "shop/decisions:read"]);
    for (const [screen, right] of hidden) {
      await page.goto(`${guarded.url}/console/${screen}?ns=shop`);
      await see("Your token may not see");
      await see(right, page.locator(".failure"));
    }
    // A right that is missing for an action is said in its dialog.
    await page.goto(`${guarded.url}/console/rules?ns=shop&rule=builds/at-once`);
    await press("Override", page.getByRole("table", { name: "Groups" }));
    await confirm();
    await see("shop/limiter:manage", page.locator("dialog"));
    await page.goto(`${guarded.url}/console/rules?ns=shop`);
    await press("Forget token");
    await page.locator("dialog [name=token]").waitFor();
  } finally {
    await page.context().close();
    page = admin;
  }
});

test("a phone has a menu, and every screen fits", async () => {
  await page.setViewportSize(PHONE);
  await open("now");
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("link", { name: "Rules", exact: true }).click();
  await row("api/per-tenant").waitFor();
  assert.ok((await width()) <= 0);
  await page.setViewportSize(LAPTOP);
});

if (isFull) {
  test("long lists are shown by pages", async () => {
    /** A busy machine makes the server answer 503, which says that nothing was done. */
    const patiently = async (method, path, body) => {
      for (;;) {
        const { status, body: answer } = await client.call(method, path, body);
        if (status < 300) return;
        if (status !== 503) throw new Error(`${method} ${path}: ${status} ${JSON.stringify(answer)}`);
        await new Promise((done) => setTimeout(done, 200));
      }
    };
    const digits = (n) => String(n).padStart(6, "0");
    const rule = (n) => ({ name: `rule-${digits(n)}`, group_by: ["k"], selection: { n }, limit: 1 });
    const range = (from, count) => Array.from({ length: count }, (_, k) => from + k);
    for (let n = 0; n < 100_000; n += 2000) await patiently("PUT", `/v1/ns/many/limiter/rule-sets/set-${n}`, { rules: range(n, 2000).map(rule) });
    for (let n = 0; n < 10_000; n += 25)
      await Promise.all(range(n, 25).map((k) => patiently("POST", "/v1/ns/many/locks", { key_values: { n: k }, ttl: "1h", owner: `w-${k}` })));
    for (const screen of ["rules", "locks"]) {
      await open(screen, "many");
      await page.locator("tbody tr").first().waitFor();
      assert.equal(await page.locator("tbody tr").count(), 100);
      const first = await page.locator("tbody tr").first().innerText();
      await press("Next →");
      await page.waitForFunction((text) => {
        const row = document.querySelector("tbody tr");
        return row && row.innerText !== text;
      }, first);
      assert.equal(await page.locator("tbody tr").count(), 100);
      await page.screenshot({ path: join(SCREENSHOTS, `many-${screen}.png`) });
    }
    await open("rules?q=rule-0987", "many");
    await row("rule-098700").waitFor();
    assert.equal(await page.locator("tbody tr").count(), 100);
    await open("locks?q=n:=9999", "many");
    await row("w-9999").waitFor();
    assert.equal(await page.locator("tbody tr").count(), 1);
  });
}

const whyOf = (refusal) => `refusals?why=${encodeURIComponent(JSON.stringify({ time: Date.now(), ...refusal }))}`;
const SHOTS = {
  now: "now",
  refusals: "refusals",
  why: whyOf({ family: "limiter", code: "LimitReached", rule: "api/per-tenant", key_values: { tenant: "globex" } }),
  "why-decision": whyOf({ family: "decisions", code: "Refused", rule: "models/at-once", key_values: { gpu: "h100" }, limit_name: "card-1/daily", operation_id: "chat-814" }),
  try: "try?kv=tenant%3Dglobex+rows:%3D200000",
  rules: "rules",
  rule: "rules?rule=api/per-tenant",
  slot: "rules?rule=builds/at-once",
  sets: "rules?tab=sets",
  set: "rules?set=plans",
  locks: "locks",
  slots: "locks?tab=slots",
  ledger: "ledger",
  limit: "ledger?limit=provider-7/hourly",
  operations: "ledger?tab=operations",
  operation: "ledger?operation=pay-3",
  decisions: "decisions",
  decision: "decisions?operation=chat-812",
  "decision-committed": "decisions?operation=chat-811",
  "decision-waiting": "decisions?operation=chat-815",
  "decision-refused": "decisions?operation=chat-814",
  streams: "streams",
  stream: "streams?stream=mails",
  cluster: "cluster",
  audit: "audit",
};

/** What comes after the rest of a screen. */
const LATER = { now: "canvas", rule: "canvas", slot: "canvas", decisions: "[aria-label='Refused decisions']" };

/** Takes pictures of screens, each of which has to fit. */
async function shoot(names, look, viewport, colorScheme, ns = "shop") {
  await page.setViewportSize(viewport);
  await page.emulateMedia({ colorScheme });
  for (const name of names) {
    await open(SHOTS[name], ns);
    await page.locator("main .card, main .empty, main .kpi, main .banner").first().waitFor();
    await page.waitForFunction(() => !document.querySelector(".loading"));
    if (LATER[name] && ns === "shop") await page.locator(LATER[name]).first().waitFor();
    assert.ok((await width()) <= 0, `${name} is wider than ${viewport.width} pixels`);
    await page.screenshot({ path: join(SCREENSHOTS, `${name}-${look}.png`), fullPage: viewport.width < 500 && !/^why|^refusals/.test(name) });
  }
}

if (isFull)
  test("every screen, light and dark, on a laptop and a phone, full and empty", async () => {
    const stop = new AbortController();
    const asking = traffic(client, stop.signal);
    try {
      for (const [device, viewport] of [["laptop", LAPTOP], ["phone", PHONE]])
        for (const scheme of ["light", "dark"]) await shoot(Object.keys(SHOTS), `${device}-${scheme}`, viewport, scheme);
      const empty = ["now", "refusals", "rules", "sets", "locks", "slots", "ledger", "operations", "decisions", "streams", "audit"];
      await shoot(empty, "empty-laptop", LAPTOP, "light", "void");
      await shoot(empty, "empty-phone", PHONE, "dark", "void");
    } finally {
      stop.abort();
      await asking;
    }
  });

let passed = false;
try {
  passed = await runTests(() => page, process.argv[3]);
} finally {
  await cleanUp();
}
process.exitCode = passed ? 0 : 1;
