// The screen of the ledger: limits, the history of a limit, and the life of an operation.

import { useMemo } from "preact/hooks";
import { changeCeiling, rollBackOperation } from "../actions";
import { at, call, get, type Page } from "../api";
import { Chart } from "../chart";
import { clock, duration, moment, number } from "../format";
import { useData } from "../hooks";
import { cut, newest, pageQuery } from "../lists";
import { change, go, href, param } from "../route";
import { Name, T } from "../text";
import type { Entry, Limit, Operation, OperationHold, ValuesReply } from "../types";
import { Account, Badge, Card, Command, Empty, Facts, FailureNote, Filter, Left, Loading, None, Pager, Screen, Table, Tabs } from "../ui";
import { curl } from "./try";

export function Ledger() {
  const limit = param("limit");
  const operation = param("operation");
  if (operation) return <OneOperation key={operation} id={operation} />;
  if (limit) return <OneLimit key={limit} name={limit} />;
  const isOperations = param("tab") === "operations";
  return (
    <Screen
      title="Ledger"
      lead="What is committed, what is held, and how much is left below each ceiling."
      tools={
        isOperations ? (
          <Filter key="operations" name="limit_name" placeholder="Holds in the limit…" reset={{ after: undefined }} />
        ) : (
          <>
            <Filter key="limits" name="q" placeholder="Names that begin with…" reset={{ after: undefined, order: undefined }} />
            <button aria-pressed={param("order") === "used"} onClick={() => change({ order: param("order") ? undefined : "used", after: undefined, q: undefined })}>
              Fullest first
            </button>
          </>
        )
      }
    >
      <Tabs
        name="tab"
        of={[
          ["limits", "Limits"],
          ["operations", "Open operations"],
        ]}
      />
      {isOperations ? <OpenOperations /> : <AllLimits />}
    </Screen>
  );
}

export function AccountLegend() {
  return (
    <p class="legend">
      <span class="swatch accent">committed</span>
      <span class="swatch held">held</span>
      <span class="swatch rest">free below the ceiling</span>
    </p>
  );
}

function AllLimits() {
  const prefix = param("q");
  const after = param("after");
  const isUsed = param("order") === "used";
  const { data, failure } = useData(
    `limits ${prefix} ${after} ${isUsed}`,
    async (signal) => {
      if (isUsed) return get<Page<Limit>>(at`ledger/limits?order=used&limit=100`, signal);
      return cut(await get<Page<Limit>>(`${at`ledger/limits`}?${pageQuery(prefix, after)}`, signal), prefix);
    },
    3000,
  );
  if (failure && !data) return <FailureNote of={failure} what="the ledger of this namespace" />;
  if (!data) return <Loading />;
  if (data.items.length === 0)
    return prefix || after ? (
      <Empty title="No limit matches" />
    ) : (
      <Empty title="The ledger of this namespace is empty">
        <p>This creates a limit with a ceiling. Operations can then hold and commit in it.</p>
        <Command text={curl(at`ledger/limits`, { name: "card-1/daily", ceiling: 1000 })} />
      </Empty>
    );
  return (
    <section class="card flush">
      {failure && <FailureNote of={failure} />}
      <Table
        label="Limits"
        rows={data.items}
        rowKey={(limit) => limit.name}
        open={(limit) => go("ledger", { limit: limit.name })}
        columns={[
          { head: "Limit", wide: true, cell: (limit) => <Name text={limit.name} href={href("ledger", { limit: limit.name })} /> },
          { head: "Committed, held", cell: (limit) => <Account commit={limit.commit_value} hold={limit.hold_value} ceiling={limit.ceiling} /> },
          { head: "Committed", align: "right", cell: (limit) => <span class="figures">{number(limit.commit_value)}</span> },
          { head: "Held", align: "right", cell: (limit) => (Number(limit.hold_value) ? <span class="figures">{number(limit.hold_value)}</span> : <None />) },
          { head: "Ceiling", align: "right", cell: (limit) => <span class="figures">{limit.ceiling === null ? <span class="quiet">none</span> : number(limit.ceiling)}</span> },
          { head: "Free", align: "right", cell: (limit) => <b class="figures">{limit.available === null ? "∞" : number(limit.available)}</b> },
        ]}
      />
      <AccountLegend />
      <Pager next={isUsed ? null : data.next} count={data.items.length} what="limits" />
    </section>
  );
}

