// The screen of streams: the list, and one stream with its incubating events and changes.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { at, get, keepFollowing, token, type Failure, type Page } from "../api";
import { clock, duration, number } from "../format";
import { now, useData } from "../hooks";
import { cut, pageQuery } from "../lists";
import { go, href, param } from "../route";
import { Name } from "../text";
import type { Stream } from "../types";
import { Badge, Card, Command, Empty, Facts, FailureNote, Filter, Loading, Pager, Screen, Table } from "../ui";
import { curl } from "./try";

export function Streams() {
  const name = param("stream");
  return name ? <OneStream key={name} name={name} /> : <AllStreams />;
}

const mode = (stream: Stream) => (stream.mode === "only_once" ? "only once" : "strictly once");

function AllStreams() {
  const prefix = param("q");
  const after = param("after");
  const { data, failure } = useData(`streams ${prefix} ${after}`, async (signal) => cut(await get<Page<Stream>>(`${at`events`}?${pageQuery(prefix, after)}`, signal), prefix), 3000);
  return (
    <Screen title="Streams" lead="Events that happen once. Open a stream to watch them incubate and be published." tools={<Filter name="q" placeholder="Names that begin with…" reset={{ after: undefined }} />}>
      {failure && !data && <FailureNote of={failure} what="the streams of this namespace" />}
      {!data && !failure && <Loading />}
      {data &&
        data.items.length === 0 &&
        (prefix || after ? (
          <Empty title="No stream matches" />
        ) : (
          <Empty title="This namespace has no streams">
            <p>This submits an event to the stream “only-once” of the namespace “default”, which is made on first use:</p>
            <Command text={`curl --data-binary 'welcome, ann' '${window.location.origin}/only-once-event'`} />
          </Empty>
        ))}
      {data && data.items.length > 0 && (
        <section class="card flush">
          <Table
            label="Streams"
            rows={data.items}
            rowKey={(stream) => stream.name}
            open={(stream) => go("streams", { stream: stream.name })}
            columns={[
              { head: "Stream", wide: true, cell: (stream) => <Name text={stream.name} href={href("streams", { stream: stream.name })} /> },
              { head: "Mode", cell: (stream) => <Badge>{mode(stream)}</Badge> },
              { head: "Once in", cell: (stream) => <span class="figures">{duration(stream.duration_ms)}</span> },
              { head: "Incubating", align: "right", cell: (stream) => <b class="figures">{number(stream.incubating)}</b> },
              { head: "Clock", align: "right", cell: (stream) => <span class="figures quiet">{number(stream.clock)}</span> },
            ]}
          />
          <Pager next={data.next} count={data.items.length} what="streams" />
        </section>
      )}
    </Screen>
  );
}

type Incubating = { event: string; time: number };
type Change = { clock: number; type: string; event: string; time: number; seen: number };

const CHANGE: Record<string, [string, "warn" | "accent" | "bad"]> = {
  SUBMITTED_EVENT: ["submitted", "warn"],
  PUBLISHED_EVENT: ["published", "accent"],
  INVALIDATED_EVENT: ["invalidated", "bad"],
};

const KEPT = 500;
const ROWS = 100;

type State = { incubating: Map<string, Incubating>; changes: Change[]; clock: number };

