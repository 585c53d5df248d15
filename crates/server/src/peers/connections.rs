//! Connections to other nodes: opened on demand, shared by all requests, closed when unused.

use super::{CONNECTION_WINDOW, Identity, MAX_STREAMS, STREAM_WINDOW};
use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use hyper::{
    Request, Response,
    body::{Body, Frame, Incoming, SizeHint},
    client::conn::http2::{Builder, SendRequest},
    http::uri::{Authority, InvalidUri, PathAndQuery, Scheme, Uri},
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

/// The timeout of a connection attempt, before TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of the TLS handshake, in which the other node's certificate may have to be looked for in the database.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval and the timeout of keep-alive pings.
const PING_EVERY: Duration = Duration::from_secs(2);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// All connections, by address. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connections {
    identity: Arc<Identity>,
    lines: Arc<Mutex<HashMap<Box<str>, Line>>>,
    unused_after: Duration,
}

/// A connection that is open or being opened. All requests that need it wait for the same attempt.
type Line = Shared<BoxFuture<'static, Option<Connection>>>;

/// One connection. Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection {
    sender: SendRequest<Sending>,
    authority: Authority,
    /// The number of requests so far. The number of clones of the `Arc` shows whether the connection is in use.
    used: Arc<AtomicU64>,
}

/// Why a request has no answer.
pub(super) struct NotSent {
    pub(super) error: hyper::Error,
    /// Whether the body was handed to the connection, so that it may have arrived.
    pub(super) is_handed_over: bool,
}

#[derive(Debug, thiserror::Error)]
enum NotConnected {
    #[error("the address is not valid")]
    Address(#[from] InvalidUri),
    #[error("the connection attempt timed out")]
    Timeout(#[from] tokio::time::error::Elapsed),
    #[error("its certificate is not one of a node that the database lists")]
    Stranger,
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

impl Connections {
    /// A connection that is unused for `unused_after` is closed.
    pub(super) fn new(identity: Arc<Identity>, unused_after: Duration) -> Connections {
        Connections { identity, lines: Arc::default(), unused_after }
    }

    /// Returns the connection to that address, opening it if needed; `None` if the node cannot be reached.
    pub(super) async fn get(&self, address: &str) -> Option<Connection> {
        let line = {
            let mut lines = self.lock();
            match lines.get(address).filter(|line| is_usable(line)) {
                Some(line) => line.clone(),
                None => {
                    let line = self.clone().begin(address.into());
                    lines.insert(address.into(), line.clone());
                    line
                }
            }
        };
        line.await
    }

    /// Stops using a connection for new requests, if it still is the one to that address. Open requests go on.
    pub(super) fn forget(&self, address: &str, connection: &Connection) {
        self.forget_used(address, &Arc::downgrade(&connection.used));
    }

    fn forget_used(&self, address: &str, used: &Weak<AtomicU64>) {
        let mut lines = self.lock();
        let held = lines.get(address).and_then(|line| line.peek()?.as_ref());
        if held.is_some_and(|held| Arc::as_ptr(&held.used) == used.as_ptr()) {
            lines.remove(address);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to open a connection, in a task that goes on even if no request waits for it any more.
    fn begin(self, address: Box<str>) -> Line {
        let connecting = tokio::spawn(async move {
            match self.connect(&address).await {
                Ok(connection) => Some(connection),
                Err(error) => {
                    tracing::debug!(%address, %error, "another node was not reached");
                    None
                }
            }
        });
        connecting.map(|joined| joined.ok().flatten()).boxed().shared()
    }

    async fn connect(&self, address: &str) -> Result<Connection, NotConnected> {
        let authority: Authority = address.parse()?;
        let socket = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await??;
        // Without this, small requests wait for the acknowledgement of earlier ones. A failure only makes them slower.
        let _slower = socket.set_nodelay(true);
        let socket = timeout(HANDSHAKE_TIMEOUT, self.identity.connect(socket)).await??;
        let socket = socket.ok_or(NotConnected::Stranger)?;
        let (sender, driver) = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_concurrent_reset_streams(MAX_STREAMS as usize)
            // h2 counts these for the whole life of a connection, and an answer that arrives after its request was cancelled is
            // one. So there must be no limit.
            .max_local_error_reset_streams(None)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(socket))
            .await?;
        let used = Arc::new(AtomicU64::new(0));
        tokio::spawn(self.clone().run(address.into(), Arc::downgrade(&used), driver));
        Ok(Connection { sender, authority, used })
    }

    /// Runs a connection until it ends. An unused connection is forgotten; it ends when its last clone is dropped.
    async fn run(
        self,
        address: Box<str>,
        used: Weak<AtomicU64>,
        driver: impl Future<Output = hyper::Result<()>>,
    ) {
        let mut driver = pin!(driver);
        let mut before = 0;
        let ended = loop {
            tokio::select! {
                ended = &mut driver => break ended,
                () = sleep(self.unused_after) => if is_unused_since(&used, &mut before) {
                    self.forget_used(&address, &used);
                }
            }
        };
        self.forget_used(&address, &used);
        if let Err(error) = ended {
            tracing::debug!(%address, %error, "the connection to another node ended");
        }
    }
}

/// Whether no request uses the connection, and none has begun since the last call. `before` is the state of the last call.
fn is_unused_since(used: &Weak<AtomicU64>, before: &mut u64) -> bool {
    let is_idle = used.strong_count() <= 1;
    let now = used.upgrade().map_or(0, |used| used.load(Ordering::Relaxed));
    std::mem::replace(before, now) == now && is_idle
}

/// Whether new requests can use the connection, or wait for it.
fn is_usable(line: &Line) -> bool {
    match line.peek() {
        None => true,
        Some(None) => false,
        Some(Some(connection)) => !connection.sender.is_closed(),
    }
}

impl Connection {
    /// The URI of a path on the other node.
    pub(super) fn uri(&self, path: &'static str) -> Uri {
        let path = PathAndQuery::from_static(path);
        let uri = Uri::builder().scheme(Scheme::HTTPS).authority(self.authority.clone()).path_and_query(path);
        uri.build().expect("its parts are valid")
    }

    /// Sends a request and waits for the head of its answer. Dropping the future resets the stream.
    pub(super) async fn send(&mut self, request: Request<Bytes>) -> Result<Response<Incoming>, NotSent> {
        self.used.fetch_add(1, Ordering::Relaxed);
        let is_handed_over = Arc::new(AtomicBool::new(false));
        let request = request.map(|bytes| Sending { bytes, is_handed_over: is_handed_over.clone() });
        self.sender
            .send_request(request)
            .await
            .map_err(|error| NotSent { error, is_handed_over: is_handed_over.load(Ordering::Acquire) })
    }
}

/// A body, never empty, that records whether it was handed to the connection. Before that, the other node cannot have received
/// it.
struct Sending {
    bytes: Bytes,
    is_handed_over: Arc<AtomicBool>,
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        self.is_handed_over.store(true, Ordering::Release);
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
