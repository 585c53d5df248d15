// From a refusal to the rule, to who uses up the limit, to what would cure it.
import type { ComponentChildren } from "preact";
import { changeCeiling, overrideGroup, releaseLease, releaseLock, rollBackOperation } from "../actions";
import { at, call, get, type Page } from "../api";
import { allowance, duration, moment, number } from "../format";
import { useData } from "../hooks";
import { contains, print, same, selection, type KeyValues } from "../keyvalues";
import { change, href } from "../route";
import { Name, Pairs, T } from "../text";
import type { Counter, Groups, Lease, Limit, Lock, Operation, Override, Refusal, Rule, Stream } from "../types";
import { setOf } from "./sets";
import { Account, Empty, FailureNote, Left, Loading, Since, Use } from "../ui";

export function Why({ refusal }: { refusal: Refusal }) {
  // A decision may be refused by several parts: the first rule, ceiling or lock of each kind is known.
  const isDecision = refusal.family === "decisions";
  const isByLock = refusal.key_values !== null && refusal.rule === null && refusal.stream === null && refusal.code !== "NoRuleApplies";
  return (
    <aside class="panel" aria-label="Why">
      <header>
        <div>
          <h2>Why?</h2>
          <p class="note">
            <T text={refusal.code} />, {moment(refusal.time)}. Below is how it stands now.
          </p>
        </div>
        <button data-close aria-label="Close" onClick={() => change({ why: undefined })}>
          ✕
        </button>
      </header>
      {isDecision && refusal.operation_id !== null && (
        <p>
          The decision <Name text={refusal.operation_id} /> was refused as a whole: nothing of it has moved, and its id is free.
        </p>
      )}
      {refusal.rule !== null && <ByRule name={refusal.rule} group={refusal.key_values ?? {}} />}
      {refusal.limit_name !== null && <ByCeiling name={refusal.limit_name} operation={isDecision ? null : refusal.operation_id} />}
      {refusal.code === "NoRuleApplies" && <ByNoRule keyValues={refusal.key_values ?? {}} />}
      {isByLock && <ByLock keyValues={refusal.key_values!} />}
      {refusal.stream !== null && <ByStream name={refusal.stream} />}
      {refusal.rule === null && refusal.limit_name === null && refusal.stream === null && !isByLock && refusal.code !== "NoRuleApplies" && (
        <Empty title="The server knows no more than the code">
          <a href={`/docs#${encodeURIComponent(refusal.code)}`} target="_blank" rel="noreferrer">
            What <T text={refusal.code} /> means
          </a>
        </Empty>
      )}
    </aside>
  );
}

function Step({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="step">
      <h3>{title}</h3>
      {children}
    </section>
  );
}

function ByNoRule({ keyValues }: { keyValues: KeyValues }) {
  return (
    <>
      <Step title="The key-values">
        <p class="boxed">
          <Pairs of={keyValues} />
        </p>
        <p>No rule applied to them, and the request demanded one (<code>require_match</code>).</p>
      </Step>
      <Step title="What cures it">
        <ul class="cures">
          <li>
            <a href={href("try", { kv: print(keyValues) })}>Try it: which rules apply now?</a>
          </li>
        </ul>
      </Step>
    </>
  );
}


