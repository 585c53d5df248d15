// Serves the console while one works on it: bundles again when a source has changed, and hands every other request to a server.
//   node dev.mjs [PORT] [SERVER]      e.g. node dev.mjs 7071 http://127.0.0.1:7070
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, statSync } from "node:fs";
import { createServer, request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const port = Number(process.argv[2] ?? 7071);
const server = new URL(process.argv[3] ?? "http://127.0.0.1:7070");
const output = mkdtempSync(join(tmpdir(), "limina-console-"));
const build = fileURLToPath(new URL("build.mjs", import.meta.url));

// The same policy as the server's, so that a violation shows up here.
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; " +
  "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const TYPES = { "app.js": "text/javascript", "app.css": "text/css", "icon.svg": "image/svg+xml" };

const sources = fileURLToPath(new URL("src", import.meta.url));
let built = 0;

function rebuild() {
  const times = readdirSync(sources, { recursive: true }).map((name) => statSync(join(sources, name)).mtimeMs);
  if (Math.max(...times) <= built) return;
  built = Math.max(...times);
  execFileSync(process.execPath, [build, output], { stdio: "inherit" });
}

createServer((incoming, answer) => {
  const path = new URL(incoming.url, "http://console").pathname;
  if (path === "/") return answer.writeHead(307, { location: "/console" }).end();
  if (path === "/console" || path.startsWith("/console/")) {
    const name = path.slice("/console/".length);
    const type = TYPES[name];
    if (!type) rebuild();
    answer.writeHead(200, {
      "content-type": type ?? "text/html; charset=utf-8",
      "content-security-policy": POLICY,
      "cache-control": "no-store",
    });
    return answer.end(readFileSync(join(output, type ? name : "index.html")));
  }
  const headers = { ...incoming.headers, host: server.host };
  if (headers.origin) headers.origin = server.origin;
  const outgoing = request(new URL(incoming.url, server), { method: incoming.method, headers }, (reply) => {
    answer.writeHead(reply.statusCode, reply.headers);
    // A stream of events may have nothing to send for a while.
    answer.flushHeaders();
    reply.pipe(answer);
  });
  outgoing.on("error", (error) => answer.writeHead(502).end(String(error)));
  answer.on("close", () => outgoing.destroy());
  incoming.pipe(outgoing);
}).listen(port, "127.0.0.1", function () {
  console.log(`console on http://127.0.0.1:${this.address().port}/console, server ${server}`);
});
