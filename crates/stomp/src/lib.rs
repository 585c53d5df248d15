//! STOMP 1.0, 1.1 and 1.2, for a server: what the bytes mean, and what is to be done about them.
//!
//! The crate promises a [`codec`]: a [`Decoder`] that is fed bytes in any pieces and yields frames within [`Limits`], and
//! an encoder.
//!
//! It must never have a socket, a clock or a thread (it is `no_std`), nor know what a destination means.

#![no_std]

extern crate alloc;

pub mod codec;

pub use codec::{Command, Decoded, Decoder, Frame, FrameError, Headers, Limits, Version};
