//! Runs shards: tokio drives the sans-IO loop of `limina-shard` over a store and the real clock.
//!
//! [`Service`] is what front ends see: a request goes in, an outcome comes out, and how many shards, threads or files
//! stand behind it is not theirs to know. [`Node`] is what the binary starts and stops. This crate must never know a
//! wire format.

mod checkpointer;
mod clock;
pub mod cluster;
mod driver;
mod failure;
mod ids;
mod metrics;
mod node;
pub mod ownership;
mod ownership_manager;
pub mod peers;
pub mod placement;
mod reach;
mod renewing;
mod routing;
pub mod service;
pub mod streams;

pub use cluster::{Cluster, NodeStatus, ShardStatus};
pub use driver::load_engine;
pub use failure::NodeFailure;
pub use ids::{NoRandomNumbers, draw_id, draw_node_id};
pub use limina_store::ShardId;
pub use metrics::Metrics;
pub use node::{AddressTaken, Joining, Node, NodeOptions, OpenError};
pub use peers::{Feed, FeedEnded, PeerError, Peers, Wanted};
pub use routing::shard_of;
pub use service::{Service, Unavailable};
pub use streams::{Ended, FollowError, Follower, Message, Told};
