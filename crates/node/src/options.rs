//! What a node is started with.

use crate::{Peers, service::QueueOptions};
use limina_engine::{Millis, QuotaTable};
use limina_shard::Options as ShardOptions;
use limina_store::ShardStoreOptions;
use std::{sync::Arc, time::Duration};

/// The bounds of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The bounds of each shard's batches.
    pub shard: ShardOptions,
    /// The bounds of each shard's queue.
    pub queue: QueueOptions,
    /// The bounds of each shard's overlay.
    pub store: ShardStoreOptions,
    /// The journal size, in bytes, that triggers a checkpoint of the shards that need its oldest segment.
    pub journal_bytes: u64,
    /// How much each namespace may have. Each node decides by its own quotas for the shards that it owns.
    pub quotas: Arc<QuotaTable>,
    /// How long the audit is kept.
    pub audit_kept: Millis,
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            shard: ShardOptions::default(),
            queue: QueueOptions::default(),
            store: ShardStoreOptions::default(),
            journal_bytes: 1 << 30,
            quotas: Arc::default(),
            audit_kept: limina_engine::Options::default().audit_kept,
        }
    }
}

/// What a node needs to share a store with other nodes.
pub struct Joining {
    /// The address at which other nodes reach this one. No other live node may have it.
    pub address: String,
    /// The name of the machine, for operators.
    pub host: String,
    /// The length of the node's tenure: if the node does not renew it for this long, other nodes claim its shards.
    pub tenure: Duration,
    /// Sends requests to the other nodes.
    pub peers: Arc<dyn Peers>,
}
