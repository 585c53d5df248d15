/** Installs the package as a user would, without the frameworks that its middleware is for. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

test("the package has no dependencies, and every entry point loads", (context) => {
  const folder = mkdtempSync(join(tmpdir(), "limina-ts-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const run = (command: string, ...words: string[]) => execFileSync(command, words, { cwd: folder, encoding: "utf8" });

  const packed = run("npm", "pack", "--silent", "--ignore-scripts", fileURLToPath(new URL("../../../", import.meta.url))).trim();
  writeFileSync(join(folder, "package.json"), "{}");
  run("npm", "install", "--offline", "--silent", `./${packed}`);
  assert.equal(run("npm", "ls", "--all", "--parseable").trim().split("\n").length, 2, "the project itself and limina");
  const entries = ["limina", "limina/express", "limina/fastify", "limina/hono"];
  const load = `Promise.all(${JSON.stringify(entries)}.map((entry) => import(entry))).then((all) => console.log(all.map((one) => Object.keys(one).length > 0).join()))`;
  assert.equal(run("node", "-e", load).trim(), "true,true,true,true");
});
