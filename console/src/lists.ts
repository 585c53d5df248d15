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

/** So many pages are read before the older half of what is left is passed over, and so many halves. */
const MOST_PAGES = 50;
const MOST_HALVES = 16;

/**
 * The newest items of a list that the server sorts from the oldest on, at most `most`. A list that is too long to be read is
 * entered anew at the `middle` between a cursor and the newest item; `null` if there is none.
 */
export async function newest<T>(
  start: string,
  most: number,
  read: (after: string) => Promise<{ items: T[]; next: string | null }>,
  middle: (next: string) => string | null,
): Promise<{ items: T[]; isAll: boolean }> {
  let items: T[] = [];
  let next: string | null = start;
  for (let halves = 0; ; halves++) {
    let found: T[] = [];
    for (let pages = 0; next !== null && pages < MOST_PAGES; pages++) {
      const page: { items: T[]; next: string | null } = await read(next);
      found = [...found, ...page.items].slice(-most - 1);
      next = page.next;
    }
    // Behind a gap, older items are kept only if there are no newer ones.
    if (found.length > 0) items = found;
    const isRead: boolean = next === null;
    if (next !== null) next = halves < MOST_HALVES ? middle(next) : null;
    if (next === null) return { items: items.slice(-most), isAll: isRead && halves === 0 && items.length <= most };
  }
}
