//! STOMP over WebSocket: the stream of events, pushed.
//!
//! `limina_stomp` decides what a conversation is; here are the sockets, the clock, and the streams that are followed.

mod destination;
mod following;
mod time;

pub(crate) use time::TimeSync;

use crate::{
    App,
    http::{
        events::not_followed,
        extract::default_namespace,
        problem::{Code, Failure},
    },
};
use axum::{
    extract::{
        State,
        ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code},
    },
    response::Response,
};
use bytes::{Bytes, BytesMut};
use destination::Destination;
use following::{Following, Source};
use limina_node::{Ended, Unavailable, draw_id};
use limina_stomp::{Action, Ending, Headers, Options, Session, Ticket};
use std::time::Duration;
use tokio::{
    sync::watch,
    task::coop::consume_budget,
    time::{Instant, sleep_until, timeout},
};

/// The sub-protocols, the newest first.
const PROTOCOLS: [&str; 3] = ["v12.stomp", "v11.stomp", "v10.stomp"];
/// After the last word, the client has so long to hang up.
const LINGER: Duration = Duration::from_secs(5);
/// Frames of WebSocket are no larger than what STOMP allows, with its heads.
const MAX_MESSAGE: usize = 256 << 10;
/// The read buffer of a connection, which is allocated at once. Clients send little: most only subscribe.
const READ_BUFFER: usize = 4 << 10;

/// Follow streams of events: STOMP over WebSocket.
#[utoipa::path(
    get, path = "/ws", tag = "events",
    responses(
        (status = 101, description = "STOMP 1.2, 1.1 or 1.0 from here on; see the guide."),
        (status = 400, description = "Not the beginning of a WebSocket."),
    ),
)]
pub(crate) async fn upgrade(
    State(app): State<App>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = upgrade.map_err(|rejection| Failure::invalid("Upgrade", rejection.body_text()))?;
    let id = draw_id()?;
    let upgrade = upgrade.protocols(PROTOCOLS).max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    let upgrade = upgrade.read_buffer_size(READ_BUFFER);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let begun = Instant::now();
        let session = Session::new(Options::default(), id.as_str(), 0);
        let stopping = app.conversations().subscribe();
        let following = Following::default();
        let connection = Connection { app, socket, session, begun, following, stopping };
        connection.run().await;
    }))
}

/// One client.
struct Connection {
    app: App,
    socket: WebSocket,
    session: Session,
    begun: Instant,
    following: Following,
    stopping: watch::Receiver<bool>,
}

/// The client is gone, or has stalled.
struct Gone;

impl Connection {
    async fn run(mut self) {
        if let Ok(ending) = self.converse().await {
            let code = match ending {
                Ending::Disconnected => close_code::NORMAL,
                Ending::Failed => close_code::PROTOCOL,
            };
            let close = CloseFrame { code, reason: Utf8Bytes::default() };
            let _gone_already = self.send(Message::Close(Some(close))).await;
            // A socket that is closed with unread bytes is reset, and takes the last word with it.
            let drain = async { while let Some(Ok(_)) = self.socket.recv().await {} };
            let _gave_up = timeout(LINGER, drain).await;
        }
    }

    async fn converse(&mut self) -> Result<Ending, Gone> {
        loop {
            // What arrived together may be many messages that neither await anything nor answer anything.
            consume_budget().await;
            let wakeup = self.session.poll_timeout().map(|at| self.begun + Duration::from_millis(at));
            tokio::select! {
                biased;
                received = self.socket.recv() => {
                    let data = match received {
                        Some(Ok(Message::Text(text))) => Bytes::from(text),
                        Some(Ok(Message::Binary(data))) => data,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                        // It is answered in kind while the rest is read.
                        Some(Ok(Message::Close(_))) => return Ok(Ending::Disconnected),
                        Some(Err(_)) | None => return Err(Gone),
                    };
                    let mut input = &data[..];
                    while !input.is_empty() {
                        // So may one message: it can hold thousands of frames.
                        consume_budget().await;
                        let now = self.now();
                        self.session.handle_input(&mut input, now);
                        if let Some(ending) = self.act().await? {
                            return Ok(ending);
                        }
                    }
                }
                (subscription, next) = self.following.next() => {
                    match next {
                        Ok(payloads) => {
                            let mut out = BytesMut::new();
                            let now = self.now();
                            for payload in payloads {
                                if self.session.begin_message(subscription, &mut out, now) {
                                    out.extend_from_slice(&payload);
                                }
                            }
                            self.send_text(out.freeze()).await?;
                        }
                        Err(Ended::Deleted) => {
                            self.session.fail("StreamNotFound", "the stream was deleted");
                        }
                        Err(Ended::Unavailable(reason)) => {
                            self.session.fail(reason.code(), &reason.to_string());
                        }
                    }
                }
                () = stopped(&mut self.stopping), if !self.session.is_closed() => {
                    let reason = Unavailable::ShuttingDown;
                    self.session.fail(reason.code(), &reason.to_string());
                }
                () = sleep_until(wakeup.unwrap_or_else(Instant::now)), if wakeup.is_some() => {
                    let now = self.now();
                    self.session.handle_timeout(now);
                }
            }
            if let Some(ending) = self.act().await? {
                return Ok(ending);
            }
        }
    }

