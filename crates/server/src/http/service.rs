//! The way of a request through the server, from its head to its answer: memory is reserved, the endpoint is found, the guard of
//! the endpoint checks the request, the handler answers, and the answer is recorded.
//!
//! Every request of every listener takes this way. It is a few plain functions instead of a stack of layers, because a layer
//! costs an allocation and several moves of the request, and a request costs little besides.

use super::{
    connection::Connection,
    endpoints::{Endpoint, Endpoints},
    extract::discard_body,
    memory::{AnswerBody, RequestMemory, overloaded},
    metrics::Recording,
    problem::Failure,
    request_context::RequestContext,
    request_id,
    route::Answer,
    router::Found,
};
use crate::{
    access::{Scope, Verdict, admit_namespace, expose_to},
    envoy::answer_as_grpc,
};
use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::{
        HeaderValue, StatusCode,
        header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
};
use hyper::{Method, Version, body::Incoming, service::Service};
use limina_api::RequestId;
use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
};

/// Serves the requests of one connection.
pub(super) struct ConnectionService {
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) connection: Arc<Connection>,
}

impl Service<hyper::Request<Incoming>> for ConnectionService {
    type Response = hyper::Response<AnswerBody>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: hyper::Request<Incoming>) -> Answering {
        let connection = &self.connection;
        connection.activity.begin(request.version());
        let open = OpenRequest(connection.clone());
        let request_id = request_id::of_request(request.headers());
        // A probe must not find the process dead because it has much to do.
        let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics");
        let memory = match is_probe {
            true => Some(RequestMemory::new_anyway(&connection.memory)),
            false => RequestMemory::new(&connection.memory).ok(),
        };
        let running = memory.map(|memory| self.begin(memory, request_id.clone(), request));
        Answering { open, request_id, running }
    }
}

impl ConnectionService {
    /// Lets the request pass to its handler, or refuses it.
    fn begin(
        &self,
        memory: RequestMemory,
        request_id: RequestId,
        request: hyper::Request<Incoming>,
    ) -> Running {
        let ConnectionService { endpoints, connection } = self;
        let (mut parts, body) = request.into_parts();
        let body = Body::new(body);
        let (method, is_http1) = (parts.method.clone(), parts.version != Version::HTTP_2);
        let found = endpoints.router().find(&parts.method, parts.uri.path());
        let Endpoint { guard, recorder, handler, is_grpc } = endpoints.get(found);
        let recording = Recording::begin(recorder.clone());
        let context = RequestContext::new(connection.clone(), found, request_id, memory.clone());
        parts.extensions.insert(context);
        let (verdict, origin) = guard.check(&mut parts);
        if !is_http1 && RequestContext::of(&parts.extensions).scope.is_some() {
            connection.activity.let_be_idle();
        }
        let answer = match verdict {
            Verdict::Passed => handler(Request::from_parts(parts, body), guard.app.clone()),
            Verdict::PassedIfRoom(scope) => {
                let (endpoints, request) = (endpoints.clone(), Request::from_parts(parts, body));
                Box::pin(async move { answer_if_room(endpoints.get(found), &scope, request).await })
            }
            Verdict::Answered(response) => Box::pin(std::future::ready(response)),
            Verdict::Refused(failure) => refuse(body, memory.clone(), failure),
        };
        Running { found, recording, memory, method, is_http1, is_grpc: *is_grpc, origin, answer }
    }
}

/// Runs the handler if the token may use one more namespace.
async fn answer_if_room(endpoint: &Endpoint, scope: &Scope, request: Request) -> Response {
    let Endpoint { guard, handler, .. } = endpoint;
    match admit_namespace(&guard.app, scope).await {
        Ok(()) => handler(request, guard.app.clone()).await,
        Err(failure) => {
            let memory = RequestContext::of(request.extensions()).memory.clone();
            refuse(request.into_body(), memory, failure).await
        }
    }
}

/// Reads the body before the answer is sent, because an error that leaves it unread closes the connection.
fn refuse(body: Body, memory: RequestMemory, failure: Failure) -> Answer {
    Box::pin(async move {
        discard_body(body, &memory).await;
        failure.into_response()
    })
}

/// The future of an answer. Its request counts as open until it completes or is dropped.
pub(super) struct Answering {
    open: OpenRequest,
    request_id: RequestId,
    /// None if there was no memory for the request.
    running: Option<Running>,
}

struct Running {
    found: Found,
    recording: Recording,
    memory: RequestMemory,
    method: Method,
    is_http1: bool,
    /// Whether the answer gets the form of gRPC.
    is_grpc: bool,
    /// The page that may read the answer.
    origin: Option<HeaderValue>,
    answer: Answer,
}

impl Future for Answering {
    type Output = Result<hyper::Response<AnswerBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Answering { open, request_id, running } = self.get_mut();
        let response = request_id::answering(request_id, || answer(running, &open.0, context));
        let mut response = ready!(response);
        let headers = response.headers_mut();
        // A browser must not take an answer for a page or a script because of what a client has written into it.
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        request_id::add_to(headers, request_id);
        Poll::Ready(Ok(response))
    }
}

/// Polls the answer of a request. `running` is None if there was no memory for the request.
fn answer(
    running: &mut Option<Running>,
    connection: &Connection,
    context: &mut Context<'_>,
) -> Poll<hyper::Response<AnswerBody>> {
    let answer = match running {
        Some(running) => ready!(running.answer.as_mut().poll(context)),
        None => return Poll::Ready(overloaded().map(AnswerBody::unheld)),
    };
    let running = running.take().expect("it was just polled");
    Poll::Ready(running.finish(answer, connection))
}

impl Running {
    fn finish(self, mut response: Response, connection: &Connection) -> hyper::Response<AnswerBody> {
        self.recording.finish(response.status());
        let Connection { router, activity, is_draining, .. } = connection;
        if self.is_http1
            && is_draining.load(Ordering::Relaxed)
            && response.status() != StatusCode::SWITCHING_PROTOCOLS
        {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.is_grpc {
            response = answer_as_grpc(response);
        }
        if let Some(origin) = self.origin {
            expose_to(response.headers_mut(), origin);
        }
        if let Some(allow) = router.allow(self.found) {
            response.headers_mut().entry(ALLOW).or_insert_with(|| allow.clone());
        }
        if self.method == Method::HEAD {
            if let Some(bytes) = response.body().size_hint().exact() {
                response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| bytes.into());
            }
            *response.body_mut() = Body::empty();
        }
        if response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream") {
            activity.let_be_idle();
        }
        let is_read = matches!(self.method, Method::GET | Method::HEAD);
        self.memory.hold(response, is_read, activity.untaken())
    }
}

/// Counts a request as no longer open when dropped, also if its client hangs up.
struct OpenRequest(Arc<Connection>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.activity.end();
    }
}
