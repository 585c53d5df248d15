//! Accepts connections of clients and of other nodes, closes idle ones, and drains the rest when the server stops.

use super::{
    App,
    acceptor::Acceptor,
    connection::{Connection, LastCheck},
    endpoints::Endpoints,
    handshakes::Handshakes,
    request_id,
    service::ConnectionService,
    socket::{ClientConnection, Socket},
    stalls::Patience,
    streams::{StreamExecutor, StreamStarter},
};
use crate::{PeerClient, peers};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use limina_node::Budget;
use std::{
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::sleep,
};

/// The interval at which a connection is checked for activity. It is closed after two checks without any: no open request, no new
/// request, nothing written. This also ends a connection that does not complete the head of a request.
const IDLE_CHECK: Duration = Duration::from_secs(15);
/// The interval of keep-alive pings on an idle HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a stopping server waits for requests in flight.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server that drains serves its connections after it has stopped listening.
const LAST_REQUESTS: Duration = Duration::from_millis(200);
/// The most connections that a stopping server still accepts because they wait to be accepted.
const MAX_LAST_ACCEPTS: usize = 1_024;
/// The pause after an error of the listener, for example when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The most bytes of an HTTP/1 connection that are read ahead. It bounds the head of a request.
const MAX_READ_AHEAD: usize = 64 << 10;
/// The shortest time between two log lines about connections that were not accepted.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Serves clients over HTTP/1.1 and HTTP/2 until `shutdown` completes. Then it accepts no more connections, waits up to 10 s for
/// requests in flight, and returns. With [`AppOptions::tls`](super::AppOptions) a client chooses the version by ALPN; without, HTTP/2
/// needs prior knowledge.
pub fn serve(listener: TcpListener, app: App, shutdown: Shutdown) -> Serving {
    let endpoints = Endpoints::for_clients(&app);
    Box::pin(Listening::to_clients(app, endpoints).run(listener, shutdown))
}

/// Serves Envoy on a port of its own, as [`serve`] serves all clients: the rate limit service, gRPC's health service, and the
/// probes.
pub fn serve_envoy(listener: TcpListener, app: App, shutdown: Shutdown) -> Serving {
    let endpoints = Endpoints::for_envoy(&app);
    Box::pin(Listening::to_clients(app, endpoints).run(listener, shutdown))
}

/// Serves other nodes, as [`serve`] serves clients: only nodes whose certificates the store lists, over TLS, with a protocol of
/// their own. `peers` connects this node to them. At most so many connections are open at once.
pub fn serve_peers(
    listener: TcpListener,
    app: App,
    peers: Arc<PeerClient>,
    max_connections: usize,
    shutdown: Shutdown,
) -> Serving {
    let acceptor = Acceptor::Peers(peers.identity().clone());
    Box::pin(Listening::new(app, acceptor, Protocol::Peers, max_connections).run(listener, shutdown))
}

/// Completes when a listener has stopped.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Completes when the server stops. This and [`Serving`] are boxed so that the front ends are compiled once, in this crate, and not again
/// in each crate that serves.
pub type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What is spoken on the connections of a listener. Cheap to clone.
#[derive(Clone)]
enum Protocol {
    Http {
        endpoints: Arc<Endpoints>,
        builder: Arc<auto::Builder<StreamExecutor>>,
    },
    /// The protocol between nodes.
    Peers,
}

impl Protocol {
    fn http(app: &App, endpoints: Endpoints) -> Protocol {
        Protocol::Http { endpoints: Arc::new(endpoints), builder: Arc::new(builder(app)) }
    }
}

fn builder(app: &App) -> auto::Builder<StreamExecutor> {
    let write_timeout = app.reader_timeout();
    let patience = Patience { timeout: write_timeout, memory: app.memory().clone() };
    let mut builder = auto::Builder::new(StreamExecutor { patience });
    // hyper's own timeout sets a timer for every request, which took about 7 % of the time in a profile. `run` uses one timer
    // for each connection instead.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_READ_AHEAD);
    // A client answers a ping only after it has read everything that was sent before, so a slow reader needs the longer timeout.
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(write_timeout);
    builder
}

