//! Metrics of streams of events: how many exist.

use super::instruments::replace;
use limina_engine::Sizes;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

#[derive(Clone, Default)]
pub(crate) struct Metrics {
    streams: Gauge,
}

impl Metrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("event_streams", "Streams of events", self.streams.clone());
    }

    pub(super) fn replace_sizes(&self, old: &Sizes, new: &Sizes) {
        replace(&self.streams, old.events.streams, new.events.streams);
    }
}
