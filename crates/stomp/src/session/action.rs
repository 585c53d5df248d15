//! What a session asks of its caller.

use super::subscriptions::Subscription;
use crate::codec::Headers;
use alloc::string::String;
use bytes::Bytes;

/// Something for the caller to do. Actions are to be done in the order in which they come.
#[derive(Debug)]
pub enum Action {
    /// Write these bytes: one or more frames, or a heart-beat. They are UTF-8, so they may go as text.
    Send(Bytes),
    /// Somebody wants to subscribe: [accept](crate::Session::accept) or [refuse](crate::Session::refuse) the ticket.
    Subscribe {
        /// By this the caller names the subscription from now on.
        subscription: Subscription,
        /// What is subscribed to, as the client wrote it.
        destination: String,
        /// How the client means to acknowledge.
        ack: AckMode,
        /// All headers of the frame.
        headers: Headers,
        /// To be answered.
        ticket: Ticket,
    },
    /// A subscription has ended: nothing more is to be sent for it.
    Unsubscribe {
        /// Which.
        subscription: Subscription,
    },
    /// A client sent a message to a destination: [accept](crate::Session::accept) or [refuse](crate::Session::refuse) the
    /// ticket.
    Receive {
        /// Where to.
        destination: String,
        /// All headers of the frame, without `content-length`.
        headers: Headers,
        /// What was sent.
        body: Bytes,
        /// To be answered.
        ticket: Ticket,
    },
    /// A client acknowledged a message. Nothing needs to be done, see [`AckMode`].
    Acknowledge {
        /// Whose message it was. The subscription lives.
        subscription: Subscription,
        /// The message's number within its subscription, from 1.
        message: u64,
        /// ACK, and not NACK.
        consumed: bool,
    },
    /// Write out what is to be sent, then close the connection. It is the last action.
    ///
    /// Read on for a while and throw away what comes, until the peer has closed its side: a socket that is closed with
    /// unread bytes is reset, and the peer may then never see the ERROR.
    Close(Ending),
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client asked for it. A WebSocket is closed with 1000.
    Disconnected,
    /// An ERROR was sent. A WebSocket is closed with 1002.
    Failed,
}

/// A request of a client that waits for the caller's answer. It holds the receipt that the client asked for.
#[derive(Debug)]
#[must_use = "the client waits for an answer"]
pub struct Ticket {
    pub(super) receipt: Option<String>,
}

/// How a client means to acknowledge the messages of a subscription.
///
/// # What acknowledging means here
///
/// Nothing is kept until it is acknowledged, and nothing is sent again. A broker needs acknowledgements because a message
/// that is lost would be lost for good. Here the messages are the changes of a stream, each with its clock: a client
/// sees by the clock whether it has all, and after a break it says with `resume-after` where it wants to go on. It
/// knows better than the server what it has processed, also when its last acknowledgement was lost with the connection.
///
/// Nor does a message that is not acknowledged hold back later ones. A subscriber is promised every change; what
/// bounds it is how fast it reads, and one that falls too far behind gets a key frame. A window of unacknowledged
/// messages would be a second limit that stops a client which forgets to acknowledge, for good and without a word.
///
/// So the session counts nothing and keeps nothing for each message. It does what the protocol asks, so that every
/// client library works in every mode: messages bear what their acknowledgement must name; ACK and NACK are checked (the
/// headers that the version asks for, a message that was sent) and get their receipts. NACK is like ACK. An
/// acknowledgement that comes after its subscription's end is fine: the two crossed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckMode {
    /// The client sends no ACK.
    Auto,
    /// An ACK stands for all messages of the subscription up to its own.
    Client,
    /// An ACK stands for its own message.
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
