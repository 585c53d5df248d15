// The screen of rules: the list, and one rule with its overrides and fullest groups.

import { useEffect, useMemo, useRef } from "preact/hooks";
import { changeRuleLimit, changeShadow, deleteOverride, deleteRule, overrideGroup } from "../actions";
import { at, call, get, type Page } from "../api";
import { Chart, type Line } from "../chart";
import { allowance, clock, duration, number, windowWord } from "../format";
import { useData } from "../hooks";
import { print } from "../keyvalues";
import { cut, pageQuery } from "../lists";
import { change, go, href, param } from "../route";
import { Name, Pairs, Selection, T } from "../text";
import type { Group, Groups, Override, Rule } from "../types";
import { Badge, Card, Command, Empty, Facts, FailureNote, Filter, Loading, None, Pager, Screen, Table, Use, Waiting } from "../ui";
import { AllSets, OneSet, RulesTabs, setOf } from "./sets";
import { curl } from "./try";

export function Rules() {
  const [name, set] = [param("rule"), param("set")];
  if (name) return <OneRule key={name} name={name} />;
  if (set) return <OneSet key={set} name={set} />;
  return param("tab") === "sets" ? <AllSets /> : <AllRules />;
}

function AllRules() {
  const prefix = param("q");
  const key = param("key");
  const after = param("after");
  const { data, failure } = useData(
    `rules ${prefix} ${key} ${after}`,
    async (signal) => {
      if (!key) return cut(await get<Page<Rule>>(`${at`limiter/rules`}?${pageQuery(prefix, after)}`, signal), prefix);
      return call<Page<Rule>>("POST", `${at`limiter/rules/query`}?${pageQuery("", after)}`, { where: { [key]: { exists: true } } }, signal);
    },
    10_000,
  );
  return (
    <Screen
      title="Rules"
      lead="What is limited, and how. Open a rule to see which of its groups are the fullest."
      tools={
        <>
          <Filter name="q" placeholder="Names that begin with…" reset={{ after: undefined, key: undefined }} />
          <Filter name="key" placeholder="Grouped by key…" reset={{ after: undefined, q: undefined }} />
        </>
      }
    >
      <RulesTabs />
      {failure && <FailureNote of={failure} what="the rules of this namespace" />}
      {!data && !failure && <Loading />}
      {data && data.items.length === 0 && <NoRules isFiltered={prefix !== "" || key !== "" || after !== ""} />}
      {data && data.items.length > 0 && (
        <section class="card flush">
          <Table
            label="Rules"
            rows={data.items}
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
              { head: "Overrides", align: "right", cell: (rule) => (rule.overrides > 0 ? <span class="figures">{number(rule.overrides)}</span> : <None />) },
              { head: "", cell: (rule) => <Marks of={rule} /> },
            ]}
          />
          <Pager next={data.next} count={data.items.length} what="rules" />
        </section>
      )}
    </Screen>
  );
}

export function Keys({ of }: { of: string[] }) {
  if (of.length === 0) return <span class="quiet">all together</span>;
  return (
    <span class="pairs">
      {of.map((key) => (
        <span class="pair" key={key}>
          <span class="key">
            <T text={key} />
          </span>
        </span>
      ))}
    </span>
  );
}

function Marks({ of: rule }: { of: Rule }) {
  return (
    <span class="marks">
      {rule.shadow && <Badge tone="warn">only watches</Badge>}
      {rule.durability === "relaxed" && <Badge>relaxed</Badge>}
      {rule.managed_by && (
        <a href={href("rules", { set: rule.managed_by })} title="The rule set that this rule belongs to">
          <Badge>
            set <T text={rule.managed_by} />
          </Badge>
        </a>
      )}
    </span>
  );
}

