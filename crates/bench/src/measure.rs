//! How long things took.

use hdrhistogram::Histogram;
use std::{fmt, time::Duration};

/// What a run came to.
pub(crate) struct Measured {
    /// Operations done.
    pub(crate) operations: u64,
    /// How long it took altogether.
    pub(crate) elapsed: Duration,
    /// How long each request took, in microseconds.
    pub(crate) latency: Histogram<u64>,
}

impl Measured {
    pub(crate) fn new() -> Measured {
        let latency = Histogram::new_with_bounds(1, 600_000_000, 3).expect("valid bounds");
        Measured { operations: 0, elapsed: Duration::ZERO, latency }
    }

    /// Notes a request that stood for so many operations.
    pub(crate) fn note(&mut self, operations: u64, took: Duration) {
        self.operations += operations;
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// Takes in what another client has measured at the same time.
    pub(crate) fn add(&mut self, other: &Measured) {
        self.operations += other.operations;
        self.latency += &other.latency;
    }

    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1000.0;
        write!(
            f,
            "{:>9.0}/s   p50 {:>8.2} ms   p99 {:>8.2} ms   p99.9 {:>8.2} ms   max {:>8.2} ms",
            self.rate(),
            at(0.5),
            at(0.99),
            at(0.999),
            self.latency.max() as f64 / 1000.0
        )
    }
}