/// What a listener serves, and to whom. Cheap to clone.
#[derive(Clone)]
struct Listening {
    app: App,
    acceptor: Acceptor,
    protocol: Protocol,
    max_connections: usize,
    permits: Arc<Semaphore>,
    handshakes: Arc<Handshakes>,
}

impl Listening {
    fn new(app: App, acceptor: Acceptor, protocol: Protocol, max_connections: usize) -> Listening {
        let permits = Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS)));
        let handshakes = Handshakes::new(max_connections);
        Listening { app, acceptor, protocol, max_connections, permits, handshakes }
    }

    fn to_clients(app: App, endpoints: Endpoints) -> Listening {
        let acceptor = app.tls().cloned().map_or(Acceptor::Plain, Acceptor::Tls);
        let (protocol, max_connections) = (Protocol::http(&app, endpoints), app.max_connections());
        Listening::new(app, acceptor, protocol, max_connections)
    }

    /// Serves connections until `shutdown` completes, and then answers the requests in flight. A node that has given its shards away can
    /// forward requests until its process ends, so it goes on to accept connections meanwhile.
    async fn run(self, listener: TcpListener, shutdown: Shutdown) {
        let mut throttle = LogThrottle::default();
        let served = self.accept(&listener, shutdown, &mut throttle).await;
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let draining = drain(&self.app, served, deadline);
        let forwards = self.app.is_draining().load(Ordering::Relaxed);
        if forwards && matches!(self.protocol, Protocol::Http { .. }) {
            let late = self.accept(&listener, draining, &mut throttle).await;
            drop(listener);
            drain(&self.app, late, deadline).await;
        } else {
            drop(listener);
            draining.await;
        }
    }

    /// Accepts connections until `end` completes, and those that wait to be accepted then.
    async fn accept(
        &self,
        listener: &TcpListener,
        end: impl Future<Output = ()>,
        throttle: &mut LogThrottle,
    ) -> Served {
        let Served { graceful, mut connections } = Served::default();
        let mut end = pin!(end);
        // How many connections are still accepted after the end. The system has completed them already, so their
        // clients would lose the requests that they have sent.
        let mut last_accepts = None;
        loop {
            tokio::select! {
                biased;
                () = &mut end, if last_accepts.is_none() => last_accepts = Some(MAX_LAST_ACCEPTS),
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a connection ended with a panic");
                    }
                }
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => match self.admit(stream) {
                        Some((socket, client)) => {
                            let serving = self.clone().serve(socket, client, address, graceful.watcher());
                            connections.spawn(serving);
                        }
                        None if throttle.is_due() => {
                            let listener = self.acceptor.listener_label();
                            tracing::warn!(listener, max_connections = self.max_connections, "connections are refused: the maximum number is open, or there is no memory");
                        }
                        None => {}
                    },
                    Err(error) if is_client_error(&error) => {}
                    Err(error) => {
                        if throttle.is_due() {
                            tracing::error!(%error, "a connection could not be accepted");
                        }
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                // No connection waits to be accepted.
                () = std::future::ready(()), if last_accepts.is_some() => break,
            }
            if let Some(left) = &mut last_accepts {
                match *left {
                    0 => break,
                    _ => *left -= 1,
                }
            }
        }
        Served { graceful, connections }
    }

    /// Takes a permit and memory for a connection. Refuses it if the most connections are open, or if there is no memory.
    fn admit(&self, stream: TcpStream) -> Option<(Socket, ClientConnection)> {
        let memory = self.app.memory();
        let permit = self.permits.clone().try_acquire_owned().ok();
        let reserved = self.acceptor.reserve(memory).ok();
        let (Some(permit), Some(reserved)) = (permit, reserved) else {
            if matches!(self.acceptor, Acceptor::Plain) {
                refuse(&stream);
            }
            self.app.metrics().connections_refused.inc();
            return None;
        };
        let patience = Patience { timeout: self.app.reader_timeout(), memory: memory.clone() };
        Some(Socket::new(stream, permit, reserved, patience))
    }

    /// Serves a connection until it ends.
    async fn serve(self, socket: Socket, client: ClientConnection, address: SocketAddr, watcher: Watcher) {
        let Listening { app, acceptor, protocol, handshakes, .. } = self;
        let writes = socket.activity().clone();
        let Some(stream) = acceptor.accept(socket, address, handshakes, &app).await else { return };
        match protocol {
            Protocol::Http { endpoints, builder } => {
                let (memory, is_draining) = (app.memory().clone(), app.is_draining().clone());
                let router = endpoints.router().clone();
                let connection =
                    Arc::new(Connection::new(router, client, memory.clone(), writes, is_draining));
                let service = ConnectionService { endpoints, connection: connection.clone() };
                let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
                run(watcher.watch(serving), &connection, memory).await;
            }
            Protocol::Peers => {
                if let Err(error) = peers::serve_connection(stream, app).await {
                    tracing::debug!(%address, %error, "the connection of another node ended");
                }
            }
        }
    }
}

