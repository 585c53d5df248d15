//! Measured rates, latencies and processor times.

use hdrhistogram::Histogram;
use std::time::Duration;

/// The result of one measurement.
pub(crate) struct Measured {
    /// Operations that were done.
    pub(crate) operations: u64,
    /// Operations that were refused.
    pub(crate) refused: u64,
    /// Duration of the whole measurement.
    pub(crate) elapsed: Duration,
    /// Processor time of the server during the measurement; none if it runs in this process.
    pub(crate) server_cpu: Option<Duration>,
    /// Processor time of this process during the measurement.
    pub(crate) own_cpu: Duration,
    /// Latency of each request, in microseconds.
    latency: Histogram<u64>,
}

impl Measured {
    pub(crate) fn new() -> Measured {
        Measured {
            operations: 0,
            refused: 0,
            elapsed: Duration::ZERO,
            server_cpu: None,
            own_cpu: Duration::ZERO,
            latency: Histogram::new_with_bounds(1, 600_000_000, 3).expect("valid bounds"),
        }
    }

    /// Records a request that contained this many operations, of which some were refused.
    pub(crate) fn note(&mut self, operations: u64, refused: u64, took: Duration) {
        self.operations += operations - refused;
        self.refused += refused;
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// Adds what another client has measured at the same time.
    pub(crate) fn add(&mut self, other: &Measured) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.latency += &other.latency;
    }

    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// Average number of processors that the server and this process kept busy.
    pub(crate) fn processors(&self) -> (Option<f64>, f64) {
        let busy = |time: Duration| time.as_secs_f64() / self.elapsed.as_secs_f64();
        (self.server_cpu.map(busy), busy(self.own_cpu))
    }

    /// Processor time of one operation, server and this process together, in microseconds.
    pub(crate) fn cpu_micros(&self) -> f64 {
        let time = self.server_cpu.unwrap_or_default() + self.own_cpu;
        time.as_secs_f64() * 1e6 / self.operations as f64
    }

    /// This quantile of the latencies, in milliseconds.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The longest latency, in milliseconds.
    pub(crate) fn max_ms(&self) -> f64 {
        self.latency.max() as f64 / 1000.0
    }
}

/// A result by whose rate rounds are compared.
pub(crate) trait Rated {
    fn rate(&self) -> f64;
}

impl Rated for Measured {
    fn rate(&self) -> f64 {
        Measured::rate(self)
    }
}

/// A ratio of rates, which counts as its own rate.
impl Rated for f64 {
    fn rate(&self) -> f64 {
        *self
    }
}

/// Several measurements of the same thing, sorted by rate.
pub(crate) struct Rounds<T>(Vec<T>);

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Rounds(Vec::new())
    }
}

impl<T: Rated> Rounds<T> {
    pub(crate) fn new(first: T) -> Rounds<T> {
        Rounds(vec![first])
    }

    pub(crate) fn push(&mut self, next: T) {
        self.0.push(next);
        self.0.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    }

    /// The round with the median rate; the slower one of two.
    pub(crate) fn median(&self) -> &T {
        &self.0[(self.0.len() - 1) / 2]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter()
    }

    /// The slowest and the fastest round.
    pub(crate) fn ends(&self) -> (&T, &T) {
        (&self.0[0], &self.0[self.0.len() - 1])
    }

    /// The difference between the fastest and the slowest rate, as a part of the median rate.
    pub(crate) fn spread(&self) -> f64 {
        let (slowest, fastest) = self.ends();
        (fastest.rate() - slowest.rate()) / self.median().rate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_know_their_median_and_spread() {
        let mut rounds = Rounds::new(4.0);
        assert_eq!((*rounds.median(), rounds.spread()), (4.0, 0.0));
        rounds.push(2.0);
        assert_eq!((*rounds.median(), rounds.spread()), (2.0, 1.0));
        rounds.push(5.0);
        assert_eq!((*rounds.median(), rounds.spread()), (4.0, 0.75));
    }
}