function NoRules({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No rule matches" />;
  const example = { name: "per-tenant", group_by: ["tenant"], limit: 100, window: { type: "sliding", per: "1m" } };
  return (
    <Empty title="This namespace has no rules">
      <p>Without a rule every check passes. This creates one: 100 requests a minute for each tenant.</p>
      <Command text={curl(at`limiter/rules`, example)} />
    </Empty>
  );
}

function OneRule({ name }: { name: string }) {
  const rule = useData(`rule ${name}`, (signal) => get<Rule>(at`limiter/rules/${name}`, signal), 5000);
  const groups = useData(`groups ${name}`, (signal) => get<Groups>(at`limiter/rules/${name}/groups?order=used&limit=200`, signal), 2000);
  const set = useData(rule.data?.managed_by ? `set of ${rule.data.managed_by}` : null, (signal) => setOf(rule.data!, signal));
  const reload = () => {
    rule.reload();
    groups.reload();
  };
  if (!rule.data)
    return (
      <Screen title="Rule" lead={<a href={href("rules")}>← All rules</a>}>
        {rule.failure ? rule.failure.status === 404 ? <Empty title="There is no such rule">It may have been deleted. The audit knows.</Empty> : <FailureNote of={rule.failure} what="this rule" /> : <Loading />}
      </Screen>
    );
  const of = rule.data;
  const mayOverride = of.managed_by === null || set.data?.overrides === "open";
  return (
    <Screen
      title={name}
      lead={
        <>
          <a href={href("rules")}>← All rules</a>
          {of.description && (
            <>
              {" · "}
              <T text={of.description} />
            </>
          )}
        </>
      }
      tools={
        <>
          <a class="button" href={href("try", { kv: of.group_by.map((key) => `${/^[^\s"=:]+$/.test(key) ? key : JSON.stringify(key)}=`).join(" ") })}>
            Try it
          </a>
          {of.managed_by === null && (
            <>
              <button onClick={() => changeRuleLimit(of, reload)}>Change limit</button>
              <button onClick={() => changeShadow(of, reload)}>{of.shadow ? "Enforce" : "Only watch"}</button>
              <button class="danger-text" onClick={() => deleteRule(of, () => go("rules"))}>
                Delete
              </button>
            </>
          )}
        </>
      }
    >
      <Card>
        <Facts
          of={[
            ["Allows", allowance(of.limit, of.window)],
            ["Window", windowWord(of.window)],
            ["For each", <Keys key="k" of={of.group_by} />],
            ["Applies to", <Selection key="s" of={of.selection} />],
            ["Durability", of.durability],
            ["State", of.shadow ? <Badge tone="warn">only watches</Badge> : <Badge tone="good">enforced</Badge>],
            ...(of.managed_by !== null ? [["Rule set", <Name key="m" text={of.managed_by} href={href("rules", { set: of.managed_by })} />] as [string, preact.JSX.Element]] : []),
          ]}
        />
        {of.managed_by !== null && (
          <p class="note">
            The rule is changed with its set{set.data && (set.data.overrides === "open" ? "; overrides can also be made here." : ", and so are its overrides.")}
          </p>
        )}
      </Card>
      {groups.failure && <FailureNote of={groups.failure} what="the groups of this rule" />}
      {groups.data && <GroupTable rule={of} mayOverride={mayOverride} groups={groups.data.items} complete={groups.data.complete} at={groups.at} reload={reload} />}
      <Overrides rule={of} mayOverride={mayOverride} reload={reload} />
    </Screen>
  );
}

const TRACKED = 3;
const LINES: Line["color"][] = ["accent", "warn", "muted"];

function GroupTable({ rule, mayOverride, groups, complete, at: time, reload }: { rule: Rule; mayOverride: boolean; groups: Group[]; complete: boolean; at: number; reload: () => void }) {
  const shown = Math.min(groups.length, Number(param("groups")) || 25);
  return (
    <>
      {groups.length > 0 && <UseOverTime groups={groups} at={time} />}
      <Card title="Groups by use" note={complete ? "The fullest first." : "The fullest of those that could be looked at in time; the rule has too many groups for all."} flush>
        {groups.length === 0 ? (
          <Empty title="Nothing is counted">No group of this rule has anything in use.</Empty>
        ) : (
          <>
            <Table
              label="Groups"
              rows={groups.slice(0, shown)}
              rowKey={(group) => `${print(group.group)} ${group.override}`}
              columns={[
                { head: "Group", wide: true, cell: (group) => <Pairs of={group.group} empty="all together" /> },
                { head: "Use", cell: (group) => <Use used={group.used} limit={group.limit} /> },
                { head: "Free again", cell: (group) => (group.reset_ms === null ? <span class="quiet">when given back</span> : <span class="figures">in {duration(group.reset_ms)}</span>) },
                { head: "Waiting", align: "right", cell: (group) => <Waiting of={group} /> },
                { head: "Override", cell: (group) => (group.override === null ? <None /> : <Name text={group.override} />) },
                {
                  head: "",
                  align: "right",
                  cell: (group) =>
                    mayOverride && (
                      <button class="small" onClick={() => overrideGroup(rule, group, reload)}>
                        {group.override === null ? "Override" : "Change"}
                      </button>
                    ),
                },
              ]}
            />
            <div class="pager">
              {shown < groups.length ? <button onClick={() => change({ groups: String(shown + 50) }, "replace")}>Show more of {groups.length === 200 ? "the first 200" : groups.length}</button> : `${number(groups.length)} ${groups.length === 1 ? "group" : "groups"}`}
            </div>
          </>
        )}
      </Card>
    </>
  );
}

/** The use of the groups that were the fullest when the page opened, as a part of their limits. */
function UseOverTime({ groups, at: time }: { groups: Group[]; at: number }) {
  const began = useRef(Date.now());
  const tracked = useRef<string[]>([]);
  const history = useRef<{ x: number[]; ys: (number | null)[][] }>({ x: [], ys: [] });
  const id = (group: Group) => `${print(group.group)}${group.override === null ? "" : ` (${group.override})`}`;
  const finite = groups.filter((group) => Number(group.limit) > 0);
  for (const group of finite)
    if (tracked.current.length < TRACKED && !tracked.current.includes(id(group))) {
      tracked.current.push(id(group));
      history.current.ys.push(history.current.x.map(() => null));
    }
  useEffect(() => {
    const { x, ys } = history.current;
    const values = tracked.current.map((wanted) => {
      const group = finite.find((candidate) => id(candidate) === wanted);
      return group ? (100 * Number(group.used)) / Number(group.limit) : 0;
    });
    history.current = { x: [...x, time / 1000].slice(-900), ys: ys.map((line, n) => [...line, values[n]].slice(-900)) };
  }, [time]);
  const { x, ys } = history.current;
  const lines = useMemo(() => tracked.current.map((name, n): Line => ({ name, color: LINES[n] })), [tracked.current.length]);
  if (tracked.current.length === 0) return null;
  return (
    <Card title="Use over time" note={`In percent of the limit, for the fullest groups, since ${clock(began.current)}, when this page opened.`}>
      {x.length > 1 ? <Chart x={x} ys={ys} lines={lines} format={(value) => `${Math.round(value)} %`} height={140} /> : <div class="waiting">The first points come in a few seconds.</div>}
    </Card>
  );
}

function Overrides({ rule, mayOverride, reload }: { rule: Rule; mayOverride: boolean; reload: () => void }) {
  const after = param("after");
  const { data, failure, reload: again } = useData(`overrides ${rule.name} ${after} ${rule.overrides}`, (signal) => get<Page<Override>>(`${at`limiter/rules/${rule.name}/overrides`}?${pageQuery("", after, 50)}`, signal));
  const done = () => {
    reload();
    again();
  };
  if (failure) return <FailureNote of={failure} what="the overrides" />;
  if (!data || (data.items.length === 0 && !after)) return null;
  return (
    <Card title="Overrides" note="Other limits for exact values." flush>
      <Table
        label="Overrides"
        rows={data.items}
        rowKey={(override) => override.name}
        columns={[
          { head: "Override", cell: (override) => <Name text={override.name} /> },
          { head: "For", wide: true, cell: (override) => <Pairs of={override.key_values} /> },
          { head: "Limit", align: "right", cell: (override) => <span class="figures">{Number(override.limit) < 0 ? "no limit" : number(override.limit)}</span> },
          {
            head: "",
            align: "right",
            cell: (override) =>
              mayOverride && (
                <button class="small danger-text" onClick={() => deleteOverride(override, done)}>
                  Delete
                </button>
              ),
          },
        ]}
      />
      <Pager next={data.next} count={data.items.length} what="overrides" />
    </Card>
  );
}
