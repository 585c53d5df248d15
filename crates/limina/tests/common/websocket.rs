//! A WebSocket client written by hand (RFC 6455), for messages that no correct client would send, and details that it
//! would hide.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::DEADLINE;

/// A key and its answer from the RFC, so that the tests need no hash function.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CONTINUATION: u8 = 0;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

pub(crate) struct WebSocket {
    stream: TcpStream,
    received: Vec<u8>,
    /// The sub-protocol that the server chose.
    pub(crate) protocol: Option<String>,
    /// The beginning of a message that is not complete yet.
    partial: Vec<u8>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    Message(Vec<u8>),
    Pong(Vec<u8>),
    /// A close frame, with its code if it has one.
    Close(Option<u16>),
    /// The connection has ended.
    End,
    /// No message came in time.
    Nothing,
}

impl WebSocket {
    /// Opens `/ws`. Several sub-protocols are offered in one header.
    #[track_caller]
    pub(crate) fn open(address: SocketAddr, protocols: &[&str]) -> WebSocket {
        let offered = match protocols {
            [] => String::new(),
            some => format!("Sec-WebSocket-Protocol: {}\r\n", some.join(", ")),
        };
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n{offered}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("send the request");
        let head = head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 101"), "not switched: {head}");
        let header = |name: &str| {
            head.lines()
                .filter_map(|line| line.split_once(':'))
                .find_map(|(found, value)| found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned()))
        };
        assert_eq!(header("sec-websocket-accept").as_deref(), Some(ACCEPT), "{head}");
        let protocol = header("sec-websocket-protocol");
        WebSocket { stream, received: Vec::new(), protocol, partial: Vec::new() }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, kind: u8, payload: &[u8]) {
        self.try_send(kind, payload).expect("send");
    }

    pub(crate) fn try_send(&mut self, kind: u8, payload: &[u8]) -> std::io::Result<()> {
        self.try_send_fragment(true, kind, payload)
    }

    #[track_caller]
    pub(crate) fn send_fragment(&mut self, last: bool, kind: u8, payload: &[u8]) {
        self.try_send_fragment(last, kind, payload).expect("send");
    }

    fn try_send_fragment(&mut self, last: bool, kind: u8, payload: &[u8]) -> std::io::Result<()> {
        let mut bytes = vec![if last { 0x80 | kind } else { kind }];
        match payload.len() {
            short @ 0..=125 => bytes.push(0x80 | short as u8),
            medium @ 126..=0xffff => {
                bytes.push(0x80 | 126);
                bytes.extend((medium as u16).to_be_bytes());
            }
            long => {
                bytes.push(0x80 | 127);
                bytes.extend((long as u64).to_be_bytes());
            }
        }
        bytes.extend(MASK);
        bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.stream.write_all(&bytes)
    }

    pub(crate) fn ping(&mut self, payload: &[u8]) {
        self.send(PING, payload);
    }

    /// The next message. Pings that come before it are answered.
    #[track_caller]
    pub(crate) fn receive(&mut self, patience: Duration) -> Received {
        let until = Instant::now() + patience;
        loop {
            if let Some((head, payload)) = self.take_frame() {
                let (last, kind) = (head & 0x80 != 0, head & 0x0f);
                match kind {
                    TEXT | BINARY | CONTINUATION => {
                        self.partial.extend(payload);
                        if last {
                            return Received::Message(std::mem::take(&mut self.partial));
                        }
                    }
                    CLOSE => {
                        let code = payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
                        return Received::Close(code);
                    }
                    // If the server is gone by then, the next read notices it.
                    PING => drop(self.try_send(PONG, &payload)),
                    PONG => return Received::Pong(payload),
                    other => panic!("a frame of the unknown kind {other}"),
                }
                continue;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Received::Nothing;
            }
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).expect("a timeout");
            let mut some = [0; 64 * 1024];
            match self.stream.read(&mut some) {
                Ok(0) => return Received::End,
                Ok(read) => self.received.extend(&some[..read]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted) => {}
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {
                    return Received::End;
                }
                Err(e) => panic!("read: {e}"),
            }
        }
    }

    /// The first octet and the payload of the next frame, if all of it has arrived.
    fn take_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        let (&head, &second) = (self.received.first()?, self.received.get(1)?);
        assert_eq!(second & 0x80, 0, "a server does not mask");
        assert_eq!(head & 0x70, 0, "no extension was agreed on");
        let (start, length) = match second & 0x7f {
            126 => {
                let bytes = self.received.get(2..4)?;
                (4, u64::from(u16::from_be_bytes(bytes.try_into().expect("two octets"))))
            }
            127 => {
                let bytes = self.received.get(2..10)?;
                (10, u64::from_be_bytes(bytes.try_into().expect("eight octets")))
            }
            short => (2, u64::from(short)),
        };
        let end = start + usize::try_from(length).expect("fits in memory");
        let payload = self.received.get(start..end)?.to_vec();
        self.received.drain(..end);
        Some((head, payload))
    }

    /// Breaks the connection without a close frame, like a client that crashed.
    pub(crate) fn vanish(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Reads the head of the answer octet by octet, so that nothing after it is lost.
#[track_caller]
fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut octet) {
            Ok(1) => head.push(octet[0]),
            other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&head)),
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}
