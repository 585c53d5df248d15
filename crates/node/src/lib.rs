//! Runs shards: tokio drives the loop of `limina-shard`, which does no IO, over a store and the real clocks.
//!
//! Front ends call [`Service`]: a request goes in, an outcome comes out. A program starts and stops a [`Node`] on a service,
//! and waits for [`Node::failed`]. This crate never ends the process, and must never know a wire format.

mod checkpointer;
mod clock;
pub mod cluster;
mod driver;
mod failure;
mod filter_loader;
mod ids;
mod interruption;
pub mod memory;
mod metrics;
mod node;
mod open_error;
mod opener;
mod options;
pub mod ownership;
mod ownership_manager;
pub mod peers;
pub mod placement;
mod preparer;
mod reachability;
pub mod refusals;
mod registration;
mod routing;
pub mod service;
mod shard_task;
mod stores;
pub mod streams;
mod tenure_renewal;

pub use cluster::{Cluster, NodeStatus, ShardStatus};
pub use driver::load_engine;
pub use failure::NodeFailure;
pub use ids::{NoRandomNumbers, draw_id, draw_node_id};
pub use limina_store::{Fingerprint, ShardId};
pub use memory::Budget;
pub use metrics::Metrics;
pub use node::Node;
pub use open_error::OpenError;
pub use options::{Joining, NodeOptions};
pub use peers::{Feed, FeedEnded, FeedRequest, PeerError, Peers};
pub use refusals::{RefusalListener, RefusalsPage, RefusalsRequest, RefusedRequest};
pub use registration::AddressTaken;
pub use routing::shard_of;
pub use service::{QueueOptions, Service, Unavailable};
pub use streams::{Ended, FollowError, Follower, Message, StreamUpdate};
