//! Frames of HTTP/2 by hand (RFC 9113), for what a library would never send.

use crate::Failed;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const INITIAL_WINDOW_SIZE: u16 = 4;
/// The largest window that the protocol allows.
const OPEN_WINDOW: u32 = (1 << 31) - 1;
const DEFAULT_WINDOW: u32 = 65_535;
/// The status 200 in HPACK's static table.
const STATUS_200: u8 = 0x88;

/// Appends a frame.
pub(crate) fn push(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    bytes.extend([length[1], length[2], length[3], kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
}

/// A block of HPACK with the headers of a request, without Huffman coding and without the dynamic table.
pub(crate) fn headers(method: &str, path: &str) -> Vec<u8> {
    // `:scheme: http` is entry 6 of the static table. The names of `:authority`, `:method` and `:path` are entries 1, 2 and 4.
    let mut block = vec![0x86];
    for (name, value) in [(1, "localhost"), (2, method), (4, path)] {
        block.push(name);
        push_text(&mut block, value);
    }
    // `content-type` is entry 31: a literal with an index of two bytes.
    block.extend([0x0f, 31 - 15]);
    push_text(&mut block, "application/json");
    block
}

fn push_text(block: &mut Vec<u8>, text: &str) {
    match text.len() {
        short @ 0..127 => block.push(short as u8),
        long => {
            block.push(127);
            let mut rest = long - 127;
            while rest >= 128 {
                block.push((rest % 128 + 128) as u8);
                rest /= 128;
            }
            block.push(rest as u8);
        }
    }
    block.extend(text.as_bytes());
}

/// Appends a whole request.
pub(crate) fn push_request(bytes: &mut Vec<u8>, stream: u32, method: &str, path: &str, body: &[u8]) {
    let flags = if body.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
    push(bytes, HEADERS, flags, stream, &headers(method, path));
    if !body.is_empty() {
        push(bytes, DATA, END_STREAM, stream, body);
    }
}

/// One connection, after the exchange of settings.
pub(crate) struct Connection {
    pub(crate) reading: Frames,
    pub(crate) writing: OwnedWriteHalf,
}

/// The frames that arrive.
pub(crate) struct Frames {
    stream: OwnedReadHalf,
    received: Vec<u8>,
}

/// A frame that has arrived, reduced to what scenarios need.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) ends_stream: bool,
    /// A HEADERS frame that begins with the status 200.
    pub(crate) is_ok: bool,
}

impl Connection {
    /// Opens a connection whose windows are as large as possible.
    pub(crate) async fn open(address: SocketAddr) -> Result<Connection, Failed> {
        Connection::with_window(address, OPEN_WINDOW).await
    }

    /// Opens a connection on which no answer may have a body.
    pub(crate) async fn open_with_closed_window(address: SocketAddr) -> Result<Connection, Failed> {
        Connection::with_window(address, 0).await
    }

    async fn with_window(address: SocketAddr, window: u32) -> Result<Connection, Failed> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reading, mut writing) = stream.into_split();
        let mut bytes = PREFACE.to_vec();
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
        push(&mut bytes, SETTINGS, 0, 0, &setting);
        if window > DEFAULT_WINDOW {
            push(&mut bytes, WINDOW_UPDATE, 0, 0, &(window - DEFAULT_WINDOW).to_be_bytes());
        }
        push(&mut bytes, SETTINGS, ACK, 0, &[]);
        writing.write_all(&bytes).await?;
        Ok(Connection { reading: Frames { stream: reading, received: Vec::new() }, writing })
    }
}

impl Frames {
    /// The next frame, or an error when the server has closed the connection.
    pub(crate) async fn next(&mut self) -> Result<Frame, Failed> {
        loop {
            if let Some(frame) = self.take() {
                return Ok(frame);
            }
            self.received.reserve(64 << 10);
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }

    fn take(&mut self) -> Option<Frame> {
        let head = self.received.get(..9)?;
        let end = 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let frame = self.received.get(..end)?;
        let (kind, flags) = (frame[3], frame[4]);
        let taken = Frame {
            kind,
            ends_stream: matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0,
            is_ok: kind == HEADERS && frame.get(9) == Some(&STATUS_200),
        };
        self.received.drain(..end);
        Some(taken)
    }
}
