//! What the test binaries share: a server process, its clients, and checks of the answers.
// Each test binary uses a part of this module.
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
