// What surrounds every screen: navigation, namespaces, the token, and the keyboard.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { get, setToken, token, tokenWanted, type Page } from "./api";
import { useData } from "./hooks";
import { go, href, namespace, screen, visit } from "./route";
import { dark, toggleTheme } from "./theme";
import { T, visible } from "./text";
import type { Namespace } from "./types";
import { Dialogs, FailureNote, Message } from "./ui";

export const SCREENS: { id: string; title: string; key: string; icon: string }[] = [
  { id: "now", title: "Now", key: "n", icon: "M3 12h4l3-8 4 16 3-8h4" },
  { id: "refusals", title: "Refusals", key: "f", icon: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18M5.6 5.6l12.8 12.8" },
  { id: "try", title: "Try it", key: "t", icon: "M5 12l4 4L19 6" },
  { id: "rules", title: "Rules", key: "r", icon: "M4 6h16M4 12h10M4 18h6" },
  { id: "locks", title: "Slots and locks", key: "l", icon: "M6 11h12v9H6zM9 11V8a3 3 0 0 1 6 0v3" },
  { id: "ledger", title: "Ledger", key: "b", icon: "M5 20V10M12 20V4M19 20v-7" },
  { id: "decisions", title: "Decisions", key: "d", icon: "M12 3v6M12 9l-6 6v6M12 9l6 6v6" },
  { id: "streams", title: "Streams", key: "s", icon: "M3 8c3-3 6 3 9 0s6 3 9 0M3 16c3-3 6 3 9 0s6 3 9 0" },
  { id: "cluster", title: "Cluster", key: "c", icon: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z" },
  { id: "audit", title: "Audit", key: "a", icon: "M7 3h10v18H7zM10 8h4M10 12h4M10 16h2" },
];

const menuOpen = signal(false);
const helpOpen = signal(false);

export function Shell({ children }: { children: ComponentChildren }) {
  useKeyboard();
  const at = screen.value;
  useEffect(() => {
    menuOpen.value = false;
  }, [at]);
  return (
    <div class="shell" data-menu={menuOpen.value}>
      <a class="skip" href="#content">
        Skip to the content
      </a>
      <aside>
        <div class="brand">
          <a href={href("now")} class="logo">
            <svg viewBox="0 0 32 32" aria-hidden="true">
              <path d="M10 24V12a6 6 0 0 1 12 0v12M7 24h18" />
            </svg>
            Limina
          </a>
          <button class="menu" aria-label="Menu" aria-expanded={menuOpen.value} onClick={() => (menuOpen.value = !menuOpen.value)}>
            <svg viewBox="0 0 24 24" aria-hidden="true">
              <path d={menuOpen.value ? "M6 6l12 12M18 6L6 18" : "M4 7h16M4 12h16M4 17h16"} />
            </svg>
          </button>
        </div>
        <Namespaces />
        <nav aria-label="Screens">
          {SCREENS.map(({ id, title, icon, key }) => (
            <a key={id} href={href(id)} aria-current={at === id ? "page" : undefined} title={`g ${key}`}>
              <svg viewBox="0 0 24 24" aria-hidden="true">
                <path d={icon} />
              </svg>
              {title}
            </a>
          ))}
        </nav>
        <footer>
          <button class="link" onClick={toggleTheme}>
            {dark.value ? "Light" : "Dark"}
          </button>
          <button class="link" onClick={() => (helpOpen.value = true)}>
            Keys
          </button>
          <a href="/docs" target="_blank" rel="noreferrer">
            API
          </a>
          {token.value ? (
            <button class="link" onClick={() => setToken("")}>
              Forget token
            </button>
          ) : (
            <button class="link" onClick={() => (tokenWanted.value = true)}>
              Token
            </button>
          )}
        </footer>
      </aside>
      <main id="content" tabIndex={-1}>
        {children}
      </main>
      <Message />
      <Dialogs />
      {tokenWanted.value && <TokenDialog />}
      {helpOpen.value && <Help />}
    </div>
  );
}

/** The namespaces that the token may see. One that does not exist yet, or that is not listed, can be typed. */
function Namespaces() {
  const { data, failure } = useData("namespaces", (signal) => get<Page<Namespace>>("/v1/ns?limit=1000", signal), 15_000);
  const chosen = namespace.value;
  const names = data?.items.map((item) => item.namespace) ?? [];
  const enter = (name: string) => {
    if (!name || name === chosen) return;
    // The screen stays; what was open in the other namespace does not.
    visit(href(screen.peek(), { ns: name === "default" ? undefined : name }));
  };
  return (
    <div class="namespaces">
      <label for="namespace">Namespace</label>
      <input
        id="namespace"
        key={chosen}
        list="namespaces"
        defaultValue={chosen}
        spellcheck={false}
        autocomplete="off"
        onFocus={(event) => event.currentTarget.select()}
        onChange={(event) => enter(event.currentTarget.value.trim())}
        onKeyDown={(event) => event.key === "Enter" && event.currentTarget.blur()}
      />
      <datalist id="namespaces">
        {names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      <div class="namespace-list">
        {names.slice(0, 6).map((name) => (
          <button key={name} aria-pressed={name === chosen} onClick={() => enter(name)} title={visible(name)}>
            <T text={name} />
          </button>
        ))}
        {names.length > 6 && <span class="quiet">and {data?.next ? "more than 994" : names.length - 6} more: type a name</span>}
      </div>
      {failure && failure.status !== 401 && <FailureNote of={failure} what="the namespaces" />}
    </div>
  );
}

function TokenDialog() {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => element.current?.showModal(), []);
  return (
    <dialog ref={element} onClose={() => (tokenWanted.value = false)} aria-label="Token">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          setToken(String(new FormData(event.currentTarget).get("token")).trim());
        }}
      >
        <h2>{token.value ? "The server rejects this token" : "The server asks for a token"}</h2>
        <div class="dialog-body">
          <label class="field">
            <span>Token</span>
            <input name="token" type="password" placeholder="limina_…" autocomplete="off" required autofocus />
            <small>It stays in this tab and is forgotten when you close it. The console shows what the token may see.</small>
          </label>
        </div>
        <div class="dialog-actions">
          <button type="button" onClick={() => element.current?.close()}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Use it
          </button>
        </div>
      </form>
    </dialog>
  );
}

