// The screen that makes a dry run of a check, and shows which rules match.

import { useEffect, useRef, useState } from "preact/hooks";
import { at, call, Failure, token, type Page } from "../api";
import { allowance, duration, number, windowWord } from "../format";
import { useData, useDebounced } from "../hooks";
import { encode } from "../json";
import { parse, type KeyValues } from "../keyvalues";
import { change, href, param } from "../route";
import { Name, Pairs, Selection, T } from "../text";
import type { CheckReply, LimitStatus, MatchReply, Rule } from "../types";
import { Badge, Card, Command, Empty, FailureNote, Loading, None, Screen, Table, Use, Waiting } from "../ui";

export function Try() {
  const text = param("kv");
  const hits = param("hits") || "1";
  const field = useRef<HTMLInputElement>(null);
  const [draft, setDraft] = useState(text);
  const apply = useDebounced((value) => change({ kv: value || undefined }, "replace"), 200);
  useEffect(() => {
    if (field.current && document.activeElement !== field.current) {
      field.current.value = text;
      setDraft(text);
    }
  }, [text]);
  useEffect(() => field.current?.focus(), []);
  const { keyValues, mistake } = read(draft);
  // The address follows the field after a pause, so it may still have what was a mistake.
  const asked = read(text).keyValues;
  const isReady = text.trim() !== "" && asked !== null && !mistake && /^\d+$/.test(hits);
  const keys = useData("try keys", (signal) => call<Page<Rule>>("GET", at`limiter/rules?limit=100`, undefined, signal));
  const offered = [...new Set(keys.data?.items.flatMap((rule) => rule.group_by) ?? [])].filter((key) => !keyValues || !Object.hasOwn(keyValues, key)).slice(0, 12);
  return (
    <Screen title="Try it" lead="Would this pass now, and which rules decide? A dry run: nothing is counted, nothing is taken.">
      <Card>
        <div class="try">
          <label class="field grow">
            <span>Key-values</span>
            <input
              ref={field}
              data-filter
              class="mono"
              defaultValue={text}
              placeholder="tenant=acme  attempt:=3  beta:=true"
              spellcheck={false}
              autocomplete="off"
              autocapitalize="off"
              onInput={(event) => {
                setDraft(event.currentTarget.value);
                apply(event.currentTarget.value);
              }}
            />
          </label>
          <label class="field narrow">
            <span>Hits</span>
            <input type="number" min={0} value={hits} onInput={(event) => change({ hits: event.currentTarget.value === "1" ? undefined : event.currentTarget.value }, "replace")} />
          </label>
        </div>
        {mistake ? <p class="mistake"><T text={mistake} /></p> : keyValues && Object.keys(keyValues).length > 0 && <Pairs of={keyValues} />}
        {offered.length > 0 && (
          <p class="offered">
            <span class="quiet">Keys that rules group by</span>
            {offered.map((key) => (
              <button
                key={key}
                class="small"
                onClick={() => {
                  const bare = /^[^\s"=:]+$/.test(key) ? key : JSON.stringify(key);
                  field.current!.value = `${field.current!.value.trim()} ${bare}=`.trim();
                  setDraft(field.current!.value);
                  field.current!.focus();
                }}
              >
                <T text={key} />
              </button>
            ))}
          </p>
        )}
      </Card>
      {isReady ? <Answer key={`${text} ${hits}`} keyValues={asked} hits={Number(hits)} /> : <Empty title="Write key-values as a client would send them">
          <code>tenant=acme</code> is text, <code>attempt:=3</code> a number, <code>beta:=true</code> a boolean. Put quotation marks around what has spaces.
        </Empty>}
    </Screen>
  );
}

function read(text: string): { keyValues: KeyValues | null; mistake: string } {
  try {
    return { keyValues: parse(text), mistake: "" };
  } catch (error) {
    return { keyValues: null, mistake: (error as Error).message };
  }
}

function Answer({ keyValues, hits }: { keyValues: KeyValues; hits: number }) {
  const body = { key_values: keyValues, hits, dry_run: true };
  const { data, failure } = useData(
    `try ${encode(body)}`,
    async (signal) => {
      const matches = await call<MatchReply>("POST", at`limiter/rules/match`, { key_values: keyValues }, signal);
      let reply: CheckReply | null = null;
      let denied: Failure | null = null;
      try {
        reply = await call<CheckReply>("POST", at`limiter/check`, body, signal);
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (error.status === 429) reply = error.problem as CheckReply;
        // A token that may read, but not use, still sees which rules match.
        else if (error.status === 403) denied = error;
        else throw error;
      }
      return { matches: matches.rules, reply, denied };
    },
    2000,
  );
  if (failure && !data) return <FailureNote of={failure} what="which rules match" />;
  if (!data) return <Loading />;
  const { matches, reply, denied } = data;
  const refusing = reply?.limits.filter((limit) => limit.exceeded && !limit.shadow) ?? [];
  return (
    <>
      {denied && <FailureNote of={denied} what="what a check would answer" />}
      {reply && (
        <div class={`banner ${reply.allowed ? "yes" : "no"}`} role="status">
          <strong>{reply.allowed ? "It would pass." : "It would be refused."}</strong>
          <span>
            <T
              text={
                matches.length === 0
                  ? "No rule applies to these key-values, so nothing limits them. Is a key misspelt?"
                  : reply.allowed
                    ? `${matches.length === 1 ? "One rule applies" : `${matches.length} rules apply`}, and there is room in all of them.`
                    : refusing.map(reason).join(" ")
              }
            />
            {!reply.allowed && reply.retry_after_ms !== null && ` It would pass in ${duration(reply.retry_after_ms)} if nothing else happened.`}
          </span>
        </div>
      )}
      {reply && reply.limits.length > 0 && (
        <Card title="Limits that apply" flush>
          <Table
            label="Limits"
            rows={reply.limits}
            rowKey={(limit) => `${limit.rule} ${limit.override}`}
            columns={[
              { head: "Rule", cell: (limit) => <Name text={limit.rule ?? ""} href={href("rules", { rule: limit.rule ?? "" })} /> },
              { head: "Override", cell: (limit) => (limit.override === null ? <None /> : <Name text={limit.override} />) },
              { head: "Group", wide: true, cell: (limit) => <Pairs of={limit.group} empty="all together" /> },
              { head: "Use", cell: (limit) => <Use used={limit.used} limit={limit.limit} /> },
              { head: "Waiting", align: "right", cell: (limit) => <Waiting of={limit} /> },
              {
                head: "",
                align: "right",
                cell: (limit) =>
                  limit.shadow ? <Badge>{limit.exceeded ? "exceeded, only watches" : "only watches"}</Badge> : limit.exceeded ? <Badge tone="bad">refuses</Badge> : <Badge tone="good">has room</Badge>,
              },
            ]}
          />
        </Card>
      )}
      {matches.length > 0 && (
        <Card title="Why these rules" note="A rule applies if every key that it groups by is there and its selection holds.">
          <ul class="matches">
            {matches.map((rule) => (
              <li key={rule.name}>
                <Name text={rule.name} href={href("rules", { rule: rule.name })} />
                <span class="quiet">
                  {allowance(rule.limit, rule.window)}, {windowWord(rule.window)}
                  {rule.group_by.length > 0 && <T text={`, for each ${rule.group_by.join(", ")}`} />}
                </span>
                <Selection of={rule.selection} />
                {rule.matching_overrides.length > 0 && (
                  <span>
                    {rule.matching_overrides.length === 1 ? "An override replaces its limit: " : "Overrides replace its limit: "}
                    {rule.matching_overrides.map((override) => (
                      <span key={override.name}>
                        <Name text={override.name} /> ({number(override.limit)}){" "}
                      </span>
                    ))}
                  </span>
                )}
              </li>
            ))}
          </ul>
        </Card>
      )}
      <Card title="As curl" note="The same dry run from a shell. Without dry_run it counts.">
        <Command text={curl(at`limiter/check`, body)} />
      </Card>
    </>
  );
}

function reason(limit: LimitStatus): string {
  const name = limit.override === null ? `Rule ${limit.rule}` : `Override ${limit.override} of ${limit.rule}`;
  if (Number(limit.limit) === 0) return `${name} lets nothing pass.`;
  if (limit.waiting > 0) return `${name} allows ${number(limit.limit)}, ${number(limit.used)} in use, and ${limit.waiting === 1 ? "an earlier request waits" : `${number(limit.waiting)} earlier requests wait`}.`;
  return `${name} allows ${number(limit.limit)}, and ${number(limit.used)} ${Number(limit.used) === 1 ? "is" : "are"} used.`;
}

export function curl(path: string, body: unknown): string {
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
  const header = token.value ? ` \\\n  --header "Authorization: Bearer $LIMINA_TOKEN"` : "";
  return `curl --json ${quote(encode(body))}${header} \\\n  ${quote(window.location.origin + path)}`;
}
