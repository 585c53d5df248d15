//! The HTTP front end: the routes, and what all handlers share.

mod docs;
mod door;
pub(crate) mod events;
pub(crate) mod extract;
pub(crate) mod from_wire;
mod handshakes;
mod health;
mod ledger;
mod limiter;
mod lists;
mod locks;
pub(crate) mod memory;
mod metrics;
mod namespaces;
mod openapi;
pub(crate) mod problem;
mod rate_limit;
mod serve;
mod socket;
mod stalls;
pub(crate) mod status;
mod streams;
mod to_wire;
mod transport;

pub use metrics::Metrics;
pub use openapi::openapi_json;
pub use serve::{serve, serve_peers};

use crate::{
    Backend, Tls, peers,
    stomp::{self, TimeSync},
};
use axum::{
    Router,
    extract::{Request, State},
    handler::Handler,
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, delete, get, post},
};
use limina_engine::{Command, Idempotency, Name, Outcome, Request as EngineRequest};
use limina_node::{Budget, Unavailable};
use problem::{Code, Failure};
use prometheus_client::registry::Registry;
use serde::Serialize;
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::sync::watch;

/// One call: its path below the path of its family, its `operation` label in metrics, and its handler.
pub(crate) type Route = (&'static str, &'static str, MethodRouter<App>);

/// The HTTP front end. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    backend: Arc<dyn Backend>,
    metrics: Metrics,
    registry: Arc<Registry>,
    body_timeout: Duration,
    reader_timeout: Duration,
    time_sync: TimeSync,
    /// Not set: without TLS.
    tls: OnceLock<Tls>,
    /// The most connections at once; not set: unlimited.
    max_connections: OnceLock<usize>,
    /// The memory budget; not set: unlimited.
    memory: OnceLock<Budget>,
    /// Becomes `true` when the server stops. STOMP sessions and feeds of other nodes listen to it; it is closed when the last of
    /// them has ended.
    stopping: watch::Sender<bool>,
}

impl App {
    /// `metrics` must be registered in `registry`. `/metrics` returns everything that is registered there.
    pub fn new(backend: Arc<dyn Backend>, metrics: Metrics, registry: Arc<Registry>) -> App {
        App(Arc::new(Shared {
            backend,
            metrics,
            registry,
            body_timeout: Duration::from_secs(30),
            reader_timeout: Duration::from_secs(120),
            time_sync: TimeSync::new(),
            tls: OnceLock::new(),
            max_connections: OnceLock::new(),
            memory: OnceLock::new(),
            stopping: watch::Sender::new(false),
        }))
    }

    /// Changes the time within which a whole body must arrive. Default: 30 s.
    pub fn with_body_timeout(self, body_timeout: Duration) -> App {
        let reader_timeout = self.0.reader_timeout;
        self.with_timeouts(body_timeout, reader_timeout)
    }

    /// Changes the time after which a client is disconnected if it takes no byte of an answer. Default: two minutes.
    pub fn with_reader_timeout(self, reader_timeout: Duration) -> App {
        let body_timeout = self.0.body_timeout;
        self.with_timeouts(body_timeout, reader_timeout)
    }

    fn with_timeouts(self, body_timeout: Duration, reader_timeout: Duration) -> App {
        let Shared { backend, metrics, registry, .. } = &*self.0;
        let mut app = App::new(backend.clone(), metrics.clone(), registry.clone());
        let shared = Arc::get_mut(&mut app.0).expect("the new front end is not shared yet");
        (shared.body_timeout, shared.reader_timeout) = (body_timeout, reader_timeout);
        app
    }

    /// Sets the most connections at once. Further connections are answered with 503 and closed. Call it before [`serve`]; only
    /// the first call has an effect.
    pub fn limit_connections(&self, max: usize) {
        self.0.max_connections.get_or_init(|| max);
    }

    fn max_connections(&self) -> usize {
        self.0.max_connections.get().copied().unwrap_or(usize::MAX)
    }

    /// Serves clients over TLS only. Call it before [`serve`]; only the first call has an effect.
    pub fn use_tls(&self, tls: Tls) {
        self.0.tls.get_or_init(|| tls);
    }

    fn tls(&self) -> Option<&Tls> {
        self.0.tls.get()
    }

    /// Sets the memory budget that connections, requests and answers count against. Call it before [`serve`]; only the first
    /// call has an effect.
    pub fn limit_memory(&self, memory: Budget) {
        self.0.memory.get_or_init(|| memory);
    }

