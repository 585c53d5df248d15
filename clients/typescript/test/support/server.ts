/** Starts the real server for a test, on a port that it chooses, with data that is deleted afterwards. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

export interface Server {
  url: string;
  stop(): Promise<void>;
}

export async function startServer(...flags: string[]): Promise<Server> {
  const binary = process.env["LIMINA_BIN"];
  if (!binary) throw new Error("set LIMINA_BIN to the server's binary");
  const data = mkdtempSync(join(tmpdir(), "limina-ts-"));
  const child = spawn(binary, ["--listen", "127.0.0.1:0", "--data", data, "--shards", "4", ...flags], { stdio: ["ignore", "pipe", "pipe"] });
  const url = await firstMatch(child, /listening on (http:\/\/[\w.:]+)/);
  return {
    url,
    stop: async () => {
      child.kill("SIGKILL");
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      rmSync(data, { recursive: true, force: true });
    },
  };
}

/** Waits for a line of output, and goes on draining the output afterwards. */
export function firstMatch(child: ChildProcess, pattern: RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    const seen: string[] = [];
    for (const output of [child.stdout!, child.stderr!]) {
      createInterface(output).on("line", (line) => {
        seen.push(line);
        const found = pattern.exec(line);
        if (found) resolve(found[1]!);
      });
    }
    child.on("error", reject);
    child.on("exit", () => reject(new Error(`${child.spawnfile} ended early:\n${seen.join("\n")}`)));
  });
}
