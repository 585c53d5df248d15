//! A STOMP client over WebSocket, and a follower, which computes the set of incubating events from key frames and
//! changes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::events::number;
use crate::harness::{DEADLINE, Server};
use crate::websocket::{Received, TEXT, WebSocket};

pub(crate) const V12: &str = "v12.stomp";
pub(crate) const V11: &str = "v11.stomp";
pub(crate) const V10: &str = "v10.stomp";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Frame {
    pub(crate) command: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Frame {
    /// The first header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn is(self, command: &str) -> Frame {
        assert_eq!(self.command, command, "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn has(self, header: &str, value: &str) -> Frame {
        assert_eq!(self.header(header), Some(value), "{header} of {self:?}");
        self
    }

    /// Requires an ERROR that contains this word in `message`, in another header or in the body.
    #[track_caller]
    pub(crate) fn error_naming(self, word: &str) -> Frame {
        assert_eq!(self.command, "ERROR", "{self:?}");
        assert!(self.header("message").is_some_and(|message| !message.is_empty()), "no message: {self:?}");
        let named = self.body.contains(word) || self.headers.iter().any(|(_, value)| value.contains(word));
        assert!(named, "{word} is not named: {self:?}");
        self
    }

    /// The body of a MESSAGE as JSON.
    #[track_caller]
    pub(crate) fn push(&self) -> Push {
        assert_eq!(self.command, "MESSAGE", "{self:?}");
        Push::of(&self.body)
    }
}

pub(crate) struct Stomp {
    socket: WebSocket,
    octets: Vec<u8>,
    frames: VecDeque<Frame>,
    /// The number of line feeds between frames: heart-beats of the server, or ends of line after a frame.
    pub(crate) line_feeds: usize,
    escapes: bool,
    pub(crate) closed_with: Option<u16>,
}

impl Stomp {
    /// Connects with STOMP 1.2, without heart-beats.
    #[track_caller]
    pub(crate) fn connect(server: &Server) -> Stomp {
        Stomp::connect_to(server.address())
    }

    #[track_caller]
    pub(crate) fn connect_to(address: SocketAddr) -> Stomp {
        let mut stomp = Stomp::over(WebSocket::open(address, &[V12]));
        stomp.send("CONNECT", &[("accept-version", "1.2"), ("heart-beat", "0,0")], "");
        stomp.receive().is("CONNECTED").has("version", "1.2");
        stomp
    }

    /// Opens the WebSocket only.
    #[track_caller]
    pub(crate) fn open(server: &Server, protocols: &[&str]) -> Stomp {
        Stomp::over(WebSocket::open(server.address(), protocols))
    }

    fn over(socket: WebSocket) -> Stomp {
        Stomp {
            socket,
            octets: Vec::new(),
            frames: VecDeque::new(),
            line_feeds: 0,
            escapes: true,
            closed_with: None,
        }
    }

    /// Connects with these headers `accept-version` and `heart-beat`. Returns the CONNECTED.
    #[track_caller]
    pub(crate) fn connect_with(
        server: &Server,
        protocols: &[&str],
        headers: &[(&str, &str)],
    ) -> (Stomp, Frame) {
        let mut stomp = Stomp::open(server, protocols);
        stomp.send("CONNECT", headers, "");
        let connected = stomp.receive().is("CONNECTED");
        stomp.escapes = connected.header("version").is_some_and(|version| version != "1.0");
        (stomp, connected)
    }

    pub(crate) fn socket(&mut self) -> &mut WebSocket {
        &mut self.socket
    }

    #[track_caller]
    pub(crate) fn send(&mut self, command: &str, headers: &[(&str, &str)], body: &str) {
        self.socket.send(TEXT, encode(command, headers, body).as_bytes());
    }

    #[track_caller]
    pub(crate) fn subscribe(&mut self, id: &str, destination: &str) {
        self.send("SUBSCRIBE", &[("id", id), ("destination", destination)], "");
    }

    #[track_caller]
    pub(crate) fn resume(&mut self, id: &str, destination: &str, after: u64) {
        let after = after.to_string();
        self.send("SUBSCRIBE", &[("id", id), ("destination", destination), ("resume-after", &after)], "");
    }

    /// Subscribes, and receives the first key frame, which must come at once.
    #[track_caller]
    pub(crate) fn follow(&mut self, id: &str, destination: &str) -> Follower {
        self.subscribe(id, destination);
        let mut follower = Follower::default();
        let push = self.push();
        assert!(push.is_key_frame(), "first of all: {push:?}");
        follower.fold(push);
        follower
    }

    /// The next frame. Fails if none comes.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Frame {
        match self.receive_within(DEADLINE) {
            Some(frame) => frame,
            None => panic!("no frame came; the close: {:?}", self.closed_with),
        }
    }

    /// The next frame. `None` if none comes in time, or the connection has ended.
    #[track_caller]
    pub(crate) fn receive_within(&mut self, patience: Duration) -> Option<Frame> {
        let until = Instant::now() + patience;
        loop {
            self.parse();
            if let Some(frame) = self.frames.pop_front() {
                return Some(frame);
            }
            match self.socket.receive(until.saturating_duration_since(Instant::now())) {
                Received::Message(octets) => self.octets.extend(octets),
                Received::Pong(_) => {}
                Received::Close(code) => self.closed_with = code,
                Received::End | Received::Nothing => return None,
            }
        }
    }

    /// The next MESSAGE's body.
    #[track_caller]
    pub(crate) fn push(&mut self) -> Push {
        self.receive().push()
    }

    /// The next change. Skips key frames.
    #[track_caller]
    pub(crate) fn push_change(&mut self) -> Change {
        loop {
            if let Push::Change(change) = self.push() {
                return change;
            }
        }
    }

    /// Folds messages into the follower until it has reached that clock.
    #[track_caller]
    pub(crate) fn follow_to(&mut self, follower: &mut Follower, clock: u64) {
        while follower.clock < clock {
            let push = self.push();
            follower.fold(push);
        }
    }

    /// Sends a harmless frame and waits for its receipt. Then the server has handled all earlier frames.
    #[track_caller]
    pub(crate) fn sync(&mut self, id: &str) {
        self.send("SEND", &[("destination", "/app/time"), ("receipt", id)], "");
        self.receive().is("RECEIPT").has("receipt-id", id);
    }

    /// Waits until the server closes the connection. Messages before that are dropped.
    #[track_caller]
    pub(crate) fn expect_close(&mut self) {
        let start = Instant::now();
        loop {
            match self.socket.receive(DEADLINE) {
                Received::Close(code) => {
                    self.closed_with = code;
                    return;
                }
                Received::End => return,
                Received::Message(_) | Received::Pong(_) => {}
                Received::Nothing => panic!("still open after {DEADLINE:?}"),
            }
            assert!(start.elapsed() < DEADLINE, "still open after {DEADLINE:?}");
        }
    }

    /// Decodes all complete frames.
    #[track_caller]
    fn parse(&mut self) {
        loop {
            while matches!(self.octets.first(), Some(b'\n' | b'\r')) {
                self.line_feeds += usize::from(self.octets.remove(0) == b'\n');
            }
            let Some(head_end) = find(&self.octets, b"\n\n") else { return };
            let head = String::from_utf8(self.octets[..head_end].to_vec()).expect("UTF-8");
            let mut lines = head.lines();
            let command = lines.next().expect("a command").to_owned();
            let escapes = self.escapes && command != "CONNECTED";
            let headers: Vec<(String, String)> = lines
                .map(|line| {
                    let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("a header? {line:?}"));
                    if escapes { (unescape(name), unescape(value)) } else { (name.into(), value.into()) }
                })
                .collect();
            let start = head_end + 2;
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let end = match length {
                Some((_, length)) => start + length.parse::<usize>().expect("a length"),
                None => match find(&self.octets[start..], b"\0") {
                    Some(length) => start + length,
                    None => return,
                },
            };
            let Some(&last) = self.octets.get(end) else { return };
            assert_eq!(last, 0, "a frame ends with NUL: {headers:?}");
            let body = String::from_utf8(self.octets[start..end].to_vec()).expect("UTF-8");
            self.octets.drain(..=end);
            self.frames.push_back(Frame { command, headers, body });
        }
    }
}

