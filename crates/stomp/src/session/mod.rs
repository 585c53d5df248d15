//! The server's side of one connection.

mod action;
mod fault;
mod heart_beat;
mod subscriptions;

pub use action::{AckMode, Action, Ending, Ticket};
pub use heart_beat::HeartBeat;
pub use subscriptions::Subscription;

use crate::codec::{Command, Decoded, Decoder, Frame, FrameError, Headers, Limits, Version, write_frame};
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use bytes::{Bytes, BytesMut};
use fault::Fault;
use heart_beat::Agreement;
use subscriptions::Subscriptions;

/// The settings of a session.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The maximum size of frames.
    pub limits: Limits,
    /// The maximum number of subscriptions of a connection.
    pub max_subscriptions: usize,
    /// The maximum number of open transactions of a connection.
    pub max_transactions: usize,
    /// How often the server can send heart-beats, and how often it wants to receive them.
    pub heart_beat: HeartBeat,
    /// How long a client may take to send CONNECT.
    pub connect_timeout_ms: u64,
    /// Whether the caller must admit the client before CONNECT is answered.
    pub asks_who: bool,
    /// How long a client may be silent if it has no subscription and offered no heart-beats.
    pub idle_timeout_ms: u64,
    /// The header `server` of CONNECTED.
    pub server: &'static str,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            max_subscriptions: 64,
            max_transactions: 16,
            heart_beat: HeartBeat { send_ms: 10_000, expect_ms: 10_000 },
            connect_timeout_ms: 10_000,
            asks_who: false,
            idle_timeout_ms: 300_000,
            server: concat!("limina/", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// The server's side of one connection.
///
/// The `handle_…` methods take events, and the `poll_…` methods return what to do. After each `handle_…`,
/// [`accept`](Session::accept), [`refuse`](Session::refuse) and [`fail`](Session::fail), carry out all
/// [actions](Session::poll_action). All times are milliseconds of one clock, which should not go back.
///
/// A client's mistake is answered with an ERROR and the end of the connection; after that the session does nothing. The
/// `message` of an ERROR is a code for programs, and its body is a sentence for people. It has the `receipt-id` that
/// the faulty frame asked for, if that header had been read.
///
/// Transactions can be begun and ended, and may contain acknowledgements, which [have no effect](AckMode) anyway.
/// Messages cannot be sent in them.
#[derive(Debug)]
pub struct Session {
    options: Options,
    id: String,
    state: State,
    decoder: Decoder,
    subscriptions: Subscriptions,
    transactions: BTreeSet<String>,
    actions: VecDeque<Action>,
    /// The caller has a ticket, and passes no more input until it has answered.
    is_deciding: bool,
    last_received: u64,
    last_sent: u64,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Opened {
        at: u64,
    },
    /// CONNECT has arrived, and the caller decides whether the client is let in.
    Presented {
        at: u64,
        version: Version,
        theirs: HeartBeat,
    },
    Connected {
        version: Version,
        beats: Agreement,
    },
    Closed,
}

impl Session {
    /// A session for a connection that was opened at `now`. `id` is sent to the client and must be unique.
    pub fn new(options: Options, id: impl Into<String>, now: u64) -> Session {
        Session {
            options,
            id: id.into(),
            state: State::Opened { at: now },
            decoder: Decoder::new(options.limits),
            subscriptions: Subscriptions::default(),
            transactions: BTreeSet::new(),
            actions: VecDeque::new(),
            is_deciding: false,
            last_received: now,
            last_sent: now,
        }
    }

    /// Takes received bytes, at most up to the end of one frame. Call it until `input` is empty, and carry out the
    /// actions in between. So an input with many frames never produces more work at once than one frame does.
    ///
    /// While a [`Ticket`] is neither accepted nor refused, pass no input, so that frames are handled in their order. Meanwhile the client
    /// does not count as silent, and is sent heart-beats as ever.
    pub fn handle_input(&mut self, input: &mut &[u8], now: u64) {
        if !input.is_empty() {
            self.last_received = now;
        }
        if !self.is_closed() {
            match self.decoder.decode(input) {
                Ok(Some(Decoded::Frame(frame))) => self.handle_frame(frame, now),
                Ok(Some(Decoded::HeartBeat) | None) => {}
                Err(error) => self.handle_frame_error(error),
            }
        }
        if self.is_closed() {
            *input = &[];
        }
    }

    /// The next action, if there is one.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Session::handle_timeout) at the latest. Any other call may change it.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers().into_iter().flatten().map(|(due, _)| due).min()
    }

    /// Carries out what is due. Pass received bytes to the session first; otherwise a peer could be declared dead
    /// although its heart-beat has arrived.
    pub fn handle_timeout(&mut self, now: u64) {
        for (_, timer) in self.timers().into_iter().flatten().filter(|(due, _)| *due <= now) {
            match timer {
                Timer::Connect => self.end(Fault::ConnectTimeout(self.options.connect_timeout_ms), None),
                Timer::Dead => {
                    self.end(Fault::HeartBeatTimeout(now.saturating_sub(self.last_received)), None)
                }
                Timer::Idle => self.end(Fault::IdleTimeout(self.options.idle_timeout_ms), None),
                Timer::Beat => self.send(Bytes::from_static(b"\n"), now),
            }
        }
    }

    /// Accepts a client's request.
    pub fn accept(&mut self, ticket: Ticket, now: u64) {
        self.is_deciding = false;
        // Nothing that the client has sent meanwhile was passed on.
        self.last_received = now;
        if let Some(receipt) = ticket.receipt {
            self.send_receipt(&receipt, now);
        }
    }

    /// Refuses a client's request with an ERROR, which ends the connection.
    pub fn refuse(&mut self, ticket: Ticket, code: &str, detail: &str) {
        self.end_with(code, detail, ticket.receipt.as_deref());
    }

    /// Ends the session with an ERROR that no frame of the client caused.
    pub fn fail(&mut self, code: &str, detail: &str) {
        self.end_with(code, detail, None);
    }

    /// Writes the beginning of a MESSAGE of `subscription`. The bytes of a [`Payload`](crate::Payload) must follow, at once
    /// or as another piece of the same write. Returns false, and
    /// writes nothing, if the subscription or the session has ended.
    ///
    /// ```
    /// # use limina_stomp::{Action, Options, Payload, Session};
    /// use bytes::BytesMut;
    ///
    /// # let mut session = Session::new(Options::default(), "s", 0);
    /// # let mut input: &[u8] = b"CONNECT\naccept-version:1.2\n\n\0SUBSCRIBE\nid:a\ndestination:/topic/tacos\n\n\0";
    /// # session.handle_input(&mut input, 0);
    /// # session.handle_input(&mut input, 0);
    /// # session.poll_action();
    /// # let Some(Action::Subscribe { subscription, .. }) = session.poll_action() else { panic!() };
    /// let change = Payload::new("application/json", b"{}"); // once
    /// let mut out = BytesMut::new(); // for each subscriber
    /// if session.begin_message(subscription, &mut out, 5) {
    ///     out.extend_from_slice(change.bytes());
    /// }
    /// let expect = "MESSAGE\nsubscription:a\ndestination:/topic/tacos\nmessage-id:1-1\n\
    ///               content-type:application/json\ncontent-length:2\n\n{}\0";
    /// assert_eq!(out, expect);
    /// ```
    #[must_use = "without the beginning, the payload must not be sent"]
    pub fn begin_message(&mut self, subscription: Subscription, out: &mut BytesMut, now: u64) -> bool {
        let written = !self.is_closed() && self.subscriptions.write_message(subscription, out);
        if written {
            self.last_sent = now;
        }
        written
    }

    /// The version that was agreed upon, while the session lasts.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            State::Connected { version, .. } => Some(version),
            State::Opened { .. } | State::Presented { .. } | State::Closed => None,
        }
    }

    /// The approximate memory of what the client has sent and the session holds: an incomplete frame, subscriptions and
    /// transactions.
    pub fn held_bytes(&self) -> usize {
        let transactions: usize = self.transactions.iter().map(String::len).sum();
        self.decoder.buffered() + self.subscriptions.held_bytes() + transactions
    }

    /// Whether the session has ended. The last actions may still be pending.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    fn handle_frame(&mut self, frame: Frame, now: u64) {
        let receipt = frame.headers.get("receipt").map(String::from);
        let result = match self.state {
            State::Opened { at } => self.connect(&frame, at, now),
            // The caller lets the client in, or not, before it passes more input.
            State::Presented { .. } => Err(Fault::NotConnected),
            State::Connected { version, .. } => self.handle_request(frame, version, receipt.clone(), now),
            State::Closed => Ok(()),
        };
        if let Err(fault) = result {
            self.end(fault, receipt.as_deref());
        }
    }

    fn handle_frame_error(&mut self, error: FrameError) {
        let receipt = self.decoder.partial_header("receipt").map(String::from);
        self.end(error.into(), receipt.as_deref());
    }

    fn connect(&mut self, frame: &Frame, at: u64, now: u64) -> Result<(), Fault> {
        if !matches!(frame.command, Command::Connect | Command::Stomp) {
            return Err(Fault::NotConnected);
        }
        let version = match frame.headers.get("accept-version") {
            None => Version::V1_0,
            Some(accepted) => highest_common(accepted).ok_or(Fault::VersionNotSupported)?,
        };
        let theirs = HeartBeat::from_header(frame.headers.get("heart-beat"))
            .ok_or(Fault::InvalidHeader("heart-beat"))?;
        self.state = State::Presented { at, version, theirs };
        match self.options.asks_who {
            true => {
                let passcode = frame.headers.get("passcode").map(String::from);
                self.actions.push_back(Action::Connect { passcode });
            }
            false => self.admit(now),
        }
        Ok(())
    }

    /// Lets a client in that has sent CONNECT, see [`Action::Connect`].
    pub fn admit(&mut self, now: u64) {
        let State::Presented { version, theirs, .. } = self.state else { return };
        // 1.0 has no heart-beats. A client that supports several versions offers them, and sends none if 1.0 is chosen.
        let ours = if version > Version::V1_0 { self.options.heart_beat } else { HeartBeat::default() };
        self.state = State::Connected { version, beats: Agreement::between(ours, theirs) };
        self.decoder.set_version(version);
        let (id, beats) = (self.id.clone(), ours.to_string());
        let headers = [
            ("version", version.as_str()),
            ("heart-beat", &beats),
            ("session", &id),
            ("server", self.options.server),
        ];
        self.send_frame(Command::Connected, &headers, "", now);
    }

    fn handle_request(
        &mut self,
        frame: Frame,
        version: Version,
        receipt: Option<String>,
        now: u64,
    ) -> Result<(), Fault> {
        let Frame { command, headers, body } = frame;
        let required = |name| headers.get(name).ok_or(Fault::HeaderMissing(command, name));
        match command {
            // For these two the receipt is sent when the caller accepts.
            Command::Subscribe => return self.subscribe(version, headers, Ticket { receipt }),
            Command::Send => {
                if headers.get("transaction").is_some() {
                    return Err(Fault::TransactionNotOffered);
                }
                let destination = required("destination")?.into();
                let ticket = Ticket { receipt };
                self.is_deciding = true;
                self.actions.push_back(Action::Receive { destination, headers, body, ticket });
                return Ok(());
            }
            Command::Unsubscribe => {
                let id = if version > Version::V1_0 { Some(required("id")?) } else { headers.get("id") };
                let destination = if id.is_none() { Some(required("destination")?) } else { None };
                let subscription = self.subscriptions.remove(id, destination)?;
                self.actions.push_back(Action::Unsubscribe { subscription });
            }
            Command::Nack if version == Version::V1_0 => return Err(Fault::CommandNotOffered(command)),
            Command::Ack | Command::Nack => {
                let message = match version {
                    Version::V1_2 => required("id")?,
                    Version::V1_1 => required("subscription").and_then(|_| required("message-id"))?,
                    Version::V1_0 => required("message-id")?,
                };
                self.acknowledge(message, headers.get("transaction"), command == Command::Ack)?;
            }
            Command::Begin => self.begin(required("transaction")?)?,
            Command::Commit | Command::Abort => {
                if !self.transactions.remove(required("transaction")?) {
                    return Err(Fault::TransactionNotFound);
                }
            }
            Command::Disconnect => {
                if let Some(receipt) = receipt {
                    self.send_receipt(&receipt, now);
                }
                self.close(Ending::Disconnected);
                return Ok(());
            }
            Command::Connect | Command::Stomp => return Err(Fault::AlreadyConnected),
            Command::Connected | Command::Message | Command::Receipt | Command::Error => {
                return Err(Fault::CommandNotOffered(command));
            }
        }
        if let Some(receipt) = receipt {
            self.send_receipt(&receipt, now);
        }
        Ok(())
    }

    fn subscribe(&mut self, version: Version, headers: Headers, ticket: Ticket) -> Result<(), Fault> {
        let missing = |name| Fault::HeaderMissing(Command::Subscribe, name);
        let destination = headers.get("destination").ok_or(missing("destination"))?;
        let id = headers.get("id");
        if id.is_none() && version > Version::V1_0 {
            return Err(missing("id"));
        }
        let ack = AckMode::from_header(headers.get("ack")).ok_or(Fault::InvalidHeader("ack"))?;
        let limit = self.options.max_subscriptions;
        let subscription = self.subscriptions.add(version, id, destination, ack, limit)?;
        let destination = destination.into();
        self.is_deciding = true;
        self.actions.push_back(Action::Subscribe { subscription, destination, ack, headers, ticket });
        Ok(())
    }

    fn acknowledge(&mut self, message: &str, transaction: Option<&str>, consumed: bool) -> Result<(), Fault> {
        if transaction.is_some_and(|name| !self.transactions.contains(name)) {
            return Err(Fault::TransactionNotFound);
        }
        if let Some((subscription, message)) = self.subscriptions.find_message(message)? {
            self.actions.push_back(Action::Acknowledge { subscription, message, consumed });
        }
        Ok(())
    }

    /// Begins a transaction.
    fn begin(&mut self, name: &str) -> Result<(), Fault> {
        if self.transactions.contains(name) {
            return Err(Fault::TransactionExists);
        }
        if self.transactions.len() >= self.options.max_transactions {
            return Err(Fault::TooManyTransactions(self.options.max_transactions));
        }
        self.transactions.insert(name.into());
        Ok(())
    }

    fn send_receipt(&mut self, receipt: &str, now: u64) {
        self.send_frame(Command::Receipt, &[("receipt-id", receipt)], "", now);
    }

    fn send_frame(&mut self, command: Command, headers: &[(&str, &str)], body: &str, now: u64) {
        // A client that is not connected decodes an ERROR as in 1.0.
        let version = self.version().unwrap_or(Version::V1_0);
        let mut out = BytesMut::new();
        write_frame(&mut out, version, command, headers.iter().copied(), body.as_bytes());
        self.send(out.freeze(), now);
    }

    fn send(&mut self, bytes: Bytes, now: u64) {
        if !self.is_closed() {
            self.last_sent = now;
            self.actions.push_back(Action::Send(bytes));
        }
    }

    fn end(&mut self, fault: Fault, receipt: Option<&str>) {
        self.end_with(fault.code(), &fault.to_string(), receipt);
    }

    fn end_with(&mut self, code: &str, detail: &str, receipt: Option<&str>) {
        let mut headers = alloc::vec![("message", code)];
        if self.version().is_none() {
            headers.push(("version", "1.0,1.1,1.2"));
        }
        headers.extend(receipt.map(|receipt| ("receipt-id", receipt)));
        headers.push(("content-type", "text/plain"));
        self.send_frame(Command::Error, &headers, detail, self.last_sent);
        self.close(Ending::Failed);
    }

    fn close(&mut self, ending: Ending) {
        if !self.is_closed() {
            self.state = State::Closed;
            self.actions.push_back(Action::Close(ending));
        }
    }

    /// The next times at which something is due. The timer that can end the session comes first.
    fn timers(&self) -> [Option<(u64, Timer)>; 2] {
        let after = |since: u64, ms: u64, timer| Some((since.saturating_add(ms), timer));
        match self.state {
            State::Closed => [None, None],
            State::Opened { at } | State::Presented { at, .. } => {
                [after(at, self.options.connect_timeout_ms, Timer::Connect), None]
            }
            State::Connected { beats, .. } => {
                let beat = beats.beat_after().and_then(|ms| after(self.last_sent, ms, Timer::Beat));
                let silence = match beats.dead_after() {
                    _ if self.is_deciding => None,
                    Some(ms) => after(self.last_received, ms, Timer::Dead),
                    None if self.subscriptions.is_empty() => {
                        after(self.last_received, self.options.idle_timeout_ms, Timer::Idle)
                    }
                    None => None,
                };
                [silence, beat]
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    Connect,
    Dead,
    Idle,
    Beat,
}

fn highest_common(accepted: &str) -> Option<Version> {
    let accepts =
        |version: &Version| accepted.split(',').any(|other| other.trim_matches(' ') == version.as_str());
    Version::ALL.into_iter().rev().find(accepts)
}