function OpenOperations() {
  const limit = param("limit_name");
  const after = param("after");
  const { data, failure, reload } = useData(
    `operations ${limit} ${after}`,
    (signal) => get<Page<Operation>>(`${at`ledger/operations?state=held`}&${pageQuery("", after)}${limit && `&limit_name=${encodeURIComponent(limit)}`}`, signal),
    3000,
  );
  if (failure && !data) return failure.status === 404 ? <Empty title="There is no such limit" /> : <FailureNote of={failure} what="the operations of this namespace" />;
  if (!data) return <Loading />;
  if (data.items.length === 0) return <Empty title="Nothing is held">An operation is open from its hold until it is committed, rolled back or expires.</Empty>;
  return (
    <section class="card flush">
      <Table
        label="Open operations"
        rows={data.items}
        rowKey={(operation) => operation.operation_id}
        open={(operation) => go("ledger", { operation: operation.operation_id })}
        columns={[
          { head: "Operation", wide: true, cell: (operation) => <Name text={operation.operation_id} href={href("ledger", { operation: operation.operation_id })} /> },
          { head: "Holds", cell: (operation) => <Holds of={operation.holds} /> },
          { head: "Since", cell: (operation) => <span class="figures">{moment(Math.min(...operation.holds.map((hold) => hold.held_at)))}</span> },
          { head: "Expires", cell: (operation) => <Expiry of={operation.holds} /> },
          {
            head: "",
            align: "right",
            cell: (operation) => (
              <button class="small danger-text" onClick={() => rollBackOperation(operation.operation_id, reload)}>
                Roll back
              </button>
            ),
          },
        ]}
      />
      <Pager next={data.next} count={data.items.length} what="operations" />
    </section>
  );
}

function Holds({ of }: { of: OperationHold[] }) {
  return (
    <>
      {of.slice(0, 3).map((hold) => (
        <div key={`${hold.limit_name} ${hold.hold_position}`}>
          <b class="figures">{number(hold.held_value)}</b> <span class="quiet">in</span> <Name text={hold.limit_name} href={href("ledger", { limit: hold.limit_name })} />
        </div>
      ))}
      {of.length > 3 && <span class="quiet">and {of.length - 3} more</span>}
    </>
  );
}

function Expiry({ of }: { of: OperationHold[] }) {
  const times = of.map((hold) => hold.expires_at).filter((time) => time !== null);
  return times.length === 0 ? <span class="quiet">never</span> : <Left ms={Math.min(...times)} at={0} />;
}

const MOST_ENTRIES = 5000;
const FEW_ENTRIES = 100;

type Past = {
  entries: Entry[];
  /** Whether these are all entries of the limit. */
  isAll: boolean;
};

/** The newest entries of a limit. The server lists entries from any position on, so the console looks back over more and more
 * positions until there are enough entries. */
async function history(limit: Limit, signal: AbortSignal): Promise<Past> {
  const created = Number(limit.created_position);
  const latest = Number((await call<ValuesReply>("POST", at`ledger/values`, { limit_names: [limit.name] }, signal)).position);
  for (let span = MOST_ENTRIES; ; span *= 10) {
    const start = Math.max(created, latest - span);
    const read = (after: string) => get<Page<Entry>>(`${at`ledger/limits/${limit.name}/entries`}?${pageQuery("", after, 1000)}`, signal);
    const middle = (next: string) => (Number(next) + 1 < latest ? String(Math.ceil((Number(next) + latest) / 2)) : null);
    const { items: entries, isAll } = await newest(String(start), MOST_ENTRIES, read, middle);
    if (entries.length >= FEW_ENTRIES || start === created) return { entries, isAll: isAll && start === created };
  }
}

