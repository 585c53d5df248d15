//! A pool of a few connections for many users.
//!
//! Each slot of the pool has a task that keeps it filled: when its connection is lost, the task makes another one. So
//! users normally do not wait for a connection to be made. They wait only for the first attempt after a loss; if it
//! fails, they get an error at once until an attempt succeeds. A connection that gives no answer in time is never
//! handed out again, and is replaced.

use super::{
    connector::{Backoff, Connector},
    errors::{ATTEMPTS, ends_session, is_conflict, timed_out, warning_received},
    session::{Notifications, Params, Session, SessionMonitor},
};
use crate::StoreError;
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
    task::AbortHandle,
};
use tokio_postgres::Row;

pub(super) struct Pool {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

struct Shared {
    connector: Arc<Connector>,
    notifications: Option<Notifications>,
    /// If a statement is not answered within this time, its connection counts as hung.
    answer: Duration,
    /// One permit for each session in `idle`.
    free: Semaphore,
    idle: Mutex<Vec<Session>>,
    status: watch::Sender<PoolStatus>,
}

/// The state of the pool's connections.
#[derive(Default)]
struct PoolStatus {
    /// The number of open connections, idle or in use.
    count: usize,
    /// Why the last attempt to connect failed, if no later one succeeded.
    last_error: Option<StoreError>,
}

impl Pool {
    /// Makes all connections now. Statements on them time out after `answer`.
    pub(super) async fn connect(
        connector: &Arc<Connector>,
        size: usize,
        answer: Duration,
        notifications: Option<Notifications>,
    ) -> Result<Pool, StoreError> {
        let shared = Arc::new(Shared {
            connector: connector.clone(),
            notifications,
            answer,
            free: Semaphore::new(0),
            idle: Mutex::default(),
            status: watch::Sender::default(),
        });
        let mut monitors = Vec::new();
        for _ in 0..size {
            let session = connector.connect_with(shared.notifications.as_ref()).await?;
            monitors.push(session.monitor());
            shared.add(session);
        }
        let maintain = |monitor| tokio::spawn(maintain_connection(shared.clone(), monitor)).abort_handle();
        let tasks = monitors.into_iter().map(maintain).collect();
        Ok(Pool { shared, tasks })
    }

    /// Runs one statement, which is a transaction. If the server does not answer, the statement may have been executed.
    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.acquire().await?.query(sql, params).await
    }

    /// A connection for one user. Waits if all are in use, or if one was just lost.
    pub(super) async fn acquire(&self) -> Result<PooledSession, StoreError> {
        loop {
            let permit = tokio::select! {
                biased;
                permit = self.shared.free.acquire() => permit.map_err(|_| closed())?,
                last_error = self.shared.last_error() => return Err(last_error),
            };
            permit.forget();
            // A session that was lost while it was idle is dropped here. The task of its slot replaces it.
            let session = self.shared.lock().pop().filter(Session::is_usable);
            if let Some(session) = session {
                return Ok(PooledSession {
                    shared: self.shared.clone(),
                    session: Some(session),
                    is_busy: false,
                });
            }
        }
    }

    /// Whether any connection is open.
    pub(super) fn is_available(&self) -> bool {
        self.shared.status.borrow().count > 0
    }

