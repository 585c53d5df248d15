/** Plays one conformance script. */
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { createServer } from "node:net";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Limina, type Message } from "limina";
import { actOn, call, describeGuard, isGuard, outcome, type AnyGuard } from "./calls.js";
import { mismatch, substitute, type Variables } from "./match.js";
import type { Proxy } from "./proxy.js";

export interface Script {
  name: string;
  tags?: string[];
  needs?: string[];
  client?: { timeout_ms?: number; retries?: number; token?: string; closed_port?: boolean };
  steps: Record<string, any>[];
}

export async function play(script: Script, server: string, proxy: Proxy): Promise<void> {
  await proxy.steer("DELETE", "/faults");
  await proxy.steer("DELETE", "/requests");
  const player = await Player.create(script, server, proxy);
  try {
    for (const [place, step] of script.steps.entries()) {
      await player.step(step).catch((error: unknown) => {
        throw new Error(`step ${place + 1}, ${JSON.stringify(step)}: ${(error as Error).message}`, { cause: error });
      });
    }
  } finally {
    await player.end();
  }
}

class Player {
  readonly #variables: Variables = new Map();
  readonly #guards = new Map<string, AnyGuard>();
  readonly #started = new Map<string, Promise<Record<string, unknown>>[]>();
  readonly #followed = new Map<string, Followed>();

  static async create({ client: { timeout_ms, retries, token, closed_port } = {} }: Script, server: string, proxy: Proxy) {
    const namespace = `ns-${randomUUID()}`;
    const url = closed_port ? await closedPort() : proxy.url;
    const client = new Limina(url, {
      namespace,
      // The scripts test retries, also of a server that is slow or fails often.
      breaker: false,
      ...(timeout_ms !== undefined && { timeout: timeout_ms }),
      ...(retries !== undefined && { retries }),
      ...(token !== undefined && { token }),
    });
    return new Player(client, namespace, server, proxy);
  }

  private constructor(
    readonly client: Limina,
    readonly namespace: string,
    readonly server: string,
    readonly proxy: Proxy,
  ) {
    this.#variables.set("$ns", namespace).set("$ns2", `${namespace}-2`);
  }

