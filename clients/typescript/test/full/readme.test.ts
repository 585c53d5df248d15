/** Compiles the examples of the README, with all types checked, and runs them. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { after, before, test } from "node:test";
import ts from "typescript";
import { startServer, type Server } from "../support/server.js";

const PACKAGE = fileURLToPath(new URL("../../../", import.meta.url));
const FOLDER = `${PACKAGE}build/readme/`;

let server: Server;
before(async () => void (server = await startServer()));
after(() => server.stop());

test("the examples of the README", async (context) => {
  const readme = readFileSync(`${PACKAGE}README.md`, "utf8");
  const examples = [...readme.matchAll(/^```ts( decisions)?\n(.*?)^```$/gms)].map(([, needs, code]) => ({ needs, code: code! }));
  assert.ok(examples.length >= 6);
  rmSync(FOLDER, { recursive: true, force: true });
  mkdirSync(FOLDER, { recursive: true });
  const sources = examples.map(({ code }, place) => {
    const path = `${FOLDER}example${place + 1}.ts`;
    writeFileSync(path, code.replaceAll("http://localhost:7070", server.url).replace(".listen(3000)", ".listen(0)"));
    return path;
  });
  compile(sources);

  const known = (await (await fetch(`${server.url}/v1/decisions`)).json()) as { code?: string };
  for (const [place, { needs, code }] of examples.entries()) {
    const heading = code.split("\n").find((line) => line.startsWith("await")) ?? `example ${place + 1}`;
    await context.test(heading, async (context) => {
      if (needs && known.code === "NotFound") return context.skip("the server does not have decisions");
      // An example that listens for requests would run for ever.
      const run = `import(${JSON.stringify(sources[place]!.replace(/ts$/, "js"))}).then(() => process.exit())`;
      await promisify(execFile)(process.execPath, ["-e", run]);
    });
  }
});

function compile(sources: string[]): void {
  const options: ts.CompilerOptions = {
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2022.d.ts", "lib.esnext.disposable.d.ts", "lib.dom.d.ts"],
    module: ts.ModuleKind.NodeNext,
    strict: true,
    skipLibCheck: true,
    types: ["node"],
  };
  const program = ts.createProgram(sources, options);
  const { diagnostics } = program.emit();
  const messages = [...ts.getPreEmitDiagnostics(program), ...diagnostics].map(({ file, messageText }) => {
    return `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`;
  });
  assert.deepEqual(messages, []);
}
