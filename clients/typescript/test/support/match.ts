/** Compares outcomes with what a conformance script expects: see `clients/conformance/README.md`. */

export type Variables = Map<string, unknown>;

/** Why `actual` is not as expected, or `undefined` if it is. */
export function mismatch(expected: unknown, actual: unknown, variables: Variables, at = ""): string | undefined {
  const differs = `${at || "value"}: expected ${JSON.stringify(expected)}, got ${JSON.stringify(actual)}`;
  if (typeof expected === "string") return matchText(expected, actual, variables) ? undefined : differs;
  if (expected === null || typeof expected !== "object") return expected === (actual ?? null) ? undefined : differs;
  if (Array.isArray(expected)) {
    if (!Array.isArray(actual) || actual.length !== expected.length) return differs;
    return first(expected.map((item, place) => () => mismatch(item, actual[place], variables, `${at}[${place}]`)));
  }
  const special = Object.keys(expected).filter((name) => name.startsWith("$"));
  if (special.length > 0) return special.every((name) => matchSpecial(name, expected, actual, variables)) ? undefined : differs;
  if (actual === null || typeof actual !== "object") return differs;
  return first(
    Object.entries(expected).map(
      ([name, value]) => () => mismatch(value, (actual as Record<string, unknown>)[name], variables, `${at}.${name}`),
    ),
  );
}

/** Replaces the variables in a part of a script. */
export function substitute<T>(part: T, variables: Variables): T {
  if (typeof part === "string") {
    if (variables.has(part)) return variables.get(part) as T;
    return part.replace(/\$\w+/g, (name) => (variables.has(name) ? String(variables.get(name)) : name)) as T;
  }
  if (Array.isArray(part)) return part.map((item) => substitute(item, variables)) as T;
  if (part === null || typeof part !== "object") return part;
  return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, substitute(value, variables)])) as T;
}

function matchText(expected: string, actual: unknown, variables: Variables): boolean {
  if (/^\$\w+$/.test(expected) && !variables.has(expected)) {
    if (actual === null || actual === undefined) return false;
    variables.set(expected, actual);
    return true;
  }
  return JSON.stringify(substitute(expected, variables)) === JSON.stringify(actual);
}

function matchSpecial(name: string, expected: Record<string, any>, actual: any, variables: Variables): boolean {
  const value = expected[name];
  switch (name) {
    case "$gte":
      return typeof actual === "number" && actual >= value;
    case "$lte":
      return typeof actual === "number" && actual <= value;
    case "$length":
      return mismatch(value, actual?.length, variables) === undefined;
    case "$every":
      return Array.isArray(actual) && actual.every((item) => mismatch(value, item, variables) === undefined);
    case "$absent":
      return actual === null || actual === undefined;
    case "$set": {
      const left = [...actual];
      for (const item of value) {
        const found = left.findIndex((candidate) => mismatch(item, candidate, new Map(variables)) === undefined);
        if (found < 0) return false;
        left.splice(found, 1);
      }
      return left.length === 0;
    }
    default:
      throw new Error(`the script has an unknown form ${name}`);
  }
}

function first(checks: (() => string | undefined)[]): string | undefined {
  for (const check of checks) {
    const found = check();
    if (found !== undefined) return found;
  }
  return undefined;
}
