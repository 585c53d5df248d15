//! The endpoints of a listener: for each route its guard, its metrics and its handler; also what answers requests that no route
//! matches.

use super::{
    App,
    extract::{discard_request, empty_name},
    metrics::Recorder,
    problem::{Code, Failure},
    route::{Handle, handle},
    router::{Found, Router},
    routes::{self, Entry},
};
use crate::access::{Guard, Needs};
use axum::extract::Request;
use std::sync::Arc;

/// What answers the requests of one path with one method.
pub(super) struct Endpoint {
    pub(super) guard: Guard,
    pub(super) recorder: Arc<Recorder>,
    pub(super) handler: Handle,
    /// Whether answers get the form of gRPC.
    pub(super) is_grpc: bool,
}

/// All endpoints of a listener, and the router that finds them.
pub(super) struct Endpoints {
    router: Arc<Router>,
    all: Vec<Endpoint>,
}

impl Endpoints {
    /// Those of all paths for clients.
    pub(super) fn for_clients(app: &App) -> Endpoints {
        Endpoints::new(app, routes::all(), routes::empty_names())
    }

    /// Those of the paths that Envoy uses, and of the probes.
    pub(super) fn for_envoy(app: &App) -> Endpoints {
        let mut entries = routes::all();
        entries.retain(|entry| {
            entry.family == routes::ENVOY || matches!(entry.path.as_str(), "/healthz" | "/readyz")
        });
        Endpoints::new(app, entries, Vec::new())
    }

    fn new(app: &App, entries: Vec<Entry>, empty_names: Vec<(String, &'static str)>) -> Endpoints {
        let other = |operation, handler| Endpoint::new(app, "none", operation, Needs::Nothing, handler);
        let mut all = Vec::from([
            other("method_not_allowed", handle(method_not_allowed)),
            other("not_found", handle(not_found)),
        ]);
        // The router knows these two by their indexes.
        let mut router = Router::new(0, 1);
        for Entry { path, family, operation, call } in entries {
            router.add(path, call.method, all.len());
            let endpoint = Endpoint::new(app, family, operation, call.needs, call.handler);
            all.push(Endpoint { is_grpc: call.is_grpc, ..endpoint });
        }
        for (path, parameter) in empty_names {
            router.add_for_all_methods(path, all.len());
            all.push(other("empty_name", refuse_empty_name(parameter)));
        }
        Endpoints { router: Arc::new(router), all }
    }

    pub(super) fn router(&self) -> &Arc<Router> {
        &self.router
    }

    pub(super) fn get(&self, found: Found) -> &Endpoint {
        &self.all[found.endpoint]
    }
}

impl Endpoint {
    /// An endpoint with metrics of these labels.
    fn new(
        app: &App,
        family: &'static str,
        operation: &'static str,
        needs: Needs,
        handler: Handle,
    ) -> Endpoint {
        let recorder = app.metrics().operation(family, operation);
        let guard = Guard { app: app.clone(), needs, operation };
        Endpoint { guard, recorder, handler, is_grpc: false }
    }
}

/// Answers a path in which a name is empty.
fn refuse_empty_name(parameter: &'static str) -> Handle {
    handle(move |request: Request| async move {
        discard_request(request).await;
        empty_name(parameter)
    })
}

async fn not_found(request: Request) -> Failure {
    discard_request(request).await;
    Failure::new(Code::NotFound, "The path does not exist. GET /docs lists all paths.")
}

/// The header `Allow` is added later.
async fn method_not_allowed(request: Request) -> Failure {
    discard_request(request).await;
    Failure::new(
        Code::MethodNotAllowed,
        "The path does not support this method. The header Allow lists those that it supports.",
    )
}