    pub(crate) fn memory(&self) -> &Budget {
        self.0.memory.get_or_init(Budget::unlimited)
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

    pub(crate) fn stopping(&self) -> &watch::Sender<bool> {
        &self.0.stopping
    }

    pub(crate) fn body_timeout(&self) -> Duration {
        self.0.body_timeout
    }

    pub(crate) fn reader_timeout(&self) -> Duration {
        self.0.reader_timeout
    }

    /// Executes a command and returns its outcome.
    async fn ask(
        &self,
        namespace: Name,
        idempotency: Option<Idempotency>,
        command: Command,
    ) -> Result<Outcome, Unavailable> {
        self.backend().submit(EngineRequest { namespace, idempotency, command }).await
    }

    /// Executes a command and returns the answer. See [`status::answer`] for `success`.
    async fn submit(
        &self,
        namespace: Name,
        idempotency: Option<Idempotency>,
        command: Command,
        success: StatusCode,
    ) -> Result<Response, Failure> {
        status::answer(self.ask(namespace, idempotency, command).await, success)
    }

    /// Executes a read of the ledger and returns the answer.
    async fn read(
        &self,
        namespace: Name,
        command: limina_engine::ledger::Command,
    ) -> Result<Response, Failure> {
        self.submit(namespace, None, Command::Ledger(command), StatusCode::OK).await
    }

    /// The router of the paths for other nodes.
    fn peer_router(&self) -> Router {
        let mut router = Router::new();
        for (path, word, method) in peers::routes() {
            router = router.route(path, self.counted("peers", word, method));
        }
        self.with_fallbacks(router)
    }

    /// The router of all paths for clients.
    fn router(&self) -> Router {
        let mut router = Router::new()
            .route("/v1/ns", self.counted("namespaces", "list_namespaces", get(namespaces::list_namespaces)))
            .route(
                "/v1/ns/{namespace}",
                self.counted("namespaces", "delete_namespace", delete(namespaces::delete_namespace)),
            )
            .route("/healthz", self.counted("server", "healthz", get(health::healthz)))
            .route("/readyz", self.counted("server", "readyz", get(health::readyz)))
            .route("/v1/cluster", self.counted("server", "cluster", get(health::cluster)))
            .route("/metrics", self.counted("server", "metrics", get(health::metrics)))
            .route("/openapi.json", self.counted("server", "openapi", get(docs::openapi)))
            .route("/docs", self.counted("server", "docs", get(docs::docs)))
            .route("/", self.counted("server", "root", get(docs::root)))
            .route("/ws", self.counted("events", "stomp", get(stomp::upgrade)))
            .route("/time-sync", self.counted("events", "time_sync", post(stomp::time_sync)))
            .route("/v1/ns/", self.empty_name("namespace"))
            .route("/v1/ns//{*rest}", self.empty_name("namespace"));
        for (path, word, method) in events::plain_routes() {
            router = router.route(path, self.counted("events", word, method));
        }
        for prefix in ["/v1", "/v1/ns/{namespace}"] {
            for (family, routes, empty_names) in [
                ("ledger", ledger::routes(), ledger::EMPTY_NAMES),
                ("limiter", limiter::routes(), limiter::EMPTY_NAMES),
                ("locks", locks::routes(), locks::EMPTY_NAMES),
                ("events", events::routes(), events::EMPTY_NAMES),
            ] {
                for (path, word, method) in routes {
                    let path = format!("{prefix}/{family}{path}");
                    router = router.route(&path, self.counted(family, word, method));
                }
                for (path, parameter) in empty_names {
                    router = router.route(&format!("{prefix}/{family}{path}"), self.empty_name(parameter));
                }
            }
        }
        self.with_fallbacks(router)
    }

    /// Adds the answers to paths and methods that do not exist.
    fn with_fallbacks(&self, router: Router<App>) -> Router {
        let recorder = |word| from_fn_with_state(self.0.metrics.operation("none", word), metrics::record);
        router
            .method_not_allowed_fallback(method_not_allowed.layer(recorder("method_not_allowed")))
            .fallback(not_found.layer(recorder("not_found")))
            .with_state(self.clone())
    }

    /// Adds metrics to the methods, with these labels.
    fn counted(
        &self,
        family: &'static str,
        operation: &'static str,
        methods: MethodRouter<App>,
    ) -> MethodRouter<App> {
        let recorder = self.0.metrics.operation(family, operation);
        methods.route_layer(from_fn_with_state(recorder, metrics::record))
    }

    /// Answers a path in which a name is empty.
    fn empty_name(&self, parameter: &'static str) -> MethodRouter<App> {
        let refuse = move |State(app): State<App>, request: Request| async move {
            extract::discard_body(request.into_body(), app.body_timeout()).await;
            extract::empty_name(parameter)
        };
        let recorder = self.0.metrics.operation("none", "empty_name");
        any(refuse).layer(from_fn_with_state(recorder, metrics::record))
    }
}

pub(crate) async fn not_found(State(app): State<App>, request: Request) -> Failure {
    extract::discard_body(request.into_body(), app.body_timeout()).await;
    Failure::new(Code::NotFound, "The path does not exist. GET /docs lists all paths.")
}

/// The router adds the header `Allow`.
async fn method_not_allowed(State(app): State<App>, request: Request) -> Failure {
    extract::discard_body(request.into_body(), app.body_timeout()).await;
    Failure::new(
        Code::MethodNotAllowed,
        "The path does not support this method. The header Allow lists those that it supports.",
    )
}

/// An answer with a JSON body.
fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    let bytes = serde_json::to_vec(body).expect("wire types have string keys, and memory accepts all bytes");
    (status, [(CONTENT_TYPE, "application/json")], bytes).into_response()
}
