//! STOMP over WebSocket: followers receive the messages of streams.
//!
//! `limina_stomp` implements the protocol without IO. This module adds the sockets, the clock, and the followed streams.

mod counted;
mod destination;
mod subscriptions;
mod time;
mod websocket;

pub(crate) use time::TimeSync;

use crate::{
    App,
    access::{Identity, Scope, forbidden, unauthorized},
    http::{
        ClientConnection, RequestContext,
        extract::default_namespace,
        following::{LARGE, admit_follower, follow, not_followed, right_to_follow},
        problem::{Code, Failure},
        status::unavailable,
    },
};
use axum::{
    extract::{Request, State},
    response::Response,
};
use bytes::{Buf, Bytes, BytesMut};
use destination::Destination;
use futures_util::future::BoxFuture;
use limina_access::Resource;
use limina_engine::Caller;
use limina_node::{Ended, Unavailable, draw_id};
use limina_stomp::{Action, Ending, Headers, Options, Session, Subscription, Ticket};
use std::time::Duration;
use subscriptions::{Followed, Source, Stop, Subscriptions};
use tokio::{
    sync::watch,
    task::coop::consume_budget,
    time::{Instant, sleep_until, timeout},
};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use websocket::{Disconnected, MAX_MESSAGE, Received, Upgrade, WebSocket};

/// How long the server waits for the client to close after it has sent its own close frame.
const LINGER: Duration = Duration::from_secs(5);
const TOO_MANY_SERIES: &str = "Too many series of time messages are running. Retry in a second.";

/// Follow streams of events by STOMP over WebSocket.
#[utoipa::path(
    get, path = "/ws", tag = "events",
    responses(
        (status = 101, description = "The connection now speaks STOMP 1.2, 1.1 or 1.0. Subscribe to `/topic/{stream}` or `/topic/{namespace}/{stream}`."),
        (status = 400, description = "`InvalidRequest`: the request does not start a WebSocket connection."),
    ),
)]
pub(crate) async fn upgrade(State(app): State<App>, request: Request) -> Result<Response, Failure> {
    let context = RequestContext::of(request.extensions());
    let identity = context.scope.as_ref().map(|scope| scope.identity.clone());
    let (client, caller) = (context.client().clone(), context.caller());
    let upgrade = Upgrade::check(request).await?;
    let id = draw_id()?;
    let memory = app.memory().clone();
    Ok(upgrade.accept(memory, move |socket| async move {
        let started = Instant::now();
        // Without a token in the header, the token must be in CONNECT.
        let options = Options { asks_who: identity.is_none(), ..Options::default() };
        let session = Session::new(options, id.as_str(), 0);
        let stopping = app.stopping().subscribe();
        let subscriptions = Subscriptions::default();
        let mut connection = Connection {
            app,
            socket,
            session,
            started,
            input: Bytes::new(),
            subscriptions,
            opening: None,
            stopping,
            client,
            caller,
            identity: Identity::default(),
            denied: Box::pin(std::future::pending()),
        };
        if let Some(identity) = identity {
            connection.identify(identity);
        }
        connection.run().await;
    }))
}

/// The connection of one client.
struct Connection {
    app: App,
    socket: WebSocket,
    session: Session,
    /// The zero point of the session's clock.
    started: Instant,
    /// What the client has sent and the session has not handled.
    input: Bytes,
    subscriptions: Subscriptions,
    /// The subscription that is being made. The shard of its stream may be moving, so that this takes long. Later frames wait for it, but
    /// other subscriptions and heart-beats go on.
    opening: Option<Opening>,
    stopping: watch::Receiver<bool>,
    client: ClientConnection,
    /// From where the client has come, and the id of the request that has started the session.
    caller: Caller,
    /// The client. Until the session has admitted it, no frame asks for it.
    identity: Identity,
    /// Completes when the client's token is no longer valid.
    denied: BoxFuture<'static, Failure>,
}

struct Opening {
    subscription: Subscription,
    ticket: Ticket,
    source: BoxFuture<'static, Result<Source, Refusal>>,
}

/// The code and the text of a refusal.
type Refusal = (String, String);

impl Connection {
    fn identify(&mut self, identity: Identity) {
        let watched = identity.clone();
        self.denied = Box::pin(async move { watched.until_denied([]).await });
        self.identity = identity;
    }

