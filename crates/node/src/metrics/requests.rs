//! Requests that front ends submit, and how they end.

use limina_engine::Outcome;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) queue_depth: Gauge,
    decisions: Family<Decision, Counter>,
    unavailable: Family<Reason, Counter>,
    quota_refusals: Family<QuotaLabel, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    family: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuotaLabel {
    quota: &'static str,
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("queue_depth", "Requests that were taken and not answered yet", self.queue_depth.clone());
        r.register("decisions", "Requests decided, by family and outcome", self.decisions.clone());
        let refusals = "Requests, and items of batches, that a namespace's quota refused, by quota";
        r.register("quota_refusals", refusals, self.quota_refusals.clone());
        r.register("unavailable", "Requests not decided, by code", self.unavailable.clone());
    }

    pub(crate) fn decided(&self, outcome: &Outcome) {
        let decision = Decision { family: outcome.family(), outcome: outcome.code() };
        self.decisions.get_or_create(&decision).inc();
        for quota in outcome.exceeded_quotas() {
            self.quota_refusals.get_or_create(&QuotaLabel { quota: quota.name() }).inc();
        }
    }

    pub(crate) fn not_decided(&self, code: &'static str) {
        self.unavailable.get_or_create(&Reason { code }).inc();
    }
}
