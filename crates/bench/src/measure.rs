//! How long things took.

use hdrhistogram::Histogram;
use std::time::Duration;

/// What a measurement came to.
pub(crate) struct Measured {
    /// Holds and commits done, each counted as one.
    pub(crate) operations: u64,
    /// Holds and commits that were not done.
    pub(crate) refused: u64,
    /// How long it took altogether.
    pub(crate) elapsed: Duration,
    /// How much processor time the server took meanwhile; none where it is part of this process.
    pub(crate) server_cpu: Option<Duration>,
    /// How much processor time this process took meanwhile.
    pub(crate) own_cpu: Duration,
    /// How long each request took, in microseconds.
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

    /// Notes a request that stood for so many operations, of which some were refused.
    pub(crate) fn note(&mut self, operations: u64, refused: u64, took: Duration) {
        self.operations += operations - refused;
        self.refused += refused;
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    /// Takes in what another client has measured at the same time.
    pub(crate) fn add(&mut self, other: &Measured) {
        self.operations += other.operations;
        self.refused += other.refused;
        self.latency += &other.latency;
    }

    /// Operations a second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    /// Processors that were busy with it, of the server and of this process.
    pub(crate) fn processors(&self) -> (Option<f64>, f64) {
        let busy = |time: Duration| time.as_secs_f64() / self.elapsed.as_secs_f64();
        (self.server_cpu.map(busy), busy(self.own_cpu))
    }

    /// The time, in milliseconds, that this part of the requests did not exceed.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The longest time, in milliseconds.
    pub(crate) fn max_ms(&self) -> f64 {
        self.latency.max() as f64 / 1000.0
    }
}
