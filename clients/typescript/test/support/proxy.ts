/** The faulty proxy of the conformance scripts: see `clients/conformance/README.md`. */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { firstMatch } from "./server.js";

export const CONFORMANCE = fileURLToPath(new URL("../../../../conformance/", import.meta.url));

export class Proxy {
  static async start(upstream: string): Promise<Proxy> {
    const child = spawn("python3", [`${CONFORMANCE}proxy.py`, "--upstream", new URL(upstream).host]);
    const { listen, control } = JSON.parse(await firstMatch(child, /^(\{.*\})$/));
    return new Proxy(`http://${listen}`, `http://${control}`, () => void child.stdin.end());
  }

  private constructor(
    readonly url: string,
    readonly control: string,
    readonly stop: () => void,
  ) {}

  async steer(method: string, path: string, body?: unknown): Promise<any> {
    const init = body === undefined ? { method } : { method, body: JSON.stringify(body) };
    const response = await fetch(this.control + path, init);
    const text = await response.text();
    if (!response.ok) throw new Error(`the proxy answered ${response.status}: ${text}`);
    return text === "" ? undefined : JSON.parse(text);
  }
}