function OneLimit({ name }: { name: string }) {
  const { data, failure, reload } = useData(`limit ${name}`, (signal) => get<Limit>(at`ledger/limits/${name}`, signal), 3000);
  const past = useData(data ? `entries ${name} ${data.commit_value} ${data.hold_value}` : null, (signal) => history(data!, signal));
  if (!data)
    return (
      <Screen title="Limit" lead={<a href={href("ledger")}>← All limits</a>}>
        {failure ? failure.status === 404 ? <Empty title="There is no such limit" /> : <FailureNote of={failure} what="this limit" /> : <Loading />}
      </Screen>
    );
  return (
    <Screen title={name} lead={<a href={href("ledger")}>← All limits</a>} tools={<button onClick={() => changeCeiling(data, reload)}>Change ceiling</button>}>
      <Card>
        <div class="account-large">
          <Account commit={data.commit_value} hold={data.hold_value} ceiling={data.ceiling} />
        </div>
        <AccountLegend />
        <Facts
          of={[
            ["Committed", <b key="c" class="figures">{number(data.commit_value)}</b>],
            ["Held", <b key="h" class="figures">{number(data.hold_value)}</b>],
            ["Ceiling", data.ceiling === null ? "none" : number(data.ceiling)],
            ["Free", data.available === null ? "∞" : number(data.available)],
            ...(data.limit_id !== null ? [["Id", <Name key="i" text={data.limit_id} />] as [string, preact.JSX.Element]] : []),
            ...Object.entries(data.context).map(([key, value]): [string, preact.JSX.Element] => [key, <T key={key} text={value} />]),
          ]}
        />
      </Card>
      {past.failure && <FailureNote of={past.failure} what="the history of this limit" />}
      {past.data && past.data.entries.length === 0 && <Empty title="Nothing has happened in this limit yet" />}
      {past.data && past.data.entries.length > 0 && <History limit={data} entries={past.data.entries} isAll={past.data.isAll} />}
    </Screen>
  );
}

