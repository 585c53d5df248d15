// What needs no browser: key-values as text, JSON without loss, metrics.
import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const output = join(mkdtempSync(join(tmpdir(), "limina-console-units-")), "units.mjs");
const names = ["keyvalues", "json", "lists", "format", "quantile"];
const contents = names.map((name) => `export * as ${name} from "./${name}";`).join("\n");
await build({ stdin: { contents, resolveDir: fileURLToPath(new URL("../src", import.meta.url)) }, outfile: output, bundle: true, format: "esm" });
const { keyvalues, json, lists, format, quantile } = await import(pathToFileURL(output));

test("key-values are read as HTTPie reads them", () => {
  const check = (text, expect) => assert.equal(json.encode(keyvalues.parse(text)), expect);
  check("", "{}");
  check("tenant=acme attempt:=3 beta:=true", '{"tenant": "acme", "attempt": 3, "beta": true}');
  check("a= b=x=y", '{"a": "", "b": "x=y"}');
  check('"a key"="a \\"value\\"" n:=-1.50', '{"a key": "a \\"value\\"", "n": -1.50}');
  check("big:=9007199254740993 one:=1.0", '{"big": 9007199254740993, "one": 1.0}');
  check("a:b=c", '{"a:b": "c"}');
  check("__proto__=x", '{"__proto__": "x"}');
  for (const wrong of ["tenant", "=x", "n:=three", "n:=", '"open', "a=b c"]) assert.throws(() => keyvalues.parse(wrong), Error, wrong);
});

test("what is printed is read again", () => {
  const all = { plain: "x", "with space": 'quo"te', "a=b": "c d", "k:=": "v", empty: "", n: 3, t: true, "": "" };
  delete all[""];
  assert.deepEqual({ ...keyvalues.parse(keyvalues.print(all)) }, all);
});

test("a prefix begins a list at its first name", () => {
  const after = (prefix) => new URLSearchParams(lists.pageQuery(prefix, "")).get("after");
  const bytes = (text) => Buffer.from(text);
  for (const prefix of ["car", "a", "é", "\ue000", "🌮"]) {
    assert.ok(Buffer.compare(bytes(after(prefix)), bytes(prefix)) < 0, prefix);
    const before = String.fromCodePoint(prefix.codePointAt(0) === 0xe000 ? 0xd7ff : prefix.codePointAt(0) - 1) + "zzz";
    if ([...prefix].length === 1) assert.ok(Buffer.compare(bytes(after(prefix)), bytes(before)) > 0, prefix);
  }
  const page = { items: [{ name: "card" }, { name: "care" }, { name: "dog" }], next: "dog" };
  assert.deepEqual(lists.cut(page, "car"), { items: [{ name: "card" }, { name: "care" }], next: null });
});

test("the newest items of a list that only begins with the oldest", async () => {
  const of = async (all, most) => {
    let reads = 0;
    const latest = all.at(-1) ?? 0;
    const read = async (after) => {
      reads++;
      const items = all.filter((n) => n > Number(after)).slice(0, 10);
      return { items, next: items.length === 10 ? String(items.at(-1)) : null };
    };
    const middle = (next) => (Number(next) + 1 < latest ? String(Math.ceil((Number(next) + latest) / 2)) : null);
    return { ...(await lists.newest("0", most, read, middle)), reads };
  };
  const numbers = (from, to) => Array.from({ length: to - from + 1 }, (_, n) => from + n);
  assert.deepEqual(await of([], 5), { items: [], isAll: true, reads: 1 });
  assert.deepEqual(await of(numbers(1, 5), 5), { items: numbers(1, 5), isAll: true, reads: 1 });
  assert.deepEqual(await of(numbers(1, 26), 5), { items: numbers(22, 26), isAll: false, reads: 3 });
  const many = await of(numbers(1, 5000), 5);
  assert.deepEqual([many.items, many.isAll], [numbers(4996, 5000), false]);
  assert.ok(many.reads < 400, `${many.reads}`);
  // Dense at first, and a few much later.
  const late = await of([...numbers(1, 600), 9990, 9991], 5);
  assert.deepEqual([late.items, late.isAll], [[9990, 9991], false]);
});

test("figures are written for people", () => {
  assert.equal(format.number(new json.Exact("9223372036854775807")), "9\u202f223\u202f372\u202f036\u202f854\u202f775\u202f807");
  assert.equal(format.number(-1234), "\u22121\u202f234");
  assert.deepEqual([0, 250, 1500, 12_000, 200_000, 90_000_000].map(format.duration), ["0 ms", "250 ms", "1.5 s", "12 s", "3 min 20 s", "1 d 1 h"]);
});

test("a quantile lies within its bucket by proportion", () => {
  const buckets = (...counts) => new Map([0.001, 0.01, 0.1, Infinity].map((bound, n) => [bound, counts[n]]));
  const check = (before, after, q, expect) => assert.equal(quantile.quantile(before, after, q), expect);
  check(buckets(0, 0, 0, 0), buckets(0, 0, 0, 0), 0.99, null);
  check(buckets(50, 50, 50, 50), buckets(150, 150, 150, 150), 0.5, 0.0005);
  check(buckets(0, 0, 0, 0), buckets(0, 0, 0, 7), 0.99, 0.1);
});
