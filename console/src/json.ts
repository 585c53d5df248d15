// JSON without loss. JavaScript's numbers would round integers beyond 2^53 and turn 1.0 into 1, which is another key-value: an
// override made from a row must bear exactly the value of the row.

/** A number whose text JavaScript would change. It calculates like a number and prints as the server wrote it. */
export class Exact {
  constructor(readonly source: string) {}
  valueOf(): number {
    return Number(this.source);
  }
  toString(): string {
    return this.source;
  }
}

export type Num = number | Exact;

type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

export function decode(text: string): any {
  const revive: Reviver = (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && context.source !== String(value)
      ? new Exact(context.source)
      : value;
  return JSON.parse(text, revive as (key: string, value: unknown) => unknown);
}

/** With `indent`, each member is on a line of its own. */
export function encode(value: unknown, indent = "", margin = ""): string {
  if (value instanceof Exact) return value.source;
  if (value === null || typeof value !== "object") return JSON.stringify(value) ?? "null";
  const inner = margin + indent;
  const [open, close, members] = Array.isArray(value)
    ? ["[", "]", value.map((item) => encode(item, indent, inner))]
    : [
        "{",
        "}",
        Object.entries(value)
          .filter(([, member]) => member !== undefined)
          .map(([key, member]) => `${JSON.stringify(key)}: ${encode(member, indent, inner)}`),
      ];
  if (members.length === 0) return open + close;
  if (indent === "") return open + members.join(", ") + close;
  return `${open}\n${inner}${members.join(`,\n${inner}`)}\n${margin}${close}`;
}
