//! The JSON types of the HTTP contract, shared by the server and by clients: one file per family.
//!
//! A type here defines how something looks on the wire. It validates its JSON form and nothing more, must never decide
//! anything, and does not know the engine. Requests with unknown or repeated fields are refused, so that a typo never
//! passes silently. What a GET returned can be sent back in a PUT: requests know the read-only fields of the replies, whose
//! values are ignored, and durations under the names of the replies. Replies ignore unknown fields, so that an older client can read the replies of a newer server.
//! [`JsonFault`] says in plain English why JSON was refused.
//!
//! With the feature `openapi` the types also describe themselves for the API reference.

#[cfg(not(feature = "openapi"))]
extern crate limina_openapi_off as utoipa;

pub mod audit;
pub mod cluster;
pub mod decisions;
pub mod duration;
pub mod events;
pub mod heartbeat;
pub mod json_fault;
pub mod key_values;
pub mod ledger;
pub mod limiter;
pub mod locks;
pub mod namespace;
pub mod object;
mod owned;
pub mod page;
pub mod problem;
pub mod refusals;
#[cfg(feature = "openapi")]
pub mod schema;
pub mod selection;
mod words;

pub use duration::Duration;
pub use heartbeat::Heartbeat;
pub use json_fault::JsonFault;
pub use key_values::KeyValues;
pub use object::{AtMost, Object};
pub use page::Page;
pub use problem::Problem;
pub use selection::Selection;

/// The maximum number of items in a batch.
pub const MAX_BATCH: usize = 8192;
