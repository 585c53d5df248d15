// Lists that the server orders by name can start anywhere: `after` is a name.

/** A name that sorts just before every name that begins with `prefix`. */
function before(prefix: string): string {
  const points = [...prefix];
  const last = points.pop()!.codePointAt(0)!;
  // U+D800 to U+DFFF are no characters.
  const previous = last === 0xe000 ? 0xd7ff : last - 1;
  // A control character is not valid in a name, and nothing that is valid lies before a space.
  if (previous < 0x20) return points.join("");
  return points.join("") + String.fromCodePoint(previous) + "\u{10ffff}";
}

/** The query string of a page of names that begin with `prefix`. */
export function pageQuery(prefix: string, after: string, limit = 100): string {
  const query = new URLSearchParams({ limit: String(limit) });
  const from = after || (prefix && before(prefix));
  if (from) query.set("after", from);
  return query.toString();
}

/** Cuts a page off where the names no longer begin with `prefix`. */
export function cut<T extends { name: string }>(page: { items: T[]; next: string | null }, prefix: string): { items: T[]; next: string | null } {
  if (!prefix) return page;
  const end = page.items.findIndex((item) => !item.name.startsWith(prefix) && item.name > prefix);
  const items = (end < 0 ? page.items : page.items.slice(0, end)).filter((item) => item.name.startsWith(prefix));
  return { items, next: end < 0 ? page.next : null };
}
