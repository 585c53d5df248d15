// The screen of refusals: a live list, and a panel that explains one of them.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { clock, number } from "../format";
import { decode, encode } from "../json";
import { print } from "../keyvalues";
import { missed, refusals, refusalFailure, refusalState, refusedBy, useRefusals, type Seen } from "../live";
import { change, param } from "../route";
import { Name, Pairs } from "../text";
import type { Refusal } from "../types";
import { Badge, Empty, FailureNote, Filter, Loading, None, Screen, Table } from "../ui";
import { causeLink } from "./now";
import { Why } from "./why";

/** More rows than this are not rendered until somebody asks. */
const ROWS = 100;

export function Refusals() {
  useEffect(useRefusals, []);
  /** What was there when somebody pressed pause. */
  const frozen = useSignal<Seen[] | null>(null);
  const shown = useSignal(ROWS);
  const q = param("q").toLowerCase();
  const family = param("family");
  const all = frozen.value ?? refusals.value;
  const found = all.filter((refusal) => (!family || refusal.family === family) && (!q || searchText(refusal).includes(q)));
  const newest = refusals.value[0]?.id ?? -1;
  const waiting = frozen.value ? newest - (frozen.value[0]?.id ?? -1) : 0;
  const asked = readWhy();
  const isPaused = frozen.value !== null;
  return (
    <Screen
      title="Refusals"
      lead={
        <>
          <span class={refusalState.value === "live" ? (isPaused ? "dot paused" : "dot live") : "dot bad"} />{" "}
          {refusalState.value === "connecting" ? "Connecting." : refusalState.value === "lost" ? "The connection is lost." : isPaused ? "Paused." : "Live."} What was refused
          in this namespace, the newest first. The server remembers the last 1,000 of each node.
          {missed.value && " Some came too fast to be shown."}
        </>
      }
      tools={
        <>
          <Filter name="q" placeholder="Filter by rule or value" />
          <select aria-label="Family" value={family} onChange={(event) => change({ family: event.currentTarget.value || undefined }, "replace")}>
            <option value="">All families</option>
            {["limiter", "locks", "ledger", "events", "decisions"].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
          <button data-pause aria-pressed={isPaused} onClick={() => (frozen.value = isPaused ? null : refusals.value)}>
            {isPaused ? (waiting > 0 ? `Resume (${number(waiting)} new)` : "Resume") : "Pause"}
          </button>
        </>
      }
    >
      {refusalFailure.value && <FailureNote of={refusalFailure.value} what="the refusals of this namespace" />}
      <div class={asked ? "with-panel" : ""}>
        <div>
          {found.length > 0 ? (
            <section class="card flush">
              <Table
                label="Refusals"
                rows={found.slice(0, shown.value)}
                rowKey={(refusal) => String(refusal.id)}
                open={(refusal) => change({ why: whyText(refusal) })}
                columns={[
                  { head: "When", cell: (refusal) => <span class="figures">{clock(refusal.time, true)}</span> },
                  { head: "Refused by", cell: (refusal) => <Name text={refusedBy(refusal)} href={causeLink(refusal)} /> },
                  {
                    head: "For",
                    wide: true,
                    cell: (refusal) =>
                      <Subject of={refusal} />,
                  },
                  // The panel says the code, and needs the room.
                  ...(asked ? [] : [{ head: "Code", cell: (refusal: Seen) => <Badge tone="bad">{refusal.code}</Badge> }]),
                  {
                    head: "",
                    align: "right",
                    cell: (refusal) => (
                      <button class="small" onClick={() => change({ why: whyText(refusal) })}>
                        Why?
                      </button>
                    ),
                  },
                ]}
              />
              <div class="pager">
                {found.length > shown.value ? (
                  <button onClick={() => (shown.value += ROWS)}>
                    Show {number(Math.min(ROWS, found.length - shown.value))} more of {number(found.length)}
                  </button>
                ) : (
                  `${number(found.length)} ${found.length === 1 ? "refusal" : "refusals"}`
                )}
              </div>
            </section>
          ) : (
            refusalState.value === "connecting" ? <Loading /> : refusalState.value === "live" &&
            (all.length > 0 ? (
              <Empty title="No refusal matches the filter" />
            ) : (
              <Empty title="Nothing has been refused">This page stays connected: a refusal appears here the moment it happens.</Empty>
            ))
          )}
        </div>
        {asked && <Why key={encode(asked)} refusal={asked} />}
      </div>
    </Screen>
  );
}

function Subject({ of: { key_values, operation_id } }: { of: Refusal }) {
  if (key_values === null && operation_id === null) return <None />;
  return (
    <span class="subject">
      {operation_id !== null && <Name text={operation_id} />}
      {key_values && <Pairs of={key_values} />}
    </span>
  );
}

function searchText(refusal: Refusal): string {
  const { code, family, operation_id, key_values } = refusal;
  return `${code} ${family} ${refusedBy(refusal)} ${operation_id ?? ""} ${key_values ? print(key_values) : ""}`.toLowerCase();
}

/** A refusal as the parameter `why` of this screen. */
export const whyText = ({ time, family, code, rule, limit_name, stream, key_values, operation_id }: Refusal) =>
  encode(Object.fromEntries(Object.entries({ time, family, code, rule, limit_name, stream, key_values, operation_id }).filter(([, value]) => value !== null)));

/** The refusal that the panel explains. It is whole in the URL, so that the link works after the server has forgotten it. */
function readWhy(): Refusal | null {
  try {
    const { time, family, code, rule, limit_name, stream, key_values, operation_id } = decode(param("why"));
    const text = (value: unknown) => (typeof value === "string" ? value : null);
    return {
      time: Number(time),
      namespace: "",
      family: String(family),
      code: String(code),
      rule: text(rule),
      limit_name: text(limit_name),
      stream: text(stream),
      key_values: typeof key_values === "object" && key_values ? key_values : null,
      operation_id: text(operation_id),
    };
  } catch {
    return null;
  }
}
