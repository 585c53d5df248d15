//! Sends requests to other nodes.

use super::{
    ASK, FOLLOW, Identity, IdentityError, REFUSALS, SHARD, WHO,
    connections::{Connection, Connections, NotSent},
    routes::ALIVE_EVERY,
    wire::{MAX_MESSAGE, Messages, decode, encode},
};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::{Method, Request, Response, StatusCode, body::Incoming};
use limina_engine::{Outcome, Request as EngineRequest};
use limina_node::{
    Feed, FeedEnded, FeedRequest, Fingerprint, PeerError, Peers, RefusalsPage, RefusalsRequest, ShardId,
    StreamUpdate, memory::MemoryFull, peers::PeerFuture,
};
use serde::de::DeserializeOwned;
use std::{
    collections::HashMap,
    error::Error,
    io::ErrorKind,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{net::TcpStream, time::timeout};

/// The time after which an unused connection is closed.
const UNUSED_AFTER: Duration = Duration::from_secs(60);
/// The shortest time between two log lines about wrong answers of the same node.
const WARN_EVERY: Duration = Duration::from_secs(5);
/// A feed without any message for this time counts as lost. The other node sends one at least every [`ALIVE_EVERY`].
const FEED_TIMEOUT: Duration = ALIVE_EVERY.saturating_mul(4);

/// How long a node that may have died has to accept a connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest page of refusals: one of the largest key-values, or as many small ones as fit into a page.
const MAX_REFUSALS: usize = 1 << 20;

/// The connections to other nodes, over HTTP/2 and TLS. [`serve_peers`](crate::serve_peers) serves the connections from them,
/// with the same certificate.
pub struct HttpPeers {
    identity: Arc<Identity>,
    asks: Connections,
    /// Feeds have connections of their own, so that no answer waits behind messages of streams.
    feeds: Connections,
    /// The time of the last log line for each address.
    warned: Mutex<HashMap<Box<str>, Instant>>,
}

impl HttpPeers {
    /// Makes a key and a certificate for this node. Opens no connection yet.
    pub fn new() -> Result<HttpPeers, IdentityError> {
        let identity = Arc::new(Identity::generate()?);
        let connections = || Connections::new(identity.clone(), UNUSED_AFTER);
        let (asks, feeds) = (connections(), connections());
        Ok(HttpPeers { identity, asks, feeds, warned: Mutex::default() })
    }

    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Changes the time after which an unused connection is closed. Default: one minute.
    pub fn with_unused_after(self, unused_after: Duration) -> HttpPeers {
        let connections = || Connections::new(self.identity.clone(), unused_after);
        HttpPeers { asks: connections(), feeds: connections(), ..self }
    }

    /// Sends a body. Returns the body of the answer, and the connection, which must be kept while the answer is read.
    async fn post(
        &self,
        connections: &Connections,
        address: &str,
        path: &'static str,
        shard: ShardId,
        body: Bytes,
    ) -> Result<(Incoming, Connection), PeerError> {
        let mut connection = connections.get(address).await.ok_or(PeerError::NotThere)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(connection.uri(path))
            .header(SHARD, shard.0)
            .body(body)
            .expect("its parts are valid");
        match connection.send(request).await {
            Ok(response) => Ok((self.accepted(address, response)?, connection)),
            Err(not_sent) => {
                tracing::debug!(address, error = %not_sent.error, "another node did not answer");
                let not_answered = PeerError::from(not_sent);
                if not_answered == PeerError::NotThere {
                    // The connection accepts no more requests, although it may not be closed yet.
                    connections.forget(address, &connection);
                }
                Err(not_answered)
            }
        }
    }

    /// The body of a 200. A node checks a request before it executes anything, so after a status 4xx nothing was done. Nor was it
    /// after a 503: the other node had no memory for the request.
    fn accepted(&self, address: &str, response: Response<Incoming>) -> Result<Incoming, PeerError> {
        let status = response.status();
        match status {
            StatusCode::OK => return Ok(response.into_body()),
            StatusCode::SERVICE_UNAVAILABLE => return Err(PeerError::Unavailable(MemoryFull.into())),
            _ => {}
        }
        self.warn(address, status);
        Err(if status.is_client_error() { PeerError::NotThere } else { PeerError::Lost })
    }

    fn warn(&self, address: &str, status: StatusCode) {
        if !self.may_warn(address, Instant::now()) {
            return;
        }
        let status = status.as_u16();
        match status {
            404 => tracing::warn!(address, status, "another node is of another version"),
            _ => tracing::warn!(address, status, "another node did not understand"),
        }
    }

    /// Whether the last log line about this address is old enough.
    fn may_warn(&self, address: &str, now: Instant) -> bool {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        warned.retain(|_, at| now.duration_since(*at) < WARN_EVERY);
        let may_warn = !warned.contains_key(address);
        if may_warn {
            warned.insert(address.into(), now);
        }
        may_warn
    }
}

impl From<NotSent> for PeerError {
    /// Nothing was done in two cases: the body was not handed to the connection, or the other node said that it has not
    /// processed the HTTP/2 stream (it refused the stream, or its GOAWAY names an earlier one).
    fn from(not_sent: NotSent) -> PeerError {
        let source = not_sent.error.source().and_then(|source| source.downcast_ref::<h2::Error>());
        let is_refused = source.is_some_and(|error| {
            error.is_remote() && (error.is_go_away() || error.reason() == Some(h2::Reason::REFUSED_STREAM))
        });
        match is_refused || !not_sent.is_handed_over {
            true => PeerError::NotThere,
            false => PeerError::Lost,
        }
    }
}

impl Peers for HttpPeers {
    fn certificate(&self) -> Option<Fingerprint> {
        Some(self.identity.fingerprint())
    }

    fn handle_certificates(&self, listed: Vec<Fingerprint>, asked_at: tokio::time::Instant) {
        self.identity.handle_listed(listed, asked_at);
    }

    fn who<'a>(&'a self, address: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async move {
            // The request is for no shard, so the number does not matter.
            let (answer, _connection) =
                self.post(&self.asks, address, WHO, ShardId(0), encode(&address)).await?;
            let answer = Limited::new(answer, MAX_MESSAGE).collect().await;
            let bytes = answer.map_err(|_| PeerError::Lost)?.to_bytes();
            decode(&bytes).ok_or(PeerError::Lost)
        })
    }

    fn is_refused<'a>(&'a self, address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(is_refused(address))
    }

    fn ask<'a>(
        &'a self,
        address: &'a str,
        shard: ShardId,
        request: &'a EngineRequest,
    ) -> PeerFuture<'a, Outcome> {
        Box::pin(async move {
            let (answer, _connection) = self.post(&self.asks, address, ASK, shard, encode(request)).await?;
            let answer = Limited::new(answer, MAX_MESSAGE).collect().await;
            let bytes = answer.map_err(|_| PeerError::Lost)?.to_bytes();
            decode(&bytes).unwrap_or(Err(PeerError::Lost))
        })
    }

    fn follow<'a>(&'a self, address: &'a str, wanted: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async move {
            let followed = self.post(&self.feeds, address, FOLLOW, wanted.shard, encode(wanted)).await?;
            let (answer, connection) = followed;
            let mut feed = HttpFeed { answer, messages: Messages::default(), _in_use: connection };
            let begun: Option<Result<(), PeerError>> = feed.message().await;
            begun.ok_or(PeerError::Lost)??;
            Ok(Box::new(feed) as Box<dyn Feed>)
        })
    }

    fn refusals<'a>(
        &'a self,
        address: &'a str,
        request: &'a RefusalsRequest,
    ) -> PeerFuture<'a, RefusalsPage> {
        Box::pin(async move {
            // The request is for no shard, so the number does not matter.
            let answered = self.post(&self.feeds, address, REFUSALS, ShardId(0), encode(request)).await?;
            let (answer, _connection) = answered;
            let answer = Limited::new(answer, MAX_REFUSALS).collect().await;
            let bytes = answer.map_err(|_| PeerError::Lost)?.to_bytes();
            decode(&bytes).unwrap_or(Err(PeerError::Lost))
        })
    }
}

