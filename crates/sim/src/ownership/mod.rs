//! The simulator of several nodes: which node owns which shard, with lost and late messages, pauses, crashes, nodes
//! that join and leave, and clients whose answers are compared with each other.
//!
//! The nodes decide with the real [`OwnershipPlanner`](limina_node::ownership::OwnershipPlanner), over the real store
//! in memory with its epochs. The content of a shard is simplified to a list of numbers, each appended once. A call to
//! the store takes time in both directions. The caller gives up after a while, and the call may be executed later, or
//! never.

mod clients;
mod event_queue;
mod node;
mod world;

pub use world::{Report, run};
