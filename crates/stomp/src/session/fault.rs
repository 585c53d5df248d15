//! Faults of a client that end the session with an ERROR.

use crate::codec::{Command, FrameError};

/// A fault. Its text is the body of the ERROR, and its code is the header `message`.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the versions offered here are 1.0, 1.1 and 1.2")]
    VersionNotSupported,
    #[error("the first frame must be CONNECT or STOMP")]
    NotConnected,
    #[error("this connection has a session already")]
    AlreadyConnected,
    #[error("{} is not a command of this session", .0.as_str())]
    CommandNotOffered(Command),
    #[error("messages cannot be sent in a transaction")]
    TransactionNotOffered,
    #[error("{} needs the header {}", .0.as_str(), .1)]
    HeaderMissing(Command, &'static str),
    #[error("the header {0} is not valid")]
    InvalidHeader(&'static str),
    #[error("there is a subscription of this id, or without an id of this destination")]
    SubscriptionExists,
    #[error("there is no such subscription")]
    SubscriptionNotFound,
    #[error("a connection may have {0} subscriptions")]
    TooManySubscriptions(usize),
    #[error("no such message was sent")]
    MessageNotFound,
    #[error("there is a transaction of this name")]
    TransactionExists,
    #[error("there is no such transaction")]
    TransactionNotFound,
    #[error("a connection may have {0} transactions at a time")]
    TooManyTransactions(usize),
    #[error("no CONNECT came within {0} ms")]
    ConnectTimeout(u64),
    #[error("nothing was received for {0} ms, although heart-beats were agreed upon")]
    HeartBeatTimeout(u64),
    #[error("nothing was received for {0} ms, and there is no subscription")]
    IdleTimeout(u64),
}

impl Fault {
    /// A stable code for programs, as in the HTTP API.
    pub(super) fn code(&self) -> &'static str {
        match self {
            Fault::Frame(
                FrameError::HeaderLineTooLong(_) | FrameError::TooManyHeaders(_) | FrameError::BodyTooLong(_),
            ) => "FrameTooLarge",
            Fault::Frame(_) => "InvalidFrame",
            Fault::VersionNotSupported => "VersionNotSupported",
            Fault::NotConnected => "NotConnected",
            Fault::AlreadyConnected => "AlreadyConnected",
            Fault::CommandNotOffered(_) => "CommandNotOffered",
            Fault::TransactionNotOffered => "TransactionNotOffered",
            Fault::HeaderMissing(..) => "HeaderMissing",
            Fault::InvalidHeader(_) => "InvalidHeader",
            Fault::SubscriptionExists => "SubscriptionExists",
            Fault::SubscriptionNotFound => "SubscriptionNotFound",
            Fault::TooManySubscriptions(_) => "TooManySubscriptions",
            Fault::MessageNotFound => "MessageNotFound",
            Fault::TransactionExists => "TransactionExists",
            Fault::TransactionNotFound => "TransactionNotFound",
            Fault::TooManyTransactions(_) => "TooManyTransactions",
            Fault::ConnectTimeout(_) => "ConnectTimeout",
            Fault::HeartBeatTimeout(_) => "HeartBeatTimeout",
            Fault::IdleTimeout(_) => "IdleTimeout",
        }
    }
}
