import type { ComponentChildren } from "preact";
import { rollBackDecision } from "../actions";
import { at, get } from "../api";
import { moment, number } from "../format";
import { useData } from "../hooks";
import { print } from "../keyvalues";
import { pageQuery } from "../lists";
import { change, go, href, param } from "../route";
import { Name, Pairs, T } from "../text";
import type { Decision, Page } from "../types";
import { Badge, Card, Command, Empty, Facts, FailureNote, Filter, Left, Loading, Pager, Screen, Since, Table, Use } from "../ui";
import { curl } from "./try";

export function Decisions() {
  const id = param("operation");
  return id ? <OneDecision key={id} id={id} /> : <OpenDecisions />;
}

function OpenDecisions() {
  const owner = param("owner");
  const older = param("older_than");
  const after = param("after");
  const { data, failure, at: time, reload } = useData(
    `decisions ${owner} ${older} ${after}`,
    (signal) => {
      const more = (owner && `&owner=${encodeURIComponent(owner)}`) + (older && `&older_than=${encodeURIComponent(older)}`);
      return get<Page<Decision>>(`${at`decisions?state=open`}&${pageQuery("", after)}${more}`, signal);
    },
    3000,
  );
  const isFiltered = owner !== "" || older !== "" || after !== "";
  return (
    <Screen
      title="Decisions"
      lead="One answer over limits, holds, locks and an event. These are open: not yet committed or rolled back."
      tools={
        <>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              const id = String(new FormData(event.currentTarget).get("id")).trim();
              if (id) go("decisions", { operation: id });
            }}
          >
            <input name="id" type="search" class="filter" placeholder="Open an operation id" aria-label="Open an operation id" spellcheck={false} autocomplete="off" />
          </form>
          <Filter name="owner" placeholder="Owner" reset={{ after: undefined }} />
          <select aria-label="Age" value={older} onChange={(event) => change({ older_than: event.currentTarget.value || undefined, after: undefined }, "replace")}>
            <option value="">Any age</option>
            <option value="10s">Older than 10 s</option>
            <option value="1m">Older than 1 min</option>
            <option value="1h">Older than 1 h</option>
          </select>
        </>
      }
    >
      {failure && (failure.status === 404 && failure.code === "NotFound" ? <Empty title="This server makes no decisions">Its version does not offer /v1/decisions.</Empty> : <FailureNote of={failure} what="the decisions of this namespace" />)}
      {!data && !failure && <Loading />}
      {data && data.items.length === 0 && (isFiltered ? <Empty title="No open decision matches" /> : <NoDecisions />)}
      {data && data.items.length > 0 && (
        <section class="card flush">
          <Table
            label="Open decisions"
            rows={data.items}
            rowKey={(decision) => decision.operation_id}
            open={(decision) => go("decisions", { operation: decision.operation_id })}
            columns={[
              { head: "Operation", wide: true, cell: (decision) => <Name text={decision.operation_id} href={href("decisions", { operation: decision.operation_id })} /> },
              { head: "Owner", cell: (decision) => (decision.owner ? <Name text={decision.owner} /> : <span class="quiet">–</span>) },
              { head: "Parts", cell: (decision) => <span class="marks">{parts(decision)}</span> },
              { head: "Since", cell: (decision) => (decision.held_ms === undefined ? "–" : <Since ms={decision.held_ms} at={time} />) },
              { head: "Expires in", cell: (decision) => (decision.expires_in_ms === null ? "–" : <Left ms={decision.expires_in_ms} of={decision.ttl_ms} at={time} />) },
              {
                head: "",
                align: "right",
                cell: (decision) => (
                  <button class="small danger-text" onClick={() => rollBackDecision(decision.operation_id, reload)}>
                    Roll back
                  </button>
                ),
              },
            ]}
          />
          <Pager next={data.next} count={data.items.length} what="decisions" />
        </section>
      )}
    </Screen>
  );
}

function NoDecisions() {
  const example = {
    operation_id: "req-1",
    ttl: "1m",
    checks: [{ key_values: { tenant: "acme" } }],
    holds: [{ limit_name: "budget/acme", value: 5, ceiling: 1000 }],
    create_missing: true,
  };
  return (
    <Empty title="No decision is open">
      <p>A decision takes from limits, holds in the ledger, locks and submits an event, all at one instant or not at all:</p>
      <Command text={curl(at`decisions`, example)} />
    </Empty>
  );
}

