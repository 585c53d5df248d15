// Hooks that screens share: the present time, data that is loaded and reloaded, and debounced input.

import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, token } from "./api";

/** The time, once a second, for everything that counts down. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

export const PAGE_OPENED = Date.now();

export type Loaded<T> = {
  data: T | undefined;
  failure: Failure | undefined;
  /** When `data` was loaded. */
  at: number;
  reload: () => void;
};

/** Loads data for a key, again when the key or the token changes, and every `every` ms while the page is visible. `null` loads nothing. */
export function useData<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>, every?: number): Loaded<T> {
  type State = { key: string | null; data?: T; failure?: Failure; at: number };
  const [state, setState] = useState<State>({ key: null, at: 0 });
  const [round, setRound] = useState(0);
  const current = useRef(load);
  current.current = load;
  const bearer = token.value;
  useEffect(() => {
    if (key === null) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async () => {
      if (!document.hidden || !every) {
        try {
          const data = await current.current(controller.signal);
          if (controller.signal.aborted) return;
          setState({ key, data, at: Date.now() });
        } catch (error) {
          if (controller.signal.aborted) return;
          const failure = error instanceof Failure ? error : new Failure(0, "Error", String(error));
          // What was loaded before stays visible while the server cannot be reached.
          const isPassing = failure.status === 0 || failure.status === 503;
          setState((old) => (isPassing && old.key === key ? { ...old, failure } : { key, failure, at: Date.now() }));
          if ([401, 403, 404].includes(failure.status)) return;
        }
      }
      if (every) timer = setTimeout(run, every);
    };
    void run();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [key, round, every, bearer]);
  const fresh = state.key === key ? state : { data: undefined, failure: undefined, at: 0 };
  return { data: fresh.data, failure: fresh.failure, at: fresh.at, reload: () => setRound((n) => n + 1) };
}

/** A value that follows the text in a field after a short pause. */
export function useDebounced(change: (text: string) => void, ms = 250): (text: string) => void {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  return (text) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change(text), ms);
  };
}
