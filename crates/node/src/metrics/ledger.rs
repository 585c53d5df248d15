//! Metrics of the ledger: limits, and holds that expired.

use super::instruments::replace;
use limina_engine::Sizes;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    limits: Gauge,
    pub(crate) holds_expired: Counter,
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("ledger_limits", "Ledger limits", self.limits.clone());
        let expired = "Holds rolled back because their time had run out";
        r.register("ledger_holds_expired", expired, self.holds_expired.clone());
    }

    pub(super) fn replace_sizes(&self, old: &Sizes, new: &Sizes) {
        replace(&self.limits, old.ledger_limits, new.ledger_limits);
    }
}
