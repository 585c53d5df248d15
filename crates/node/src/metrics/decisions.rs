//! Metrics of decisions: how many are open, and how many expired.

use super::instruments::replace;
use limina_engine::Sizes;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    open: Gauge,
    pub(crate) expired: Counter,
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("decisions_open", "Open decisions", self.open.clone());
        let expired = "Decisions that ended because their holders sent no heartbeat";
        r.register("decisions_expired", expired, self.expired.clone());
    }

    pub(super) fn replace_sizes(&self, old: &Sizes, new: &Sizes) {
        replace(&self.open, old.decisions, new.decisions);
    }
}
