//! How one node asks another: both ends, over HTTP/2 on the port that serves everything else.
//!
//! A request or the answer to it is one body, in the postcard encoding; what is told of a stream is a body that goes on,
//! as messages with their length before them. Who asks shows the secret that the nodes share. Giving up a request resets
//! its HTTP/2 stream, and the node that was asked drops what it does for it.
//!
//! Read in this order: `wire` (the bytes), `client` (who asks), `connections` (over what), `routes` (who is asked).

mod client;
mod connections;
mod routes;
mod secret;
mod wire;

pub use client::HttpPeers;
pub(crate) use routes::{routes, settings};
pub use secret::{InvalidSecret, Secret};

/// Asks for an outcome. The number stands for the encoding: one that is not understood is not found.
const ASK: &str = "/peer/v1/ask";
/// Asks who it is.
const WHO: &str = "/peer/v1/who";
/// Follows a stream.
const FOLLOW: &str = "/peer/v1/follow";
/// The header that says in which shard something is asked for.
const SHARD: &str = "x-limina-shard";
/// How many requests may be open on one connection. Each request for a lock that waits is one.
const MAX_STREAMS: u32 = 100_000;
/// How much of one body, and of all bodies of a connection together, is sent before any of it is taken.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
