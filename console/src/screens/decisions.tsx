// The screen of decisions: open and ended ones, those that were refused, and the parts of one decision.

import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { endWait, rollBackDecision } from "../actions";
import { at, Failure, get, type Page } from "../api";
import { clock, duration, moment, number } from "../format";
import { useData } from "../hooks";
import { print } from "../keyvalues";
import { refusals, refusalState, refusedBy, useRefusals } from "../live";
import { pageQuery } from "../lists";
import { change, go, href, param } from "../route";
import { Name, Pairs } from "../text";
import type { Decision, Refusal } from "../types";
import { Badge, Card, Command, Empty, FailureNote, Filter, Left, Loading, None, Pager, Screen, Since, Table, Use, Waiting } from "../ui";
import { causeLink } from "./now";
import { whyText } from "./refusals";
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
      {failure && <FailureNote of={failure} what="the decisions of this namespace" />}
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
              { head: "Owner", cell: (decision) => (decision.owner ? <Name text={decision.owner} /> : <None />) },
              { head: "Parts", cell: (decision) => <span class="marks">{parts(decision)}</span> },
              { head: "Since", cell: (decision) => <Since ms={decision.held_ms} at={time} /> },
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
      <RefusedLately />
    </Screen>
  );
}

/** How many refused decisions are shown here; the screen of refusals has all of them. */
const REFUSED = 10;

function RefusedLately() {
  useEffect(useRefusals, []);
  const refused = refusals.value.filter((refusal) => refusal.family === "decisions");
  if (refused.length === 0) return null;
  return (
    <Card title="Refused lately" note="A refused decision leaves nothing behind, and its id is free." tools={<a href={href("refusals", { family: "decisions" })}>All of them</a>} flush>
      <Table
        label="Refused decisions"
        rows={refused.slice(0, REFUSED)}
        rowKey={(refusal) => String(refusal.id)}
        open={openWhy}
        columns={[
          { head: "When", cell: (refusal) => <span class="figures">{clock(refusal.time, true)}</span> },
          { head: "Operation", wide: true, cell: (refusal) => <Name text={refusal.operation_id ?? ""} /> },
          { head: "Refused by", cell: (refusal) => <Name text={refusedBy(refusal)} href={causeLink(refusal)} /> },
          { head: "Code", cell: (refusal) => <Badge tone="bad">{refusal.code}</Badge> },
          {
            head: "",
            align: "right",
            cell: (refusal) => (
              <button class="small" onClick={() => openWhy(refusal)}>
                Why?
              </button>
            ),
          },
        ]}
      />
    </Card>
  );
}

const openWhy = (refusal: Refusal) => go("refusals", { family: "decisions", why: whyText(refusal) });

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
  const checks = new Set(decision.limits.map((limit) => limit.check)).size;
  const count = (n: number, word: string) => n > 0 && <Badge key={word}>{n === 1 ? word : `${n} ${word}s`}</Badge>;
  return [count(checks, "check"), count(decision.values.length, "hold"), count(decision.locks.length, "lock"), count(decision.event ? 1 : 0, "event")];
}

/** The decision; `waiting` if a request under the id waits; `null` if the server knows nothing of the id. The page goes on asking in
 * both cases: the decision may be made at any moment. */
async function find(id: string, signal: AbortSignal): Promise<Decision | "waiting" | null> {
  try {
    return await get<Decision>(at`decisions/${id}`, signal);
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 404) throw error;
    return error.problem.state === "waiting" ? "waiting" : null;
  }
}

function OneDecision({ id }: { id: string }) {
  const { data, failure, at: time, reload } = useData(`decision ${id}`, (signal) => find(id, signal), 1000);
  const lead = <a href={href("decisions")}>← Open decisions</a>;
  if (data === undefined)
    return (
      <Screen title="Decision" lead={lead}>
        {failure ? <FailureNote of={failure} what="this decision" /> : <Loading />}
      </Screen>
    );
  if (data === null)
    return (
      <Screen title={id} lead={lead}>
        <Unknown id={id} />
      </Screen>
    );
  const isOpen = data === "waiting" || data.state === "open";
  return (
    <Screen
      title={id}
      lead={lead}
      tools={
        isOpen && (
          <button class="danger-text" onClick={() => (data === "waiting" ? endWait : rollBackDecision)(id, reload)}>
            {data === "waiting" ? "End the wait" : "Roll back"}
          </button>
        )
      }
    >
      {data === "waiting" ? <Queued /> : <Made decision={data} at={time} />}
    </Screen>
  );
}

/** Why there is no decision under the id: it was refused, or never asked for, or has been forgotten. */
function Unknown({ id }: { id: string }) {
  useEffect(useRefusals, []);
  const refusal = refusals.value.find((candidate) => candidate.family === "decisions" && candidate.operation_id === id);
  if (!refusal && refusalState.value === "connecting") return <Loading />;
  if (!refusal) return <Empty title="There is no such decision">An id that ended more than 24 hours ago and held nothing in the ledger is forgotten.</Empty>;
  return (
    <>
      <div class="banner no" role="status">
        <strong>It was refused.</strong>
        <span>
          At {moment(refusal.time)}, by <Name text={refusedBy(refusal)} href={causeLink(refusal)} />. Nothing of it has moved, and the id is free.
        </span>
      </div>
      <p>
        <button onClick={() => openWhy(refusal)}>Why?</button>
      </p>
    </>
  );
}

