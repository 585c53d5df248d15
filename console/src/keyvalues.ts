// Key-values as text, in the notation of HTTPie and of the command line: `tenant=acme attempt:=3 beta:=true`.
import { Exact, decode, encode } from "./json";

export type KeyValue = string | number | boolean | Exact;
export type KeyValues = Record<string, KeyValue>;

const BARE_KEY = /^[^\s"=:{}]+$/;
const BARE_VALUE = /^[^\s"]+$/;

export function printPair(key: string, value: KeyValue): string {
  const name = BARE_KEY.test(key) ? key : JSON.stringify(key);
  if (typeof value !== "string") return `${name}:=${encode(value)}`;
  return `${name}=${BARE_VALUE.test(value) ? value : JSON.stringify(value)}`;
}

export function print(keyValues: KeyValues): string {
  return Object.entries(keyValues)
    .map(([key, value]) => printPair(key, value))
    .join(" ");
}

/** Throws an `Error` whose message says what is wrong. */
export function parse(text: string): KeyValues {
  const result: KeyValues = Object.create(null);
  let rest = text.trim();
  const quoted = (): string => {
    const match = /^"(?:[^"\\]|\\.)*"/.exec(rest);
    if (!match) throw new Error(`A quotation mark is not closed: ${rest}`);
    rest = rest.slice(match[0].length);
    try {
      return JSON.parse(match[0]);
    } catch {
      throw new Error(`This is not a string as in JSON: ${match[0]}`);
    }
  };
  const bare = (pattern: RegExp): string => {
    const match = pattern.exec(rest)?.[0] ?? "";
    rest = rest.slice(match.length);
    return match;
  };
  while (rest !== "") {
    const key = rest.startsWith('"') ? quoted() : bare(/^[^\s=:]+(?::(?!=)[^\s=:]*)*/);
    if (key === "") throw new Error(`A key is missing before: ${rest}`);
    if (rest.startsWith(":=")) {
      rest = rest.slice(2);
      const source = bare(/^\S*/);
      if (!/^(true|false|-?\d+(\.\d+)?([eE][-+]?\d+)?)$/.test(source))
        throw new Error(`After := comes a number, true or false, as in ${key}:=3. For text, write ${key}=${source}`);
      result[key] = decode(source);
      // A number at the top has no source text for some browsers.
      if (typeof result[key] === "number" && String(result[key]) !== source) result[key] = new Exact(source);
    } else if (rest.startsWith("=")) {
      rest = rest.slice(1);
      result[key] = rest.startsWith('"') ? quoted() : bare(/^\S*/);
    } else throw new Error(`Write ${key}=text, or ${key}:=3 for a number`);
    rest = rest.trimStart();
  }
  return { ...result };
}

export function same(a: KeyValues, b: KeyValues): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && contains(a, b);
}

/** Whether `all` has every key of `some`, with the same value. */
export function contains(all: KeyValues, some: KeyValues): boolean {
  return Object.entries(some).every(([key, value]) => Object.hasOwn(all, key) && encode(all[key]) === encode(value));
}

/** The selection that these key-values satisfy, and others that have them. */
export function selection(keyValues: KeyValues): Record<string, { eq: KeyValue }> {
  return Object.fromEntries(Object.entries(keyValues).map(([key, value]) => [key, { eq: value }]));
}
