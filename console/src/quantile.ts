// Quantiles of the histograms in the metrics.

/** The quantile of the values that were counted between two samples, interpolated within its bucket. */
export function quantile(before: Map<number, number>, after: Map<number, number>, q: number): number | null {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  const counts = bounds.map((bound) => after.get(bound)! - (before.get(bound) ?? 0));
  const total = counts.at(-1) ?? 0;
  if (total <= 0) return null;
  const wanted = q * total;
  const n = counts.findIndex((count) => count >= wanted);
  const [low, below] = n > 0 ? [bounds[n - 1], counts[n - 1]] : [0, 0];
  if (bounds[n] === Infinity) return low;
  return low + (bounds[n] - low) * ((wanted - below) / (counts[n] - below));
}
