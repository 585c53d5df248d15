// Rule sets: lists of rules that are replaced as a whole.
import { at, get, type Page } from "../api";
import { allowance, number, windowWord } from "../format";
import { useData } from "../hooks";
import { cut, pageQuery } from "../lists";
import { go, href, param } from "../route";
import { Name, T } from "../text";
import type { Rule, RuleSet, RuleSetInfo } from "../types";
import { Badge, Command, Empty, FailureNote, Filter, Loading, None, Pager, Screen, Table, Tabs } from "../ui";
import { Keys } from "./rules";

/** More rules than this are not rendered at once. */
const ROWS = 100;

/** The sets that the server itself keeps. */
const SERVERS_OWN: Record<string, string> = { file: "the server's rules file", envoy: "the configuration for Envoy" };

/** The set that a rule belongs to, without the set's rules: a set may have 10,000. */
export async function setOf(rule: Rule, signal: AbortSignal): Promise<RuleSetInfo | null> {
  const name = rule.managed_by;
  if (name === null) return null;
  const page = await get<Page<RuleSetInfo>>(`${at`limiter/rule-sets`}?${pageQuery(name, "", 1000)}`, signal);
  return page.items.find((set) => set.name === name) ?? null;
}

export function RulesTabs() {
  return (
    <Tabs
      name="tab"
      of={[
        ["rules", "Rules"],
        ["sets", "Rule sets"],
      ]}
    />
  );
}

const Overrides = ({ of }: { of: "open" | "closed" }) => (of === "open" ? <Badge tone="accent">also by clients</Badge> : <Badge>only by the set</Badge>);

export function AllSets() {
  const prefix = param("q");
  const after = param("after");
  const { data, failure } = useData(`sets ${prefix} ${after}`, async (signal) => cut(await get<Page<RuleSetInfo>>(`${at`limiter/rule-sets`}?${pageQuery(prefix, after)}`, signal), prefix), 10_000);
  return (
    <Screen
      title="Rules"
      lead="A rule set is a list of rules that is replaced as a whole, in one step: by a file, by Envoy's configuration, or by a deployment."
      tools={<Filter name="q" placeholder="Names that begin with…" reset={{ after: undefined }} />}
    >
      <RulesTabs />
      {failure && <FailureNote of={failure} what="the rule sets of this namespace" />}
      {!data && !failure && <Loading />}
      {data && data.items.length === 0 && (prefix || after ? <Empty title="No rule set matches" /> : <NoSets />)}
      {data && data.items.length > 0 && (
        <section class="card flush">
          <Table
            label="Rule sets"
            rows={data.items}
            rowKey={(set) => set.name}
            open={(set) => go("rules", { set: set.name })}
            columns={[
              {
                head: "Rule set",
                wide: true,
                cell: (set) => (
                  <>
                    <Name text={set.name} href={href("rules", { set: set.name })} />
                    {Object.hasOwn(SERVERS_OWN, set.name) && <div class="quiet">from {SERVERS_OWN[set.name]}</div>}
                  </>
                ),
              },
              { head: "Rules", align: "right", cell: (set) => <span class="figures">{number(set.rules)}</span> },
              { head: "Overrides are made", cell: (set) => <Overrides of={set.overrides} /> },
              { head: "Since position", align: "right", cell: (set) => <span class="figures quiet">{number(set.created_position)}</span> },
            ]}
          />
          <Pager next={data.next} count={data.items.length} what="rule sets" />
        </section>
      )}
    </Screen>
  );
}

function NoSets() {
  const rules = [{ name: "per-user", group_by: ["user"], limit: 100, window: { type: "sliding", per: "1m" } }];
  return (
    <Empty title="This namespace has no rule sets">
      <p>This makes a set of one rule. Sending it again with other rules replaces them in one step.</p>
      <Command text={`curl --request PUT --json '${JSON.stringify({ rules })}' \\\n  '${window.location.origin}${at`limiter/rule-sets/plans`}'`} />
    </Empty>
  );
}

export function OneSet({ name }: { name: string }) {
  const q = param("q");
  const from = Math.max(0, Number(param("after")) || 0);
  const { data, failure } = useData(`set ${name}`, (signal) => get<RuleSet>(at`limiter/rule-sets/${name}`, signal), 30_000);
  const lead = <a href={href("rules", { tab: "sets" })}>← All rule sets</a>;
  if (!data)
    return (
      <Screen title="Rule set" lead={lead}>
        {failure ? failure.status === 404 ? <Empty title="There is no such rule set">It may have been deleted. The audit knows.</Empty> : <FailureNote of={failure} what="this rule set" /> : <Loading />}
      </Screen>
    );
  const found = data.rules.filter((rule) => rule.name.startsWith(q));
  const shown = found.slice(from, from + ROWS);
  const count = data.rules.length === 1 ? "One rule" : `${number(data.rules.length)} rules`;
  return (
    <Screen
      title={name}
      lead={
        <>
          {lead} · {count}
          {Object.hasOwn(SERVERS_OWN, name) && `, from ${SERVERS_OWN[name]}`}. Overrides are made {data.overrides === "open" ? "by the set and by clients" : "by the set alone"}.
        </>
      }
      tools={<Filter name="q" placeholder="Names that begin with…" reset={{ after: undefined }} />}
    >
      {found.length === 0 ? (
        <Empty title={q ? "No rule of the set matches" : "The set has no rules"} />
      ) : (
        <section class="card flush">
          <Table
            label="Rules of the set"
            rows={shown}
            rowKey={(rule) => rule.name}
            open={(rule) => go("rules", { rule: rule.name })}
            columns={[
              {
                head: "Rule",
                wide: true,
                cell: (rule) => (
                  <>
                    <Name text={rule.name} href={href("rules", { rule: rule.name })} />
                    {rule.description && (
                      <div class="quiet clamp">
                        <T text={rule.description} />
                      </div>
                    )}
                  </>
                ),
              },
              { head: "Allows", cell: (rule) => <span class="figures">{allowance(rule.limit, rule.window)}</span> },
              { head: "Window", cell: (rule) => <span class="quiet">{windowWord(rule.window)}</span> },
              { head: "For each", cell: (rule) => <Keys of={rule.group_by} /> },
              { head: "Overrides", align: "right", cell: (rule) => (rule.overrides.length > 0 ? <span class="figures">{number(rule.overrides.length)}</span> : <None />) },
              { head: "", cell: (rule) => rule.shadow && <Badge tone="warn">only watches</Badge> },
            ]}
          />
          <Pager next={from + ROWS < found.length ? String(from + ROWS) : null} count={shown.length} what="rules" />
        </section>
      )}
    </Screen>
  );
}
