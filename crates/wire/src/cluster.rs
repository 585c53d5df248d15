//! Who serves what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/cluster`: the nodes, the shards, and which node owns each shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// All nodes. A server on the embedded store is alone.
    pub nodes: Vec<Node>,
    /// All shards, by number.
    pub shards: Vec<Shard>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name.
    pub node: String,
    /// Whether it serves requests: all its shards are open and it is not stopping.
    pub ready: bool,
}

/// A shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// Its number.
    pub shard: u16,
    /// The node that owns it.
    pub owner: String,
    /// Whether it serves requests; otherwise it is being opened.
    pub open: bool,
}