/// Connections that were accepted, and are drained together.
#[derive(Default)]
struct Served {
    graceful: GracefulShutdown,
    connections: JoinSet<()>,
}

/// Waits for the requests in flight, up to the deadline.
async fn drain(app: &App, served: Served, deadline: Instant) {
    let Served { graceful, mut connections } = served;
    // A connection that was accepted a moment ago may not have sent its request yet.
    if app.is_draining().load(Ordering::Relaxed) {
        sleep(LAST_REQUESTS).await;
    }
    let stopping = app.stopping();
    stopping.send_replace(true);
    let drained = async { tokio::join!(graceful.shutdown(), stopping.closed()) };
    if tokio::time::timeout_at(deadline.into(), drained).await.is_err() {
        tracing::warn!("requests were still in flight after the drain timeout, and were cancelled");
    }
    connections.shutdown().await;
}

/// Answers 503 to a client whose connection is one too many. The socket is closed at once, so the client may see a reset
/// instead.
fn refuse(stream: &TcpStream) {
    let id = request_id::new();
    let body = format!(
        r#"{{"type":"/docs#Overloaded","title":"The server is overloaded","status":503,"detail":"The server has its maximum number of connections, or no memory for more. Nothing was done.","code":"Overloaded","request_id":"{id}"}}"#
    );
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
         content-type: application/problem+json\r\nx-content-type-options: nosniff\r\n\
         x-request-id: {id}\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let _client_gone = stream.try_write(answer.as_bytes());
}

/// Limits how often an event is logged that may happen thousands of times a second. Contains the time of the last log line.
#[derive(Default)]
struct LogThrottle(Option<Instant>);

impl LogThrottle {
    fn is_due(&mut self) -> bool {
        let is_due = self.0.is_none_or(|at| at.elapsed() >= LOG_EVERY);
        if is_due {
            self.0 = Some(Instant::now());
        }
        is_due
    }
}

/// Runs a connection until it ends or is idle for too long, or its client takes no answer while memory is short.
async fn run<E: std::fmt::Display>(
    serving: impl Future<Output = Result<(), E>>,
    connection: &Connection,
    memory: Budget,
) {
    let activity = &connection.activity;
    let mut serving = pin!(StreamStarter::new(serving));
    let (mut last, mut idle_checks, mut stalled_checks) = (LastCheck::default(), 0, 0);
    let ended = loop {
        tokio::select! {
            ended = &mut serving => break ended,
            () = sleep(IDLE_CHECK) => {
                idle_checks = if activity.is_idle_since(&mut last) { idle_checks + 1 } else { 0 };
                let is_stalled = activity.is_stalled_since(&mut last);
                stalled_checks = if is_stalled { stalled_checks + 1 } else { 0 };
                if idle_checks >= 2 || stalled_checks >= 2 && memory.is_short() {
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// Whether only this client failed, before its connection was accepted. Then the next one can be accepted at once.
fn is_client_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
