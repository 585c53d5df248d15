//! The nodes of a cluster and the shards that they own.

use alloc::{string::String, vec::Vec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `GET /v1/cluster`: the nodes, the shards, and which node owns each shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// The name of the node that answers.
    pub node: String,
    /// All nodes. A server with the embedded store has only itself.
    pub nodes: Vec<Node>,
    /// All shards, ordered by number; with `?namespace=`, only the shard of that namespace.
    pub shards: Vec<Shard>,
}

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// The name of the node.
    pub node: String,
    /// The address at which other nodes reach it; absent with the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether the node serves requests. For another node: whether it is alive and not about to stop; false while the database does not
    /// answer.
    pub ready: bool,
    /// Whether the node is about to stop and hands its shards over.
    pub leaving: bool,
}

/// A shard: the unit of ownership. Each namespace belongs to one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shard {
    /// The number of the shard, from 0.
    pub shard: u16,
    /// The name of the node that owns the shard; `null` while no node does.
    pub owner: Option<String>,
    /// Whether the shard serves requests; `false` while it is being opened, or while the database does not answer. For a shard of another
    /// node: whether that node is alive.
    pub open: bool,
    /// A number that grows whenever the shard is taken over, handed over or opened; absent with the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}
