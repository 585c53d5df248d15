//! Accepting connections, and letting them end.

use super::App;
use axum::Router;
use hyper::{Request, body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use std::{
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::sleep,
};

/// The head of a request must arrive within this time; the first one of a connection as well.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// An HTTP/2 connection on which nothing moves is asked for a sign of life.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Requests in flight have so long to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// After an error of the listener (no file descriptor left, say) it rests for this time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves HTTP/1.1, and HTTP/2 by prior knowledge, until `shutdown` is done; then accepts nothing more, lets the
/// requests in flight end, and returns after 10 s at the latest.
pub async fn serve(listener: TcpListener, app: App, shutdown: impl Future<Output = ()>) {
    let router = app.router();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_EVERY);
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
                    let seen = Arc::new(AtomicBool::new(false));
                    let service = Watched { inner: TowerToHyperService::new(router.clone()), seen: seen.clone() };
                    // Without it small answers wait for the client's acknowledgement; a failure costs only time.
                    let _ = TcpStream::set_nodelay(&stream, true);
                    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
                    connections.spawn(run(graceful.watch(connection), seen));
                }
                Err(error) if is_of_the_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still in flight when the time for draining was over");
    }
    connections.shutdown().await;
}

async fn run<E: std::fmt::Display>(connection: impl Future<Output = Result<(), E>>, seen: Arc<AtomicBool>) {
    let mut connection = pin!(connection);
    // The library's own time limit begins when it knows the protocol, which a silent client never tells it.
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = sleep(HEAD_TIMEOUT) => {
            if !seen.load(Ordering::Relaxed) {
                return;
            }
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Notes that a connection has made a request.
struct Watched {
    inner: TowerToHyperService<Router>,
    seen: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for Watched {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.seen.store(true, Ordering::Relaxed);
        self.inner.call(request)
    }
}

/// Errors of one client that left before it was accepted, after which the next can be accepted at once.
fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
