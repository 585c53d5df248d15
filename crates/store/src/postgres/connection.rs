//! Connections to the database that come back by themselves.

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
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync,
    task::{JoinHandle, JoinSet},
    time::Instant,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Error, NoTls, Row, Statement, Transaction,
    config::TargetSessionAttrs, error::SqlState, types::ToSql,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection that is not there after this time will not come.
const CONNECTING: Duration = Duration::from_secs(5);
/// For so long a call waits for the database to come back.
const PATIENCE: Duration = Duration::from_secs(5);
/// Nothing but an append takes this long, unless the server hangs.
const ANSWER: Duration = Duration::from_secs(30);
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

/// How the database is reached.
pub(super) struct Connector {
    /// One for each server that may have it.
    configs: Vec<Config>,
    tls: Option<MakeRustlsConnect>,
    place: String,
    timelines: Timelines,
    /// Held by whoever looks for a new server.
    looking: sync::Mutex<()>,
}

impl Connector {
    pub(super) fn new(url: &str) -> Result<Arc<Connector>, StoreError> {
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
        for config in &mut configs {
            config
                .options(&options)
                .target_session_attrs(TargetSessionAttrs::ReadWrite)
                .connect_timeout(CONNECTING)
                .tcp_user_timeout(SILENCE)
                .keepalives_idle(SILENCE / 2)
                .keepalives_interval(SILENCE / 5)
                .keepalives_retries(2);
        }
        let (place, timelines) = (hosts::place(&config), Timelines::default());
        let looking = sync::Mutex::default();
        Ok(Arc::new(Connector { configs, tls, place, timelines, looking }))
    }

