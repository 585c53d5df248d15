//! The loop around an engine, without IO.
//!
//! [`Shard`] takes the requests that have arrived, asks for the stored records that they need, lets the engine decide,
//! and hands out one append for the whole batch. While that append is in flight it decides the next batch. The replies
//! and effects of a batch are released, in order, only when its append is durable. At most one append is in flight.
//!
//! Waiting requests are in a [`FairQueue`], which is the only place where namespaces take turns. It may belong to the shard, or
//! be filled by others meanwhile ([`Requests`]). Whether a request may wait at all is decided before it gets there.
//!
//! Input goes in through `handle_…`, output comes out of [`Shard::poll`], and time is an argument. In the server tokio
//! drives this code, and in the tests the simulator drives the same code. This crate must never wait, spawn, or read a
//! clock.

mod batch;
pub mod clock;
pub mod fair_queue;
mod open;
pub mod output;
pub mod requests;
mod round;
pub mod shard;

pub use clock::ShardClock;
pub use fair_queue::FairQueue;
pub use output::{Failure, Loss, Opening, Output, Reply};
pub use requests::Requests;
pub use shard::{Options, Shard};
