//! The memory budget. Its gauges are what the budget itself counts with.

use crate::memory::Kind;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) limit: Gauge,
    pub(crate) refusals: Counter,
    by_kind: Family<OfKind, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let bytes = "Memory that counts against the budget, by what it is used for";
        r.register_with_unit("memory", bytes, Unit::Bytes, self.by_kind.clone());
        let limit = "The memory budget; 0 means that there is no limit";
        r.register_with_unit("memory_limit", limit, Unit::Bytes, self.limit.clone());
        let refusals =
            "Requests, bodies, answers and followers refused because the memory budget was used up";
        r.register("memory_refusals", refusals, self.refusals.clone());
    }

    /// The gauge of one kind.
    pub(crate) fn gauge(&self, kind: Kind) -> Gauge {
        self.by_kind.get_or_create_owned(&OfKind { kind: kind.word() })
    }
}
