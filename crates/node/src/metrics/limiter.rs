//! Metrics of the limiter: rules, groups, counters and leases.

use super::{instruments::replace, rule_checks::RuleChecks};
use limina_engine::Sizes;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    rules: Gauge,
    groups: Gauge,
    counters: Gauge,
    leases: Gauge,
    pub(crate) leases_expired: Counter,
    pub(crate) rule_checks: RuleChecks,
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("limiter_rules", "Rules", self.rules.clone());
        let groups = "Groups of rules and overrides that count something";
        r.register("limiter_groups", groups, self.groups.clone());
        r.register("limiter_counters", "Counters above zero", self.counters.clone());
        r.register("limiter_leases", "Leases that live", self.leases.clone());
        let expired = "Leases given back because their time had run out";
        r.register("limiter_leases_expired", expired, self.leases_expired.clone());
        self.rule_checks.register(r);
    }

    pub(super) fn replace_sizes(&self, old: &Sizes, new: &Sizes) {
        let (old, new) = (&old.limiter, &new.limiter);
        replace(&self.rules, old.rules, new.rules);
        replace(&self.groups, old.groups, new.groups);
        replace(&self.counters, old.counters, new.counters);
        replace(&self.leases, old.leases, new.leases);
    }
}
