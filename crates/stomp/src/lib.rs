//! STOMP 1.0, 1.1 and 1.2 for a server, without IO.
//!
//! The crate promises two things:
//!
//! - [`codec`]: a [`Decoder`] that takes bytes in pieces of any size and returns frames within [`Limits`], and an encoder
//!   whose [`Payload`] is encoded once for all subscribers.
//! - [`session`]: a [`Session`], the server's side of one connection. Bytes and the time go in, [`Action`]s come out.
//!
//! It must never have a socket, a clock or a thread (it is `no_std`), nor know what a destination means: the caller decides
//! whether a client may subscribe to something.
//!
//! # Driving a session
//!
//! The owner of the socket passes on the bytes that it reads, carries out the session's actions, and calls it again when
//! its timeout has passed:
//!
//! ```
//! use limina_stomp::{Action, Options, Session};
//!
//! /// Hands over one WebSocket message, text or binary; returns what is to be written.
//! fn on_message(session: &mut Session, mut input: &[u8], now: u64) -> Vec<u8> {
//!     let mut written = Vec::new();
//!     while !input.is_empty() {
//!         session.handle_input(&mut input, now);
//!         while let Some(action) = session.poll_action() {
//!             match action {
//!                 Action::Send(bytes) => written.extend_from_slice(&bytes),
//!                 Action::Connect { .. } => {} // only if `Options::asks_who` is set
//!                 Action::Subscribe { destination, ticket, .. } if destination == "/topic/tacos" => {
//!                     session.accept(ticket, now);
//!                 }
//!                 Action::Subscribe { ticket, .. } | Action::Receive { ticket, .. } => {
//!                     session.refuse(ticket, "StreamNotFound", "there is no such stream");
//!                 }
//!                 Action::Unsubscribe { .. } | Action::Acknowledge { .. } => {}
//!                 Action::Close(_) => {} // flush, then close the socket
//!             }
//!         }
//!     }
//!     written
//! }
//!
//! let mut session = Session::new(Options::default(), "session-1", 0);
//! let written = on_message(&mut session, b"CONNECT\naccept-version:1.2\n\n\0", 5);
//! assert!(written.starts_with(b"CONNECTED\nversion:1.2\n"));
//! // Until this instant nothing needs to be done, unless something is read.
//! assert!(session.poll_timeout().is_some());
//! ```

#![no_std]

extern crate alloc;

pub mod codec;
pub mod session;

pub use codec::{Command, Decoded, Decoder, Frame, FrameError, Headers, Limits, Payload, Version};
pub use session::{AckMode, Action, Ending, HeartBeat, Options, Session, Subscription, Ticket};
