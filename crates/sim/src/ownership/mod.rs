//! The simulator of several nodes: who owns which shard, with lost and late messages, pauses, crashes, nodes that come and
//! go, and clients that hold what they are told against each other.
//!
//! The nodes decide with the real [`OwnershipPlanner`](limina_node::ownership::OwnershipPlanner), over the real store in memory with its epochs. What a
//! shard holds is made simple: a list of numbers, each appended once. A call to the store takes its time there and back;
//! who calls gives up after a while, and the call may be carried out later, or never.

mod clients;
mod node;
mod wires;
mod world;

pub use world::{Report, run};