    /// Decides whether a client that has sent CONNECT is let in.
    fn present(&mut self, passcode: Option<&str>) {
        let caller = self.caller.clone();
        let failure = match self.app.policy().identify(passcode.map(str::as_bytes), caller.clone()) {
            None if passcode.is_some() => unauthorized(true),
            None => {
                let detail = "The connection needs a token: send it as the header `passcode` of CONNECT.";
                Failure::new(Code::Unauthorized, detail)
            }
            Some(identity) => match identity.token() {
                Some(token) if self.client.count_for(token).is_err() => {
                    Failure::new(Code::Overloaded, "The token has its maximum of connections.")
                }
                _ => {
                    self.identify(identity);
                    let now = self.now();
                    return self.session.admit(now);
                }
            },
        };
        self.app.policy().log_denial(&Identity::anyone(caller), "stomp_connect", &failure);
        self.refuse_all(failure);
    }

    /// Ends the session.
    fn refuse_all(&mut self, failure: Failure) {
        let problem = failure.into_problem();
        self.session.fail(&problem.code, &problem.detail);
    }

    async fn run(mut self) {
        if let Ok(ending) = self.serve().await {
            let code = match ending {
                Ending::Disconnected => CloseCode::Normal,
                Ending::Failed => CloseCode::Protocol,
            };
            self.socket.close(code).await;
            let _timed_out = timeout(LINGER, self.socket.drain()).await;
        }
    }

    /// Runs the session to its end.
    async fn serve(&mut self) -> Result<Ending, Disconnected> {
        loop {
            // Many messages may arrive together, and handling them may never wait. Yield to other tasks in between.
            consume_budget().await;
            let wakeup = self.session.poll_timeout().map(|at| self.started + Duration::from_millis(at));
            tokio::select! {
                biased;
                source = opened(&mut self.opening) => self.handle_opened(source),
                received = self.socket.receive(), if self.opening.is_none() => {
                    self.input = match received? {
                        Received::Data(data) => data,
                        Received::TooLarge => {
                            let detail = format!("The WebSocket message is longer than {MAX_MESSAGE} bytes.");
                            self.session.fail("FrameTooLarge", &detail);
                            Bytes::new()
                        }
                        Received::Invalid(reason) => {
                            self.session.fail("InvalidFrame", &reason);
                            Bytes::new()
                        }
                        Received::Close => return Ok(Ending::Disconnected),
                    };
                }
                (subscription, next) = self.subscriptions.next() => {
                    match next {
                        Ok(payloads) => self.send_payloads(subscription, payloads).await?,
                        Err(Stop::Ended(Ended::Deleted)) => {
                            self.session.fail(Code::StreamNotFound.word(), "The stream was deleted.");
                        }
                        Err(Stop::Ended(Ended::Unavailable(reason))) => self.fail(reason),
                        Err(Stop::Denied(denial)) => self.refuse_all(denial),
                    }
                }
                denial = &mut self.denied, if !self.session.is_closed() => {
                    self.denied = Box::pin(std::future::pending());
                    self.refuse_all(denial);
                }
                () = stopped(&mut self.stopping), if !self.session.is_closed() => {
                    self.fail(Unavailable::ShuttingDown);
                }
                () = sleep_until(wakeup.unwrap_or_else(Instant::now)), if wakeup.is_some() => {
                    let now = self.now();
                    self.session.handle_timeout(now);
                }
            }
            if let Some(ending) = self.handle_input().await? {
                return Ok(ending);
            }
        }
    }

    /// Passes the input to the session, frame by frame, until it is used up or must wait for a subscription. Returns how the session
    /// ended, if it did.
    async fn handle_input(&mut self) -> Result<Option<Ending>, Disconnected> {
        let had_input = !self.input.is_empty();
        loop {
            if let Some(ending) = self.perform_actions().await? {
                return Ok(Some(ending));
            }
            if self.input.is_empty() || self.opening.is_some() {
                if had_input {
                    self.socket.hold_session(self.session.held_bytes() + self.input.len())?;
                }
                return Ok(None);
            }
            // One message can contain thousands of frames, so yield here too.
            consume_budget().await;
            let now = self.now();
            let mut rest = &self.input[..];
            self.session.handle_input(&mut rest, now);
            let handled = self.input.len() - rest.len();
            self.input.advance(handled);
        }
    }

    fn handle_opened(&mut self, source: Result<Source, Refusal>) {
        let Some(Opening { subscription, ticket, .. }) = self.opening.take() else { return };
        match source {
            Ok(source) => {
                self.subscriptions.add(subscription, source);
                self.accept(ticket);
            }
            Err((code, detail)) => self.session.refuse(ticket, &code, &detail),
        }
    }

