//! Decisions: checks, holds, locks and an event, all or nothing, under one operation id.

mod ending;
mod reply;
mod request;

pub use ending::*;
pub use reply::*;
pub use request::*;