function OneStream({ name }: { name: string }) {
  const { data, failure } = useData(`stream ${name}`, (signal) => get<Stream>(at`events/${name}`, signal), 10_000);
  const live = useSignal<State>({ incubating: new Map(), changes: [], clock: 0 });
  const connection = useSignal<"connecting" | "live" | "lost">("connecting");
  const refused = useSignal<Failure | null>(null);
  const frozen = useSignal<State | null>(null);
  const bearer = token.value;
  useEffect(() => {
    const state: State = { incubating: new Map(), changes: [], clock: 0 };
    let isChanged = false;
    // A rendering for each of a thousand events a second would freeze the page.
    const timer = setInterval(() => {
      if (isChanged) live.value = { ...state, incubating: new Map(state.incubating) };
      isChanged = false;
    }, 200);
    const stop = keepFollowing(at`events/${name}/stream`, {
      resume: true,
      opened: () => {
        connection.value = "live";
        refused.value = null;
      },
      lost: (failure) => {
        connection.value = "lost";
        refused.value = failure;
      },
      event: ({ data: message }) => {
        isChanged = true;
        state.clock = Number(message.clock);
        if (message.messageType === "KEY_FRAME") {
          state.incubating = new Map(message.snapshot.map((item: Incubating) => [item.event, item]));
          return;
        }
        const { event, time } = message.eventTime;
        if (message.messageType === "SUBMITTED_EVENT") state.incubating.set(event, { event, time });
        else state.incubating.delete(event);
        state.changes = [{ clock: state.clock, type: message.messageType, event, time, seen: Date.now() }, ...state.changes].slice(0, KEPT);
      },
    });
    return () => {
      clearInterval(timer);
      stop();
    };
  }, [name, bearer]);
  const isPaused = frozen.value !== null;
  const { incubating, changes, clock: reached } = frozen.value ?? live.value;
  const waiting = [...incubating.values()].sort((a, b) => a.time - b.time);
  const lead = (
    <>
      <a href={href("streams")}>← All streams</a> · <span class={connection.value === "live" ? (isPaused ? "dot paused" : "dot live") : "dot bad"} />{" "}
      {connection.value === "live" ? (isPaused ? "paused" : "live") : connection.value === "lost" ? "the connection is lost" : "connecting"}
    </>
  );
  if (failure?.status === 404)
    return (
      <Screen title="Stream" lead={<a href={href("streams")}>← All streams</a>}>
        <Empty title="There is no such stream" />
      </Screen>
    );
  return (
    <Screen
      title={name}
      lead={lead}
      tools={
        <button data-pause aria-pressed={isPaused} onClick={() => (frozen.value = isPaused ? null : live.value)}>
          {isPaused ? "Resume" : "Pause"}
        </button>
      }
    >
      {failure && <FailureNote of={failure} what="this stream" />}
      {refused.value && <FailureNote of={refused.value} what="the events of this stream" />}
      {data && (
        <Card>
          <Facts
            of={[
              ["Mode", mode(data)],
              ["Once in", duration(data.duration_ms)],
              ["Incubating", <b key="i" class="figures">{number(incubating.size)}</b>],
              ["Clock", <span key="c" class="figures">{number(reached || data.clock)}</span>],
              ["Remembers", `${number(data.max_events)} keys at most`],
            ]}
          />
        </Card>
      )}
      <div class="columns">
        <Card title="Incubating" note="The next to be published first.">
          {waiting.length === 0 && <Empty title="Nothing incubates" />}
          <ol class="incubating">
            {waiting.slice(0, ROWS).map((item) => (
              <li key={item.event}>
                <Name text={item.event} />
                {data && <Ripening from={item.time} ms={data.duration_ms} />}
              </li>
            ))}
          </ol>
          {waiting.length > ROWS && <p class="pager">and {number(waiting.length - ROWS)} more</p>}
        </Card>
        <Card title="Changes" note="Since this page opened, the newest first.">
          {changes.length === 0 ? (
            <Empty title="No change yet">
              <Command text={curl(at`events/${name}`, { event: "welcome, ann" })} />
            </Empty>
          ) : (
            <ol class="changes">
              {changes.slice(0, ROWS).map((item) => (
                <li key={item.clock}>
                  <span class="figures quiet">{clock(item.seen)}</span>
                  <Badge tone={CHANGE[item.type]?.[1] ?? "plain"}>{CHANGE[item.type]?.[0] ?? item.type}</Badge>
                  <Name text={item.event} />
                </li>
              ))}
            </ol>
          )}
        </Card>
      </div>
    </Screen>
  );
}

/** An event that is due for longer than this is part of an open decision, and is published when that is committed. */
const OVERDUE = 3000;

function Ripening({ from, ms }: { from: number; ms: number }) {
  const left = Math.max(0, from + ms - now.value);
  return (
    <span class="left">
      <span class="meter thin">
        <i style={{ width: `${Math.min(100, 100 * (1 - left / ms))}%` }} />
      </span>
      <span class="figures">{now.value - from - ms > OVERDUE ? "at its commit" : left === 0 ? "now" : duration(Math.ceil(left / 1000) * 1000)}</span>
    </span>
  );
}
