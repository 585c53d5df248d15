//! Actions: what a session asks its caller to do.

use super::subscriptions::Subscription;
use crate::codec::Headers;
use alloc::string::String;
use bytes::Bytes;

/// Something for the caller to do. Actions must be carried out in order.
#[derive(Debug)]
pub enum Action {
    /// Send these bytes: one or more frames, or a heart-beat. They are valid UTF-8, so they may be sent as a text
    /// message.
    Send(Bytes),
    /// A client presents itself: let it in with [`admit`](crate::Session::admit), or end the session with
    /// [`fail`](crate::Session::fail). Only if [`asks_who`](crate::Options::asks_who) is set.
    Connect {
        /// The header `passcode` of CONNECT.
        passcode: Option<String>,
    },
    /// A client asks for a subscription: [accept](crate::Session::accept) or [refuse](crate::Session::refuse) the
    /// ticket.
    Subscribe {
        /// Identifies the subscription in all further calls.
        subscription: Subscription,
        /// The destination, as the client wrote it.
        destination: String,
        /// How the client will acknowledge messages.
        ack: AckMode,
        /// All headers of the frame.
        headers: Headers,
        /// The request, to be accepted or refused.
        ticket: Ticket,
    },
    /// A subscription has ended. Send nothing more for it.
    Unsubscribe {
        /// The subscription that has ended.
        subscription: Subscription,
    },
    /// A client sent a message to a destination: [accept](crate::Session::accept) or [refuse](crate::Session::refuse)
    /// the ticket.
    Receive {
        /// The destination, as the client wrote it.
        destination: String,
        /// All headers of the frame, without `content-length`.
        headers: Headers,
        /// The body of the message.
        body: Bytes,
        /// The request, to be accepted or refused.
        ticket: Ticket,
    },
    /// A client acknowledged a message. Nothing needs to be done, see [`AckMode`].
    Acknowledge {
        /// The subscription of the message. It has not ended.
        subscription: Subscription,
        /// The message's number within its subscription, from 1.
        message: u64,
        /// True for ACK, false for NACK.
        consumed: bool,
    },
    /// Send everything that is pending, then close the connection. This is the last action.
    ///
    /// Continue to read for a while, and discard what arrives, until the peer has closed its side. If a socket is
    /// closed with unread bytes, it is reset, and the peer may never see the ERROR.
    Close(Ending),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client sent DISCONNECT. Close a WebSocket with 1000.
    Disconnected,
    /// An ERROR was sent. Close a WebSocket with 1002.
    Failed,
}

/// A client's request that waits for the caller's answer. It contains the receipt that the client asked for.
#[derive(Debug)]
#[must_use = "the client waits for an answer"]
pub struct Ticket {
    pub(super) receipt: Option<String>,
}

/// How a client acknowledges the messages of a subscription.
///
/// # What acknowledging means here
///
/// The server keeps nothing until it is acknowledged, and sends nothing again. A message broker needs acknowledgements
/// because a lost message would be lost for good. Here the messages are the changes of a stream, each with its clock.
/// The clock tells a client whether it has all changes, and after an interruption the client says with `resume-after`
/// where to continue. The client knows better than the server what it has processed, even if its last acknowledgement
/// was lost with the connection.
///
/// A message that is not acknowledged does not hold back later ones. Every subscriber receives every change as fast as
/// it reads, and a subscriber that falls too far behind receives a key frame. A window of unacknowledged messages would
/// be a second limit, which would silently and permanently stop a client that forgets to acknowledge.
///
/// So the session keeps no state per message. It does what the protocol requires, so that every client library works in
/// every mode: messages contain what their acknowledgement must name; ACK and NACK are checked (the headers that the
/// version requires, a message that was sent) and get their receipts. NACK has the same effect as ACK. An
/// acknowledgement that arrives after the end of its subscription is accepted, because the two may have crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// The client sends no ACK.
    Auto,
    /// An ACK acknowledges all messages of the subscription up to this one.
    Client,
    /// An ACK acknowledges this message only.
    ClientIndividual,
}

impl AckMode {
    pub(super) fn from_header(value: Option<&str>) -> Option<AckMode> {
        match value {
            None | Some("auto") => Some(AckMode::Auto),
            Some("client") => Some(AckMode::Client),
            Some("client-individual") => Some(AckMode::ClientIndividual),
            Some(_) => None,
        }
    }
}
