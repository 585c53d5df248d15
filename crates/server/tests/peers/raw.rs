//! HTTP/2 frame by frame, for nodes that speak it badly.

use super::{Certificate, introduce_to};
use limina_server::HttpPeers;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsAcceptor;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a node says when it has found the certificate of the other.
const WELCOME: u8 = b'L';

pub(crate) struct Raw {
    pub(crate) address: String,
    listener: TcpListener,
    certificate: Certificate,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection, from or to it.
pub(crate) struct RawConnection(Box<dyn Stream>);

impl Raw {
    pub(crate) async fn bind() -> Raw {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = Certificate::new();
        Raw { address: listener.local_addr().unwrap().to_string(), listener, certificate }
    }

    /// A node that knows this one.
    pub(crate) fn client(&self) -> HttpPeers {
        let client = HttpPeers::new().unwrap();
        introduce_to(&client, &[&self.certificate]);
        client
    }

    /// The next connection, as soon as somebody greets.
    pub(crate) async fn accept(&self) -> RawConnection {
        let (stream, _) = self.listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(self.certificate.server_config());
        let mut stream = acceptor.accept(stream).await.unwrap();
        stream.write_all(&[WELCOME]).await.unwrap();
        stream.flush().await.unwrap();
        stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
        let mut connection = RawConnection(Box::new(stream));
        connection.send(SETTINGS, 0, 0, &[]).await;
        connection
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

impl RawConnection {
    /// To the listener for clients.
    pub(crate) async fn public(address: &str) -> RawConnection {
        RawConnection(Box::new(TcpStream::connect(address).await.unwrap()))
    }

    /// To the listener for nodes, with this certificate. Fails if it is refused.
    pub(crate) async fn peer(address: &str, certificate: &Certificate) -> std::io::Result<RawConnection> {
        let mut stream = certificate.connect(address).await?;
        assert_eq!(stream.read_u8().await?, WELCOME);
        Ok(RawConnection(Box::new(stream)))
    }

    /// The most requests at once that the server allows. None: unlimited.
    pub(crate) async fn max_streams(&mut self) -> Option<u32> {
        self.0.write_all(PREFACE).await.unwrap();
        self.send(SETTINGS, 0, 0, &[]).await;
        loop {
            let (kind, flags, _, payload) = self.whole_frame().await.expect("the connection ended");
            if kind == SETTINGS && flags & ACK == 0 {
                let found = payload.chunks_exact(6).find(|s| s[..2] == MAX_CONCURRENT_STREAMS.to_be_bytes());
                return found.map(|found| u32::from_be_bytes(found[2..].try_into().unwrap()));
            }
        }
    }

    /// Begins that many requests and gives them up at once, but for the last. Returns whether that is answered.
    pub(crate) async fn give_up(&mut self, streams: u32) -> bool {
        // `GET /` in the static table.
        let begin = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x82, 0x86, 0x84]);
        let mut bytes = [&PREFACE[..], &frame(SETTINGS, 0, 0, &[])].concat();
        for stream in (0..streams).map(|number| 2 * number + 1) {
            bytes.extend(begin(stream));
            bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        }
        let last = 2 * streams + 1;
        bytes.extend(begin(last));
        // The server may end the connection before it has taken everything.
        let _ended = self.0.write_all(&bytes).await;
        let _ended = self.0.flush().await;
        loop {
            match self.frame().await {
                Some((HEADERS, _, stream)) if stream == last => return true,
                Some((GO_AWAY, ..)) | None => return false,
                Some(_) => {}
            }
        }
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.0.write_all(&frame(kind, flags, stream, payload)).await.unwrap();
        self.0.flush().await.unwrap();
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
        let (kind, flags, stream, _) = self.whole_frame().await?;
        Some((kind, flags, stream))
    }

    async fn whole_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((kind, flags, u32::from_be_bytes(stream), payload))
    }
}
