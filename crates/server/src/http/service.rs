//! The way of a request through the server, from its head to its answer: memory is reserved, the endpoint is found, the guard of
//! the endpoint checks the request, the handler answers, and the answer is recorded.
//!
//! Every request of every listener takes this way. It is a few plain functions instead of a stack of layers, because a layer
//! costs an allocation and several moves of the request, and a request costs little besides.

use super::{
    memory::{AnswerBody, RequestMemory, Untaken, overloaded},
    metrics::Recording,
    router::{Answer, Endpoint, Found, Router},
    socket::{ClientConnection, WriteActivity},
};
use crate::{
    access::{Scope, Verdict, admit_namespace, expose_to},
    envoy::answer_as_grpc,
    http::{App, extract::discard_body, problem::Failure},
};
use axum::{
    body::{Body, HttpBody},
    extract::{FromRequestParts, Request},
    http::{
        Extensions, HeaderValue, StatusCode,
        header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use hyper::{Method, Version, body::Incoming, service::Service};
use limina_node::Budget;
use std::{
    borrow::Cow,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most watches of the server's health on one connection. A client needs one.
const MAX_WATCHES: usize = 4;

/// What all requests of one connection share.
pub(super) struct Connection {
    router: Arc<Router>,
    client: ClientConnection,
    memory: Budget,
    activity: Activity,
    /// Shared by all connections: whether an HTTP/1 connection is closed after its next answer.
    is_draining: Arc<AtomicBool>,
}

impl Connection {
    pub(super) fn new(
        router: Arc<Router>,
        client: ClientConnection,
        memory: Budget,
        writes: Arc<WriteActivity>,
        is_draining: Arc<AtomicBool>,
    ) -> Connection {
        Connection { router, client, memory, activity: Activity::new(writes), is_draining }
    }

    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }
}

/// What the server knows about a request besides its bytes. Every request has one among its extensions.
#[derive(Clone)]
pub(crate) struct RequestContext {
    connection: Arc<Connection>,
    found: Found,
    pub(crate) memory: RequestMemory,
    /// What the guard has let the request pass for. None if the endpoint needs no token.
    pub(crate) scope: Option<Scope>,
}

impl RequestContext {
    pub(crate) fn of(extensions: &Extensions) -> &RequestContext {
        extensions.get().expect("every request has a context")
    }

    pub(crate) fn of_mut(extensions: &mut Extensions) -> &mut RequestContext {
        extensions.get_mut().expect("every request has a context")
    }

    /// The connection on which the request came.
    pub(crate) fn client(&self) -> &ClientConnection {
        &self.connection.client
    }

    /// A permit for one more watch of the server's health on the connection. None if [`MAX_WATCHES`] are open.
    pub(crate) fn take_watch(&self) -> Option<OwnedSemaphorePermit> {
        self.connection.activity.watches.clone().try_acquire_owned().ok()
    }

    /// The decoded value of a parameter in the path; `None` if the route has no such parameter.
    pub(crate) fn parameter<'p>(
        &self,
        path: &'p str,
        parameter: &str,
    ) -> Result<Option<Cow<'p, str>>, Failure> {
        self.connection.router.parameter(self.found, path, parameter).map_err(|not_utf8| {
            Failure::invalid_path(not_utf8.parameter, "must be UTF-8 when percent-decoded")
        })
    }
}

impl FromRequestParts<App> for ClientConnection {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<ClientConnection, Infallible> {
        Ok(RequestContext::of(&parts.extensions).client().clone())
    }
}

/// Serves the requests of one connection.
pub(super) struct ConnectionService(pub(super) Arc<Connection>);

impl Service<hyper::Request<Incoming>> for ConnectionService {
    type Response = hyper::Response<AnswerBody>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: hyper::Request<Incoming>) -> Answering {
        let connection = &self.0;
        connection.activity.begin(request.version());
        let open = OpenRequest(connection.clone());
        // A probe must not find the process dead because it has much to do.
        let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz" | "/metrics");
        let memory = match is_probe {
            true => Some(RequestMemory::new_anyway(&connection.memory)),
            false => RequestMemory::new(&connection.memory).ok(),
        };
        Answering { open, running: memory.map(|memory| connection.begin(memory, request)) }
    }
}

impl Connection {
    /// Lets the request pass to its handler, or refuses it.
    fn begin(self: &Arc<Connection>, memory: RequestMemory, request: hyper::Request<Incoming>) -> Running {
        let (mut parts, body) = request.into_parts();
        let body = Body::new(body);
        let (method, is_http1) = (parts.method.clone(), parts.version != Version::HTTP_2);
        let found = self.router.find(&parts.method, parts.uri.path());
        let Endpoint { guard, recorder, handler, .. } = self.router.endpoint(found);
        let recording = Recording::begin(recorder.clone());
        let context = RequestContext { connection: self.clone(), found, memory: memory.clone(), scope: None };
        parts.extensions.insert(context);
        let (verdict, origin) = guard.check(&mut parts);
        if !is_http1 && RequestContext::of(&parts.extensions).scope.is_some() {
            self.activity.may_be_idle.store(true, Ordering::Relaxed);
        }
        let answer = match verdict {
            Verdict::Passed => handler(Request::from_parts(parts, body), guard.app.clone()),
            Verdict::PassedIfRoom(scope) => {
                let (connection, request) = (self.clone(), Request::from_parts(parts, body));
                Box::pin(async move { connection.answer_if_room(found, &scope, request).await })
            }
            Verdict::Answered(response) => Box::pin(std::future::ready(response)),
            Verdict::Refused(failure) => refuse(body, memory.clone(), failure),
        };
        Running { found, recording, memory, method, is_http1, origin, answer }
    }

