//! The protocol between nodes frame by frame, for nodes that speak it badly.

use super::{Certificate, introduce_to};
use limina_node::Budget;
use limina_server::PeerClient;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

const CONTINUED: u8 = 0;
pub(crate) const ASK: u8 = 1;
pub(crate) const FOLLOW: u8 = 3;
const REFUSALS: u8 = 4;
pub(crate) const CANCEL: u8 = 5;
pub(crate) const TAKEN: u8 = 6;
pub(crate) const PING: u8 = 7;
pub(crate) const ANSWER: u8 = 16;
pub(crate) const PART: u8 = 17;
pub(crate) const REFUSED: u8 = 18;
pub(crate) const PONG: u8 = 19;
pub(crate) const GO_AWAY: u8 = 20;
const MORE: u8 = 0x80;
const MAX_BODY: usize = 32 << 10;

/// What a node says when it has found the certificate of the other: a letter and the version.
pub(crate) const WELCOME: [u8; 2] = [b'L', 3];

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
    pub(crate) fn client(&self) -> PeerClient {
        let client = PeerClient::new(Budget::unlimited()).unwrap();
        introduce_to(&client, &[&self.certificate]);
        client
    }

    /// The next connection, after the greetings.
    pub(crate) async fn accept(&self) -> RawConnection {
        let mut connection = self.greet(WELCOME).await;
        let mut greeting = [0; WELCOME.len()];
        connection.0.read_exact(&mut greeting).await.unwrap();
        assert_eq!(greeting, WELCOME);
        connection
    }

    /// The next connection, after this greeting.
    pub(crate) async fn greet(&self, greeting: [u8; 2]) -> RawConnection {
        let (stream, _) = self.listener.accept().await.unwrap();
        let acceptor = TlsAcceptor::from(self.certificate.server_config());
        let mut stream = acceptor.accept(stream).await.unwrap();
        stream.write_all(&greeting).await.unwrap();
        stream.flush().await.unwrap();
        RawConnection(Box::new(stream))
    }
}

pub(crate) fn frame(kind: u8, call: u64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_le_bytes();
    [&length, &[kind][..], &call.to_le_bytes(), body].concat()
}

impl RawConnection {
    /// To the listener for nodes, with this certificate. Fails if it is refused.
    pub(crate) async fn peer(address: &str, certificate: &Certificate) -> std::io::Result<RawConnection> {
        let mut stream = certificate.connect(address).await?;
        let mut greeting = [0; WELCOME.len()];
        stream.read_exact(&mut greeting).await?;
        assert_eq!(greeting, WELCOME);
        let mut connection = RawConnection(Box::new(stream));
        connection.send_bytes(&WELCOME).await;
        Ok(connection)
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// Sends a message, in several frames if it is long.
    pub(crate) async fn send(&mut self, kind: u8, call: u64, body: &[u8]) {
        let frames = body.len().div_ceil(MAX_BODY).max(1);
        let mut bytes = Vec::new();
        for number in 0..frames {
            let piece = &body[number * MAX_BODY..body.len().min((number + 1) * MAX_BODY)];
            let kind = if number == 0 { kind } else { CONTINUED };
            let more = if number + 1 < frames { MORE } else { 0 };
            bytes.extend(frame(kind | more, call, piece));
        }
        self.send_bytes(&bytes).await;
    }

    /// Reads until a whole call has come, and returns its number.
    pub(crate) async fn request(&mut self) -> u64 {
        loop {
            let (kind, call, _) = self.message().await.expect("the connection ended");
            if (ASK..=REFUSALS).contains(&kind) {
                return call;
            }
        }
    }

    pub(crate) async fn answer(&mut self, call: u64, body: &[u8]) {
        self.send(ANSWER, call, body).await;
    }

    /// Reads until the other side ends the connection.
    pub(crate) async fn ended(&mut self) {
        while self.message().await.is_some() {}
    }

    /// The next whole message: its kind, its call and its body. Frames of different messages must not be mixed.
    pub(crate) async fn message(&mut self) -> Option<(u8, u64, Vec<u8>)> {
        let (mut first, mut whole) = (None, Vec::new());
        loop {
            let mut head = [0; 13];
            self.0.read_exact(&mut head).await.ok()?;
            let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
            let (kind, call) = (head[4], u64::from_le_bytes(head[5..].try_into().unwrap()));
            let mut piece = vec![0; length];
            self.0.read_exact(&mut piece).await.ok()?;
            whole.extend(piece);
            let first = *first.get_or_insert(kind & !MORE);
            if kind & MORE == 0 {
                return Some((first, call, whole));
            }
        }
    }
}
