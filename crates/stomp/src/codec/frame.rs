//! Frames, commands, headers and versions.

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

/// A version of the protocol. Later versions are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// No escapes, no heart-beats; headers may be padded with spaces.
    V1_0,
    /// Escapes, heart-beats, NACK.
    V1_1,
    /// CR LF, an escape for CR, `ack` ids of their own.
    V1_2,
}

impl Version {
    /// All versions, the earliest first.
    pub const ALL: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

    /// The version as it is written in the headers `accept-version` and `version`.
    pub fn as_str(self) -> &'static str {
        match self {
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
            Version::V1_2 => "1.2",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Declares the commands once, together with their names.
macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The first line of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command {
            $($(#[$doc])* $variant,)*
        }

        impl Command {
            /// All commands, those of clients first.
            pub const ALL: &[Command] = &[$(Command::$variant,)*];

            /// The command as it is written in a frame.
            pub fn as_str(self) -> &'static str {
                match self { $(Command::$variant => $name,)* }
            }

            pub(crate) fn from_bytes(name: &[u8]) -> Option<Command> {
                Command::ALL.iter().copied().find(|command| command.as_str().as_bytes() == name)
            }
        }
    };
}

commands! {
    /// From a client: begins a session.
    Connect = "CONNECT",
    /// From a client: the same as CONNECT, since 1.1.
    Stomp = "STOMP",
    /// From a client: a message for a destination.
    Send = "SEND",
    /// From a client: requests the messages of a destination.
    Subscribe = "SUBSCRIBE",
    /// From a client: ends a subscription.
    Unsubscribe = "UNSUBSCRIBE",
    /// From a client: a message was consumed.
    Ack = "ACK",
    /// From a client: a message was not consumed.
    Nack = "NACK",
    /// From a client: begins a transaction.
    Begin = "BEGIN",
    /// From a client: commits a transaction.
    Commit = "COMMIT",
    /// From a client: rolls a transaction back.
    Abort = "ABORT",
    /// From a client: ends the session.
    Disconnect = "DISCONNECT",
    /// From a server: the session has begun.
    Connected = "CONNECTED",
    /// From a server: a message of a subscription.
    Message = "MESSAGE",
    /// From a server: a frame has been processed.
    Receipt = "RECEIPT",
    /// From a server: an error; the connection is closed after it.
    Error = "ERROR",
}

impl Command {
    /// Whether frames with this command may have a body.
    pub fn has_body(self) -> bool {
        matches!(self, Command::Send | Command::Message | Command::Error)
    }

    /// Whether the headers are escaped in `version`. The frames that open a session never are, because a 1.0 peer must
    /// be able to read them.
    pub(crate) fn is_escaped(self, version: Version) -> bool {
        version > Version::V1_0 && !matches!(self, Command::Connect | Command::Connected)
    }
}

/// Headers in their order, unescaped. If a header is repeated, only the first one is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of a header. Names are case-sensitive.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Adds a header, unless there is one with that name already.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        if self.get(&name).is_none() {
            self.0.push((name, value.into()));
        }
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in pairs {
            headers.add(name, value);
        }
        headers
    }
}

/// One decoded frame: unescaped, and without `content-length`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The first line of the frame.
    pub command: Command,
    /// The headers, without `content-length`.
    pub headers: Headers,
    /// The body. Empty if the command [has no body](Command::has_body).
    pub body: Bytes,
}

impl Frame {
    /// A frame without a body.
    pub fn new<'a>(command: Command, headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Frame {
        Frame { command, headers: headers.into_iter().collect(), body: Bytes::new() }
    }
}