function History({ limit, entries, isAll }: { limit: Limit; entries: Entry[]; isAll: boolean }) {
  const [first, last] = [isAll ? Number(limit.created_position) : Number(entries[0].position), Number(entries.at(-1)!.position)];
  const wanted = Number(param("position")) || 0;
  const position = wanted ? Math.min(last, Math.max(first, wanted)) : last;
  const values = useData(`values ${limit.name} ${position}`, async (signal) => {
    const reply = await call<ValuesReply>("POST", at`ledger/values`, { limit_names: [limit.name], position }, signal);
    return reply.values[0];
  });
  // The lines begin where the limit was made, with nothing in it.
  const drawn = useMemo(() => [...(isAll ? [{ position: first, total_value: 0, commit_value: 0 }] : []), ...thin(entries)], [entries]);
  const x = useMemo(() => drawn.map((entry) => Number(entry.position)), [drawn]);
  const ys = useMemo(
    () => [drawn.map((e) => Number(e.total_value)), drawn.map((e) => Number(e.commit_value)), ...(limit.ceiling === null ? [] : [drawn.map(() => Number(limit.ceiling))])],
    [drawn, limit.ceiling],
  );
  const upTo = entries.filter((entry) => Number(entry.position) <= position);
  const shown = upTo.slice(-25).reverse();
  return (
    <>
      <Card title="As of a position" note="Every change of the namespace has a position. Move the slider to see the values as they were; the address keeps the position.">
        <Chart
          x={x}
          ys={ys}
          isTime={false}
          mark={position}
          lines={[
            { name: "committed + held", color: "held", step: true, fill: true },
            { name: "committed", color: "accent", step: true, fill: true },
            ...(limit.ceiling === null ? [] : [{ name: "ceiling", color: "bad" as const, dash: true }]),
          ]}
          format={(value) => number(value)}
        />
        <div class="slider">
          <button aria-label="One entry back" onClick={() => step(entries, position, -1)}>
            ←
          </button>
          <input
            type="range"
            min={first}
            max={last}
            value={position}
            aria-label="Position"
            onInput={(event) => change({ position: Number(event.currentTarget.value) === last ? undefined : event.currentTarget.value }, "replace")}
          />
          <button aria-label="One entry on" onClick={() => step(entries, position, 1)}>
            →
          </button>
        </div>
        <div class="as-of">
          <span>
            Position <b class="figures">{number(position)}</b>
            {position === last && <span class="quiet"> (the latest here)</span>}
            {upTo.length > 0 && <span class="quiet">, {moment(upTo.at(-1)!.time)}</span>}
          </span>
          {values.data && (
            <>
              <span>
                committed <b class="figures">{number(values.data.commit_value)}</b>
              </span>
              <span>
                held <b class="figures">{number(values.data.hold_value)}</b>
              </span>
              <Account commit={values.data.commit_value} hold={values.data.hold_value} ceiling={limit.ceiling} />
            </>
          )}
          {values.failure && <FailureNote of={values.failure} what="these values" />}
        </div>
      </Card>
      <Card title="Entries" note={isAll ? `${number(entries.length)} in all, the newest up to this position first.` : `The newest ${number(entries.length)}; the limit has older ones.`} flush>
        {shown.length === 0 && <Empty title="Nothing had happened in this limit yet" />}
        <Table
          label="Entries"
          rows={shown}
          rowKey={(entry) => `${entry.position} ${entry.operation_id}`}
          open={(entry) => change({ position: String(entry.position) }, "replace")}
          chosen={`${shown[0]?.position} ${shown[0]?.operation_id}`}
          columns={[
            { head: "Position", align: "right", cell: (entry) => <span class="figures">{number(entry.position)}</span> },
            { head: "When", cell: (entry) => <span class="figures">{moment(entry.time)}</span> },
            { head: "What", cell: (entry) => <Badge tone={ENTRY_TONE[entry.type] ?? "plain"}>{entry.type}</Badge> },
            { head: "Operation", wide: true, cell: (entry) => <Name text={entry.operation_id} href={href("ledger", { operation: entry.operation_id })} /> },
            { head: "Value", align: "right", cell: (entry) => <span class="figures">{number(entry.value)}</span> },
            { head: "Committed", align: "right", cell: (entry) => <span class="figures">{number(entry.commit_value)}</span> },
            { head: "Held", align: "right", cell: (entry) => <span class="figures">{number(entry.hold_value)}</span> },
          ]}
        />
        <p class="pager">{upTo.length > 25 && "Move the slider for older ones."}</p>
      </Card>
    </>
  );
}

const ENTRY_TONE: Record<string, "plain" | "good" | "bad" | "warn" | "accent"> = { hold: "warn", commit: "accent", rollback: "plain", expiry: "bad", overage: "bad" };

/** A chart has room for some hundred points. */
function thin(entries: Entry[]): Entry[] {
  const every = Math.ceil(entries.length / 800);
  return entries.filter((_, n) => n % every === 0 || n === entries.length - 1);
}

function step(entries: Entry[], position: number, by: 1 | -1): void {
  const positions = entries.map((entry) => Number(entry.position));
  const to = by > 0 ? positions.find((p) => p > position) : positions.findLast((p) => p < position);
  if (to !== undefined) change({ position: to === positions.at(-1) ? undefined : String(to) }, "replace");
}

