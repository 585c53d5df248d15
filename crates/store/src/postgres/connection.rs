//! Connections to the database: how one is made, what runs on it, and what its errors mean.

use super::{
    hosts,
    timelines::{TIMELINE, Timelines},
    tls,
};
use crate::StoreError;
use std::{
    collections::HashMap,
    convert::Infallible,
    error::Error as _,
    future::poll_fn,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{self, Notify, watch},
    task::{AbortHandle, JoinSet},
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error, NoTls, Row, Statement, Transaction,
    config::TargetSessionAttrs,
    error::{Severity, SqlState},
    types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection that is not there after this time will not come, however patient the node is.
pub(super) const CONNECTING: Duration = Duration::from_secs(5);
/// So often a statement is tried that met another one.
pub(super) const ATTEMPTS: usize = 5;
/// A server that is silent for so long may have a successor.
const LOOK: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A peer that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(10);

/// Every session has these, whatever the database was set to; they are said while connecting.
const SETTINGS: [&str; 16] = [
    // An append is never cancelled.
    "statement_timeout=0",
    "lock_timeout=0",
    "idle_in_transaction_session_timeout=0",
    "default_transaction_isolation=read\\ committed",
    "default_transaction_read_only=off",
    // A warning may say that an append is not safe.
    "client_min_messages=warning",
    // Every statement finds its rows by an index and in its order, whatever the statistics say of a table that has just
    // begun to grow.
    "enable_seqscan=off",
    "enable_bitmapscan=off",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "enable_sort=off",
    "enable_incremental_sort=on",
    "jit=off",
    "plan_cache_mode=force_generic_plan",
    // Payloads on their way through a statement stay in memory.
    "work_mem=64MB",
    "application_name=limina",
];

/// Some settings do not exist in every version, and an append must not be acknowledged more lightly than with `on`.
const SETTLE: &str = "
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout');
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

/// Who hears of what other nodes do.
#[derive(Clone)]
pub(super) struct Ears {
    /// What this node says itself.
    pub(super) own: String,
    pub(super) changed: Arc<Notify>,
}

/// How the database is reached.
pub(super) struct Connector {
    /// One for each server that may have it.
    configs: Vec<Config>,
    /// An attempt to connect ends after this time.
    connecting: Duration,
    tls: Option<MakeRustlsConnect>,
    place: String,
    timelines: Timelines,
    /// Held by whoever looks for a new server.
    looking: sync::Mutex<()>,
}

impl Connector {
    /// An attempt to connect takes no longer than `patience`.
    pub(super) fn new(url: &str, patience: Duration) -> Result<Arc<Connector>, StoreError> {
        let (url, tls) = tls::choose(url)?;
        // The parser's own words may repeat a part of the password.
        let config: Config = url.parse().map_err(|_| {
            StoreError::Unusable(
                "this is not a PostgreSQL URL: postgres://user:password@host:port/database".to_string(),
            )
        })?;
        let settings: String = SETTINGS.iter().map(|setting| format!(" -c {setting}")).collect();
        let options = format!("{}{settings}", config.get_options().unwrap_or_default());
        let mut configs = hosts::each(&config)?;
        let connecting = patience.min(CONNECTING);
        for config in &mut configs {
            config
                .options(&options)
                .target_session_attrs(TargetSessionAttrs::ReadWrite)
                .connect_timeout(connecting)
                .tcp_user_timeout(SILENCE)
                .keepalives_idle(SILENCE / 2)
                .keepalives_interval(SILENCE / 5)
                .keepalives_retries(2);
        }
        let (place, timelines) = (hosts::place(&config), Timelines::default());
        let looking = sync::Mutex::default();
        Ok(Arc::new(Connector { configs, connecting, tls, place, timelines, looking }))
    }

    /// Where the database is, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// One attempt at every server at once; the first that takes writes, and has no successor, is it.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Session, StoreError> {
        self.connect_with(None).await
    }

    /// The same; the session hears what other nodes say, if there are ears for it.
    pub(super) async fn connect_with(self: &Arc<Self>, ears: Option<&Ears>) -> Result<Session, StoreError> {
        let mut attempts = self.attempts(ears);
        let mut failures = Vec::new();
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(session)) if self.timelines.see(session.timeline) => return Ok(session),
                Ok(Ok(_)) => failures.push(NotConnected::passing("the server has a successor")),
                Ok(Err(failure)) => failures.push(failure),
                Err(panicked) => failures.push(NotConnected::passing(&panicked.to_string())),
            }
        }
        // Where one server may come back, it may be the one that takes this node in.
        let is_permanent = failures.iter().all(|failure| failure.is_permanent);
        let why: Vec<String> = failures.into_iter().map(|failure| failure.words).collect();
        let why = format!("connecting to {}: {}", self.place, why.join("; "));
        Err(if is_permanent { StoreError::Unusable(why) } else { StoreError::Unavailable(why) })
    }

    fn attempts(self: &Arc<Self>, ears: Option<&Ears>) -> JoinSet<Result<Session, NotConnected>> {
        (0..self.configs.len()).map(|server| self.clone().attempt(server, ears.cloned())).collect()
    }

    async fn attempt(self: Arc<Self>, server: usize, ears: Option<Ears>) -> Result<Session, NotConnected> {
        let config = &self.configs[server];
        let warnings = Arc::new(AtomicU64::new(0));
        let (ended, life) = watch::channel(());
        let listens = ears.is_some();
        let hear = hear(warnings.clone(), ears);
        let connecting = async {
            // The task that moves the bytes has `ended`, so that the receiver sees when it is over.
            let (client, driver) = match &self.tls {
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    (client, tokio::spawn(drive(connection, hear, ended)))
                }
                Some(tls) => {
                    let (client, connection) = config.connect(tls.clone()).await?;
                    (client, tokio::spawn(drive(connection, hear, ended)))
                }
            };
            client.batch_execute(SETTLE).await?;
            if listens {
                client.batch_execute("LISTEN limina_changed").await?;
            }
            let timeline = client.query_one(TIMELINE, &[]).await?.get(0);
            Ok((client, driver, timeline))
        };
        let connected = tokio::time::timeout(self.connecting, connecting).await;
        let connected = connected.map_err(|_| NotConnected::passing("there was no answer in time"))?;
        let (client, driver, timeline) = connected.map_err(|error: Error| NotConnected::new(&error))?;
        let (in_use, used) = watch::channel(());
        Ok(Session {
            life: Life {
                used,
                moved: life,
                driver: driver.abort_handle(),
                connector: self.clone(),
                timeline,
            },
            client,
            connector: self,
            timeline,
            statements: Mutex::default(),
            warnings,
            _in_use: in_use,
        })
    }

    /// Looks at all servers now and then. Of all who ask for it one does it, and only where it lasts.
    async fn look(self: &Arc<Self>) -> Infallible {
        tokio::time::sleep(LOOK).await;
        let _turn = self.looking.lock().await;
        loop {
            let mut attempts = self.attempts(None);
            while let Some(attempt) = attempts.join_next().await {
                if let Ok(Ok(session)) = attempt {
                    self.timelines.see(session.timeline);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Asks the server to end what a session is at. It need not hear it.
    async fn cancel(self: Arc<Self>, cancel: tokio_postgres::CancelToken) {
        let cancelled = tokio::time::timeout(self.connecting, async {
            match &self.tls {
                None => cancel.cancel_query(NoTls).await,
                Some(tls) => cancel.cancel_query(tls.clone()).await,
            }
        });
        if let Ok(Err(error)) = cancelled.await {
            tracing::debug!(error = describe(&error), "a statement could not be cancelled");
        }
    }
}

/// Why an attempt to connect failed.
struct NotConnected {
    words: String,
    /// It will not cure itself: somebody must change the server, or what this node was started with.
    is_permanent: bool,
}

impl NotConnected {
    fn new(error: &Error) -> NotConnected {
        let words = match error.code() {
            Some(&SqlState::TOO_MANY_CONNECTIONS) => format!(
                "the server takes no more connections, and a node needs {}: see max_connections ({})",
                super::CONNECTIONS,
                describe(error)
            ),
            _ => describe(error),
        };
        NotConnected { words, is_permanent: is_permanent(error) }
    }

    fn passing(words: &str) -> NotConnected {
        NotConnected { words: words.to_string(), is_permanent: false }
    }
}

/// What is done with what the server says unasked.
fn hear(warnings: Arc<AtomicU64>, ears: Option<Ears>) -> impl FnMut(AsyncMessage) + Send + 'static {
    move |message| match message {
        AsyncMessage::Notice(notice) => {
            warnings.fetch_add(1, Ordering::SeqCst);
            tracing::warn!(message = notice.message(), code = notice.code().code(), "PostgreSQL warns");
        }
        AsyncMessage::Notification(notification) => match &ears {
            Some(ears) if notification.payload() != ears.own => ears.changed.notify_one(),
            _ => {}
        },
        _ => {}
    }
}

/// Pauses between attempts, each longer than the one before.
#[derive(Default)]
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) async fn pause(&mut self) {
        self.0 = (2 * self.0).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        tokio::time::sleep(self.0).await;
    }
}