/// Encodes a frame as STOMP 1.2 does. The headers of CONNECT must not be escaped, and the tests send none that would
/// be.
pub(crate) fn encode(command: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{command}\n");
    for (name, value) in headers {
        text += &format!("{}:{}\n", escape(name), escape(value));
    }
    text + "\n" + body + "\0"
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace(':', "\\c")
}

#[track_caller]
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        plain.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('c') => ':',
                Some('\\') => '\\',
                other => panic!("an unknown escape {other:?} in {text:?}"),
            },
            other => other,
        });
    }
    plain
}

fn find(octets: &[u8], part: &[u8]) -> Option<usize> {
    octets.windows(part.len()).position(|window| window == part)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Submitted,
    Invalidated,
    Published,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Change {
    pub(crate) kind: Kind,
    pub(crate) clock: u64,
    pub(crate) event: String,
    pub(crate) time: u64,
}

/// A message about a stream, over STOMP or as a server-sent event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Push {
    KeyFrame { clock: u64, snapshot: BTreeMap<String, u64> },
    Change(Change),
}

impl Push {
    #[track_caller]
    pub(crate) fn of(body: &str) -> Push {
        let json: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body:?}"));
        let clock = number(&json, "clock");
        let event = |item: &Value| {
            let event = item["event"].as_str().unwrap_or_else(|| panic!("no event: {body}"));
            (event.to_owned(), number(item, "time"))
        };
        let kind = match json["messageType"].as_str() {
            Some("SUBMITTED_EVENT") => Kind::Submitted,
            Some("INVALIDATED_EVENT") => Kind::Invalidated,
            Some("PUBLISHED_EVENT") => Kind::Published,
            Some("KEY_FRAME") => {
                let list = json["snapshot"].as_array().unwrap_or_else(|| panic!("no snapshot: {body}"));
                let snapshot: BTreeMap<String, u64> = list.iter().map(event).collect();
                assert_eq!(snapshot.len(), list.len(), "an event twice: {body}");
                assert!(list.iter().all(|item| item["status"] == "Valid"), "{body}");
                return Push::KeyFrame { clock, snapshot };
            }
            other => panic!("messageType {other:?}: {body}"),
        };
        let (event, time) = event(&json["eventTime"]);
        Push::Change(Change { kind, clock, event, time })
    }

    pub(crate) fn clock(&self) -> u64 {
        match self {
            Push::KeyFrame { clock, .. } | Push::Change(Change { clock, .. }) => *clock,
        }
    }

    pub(crate) fn is_key_frame(&self) -> bool {
        matches!(self, Push::KeyFrame { .. })
    }

    #[track_caller]
    pub(crate) fn change(self) -> Change {
        match self {
            Push::Change(change) => change,
            key_frame => panic!("not a change: {key_frame:?}"),
        }
    }
}

