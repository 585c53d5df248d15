// The screen of the audit: who changed what, the newest first.

import { get, type Page } from "../api";
import { moment, number } from "../format";
import { useData } from "../hooks";
import { encode } from "../json";
import { newest } from "../lists";
import { change, namespace, param } from "../route";
import { Json, Name, T } from "../text";
import type { AuditRecord } from "../types";
import { Badge, Empty, FailureNote, Filter, Loading, Screen, Table } from "../ui";

const RANGES: [string, string, number][] = [
  ["1h", "Last hour", 3_600_000],
  ["", "Last 24 hours", 86_400_000],
  ["7d", "Last 7 days", 7 * 86_400_000],
  ["all", "All", Infinity],
];
const MOST = 5000;
const ROWS = 200;

/** The server lists records from the oldest on. To show the newest first, the console reads all of the range, up to a bound. */
async function load(path: string, from: number, cursorNamespace: string, signal: AbortSignal): Promise<{ records: AuditRecord[]; isAll: boolean }> {
  // A cursor is TIME.POSITION.NUMBER.NAMESPACE, so reading can begin at a time.
  const start = Number.isFinite(from) ? `${from}.0.0.${cursorNamespace}` : "";
  const read = (after: string) => get<Page<AuditRecord>>(`${path}?limit=1000${after && `&after=${encodeURIComponent(after)}`}`, signal);
  const middle = (next: string) => {
    const [time, now] = [Number(next.split(".")[0]), Date.now()];
    return time + 1 < now ? `${Math.ceil((time + now) / 2)}.0.0.${cursorNamespace}` : null;
  };
  const { items, isAll } = await newest(start, MOST, read, middle);
  return { records: items.reverse(), isAll };
}

const key = (record: AuditRecord) => `${record.time}.${record.position}.${record.action}.${record.target}`;

export function Audit() {
  const range = RANGES.find(([word]) => word === param("range")) ?? RANGES[1];
  const isEverywhere = param("scope") === "all";
  const q = param("q").toLowerCase();
  const shown = Number(param("rows")) || ROWS;
  const path = isEverywhere ? "/v1/audit" : `/v1/ns/${encodeURIComponent(namespace.value)}/audit`;
  const { data, failure } = useData(`audit ${path} ${range[0]}`, (signal) => load(path, Date.now() - range[2], isEverywhere ? "default" : namespace.value, signal), 5000);
  const found = data?.records.filter((record) => !q || `${record.action} ${record.target} ${record.actor ?? ""} ${record.address ?? ""} ${record.namespace}`.toLowerCase().includes(q)) ?? [];
  const open = data?.records.find((record) => key(record) === param("record"));
  return (
    <Screen
      title="Audit"
      lead="Who changed what, from where. Every management action is recorded in the same step as the change."
      tools={
        <>
          <Filter name="q" placeholder="Filter by action or name" />
          <select aria-label="Range" value={range[0]} onChange={(event) => change({ range: event.currentTarget.value || undefined, record: undefined })}>
            {RANGES.map(([word, title]) => (
              <option key={word} value={word}>
                {title}
              </option>
            ))}
          </select>
          <button aria-pressed={isEverywhere} onClick={() => change({ scope: isEverywhere ? undefined : "all", record: undefined })}>
            All namespaces
          </button>
        </>
      }
    >
      {failure && <FailureNote of={failure} what="the audit" />}
      {!data && !failure && <Loading />}
      {data && found.length === 0 && <Empty title={q ? "No record matches" : "Nothing was changed in this time"}>Rules, overrides, limits, streams, forced releases and deletions are recorded here.</Empty>}
      {found.length > 0 && (
        <div class={open ? "with-panel" : ""}>
          <section class="card flush">
            <Table
              label="Audit"
              rows={found.slice(0, shown)}
              rowKey={key}
              chosen={open && key(open)}
              open={(record) => change({ record: key(record) })}
              columns={[
                { head: "When", cell: (record) => <span class="figures">{moment(record.time)}</span> },
                { head: "Who", cell: (record) => (record.actor == null ? <span class="quiet">{record.address == null ? "the server" : "no token"}</span> : <Name text={record.actor} />) },
                { head: "From", cell: (record) => <span class="quiet figures">{record.address ?? "–"}</span> },
                { head: "Did", cell: (record) => <Badge tone={/delete|force/.test(record.action) ? "bad" : "plain"}>{record.action.replaceAll("_", " ")}</Badge> },
                { head: "To", wide: true, cell: (record) => <Name text={record.target} /> },
                ...(isEverywhere ? [{ head: "Namespace", cell: (record: AuditRecord) => <Name text={record.namespace} /> }] : []),
              ]}
            />
            <div class="pager">
              {found.length > shown ? <button onClick={() => change({ rows: String(shown + ROWS) }, "replace")}>Show more of {number(found.length)}</button> : `${number(found.length)} records`}
              {!data!.isAll && ", the newest"}
            </div>
          </section>
          {open && <Record of={open} />}
        </div>
      )}
    </Screen>
  );
}

function Record({ of }: { of: AuditRecord }) {
  const changed = differences(of.before, of.after);
  return (
    <aside class="panel" aria-label="Record">
      <header>
        <div>
          <h2>{of.action.replaceAll("_", " ")}</h2>
          <p class="note">
            <Name text={of.target} /> at position {number(of.position)}
          </p>
        </div>
        <button data-close aria-label="Close" onClick={() => change({ record: undefined })}>
          ✕
        </button>
      </header>
      {changed.length > 0 && (
        <section class="step">
          <h3>What changed</h3>
          <dl class="diff">
            {changed.map(([name, before, after]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>
                  {before !== undefined && (
                    <del>
                      <T text={before} />
                    </del>
                  )}{" "}
                  {after !== undefined && (
                    <ins>
                      <T text={after} />
                    </ins>
                  )}
                </dd>
              </div>
            ))}
          </dl>
        </section>
      )}
      {of.before !== null && (
        <section class="step">
          <h3>Before</h3>
          <Json of={of.before} />
        </section>
      )}
      {of.after !== null && (
        <section class="step">
          <h3>After</h3>
          <Json of={of.after} />
        </section>
      )}
    </aside>
  );
}

function differences(before: any, after: any): [string, string | undefined, string | undefined][] {
  if (!before || !after) return [];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const text = (value: unknown) => (value === undefined ? undefined : encode(value));
  return names.map((name): [string, string | undefined, string | undefined] => [name, text(before[name]), text(after[name])]).filter(([, was, is]) => was !== is);
}