function Queued() {
  return (
    <Card title="Its life" note="It holds nothing while it waits. It is made as soon as its slots and locks are free, or refused at the end of its wait.">
      <ol class="life">
        <li class="open">
          <b>Waiting</b>
          <span>for slots or locks, in order of arrival</span>
        </li>
        <li class="later">
          <b>Decided</b>
          <span class="quiet">this page will show it</span>
        </li>
      </ol>
    </Card>
  );
}

const ENDED = { committed: "Committed", rolled_back: "Rolled back", expired: "Expired" };

function Life({ decision, at: time }: { decision: Decision; at: number }) {
  const { state, held_ms, position, fencing_token, expires_in_ms, ttl_ms } = decision;
  const isEnded = state === "committed" || state === "rolled_back" || state === "expired";
  return (
    <ol class="life">
      <li class="done">
        <b>Decided</b>
        {!isEnded && (
          <span class="figures">
            {moment(time - held_ms)}, <Since ms={held_ms} at={time} /> ago
          </span>
        )}
        {fencing_token !== null && <span class="quiet">position {number(fencing_token)}, its fencing token</span>}
      </li>
      {isEnded ? (
        <li class={state === "committed" ? "done" : "done undone"}>
          <b>{ENDED[state]}</b>
          <span class="figures">after {duration(held_ms)}</span>
          {position !== null && <span class="quiet">position {number(position)}</span>}
          {decision.late && <span class="quiet">recorded late: it had ended before</span>}
        </li>
      ) : (
        <li class="open">
          <b>Open</b>
          {expires_in_ms !== null && (
            <span>
              without a heartbeat, expires in <Left ms={expires_in_ms} of={ttl_ms} at={time} />
            </span>
          )}
        </li>
      )}
    </ol>
  );
}

function Made({ decision, at: time }: { decision: Decision; at: number }) {
  const { operation_id, state, owner, limits, values, locks, event } = decision;
  const isOpen = state === "open";
  return (
    <>
      <Card
        title="Its life"
        note={
          owner === null ? (
            "All of its parts began at one instant, and end at one instant."
          ) : (
            <>
              Made by <Name text={owner} />. All of its parts began at one instant, and end at one instant.
            </>
          )
        }
      >
        <Life decision={decision} at={time} />
      </Card>
      {limits.length > 0 && (
        <Card title="Limits" note={isOpen ? "What it takes from, as it is now." : "What it took from, as it stood when the decision ended."} flush>
          <Table
            label="Limits"
            rows={limits}
            rowKey={(limit) => `${limit.check} ${limit.rule} ${limit.override}`}
            columns={[
              { head: "Check", cell: (limit) => (typeof limit.check === "string" ? <Name text={limit.check} /> : <span class="quiet">no. {Number(limit.check) + 1}</span>) },
              { head: "Rule", cell: (limit) => <Name text={limit.rule ?? ""} href={href("rules", { rule: limit.rule ?? "" })} /> },
              { head: "Group", wide: true, cell: (limit) => <Pairs of={limit.group} empty="all together" /> },
              { head: "Use", cell: (limit) => <Use used={limit.used} limit={limit.limit} /> },
              { head: "Waiting", align: "right", cell: (limit) => <Waiting of={limit} /> },
            ]}
          />
        </Card>
      )}
      {values.length > 0 && (
        <Card
          title="Ledger"
          note={isOpen ? "The limits that it holds in, as they are now." : "The limits that it held in, as they stood when the decision ended."}
          tools={<a href={href("ledger", { operation: operation_id })}>What it {isOpen ? "holds" : "held"}</a>}
          flush
        >
          <Table
            label="Values"
            rows={values}
            rowKey={(value) => value.limit_name}
            columns={[
              { head: "Limit", wide: true, cell: (value) => <Name text={value.limit_name} href={href("ledger", { limit: value.limit_name })} /> },
              { head: "Committed", align: "right", cell: (value) => <span class="figures">{number(value.commit_value)}</span> },
              { head: "Held", align: "right", cell: (value) => <span class="figures">{number(value.hold_value)}</span> },
            ]}
          />
        </Card>
      )}
      {locks.length > 0 && (
        <Card title="Locks" note={isOpen ? "Held until the decision ends." : "Released when the decision ended."} tools={isOpen && <a href={href("locks", { q: print(locks[0].key_values) })}>Who waits</a>}>
          {locks.map((lock) => (
            <div key={print(lock.key_values)}>
              <Pairs of={lock.key_values} /> <Badge>{lock.mode}</Badge>
            </div>
          ))}
        </Card>
      )}
      {event && (
        <Card title="Event" note={isOpen ? "It is not published before the decision is committed." : undefined}>
          <p>
            <Name text={event.event} /> <span class="quiet">in</span> <Name text={event.stream} href={href("streams", { stream: event.stream })} /> <Badge tone={EVENT_TONE[event.status]}>{event.status}</Badge>
            {event.status === "submitted" && <span class="quiet"> due {moment(event.publishes_at)}</span>}
          </p>
        </Card>
      )}
    </>
  );
}

const EVENT_TONE = { submitted: "warn", published: "accent", invalidated: "bad" } as const;
