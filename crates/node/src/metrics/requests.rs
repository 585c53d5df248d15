//! Requests that front ends submit, and how they end.

use super::instruments::seconds;
use crate::Unavailable;
use limina_engine::{Outcome, Quota};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

#[derive(Clone)]
pub(crate) struct Metrics {
    pub(crate) queue_depth: Gauge,
    pub(crate) queue_wait_seconds: Histogram,
    pub(crate) abandoned: Counter,
    decisions: Family<OutcomeLabel, Counter>,
    unavailable: Family<Reason, Counter>,
    quota_refusals: Family<QuotaLabel, Counter>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            queue_depth: Gauge::default(),
            queue_wait_seconds: seconds(0.000_05, 18),
            abandoned: Counter::default(),
            decisions: Family::default(),
            unavailable: Family::default(),
            quota_refusals: Family::default(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
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
        let wait = "Longest wait of the requests that a shard takes from its queue together";
        r.register_with_unit("queue_wait", wait, Unit::Seconds, self.queue_wait_seconds.clone());
        let abandoned = "Requests whose clients had gone before they were begun";
        r.register("abandoned", abandoned, self.abandoned.clone());
        r.register("decisions", "Requests decided, by family and outcome", self.decisions.clone());
        let refusals = "Requests, and items of batches, that a namespace's quota refused, by quota";
        r.register("quota_refusals", refusals, self.quota_refusals.clone());
        r.register("unavailable", "Requests not decided, by code", self.unavailable.clone());
        // These series exist from the start: otherwise an alert on their increase would not see the first event.
        for quota in Quota::ALL {
            drop(self.quota_refusals.get_or_create(&QuotaLabel { quota: quota.name() }));
        }
        for code in Unavailable::CODES {
            drop(self.unavailable.get_or_create(&Reason { code }));
        }
    }

    /// A dry run asks what would happen. Its answer is no refusal, whatever it says.
    pub(crate) fn decided(&self, outcome: &Outcome, is_dry_run: bool) {
        let word = if is_dry_run { "DryRun" } else { outcome.code() };
        let decision = OutcomeLabel { family: outcome.family(), outcome: word };
        self.decisions.get_or_create(&decision).inc();
        if is_dry_run {
            return;
        }
        for quota in outcome.exceeded_quotas() {
            self.quota_refusals.get_or_create(&QuotaLabel { quota: quota.name() }).inc();
        }
    }

    pub(crate) fn not_decided(&self, code: &'static str) {
        self.unavailable.get_or_create(&Reason { code }).inc();
    }
}