/// Moves bytes until the connection ends.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    mut hear: impl FnMut(AsyncMessage),
    _ended: watch::Sender<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(message) => hear(message),
            Err(error) => {
                tracing::warn!(error = describe(&error), "a connection to PostgreSQL was lost");
                return;
            }
        }
    }
}

/// An error's words, and those of its causes. The server's details are left out, since they may show data.
fn describe(error: &Error) -> String {
    if let Some(said) = error.as_db_error() {
        return format!("{}: {} ({})", said.severity(), said.message(), said.code().code());
    }
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

/// Whether it will be the same however often it is tried: a wrong role or password, a database that does not exist,
/// missing rights, a server that does not encrypt or cannot be trusted.
fn is_permanent(error: &Error) -> bool {
    const CODES: [SqlState; 4] = [
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
        SqlState::INVALID_PASSWORD,
        SqlState::INVALID_CATALOG_NAME,
        SqlState::INSUFFICIENT_PRIVILEGE,
    ];
    if let Some(code) = error.code() {
        return CODES.contains(code);
    }
    // The client names these kinds by their words alone.
    let words = error.to_string();
    let is_ours = ["error performing TLS handshake", "authentication error", "invalid configuration"];
    is_ours.contains(&&words[..]) && !is_of_the_network(error)
}

/// Whether the connection was lost meanwhile.
fn is_of_the_network(error: &Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let lost = [BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof];
            return lost.contains(&error.kind());
        }
        cause = error.source();
    }
    false
}

