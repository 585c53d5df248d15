//! Sends requests to other nodes.

use super::{
    Identity, IdentityError,
    calls::{NotBegun, OpenCall, Reply},
    connections::Connections,
    frames::Kind,
    wire::{Refusal, decode, encode, encode_after},
};
use bytes::Bytes;
use limina_engine::{Outcome, Request as EngineRequest};
use limina_node::{
    Budget, Feed, FeedEnded, FeedRequest, Fingerprint, PeerError, Peers, RefusalsPage, RefusalsRequest,
    ShardId, StreamUpdate, memory::MemoryFull, peers::PeerFuture,
};
use serde::de::DeserializeOwned;
use std::{
    collections::HashMap,
    io::ErrorKind,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::timeout,
};

/// The shortest time between two log lines about refusals of the same node.
const WARN_EVERY: Duration = Duration::from_secs(5);

/// How long a node that may have died has to accept a connection.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The connections to other nodes, over TLS. [`serve_peers`](crate::serve_peers) serves the connections from them, with the same
/// certificate.
pub struct PeerClient {
    identity: Arc<Identity>,
    asks: Connections,
    /// Streams and refusals have connections of their own, so that no answer waits behind messages of streams.
    feeds: Connections,
    /// The time of the last log line for each address.
    warned: Mutex<HashMap<Box<str>, Instant>>,
}

impl PeerClient {
    /// Makes a key and a certificate for this node. Opens no connection yet. `memory` counts long answers of other nodes.
    pub fn new(memory: Budget) -> Result<PeerClient, IdentityError> {
        let identity = Arc::new(Identity::generate()?);
        let connections = || Connections::new(identity.clone(), memory.clone());
        let (asks, feeds) = (connections(), connections());
        Ok(PeerClient { identity, asks, feeds, warned: Mutex::default() })
    }

    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Makes a call that has one answer, and returns the decoded answer.
    async fn call<T: DeserializeOwned>(
        &self,
        connections: &Connections,
        address: &str,
        kind: Kind,
        body: Bytes,
    ) -> Result<T, PeerError> {
        let begin = |connection: &super::calls::Connection| connection.ask(kind, body.clone());
        let (_call, reply): (OpenCall, oneshot::Receiver<Reply>) =
            self.begin(connections, address, begin).await?;
        let (answer, _memory) = self.answer(address, reply.await.ok())?;
        decode(&answer).ok_or(PeerError::Lost)
    }

    /// Begins a call on the connection to that address. If the connection has just been closed, the call gets another one.
    async fn begin<T>(
        &self,
        connections: &Connections,
        address: &str,
        begin: impl Fn(&super::calls::Connection) -> Result<T, NotBegun>,
    ) -> Result<T, PeerError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let connection = connections.get(address).await.ok_or(PeerError::NotThere)?;
            match begin(&connection) {
                Ok(begun) => return Ok(begun),
                Err(NotBegun::Closed) if attempts == 1 => {}
                Err(NotBegun::Closed) => return Err(PeerError::NotThere),
                Err(NotBegun::Full) => return Err(PeerError::Unavailable(MemoryFull.into())),
            }
        }
    }

    /// The bytes of an answer, with their memory. None: the connection's task has ended without a reply.
    fn answer(
        &self,
        address: &str,
        reply: Option<Reply>,
    ) -> Result<(Bytes, Option<limina_node::memory::Reservation>), PeerError> {
        match reply {
            Some(Reply::Answer(body, memory)) => Ok((body, memory)),
            Some(Reply::Refused(body)) => Err(self.refused(address, decode(&body))),
            Some(Reply::NotSent) => Err(PeerError::NotThere),
            Some(Reply::Lost) | None => Err(PeerError::Lost),
        }
    }

    /// A node checks a request before it executes anything. So if it refuses the request, nothing was done.
    fn refused(&self, address: &str, refusal: Option<Refusal>) -> PeerError {
        match refusal {
            Some(Refusal::Overloaded) => return PeerError::Unavailable(MemoryFull.into()),
            Some(Refusal::Invalid { field, reason }) if self.may_warn(address, Instant::now()) => {
                tracing::warn!(address, field, reason, "another node did not understand");
            }
            Some(Refusal::Invalid { .. }) | None => {}
        }
        PeerError::NotThere
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

impl Peers for PeerClient {
    fn certificate(&self) -> Option<Fingerprint> {
        Some(self.identity.fingerprint())
    }

    fn handle_certificates(&self, listed: Vec<Fingerprint>, asked_at: tokio::time::Instant) {
        self.identity.handle_listed(listed, asked_at);
    }

    fn who<'a>(&'a self, address: &'a str) -> PeerFuture<'a, String> {
        Box::pin(self.call(&self.asks, address, Kind::Who, encode(&address)))
    }

    fn is_refused<'a>(&'a self, address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(is_refused(address))
    }

    fn reach<'a>(&'a self, address: &'a str) -> PeerFuture<'a, ()> {
        Box::pin(async move { self.asks.get(address).await.map(|_| ()).ok_or(PeerError::NotThere) })
    }

    fn ask<'a>(
        &'a self,
        address: &'a str,
        shard: ShardId,
        request: &'a EngineRequest,
    ) -> PeerFuture<'a, Outcome> {
        Box::pin(async move {
            let body = encode_after(&shard.0.to_le_bytes(), request);
            self.call::<Result<Outcome, PeerError>>(&self.asks, address, Kind::Ask, body).await?
        })
    }

    fn follow<'a>(&'a self, address: &'a str, wanted: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async move {
            let body = encode(wanted);
            let begin = |connection: &super::calls::Connection| connection.follow(Kind::Follow, body.clone());
            let (call, mut replies) = self.begin(&self.feeds, address, begin).await?;
            let (begun, _memory) = self.answer(address, replies.recv().await)?;
            call.take(begun.len());
            decode::<Result<(), PeerError>>(&begun).ok_or(PeerError::Lost)??;
            Ok(Box::new(PeerFeed { call, replies }) as Box<dyn Feed>)
        })
    }

    fn refusals<'a>(
        &'a self,
        address: &'a str,
        request: &'a RefusalsRequest,
    ) -> PeerFuture<'a, RefusalsPage> {
        Box::pin(async move {
            let body = encode(request);
            self.call::<Result<_, _>>(&self.feeds, address, Kind::Refusals, body).await?
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
struct PeerFeed {
    call: OpenCall,
    replies: mpsc::UnboundedReceiver<Reply>,
}

impl Feed for PeerFeed {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<StreamUpdate>, FeedEnded>> + Send + '_>> {
        Box::pin(async {
            let Some(Reply::Answer(body, _memory)) = self.replies.recv().await else {
                return Err(FeedEnded::Lost);
            };
            self.call.take(body.len());
            decode(&body).unwrap_or(Err(FeedEnded::Lost))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_reported_now_and_then() {
        let peers = PeerClient::new(Budget::unlimited()).unwrap();
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
