//! The protocol between nodes, client and server side: HTTP/2 over TLS, on a listener of its own.
//!
//! A request and its answer are one body each, in the postcard encoding. The feed of a stream is a body without end: messages
//! that are each preceded by their length. If the client cancels a request, the HTTP/2 stream is reset, and the other node
//! drops the work for it.
//!
//! Read in this order: `identity` (who may connect), `wire` (the encoding), `client` (sends requests), `connections` (its
//! connections), `routes` (answers requests).

mod client;
mod connections;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod identity;
mod routes;
mod wire;

pub use client::HttpPeers;
pub(crate) use identity::Identity;
pub use identity::IdentityError;
pub(crate) use routes::{routes, settings};

/// Executes a request. The number in the path is the version of the encoding: a node answers other versions with 404.
const ASK: &str = "/peer/v1/ask";
/// Returns the name of the node.
const WHO: &str = "/peer/v1/who";
/// Follows a stream.
const FOLLOW: &str = "/peer/v1/follow";
/// Returns the latest refusals of the node.
const REFUSALS: &str = "/peer/v1/refusals";
/// The header with the number of the shard that the request is for.
const SHARD: &str = "x-limina-shard";
/// The most open requests on one connection. Each request that waits for a lock is one of them.
const MAX_STREAMS: u32 = 100_000;
/// The flow-control windows in bytes: of one body, and of all bodies of a connection together.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 32 << 20;
