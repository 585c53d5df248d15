//! What a frame is.

use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::fmt;

/// A version of the protocol. A later one is greater.
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
    /// All, the earliest first.
    pub const ALL: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

    /// As it stands in `accept-version` and `version`.
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

/// Declares the commands once, with their names.
macro_rules! commands {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The first line of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Command {
            $($(#[$doc])* $variant,)*
        }

        impl Command {
            /// All of them, clients' first.
            pub const ALL: &[Command] = &[$(Command::$variant,)*];

            /// As it stands in a frame.
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
    /// A client's: begins a session.
    Connect = "CONNECT",
    /// A client's: the same as CONNECT, since 1.1.
    Stomp = "STOMP",
    /// A client's: a message for a destination.
    Send = "SEND",
    /// A client's: asks for the messages of a destination.
    Subscribe = "SUBSCRIBE",
    /// A client's: ends a subscription.
    Unsubscribe = "UNSUBSCRIBE",
    /// A client's: a message was consumed.
    Ack = "ACK",
    /// A client's: a message was not consumed.
    Nack = "NACK",
    /// A client's: begins a transaction.
    Begin = "BEGIN",
    /// A client's: ends a transaction.
    Commit = "COMMIT",
    /// A client's: ends a transaction as if it had not been.
    Abort = "ABORT",
    /// A client's: ends the session.
    Disconnect = "DISCONNECT",
    /// A server's: the session has begun.
    Connected = "CONNECTED",
    /// A server's: a message of a subscription.
    Message = "MESSAGE",
    /// A server's: a frame has been processed.
    Receipt = "RECEIPT",
    /// A server's: something is wrong, and the connection ends.
    Error = "ERROR",
}

impl Command {
    /// Whether its frames may have a body.
    pub fn has_body(self) -> bool {
        matches!(self, Command::Send | Command::Message | Command::Error)
    }

    /// Whether the headers of its frames are escaped in `version`. Those that open a session never are: a 1.0 peer must
    /// be able to read them.
    pub(crate) fn is_escaped(self, version: Version) -> bool {
        version > Version::V1_0 && !matches!(self, Command::Connect | Command::Connected)
    }
}

/// Headers, in their order, unescaped. Of a repeated one the first counts, and the others are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// The value of a header. Names are case-sensitive.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Adds a header, unless there is one of that name.
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

/// One frame, as it is meant: unescaped, and without the `content-length` that framed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub command: Command,
    /// What it says about itself.
    pub headers: Headers,
    /// What it carries. Empty where the command [has no body](Command::has_body).
    pub body: Bytes,
}

impl Frame {
    /// A frame without a body.
    pub fn new<'a>(command: Command, headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Frame {
        Frame { command, headers: headers.into_iter().collect(), body: Bytes::new() }
    }
}
