//! One connection to the database, the statements that run on it, and how its end is observed.

use super::{connector::Connector, errors::describe};
use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, watch},
    task::AbortHandle,
};
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Row, Statement, Transaction, types::ToSql};

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What identifies the server of a connection, see [`super::timelines`].
pub(super) struct Server {
    pub(super) system: i64,
    pub(super) timeline: i64,
}

/// An open connection.
pub(super) struct Session {
    client: Client,
    connector: Arc<Connector>,
    pub(super) system: i64,
    pub(super) timeline: i64,
    statements: Mutex<HashMap<&'static str, Statement>>,
    warnings: Arc<AtomicU64>,
    monitor: SessionMonitor,
    /// Dropped together with this session, which its monitors notice.
    _in_use: watch::Sender<()>,
}

/// Observes the end of a session without using it.
#[derive(Clone)]
pub(super) struct SessionMonitor {
    dropped: watch::Receiver<()>,
    closed: watch::Receiver<()>,
    driver: AbortHandle,
    connector: Arc<Connector>,
    timeline: i64,
}

impl SessionMonitor {
    /// Returns when the session is unusable or has been dropped. A statement may still run on its connection, see
    /// [`SessionMonitor::ended`].
    pub(super) async fn over(&mut self) {
        tokio::select! {
            _ = self.dropped.changed() => {}
            _ = self.closed.changed() => {}
            // The server has a successor. It may hang, and its answers no longer count.
            () = self.connector.timelines.superseded(self.timeline) => self.driver.abort(),
        }
    }

    /// Returns when the connection is closed.
    pub(super) async fn ended(&mut self) {
        let _ = self.closed.changed().await;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.closed.has_changed().is_err()
    }
}

impl Session {
    /// `closed` ends together with the task that moves the connection's bytes.
    pub(super) fn new(
        client: Client,
        driver: AbortHandle,
        closed: watch::Receiver<()>,
        connector: Arc<Connector>,
        Server { system, timeline }: Server,
        warnings: Arc<AtomicU64>,
    ) -> Session {
        let (in_use, dropped) = watch::channel(());
        let monitor = SessionMonitor { dropped, closed, driver, connector: connector.clone(), timeline };
        let statements = Mutex::default();
        Session { client, connector, system, timeline, statements, warnings, monitor, _in_use: in_use }
    }

    /// Prepares a statement once per session.
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

    /// The number of warnings so far. A warning that came before an answer is counted when the answer is seen.
    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::SeqCst)
    }

    /// Returns when a newer server is known. If this takes long, it starts to look for one, because the old server may
    /// not know that it was replaced, and may never answer.
    pub(super) async fn superseded(&self) {
        tokio::select! {
            () = self.connector.timelines.superseded(self.timeline) => {}
            never = self.connector.look_for_successor() => match never {},
        }
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.client.is_closed() && !self.connector.timelines.is_superseded(self.timeline)
    }

    pub(super) fn monitor(&self) -> SessionMonitor {
        self.monitor.clone()
    }

    /// Closes the connection at once, even if a statement runs on it.
    pub(super) fn abandon(self) {
        self.monitor.driver.abort();
    }

    /// Stops using the connection, which closes when its statement has ended. With `may_cancel` the server is asked to
    /// cancel that statement. Appends must not be cancelled.
    pub(super) fn retire(self, may_cancel: bool) {
        tracing::warn!("a connection to PostgreSQL gave no answer in time and is replaced");
        if may_cancel {
            let cancel = self.client.cancel_token();
            tokio::spawn(self.connector.clone().cancel(cancel));
        }
    }
}

/// Where notifications of other nodes are delivered, and the loss of the session that receives them.
#[derive(Clone)]
pub(super) struct Notifications {
    /// The payload of this node's own notifications, which are ignored.
    pub(super) own: String,
    pub(super) changed: Arc<Notify>,
    pub(super) disconnected: Arc<Notify>,
}

/// Handles messages that the server sends unasked: counts warnings, and delivers notifications.
pub(super) fn on_message(
    warnings: Arc<AtomicU64>,
    notifications: Option<Notifications>,
) -> impl FnMut(AsyncMessage) + Send + 'static {
    move |message| match message {
        AsyncMessage::Notice(notice) => {
            warnings.fetch_add(1, Ordering::SeqCst);
            tracing::warn!(
                message = notice.message(),
                code = notice.code().code(),
                "PostgreSQL sent a warning"
            );
        }
        AsyncMessage::Notification(notification) => match &notifications {
            Some(notifications) if notification.payload() != notifications.own => {
                notifications.changed.notify_one()
            }
            _ => {}
        },
        _ => {}
    }
}

/// Moves bytes until the connection ends.
pub(super) async fn drive<S, T>(
    mut connection: Connection<S, T>,
    mut on_message: impl FnMut(AsyncMessage),
    _ended: watch::Sender<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
        match message {
            Ok(message) => on_message(message),
            Err(error) => {
                tracing::warn!(error = describe(&error), "a connection to PostgreSQL was lost");
                return;
            }
        }
    }
}