/// Computes the set of incubating events from messages. Fails if the messages contradict each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Follower {
    pub(crate) clock: u64,
    pub(crate) incubating: BTreeMap<String, u64>,
    pub(crate) changes: Vec<Change>,
    pub(crate) key_frames: usize,
    /// The number of key frames that replaced changes.
    pub(crate) jumps: usize,
}

impl Follower {
    #[track_caller]
    pub(crate) fn fold(&mut self, push: Push) {
        match push {
            Push::KeyFrame { clock, snapshot } => {
                assert!(clock >= self.clock, "a key frame of {clock} after {}", self.clock);
                if clock == self.clock && self.key_frames > 0 {
                    assert_eq!(snapshot, self.incubating, "a key frame is the state at its clock {clock}");
                } else if self.key_frames > 0 {
                    self.jumps += 1;
                }
                (self.clock, self.incubating) = (clock, snapshot);
                self.key_frames += 1;
            }
            Push::Change(change) => {
                assert_eq!(change.clock, self.clock + 1, "clocks grow by one: {change:?}");
                self.clock = change.clock;
                let known = match change.kind {
                    Kind::Submitted => self.incubating.insert(change.event.clone(), change.time),
                    Kind::Invalidated | Kind::Published => self.incubating.remove(&change.event),
                };
                let expected = (change.kind != Kind::Submitted).then_some(change.time);
                assert_eq!(known, expected, "what was incubating before {change:?}");
                self.changes.push(change);
            }
        }
    }
}
