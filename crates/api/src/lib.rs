//! The words of the contract, declared once: names, times and positions, key-values and conditions on them, what is wrong with a
//! request, and the requests and replies of all families, with their JSON. The engine, the server and the Rust client speak in them.
//!
//! Nothing here decides anything, or knows the engine. Requests with unknown or repeated fields are refused, so that a typo never
//! passes silently. What a GET returned can be sent back in a PUT: requests know the read-only fields of the replies, whose
//! values are ignored, and durations under the names of the replies. Replies ignore unknown fields, so that an older client can
//! read the replies of a newer server. [`JsonFault`] says in plain English why JSON was refused.
//!
//! Nodes send requests and replies to each other in a binary form: see [`binary`].
//!
//! With the feature `openapi` the types also describe themselves for the API reference.

// The code that utoipa derives needs std.
#![cfg_attr(not(any(test, feature = "openapi")), no_std)]

extern crate alloc;

#[cfg(not(feature = "openapi"))]
extern crate limina_openapi_off as utoipa;

pub mod audit;
pub mod binary;
pub mod cluster;
mod context;
pub mod decisions;
pub mod duration;
pub mod events;
mod field;
pub mod heartbeat;
pub mod invalid;
pub mod json_fault;
pub mod key_values;
mod keys;
pub mod ledger;
pub mod limiter;
pub mod locks;
pub mod name;
pub mod namespace;
pub mod object;
pub mod page;
pub mod problem;
mod query;
mod raw;
pub mod refusals;
mod request_id;
#[cfg(feature = "openapi")]
pub mod schema;
pub mod selection;
mod small_bytes;
pub mod time;
mod value;
mod words;

pub use context::Context;
pub use duration::Duration;
pub use field::{Ignored, Patch};
pub use heartbeat::Heartbeat;
pub use invalid::{Invalid, Reason};
pub use json_fault::JsonFault;
pub use key_values::KeyValues;
pub use keys::Keys;
pub use name::{InvalidName, Name};
pub use object::{AtMost, Object};
pub use page::{Listed, Page};
pub use problem::Problem;
pub use request_id::RequestId;
pub use selection::Selection;
pub use small_bytes::ByteBuffer;
pub use time::{Millis, Position, Time};

/// The maximum number of items in a batch.
pub const MAX_BATCH: usize = 8192;
