//! Histograms and gauges that the files of several subjects create in the same way.

use prometheus_client::metrics::{
    gauge::Gauge,
    histogram::{Histogram, exponential_buckets},
};

/// A histogram of seconds, from `shortest` upwards in powers of two.
pub(super) fn seconds(shortest: f64, buckets: u16) -> Histogram {
    Histogram::new(exponential_buckets(shortest, 2.0, buckets))
}

/// A histogram of counts, from 1 to 16,384 in powers of two.
pub(super) fn counts() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 15))
}

/// Replaces one shard's contribution to a gauge that adds up all shards.
pub(super) fn replace(gauge: &Gauge, old: usize, new: usize) {
    gauge.inc_by(new as i64 - old as i64);
}
