// The screen of locks and leases: who holds what, and how many wait.

import { releaseLease, releaseLock } from "../actions";
import { at, call, get, type Page } from "../api";
import { number } from "../format";
import { useData } from "../hooks";
import { parse, print, selection, type KeyValues } from "../keyvalues";
import { pageQuery } from "../lists";
import { href, param } from "../route";
import { Name, Pairs, T } from "../text";
import type { Lease, Lock } from "../types";
import { Badge, Empty, FailureNote, Filter, Left, Loading, Pager, Screen, Since, Table, Tabs, Waiting } from "../ui";

export function Locks() {
  const isSlots = param("tab") === "slots";
  return (
    <Screen
      title="Slots and locks"
      lead="Who holds what, since when, until when, and who waits for it."
      tools={isSlots ? <Filter key="slots" name="q" placeholder="Owner" reset={{ after: undefined }} /> : <Filter key="locks" name="q" placeholder="Key-values: order:=4711" reset={{ after: undefined }} />}
    >
      <Tabs
        name="tab"
        of={[
          ["locks", "Locks"],
          ["slots", "Slots"],
        ]}
      />
      {isSlots ? <Slots /> : <HeldLocks />}
    </Screen>
  );
}

const Owner = ({ of }: { of: { owner: string | null; operation_id?: string | null } }) => (
  <>
    {of.owner === null ? <span class="quiet">no owner named</span> : <Name text={of.owner} />}
    {of.operation_id && (
      <div>
        <span class="quiet">by the decision</span> <Name text={of.operation_id} href={href("decisions", { operation: of.operation_id })} />
      </div>
    )}
  </>
);

function HeldLocks() {
  const text = param("q");
  const after = param("after");
  let wanted: KeyValues = {};
  let mistake = "";
  try {
    wanted = parse(text);
  } catch (error) {
    mistake = (error as Error).message;
  }
  const { data, failure, at: time, reload } = useData(
    mistake ? null : `locks ${print(wanted)} ${after}`,
    (signal) =>
      Object.keys(wanted).length === 0
        ? get<Page<Lock>>(`${at`locks`}?${pageQuery("", after)}`, signal)
        : call<Page<Lock>>("POST", `${at`locks/query`}?${pageQuery("", after)}`, { where: selection(wanted) }, signal),
    2000,
  );
  if (mistake) return <p class="mistake"><T text={mistake} /></p>;
  if (failure && !data) return <FailureNote of={failure} what="the locks of this namespace" />;
  if (!data) return <Loading />;
  if (data.items.length === 0) return text || after ? <Empty title="No lock matches" /> : <Empty title="Nobody holds a lock">Locks appear here while they are held, with the number of requests that wait for them.</Empty>;
  return (
    <section class="card flush">
      {failure && <FailureNote of={failure} />}
      <Table
        label="Locks"
        rows={data.items}
        rowKey={(lock) => lock.lock_id}
        columns={[
          {
            head: "Lock",
            wide: true,
            cell: (lock) =>
              lock.locks.slice(0, 4).map((held) => (
                <div key={print(held.key_values)}>
                  <Pairs of={held.key_values} /> {held.mode === "shared" && <Badge>shared</Badge>}
                  {lock.locks.length > 4 && held === lock.locks[3] && <span class="quiet"> and {lock.locks.length - 4} more</span>}
                </div>
              )),
          },
          { head: "Held by", cell: (lock) => <Owner of={lock} /> },
          { head: "Since", cell: (lock) => <Since ms={lock.held_ms} at={time} /> },
          { head: "Expires in", cell: (lock) => <Left ms={lock.expires_in_ms} of={lock.ttl_ms} at={time} /> },
          { head: "Waiting", align: "right", cell: (lock) => <Waiting of={lock} /> },
          { head: "Fencing", align: "right", cell: (lock) => <span class="figures quiet">{number(lock.fencing_token)}</span> },
          {
            head: "",
            align: "right",
            cell: (lock) => (
              <button class="small danger-text" onClick={() => releaseLock(lock, reload)}>
                Release
              </button>
            ),
          },
        ]}
      />
      <Pager next={data.next} count={data.items.length} what="locks" />
    </section>
  );
}

function Slots() {
  const owner = param("q");
  const after = param("after");
  const { data, failure, at: time, reload } = useData(
    `leases ${owner} ${after}`,
    (signal) => get<Page<Lease>>(`${at`limiter/leases`}?${pageQuery("", after)}${owner && `&owner=${encodeURIComponent(owner)}`}`, signal),
    2000,
  );
  if (failure && !data) return <FailureNote of={failure} what="the slots of this namespace" />;
  if (!data) return <Loading />;
  if (data.items.length === 0)
    return owner || after ? <Empty title="This owner holds no slot" /> : <Empty title="Nobody holds a slot">A slot is a lease: what a check takes from a limit without a window, until it is given back or its time runs out.</Empty>;
  return (
    <section class="card flush">
      {failure && <FailureNote of={failure} />}
      <Table
        label="Slots"
        rows={data.items}
        rowKey={(lease) => lease.lease_id}
        columns={[
          { head: "For", wide: true, cell: (lease) => <Pairs of={lease.key_values} /> },
          { head: "Held by", cell: (lease) => <Owner of={lease} /> },
          { head: "Slots", align: "right", cell: (lease) => <span class="figures">{number(lease.hits)}</span> },
          { head: "Since", cell: (lease) => <Since ms={lease.held_ms} at={time} /> },
          { head: "Expires in", cell: (lease) => <Left ms={lease.expires_in_ms} of={lease.ttl_ms} at={time} /> },
          {
            head: "",
            align: "right",
            cell: (lease) => (
              <button class="small danger-text" onClick={() => releaseLease(lease, reload)}>
                Release
              </button>
            ),
          },
        ]}
      />
      <Pager next={data.next} count={data.items.length} what="slots" />
    </section>
  );
}
