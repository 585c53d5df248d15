// The parts that all screens are made of.
import { signal } from "@preact/signals";
import type { ComponentChildren, TargetedKeyboardEvent, TargetedSubmitEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, tokenWanted } from "./api";
import { duration, number } from "./format";
import { now, useDebounced } from "./hooks";
import type { Num } from "./json";
import { change, param } from "./route";
import { Lines, T, visible } from "./text";

export function Screen({ title, lead, tools, children }: { title: string; lead?: ComponentChildren; tools?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${visible(title)} · Limina`;
  }, [title]);
  return (
    <>
      <header class="head">
        <div>
          <h1>
            <T text={title} />
          </h1>
          {lead && <p class="lead">{lead}</p>}
        </div>
        {tools && <div class="tools">{tools}</div>}
      </header>
      {children}
    </>
  );
}

export function Card({ title, note, tools, children, flush }: { title?: ComponentChildren; note?: ComponentChildren; tools?: ComponentChildren; children: ComponentChildren; flush?: boolean }) {
  return (
    <section class={flush ? "card flush" : "card"}>
      {(title || tools) && (
        <div class="card-head">
          <div>
            {title && <h2>{title}</h2>}
            {note && <p class="note">{note}</p>}
          </div>
          {tools && <div class="tools">{tools}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

export function Badge({ tone = "plain", children }: { tone?: "plain" | "good" | "bad" | "warn" | "accent"; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** Nothing is here: says why, and what to do. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <svg viewBox="0 0 48 48" aria-hidden="true">
        <path d="M14 38V20a10 10 0 0 1 20 0v18" />
        <path d="M8 38h32" />
      </svg>
      <h3>{title}</h3>
      {children && <div>{children}</div>}
    </div>
  );
}

/** Why something cannot be shown. */
export function FailureNote({ of, what }: { of: Failure; what?: string }) {
  const subject = what ?? "this";
  if (of.status === 403)
    return (
      <div class="failure" role="alert">
        <b>Your token may not see {subject}.</b>{" "}
        {of.problem.needs && (
          <>
            It needs the right{" "}
            <code>
              <T text={String(of.problem.needs)} />
            </code>
            .
          </>
        )}
      </div>
    );
  if (of.status === 401)
    return (
      <div class="failure" role="alert">
        <b>The server asks for a token.</b>{" "}
        <button class="link" onClick={() => (tokenWanted.value = true)}>
          Enter one
        </button>
      </div>
    );
  return (
    <div class={of.status === 0 || of.status === 503 ? "failure passing" : "failure"} role="alert">
      <b>
        <T text={of.message} />
      </b>{" "}
      {of.status === 0 ? "Trying again." : <code>{of.code}</code>}
    </div>
  );
}

export function Loading() {
  return (
    <div class="loading" role="status" aria-label="Loading">
      <i />
      <i />
      <i />
    </div>
  );
}

export type Column<T> = { head: string; cell: (row: T) => ComponentChildren; align?: "right"; wide?: boolean; label?: string };

/** A table. On a phone, each row becomes a block with its columns' names. */
export function Table<T>({ columns, rows, rowKey, open, chosen, label }: { columns: Column<T>[]; rows: T[]; rowKey: (row: T) => string; open?: (row: T) => void; chosen?: string; label: string }) {
  const step = (event: TargetedKeyboardEvent<HTMLTableRowElement>, row: T) => {
    if (event.target !== event.currentTarget) return;
    const { key, currentTarget } = event;
    if (key === "Enter") open?.(row);
    else if (key === "ArrowDown" || key === "j") (currentTarget.nextElementSibling as HTMLElement | null)?.focus();
    else if (key === "ArrowUp" || key === "k") (currentTarget.previousElementSibling as HTMLElement | null)?.focus();
    else return;
    event.preventDefault();
  };
  return (
    <div class="table-box">
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.head} scope="col" class={column.align}>
                {column.head}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const key = rowKey(row);
            return (
              <tr
                key={key}
                tabIndex={0}
                class={`${open ? "opens" : ""} ${chosen === key ? "chosen" : ""}`}
                onKeyDown={(event) => step(event, row)}
                onClick={(event) => {
                  const inner = (event.target as Element).closest("a, button, input");
                  if (!inner && !window.getSelection()?.toString()) open?.(row);
                }}
              >
                {columns.map((column) => (
                  <td key={column.head} data-label={column.head} class={[column.align, column.wide && "wide"].filter(Boolean).join(" ")}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

/** The pages of a list. The cursor is in the URL, and the browser's Back leads to the page before. */
export function Pager({ next, count, what }: { next: string | null | undefined; count: number; what: string }) {
  const after = param("after");
  if (!next && !after) return <p class="pager">{count > 0 && `${number(count)} ${count === 1 ? what.replace(/s$/, "") : what}`}</p>;
  return (
    <nav class="pager" aria-label="Pages">
      {after && (
        <button onClick={() => change({ after: undefined })} title="Back to the first page">
          ⇤ First
        </button>
      )}
      <span>
        {number(count)} {what} on this page
      </span>
      {next && (
        <button onClick={() => change({ after: next })} data-next>
          Next →
        </button>
      )}
    </nav>
  );
}

/** A text field whose content is a parameter of the URL. */
export function Filter({ name, placeholder, reset = {} }: { name: string; placeholder: string; reset?: Record<string, undefined> }) {
  const value = param(name);
  const field = useRef<HTMLInputElement>(null);
  const apply = useDebounced((text) => change({ ...reset, [name]: text || undefined }, "replace"));
  useEffect(() => {
    if (field.current && document.activeElement !== field.current) field.current.value = value;
  }, [value]);
  return (
    <input
      ref={field}
      type="search"
      class="filter"
      data-filter
      defaultValue={value}
      placeholder={placeholder}
      aria-label={placeholder}
      spellcheck={false}
      autocomplete="off"
      onInput={(event) => apply(event.currentTarget.value)}
    />
  );
}

export function Tabs({ name, of }: { name: string; of: [value: string, title: ComponentChildren][] }) {
  const chosen = param(name) || of[0][0];
  return (
    <div class="tabs" role="tablist">
      {of.map(([value, title], n) => (
        <button
          key={value}
          role="tab"
          aria-selected={chosen === value}
          onClick={() => change({ [name]: n === 0 ? undefined : value, after: undefined, q: undefined })}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

/** How much of a limit is used. */
export function Use({ used, limit, label = true }: { used: Num; limit: Num; label?: boolean }) {
  const [amount, most] = [Number(used), Number(limit)];
  const part = most < 0 ? 0 : most === 0 ? 1 : Math.min(1, Math.max(0, amount / most));
  const tone = most >= 0 && amount >= most ? "full" : part >= 0.8 ? "near" : "";
  return (
    <span class="use">
      <span class={`meter ${tone}`} role="meter" aria-valuemin={0} aria-valuemax={most} aria-valuenow={amount}>
        <i style={{ width: `${100 * part}%` }} />
      </span>
      {label && (
        <span class="figures">
          <b>{number(used)}</b> / {most < 0 ? "∞" : number(limit)}
        </span>
      )}
    </span>
  );
}

/** A value that a row does not have. On a phone, such cells are left out. */
export function None() {
  return <span class="quiet none">–</span>;
}

/** How many requests wait, if any. */
export function Waiting({ of }: { of: { waiting: number } }) {
  return of.waiting > 0 ? <Badge tone="warn">{number(of.waiting)}</Badge> : <None />;
}

/** What a limit of the ledger has committed and held, below its ceiling. */
export function Account({ commit, hold, ceiling }: { commit: Num; hold: Num; ceiling: Num | null }) {
  const [committed, held] = [Math.max(0, Number(commit)), Math.max(0, Number(hold))];
  const top = Math.max(ceiling === null ? 0 : Number(ceiling), committed + held, 1);
  const isFull = ceiling !== null && committed + held >= Number(ceiling);
  return (
    <span class={`meter account ${ceiling === null ? "open" : isFull ? "full" : ""}`}>
      <i style={{ width: `${(100 * committed) / top}%` }} title={`committed ${number(commit)}`} />
      <i class="held" style={{ width: `${(100 * held) / top}%` }} title={`held ${number(hold)}`} />
    </span>
  );
}

/** Counts down from what the server said at `at`. */
export function Left({ ms, of, at }: { ms: number; of?: number; at: number }) {
  const left = Math.max(0, ms - (now.value - at));
  return (
    <span class="left">
      <span class="figures">{left === 0 ? "now" : duration(left < 1000 ? left : Math.ceil(left / 1000) * 1000)}</span>
      {of && (
        <span class="meter thin">
          <i style={{ width: `${Math.min(100, (100 * left) / of)}%` }} />
        </span>
      )}
    </span>
  );
}

export function Since({ ms, at }: { ms: number; at: number }) {
  return <span class="figures">{duration(Math.floor((ms + Math.max(0, now.value - at)) / 1000) * 1000)}</span>;
}

export function Copy({ text, children = "Copy" }: { text: string; children?: ComponentChildren }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <button class="small" onClick={() => void copy()}>
      {done ? "Copied" : children}
    </button>
  );
}

/** A command to copy. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <pre>
        <Lines text={text} />
      </pre>
      <Copy text={text} />
    </div>
  );
}

export function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>
            <T text={name} />
          </dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

// Messages that pass.

const message = signal("");
let messageTimer: ReturnType<typeof setTimeout>;

export function say(text: string): void {
  message.value = text;
  clearTimeout(messageTimer);
  messageTimer = setTimeout(() => (message.value = ""), 5000);
}

export function Message() {
  return (
    <div class="message" role="status" data-shown={message.value !== ""}>
      <T text={message.value} />
    </div>
  );
}

// Dialogs. One is open at most.

type Open = { title: string; body: ComponentChildren; action: string; danger?: boolean; run: (form: FormData) => Promise<void> };
const dialog = signal<Open | null>(null);

/** Asks before something is done. `run` may throw a `Failure`, which the dialog shows. */
export function ask(open: Open): void {
  dialog.value = open;
}

export function Dialogs() {
  const open = dialog.value;
  return open && <Dialog key={open.title} {...open} />;
}

function Dialog({ title, body, action, danger, run }: Open) {
  const element = useRef<HTMLDialogElement>(null);
  const [failure, setFailure] = useState<Failure | null>(null);
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    element.current?.showModal();
    // A destructive action is never the one that Enter chooses.
    const first = element.current?.querySelector<HTMLElement>(danger ? "[data-cancel]" : "input, [data-action]");
    first?.focus();
  }, []);
  const submit = async (event: TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    setBusy(true);
    try {
      await run(new FormData(event.currentTarget));
      dialog.value = null;
    } catch (error) {
      setFailure(error instanceof Failure ? error : new Failure(1, "Error", error instanceof Error ? error.message : String(error)));
      setBusy(false);
    }
  };
  return (
    <dialog ref={element} onClose={() => (dialog.value = null)} aria-label={title}>
      <form onSubmit={(event) => void submit(event)}>
        <h2>{title}</h2>
        <div class="dialog-body">{body}</div>
        {failure && <FailureNote of={failure} what="or do this" />}
        <div class="dialog-actions">
          <button type="button" data-cancel onClick={() => element.current?.close()}>
            Cancel
          </button>
          <button type="submit" data-action class={danger ? "danger" : "primary"} disabled={isBusy}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

export function Field({ name, label, hint, value, pattern }: { name: string; label: string; hint?: string; value?: string; pattern?: string }) {
  return (
    <label class="field">
      <span>{label}</span>
      <input name={name} defaultValue={value} pattern={pattern} required spellcheck={false} autocomplete="off" />
      {hint && <small>{hint}</small>}
    </label>
  );
}
