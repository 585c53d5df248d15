// The first screen: rates, latencies and refusals of this moment.

import { useComputed } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { at, get, type Page } from "../api";
import { Chart } from "../chart";
import { bytes, clock, latency, number, rate } from "../format";
import { PAGE_OPENED, now, useData } from "../hooks";
import { print } from "../keyvalues";
import { refusals, refusalFailure, refusedBy, useRefusals } from "../live";
import { gauges, metricsFailure, samples, useMetrics } from "../metrics";
import { href } from "../route";
import { Name } from "../text";
import type { Cluster, Limit, Refusal } from "../types";
import { Account, Card, Empty, FailureNote, Screen } from "../ui";

export function Now() {
  useMetrics();
  useEffect(useRefusals, []);
  const known = samples.value;
  const last = known.at(-1);
  const cluster = useData("cluster", (signal) => get<Cluster>("/v1/cluster", signal), 5000);
  const x = useMemo(() => known.map((sample) => sample.time / 1000), [known]);
  const rates = useMemo(() => [known.map((s) => s.decisions), known.map((s) => s.refusals)], [known]);
  const times = useMemo(() => [known.map((s) => s.p99 && s.p99 * 1000), known.map((s) => s.append && s.append * 1000)], [known]);
  const nodes = cluster.data?.nodes ?? [];
  const shards = cluster.data?.shards ?? [];
  const closed = shards.filter((shard) => !shard.open).length;
  const isAway = metricsFailure.value !== null;
  return (
    <Screen
      title="Now"
      lead={
        <>
          <span class={isAway ? "dot bad" : "dot"} /> Figures of this node, every two seconds. The charts begin at {clock(PAGE_OPENED)}, when this page opened.
        </>
      }
    >
      {metricsFailure.value && <FailureNote of={metricsFailure.value} what="the metrics" />}
      <div class="kpis">
        <Figure name="Decisions" unit="/s" value={last ? rate(last.decisions) : "–"} />
        <Figure name="Refused" unit="/s" value={last ? rate(last.refusals) : "–"} tone={last && last.refusals > 0 ? "bad" : undefined} href={href("refusals")}>
          {last && last.decisions > 0 ? `${((100 * last.refusals) / last.decisions).toFixed(1)} % of decisions` : "nothing to refuse"}
        </Figure>
        <Figure name="Answer, p99" value={latency(last?.p99 ?? null)}>
          {last?.append != null ? `disk ${latency(last.append)}` : "last ten seconds"}
        </Figure>
        <Figure name={nodes.length === 1 ? "Node" : "Nodes"} value={cluster.data ? `${nodes.filter((n) => n.ready).length}/${nodes.length}` : "–"} href={href("cluster")} tone={closed > 0 || nodes.some((n) => !n.ready) ? "bad" : undefined}>
          {cluster.failure?.status === 403 ? "not for this token" : closed > 0 ? `${closed} shards are not open` : `${shards.length} shards open`}
        </Figure>
      </div>
      <div class="columns">
        <Card title="Decisions per second" note="Requests that ask: may this happen now? A batch counts once.">
          {known.length > 1 ? (
            <Chart
              x={x}
              ys={rates}
              lines={[
                { name: "all", color: "accent", fill: true },
                { name: "refused", color: "bad" },
              ]}
              format={rate}
            />
          ) : (
            <Waiting />
          )}
        </Card>
        <Card title="Latency, p99" note="Over the last ten seconds; gaps are times without requests.">
          {known.length > 1 ? (
            <Chart
              x={x}
              ys={times}
              lines={[
                { name: "answer", color: "accent" },
                { name: "append to disk", color: "muted", dash: true },
              ]}
              format={(ms) => `${rate(ms)} ms`}
            />
          ) : (
            <Waiting />
          )}
        </Card>
      </div>
      <div class="columns">
        <RefusedBy />
        <Fullest />
      </div>
      <Card title="On this node">
        <dl class="facts">
          {FACTS.map(([gauge, name, form, to]) => {
            const value = gauges.value[gauge];
            const text = value === undefined ? "–" : form(value);
            return (
              <div key={gauge}>
                <dt>{name}</dt>
                <dd class="figures">{to ? <a href={href(to)}>{text}</a> : text}</dd>
              </div>
            );
          })}
        </dl>
      </Card>
    </Screen>
  );
}

