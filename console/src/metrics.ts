// Rates and latencies from GET /metrics. The server keeps no history, so the history begins when the page opens.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Failure, text, token } from "./api";
import { quantile } from "./quantile";

/** The operations that decide something. A batch counts as one request. */
const DECIDES =
  /^(check|check_batch|move_counter|take_lease|acquire_lock|hold|hold_batch|submit_event|only_once_event|strictly_once_event|decide|decide_batch|should_rate_limit)$/;

export type Sample = {
  time: number;
  decisions: number;
  refusals: number;
  p99: number | null;
  append: number | null;
};

type Counted = {
  time: number;
  answers: number;
  refused: number;
  latency: Map<number, number>;
  append: Map<number, number>;
  gauges: Record<string, number>;
};

export const samples = signal<Sample[]>([]);
export const gauges = signal<Record<string, number>>({});
export const metricsFailure = signal<Failure | null>(null);

const LINE = /^(limina_\w+?)(?:\{(.*)\})? (\S+)$/;
const label = (labels: string, name: string) => new RegExp(`(?:^|,)${name}="([^"]*)"`).exec(labels)?.[1] ?? "";

function parse(metrics: string): Counted {
  const counted: Counted = { time: Date.now(), answers: 0, refused: 0, latency: new Map(), append: new Map(), gauges: {} };
  const add = (buckets: Map<number, number>, labels: string, value: number) => {
    const bound = label(labels, "le");
    const le = bound === "+Inf" ? Infinity : Number(bound);
    buckets.set(le, (buckets.get(le) ?? 0) + value);
  };
  for (const line of metrics.split("\n")) {
    const match = LINE.exec(line);
    if (!match) continue;
    const [, name, labels = "", text] = match;
    const value = Number(text);
    if (name === "limina_http_requests_total") {
      if (!DECIDES.test(label(labels, "operation"))) continue;
      counted.answers += value;
      if (/^(409|429|507)$/.test(label(labels, "status"))) counted.refused += value;
    } else if (name === "limina_http_request_duration_seconds_bucket") {
      if (DECIDES.test(label(labels, "operation"))) add(counted.latency, labels, value);
    } else if (name === "limina_append_duration_seconds_bucket") add(counted.append, labels, value);
    else if (labels === "") counted.gauges[name] = value;
    else if (name === "limina_memory_bytes") counted.gauges[name] = (counted.gauges[name] ?? 0) + value;
  }
  return counted;
}

const EVERY = 2000;
/** Quantiles look back over this many looks, since one look of a quiet server has few requests. */
const SPAN = 5;
const HISTORY = 900;

let looks: Counted[] = [];
let running = false;

async function look(): Promise<void> {
  const next = parse(await text("/metrics"));
  const last = looks.at(-1);
  gauges.value = next.gauges;
  // A restarted server counts from zero.
  if (last && next.answers < last.answers) looks = [];
  else if (last) {
    const seconds = (next.time - last.time) / 1000;
    const sample = {
      time: next.time,
      decisions: (next.answers - last.answers) / seconds,
      refusals: (next.refused - last.refused) / seconds,
      p99: quantile(looks[0].latency, next.latency, 0.99),
      append: quantile(looks[0].append, next.append, 0.99),
    };
    samples.value = [...samples.value, sample].slice(-HISTORY);
  }
  looks = [...looks, next].slice(-SPAN);
}

/** Looks at the metrics from the first use on, also while another screen is shown, so that the charts have no gaps. */
export function useMetrics(): void {
  const bearer = token.value;
  useEffect(() => {
    if (running) return;
    running = true;
    void (async () => {
      for (;;) {
        try {
          if (!document.hidden) await look();
          metricsFailure.value = null;
        } catch (error) {
          metricsFailure.value = error instanceof Failure ? error : new Failure(0, "Error", String(error));
          if ([401, 403].includes(metricsFailure.value.status)) break;
        }
        // The first figures come quickly.
        await new Promise((done) => setTimeout(done, samples.value.length < 2 ? EVERY / 4 : EVERY));
      }
      running = false;
    })();
  }, [bearer]);
}
