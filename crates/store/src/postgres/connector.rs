//! Makes connections to the database.

use super::{
    connections,
    errors::{describe, is_permanent},
    hosts, presence,
    session::{Notifications, Server, Session, drive, on_message},
    timelines::{SERVER, Timelines, Verdict},
    tls,
};
use crate::StoreError;
use std::{
    convert::Infallible,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};
use tokio::{
    sync::{self, watch},
    task::JoinSet,
};
use tokio_postgres::{
    Client, Config, Error, NoTls, SimpleQueryMessage, config::TargetSessionAttrs, error::SqlState,
};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The longest time for one attempt to connect.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to check whether a silent server has been replaced by a promoted standby.
const SUCCESSOR_CHECK_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// TCP timeout: a server that is silent for this long counts as gone.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The oldest PostgreSQL with all of these settings, as its number in `server_version_num`.
const OLDEST_VERSION: u32 = 130_000;

/// What decides whether the server can be used at all. It is asked in a simple query, because a pooler may not keep prepared statements. A timeout
/// in the configuration of the database must not end it.
const SERVER_KIND: &str = "
    SET statement_timeout = 0;
    SELECT current_setting('server_version_num'), current_setting('server_version'), pg_is_in_recovery()";

/// Settings of every session. They override the configuration of the database. They are set by a statement, and not while connecting:
/// a pooler refuses or drops settings that come with a connection.
const SETTINGS: [(&str, &str); 15] = [
    // An append must never be cancelled by a timeout.
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_read_only", "off"),
    // A warning may mean that an append is not durable.
    ("client_min_messages", "warning"),
    // Every statement must find its rows by an index and in index order, even if the statistics of a young table
    // suggest another plan.
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_sort", "off"),
    ("enable_incremental_sort", "on"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    // Keep payloads in memory while a statement handles them.
    ("work_mem", "64MB"),
];

/// Some of these settings do not exist in every version. `synchronous_commit` must be at least `on`, so that an
/// acknowledged append is durable.
const SESSION_SETUP: &str = "
    SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', 'transaction_timeout');
    SELECT set_config('synchronous_commit', 'on', false)
    WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')";

/// The statements that prepare a session.
fn session_setup() -> String {
    let settings = SETTINGS.map(|(name, value)| format!("SELECT set_config('{name}', '{value}', false);"));
    settings.concat() + SESSION_SETUP
}

/// How to reach the database.
pub(super) struct Connector {
    /// One configuration for each server that the URL names.
    configs: Vec<Config>,
    /// The timeout of an attempt to connect.
    connecting: Duration,
    tls: Option<MakeRustlsConnect>,
    location: String,
    pub(super) timelines: Timelines,
    /// Held by the task that looks for a promoted standby, so that only one does.
    looking: sync::Mutex<()>,
}

impl Connector {
    /// An attempt to connect takes at most `patience`.
    pub(super) fn new(url: &str, patience: Duration) -> Result<Arc<Connector>, StoreError> {
        let (url, tls) = tls::choose(url)?;
        // The parser's error may repeat a part of the password, so it is not shown.
        let config: Config = url.parse().map_err(|_| {
            StoreError::Unusable(
                "this is not a PostgreSQL URL: postgres://user:password@host:port/database".to_string(),
            )
        })?;
        let mut configs = hosts::each(&config)?;
        let connecting = patience.min(CONNECT_TIMEOUT);
        for config in &mut configs {
            config
                .application_name("limina")
                // A database whose transactions are read-only by default is no standby. `check_kind` finds out.
                .target_session_attrs(TargetSessionAttrs::Any)
                .connect_timeout(connecting)
                .tcp_user_timeout(KEEPALIVE_TIMEOUT)
                .keepalives_idle(KEEPALIVE_TIMEOUT / 2)
                .keepalives_interval(KEEPALIVE_TIMEOUT / 5)
                .keepalives_retries(2);
        }
        let (location, timelines) = (hosts::location(&config), Timelines::default());
        let looking = sync::Mutex::default();
        Ok(Arc::new(Connector { configs, connecting, tls, location, timelines, looking }))
    }

    /// The address of the database for messages, without the password.
    pub(super) fn location(&self) -> &str {
        &self.location
    }

    /// Tries all servers at the same time. Returns the first session that accepts writes and whose server has no
    /// successor.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<Session, StoreError> {
        self.connect_with(None).await
    }

    /// Like `connect`. The session also receives the notifications of other nodes, if `notifications` is given.
    pub(super) async fn connect_with(
        self: &Arc<Self>,
        notifications: Option<&Notifications>,
    ) -> Result<Session, StoreError> {
        let mut attempts = self.attempts(notifications);
        let mut failures = Vec::new();
        while let Some(attempt) = attempts.join_next().await {
            match attempt {
                Ok(Ok(session)) => match self.timelines.observe(session.system, session.timeline) {
                    Verdict::Current => return Ok(session),
                    Verdict::Superseded => {
                        failures.push(ConnectError::transient("the server has a successor"));
                    }
                    Verdict::OtherDatabase => failures.push(ConnectError::transient(
                        "the server has another database: its system identifier is not that of the server that this node began with",
                    )),
                },
                Ok(Err(failure)) => failures.push(failure),
                Err(panicked) => failures.push(ConnectError::transient(&panicked.to_string())),
            }
        }
        // The failure is permanent only if it is for every server: a server that recovers may accept this node.
        let is_permanent = failures.iter().all(|failure| failure.is_permanent);
        let why: Vec<String> = failures.into_iter().map(|failure| failure.words).collect();
        let why = format!("connecting to {}: {}", self.location, why.join("; "));
        Err(if is_permanent { StoreError::Unusable(why) } else { StoreError::Unavailable(why) })
    }

    fn attempts(
        self: &Arc<Self>,
        notifications: Option<&Notifications>,
    ) -> JoinSet<Result<Session, ConnectError>> {
        (0..self.configs.len()).map(|server| self.clone().attempt(server, notifications.cloned())).collect()
    }

    async fn attempt(
        self: Arc<Self>,
        server: usize,
        notifications: Option<Notifications>,
    ) -> Result<Session, ConnectError> {
        let config = &self.configs[server];
        let warnings = Arc::new(AtomicU64::new(0));
        let (ended, closed) = watch::channel(());
        let listens = notifications.is_some();
        let on_message = on_message(warnings.clone(), notifications);
        let connecting = async {
            // The task that moves the bytes owns `ended`, so the receiver notices when the task ends.
            let (client, driver) = match &self.tls {
                None => {
                    let (client, connection) = config.connect(NoTls).await?;
                    (client, tokio::spawn(drive(connection, on_message, ended)))
                }
                Some(tls) => {
                    let (client, connection) = config.connect(tls.clone()).await?;
                    (client, tokio::spawn(drive(connection, on_message, ended)))
                }
            };
            check_kind(&client).await?;
            client.batch_execute(&session_setup()).await?;
            if listens {
                client.batch_execute("LISTEN limina_changed").await?;
                client.batch_execute(presence::ANNOUNCE).await?;
            }
            let [system, timeline] =
                simple_row(&client, SERVER).await?.map(|number| number.parse().unwrap_or(0));
            Ok::<_, ConnectError>((client, driver, system, timeline))
        };
        let connected = tokio::time::timeout(self.connecting, connecting).await;
        let connected = connected.map_err(|_| ConnectError::transient("there was no answer in time"))?;
        let (client, driver, system, timeline) = connected?;
        let driver = driver.abort_handle();
        Ok(Session::new(client, driver, closed, self, Server { system, timeline }, warnings))
    }

    /// Regularly connects to all servers to find a newer timeline. Of several callers, only one does it at a time.
    /// Callers drop this future when their statement is answered.
    pub(super) async fn look_for_successor(self: &Arc<Self>) -> Infallible {
        tokio::time::sleep(SUCCESSOR_CHECK_INTERVAL).await;
        let _turn = self.looking.lock().await;
        loop {
            let mut attempts = self.attempts(None);
            while let Some(attempt) = attempts.join_next().await {
                if let Ok(Ok(session)) = attempt {
                    self.timelines.observe(session.system, session.timeline);
                }
            }
            tokio::time::sleep(SUCCESSOR_CHECK_INTERVAL).await;
        }
    }

    /// Asks the server to cancel the session's statement. The request may be lost.
    pub(super) async fn cancel(self: Arc<Self>, cancel: tokio_postgres::CancelToken) {
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

/// Whether the server is new enough, and accepts writes.
async fn check_kind(client: &Client) -> Result<(), ConnectError> {
    let [number, version, is_standby] = simple_row(client, SERVER_KIND).await?;
    if number.parse().is_ok_and(|number: u32| number < OLDEST_VERSION) {
        return Err(ConnectError {
            words: format!("this is PostgreSQL {version}, and Limina needs 13 or later"),
            is_permanent: true,
        });
    }
    match &is_standby[..] {
        "t" => Err(ConnectError::transient("the server is a standby, which accepts no writes")),
        _ => Ok(()),
    }
}

/// The values of the one row that a query returns, as text.
pub(super) async fn simple_row<const COLUMNS: usize>(
    client: &Client,
    query: &str,
) -> Result<[String; COLUMNS], Error> {
    let mut values = std::array::from_fn(|_| String::new());
    for message in client.simple_query(query).await? {
        if let SimpleQueryMessage::Row(row) = message {
            values = std::array::from_fn(|column| row.get(column).unwrap_or_default().to_owned());
        }
    }
    Ok(values)
}

/// Why an attempt to connect failed.
struct ConnectError {
    words: String,
    /// Retrying does not help: an operator must change the server or this node's configuration.
    is_permanent: bool,
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> ConnectError {
        ConnectError::new(&error)
    }
}

impl ConnectError {
    fn new(error: &Error) -> ConnectError {
        let words = match error.code() {
            Some(&SqlState::TOO_MANY_CONNECTIONS) => format!(
                "the server takes no more connections, and a node needs {}: see max_connections ({})",
                connections::CONNECTIONS,
                describe(error)
            ),
            _ => describe(error),
        };
        ConnectError { words, is_permanent: is_permanent(error) }
    }

    fn transient(words: &str) -> ConnectError {
        ConnectError { words: words.to_string(), is_permanent: false }
    }
}

/// Pauses between attempts, each twice as long as the previous one, up to a maximum.
#[derive(Default)]
pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) async fn pause(&mut self) {
        self.0 = (2 * self.0).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        tokio::time::sleep(self.0).await;
    }
}