function parts(decision: Decision): ComponentChildren[] {
  const checks = new Set(decision.limits?.map((limit) => limit.check)).size;
  const count = (n: number, word: string) => n > 0 && <Badge key={word}>{n === 1 ? word : `${n} ${word}s`}</Badge>;
  return [count(checks, "check"), count(decision.values?.length ?? 0, "hold"), count(decision.locks?.length ?? 0, "lock"), count(decision.event ? 1 : 0, "event")];
}

const STATE: Record<Decision["state"], [string, "warn" | "accent" | "plain" | "bad"]> = {
  open: ["open", "warn"],
  committed: ["committed", "accent"],
  rolled_back: ["rolled back", "plain"],
  expired: ["expired", "bad"],
};

function OneDecision({ id }: { id: string }) {
  const { data, failure, at: time, reload } = useData(`decision ${id}`, (signal) => get<Decision>(at`decisions/${id}`, signal), 3000);
  const lead = <a href={href("decisions")}>← Open decisions</a>;
  if (!data)
    return (
      <Screen title="Decision" lead={lead}>
        {failure ? failure.status === 404 ? <Empty title="There is no such decision">An id that ended more than 24 hours ago and held nothing in the ledger is forgotten.</Empty> : <FailureNote of={failure} what="this decision" /> : <Loading />}
      </Screen>
    );
  const [word, tone] = STATE[data.state] ?? [data.state, "plain"];
  return (
    <Screen
      title={id}
      lead={lead}
      tools={
        data.state === "open" && (
          <button class="danger-text" onClick={() => rollBackDecision(id, reload)}>
            Roll back
          </button>
        )
      }
    >
      <Card>
        <Facts
          of={[
            ["State", <Badge key="s" tone={tone}>{word}</Badge>],
            ["Owner", data.owner ? <Name key="o" text={data.owner} /> : "–"],
            ["Position", data.position === null ? "–" : number(data.position)],
            ["Expires in", data.expires_in_ms === null ? "–" : <Left key="e" ms={data.expires_in_ms} of={data.ttl_ms} at={time} />],
          ]}
        />
      </Card>
      {data.limits && data.limits.length > 0 && (
        <Card title="Limits" flush>
          <Table
            label="Limits"
            rows={data.limits}
            rowKey={(limit) => `${limit.check} ${limit.rule} ${limit.override}`}
            columns={[
              { head: "Check", cell: (limit) => (typeof limit.check === "string" ? <Name text={limit.check} /> : <span class="quiet">no. {Number(limit.check) + 1}</span>) },
              { head: "Rule", cell: (limit) => <Name text={limit.rule ?? ""} href={href("rules", { rule: limit.rule ?? "" })} /> },
              { head: "Group", wide: true, cell: (limit) => <Pairs of={limit.group} /> },
              { head: "Use", cell: (limit) => <Use used={limit.used} limit={limit.limit} /> },
            ]}
          />
        </Card>
      )}
      {data.values && data.values.length > 0 && (
        <Card title="Ledger" note="The limits that it holds in, as they are now." flush>
          <Table
            label="Values"
            rows={data.values}
            rowKey={(value) => value.limit_name}
            columns={[
              { head: "Limit", wide: true, cell: (value) => <Name text={value.limit_name} href={href("ledger", { limit: value.limit_name })} /> },
              { head: "Committed", align: "right", cell: (value) => <span class="figures">{number(value.commit_value)}</span> },
              { head: "Held", align: "right", cell: (value) => <span class="figures">{number(value.hold_value)}</span> },
            ]}
          />
        </Card>
      )}
      {data.locks && data.locks.length > 0 && (
        <Card title="Locks">
          {data.locks.map((lock) => (
            <div key={print(lock.key_values)}>
              <Pairs of={lock.key_values} /> <Badge>{lock.mode}</Badge>
            </div>
          ))}
        </Card>
      )}
      {data.event && (
        <Card title="Event">
          <p>
            <T text={data.event.event} /> <span class="quiet">in</span> <Name text={data.event.stream} href={href("streams", { stream: data.event.stream })} /> {data.event.status && <Badge>{data.event.status}</Badge>}
            {data.event.publishes_at !== undefined && <span class="quiet"> due {moment(data.event.publishes_at)}</span>}
          </p>
        </Card>
      )}
    </Screen>
  );
}
