//! Metrics of locks: how many are held or waited for.

use super::instruments::replace;
use limina_engine::Sizes;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    held: Gauge,
    waiting: Gauge,
    pub(crate) expired: Counter,
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("locks_held", "Grants of locks that live", self.held.clone());
        r.register("locks_waiting", "Requests that wait for locks", self.waiting.clone());
        let expired = "Locks taken back because their holders gave no sign of life";
        r.register("locks_expired", expired, self.expired.clone());
    }

    pub(super) fn replace_sizes(&self, old: &Sizes, new: &Sizes) {
        replace(&self.held, old.locks.held, new.locks.held);
        replace(&self.waiting, old.locks.waiting, new.locks.waiting);
    }
}
