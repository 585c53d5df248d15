// The refusals of the chosen namespace, live. One connection serves all screens.
import { effect, signal } from "@preact/signals";
import { Failure, keepFollowing, token } from "./api";
import { namespace } from "./route";
import type { Refusal } from "./types";

/** How many refusals the page remembers. */
const KEPT = 2000;

export type Seen = Refusal & { id: number };

/** The newest first. */
export const refusals = signal<Seen[]>([]);
export const refusalState = signal<"connecting" | "live" | "lost">("connecting");
export const refusalFailure = signal<Failure | null>(null);
/** Whether the server has skipped refusals because this page read too slowly. */
export const missed = signal(false);

const users = signal(0);
let counter = 0;

/** Call in an effect: keeps the connection open until the returned function is called. */
export function useRefusals(): () => void {
  users.value++;
  return () => void users.value--;
}

effect(() => {
  if (users.value === 0) return;
  token.value;
  const path = `/v1/ns/${encodeURIComponent(namespace.value)}/refusals/stream`;
  let arrived: Seen[] = [];
  refusals.value = [];
  refusalState.value = "connecting";
  refusalFailure.value = null;
  /** Turns of the timer since the connection was opened; negative without a connection. */
  let turns = -1;
  const flush = () => {
    // What the server remembers arrives within the first turn. Only then is an empty list known to be empty.
    if (turns >= 0 && ++turns === 2) refusalState.value = "live";
    if (arrived.length === 0) return;
    refusals.value = [...arrived.reverse(), ...refusals.peek()].slice(0, KEPT);
    arrived = [];
  };
  // A rendering for each of a thousand refusals a second would freeze the page.
  const timer = setInterval(flush, 250);
  const stop = keepFollowing(path, {
    opened: () => {
      // The server sends what it remembers again.
      arrived = [];
      refusals.value = [];
      turns = 0;
      refusalFailure.value = null;
    },
    event: ({ event, data }) => {
      if (event === "missed") missed.value = true;
      else arrived.push({ ...data, id: counter++ });
      if (arrived.length > KEPT) arrived = arrived.slice(-KEPT);
    },
    lost: (failure) => {
      turns = -1;
      refusalState.value = "lost";
      refusalFailure.value = failure;
    },
  });
  return () => {
    clearInterval(timer);
    stop();
  };
});

/** What refused: the rule, the limit, the stream, or the lock. */
export function refusedBy(refusal: Refusal): string {
  return refusal.rule ?? refusal.limit_name ?? refusal.stream ?? (refusal.key_values ? "lock" : refusal.code);
}
