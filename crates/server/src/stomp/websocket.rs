//! The WebSocket connection below STOMP.
//!
//! A large message is sent as one WebSocket message in several frames, each of which the client must take before the next one is
//! copied. So a key frame of megabytes is in memory once, and not once for each client that reads it slowly.

use super::counted::CountedIo;
use crate::http::problem::Failure;
use axum::{
    body::Body,
    extract::{FromRequestParts, Request, WebSocketUpgrade},
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
    },
    response::Response,
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use limina_node::Budget;
use tokio::io::AsyncReadExt;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Error, Message, Utf8Bytes,
        error::ProtocolError,
        handshake::derive_accept_key,
        protocol::{
            CloseFrame, Role, WebSocketConfig,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

/// The sub-protocols, the newest first.
const PROTOCOLS: [&str; 3] = ["v12.stomp", "v11.stomp", "v10.stomp"];
/// The largest message that a client may send: the largest STOMP frame with its headers.
pub(super) const MAX_MESSAGE: usize = 256 << 10;
/// The size of the read buffer, which every connection allocates at its start. It is small, because most clients only subscribe.
const READ_BUFFER: usize = 4 << 10;
/// The size of the frames of a large message.
const PIECE: usize = 16 << 10;

/// A request to open a WebSocket connection, which was checked.
pub(super) struct Upgrade {
    on_upgrade: OnUpgrade,
    response: Response,
}

/// A connection on which messages are received and sent.
pub(super) struct WebSocket {
    stream: WebSocketStream<CountedIo>,
    /// The client has sent a message that is too large. What follows is no longer split into messages.
    is_cut_off: bool,
}

/// The connection is closed, or the client does not read.
pub(super) struct Disconnected;

/// What a client sends.
pub(super) enum Received {
    Data(Bytes),
    /// A message of more than `MAX_MESSAGE` bytes. Nothing is received after it.
    TooLarge,
    /// Not what WebSocket allows, for this reason. Nothing is received after it.
    Invalid(String),
    /// The client closes the connection.
    Close,
}

impl Upgrade {
    /// Checks the request. axum does that, but its own connection cannot send a message in several frames. So axum's upgrade is
    /// dropped, and the same connection is taken over here.
    pub(super) async fn check(request: Request) -> Result<Upgrade, Failure> {
        let on_upgrade = request.extensions().get::<OnUpgrade>().cloned();
        let key = request.headers().get(SEC_WEBSOCKET_KEY).cloned();
        let (mut parts, _) = request.into_parts();
        let checked = WebSocketUpgrade::from_request_parts(&mut parts, &()).await.map_err(|rejection| {
            let reason = "must be `websocket`: this path accepts only WebSocket connections";
            Failure::invalid_header("Upgrade", reason).hinting(rejection.body_text())
        })?;
        let (Some(on_upgrade), Some(key)) = (on_upgrade, key) else {
            return Err(Failure::invalid_header(
                "Sec-WebSocket-Key",
                "must be present, on an HTTP/1.1 connection",
            ));
        };
        let mut response = Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_ACCEPT, derive_accept_key(key.as_bytes()))
            .body(Body::empty())
            .expect("all headers are valid");
        if let Some(protocol) = checked.protocols(PROTOCOLS).selected_protocol() {
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::clone(protocol));
        }
        Ok(Upgrade { on_upgrade, response })
    }

    /// Returns the answer to the request. After it is sent, `run` gets the connection.
    pub(super) fn accept<F>(
        self,
        memory: Budget,
        run: impl FnOnce(WebSocket) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Upgrade { on_upgrade, response } = self;
        tokio::spawn(async move {
            let Ok(upgraded) = on_upgrade.await else { return };
            let config = WebSocketConfig::default()
                .read_buffer_size(READ_BUFFER)
                .max_message_size(Some(MAX_MESSAGE))
                .max_frame_size(Some(MAX_MESSAGE));
            let socket = CountedIo::new(TokioIo::new(upgraded), &memory);
            let stream = WebSocketStream::from_raw_socket(socket, Role::Server, Some(config)).await;
            run(WebSocket { stream, is_cut_off: false }).await;
        });
        response
    }
}

impl WebSocket {
    /// The next message. Pings are answered by the library.
    pub(super) async fn receive(&mut self) -> Result<Received, Disconnected> {
        loop {
            let data = match self.stream.next().await {
                Some(Ok(Message::Text(text))) => Bytes::from(text),
                Some(Ok(Message::Binary(data))) => data,
                // They may come in the middle of a message that is sent in several frames.
                Some(Ok(Message::Ping(data) | Message::Pong(data))) => {
                    self.stream.get_mut().end_control_frame(data.len());
                    continue;
                }
                Some(Ok(Message::Frame(_))) => continue,
                // The library answers with a close frame while the rest is read.
                Some(Ok(Message::Close(_))) => return Ok(Received::Close),
                Some(Err(Error::Capacity(_))) => {
                    self.is_cut_off = true;
                    return Ok(Received::TooLarge);
                }
                Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
                    return Err(Disconnected);
                }
                Some(Err(error @ (Error::Protocol(_) | Error::Utf8(_)))) => {
                    self.is_cut_off = true;
                    return Ok(Received::Invalid(error.to_string()));
                }
                Some(Err(_)) | None => return Err(Disconnected),
            };
            self.stream.get_mut().end_message();
            return Ok(Received::Data(data));
        }
    }

    /// Counts the memory of the session. Fails if there is none left.
    pub(super) fn hold_session(&mut self, bytes: usize) -> Result<(), Disconnected> {
        self.stream.get_mut().hold_session(bytes).map_err(|_| Disconnected)
    }

    /// Sends a message: as text if it is one, in binary otherwise.
    pub(super) async fn send(&mut self, bytes: Bytes) -> Result<(), Disconnected> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.send_message(match Utf8Bytes::try_from(bytes.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::Binary(bytes),
        })
        .await
    }

    /// Sends a large text as one message in several frames. The bytes of `parts`, one after the other, are the text.
    pub(super) async fn send_large(&mut self, parts: [Bytes; 2]) -> Result<(), Disconnected> {
        let mut opcode = OpCode::Data(Data::Text);
        for mut part in parts {
            while !part.is_empty() {
                let piece = part.split_to(PIECE.min(part.len()));
                self.send_message(Message::Frame(Frame::message(piece, opcode, false))).await?;
                opcode = OpCode::Data(Data::Continue);
            }
        }
        self.send_message(Message::Frame(Frame::message(Bytes::new(), opcode, true))).await
    }

    /// Sends a close frame.
    pub(super) async fn close(&mut self, code: CloseCode) {
        let close = CloseFrame { code, reason: Utf8Bytes::default() };
        let _already_closed = self.send_message(Message::Close(Some(close))).await;
    }

    /// Reads until the client closes its side. Closing a socket with unread bytes resets the connection, and the client may lose
    /// the last frame.
    pub(super) async fn drain(&mut self) {
        while self.receive().await.is_ok() {}
        if self.is_cut_off {
            let (io, mut rest) = (self.stream.get_mut(), vec![0; READ_BUFFER]);
            while io.read(&mut rest).await.is_ok_and(|length| length > 0) {
                io.end_message();
            }
        }
    }

    async fn send_message(&mut self, message: Message) -> Result<(), Disconnected> {
        // The socket has a write timeout for clients that do not read.
        self.stream.send(message).await.map_err(|_| Disconnected)
    }
}