function Help() {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => element.current?.showModal(), []);
  const keys: [string, string][] = [
    ...SCREENS.map(({ key, title }): [string, string] => [`g ${key}`, title]),
    ["/", "filter"],
    ["j k", "next, previous row"],
    ["Enter", "open the row"],
    ["p", "pause what is live"],
    ["Esc", "close the panel"],
    ["?", "this list"],
  ];
  return (
    <dialog ref={element} onClose={() => (helpOpen.value = false)} aria-label="Keys">
      <form method="dialog">
        <h2>Keys</h2>
        <dl class="keys dialog-body">
          {keys.map(([key, does]) => (
            <div key={key}>
              <dt>
                {key.split(" ").map((part) => (
                  <kbd key={part}>{part}</kbd>
                ))}
              </dt>
              <dd>{does}</dd>
            </div>
          ))}
        </dl>
        <div class="dialog-actions">
          <button class="primary">Close</button>
        </div>
      </form>
    </dialog>
  );
}

function useKeyboard(): void {
  useEffect(() => {
    let isGoing = false;
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (event.key === "Escape" && target.matches("input")) return target.blur();
      if (target.matches("input, textarea, select")) return;
      const wasGoing = isGoing;
      isGoing = false;
      if (wasGoing) {
        const to = SCREENS.find(({ key }) => key === event.key);
        if (to) go(to.id);
      } else if (event.key === "g") isGoing = true;
      else if (event.key === "?") helpOpen.value = true;
      else if (event.key === "/") document.querySelector<HTMLElement>("main [data-filter]")?.focus();
      else if (event.key === "p") document.querySelector<HTMLElement>("[data-pause]")?.click();
      else if (event.key === "Escape") document.querySelector<HTMLElement>("[data-close]")?.click();
      else if (event.key === "j" && !target.closest("tbody")) document.querySelector<HTMLElement>("tbody tr")?.focus();
      else return;
      event.preventDefault();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
}
