/** Reads and follows a stream in a real browser, from a page of another origin, with a token. */
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { chromium } from "playwright-core";
import { Limina } from "limina";
import { startServer } from "../support/server.js";

test("a page of another origin reads and follows a stream", async () => {
  await using page = await servePage();
  await using tokens = makeTokens();
  const server = await startServer("--allow-origin", page.origin, "--tokens", tokens.file);
  const browser = await chromium.launch({ executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox"] });
  try {
    const limina = new Limina(server.url, { token: tokens.writer, namespace: "shop", timeout: "30s" });
    const { clock } = await limina.events.put("orders", { mode: "only_once", duration: "1d", key_frame_every: "24h" });
    await limina.events.submit("orders", "order 1");

    const tab = await browser.newPage();
    await tab.goto(page.origin);
    const arguments_ = { url: server.url, token: tokens.reader, clock };
    assert.deepEqual(await tab.evaluate(readStreams, arguments_), ["orders"]);
    assert.deepEqual(await tab.evaluate(firstMessages, arguments_), ["KEY_FRAME", "SUBMITTED_EVENT"]);
    assert.equal(await tab.evaluate(refusedWrite, arguments_), "Forbidden: shop/events:use");
    assert.equal(await tab.evaluate(redirected), "Invalid");
  } finally {
    await browser.close();
    await server.stop();
  }
});

interface Arguments {
  url: string;
  token: string;
  clock: number;
}

// The functions below run in the page, so they cannot use anything of this file.

async function readStreams({ url, token }: Arguments): Promise<string[]> {
  const { Limina }: typeof import("limina") = await import("/dist/index.js" as string);
  const names = [];
  for await (const stream of new Limina(url, { token, namespace: "shop", timeout: "30s" }).events.list()) names.push(stream.name);
  return names;
}

/** The first message of a stream from now on, and the first after a clock: that one needs the header `Last-Event-ID`. */
async function firstMessages({ url, token, clock }: Arguments): Promise<string[]> {
  const { Limina }: typeof import("limina") = await import("/dist/index.js" as string);
  const { events } = new Limina(url, { token, namespace: "shop", timeout: "30s" });
  const types = [];
  for (const options of [{}, { after: clock }]) {
    for await (const message of events.follow("orders", options)) {
      types.push(message.messageType);
      break;
    }
  }
  return types;
}

async function refusedWrite({ url, token }: Arguments): Promise<string> {
  const { Limina, Forbidden }: typeof import("limina") = await import("/dist/index.js" as string);
  const submitted = new Limina(url, { token, namespace: "shop", timeout: "30s" }).events.submit("orders", "order 2");
  return submitted.then(
    () => "submitted",
    (error: unknown) => (error instanceof Forbidden ? `Forbidden: ${error.needs}` : String(error)),
  );
}

/** The page's own server redirects every call. */
async function redirected(): Promise<string> {
  const { Limina }: typeof import("limina") = await import("/dist/index.js" as string);
  return new Limina(location.origin, { timeout: "30s" }).check({}).then(() => "allowed", (error: Error) => error.name);
}

/** A page without content, the files of the package below `/dist/`, and redirections from all calls of the API to a decision. */
async function servePage(): Promise<AsyncDisposable & { origin: string }> {
  const root = fileURLToPath(new URL("../../../", import.meta.url));
  const server = createServer(({ url = "/" }, response) => {
    if (url.startsWith("/v1/")) return void response.writeHead(307, { Location: "/decision" }).end();
    if (url === "/decision") return void response.setHeader("Content-Type", "application/json").end('{"allowed": true}');
    if (!/^\/dist\/\w+\.js$/.test(url)) return void response.setHeader("Content-Type", "text/html").end("<!doctype html>");
    response.setHeader("Content-Type", "text/javascript").end(readFileSync(root + url));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function makeTokens(): AsyncDisposable & { file: string; writer: string; reader: string } {
  const folder = mkdtempSync(join(tmpdir(), "limina-ts-"));
  const file = join(folder, "tokens.toml");
  const [writer, reader] = [newToken(), newToken()];
  writeFileSync(file, [entry("writer", writer, "shop/*:manage"), entry("page", reader, "shop/events:read")].join("\n"));
  return { file, writer, reader, [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true }) };
}

const newToken = () => `limina_${randomBytes(32).toString("base64url")}`;

function entry(name: string, token: string, right: string): string {
  const sha256 = createHash("sha256").update(token).digest("hex");
  return `[[token]]\nname = "${name}"\nsha256 = "${sha256}"\nallow = ["${right}"]\n`;
}