    /// Where the database is, for messages.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// One attempt.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Session, StoreError> {
        let warnings = Arc::new(AtomicU64::new(0));
        let counted = warnings.clone();
        let hear = move |message| {
            if let AsyncMessage::Notice(notice) = message {
                counted.fetch_add(1, Ordering::SeqCst);
                tracing::warn!(message = notice.message(), code = notice.code().code(), "PostgreSQL warns");
            }
        };
        Ok(Session { warnings, ..self.connect_and_hear(hear).await? })
    }

    /// One attempt at every server at once; the first that takes writes, and has no successor, is it. `hear` is called with
    /// what the server says unasked.
    pub(super) async fn connect_and_hear(
        self: &Arc<Self>,
        hear: impl FnMut(AsyncMessage) + Clone + Send + 'static,
    ) -> Result<Session, StoreError> {
        let mut attempts = self.attempts(hear);
        let mut failures = Vec::new();
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(session)) if self.timelines.see(session.timeline) => return Ok(session),
                Ok(Ok(_)) => failures.push("the server has a successor".to_string()),
                Ok(Err(failure)) => failures.push(failure),
                Err(panicked) => failures.push(panicked.to_string()),
            }
        }
        let why = failures.join("; ");
        Err(StoreError::Unavailable(format!("connecting to {}: {why}", self.place)))
    }

    fn attempts(
        self: &Arc<Self>,
        hear: impl FnMut(AsyncMessage) + Clone + Send + 'static,
    ) -> JoinSet<Result<Session, String>> {
        (0..self.configs.len()).map(|server| self.clone().attempt(server, hear.clone())).collect()
    }

    async fn attempt(
        self: Arc<Self>,
        server: usize,
        hear: impl FnMut(AsyncMessage) + Send + 'static,
    ) -> Result<Session, String> {
        let config = &self.configs[server];
        let connecting = async {
            let (client, driver) = match &self.tls {
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    (client, tokio::spawn(drive(connection, hear)))
                }
                Some(tls) => {
                    let (client, connection) = config.connect(tls.clone()).await?;
                    (client, tokio::spawn(drive(connection, hear)))
                }
            };
            client.batch_execute(SETTLE).await?;
            let timeline = client.query_one(TIMELINE, &[]).await?.get(0);
            Ok((client, driver, timeline))
        };
        let connected = tokio::time::timeout(CONNECTING, connecting).await;
        let connected = connected.map_err(|_| "there was no answer in time".to_string())?;
        let (client, driver, timeline) = connected.map_err(|error: Error| describe(&error))?;
        let (statements, warnings) = (Mutex::default(), Arc::default());
        Ok(Session { client, driver, connector: self, timeline, statements, warnings })
    }

    /// Looks at all servers now and then. Of all who ask for it one does it, and only where it lasts.
    async fn look(self: &Arc<Self>) -> Infallible {
        tokio::time::sleep(LOOK).await;
        let _turn = self.looking.lock().await;
        loop {
            let mut attempts = self.attempts(|_| {});
            while let Some(attempt) = attempts.join_next().await {
                if let Ok(Ok(session)) = attempt {
                    self.timelines.see(session.timeline);
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Several attempts, for a while.
    async fn connect_patiently(self: &Arc<Self>) -> Result<Session, StoreError> {
        let deadline = Instant::now() + PATIENCE;
        let mut pauses = Pauses::default();
        loop {
            match self.connect().await {
                Err(_) if Instant::now() < deadline => pauses.pause().await,
                connected => return connected,
            }
        }
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
async fn drive<S, T>(mut connection: Connection<S, T>, mut hear: impl FnMut(AsyncMessage))
where
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

impl From<Error> for StoreError {
    fn from(error: Error) -> StoreError {
        StoreError::Unavailable(format!("PostgreSQL: {}", describe(&error)))
    }
}

/// A connection that stands.
pub(super) struct Session {
    client: Client,
    driver: JoinHandle<()>,
    connector: Arc<Connector>,
    timeline: i64,
    statements: Mutex<HashMap<&'static str, Statement>>,
    warnings: Arc<AtomicU64>,
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

    fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.connector.timelines.is_past(self.timeline)
    }

    /// Returns when the connection is lost, or has become useless.
    pub(super) async fn ended(mut self) {
        tokio::select! {
            _panicked = &mut self.driver => {}
            () = self.connector.timelines.past(self.timeline) => {}
        }
    }
}

/// A session for one user at a time, made anew where the last one was lost.
pub(super) struct Link {
    connector: Arc<Connector>,
    session: Option<Session>,
}

impl Link {
    pub(super) fn new(connector: Arc<Connector>) -> Link {
        Link { connector, session: None }
    }

    pub(super) async fn session(&mut self) -> Result<&Session, StoreError> {
        if !self.session.as_ref().is_some_and(Session::is_usable) {
            self.session = Some(self.connector.connect_patiently().await?);
        }
        Ok(self.session.as_ref().expect("it stands"))
    }

    /// One statement, which is a transaction. Where the server did not answer it may have been done.
    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let mut attempts = 1;
        loop {
            let session = self.session().await?;
            let warnings = session.warnings();
            let answer = tokio::select! {
                answer = session.query(sql, params) => answer,
                () = session.superseded() => return Err(self.abandon()),
                // The connection stays: the server may only wait for a standby, and each one that is left to it so would
                // be one more. A server that is gone is noticed by its silence.
                () = tokio::time::sleep(ANSWER) => return Err(no_answer()),
            };
            match answer {
                Err(error) if is_conflict(&error) && attempts < ATTEMPTS => attempts += 1,
                Ok(_) if session.warnings() != warnings => return Err(warned()),
                answer => return Ok(answer?),
            }
        }
    }

    /// Closes the connection at once, whatever it is at.
    pub(super) fn abandon(&mut self) -> StoreError {
        if let Some(session) = self.session.take() {
            session.driver.abort();
        }
        no_answer()
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable("PostgreSQL gave no answer in time".to_string())
}

/// Whether the statement met another one, and may be tried again.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// For example that the server no longer waits for a standby; it answers then as if all were well.
pub(super) fn warned() -> StoreError {
    StoreError::Unavailable("PostgreSQL gave a warning with its answer".to_string())
}
