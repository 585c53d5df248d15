//! gRPC's health service. It needs no token, and says only whether the server serves.

use super::grpc;
use crate::http::{
    App, RequestContext,
    problem::{Code, Failure},
};
use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use limina_envoy::messages::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use prost::Message;
use std::{convert::Infallible, time::Duration};
use tokio::sync::{OwnedSemaphorePermit, watch};

/// The services that can be asked for: the whole server, the word of envoyproxy/ratelimit, and the service's full name.
const SERVICES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];
/// The interval at which a watch looks for a change.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn check(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    match asked(&app, request).await? {
        true => Ok(grpc::message(StatusCode::OK, &response(status(&app)))),
        false => {
            let mut unknown = Failure::new(Code::NotFound, "The service is not known.").into_response();
            unknown.extensions_mut().insert(grpc::Status::NOT_FOUND);
            Ok(unknown)
        }
    }
}

/// The status now, and again whenever it changes.
pub(super) async fn watch(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let permit = RequestContext::of(request.extensions()).take_watch();
    let is_known = asked(&app, request).await?;
    let Some(_permit) = permit else {
        let detail = "The connection watches the server's health as often as it may. Nothing was done.";
        return Err(Failure::new(Code::Overloaded, detail));
    };
    let stopping = app.stopping().subscribe();
    let watching = Watching { app, is_known, sent: None, stopping, is_over: false, _permit };
    let mut answer = grpc::response(Body::new(StreamBody::new(stream::unfold(watching, next))));
    answer.extensions_mut().insert(grpc::IsFramed);
    Ok(answer)
}

/// Whether the request asks for a service that exists.
async fn asked(app: &App, request: Request) -> Result<bool, Failure> {
    let (parts, body) = request.into_parts();
    let body = grpc::read(&parts, body, app).await?;
    let request = HealthCheckRequest::decode(body)
        .map_err(|error| Failure::invalid("body", format!("must be a HealthCheckRequest: {error}")))?;
    Ok(SERVICES.contains(&request.service.as_str()))
}

fn status(app: &App) -> ServingStatus {
    if app.backend().is_ready() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

struct Watching {
    app: App,
    is_known: bool,
    sent: Option<ServingStatus>,
    stopping: watch::Receiver<bool>,
    is_over: bool,
    _permit: OwnedSemaphorePermit,
}

impl Watching {
    fn status(&self) -> ServingStatus {
        if self.is_known { status(&self.app) } else { ServingStatus::ServiceUnknown }
    }
}

/// The next part of the answer of a watch. It ends when the server stops.
async fn next(mut watching: Watching) -> Option<(Result<Frame<Bytes>, Infallible>, Watching)> {
    if watching.is_over {
        return None;
    }
    loop {
        let status = watching.status();
        if watching.sent != Some(status) {
            watching.sent = Some(status);
            return Some((Ok(Frame::data(grpc::frame(&response(status)))), watching));
        }
        let stopping = watching.stopping.wait_for(|is_stopping| *is_stopping);
        if tokio::time::timeout(WATCH_EVERY, stopping).await.is_ok() {
            watching.is_over = true;
            return Some((Ok(Frame::trailers(grpc::ok())), watching));
        }
    }
}