    /// Closes all connections. Later calls fail.
    pub(super) fn close(&self) {
        self.shared.free.close();
        self.shared.lock().clear();
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn add(&self, session: Session) {
        self.put(session);
        self.status.send_modify(|status| {
            status.count += 1;
            status.last_error = None;
        });
        self.notify();
    }

    fn put(&self, session: Session) {
        if !self.free.is_closed() {
            self.lock().push(session);
            self.free.add_permits(1);
        }
    }

    fn remove_one(&self) {
        self.status.send_modify(|status| status.count -= 1);
        if let Some(notifications) = &self.notifications {
            notifications.disconnected.notify_one();
        }
        self.notify();
    }

    /// Reports a possible change, because a notification may have been lost together with a connection.
    fn notify(&self) {
        if let Some(notifications) = &self.notifications {
            notifications.changed.notify_one();
        }
    }

    /// Returns the error when no connection is open and the last attempt to connect failed.
    async fn last_error(&self) -> StoreError {
        let mut status = self.status.subscribe();
        let in_trouble = |status: &PoolStatus| status.count == 0 && status.last_error.is_some();
        let last_error = status.wait_for(in_trouble).await;
        last_error
            .ok()
            .and_then(|status| status.last_error.as_ref().map(StoreError::again))
            .unwrap_or_else(closed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one slot of the pool filled. A slot has at most one hung connection: while that one still runs a statement,
/// and its replacement hangs too, no third one is made. So a hung server does not accumulate connections.
async fn maintain_connection(shared: Arc<Shared>, mut monitor: SessionMonitor) {
    let mut hung: Option<SessionMonitor> = None;
    loop {
        monitor.over().await;
        shared.remove_one();
        if !monitor.has_ended() {
            if let Some(mut before) = hung.take().filter(|before| !before.has_ended()) {
                tokio::select! {
                    () = before.ended() => {}
                    () = monitor.ended() => {}
                }
                hung = [before, monitor].into_iter().find(|monitor| !monitor.has_ended());
            } else {
                hung = Some(monitor);
            }
        }
        monitor = connect(&shared).await;
    }
}

/// Retries until a connection is made.
async fn connect(shared: &Arc<Shared>) -> SessionMonitor {
    let mut backoff = Backoff::default();
    let mut has_failed = false;
    loop {
        match shared.connector.connect_with(shared.notifications.as_ref()).await {
            Ok(session) => {
                let monitor = session.monitor();
                shared.add(session);
                return monitor;
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "a connection to PostgreSQL was lost and cannot be made again");
                }
                shared.status.send_modify(|status| status.last_error = Some(error));
                backoff.pause().await;
            }
        }
    }
}

/// A connection that returns to its pool when it is dropped.
pub(super) struct PooledSession {
    shared: Arc<Shared>,
    session: Option<Session>,
    /// A statement was sent and not answered yet.
    is_busy: bool,
}

impl PooledSession {
    /// See [`Pool::query`].
    pub(super) async fn query(
        &mut self,
        sql: &'static str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, StoreError> {
        let mut attempts = 1;
        loop {
            let answer = self.shared.answer;
            let session = self.begin();
            let warnings = session.warnings();
            let answer = tokio::select! {
                answer = session.query(sql, params) => answer,
                () = session.superseded() => return Err(self.abandon()),
                () = tokio::time::sleep(answer) => return Err(self.retire(true)),
            };
            let has_warned = session.warnings() != warnings;
            self.end();
            match answer {
                Err(error) if is_conflict(&error) && attempts < ATTEMPTS => attempts += 1,
                Err(error) => {
                    if ends_session(&error) {
                        self.abandon();
                    }
                    return Err(error.into());
                }
                Ok(_) if has_warned => return Err(warning_received()),
                Ok(rows) => return Ok(rows),
            }
        }
    }

    /// The session for one statement, which the caller must end with [`PooledSession::end`], [`PooledSession::abandon`]
    /// or [`PooledSession::retire`].
    pub(super) fn begin(&mut self) -> &Session {
        self.is_busy = true;
        self.session.as_ref().expect("it is given back at the end")
    }

    /// The statement was answered.
    pub(super) fn end(&mut self) {
        self.is_busy = false;
    }

    /// Closes the connection at once, even if a statement runs on it.
    pub(super) fn abandon(&mut self) -> StoreError {
        if let Some(session) = self.session.take() {
            session.abandon();
        }
        timed_out()
    }

    /// The connection hangs and must be replaced. With `may_cancel` its statement is cancelled.
    pub(super) fn retire(&mut self, may_cancel: bool) -> StoreError {
        if let Some(session) = self.session.take() {
            session.retire(may_cancel);
        }
        timed_out()
    }
}

impl Drop for PooledSession {
    /// If the user did not wait for the answer, the connection may hang. It returns to the pool only after it has
    /// answered.
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if !self.is_busy {
            self.shared.put(session);
        } else if let Ok(runtime) = Handle::try_current() {
            let shared = self.shared.clone();
            runtime.spawn(async move {
                match tokio::time::timeout(shared.answer, session.execute("")).await {
                    Ok(Ok(())) => shared.put(session),
                    Ok(Err(_)) => {}
                    Err(_) => session.retire(true),
                }
            });
        }
    }
}

/// Something that can run statements: a pool, or a snapshot.
pub(super) trait Queryable: Sync {
    /// Runs one statement that only reads.
    fn query(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;
}

impl Queryable for Pool {
    async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        Pool::query(self, sql, params).await
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_string())
}