function ByRule({ name, group }: { name: string; group: KeyValues }) {
  const { data, failure, at: time, reload } = useData(
    `why rule ${name} ${print(group)}`,
    async (signal) => {
      const rule = await get<Rule>(at`limiter/rules/${name}`, signal);
      const { items } = await get<Groups>(at`limiter/rules/${name}/groups?limit=1000`, signal);
      // An override over more keys has a group of its own, which contains the refused one.
      const use = items.find((item) => same(item.group, group)) ?? items.find((item) => contains(item.group, group) || contains(group, item.group));
      // The limit of a group with a bucket is the burst.
      const allowed = use?.override == null ? rule : await get<Override>(at`limiter/rules/${name}/overrides/${use.override}`, signal);
      let leases: Lease[] = [];
      let counters: Counter[] = [];
      if (!rule.window) {
        leases = (await get<Page<Lease>>(at`limiter/leases?limit=1000`, signal)).items.filter((lease) => contains(lease.key_values, group));
        counters = (await call<Page<Counter>>("POST", at`limiter/counters/query?limit=100`, { where: selection(group) }, signal)).items;
      }
      return { rule, use, allowed: allowed.limit, set: await setOf(rule, signal), leases: leases.sort((a, b) => Number(b.hits) - Number(a.hits)), counters: counters.filter((counter) => counter.counters > counter.leased) };
    },
    2000,
  );
  if (failure && !data) return failure.status === 404 ? <Empty title="The rule is gone">It was deleted after this refusal.</Empty> : <FailureNote of={failure} what="this rule" />;
  if (!data) return <Loading />;
  const { rule, use, allowed, set, leases, counters } = data;
  const waiting = use?.waiting ?? 0;
  const limit = use?.limit ?? rule.limit;
  const isFull = use ? Number(limit) >= 0 && Number(use.used) >= Number(limit) : Number(limit) === 0;
  return (
    <>
      <Step title="The rule">
        <p>
          <Name text={rule.name} href={href("rules", { rule: rule.name })} /> allows {allowance(allowed, rule.window)}
          {rule.group_by.length > 0 && (
            <>
              {" "}
              for each <b><T text={rule.group_by.join(", ")} /></b>
            </>
          )}
          {use?.override != null && (
            <>
              , here by the override <Name text={use.override} />
            </>
          )}
          .
        </p>
        <p class="boxed">
          <Pairs of={group} empty="all requests together" />
        </p>
        {use ? <Use used={use.used} limit={use.limit} /> : <p class="quiet">Nothing of it is used at the moment{isFull ? ", and nothing can be: the limit is 0" : ""}.</p>}
        <p class={isFull || waiting > 0 ? "verdict no" : "verdict yes"}>
          {!isFull && waiting > 0
            ? "There is room, but earlier requests wait for more of it, and nobody overtakes them."
            : isFull
            ? use?.reset_ms != null
              ? `Still full. The window is empty again in ${duration(use.reset_ms)} if nothing more comes.`
              : "Still full: it is free when somebody gives something back."
            : "There is room again: the same request would probably pass now."}
          {waiting > 0 && (waiting === 1 ? " One request waits in its queue." : ` ${number(waiting)} requests wait in its queue, first come first served.`)}
        </p>
      </Step>
      {!rule.window && (
        <Step title="Who uses it up">
          {leases.slice(0, 20).map((lease) => (
            <div class="holder" key={lease.lease_id}>
              <div>
                {lease.owner !== null ? <Name text={lease.owner} /> : <span class="quiet">no owner named</span>} <span class="quiet">holds {number(lease.hits)}</span>
                {lease.operation_id && (
                  <>
                    {" "}
                    <span class="quiet">by the decision</span> <Name text={lease.operation_id} href={href("decisions", { operation: lease.operation_id })} />
                  </>
                )}
                <div class="quiet">
                  for <Since ms={lease.held_ms} at={time} />, expires in <Left ms={lease.expires_in_ms} at={time} />
                </div>
              </div>
              <button class="small danger-text" onClick={() => releaseLease(lease, reload)}>
                Release
              </button>
            </div>
          ))}
          {counters.slice(0, 20).map((counter) => (
            <div class="holder" key={print(counter.key_values)}>
              <div>
                <Pairs of={counter.key_values} />
                <div class="quiet">{number(Number(counter.counters) - Number(counter.leased))} in use without a lease, until they are given back</div>
              </div>
            </div>
          ))}
          {leases.length + counters.length === 0 && <p class="quiet">Nobody at the moment.</p>}
          {leases.length > 20 && <a href={href("locks", { tab: "slots" })}>All {number(leases.length)} slots</a>}
        </Step>
      )}
      <Step title="What cures it">
        <ul class="cures">
          {use?.reset_ms != null && <li>Waiting: the window frees up by itself, the last of it in {duration(use.reset_ms)}.</li>}
          {!rule.window && leases.length > 0 && <li>Releasing a slot above, if its holder is gone.</li>}
          {!rule.window && (
            <li>
              Asking for a lease with a <code>wait</code>: the request then stands in the queue, first come first served.
            </li>
          )}
          <li>
            {set?.overrides === "closed" ? (
              <>
                Another limit: the rule and its overrides belong to the rule set <Name text={set.name} href={href("rules", { set: set.name })} />, and are changed with it.
              </>
            ) : (
              <button
                class="small"
                onClick={() => overrideGroup(rule, use ?? { group, override: null, limit: rule.limit, used: 0, remaining: null, reset_ms: null, waiting: 0 }, reload)}
              >
                {use?.override != null ? "Change the override" : "Give this group another limit"}
              </button>
            )}
          </li>
          <li>
            <a href={href("try", { kv: print(group) })}>Try it with these key-values</a>
          </li>
        </ul>
      </Step>
    </>
  );
}