function OneOperation({ id }: { id: string }) {
  const { data, failure, reload } = useData(
    `operation ${id}`,
    async (signal) => {
      const operation = await get<Operation>(at`ledger/operations/${id}`, signal);
      // The end's time is in the entries of one of its limits.
      const ended = operation.holds.find((hold) => hold.final_position !== null && !hold.deleted);
      let endedAt: number | null = null;
      if (ended) {
        const after = String(Number(ended.final_position) - 1);
        try {
          const page = await get<Page<Entry>>(`${at`ledger/limits/${ended.limit_name}/entries`}?${pageQuery("", after, 1)}`, signal);
          if (Number(page.items[0]?.position) === Number(ended.final_position)) endedAt = page.items[0].time;
        } catch {
          // The life is shown without the time of its end.
        }
      }
      return { operation, endedAt };
    },
    3000,
  );
  const lead = <a href={href("ledger", { tab: "operations" })}>← Open operations</a>;
  if (!data)
    return (
      <Screen title="Operation" lead={lead}>
        {failure ? failure.status === 404 ? <Empty title="There is no such operation" /> : <FailureNote of={failure} what="this operation" /> : <Loading />}
      </Screen>
    );
  const { operation, endedAt } = data;
  const isOpen = operation.state === "held";
  return (
    <Screen
      title={id}
      lead={lead}
      tools={
        isOpen && (
          <button class="danger-text" onClick={() => rollBackOperation(id, reload)}>
            Roll back
          </button>
        )
      }
    >
      <Card title="Its life" note={`${operation.holds.length} ${operation.holds.length === 1 ? "limit" : "limits"}, all changed together or none.`}>
        <Life holds={operation.holds} endedAt={endedAt} />
      </Card>
      <Card title="In its limits" flush>
        <Table
          label="Holds"
          rows={operation.holds}
          rowKey={(hold) => `${hold.limit_name} ${hold.hold_position}`}
          columns={[
            {
              head: "Limit",
              wide: true,
              cell: (hold) => (
                <>
                  <Name text={hold.limit_name} href={hold.deleted ? undefined : href("ledger", { limit: hold.limit_name, position: String(hold.hold_position) })} /> {hold.deleted && <Badge>deleted since</Badge>}
                </>
              ),
            },
            { head: "State", cell: (hold) => <StateBadge of={hold} /> },
            { head: "Held", align: "right", cell: (hold) => <span class="figures">{number(hold.held_value)}</span> },
            { head: "Committed", align: "right", cell: (hold) => (hold.committed_value === null ? <None /> : <span class="figures">{number(hold.committed_value)}</span>) },
            { head: "Held at", cell: (hold) => <span class="figures">{moment(hold.held_at)}</span> },
            { head: "Expires", cell: (hold) => (hold.state === "held" ? <Expiry of={[hold]} /> : <None />) },
          ]}
        />
      </Card>
    </Screen>
  );
}

function StateBadge({ of }: { of: OperationHold }) {
  if (of.state === "held") return <Badge tone="warn">held</Badge>;
  if (of.state === "committed") return <Badge tone="accent">committed</Badge>;
  return <Badge tone={of.expired ? "bad" : "plain"}>{of.expired ? "expired" : "rolled back"}</Badge>;
}

function Life({ holds, endedAt }: { holds: OperationHold[]; endedAt: number | null }) {
  const held = holds.reduce((first, hold) => (hold.hold_position < first.hold_position ? hold : first), holds[0]);
  const ends = [...new Map(holds.filter((hold) => hold.final_position !== null).map((hold) => [hold.final_position, hold])).values()];
  const open = holds.filter((hold) => hold.state === "held");
  return (
    <ol class="life">
      <li class="done">
        <b>Held</b>
        <span class="figures">{moment(held.held_at)}</span>
        <span class="quiet">position {number(held.hold_position)}</span>
      </li>
      {ends.map((end) => (
        <li key={end.final_position} class={end.state === "committed" ? "done" : "done undone"}>
          <b>{end.state === "committed" ? "Committed" : end.expired ? "Expired" : "Rolled back"}</b>
          {endedAt !== null && (
            <span class="figures">
              {clock(endedAt)}, after {duration(endedAt - held.held_at)}
            </span>
          )}
          <span class="quiet">position {number(end.final_position!)}</span>
        </li>
      ))}
      {open.length > 0 && (
        <li class="open">
          <b>Open</b>
          <span>
            {open.some((hold) => hold.expires_at !== null) ? (
              <>
                expires in <Expiry of={open} />
              </>
            ) : (
              "until somebody commits it or rolls it back"
            )}
          </span>
        </li>
      )}
    </ol>
  );
}