impl From<Error> for StoreError {
    fn from(error: Error) -> StoreError {
        let words = format!("PostgreSQL: {}", describe(&error));
        if is_permanent(&error) { StoreError::Unusable(words) } else { StoreError::Unavailable(words) }
    }
}

/// A connection that stands.
pub(super) struct Session {
    client: Client,
    connector: Arc<Connector>,
    timeline: i64,
    statements: Mutex<HashMap<&'static str, Statement>>,
    warnings: Arc<AtomicU64>,
    life: Life,
    /// Gone when this session is.
    _in_use: watch::Sender<()>,
}

/// What is known of a session by whoever does not use it.
#[derive(Clone)]
pub(super) struct Life {
    used: watch::Receiver<()>,
    moved: watch::Receiver<()>,
    driver: AbortHandle,
    connector: Arc<Connector>,
    timeline: i64,
}

impl Life {
    /// Returns when the session cannot be used any more, or nobody has it any more. Something may still be under way on its
    /// connection: see [`Life::ended`].
    pub(super) async fn over(&mut self) {
        tokio::select! {
            _dropped = self.used.changed() => {}
            _dropped = self.moved.changed() => {}
            // The old server may hang, and has nothing to say any more.
            () = self.connector.timelines.past(self.timeline) => self.driver.abort(),
        }
    }

    /// Returns when the connection is closed.
    pub(super) async fn ended(&mut self) {
        let _dropped = self.moved.changed().await;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.moved.has_changed().is_err()
    }
}

impl Session {
    /// Makes a statement known to the server, once.
    pub(super) async fn prepare(&self, sql: &'static str) -> Result<Statement, Error> {
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().unwrap_or_else(PoisonError::into_inner).insert(sql, statement.clone());
        Ok(statement)
    }

    pub(super) async fn run(&self, statement: &Statement, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.client.query(statement, params).await
    }

    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.run(&self.prepare(sql).await?, params).await
    }

    pub(super) async fn execute(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(sql).await
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) async fn transaction(&mut self) -> Result<Transaction<'_>, Error> {
        self.client.transaction().await
    }

    /// How many warnings the server gave. What it warned of before it answered is counted when the answer is seen.
    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::SeqCst)
    }

    /// Returns when a successor of the server is known, which is looked for where that takes long. The server itself need
    /// not know of it, and may then never answer.
    pub(super) async fn superseded(&self) {
        tokio::select! {
            () = self.connector.timelines.past(self.timeline) => {}
            never = self.connector.look() => match never {},
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.connector.timelines.is_past(self.timeline)
    }

    pub(super) fn life(&self) -> Life {
        self.life.clone()
    }

    /// Closes the connection at once, whatever it is at.
    pub(super) fn abandon(self) {
        self.life.driver.abort();
    }

    /// Gives the connection up, which closes when the server has ended what it is at. It is asked to do so now, unless
    /// that is an append: nothing cancels one.
    pub(super) fn retire(self, may_cancel: bool) {
        tracing::warn!("a connection to PostgreSQL gave no answer in time and is replaced");
        if may_cancel {
            let cancel = self.client.cancel_token();
            tokio::spawn(self.connector.clone().cancel(cancel));
        }
    }
}

pub(super) fn no_answer() -> StoreError {
    StoreError::Unavailable("PostgreSQL gave no answer in time".to_string())
}

/// Whether the statement met another one, and may be tried again.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Whether the connection is over with this error, though its session may not know it yet.
pub(super) fn ends_session(error: &Error) -> bool {
    error.as_db_error().is_none_or(|said| said.parsed_severity() != Some(Severity::Error))
}

/// For example that the server no longer waits for a standby; it answers then as if all were well.
pub(super) fn warned() -> StoreError {
    StoreError::Unavailable("PostgreSQL gave a warning with its answer".to_string())
}
