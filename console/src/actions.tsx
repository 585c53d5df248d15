// What an operator changes. Everything asks first, and says what will happen.
import { at, call, get } from "./api";
import { number } from "./format";
import { Exact, type Num } from "./json";
import { print } from "./keyvalues";
import { Name, Pairs } from "./text";
import type { Group, Lease, Limit, Lock, Override, Rule } from "./types";
import { Field, ask, say } from "./ui";

type Done = () => void;

/** An integer from a field. Throws an `Error` whose message the dialog shows. */
function integer(form: FormData, name: string): Num {
  const text = String(form.get(name)).replace(/[\s_\u202f]/g, "");
  if (!/^-?\d+$/.test(text)) throw new Error("Write a whole number.");
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : new Exact(text);
}

export function releaseLock(lock: Lock, done: Done): void {
  ask({
    title: "Release this lock by force?",
    action: "Release by force",
    danger: true,
    body: (
      <>
        <p class="boxed">
          {lock.locks.map((held) => (
            <Pairs key={print(held.key_values)} of={held.key_values} />
          ))}
        </p>
        <p>
          {lock.owner ? (
            <>
              <Name text={lock.owner} /> still believes that it holds{" "}
            </>
          ) : (
            "Its holder still believes that it holds "
          )}
          {lock.locks.length > 1 ? `these ${lock.locks.length} locks` : "this lock"}, and will learn otherwise at its next heartbeat.
          {lock.waiting > 0 && ` ${number(lock.waiting)} waiting ${lock.waiting === 1 ? "request moves" : "requests move"} up.`}
          {lock.operation_id && " The lock is part of a decision, which is rolled back as a whole."}
        </p>
      </>
    ),
    run: async () => {
      await call("DELETE", at`locks/${lock.lock_id}?force=true`);
      say("The lock is released.");
      done();
    },
  });
}

export function releaseLease(lease: Lease, done: Done): void {
  ask({
    title: lease.hits === 1 ? "Release this slot by force?" : `Release these ${number(lease.hits)} slots by force?`,
    action: "Release by force",
    danger: true,
    body: (
      <>
        <p class="boxed">
          <Pairs of={lease.key_values} />
        </p>
        <p>
          {lease.owner ? <Name text={lease.owner} /> : "Its holder"} keeps working until its next heartbeat tells it otherwise: for that long, more may be in use than
          the limit allows.{lease.operation_id && " The slot is part of a decision, which is rolled back as a whole."}
        </p>
      </>
    ),
    run: async () => {
      await call("DELETE", at`limiter/leases/${lease.lease_id}?force=true`);
      say("The slot is released.");
      done();
    },
  });
}

/** Another limit for one group of a rule: a new override, or a change of the one that the group has. */
export async function overrideGroup(rule: Rule, group: Group, done: Done): Promise<void> {
  const existing = group.override;
  // Not the limit of the group: that of a bucket is its burst.
  const present = existing === null ? rule : await get<Override>(at`limiter/rules/${rule.name}/overrides/${existing}`).catch(() => rule);
  ask({
    title: existing === null ? "Another limit for this group" : "Change this override",
    action: existing === null ? "Create the override" : "Change it",
    body: (
      <>
        <p class="boxed">
          <Pairs of={group.group} />
        </p>
        <p>
          {rule.window
            ? "It acts at once, and what the group has used in its window still counts."
            : "It acts at once, and what the group has in use still counts."}
        </p>
        {existing === null && <Field name="name" label="Name of the override" value={suggestion(group)} />}
        <Field name="limit" label="Limit" value={String(present.limit)} hint="−1: no limit. 0: nothing passes." />
      </>
    ),
    run: async (form) => {
      const limit = integer(form, "limit");
      if (existing !== null) await call("PATCH", at`limiter/rules/${rule.name}/overrides/${existing}`, { limit });
      else
        await call("POST", at`limiter/rules/${rule.name}/overrides`, {
          name: String(form.get("name")),
          key_values: group.group,
          limit,
        });
      say("The override is in force.");
      done();
    },
  });
}

/** A name that a person would choose: the values of the group. */
function suggestion(group: Group): string {
  const text = Object.values(group.group).map(String).join("-");
  return text.replace(/[\u0000-\u001f\u007f]/g, "").slice(0, 60) || "all";
}

