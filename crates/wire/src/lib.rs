//! The JSON types of the HTTP contract, shared by the server and by clients: one file per family.
//!
//! A type here says how something looks on the wire and nothing else: it validates no more than its JSON form, and it
//! must never decide anything, nor know the engine. Requests refuse unknown and repeated fields, so that a typo never
//! passes silently; replies ignore what they do not know, so that an older client can read a newer server.

pub mod cluster;
pub mod duration;
pub mod events;
pub mod key_values;
pub mod ledger;
pub mod limiter;
pub mod locks;
pub mod namespace;
pub mod object;
pub mod page;
pub mod problem;
pub mod selection;
mod words;

pub use duration::Duration;
pub use key_values::KeyValues;
pub use object::{AtMost, Object};
pub use page::Page;
pub use problem::Problem;
pub use selection::Selection;

/// The most items of a batch.
pub const MAX_BATCH: usize = 8192;