const FACTS: [string, string, (value: number) => string, string?][] = [
  ["limina_namespaces", "Namespaces", number],
  ["limina_limiter_rules", "Rules", number, "rules"],
  ["limina_limiter_groups", "Groups that count", number],
  ["limina_limiter_leases", "Slots held", number, "locks"],
  ["limina_locks_held", "Locks held", number, "locks"],
  ["limina_locks_waiting", "Waiting for a lock or slot", number, "locks"],
  ["limina_decisions_open", "Decisions open", number, "decisions"],
  ["limina_ledger_limits", "Ledger limits", number, "ledger"],
  ["limina_event_streams", "Streams", number, "streams"],
  ["limina_queue_depth", "Requests not answered yet", number],
  ["limina_memory_bytes", "Memory counted", bytes],
  ["limina_journal_bytes", "Journal", bytes],
];

function Figure({ name, value, unit, tone, href, children }: { name: string; value: string; unit?: string; tone?: "bad"; href?: string; children?: ComponentChildren }) {
  const inner = (
    <>
      <span class="kpi-name">{name}</span>
      <span class={`kpi-value ${tone ?? ""}`}>
        {value}
        {unit && value !== "–" && <small>{unit}</small>}
      </span>
      <span class="kpi-note">{children}</span>
    </>
  );
  return href ? (
    <a class="kpi" href={href}>
      {inner}
    </a>
  ) : (
    <div class="kpi">{inner}</div>
  );
}

function Waiting() {
  return <div class="waiting">The first points come in a few seconds.</div>;
}

/** Where a refusal leads: to the rule, the limit, the locks or the stream. */
export function causeLink(refusal: Refusal): string {
  if (refusal.rule) return href("rules", { rule: refusal.rule });
  if (refusal.limit_name) return href("ledger", { limit: refusal.limit_name });
  if (refusal.stream) return href("streams", { stream: refusal.stream });
  return href("locks", { q: refusal.key_values ? print(refusal.key_values) : undefined });
}

function RefusedBy() {
  const ranked = useComputed(() => {
    const counts = new Map<string, { count: number; recent: number; first: Refusal }>();
    for (const refusal of refusals.value) {
      const key = `${refusal.family} ${refusedBy(refusal)}`;
      const entry = counts.get(key) ?? { count: 0, recent: 0, first: refusal };
      entry.count++;
      if (now.value - refusal.time < 60_000) entry.recent++;
      counts.set(key, entry);
    }
    return [...counts.values()].sort((a, b) => b.count - a.count).slice(0, 8);
  });
  const all = refusals.value;
  const most = ranked.value[0]?.count ?? 1;
  return (
    <Card
      title="Refusals by rule"
      note={all.length > 0 ? `The last ${number(all.length)} in this namespace, since ${clock(all.at(-1)!.time)}.` : "In this namespace."}
      tools={<a href={href("refusals")}>All refusals</a>}
    >
      {refusalFailure.value && <FailureNote of={refusalFailure.value} what="the refusals of this namespace" />}
      {ranked.value.length === 0 && !refusalFailure.value && <Empty title="Nothing is being refused" />}
      <ol class="ranking">
        {ranked.value.map(({ count, recent, first }) => (
          <li key={`${first.family} ${refusedBy(first)}`}>
            <Name text={refusedBy(first)} href={causeLink(first)} />
            <span class="meter bad">
              <i style={{ width: `${(100 * count) / most}%` }} />
            </span>
            <span class="figures">
              <b>{number(count)}</b> <span class="quiet">{recent === 0 ? "" : recent === count ? "in a minute" : `${number(recent)} / min`}</span>
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Fullest() {
  const { data, failure } = useData("fullest", (signal) => get<Page<Limit>>(at`ledger/limits?order=used&limit=8`, signal), 4000);
  const limits = data?.items.filter((limit) => limit.ceiling !== null) ?? [];
  return (
    <Card title="Fullest ceilings" note="In this namespace, the nearest first." tools={<a href={href("ledger", { order: "used" })}>The ledger</a>}>
      {failure && <FailureNote of={failure} what="the ledger of this namespace" />}
      {data && limits.length === 0 && <Empty title="No limit has a ceiling" />}
      <ol class="ranking">
        {limits.map((limit) => (
          <li key={limit.name}>
            <Name text={limit.name} href={href("ledger", { limit: limit.name })} />
            <Account commit={limit.commit_value} hold={limit.hold_value} ceiling={limit.ceiling} />
            <span class="figures">
              <b>{number(limit.available ?? 0)}</b> <span class="quiet">free</span>
            </span>
          </li>
        ))}
      </ol>
    </Card>
  );
}
