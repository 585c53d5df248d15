//! The metrics of the HTTP front end. Labels are fixed words of the routes, never a client's text.

use axum::http::StatusCode;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};
use std::{
    sync::{Arc, OnceLock},
    time::Instant,
};

/// The front end's metrics, registered once.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<AnswerLabels, Counter>,
    durations: Family<OperationLabels, Histogram>,
    in_flight: Gauge,
    pub(super) connections_refused: Counter,
    handshakes_failed: Family<HandshakeLabels, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    family: &'static str,
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    family: &'static str,
    operation: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    listener: &'static str,
    reason: &'static str,
}

/// The upper bounds of the histogram's buckets, in seconds.
const BUCKETS: [f64; 15] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

impl Metrics {
    /// Creates the metrics and adds them to the registry.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Gauge::default(),
            connections_refused: Counter::default(),
            handshakes_failed: Family::default(),
        };
        registry.register(
            "limina_http_requests",
            "HTTP requests answered, by family, operation and status",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "limina_http_request_duration",
            "Time from the head of a request to its answer, by family and operation",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register(
            "limina_http_requests_in_flight",
            "HTTP requests without an answer yet",
            metrics.in_flight.clone(),
        );
        registry.register(
            "limina_http_connections_refused",
            "Connections refused because the maximum number was open",
            metrics.connections_refused.clone(),
        );
        registry.register(
            "limina_tls_handshakes_failed",
            "TLS handshakes that led to no connection, by listener and reason",
            metrics.handshakes_failed.clone(),
        );
        metrics
    }

    pub(super) fn handshake_failed(&self, listener: &'static str, reason: &'static str) {
        self.handshakes_failed.get_or_create(&HandshakeLabels { listener, reason }).inc();
    }

    /// The recorder of one operation. It keeps its metrics, so that a request needs no lookup.
    pub(crate) fn operation(&self, family: &'static str, operation: &'static str) -> Arc<Recorder> {
        Arc::new(Recorder {
            labels: OperationLabels { family, operation },
            requests: self.requests.clone(),
            answered: STATUSES.map(|_| OnceLock::new()),
            duration: self.durations.get_or_create_owned(&OperationLabels { family, operation }),
            in_flight: self.in_flight.clone(),
        })
    }
}

/// The statuses whose counters a recorder keeps. The counter of any other status is looked up each time.
const STATUSES: [u16; 15] = [200, 201, 204, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 503];

/// Records the requests of one operation.
#[derive(Debug)]
pub(crate) struct Recorder {
    labels: OperationLabels,
    requests: Family<AnswerLabels, Counter>,
    answered: [OnceLock<Counter>; STATUSES.len()],
    duration: Histogram,
    in_flight: Gauge,
}

impl Recorder {
    /// Runs a call of another node, whose answer corresponds to this status, and records it.
    pub(crate) async fn record_as<T>(
        self: &Arc<Recorder>,
        answer: impl Future<Output = T>,
        status: impl FnOnce(&T) -> StatusCode,
    ) -> T {
        let recording = Recording::begin(self.clone());
        let answer = answer.await;
        recording.finish(status(&answer));
        answer
    }

    fn count(&self, status: StatusCode) {
        let status = status.as_u16();
        match STATUSES.iter().position(|known| *known == status) {
            Some(index) => {
                self.answered[index].get_or_init(|| self.counter(status)).inc();
            }
            None => {
                self.counter(status).inc();
            }
        }
    }

    fn counter(&self, status: u16) -> Counter {
        let OperationLabels { family, operation } = self.labels;
        self.requests.get_or_create_owned(&AnswerLabels { family, operation, status })
    }
}

/// A request that is being answered. It counts as in flight until this is dropped, also if its client hangs up.
pub(super) struct Recording {
    recorder: Arc<Recorder>,
    begin: Instant,
}

impl Recording {
    pub(super) fn begin(recorder: Arc<Recorder>) -> Recording {
        recorder.in_flight.inc();
        Recording { recorder, begin: Instant::now() }
    }

    /// The request was answered.
    pub(super) fn finish(self, status: StatusCode) {
        self.recorder.duration.observe(self.begin.elapsed().as_secs_f64());
        self.recorder.count(status);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.recorder.in_flight.dec();
    }
}
