//! [`App`]: what handlers know about the server that they run in, and how they pass a command to the service.
//!
//! It knows no route and no handler, and nothing of the way on which a request reaches its handler.

use super::{
    json::{MANY_LIMITS, encode_aside},
    metrics::Metrics,
    problem::Failure,
    status,
};
use crate::{Backend, EnvoyLimits, Policy, Tls, access::Scope, stomp::TimeSync};
use axum::{http::StatusCode, response::Response};
use limina_engine::{Command, Idempotency, Outcome, Request, RequestId};
use limina_node::{Budget, Unavailable};
use prometheus_client::registry::Registry;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;

/// How an [`App`] serves.
pub struct AppOptions {
    /// Who is let in. Default: everybody on this machine.
    pub policy: Policy,
    /// If it is given, clients are served over TLS only.
    pub tls: Option<Tls>,
    /// Envoy's rate limits. Without them, Envoy is not served.
    pub envoy: Option<EnvoyLimits>,
    /// The budget that connections, requests and answers count against. Default: without a limit.
    pub memory: Budget,
    /// The most connections at once. Further ones are answered with 503 and closed. Default: without a limit.
    pub max_connections: usize,
    /// The time within which a whole body must arrive. Default: 30 s.
    pub body_timeout: Duration,
    /// The time after which a client is disconnected if it takes no byte of an answer. Default: two minutes.
    pub reader_timeout: Duration,
}

impl Default for AppOptions {
    fn default() -> AppOptions {
        AppOptions {
            policy: Policy::default(),
            tls: None,
            envoy: None,
            memory: Budget::unlimited(),
            max_connections: usize::MAX,
            body_timeout: Duration::from_secs(30),
            reader_timeout: Duration::from_secs(120),
        }
    }
}

/// The HTTP front end. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    backend: Arc<dyn Backend>,
    metrics: Metrics,
    registry: Arc<Registry>,
    options: AppOptions,
    time_sync: TimeSync,
    /// Becomes `true` when the server stops. STOMP sessions and feeds of other nodes listen to it; it is closed when the last of
    /// them has ended.
    stopping: watch::Sender<bool>,
    is_draining: Arc<AtomicBool>,
}

impl App {
    /// `metrics` must be registered in `registry`. `/metrics` returns everything that is registered there.
    pub fn new(
        backend: Arc<dyn Backend>,
        metrics: Metrics,
        registry: Arc<Registry>,
        options: AppOptions,
    ) -> App {
        App(Arc::new(Shared {
            backend,
            metrics,
            registry,
            options,
            time_sync: TimeSync::new(),
            stopping: watch::Sender::new(false),
            is_draining: Arc::default(),
        }))
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.0.options.policy
    }

    pub(super) fn max_connections(&self) -> usize {
        self.0.options.max_connections
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.0.options.tls.as_ref()
    }

    pub(crate) fn memory(&self) -> &Budget {
        &self.0.options.memory
    }

    pub(crate) fn envoy(&self) -> Option<&EnvoyLimits> {
        self.0.options.envoy.as_ref()
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        self.0.options.body_timeout
    }

    pub(crate) fn reader_timeout(&self) -> Duration {
        self.0.options.reader_timeout
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn time_sync(&self) -> &TimeSync {
        &self.0.time_sync
    }

    /// The server stops soon: from now on each connection of HTTP/1 is closed after its next answer, which says so. A client
    /// that keeps its connection until the server stops may send a request just when the connection is closed.
    pub fn begin_drain(&self) {
        self.0.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether connections of HTTP/1 are closed after their next answer.
    pub(super) fn is_draining(&self) -> &Arc<AtomicBool> {
        &self.0.is_draining
    }

    pub(crate) fn stopping(&self) -> &watch::Sender<bool> {
        &self.0.stopping
    }

    /// Waits until the server stops. Streams end then, so that their clients connect to another node.
    pub(crate) fn until_stopping(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stopping = self.stopping().subscribe();
        async move { drop(stopping.wait_for(|is_stopping| *is_stopping).await) }
    }

    /// Executes a command and returns its outcome.
    pub(crate) async fn ask(
        &self,
        scope: Scope,
        idempotency: Option<Idempotency>,
        command: Command,
    ) -> Result<Outcome, Unavailable> {
        let Scope { namespace, identity, .. } = scope;
        let caller = identity.caller().clone();
        let destructive = command.audited().filter(|(action, _)| action.is_destructive());
        let request = Request { namespace, idempotency, caller, command };
        let Some((action, target)) = destructive else { return self.backend().submit(request).await };
        // The audit has it too. But the log is still there when the audit is gone.
        let (namespace, caller) = (request.namespace.clone(), request.caller.clone());
        let outcome = self.backend().submit(request).await;
        if outcome.as_ref().is_ok_and(Outcome::is_done) {
            let actor = caller.actor.as_ref().map(|name| name.as_str());
            let address = caller.address.map(tracing::field::display);
            let request_id = caller.request_id.as_ref().map(RequestId::as_str);
            tracing::info!(actor, address, request_id, %namespace, ?target, "done: {}", action.word());
        }
        outcome
    }

    /// Executes a command and returns the answer. See [`status::answer`] for `success`.
    pub(super) async fn submit(
        &self,
        scope: Scope,
        idempotency: Option<Idempotency>,
        command: Command,
        success: StatusCode,
    ) -> Result<Response, Failure> {
        let result = self.ask(scope, idempotency, command).await;
        if status::limiter::limits(&result) > MANY_LIMITS {
            return encode_aside(move || status::answer(result, success)).await;
        }
        status::answer(result, success)
    }
}
