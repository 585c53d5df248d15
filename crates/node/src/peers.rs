//! The interface to other nodes.
//!
//! A node that does not own a shard forwards the request to the node that does. A request makes at most one hop: the other
//! node executes it in its own shard, or says that it does not own the shard. The encoding is not part of this crate.

use crate::{RefusalsPage, RefusalsRequest, StreamUpdate, Unavailable};
use limina_engine::{Name, Outcome, Request, events::StreamTerms};
use limina_store::{Fingerprint, ShardId};
use serde::{Deserialize, Serialize};
use std::pin::Pin;
use tokio::time::Instant;

/// The answer of another node, when it arrives.
pub type PeerFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, PeerError>> + Send + 'a>>;

/// Sends requests to other nodes. An implementation keeps its connections and reconnects automatically. When a future or a
/// [`Feed`] is dropped, the other node learns that the caller no longer waits.
pub trait Peers: Send + Sync + 'static {
    /// The certificate that this node shows to other nodes. The store publishes it. None if nodes show no certificates.
    fn certificate(&self) -> Option<Fingerprint> {
        None
    }

    /// The store lists the nodes with these certificates; it was asked at this time. It is asked again and again.
    fn handle_certificates(&self, _listed: Vec<Fingerprint>, _asked_at: Instant) {}

    /// The name of the node at `address`.
    fn who<'a>(&'a self, address: &'a str) -> PeerFuture<'a, String>;

    /// Whether the machine at `address` answers that no process listens there. False if a process listens, if nobody answers,
    /// or if this cannot be found out.
    fn is_refused<'a>(&'a self, _address: &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(false))
    }

    /// Waits until the node at `address` can be asked, so that [`Peers::ask`] need not wait for a connection. Nothing is sent that could be
    /// executed. By default a node can always be asked.
    fn reach<'a>(&'a self, _address: &'a str) -> PeerFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Has the node at `address` execute a request in one of its shards.
    fn ask<'a>(&'a self, address: &'a str, shard: ShardId, request: &'a Request) -> PeerFuture<'a, Outcome>;

    /// Follows a stream in a shard of the node at `address`.
    fn follow<'a>(&'a self, address: &'a str, request: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>>;

    /// The latest refusals of the node at `address`. If there is nothing new, the node answers after a while. By default no
    /// node is asked for them.
    fn refusals<'a>(
        &'a self,
        _address: &'a str,
        _request: &'a RefusalsRequest,
    ) -> PeerFuture<'a, RefusalsPage> {
        Box::pin(std::future::ready(Err(PeerError::NotThere)))
    }
}

/// Which stream a node wants to follow at another node, and from which clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeedRequest {
    /// The shard of the namespace.
    #[serde(with = "ShardNumber")]
    pub shard: ShardId,
    /// The namespace of the stream.
    pub namespace: Name,
    /// The name of the stream.
    pub stream: Name,
    /// The clock of the last change that the follower has. None if it needs a key frame first.
    pub resume_after: Option<u64>,
    /// The terms with which the stream is created if it does not exist. None if it must exist.
    pub make: Option<StreamTerms>,
}

/// How a [`ShardId`] is serialized.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ShardId")]
struct ShardNumber(u16);

/// The updates of a stream that another node sends.
pub trait Feed: Send {
    /// The next updates, in order. Waits until there are any. After an error there are no more.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<StreamUpdate>, FeedEnded>> + Send + '_>>;
}

/// Why a feed has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeedEnded {
    /// The stream was deleted, or does not exist.
    NoStream,
    /// The connection was lost, or the other node no longer owns the shard. Follow the stream at the current owner.
    Lost,
}

/// Why another node returned no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerError {
    /// The other node does not own the shard, or was not reached. Nothing was done.
    NotThere,
    /// The connection was lost after the request was sent. The request may or may not have been executed.
    Lost,
    /// The other node rejected the request for this reason.
    Unavailable(Unavailable),
}
