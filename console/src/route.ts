// The address is the state: every screen, filter, page and open panel is in the URL, so that it can be sent to a colleague.
import { computed, signal } from "@preact/signals";

export type Params = Record<string, string | undefined>;

const ROOT = "/console";

function read(): { screen: string; params: Record<string, string> } {
  const { pathname, search } = window.location;
  const screen = pathname.slice(ROOT.length).replaceAll("/", "") || "now";
  return { screen, params: Object.fromEntries(new URLSearchParams(search)) };
}

export const route = signal(read());
export const screen = computed(() => route.value.screen);
/** A name that the browser would resolve as a part of the path counts as none: it is valid nowhere. */
export const namespace = computed(() => {
  const name = route.value.params.ns ?? "";
  return ["", ".", ".."].includes(name) ? "default" : name;
});

export const param = (name: string): string => route.value.params[name] ?? "";

/** The address of a screen in the same namespace. */
export function href(to: string, params: Params = {}): string {
  const all: Params = { ns: namespace.value === "default" ? undefined : namespace.value, ...params };
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(all)) if (value) query.set(name, value);
  const text = query.toString();
  return `${ROOT}/${to}${text && `?${text}`}`;
}

export function go(to: string, params: Params = {}): void {
  visit(href(to, params));
}

/** Changes parameters of this screen. Moving to another page or panel makes an entry in the history; typing does not. */
export function change(params: Params, history: "push" | "replace" = "push"): void {
  const { screen, params: now } = route.value;
  visit(href(screen, { ...now, ...params }), history);
}

export function visit(address: string, history: "push" | "replace" = "push"): void {
  if (address !== window.location.pathname + window.location.search) {
    if (history === "push") window.history.pushState(null, "", address);
    else window.history.replaceState(null, "", address);
  }
  route.value = read();
}

window.addEventListener("popstate", () => (route.value = read()));

/** Links within the console do not load the page again. */
document.addEventListener("click", (event) => {
  const link = (event.target as Element).closest?.("a");
  if (!link || link.target || event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const address = link.getAttribute("href") ?? "";
  if (!address.startsWith(`${ROOT}/`)) return;
  event.preventDefault();
  const from = screen.peek();
  visit(address);
  if (screen.peek() !== from) window.scrollTo(0, 0);
});