    /// Performs the actions of the session. Returns how it ended, if it did.
    async fn perform_actions(&mut self) -> Result<Option<Ending>, Disconnected> {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Send(bytes) => self.socket.send(bytes).await?,
                Action::Connect { passcode } => self.present(passcode.as_deref()),
                Action::Subscribe { subscription, destination, headers, ticket, .. } => {
                    let source = source(self.app.clone(), self.identity.clone(), destination, headers);
                    self.opening = Some(Opening { subscription, ticket, source: Box::pin(source) });
                }
                Action::Unsubscribe { subscription } => self.subscriptions.remove(subscription),
                Action::Receive { destination, ticket, .. } if destination == "/app/time" => {
                    match self.app.time_sync().start() {
                        Ok(()) => self.accept(ticket),
                        Err(_) => {
                            let code = Code::Overloaded.word();
                            self.session.refuse(ticket, code, TOO_MANY_SERIES);
                        }
                    }
                }
                Action::Receive { ticket, .. } => {
                    let detail = "The only destination of SEND is /app/time. Submit events over HTTP.";
                    self.session.refuse(ticket, "InvalidDestination", detail);
                }
                // Messages are not sent again: a returning client resumes with `resume-after`.
                Action::Acknowledge { .. } => {}
                Action::Close(ending) => return Ok(Some(ending)),
            }
        }
        Ok(None)
    }

    fn fail(&mut self, reason: Unavailable) {
        let problem = unavailable(reason).into_problem();
        self.session.fail(&problem.code, &problem.detail);
    }

    fn accept(&mut self, ticket: Ticket) {
        let now = self.now();
        self.session.accept(ticket, now);
    }

    /// Sends the messages of a subscription. Small ones are copied into one piece. A large payload is shared with all other
    /// followers, and copied in small pieces as the client takes them.
    async fn send_payloads(
        &mut self,
        subscription: Subscription,
        payloads: Vec<Bytes>,
    ) -> Result<(), Disconnected> {
        let mut out = BytesMut::new();
        for payload in payloads {
            if payload.len() > LARGE {
                self.socket.send(out.split().freeze()).await?;
            }
            let now = self.now();
            if !self.session.begin_message(subscription, &mut out, now) {
                continue;
            }
            match payload.len() > LARGE {
                true => self.socket.send_large([out.split().freeze(), payload]).await?,
                false => out.extend_from_slice(&payload),
            }
        }
        self.socket.send(out.freeze()).await
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _sender_dropped = stopping.wait_for(|is_stopping| *is_stopping).await;
}

async fn opened(opening: &mut Option<Opening>) -> Result<Source, Refusal> {
    match opening {
        Some(opening) => opening.source.as_mut().await,
        None => std::future::pending().await,
    }
}

/// The source of a subscription's messages.
async fn source(
    app: App,
    identity: Identity,
    destination: String,
    headers: Headers,
) -> Result<Source, Refusal> {
    let refusal = |failure: Failure| {
        let problem = failure.into_problem();
        (problem.code.into_owned(), problem.detail)
    };
    let (namespace, stream) = match Destination::parse(&destination) {
        Some(Destination::Time) => return Ok(Source::Time(app.time_sync().listen())),
        Some(Destination::Stream { namespace, stream }) => {
            (namespace.unwrap_or_else(default_namespace), stream)
        }
        None => {
            let detail = "The destination must be /topic/{stream} or /topic/{namespace}/{stream}, percent-encoded, or /topic/time.";
            return Err(("InvalidDestination".to_owned(), detail.to_owned()));
        }
    };
    let resume_after = match headers.get("resume-after").map(str::parse) {
        None => None,
        Some(Ok(clock)) => Some(clock),
        Some(Err(_)) => {
            return Err((
                "InvalidHeader".to_owned(),
                "The header resume-after must be a clock: the `clock` of a message of this stream."
                    .to_owned(),
            ));
        }
    };
    let need = right_to_follow(&namespace);
    if !identity.allows(need) {
        let failure = forbidden(need);
        app.policy().log_denial(&identity, "stomp_subscribe", &failure);
        return Err(refusal(failure));
    }
    let permit = identity.take(Resource::Streams).map_err(refusal)?;
    let scope = Scope::new(namespace, identity);
    admit_follower(&app, &scope, &stream).await.map_err(refusal)?;
    match follow(&app, &scope, stream.clone(), resume_after).await {
        Ok(follower) => Ok(Source::Stream(Box::new(Followed { follower, scope, _permit: permit }))),
        Err(reason) => Err(refusal(not_followed(&stream, reason))),
    }
}

/// Start a series of 20 messages with the server's time on `/topic/time`.
///
/// The messages are 50 ms apart and contain the time in epoch milliseconds.
#[utoipa::path(
    post, path = "/time-sync", tag = "events",
    responses((status = 202, description = "The series is started. The first message comes after 50 ms.")),
)]
pub(crate) async fn time_sync(State(app): State<App>) -> Result<axum::http::StatusCode, Failure> {
    match app.time_sync().start() {
        Ok(()) => Ok(axum::http::StatusCode::ACCEPTED),
        Err(_) => Err(Failure::new(Code::Overloaded, TOO_MANY_SERIES)),
    }
}
