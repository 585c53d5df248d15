//! What the test binaries share: a server process, its clients, and what their answers must say.
// Each of them uses a part of it.
#![allow(dead_code)]

pub(crate) mod decisions;
pub(crate) mod events;
pub(crate) mod harness;
pub(crate) mod ledger;
pub(crate) mod limiter;
pub(crate) mod load;
pub(crate) mod locks;
pub(crate) mod raw;
pub(crate) mod reply;
pub(crate) mod shape;
pub(crate) mod sse;
pub(crate) mod stomp;
pub(crate) mod websocket;