    /// Runs the handler if the token may use one more namespace.
    async fn answer_if_room(&self, found: Found, scope: &Scope, request: Request) -> Response {
        let Endpoint { guard, handler, .. } = self.router.endpoint(found);
        match admit_namespace(&guard.app, scope).await {
            Ok(()) => handler(request, guard.app.clone()).await,
            Err(failure) => {
                let memory = RequestContext::of(request.extensions()).memory.clone();
                refuse(request.into_body(), memory, failure).await
            }
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
    /// None if there was no memory for the request.
    running: Option<Running>,
}

struct Running {
    found: Found,
    recording: Recording,
    memory: RequestMemory,
    method: Method,
    is_http1: bool,
    /// The page that may read the answer.
    origin: Option<HeaderValue>,
    answer: Answer,
}

impl Future for Answering {
    type Output = Result<hyper::Response<AnswerBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut response = match &mut this.running {
            Some(running) => {
                let answer = ready!(running.answer.as_mut().poll(context));
                let running = this.running.take().expect("it was just polled");
                running.finish(answer, &this.open.0)
            }
            None => overloaded().map(AnswerBody::unheld),
        };
        // A browser must not take an answer for a page or a script because of what a client has written into it.
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        Poll::Ready(Ok(response))
    }
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
        if router.endpoint(self.found).is_grpc {
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
            activity.may_be_idle.store(true, Ordering::Relaxed);
        }
        let is_read = matches!(self.method, Method::GET | Method::HEAD);
        self.memory.hold(response, is_read, &activity.untaken)
    }
}

/// What happens on one connection.
pub(super) struct Activity {
    /// The number of requests so far.
    begun: AtomicU64,
    /// The number of requests without an answer.
    open: AtomicU64,
    /// The body of an answer is still written after its request is no longer open.
    writes: Arc<WriteActivity>,
    /// The answers that an HTTP/2 client has not taken.
    untaken: Arc<Untaken>,
    is_http2: AtomicBool,
    /// The connection is never closed as idle: it sends server-sent events, or it is HTTP/2, which has keep-alive pings, and its client
    /// was let in. A client without a token must not keep connections for ever.
    may_be_idle: AtomicBool,
    /// The watches of the server's health that the connection may open. They need no token.
    watches: Arc<Semaphore>,
}

/// The state of a connection at the last check for activity.
#[derive(Default)]
pub(super) struct LastCheck {
    begun: u64,
    writes: u64,
    pieces: u64,
    taken: u64,
}

impl Activity {
    fn new(writes: Arc<WriteActivity>) -> Activity {
        let untaken = Arc::default();
        let watches = Arc::new(Semaphore::new(MAX_WATCHES));
        let (is_http2, may_be_idle) = (false.into(), false.into());
        Activity { begun: 0.into(), open: 0.into(), writes, untaken, is_http2, may_be_idle, watches }
    }

    fn begin(&self, version: Version) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        self.is_http2.store(version == Version::HTTP_2, Ordering::Relaxed);
    }

    /// Whether no request is open, none has begun and no part of an answer was taken since the last check.
    pub(super) fn is_idle_since(&self, last: &mut LastCheck) -> bool {
        let before = std::mem::replace(&mut last.begun, self.begun.load(Ordering::Relaxed));
        let is_writing = match self.is_http2.load(Ordering::Relaxed) {
            // HTTP/2 also writes pings and their answers.
            true => self.untaken.is_taken_since(&mut last.pieces),
            false => self.writes.is_active_since(&mut last.writes),
        };
        last.begun == before
            && !is_writing
            && self.open.load(Ordering::Relaxed) == 0
            && !self.may_be_idle.load(Ordering::Relaxed)
    }

    /// Whether there are answers, and the client has taken none of them since the last check.
    pub(super) fn is_stalled_since(&self, last: &mut LastCheck) -> bool {
        self.untaken.is_stalled_since(&mut last.taken)
    }
}

/// Counts a request as no longer open when dropped, also if its client hangs up.
struct OpenRequest(Arc<Connection>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.activity.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http2_connection_is_kept_while_idle_only_for_a_client_that_was_let_in() {
        let writes = Arc::<WriteActivity>::default();
        let activity = Activity::new(writes.clone());
        let mut last = LastCheck::default();
        activity.begin(Version::HTTP_2);
        assert!(!activity.is_idle_since(&mut last), "a request has begun");
        assert!(!activity.is_idle_since(&mut last), "it has no answer");
        activity.open.store(0, Ordering::Relaxed);
        assert!(activity.is_idle_since(&mut last));
        writes.count_write();
        assert!(activity.is_idle_since(&mut last), "it was a ping");
        activity.may_be_idle.store(true, Ordering::Relaxed);
        assert!(!activity.is_idle_since(&mut last));
    }
}
