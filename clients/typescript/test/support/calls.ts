/** The calls of conformance scripts, by name. Scripts have the names of the wire, and durations in milliseconds. */
import { Limina, LiminaError, type DecisionGuard, type Guard } from "limina";

type Fields = Record<string, any>;
export type AnyGuard = Guard<any> | DecisionGuard;

const CALLS: Record<string, (client: Limina, fields: Fields) => Promise<unknown>> = {
  check: (client, { key_values, idempotency_key, ...options }) =>
    client.check(key_values, { ...options, ...(idempotency_key && { idempotencyKey: idempotency_key }) }),
  wait: (client, { key_values, at_most_ms, ...options }) => client.wait(key_values, { ...options, atMost: at_most_ms }),
  counters: (client, { key_values, counters }) => client.counters.add(key_values, counters),
  lock: (client, { key_values, locks, ...options }) => client.lock(key_values ?? locks, durations(options)),
  lease: (client, { key_values, ...options }) => client.lease(key_values, durations(options)),
  decide: (client, request) => client.decide(durations(request)),
  "ledger.hold": (client, body) => client.ledger.hold(body as any),
  "ledger.commit": (client, body) => client.ledger.commit(body as any),
  "ledger.rollback": (client, body) => client.ledger.rollback(body as any),
  "ledger.values": (client, { limit_names, ...at }) => client.ledger.values(limit_names, at),
  "rules.create": (client, rule) => client.rules.create(rule as any),
  "rules.put": (client, { name, ...rule }) => client.rules.put(name, rule as any),
  "rules.patch": (client, { name, ...changes }) => client.rules.patch(name, changes),
  "rules.get": (client, { name }) => client.rules.get(name),
  "rules.delete": (client, { name }) => client.rules.delete(name),
  "rules.list": async (client) => ({ items: await all(client.rules.list()), next: null }),
  "events.put": (client, { stream, duration_ms, key_frame_every_ms, ...settings }) =>
    client.events.put(stream, {
      ...settings,
      duration: `${duration_ms}ms`,
      ...(key_frame_every_ms && { key_frame_every: `${key_frame_every_ms}ms` }),
    } as any),
  "events.submit": (client, { stream, event }) => client.events.submit(stream, event),
};

export function call(client: Limina, name: string, fields: Fields): Promise<unknown> {
  const found = CALLS[name];
  if (!found) throw new Error(`the script has an unknown call ${name}`);
  return found(client, fields);
}

export function isGuard(value: unknown): value is AnyGuard {
  return typeof value === "object" && value !== null && "fencingToken" in value;
}

export function describeGuard(guard: AnyGuard): Fields {
  const { lost, remainingMs, fencingToken, grant } = guard;
  return { lost, remaining_ms: remainingMs, fencing_token: fencingToken, limits: (grant as Fields)["limits"] };
}

export function actOn(guard: AnyGuard, action: string, fields: Fields): Promise<unknown> {
  const decision = guard as DecisionGuard;
  switch (action) {
    case "release":
      return guard.release();
    case "leave":
      return guard[Symbol.asyncDispose]();
    case "rollback":
      return decision.rollback();
    case "commit": {
      const checks = (fields["checks"] ?? []).map((check: Fields) => [check["name"], check["hits"]]);
      const holds = (fields["holds"] ?? []).map((hold: Fields) => [hold["limit_name"], hold["value"]]);
      return decision.commit(Object.fromEntries([...checks, ...holds]), { record: fields["record"] ?? false });
    }
    default:
      throw new Error(`the script has an unknown action ${action}`);
  }
}

/** What a call came to, in the form of the scripts. Errors that are not the client's own fail the test. */
export async function outcome(result: Promise<unknown>): Promise<Fields> {
  try {
    const value = await result;
    return { value: isGuard(value) ? describeGuard(value) : value };
  } catch (error) {
    if (!(error instanceof LiminaError)) throw error;
    const { name, code, status, retryAfterMs } = error;
    const { done, field, needs } = error as Fields;
    return { error: { kind: name, code, status, done, field, needs, retry_after_ms: retryAfterMs } };
  }
}

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const items: T[] = [];
  for await (const item of list) items.push(item);
  return items;
}

function durations({ ttl_ms, wait_ms, ...rest }: Fields): any {
  return { ...rest, ...(ttl_ms !== undefined && { ttl: ttl_ms }), ...(wait_ms !== undefined && { wait: wait_ms }) };
}