/// Whether every machine that the address leads to refuses connections.
async fn is_refused(address: &str) -> bool {
    let Ok(places) = tokio::net::lookup_host(address).await else { return false };
    let mut places = places.peekable();
    let leads_somewhere = places.peek().is_some();
    for place in places {
        let connected = timeout(PROBE_TIMEOUT, TcpStream::connect(place)).await;
        if !matches!(connected, Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused) {
            return false;
        }
    }
    leads_somewhere
}

/// The feed of a stream from another node.
struct HttpFeed {
    answer: Incoming,
    messages: Messages,
    _in_use: Connection,
}

impl HttpFeed {
    /// The next message; `None` if the connection is lost or the bytes are not a valid message.
    async fn message<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            if let Some(bytes) = self.messages.next().ok()? {
                return decode(&bytes);
            }
            let frame = timeout(FEED_TIMEOUT, self.answer.frame()).await.ok()??.ok()?;
            if let Some(piece) = frame.data_ref() {
                self.messages.push(piece);
            }
        }
    }
}

impl Feed for HttpFeed {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<StreamUpdate>, FeedEnded>> + Send + '_>> {
        Box::pin(async { self.message().await.unwrap_or(Err(FeedEnded::Lost)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_reported_now_and_then() {
        let peers = HttpPeers::new().unwrap();
        let begin = Instant::now();
        let check = |address: &str, after: u64, expect: bool| {
            let now = begin + Duration::from_secs(after);
            assert_eq!(peers.may_warn(address, now), expect, "{address} after {after} s");
        };
        check("a", 0, true);
        check("a", 0, false);
        check("b", 3, true);
        check("a", 4, false);
        check("a", 5, true);
        check("b", 7, false);
        check("b", 8, true);
        check("a", 9, false);
    }
}
