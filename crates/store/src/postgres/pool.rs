//! A few connections for many users.
//!
//! Each place in a pool has a task that keeps a connection there: it makes another one when the last was lost. So no user
//! waits for a connection to be made, but for the first attempt after a loss; once that has failed, users are refused at
//! once until an attempt succeeds. A connection that gives no answer in time is never handed out again, and replaced.

use super::connection::{
    ATTEMPTS, Connector, Ears, Life, Params, Pauses, Session, ends_session, is_conflict, no_answer, warned,
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
    keepers: Vec<AbortHandle>,
}

struct Shared {
    connector: Arc<Connector>,
    ears: Option<Ears>,
    /// A statement that is not answered in this time has met a connection that hangs.
    answer: Duration,
    /// A permit for each session in `idle`.
    free: Semaphore,
    idle: Mutex<Vec<Session>>,
    standing: watch::Sender<Standing>,
}

/// How the connections are.
#[derive(Default)]
struct Standing {
    /// How many stand, in use or not.
    count: usize,
    /// How the last attempt to make one failed, if no later one succeeded.
    trouble: Option<StoreError>,
}

impl Pool {
    /// Makes all connections now. A statement on them has the time `answer`.
    pub(super) async fn connect(
        connector: &Arc<Connector>,
        size: usize,
        answer: Duration,
        ears: Option<Ears>,
    ) -> Result<Pool, StoreError> {
        let shared = Arc::new(Shared {
            connector: connector.clone(),
            ears,
            answer,
            free: Semaphore::new(0),
            idle: Mutex::default(),
            standing: watch::Sender::default(),
        });
        let mut lives = Vec::new();
        for _ in 0..size {
            let session = connector.connect_with(shared.ears.as_ref()).await?;
            lives.push(session.life());
            shared.stand(session);
        }
        let keep = |life| tokio::spawn(keep(shared.clone(), life)).abort_handle();
        let keepers = lives.into_iter().map(keep).collect();
        Ok(Pool { shared, keepers })
    }

    /// One statement, which is a transaction. Where the server did not answer it may have been done.
    pub(super) async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        self.lease().await?.query(sql, params).await
    }

    /// A connection for one user. It is waited for where all are in use, or where one was just lost.
    pub(super) async fn lease(&self) -> Result<Lease, StoreError> {
        loop {
            let permit = tokio::select! {
                biased;
                permit = self.shared.free.acquire() => permit.map_err(|_| closed())?,
                trouble = self.shared.trouble() => return Err(trouble),
            };
            permit.forget();
            // One that was lost while it was idle is dropped here; its keeper knows.
            let session = self.shared.lock().pop().filter(Session::is_usable);
            if let Some(session) = session {
                return Ok(Lease { shared: self.shared.clone(), session: Some(session), is_busy: false });
            }
        }
    }

    /// Whether any connection stands.
    pub(super) fn is_able(&self) -> bool {
        self.shared.standing.borrow().count > 0
    }

    /// Closes all connections, and refuses whatever is asked from now on.
    pub(super) fn close(&self) {
        self.shared.free.close();
        self.shared.lock().clear();
        for keeper in &self.keepers {
            keeper.abort();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn stand(&self, session: Session) {
        self.put(session);
        self.standing.send_modify(|standing| {
            standing.count += 1;
            standing.trouble = None;
        });
        self.tell();
    }

    fn put(&self, session: Session) {
        if !self.free.is_closed() {
            self.lock().push(session);
            self.free.add_permits(1);
        }
    }

    fn fall(&self) {
        self.standing.send_modify(|standing| standing.count -= 1);
        self.tell();
    }

    /// Something that other nodes said may have been missed.
    fn tell(&self) {
        if let Some(ears) = &self.ears {
            ears.changed.notify_one();
        }
    }

    /// Returns why no connection can be had, when that is so.
    async fn trouble(&self) -> StoreError {
        let mut standing = self.standing.subscribe();
        let in_trouble = |standing: &Standing| standing.count == 0 && standing.trouble.is_some();
        let trouble = standing.wait_for(in_trouble).await;
        trouble
            .ok()
            .and_then(|standing| standing.trouble.as_ref().map(StoreError::again))
            .unwrap_or_else(closed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps one place of the pool filled. A place has one connection that hangs at most: while that is at something, and its
/// successor hangs too, there is no third one. So a server that hangs does not collect connections.
async fn keep(shared: Arc<Shared>, mut life: Life) {
    let mut hung: Option<Life> = None;
    loop {
        life.over().await;
        shared.fall();
        if !life.has_ended() {
            if let Some(mut before) = hung.take().filter(|before| !before.has_ended()) {
                tokio::select! {
                    () = before.ended() => {}
                    () = life.ended() => {}
                }
                hung = [before, life].into_iter().find(|life| !life.has_ended());
            } else {
                hung = Some(life);
            }
        }
        life = connect(&shared).await;
    }
}

/// Tries until it succeeds.
async fn connect(shared: &Arc<Shared>) -> Life {
    let mut pauses = Pauses::default();
    let mut has_failed = false;
    loop {
        match shared.connector.connect_with(shared.ears.as_ref()).await {
            Ok(session) => {
                let life = session.life();
                shared.stand(session);
                return life;
            }
            Err(error) => {
                if !std::mem::replace(&mut has_failed, true) {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "a connection to PostgreSQL was lost and cannot be made again");
                }
                shared.standing.send_modify(|standing| standing.trouble = Some(error));
                pauses.pause().await;
            }
        }
    }
}

/// A connection that goes back to its pool.
pub(super) struct Lease {
    shared: Arc<Shared>,
    session: Option<Session>,
    /// A statement was sent and not answered.
    is_busy: bool,
}

impl Lease {
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
                Ok(_) if has_warned => return Err(warned()),
                Ok(rows) => return Ok(rows),
            }
        }
    }

    /// The session, for a statement that ends with [`Lease::end`], [`Lease::abandon`] or [`Lease::retire`].
    pub(super) fn begin(&mut self) -> &Session {
        self.is_busy = true;
        self.session.as_ref().expect("it is given back at the end")
    }

    /// The statement was answered.
    pub(super) fn end(&mut self) {
        self.is_busy = false;
    }

    /// Closes the connection at once, whatever it is at.
    pub(super) fn abandon(&mut self) -> StoreError {
        if let Some(session) = self.session.take() {
            session.abandon();
        }
        no_answer()
    }

    /// The connection hangs, and is replaced. What it is at is cancelled, if it may be.
    pub(super) fn retire(&mut self, may_cancel: bool) -> StoreError {
        if let Some(session) = self.session.take() {
            session.retire(may_cancel);
        }
        no_answer()
    }
}

impl Drop for Lease {
    /// Whoever did not wait for an answer leaves a connection that may hang: it is handed out again when it has answered.
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

/// Where a question can be asked.
pub(super) trait Ask: Sync {
    /// One statement, which only reads.
    fn query(
        &self,
        sql: &'static str,
        params: Params<'_>,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;
}

impl Ask for Pool {
    async fn query(&self, sql: &'static str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        Pool::query(self, sql, params).await
    }
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_string())
}
