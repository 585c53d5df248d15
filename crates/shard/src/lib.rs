//! The loop around an engine, without IO.
//!
//! [`Shard`] takes what has arrived, asks for the stored records that it needs, lets the engine decide, and hands out
//! one append for the whole batch. While that append is under way it decides the next batch; only when the append is
//! durable are the batch's replies and effects released, in order. At most one append is in flight.
//!
//! Input goes in through `handle_…`, output comes out of [`Shard::poll`]; time is an argument. tokio drives it in the
//! server and the simulator drives it in the tests: the same code. This crate must never wait, spawn, or ask a clock.

pub mod clock;
pub mod shard;

pub use clock::ShardClock;
pub use shard::{Failure, Loss, Opening, Options, Output, Reply, Shard};
