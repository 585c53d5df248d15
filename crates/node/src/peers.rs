//! Other nodes.
//!
//! A node that does not own a shard asks the one that does, in one hop: whoever is asked answers from its own shards or
//! says that it does not own this one. How that is put into bytes is not this crate's to know.

use crate::{Told, Unavailable};
use limina_engine::{Name, Outcome, Request, events::StreamTerms};
use limina_store::ShardId;
use serde::{Deserialize, Serialize};
use std::pin::Pin;

/// Something that another node is asked for, on its way.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T, PeerError>> + Send + 'a>>;

/// How other nodes are asked. Connections are kept and made again by themselves; dropping a future or a [`Feed`] tells the
/// other node that nobody waits any more.
pub trait Peers: Send + Sync + 'static {
    /// The name of the node that is reached at `address`.
    fn who<'a>(&'a self, address: &'a str) -> Asked<'a, String>;

    /// Has the node at `address` do what is asked, in a shard of its own.
    fn ask<'a>(&'a self, address: &'a str, shard: ShardId, request: &'a Request) -> Asked<'a, Outcome>;

    /// Follows a stream that lives in a shard of the node at `address`.
    fn follow<'a>(&'a self, address: &'a str, wanted: &'a Wanted) -> Asked<'a, Box<dyn Feed>>;
}

/// Which stream another node follows, and from where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// The shard of its namespace.
    #[serde(with = "ShardNumber")]
    pub shard: ShardId,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub stream: Name,
    /// The last change that is known already.
    pub resume_after: Option<u64>,
    /// What it is to be if there is none.
    pub make: Option<StreamTerms>,
}

/// A shard as it is sent.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ShardId")]
struct ShardNumber(u16);

/// What another node tells of a stream.
pub trait Feed: Send {
    /// The next of it, in order; waits until there is any. After an error nothing more comes.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Vec<Told>, FeedEnded>> + Send + '_>>;
}

/// Why another node tells nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FeedEnded {
    /// The stream was deleted, or there is none.
    NoStream,
    /// It was not to be had from there any more: ask whoever owns the shard now.
    Lost,
}

/// Why another node gave no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerError {
    /// It does not own the shard, or was not reached. Nothing was done.
    NotThere,
    /// The connection was lost after it was asked. It may or may not have been done.
    Lost,
    /// It says why itself.
    Unavailable(Unavailable),
}
