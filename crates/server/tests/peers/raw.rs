//! HTTP/2 frame by frame, for nodes that speak it badly.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) struct Raw {
    pub(crate) address: String,
    listener: TcpListener,
}

/// A connection, from or to it.
pub(crate) struct RawConnection(TcpStream);

impl Raw {
    pub(crate) async fn bind() -> Raw {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Raw { address: listener.local_addr().unwrap().to_string(), listener }
    }

    /// The next connection, as soon as somebody greets.
    pub(crate) async fn accept(&self) -> RawConnection {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let mut connection = RawConnection(stream);
        connection.send(SETTINGS, 0, 0, &[]).await;
        connection
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl RawConnection {
    /// Connects to a node, begins that many requests and gives them up at once, but for the last. Returns whether that is
    /// answered.
    pub(crate) async fn give_up(address: &str, streams: u32) -> bool {
        // `GET /` in the static table.
        let begin = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x82, 0x86, 0x84]);
        let mut bytes = [&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat();
        for stream in (0..streams).map(|number| 2 * number + 1) {
            bytes.extend(begin(stream));
            bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
        let last = 2 * streams + 1;
        bytes.extend(begin(last));
        let mut connection = RawConnection(TcpStream::connect(address).await.unwrap());
        connection.0.write_all(&bytes).await.unwrap();
        loop {
            match connection.frame().await {
                Some((HEADERS, _, stream)) if stream == last => return true,
                Some((GO_AWAY, ..)) | None => return false,
                Some(_) => {}
            }
        }
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.0.write_all(&frame(kind, flags, stream, payload)).await.unwrap();
    }

    /// Reads until a whole request has come, and returns its stream.
    pub(crate) async fn request(&mut self) -> u32 {
        loop {
            let (kind, flags, stream) = self.frame().await.expect("the connection ended");
            if kind == DATA && flags & END_STREAM != 0 {
                return stream;
            }
        }
    }

    /// Answers with a status, by its number in the static table, and a body.
    pub(crate) async fn answer(&mut self, stream: u32, status: u8, body: &[u8]) {
        self.send(HEADERS, END_HEADERS, stream, &[0x80 | status]).await;
        self.send(DATA, END_STREAM, stream, body).await;
    }

    /// Returns when the other side has seen all that was sent to it.
    pub(crate) async fn seen(&mut self) {
        self.send(PING, 0, 0, &[7; 8]).await;
        loop {
            let (kind, flags, _) = self.frame().await.expect("the connection ended");
            if kind == PING && flags & ACK != 0 {
                return;
            }
        }
    }

    /// Reads until the other side ends the connection.
    pub(crate) async fn ended(&mut self) {
        while self.frame().await.is_some() {}
    }

    /// The next frame: its kind, its flags and its stream.
    async fn frame(&mut self) -> Option<(u8, u8, u32)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((kind, flags, u32::from_be_bytes(stream)))
    }
}
