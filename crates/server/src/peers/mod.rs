//! The protocol between nodes, client and server side: frames over TLS, on a listener of its own.
//!
//! A node has one connection to each other node for requests, and one for streams and refusals. Each is one task. A request is a
//! *call* with a number, and calls are independent of each other: any number of them are open at once, and they are answered in
//! any order. What waits to be sent goes out in one write, whoever sends it. So under load, many requests share the cost of a
//! write, of a TLS record and of a wake-up, and so do their answers.
//!
//! If the caller drops a call, the other node is told and drops the work for it. If a connection breaks, each call says whether
//! the other node may have received it.
//!
//! Read in this order: `identity` (who may connect), `frames` (the bytes), `wire` (the encoding of what is in them), `outbox`,
//! `gathering` and `link` (what both sides of a connection do), `calls` and `connections` (the side that asks), `client` (the
//! interface to the node), `server` (the side that answers).

mod calls;
mod client;
mod connections;
mod frames;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod gathering;
mod identity;
mod link;
mod outbox;
mod server;
mod wire;

pub use client::PeerClient;
pub(crate) use identity::Identity;
pub use identity::IdentityError;
pub(crate) use server::serve_connection;

use std::time::Duration;

/// The version of the frames, and of the form of what is in them. Nodes of different versions do not speak to each other. A new
/// field that is optional does not make another version.
const VERSION: u8 = 3;
/// The most open calls of one connection. Each request that waits for a lock is one of them.
const MAX_CALLS: usize = 100_000;
/// The interval at which the asking side sends a sign of life, which the answering side returns.
const PING_EVERY: Duration = Duration::from_secs(1);