  async step(step: Record<string, any>): Promise<void> {
    if ("server" in step) return this.#compare(step, () => this.#askServer(step));
    if ("fault" in step) return this.proxy.steer("POST", "/faults", [step["fault"]].flat().map((fault) => this.#absolute(fault)));
    if ("open" in step) return this.proxy.steer("POST", `/gates/${step["open"]}`);
    if ("call" in step) return this.#check(step["expect"] ?? { value: {} }, await this.#start(step));
    if ("start" in step) return this.#startAll(step);
    if ("join" in step) return this.#check(step["expect"] ?? {}, await Promise.all(this.#started.get(step["join"])!));
    if ("on" in step) return this.#onGuard(step);
    if ("follow" in step) return void this.#followed.set(step["as"], new Followed(this.client, this.#fill(step)));
    if ("next" in step) return this.#next(step);
    if ("requests" in step) return this.#compare(step, () => this.#requests(step["requests"]));
    if ("clear" in step) return this.proxy.steer("DELETE", "/requests");
    throw new Error("the script has an unknown step");
  }

  async end(): Promise<void> {
    await this.proxy.steer("DELETE", "/faults");
    for (const followed of this.#followed.values()) followed.stop();
    for (const guard of this.#guards.values()) await guard[Symbol.asyncDispose]();
  }

  async #askServer({ server, body }: Record<string, any>): Promise<unknown> {
    const [method, path] = this.#fill(server as string).split(" ") as [string, string];
    const headers = { "Content-Type": "application/json" };
    const init = body === undefined ? { method } : { method, headers, body: JSON.stringify(this.#fill(body)) };
    const response = await fetch(`${this.server}/v1/ns/${this.namespace}${path}`, init);
    const text = await response.text();
    return { status: response.status, body: text === "" ? null : JSON.parse(text) };
  }

  #start({ call: name, with: fields, as, namespace }: Record<string, any>): Promise<Record<string, unknown>> {
    const client = namespace === undefined ? this.client : this.client.with({ namespace: this.#fill(namespace as string) });
    const result = call(client, name, this.#fill(fields ?? {}));
    return outcome(
      result.then((value) => {
        if (as !== undefined && isGuard(value)) this.#guards.set(as, value);
        return value ?? {};
      }),
    );
  }

  /** The client takes every call synchronously, so nothing is to be waited for. */
  #startAll({ start, as }: Record<string, any>): void {
    const calls = start.flatMap((one: Record<string, any>) => Array.from({ length: one["times"] ?? 1 }, () => this.#start(one)));
    this.#started.set(as, calls);
  }

  async #onGuard(step: Record<string, any>): Promise<void> {
    const guard = this.#guards.get(step["on"]);
    assert(guard, `there is no guard ${step["on"]}`);
    if (!("do" in step)) return this.#compare(step, async () => describeGuard(guard));
    const result = actOn(guard, step["do"], this.#fill(step["with"] ?? {})).then((value) => value ?? {});
    this.#check(step["expect"] ?? { value: {} }, await outcome(result));
  }

  async #next({ next, expect }: Record<string, any>): Promise<void> {
    const followed = this.#followed.get(next)!;
    if (!Array.isArray(expect)) return this.#check(expect, await outcome(followed.next()));
    for (const message of expect) this.#check({ value: message }, await outcome(followed.next()));
  }

  async #requests(pattern: string): Promise<unknown> {
    const [method, path] = pattern.split(" ") as [string, string];
    const wanted = glob(path.startsWith("/") ? `/v1/ns/${this.namespace}${path}` : path);
    const all: any[] = await this.proxy.steer("GET", "/requests");
    return all.filter((request) => request.method === method && wanted.test(request.path));
  }

  /** Compares, and with `await` repeats until it is as expected. */
  async #compare({ expect, await: repeat }: Record<string, any>, look: () => Promise<unknown>): Promise<void> {
    if (expect === undefined) return void (await look());
    for (const deadline = Date.now() + 30_000; ; await sleep(20)) {
      const variables: Variables = new Map(this.#variables);
      const found = mismatch(expect, await look(), variables);
      if (found === undefined) return variables.forEach((value, name) => this.#variables.set(name, value));
      if (!repeat || Date.now() > deadline) throw new Error(found);
    }
  }

  #check(expect: unknown, actual: unknown): void {
    const found = mismatch(expect, actual, this.#variables);
    if (found !== undefined) throw new Error(found);
  }

  #absolute(fault: Record<string, any>): Record<string, any> {
    return "path" in fault ? { ...fault, path: `/v1/ns/${this.namespace}${this.#fill(fault["path"])}` } : fault;
  }

  #fill<T>(part: T): T {
    return substitute(part, this.#variables);
  }
}

/** A stream that is being followed from the start, whether or not somebody takes its messages. */
class Followed {
  readonly #abort = new AbortController();
  readonly #messages: AsyncGenerator<Message, void, undefined>;
  #ahead: Promise<unknown> | undefined;

  constructor(client: Limina, { follow, after }: Record<string, any>) {
    this.#messages = client.events.follow(follow, { signal: this.#abort.signal, ...(after !== undefined && { after }) });
    this.#ahead = this.#take();
  }

  next(): Promise<unknown> {
    const message = this.#ahead ?? this.#take();
    this.#ahead = undefined;
    return message;
  }

  stop(): void {
    this.#abort.abort();
  }

  #take(): Promise<unknown> {
    const message = this.#messages.next().then(({ value, done }) => (done ? assert.fail("the stream has ended") : value));
    message.catch(() => {}); // It is looked at when the script asks for it.
    return message;
  }
}

async function closedPort(): Promise<string> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  return `http://127.0.0.1:${port}`;
}

function glob(pattern: string): RegExp {
  return new RegExp(`^${pattern.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`);
}
