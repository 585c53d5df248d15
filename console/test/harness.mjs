// Starts servers and a browser, and runs tests one after the other.
import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const PROGRAM = process.env.LIMINA_BIN ?? "limina";
const BROWSER = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const SCREENSHOTS = process.env.LIMINA_SCREENSHOTS ?? join(ROOT, "target/console-screenshots");

const cleanups = [];
export async function cleanUp() {
  for (const cleanup of cleanups.reverse()) await cleanup();
}

/** Starts a program, and returns what its output says where it listens. */
function start(program, args, pattern, stream) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise((done) => child.once("exit", done));
  cleanups.push(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const lines = createInterface({ input: child[stream] });
  child[stream === "stdout" ? "stderr" : "stdout"].resume();
  return new Promise((done, failed) => {
    child.once("error", failed);
    child.once("exit", () => failed(new Error(`${program} ended before it listened`)));
    lines.on("line", (line) => {
      const found = pattern.exec(line);
      if (found) done(found[1]);
    });
  });
}

/** A server on new data. `tokens`: rights of tokens by their names; the result has the tokens by their names. */
export async function startServer(tokens) {
  const folder = mkdtempSync(join(tmpdir(), "limina-console-test-"));
  cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
  const args = ["serve", "--listen", "127.0.0.1:0", "--shards", "8", "--data", join(folder, "data")];
  const secrets = {};
  if (tokens) {
    let file = "";
    for (const [name, rights] of Object.entries(tokens)) {
      const printed = execFileSync(PROGRAM, ["token", "new", "--name", name, "--allow", ...rights], { encoding: "utf8" });
      const [secret, ...block] = printed.split("\n\n");
      secrets[name] = secret.trim();
      file += block.join("\n\n") + "\n";
    }
    writeFileSync(join(folder, "tokens.toml"), file);
    args.push("--tokens", join(folder, "tokens.toml"));
  }
  let url = await start(PROGRAM, args, /listening on (http:[^,\s]+)/, "stderr");
  // For a server that is older than the console: the files come from the sources.
  if (process.env.LIMINA_CONSOLE_DEV) {
    const dev = fileURLToPath(new URL("../dev.mjs", import.meta.url));
    url = await start(process.execPath, [dev, "0", url], /console on (http:.*)\/console/, "stdout");
  }
  return { url, secrets };
}

export async function startBrowser() {
  const browser = await chromium.launch({ executablePath: BROWSER, args: ["--no-sandbox"] });
  cleanups.push(() => browser.close());
  return browser;
}

/** What the browser complained about: errors of scripts, violations of the policy, dialogs that a script opened. */
export const complaints = [];

export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
  page.on("dialog", (dialog) => {
    complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("console", (message) => {
    // The browser reports every answer of 400 and more; the console shows those itself.
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) complaints.push(message.text());
  });
  return page;
}

const tests = [];
export const test = (name, run) => tests.push({ name, run });

/** Runs the tests whose names contain `part`, in order. Returns whether all passed. */
export async function runTests(page, part = "") {
  mkdirSync(SCREENSHOTS, { recursive: true });
  let failures = 0;
  const chosen = tests.filter(({ name }) => name.includes(part));
  for (const { name, run } of chosen) {
    const began = Date.now();
    try {
      await run();
      if (complaints.length > 0) throw new Error(complaints.splice(0).join("\n"));
      console.log(`ok    ${name} (${Date.now() - began} ms)`);
      await page().screenshot({ path: join(SCREENSHOTS, `flow-${name.replaceAll(/\W+/g, "-")}.png`) });
    } catch (error) {
      failures++;
      complaints.length = 0;
      console.log(`FAIL  ${name}\n${error.stack}`);
      const file = join(SCREENSHOTS, `failed-${name.replaceAll(/\W+/g, "-")}.png`);
      await page().screenshot({ path: file }).catch(() => {});
      console.log(`      ${file}`);
    }
  }
  console.log(failures === 0 ? `${chosen.length} tests passed` : `${failures} of ${chosen.length} tests failed`);
  return failures === 0 && chosen.length > 0;
}
