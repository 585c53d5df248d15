/** A span of time: a text with units as the API has it (`"250ms"`, `"10s"`, `"1m30s"`), or a number of milliseconds. */
export type Duration = string | number;

const UNITS: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

export function milliseconds(duration: Duration): number {
  if (typeof duration === "number") {
    if (Number.isInteger(duration) && duration >= 0) return duration;
    throw new RangeError(`a duration must be a whole number of milliseconds, at least 0, not ${duration}`);
  }
  const parts = /^(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?$/.exec(duration);
  if (!parts) throw new RangeError(`a duration must look like "250ms", "10s" or "1m30s", not ${JSON.stringify(duration)}`);
  return Object.values(UNITS).reduce((sum, unit, place) => sum + unit * Number(parts[place + 1] ?? 0), 0);
}

/** The longest time that `setTimeout` can wait for. It takes a longer one for 1 ms. */
const MAX_TIMEOUT_MS = 2 ** 31 - 1;

/** Resolves after `ms`, or after 24 days. Rejects with the signal's reason as soon as the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, Math.min(ms, MAX_TIMEOUT_MS));
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A timer that does not keep a Node process alive. */
export function backgroundTimer(run: () => void, ms: number): () => void {
  const timer: unknown = setTimeout(run, ms);
  (timer as { unref?: () => void }).unref?.();
  return () => clearTimeout(timer as number);
}