export function deleteOverride(override: Override, done: Done): void {
  ask({
    title: "Delete this override?",
    action: "Delete the override",
    danger: true,
    body: (
      <p>
        <Name text={override.name} /> no longer applies, and the limit of the rule <Name text={override.rule} /> applies again at once.
      </p>
    ),
    run: async () => {
      await call("DELETE", at`limiter/rules/${override.rule}/overrides/${override.name}`);
      say("The override is deleted.");
      done();
    },
  });
}

export function changeRuleLimit(rule: Rule, done: Done): void {
  ask({
    title: "Change the rule's limit",
    action: "Change the limit",
    body: (
      <>
        <p>The new limit acts at once, for every group without an override. What is counted stays counted.</p>
        <Field name="limit" label="Limit" value={String(rule.limit)} hint="−1: no limit. 0: nothing passes." />
      </>
    ),
    run: async (form) => {
      await call("PATCH", at`limiter/rules/${rule.name}`, { limit: integer(form, "limit") });
      say("The limit is changed.");
      done();
    },
  });
}

export function changeShadow(rule: Rule, done: Done): void {
  ask({
    title: rule.shadow ? "Enforce this rule?" : "Only watch with this rule?",
    action: rule.shadow ? "Enforce it" : "Only watch",
    danger: true,
    body: (
      <p>
        {rule.shadow
          ? "From now on the rule refuses what is beyond its limit."
          : "The rule goes on counting and reporting, and no longer refuses anything."}
      </p>
    ),
    run: async () => {
      await call("PATCH", at`limiter/rules/${rule.name}`, { shadow: !rule.shadow });
      say(rule.shadow ? "The rule is enforced." : "The rule only watches.");
      done();
    },
  });
}

export function deleteRule(rule: Rule, done: Done): void {
  ask({
    title: "Delete this rule?",
    action: "Delete the rule",
    danger: true,
    body: (
      <>
        <p>
          <Name text={rule.name} /> and its {number(rule.overrides)} {rule.overrides === 1 ? "override" : "overrides"} are deleted in one step. What it limited is no
          longer limited by it.
        </p>
        <Field name="confirmation" label="Write the rule's name to confirm" />
      </>
    ),
    run: async (form) => {
      if (form.get("confirmation") !== rule.name) throw new Error("This is not the rule's name.");
      await call("DELETE", at`limiter/rules/${rule.name}`);
      say("The rule is deleted.");
      done();
    },
  });
}

export function changeCeiling(limit: Limit, done: Done): void {
  ask({
    title: "Change the ceiling",
    action: "Change the ceiling",
    body: (
      <>
        <p>
          <Name text={limit.name} /> has committed {number(limit.commit_value)} and holds {number(limit.hold_value)}. A lower ceiling takes nothing back: it refuses new
          holds.
        </p>
        <Field name="ceiling" label="Ceiling" value={limit.ceiling === null ? "" : String(limit.ceiling)} />
      </>
    ),
    run: async (form) => {
      await call("PATCH", at`ledger/limits/${limit.name}`, { ceiling: integer(form, "ceiling") });
      say("The ceiling is changed.");
      done();
    },
  });
}

export function rollBackOperation(id: string, done: Done): void {
  ask({
    title: "Roll this operation back?",
    action: "Roll it back",
    danger: true,
    body: (
      <p>
        Every open hold of <Name text={id} /> is freed. This is final: the client that made it can no longer commit it.
      </p>
    ),
    run: async () => {
      await call("POST", at`ledger/rollback`, { operation_id: id });
      say("The operation is rolled back.");
      done();
    },
  });
}

/** Ends the wait of a decision that has not been made. */
export function endWait(id: string, done: Done): void {
  ask({
    title: "End this wait?",
    action: "End the wait",
    danger: true,
    body: (
      <p>
        <Name text={id} /> leaves its queues, and its client is answered at once that the decision is refused. The client may ask again.
      </p>
    ),
    run: async () => {
      await call("POST", at`decisions/${id}/rollback`, {});
      say("The wait is ended.");
      done();
    },
  });
}

export function rollBackDecision(id: string, done: Done): void {
  ask({
    title: "Roll this decision back?",
    action: "Roll it back",
    danger: true,
    body: (
      <p>
        All parts of <Name text={id} /> end at one instant: slots and locks are released, holds rolled back, its event invalidated. This is final.
      </p>
    ),
    run: async () => {
      await call("POST", at`decisions/${id}/rollback`, {});
      say("The decision is rolled back.");
      done();
    },
  });
}