function ByCeiling({ name, operation }: { name: string; operation: string | null }) {
  const { data, failure, reload } = useData(
    `why ceiling ${name}`,
    async (signal) => ({
      limit: await get<Limit>(at`ledger/limits/${name}`, signal),
      open: await get<Page<Operation>>(at`ledger/operations?state=held&limit_name=${name}&limit=20`, signal),
    }),
    2000,
  );
  if (failure && !data) return failure.status === 404 ? <Empty title="The limit is gone">It was deleted after this refusal.</Empty> : <FailureNote of={failure} what="this limit" />;
  if (!data) return <Loading />;
  const { limit, open } = data;
  return (
    <>
      <Step title="The ceiling">
        <p>
          <Name text={limit.name} href={href("ledger", { limit: limit.name })} />{" "}
          {limit.ceiling === null ? "has no ceiling now." : `may not pass ${number(limit.ceiling)}, with every open hold counted.`}
        </p>
        <Account commit={limit.commit_value} hold={limit.hold_value} ceiling={limit.ceiling} />
        <p>
          <b>{number(limit.commit_value)}</b> committed, <b>{number(limit.hold_value)}</b> held
          {limit.available !== null && (
            <>
              , <b>{number(limit.available)}</b> free
            </>
          )}
          .
        </p>
        {operation !== null && (
          <p>
            The refused operation was <Name text={operation} href={href("ledger", { operation })} />.
          </p>
        )}
      </Step>
      <Step title="Who holds it">
        {open.items.length === 0 && <p class="quiet">Nothing is held: what fills the limit is committed.</p>}
        {open.items.map((item) => {
          const hold = item.holds.find((part) => part.limit_name === name);
          return (
            <div class="holder" key={item.operation_id}>
              <div>
                <Name text={item.operation_id} href={href("ledger", { operation: item.operation_id })} />
                {hold && (
                  <div class="quiet">
                    holds {number(hold.held_value)} since {moment(hold.held_at)}
                    {hold.expires_in_ms !== null ? `, expires in ${duration(hold.expires_in_ms)}` : ", never expires"}
                  </div>
                )}
              </div>
              <button class="small danger-text" onClick={() => rollBackOperation(item.operation_id, reload)}>
                Roll back
              </button>
            </div>
          );
        })}
        {open.next && <a href={href("ledger", { tab: "operations", limit_name: name })}>All open operations</a>}
      </Step>
      <Step title="What cures it">
        <ul class="cures">
          {open.items.length > 0 && <li>Committing or rolling back an operation above; one that expires does so by itself.</li>}
          <li>
            <button class="small" onClick={() => changeCeiling(limit, reload)}>
              Change the ceiling
            </button>
          </li>
        </ul>
      </Step>
    </>
  );
}

function ByLock({ keyValues }: { keyValues: KeyValues }) {
  const { data, failure, at: time, reload } = useData(
    `why lock ${print(keyValues)}`,
    async (signal) => {
      const found = await call<Page<Lock>>("POST", at`locks/query?limit=100`, { where: selection(keyValues) }, signal);
      return found.items.filter((lock) => lock.locks.some((held) => same(held.key_values, keyValues)));
    },
    2000,
  );
  if (failure && !data) return <FailureNote of={failure} what="these locks" />;
  if (!data) return <Loading />;
  return (
    <>
      <Step title="The lock">
        <p class="boxed">
          <Pairs of={keyValues} />
        </p>
        <p class={data.length > 0 ? "verdict no" : "verdict yes"}>{data.length > 0 ? "It is held." : "It is free now: the same request would probably pass."}</p>
      </Step>
      {data.length > 0 && (
        <Step title="Who holds it">
          {data.map((lock) => (
            <div class="holder" key={lock.lock_id}>
              <div>
                {lock.owner !== null ? <Name text={lock.owner} /> : <span class="quiet">no owner named</span>}
                <div class="quiet">
                  for <Since ms={lock.held_ms} at={time} />, expires in <Left ms={lock.expires_in_ms} at={time} /> without a heartbeat
                  {lock.waiting > 0 && `; ${number(lock.waiting)} wait`}
                </div>
              </div>
              <button class="small danger-text" onClick={() => releaseLock(lock, reload)}>
                Release
              </button>
            </div>
          ))}
        </Step>
      )}
      <Step title="What cures it">
        <ul class="cures">
          <li>
            Asking with a <code>wait</code>: the request then stands in the queue, first come first served.
          </li>
          {data.length > 0 && <li>Releasing the lock above, if its holder is gone.</li>}
        </ul>
      </Step>
    </>
  );
}

function ByStream({ name }: { name: string }) {
  const { data, failure } = useData(`why stream ${name}`, (signal) => get<Stream>(at`events/${name}`, signal), 5000);
  if (failure) return failure.status === 404 ? <Empty title="The stream is gone" /> : <FailureNote of={failure} what="this stream" />;
  if (!data) return <Loading />;
  return (
    <>
      <Step title="The stream">
        <p>
          <Name text={name} href={href("streams", { stream: name })} /> accepts the same event once in {duration(data.duration_ms)}.
        </p>
        <p>
          {data.mode === "only_once"
            ? "It is only once: the first event stands, and a duplicate changes nothing."
            : "It is strictly once: a duplicate also invalidates the first event if that still incubates, and closes the key anew."}
        </p>
      </Step>
      <Step title="What cures it">
        <ul class="cures">
          <li>Waiting: a key opens {duration(data.duration_ms)} after its last event.</li>
          <li>
            If this was a retry: send an <code>Idempotency-Key</code>, and the first answer comes again.
          </li>
        </ul>
      </Step>
    </>
  );
}
