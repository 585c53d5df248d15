//! The HTTP front end: what all handlers share. The routes are in `routes.rs`.

mod acceptor;
mod audit;
pub(crate) mod audit_place;
mod console;
mod decisions;
mod docs;
pub(crate) mod events;
pub(crate) mod extract;
mod forced;
pub(crate) mod from_wire;
mod handshakes;
mod health;
mod ledger;
pub(crate) mod liminator;
mod limiter;
mod lists;
mod locks;
pub(crate) mod memory;
mod metrics;
mod namespaces;
#[cfg(feature = "openapi")]
mod openapi;
pub(crate) mod problem;
mod rate_limit;
mod refusals;
mod router;
pub(crate) mod routes;
mod serve;
mod service;
mod socket;
mod stalls;
pub(crate) mod status;
mod streams;
mod to_wire;
mod transport;

pub use docs::OPENAPI_JSON;
pub(crate) use memory::REQUEST;
pub use metrics::Metrics;
pub(crate) use metrics::Recorder;
pub(crate) use namespaces::visible_namespaces;
#[cfg(feature = "openapi")]
pub use openapi::generated_openapi;
pub use routes::rights_table;
pub use serve::{Serving, Shutdown, serve, serve_envoy, serve_peers};
pub(crate) use service::RequestContext;
pub(crate) use socket::ClientConnection;

use crate::{
    Backend, EnvoyLimits, Policy, Tls,
    access::{Guard, Needs, Scope},
    stomp::TimeSync,
};
use axum::{
    extract::Request,
    http::{Method, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use limina_engine::{Command, Idempotency, Outcome, Request as EngineRequest};
use limina_node::{Budget, Unavailable};
use problem::{Code, Failure};
use prometheus_client::registry::Registry;
use router::{Endpoint, Handle, Router};
use routes::{Entry, handle};
use serde::Serialize;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Semaphore, watch},
    task::spawn_blocking,
};

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
    /// Whether connections of HTTP/1 are closed after their next answer.
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

    fn max_connections(&self) -> usize {
        self.0.options.max_connections
    }

    fn tls(&self) -> Option<&Tls> {
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

    fn registry(&self) -> &Registry {
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
        let caller = identity.caller();
        let destructive = command.audited().filter(|(action, _)| action.is_destructive());
        let request = EngineRequest { namespace, idempotency, caller, command };
        let Some((action, target)) = destructive else { return self.backend().submit(request).await };
        // The audit has it too. But the log is still there when the audit is gone.
        let (namespace, caller) = (request.namespace.clone(), request.caller.clone());
        let outcome = self.backend().submit(request).await;
        if outcome.as_ref().is_ok_and(Outcome::is_done) {
            let actor = caller.actor.as_ref().map(|name| name.as_str());
            let address = caller.address.map(tracing::field::display);
            tracing::info!(actor, address, %namespace, ?target, "done: {}", action.word());
        }
        outcome
    }

    /// Executes a command and returns the answer. See [`status::answer`] for `success`.
    async fn submit(
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

    /// The metrics of a call of other nodes.
    pub(crate) fn peer_recorder(&self, operation: &'static str) -> Arc<Recorder> {
        self.0.metrics.operation("peers", operation)
    }

    /// The router of all paths for clients.
    fn router(&self) -> Router {
        let empty_names = routes::empty_names().into_iter().map(|(path, parameter)| {
            let endpoint = self.endpoint("none", "empty_name", Needs::Nothing, refuse_empty_name(parameter));
            (path, endpoint)
        });
        self.router_of(routes::all().into_iter(), empty_names.collect())
    }

    /// The router of the paths that Envoy uses, and of the probes.
    fn envoy_router(&self) -> Router {
        let is_wanted = |entry: &Entry| {
            entry.family == routes::ENVOY || matches!(entry.path.as_str(), "/healthz" | "/readyz")
        };
        self.router_of(routes::all().into_iter().filter(is_wanted), Vec::new())
    }

    fn router_of(
        &self,
        entries: impl Iterator<Item = Entry>,
        all_methods: Vec<(String, Endpoint)>,
    ) -> Router {
        let paths = entries.map(|Entry { path, method, needs, family, operation, handler, is_grpc }| {
            let endpoint = self.endpoint(family, operation, needs, handler);
            (path, method, Endpoint { is_grpc, ..endpoint })
        });
        let others = |operation, handler| self.endpoint("none", operation, Needs::Nothing, handler);
        Router::new(
            paths.collect::<Vec<(String, Method, Endpoint)>>(),
            all_methods,
            others("method_not_allowed", handle(method_not_allowed)),
            others("not_found", handle(not_found)),
        )
    }

    /// An endpoint with metrics of these labels.
    fn endpoint(
        &self,
        family: &'static str,
        operation: &'static str,
        needs: Needs,
        handler: Handle,
    ) -> Endpoint {
        let recorder = self.0.metrics.operation(family, operation);
        let guard = Guard { app: self.clone(), needs, operation };
        Endpoint { guard, recorder, handler, is_grpc: false }
    }
}

/// Answers a path in which a name is empty.
fn refuse_empty_name(parameter: &'static str) -> Handle {
    handle(move |request: Request| async move {
        extract::discard_request(request).await;
        extract::empty_name(parameter)
    })
}

pub(crate) async fn not_found(request: Request) -> Failure {
    extract::discard_request(request).await;
    Failure::new(Code::NotFound, "The path does not exist. GET /docs lists all paths.")
}

/// The router adds the header `Allow`.
async fn method_not_allowed(request: Request) -> Failure {
    extract::discard_request(request).await;
    Failure::new(
        Code::MethodNotAllowed,
        "The path does not support this method. The header Allow lists those that it supports.",
    )
}

/// An answer with more limits than this is encoded aside.
const MANY_LIMITS: usize = 512;

/// Encodes a long answer on a thread that may block. Encoding megabytes takes many milliseconds, and the requests of other clients
/// would wait for it. One answer is encoded at a time, so most of the processors' time is left to other requests.
async fn encode_aside<R: Send + 'static>(encode: impl FnOnce() -> R + Send + 'static) -> R {
    static ONE_AT_A_TIME: Semaphore = Semaphore::const_new(1);
    let _turn = ONE_AT_A_TIME.acquire().await.expect("the semaphore is never closed");
    match spawn_blocking(encode).await {
        Ok(answer) => answer,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// An answer with a JSON body.
fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    json_of_size(status, body, 512)
}

/// An answer with a JSON body of about this many bytes. A long body that outgrows its memory again and again is copied each time.
fn json_of_size<T: Serialize>(status: StatusCode, body: &T, expected: usize) -> Response {
    let mut bytes = Vec::with_capacity(expected);
    serde_json::to_writer(&mut bytes, body)
        .expect("wire types have string keys, and memory accepts all bytes");
    (status, [(CONTENT_TYPE, "application/json")], bytes).into_response()
}
