//! Who serves what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/cluster`: the nodes, the shards, and which node owns each shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// The node that was asked.
    pub node: String,
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
    /// Where other nodes reach it; absent on the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether it serves requests. Of another node: whether it is alive and not about to stop.
    pub ready: bool,
    /// Whether it is about to stop.
    pub leaving: bool,
}

/// A shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// Its number.
    pub shard: u16,
    /// The node that owns it; null while none does.
    pub owner: Option<String>,
    /// Whether it serves requests; otherwise it is being opened. Of another node's shard: whether that node is alive.
    pub open: bool,
    /// Grows whenever the shard is taken over, handed over or opened; absent on the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}
