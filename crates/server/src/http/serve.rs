//! Accepting connections, and letting them end.

use super::{
    App,
    socket::{Peer, Sending, Socket},
    streams::{Streams, watched},
};
use crate::peers;
use axum::{Router, body::Body};
use hyper::{Request, Response, Version, body::Incoming, header::CONTENT_TYPE, service::Service};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use pin_project_lite::pin_project;
use std::{
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::sleep,
};

/// A connection on which nothing is asked, answered or sent for so long, or that does not get a request's head across, is
/// looked at twice and then closed.
const SILENCE: Duration = Duration::from_secs(15);
/// An HTTP/2 connection on which nothing moves is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Requests in flight have so long to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error of the listener (no file descriptor left, say) it rests for this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often it is logged that connections are refused.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Serves HTTP/1.1, and HTTP/2 by prior knowledge, until `shutdown` is done; then accepts nothing more, lets the
/// requests in flight end, and returns after 10 s at the latest.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) {
    let router = app.router();
    let patience = app.reader_timeout();
    let mut builder = auto::Builder::new(Streams { patience });
    // The library's own limit sets a timer for every request. Timers were about 7 % of a short profile, taken on a busy
    // machine; see `run` for what is done instead.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    // The answer to a ping comes after all that was sent before it, which a slow reader has yet to read.
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(patience);
    let places = Arc::new(Semaphore::new(app.max_connections().min(Semaphore::MAX_PERMITS)));
    let mut told = Told::default();
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a connection ended in a panic");
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let Ok(place) = places.clone().try_acquire_owned() else {
                        refuse(&stream);
                        app.0.metrics.connections_refused.inc();
                        if told.is_due() {
                            let most = app.max_connections();
                            tracing::warn!(most, "connections are refused: there are as many as file descriptors allow");
                        }
                        continue;
                    };
                    if app.secret().is_some() {
                        peers::settings(&mut builder.http2());
                    }
                    let inner = TowerToHyperService::new(router.clone());
                    let (socket, peer) = Socket::new(stream, place, patience);
                    let requests = Arc::new(Requests::of(&socket));
                    let service = Watched { inner, requests: requests.clone(), peer };
                    let socket = TokioIo::new(socket);
                    let connection = builder.serve_connection_with_upgrades(socket, service).into_owned();
                    connections.spawn(run(graceful.watch(connection), requests));
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    if told.is_due() {
                        tracing::error!(%error, "a connection could not be accepted");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    let conversations = app.conversations();
    conversations.send_replace(true);
    let drained = async { tokio::join!(graceful.shutdown(), conversations.closed()) };
    if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
        tracing::warn!("requests were still in flight when the time for draining was over");
    }
    connections.shutdown().await;
}

/// Tells a client that there is no place for its connection. The descriptor is closed at once, so the client may see a
/// reset instead.
fn refuse(stream: &TcpStream) {
    const BODY: &str = r#"{"type":"/docs#Overloaded","title":"The server is overloaded","status":503,"detail":"There are as many connections as the server may have. Nothing was done; try again after Retry-After.","code":"Overloaded"}"#;
    let length = BODY.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
         content-type: application/problem+json\r\ncontent-length: {length}\r\n\r\n{BODY}"
    );
    let _client_gone = stream.try_write(answer.as_bytes());
}

/// When something was last logged that may happen thousands of times a second.
#[derive(Default)]
struct Told(Option<Instant>);

impl Told {
    fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|at| at.elapsed() >= TELL_EVERY);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

/// Runs a connection until it ends, or until the client has said nothing for a while. One timer for each connection, not
/// for each request.
async fn run<E: std::fmt::Display>(connection: impl Future<Output = Result<(), E>>, requests: Arc<Requests>) {
    let mut connection = pin!(connection);
    let (mut seen, mut silent) = (Seen::default(), 0);
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            () = sleep(SILENCE) => {
                silent = if requests.is_silent_since(&mut seen) { silent + 1 } else { 0 };
                if silent >= 2 {
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// The requests of one connection.
struct Requests {
    begun: AtomicU64,
    open: AtomicU64,
    /// An answer goes on being sent after its request is done.
    sending: Arc<Sending>,
    /// It is not closed for being silent: HTTP/2 has a sign of life of its own, and an answer that never ends is one.
    may_be_silent: AtomicBool,
}

/// What a connection had done when it was last looked at.
#[derive(Default)]
struct Seen {
    begun: u64,
    writes: u64,
}

impl Requests {
    fn of(socket: &Socket) -> Requests {
        let sending = socket.sending().clone();
        Requests { begun: 0.into(), open: 0.into(), sending, may_be_silent: false.into() }
    }

    /// Whether none is open, none has begun and nothing was sent since this was last asked.
    fn is_silent_since(&self, seen: &mut Seen) -> bool {
        let before = std::mem::replace(&mut seen.begun, self.begun.load(Ordering::Relaxed));
        let is_sending = self.sending.is_active_since(&mut seen.writes);
        seen.begun == before
            && !is_sending
            && self.open.load(Ordering::Relaxed) == 0
            && !self.may_be_silent.load(Ordering::Relaxed)
    }
}

/// Counts a connection's requests, and tells each of them whose it is.
struct Watched {
    inner: TowerToHyperService<Router>,
    requests: Arc<Requests>,
    peer: Peer,
}

type Inner = TowerToHyperService<Router>;

impl Service<Request<Incoming>> for Watched {
    type Response = <Inner as Service<Request<Incoming>>>::Response;
    type Error = <Inner as Service<Request<Incoming>>>::Error;
    type Future = Answering<<Inner as Service<Request<Incoming>>>::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.requests.begun.fetch_add(1, Ordering::Relaxed);
        self.requests.open.fetch_add(1, Ordering::Relaxed);
        if request.version() == Version::HTTP_2 {
            self.requests.may_be_silent.store(true, Ordering::Relaxed);
        }
        Answering { open: Open(self.requests.clone()), answer: self.inner.call(request) }
    }
}

pin_project! {
    /// An answer on its way, during which its request counts as open.
    struct Answering<F> {
        open: Open,
        #[pin]
        answer: F,
    }
}

impl<F, E> Future for Answering<F>
where
    F: Future<Output = Result<Response<Body>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let answer = this.answer.poll(context);
        if let Poll::Ready(Ok(response)) = &answer
            && response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream")
        {
            this.open.0.may_be_silent.store(true, Ordering::Relaxed);
        }
        answer.map_ok(|response| response.map(watched))
    }
}

/// Counts a request out, also one whose client hangs up.
struct Open(Arc<Requests>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Errors of one client that left before it was accepted, after which the next can be accepted at once.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