    /// Does what the session asks for. Says whether that was its end.
    async fn act(&mut self) -> Result<Option<Ending>, Gone> {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Send(bytes) => self.send_text(bytes).await?,
                Action::Subscribe { subscription, destination, headers, ticket, .. } => {
                    match source(&self.app, &destination, &headers).await {
                        Ok(source) => {
                            self.following.add(subscription, source);
                            self.accept(ticket);
                        }
                        Err((code, detail)) => self.session.refuse(ticket, &code, &detail),
                    }
                }
                Action::Unsubscribe { subscription } => self.following.remove(subscription),
                Action::Receive { destination, ticket, .. } if destination == "/app/time" => {
                    match self.app.time_sync().start() {
                        Ok(()) => self.accept(ticket),
                        Err(_) => {
                            let code = Code::Overloaded.word();
                            self.session.refuse(ticket, code, "too many series of times are running");
                        }
                    }
                }
                Action::Receive { ticket, .. } => {
                    let detail = "only /app/time can be sent to; events are submitted over HTTP";
                    self.session.refuse(ticket, "InvalidDestination", detail);
                }
                // Whoever comes back says after which clock: nothing is sent again.
                Action::Acknowledge { .. } => {}
                Action::Close(ending) => return Ok(Some(ending)),
            }
        }
        Ok(None)
    }

    fn accept(&mut self, ticket: Ticket) {
        let now = self.now();
        self.session.accept(ticket, now);
    }

    async fn send_text(&mut self, bytes: Bytes) -> Result<(), Gone> {
        if bytes.is_empty() {
            return Ok(());
        }
        let message = match Utf8Bytes::try_from(bytes.clone()) {
            Ok(text) => Message::Text(text),
            Err(_) => Message::Binary(bytes),
        };
        self.send(message).await
    }

    async fn send(&mut self, message: Message) -> Result<(), Gone> {
        // A client that takes nothing is found out by its socket.
        self.socket.send(message).await.map_err(|_| Gone)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _sender_is_gone = stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// What a subscription is to, or the code and the words with which it is refused.
async fn source(app: &App, destination: &str, headers: &Headers) -> Result<Source, (String, String)> {
    let (namespace, stream) = match Destination::parse(destination) {
        Some(Destination::Time) => return Ok(Source::Time(app.time_sync().listen())),
        Some(Destination::Stream { namespace, stream }) => {
            (namespace.unwrap_or_else(default_namespace), stream)
        }
        None => {
            let detail = "must be /topic/{stream} or /topic/{namespace}/{stream}, percent-encoded";
            return Err(("InvalidDestination".to_owned(), detail.to_owned()));
        }
    };
    let resume_after = match headers.get("resume-after").map(str::parse) {
        None => None,
        Some(Ok(clock)) => Some(clock),
        Some(Err(_)) => {
            return Err(("InvalidHeader".to_owned(), "resume-after must be a clock".to_owned()));
        }
    };
    match app.follow(namespace, stream.clone(), resume_after).await {
        Ok(follower) => Ok(Source::Stream(Box::new(follower))),
        Err(reason) => {
            let problem = not_followed(&stream, reason).into_problem();
            Err((problem.code.into_owned(), problem.detail))
        }
    }
}

/// Start a series of 20 messages, 50 ms apart, on `/topic/time`: the server's epoch milliseconds.
#[utoipa::path(
    post, path = "/time-sync", tag = "events",
    responses((status = 202, description = "The first comes after 50 ms.")),
)]
pub(crate) async fn time_sync(State(app): State<App>) -> Result<axum::http::StatusCode, Failure> {
    match app.time_sync().start() {
        Ok(()) => Ok(axum::http::StatusCode::ACCEPTED),
        Err(_) => Err(Failure::new(Code::Overloaded, "too many series of times are running")),
    }
}
