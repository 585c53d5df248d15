//! A guard keeps a lock, a lease or a decision alive by heartbeats, and knows until when it is certainly held.
//!
//! The server counts from the moment at which it handles a request, which is after the request left. So the guard counts from when
//! the request left: at its deadline the grant may still exist, but before its deadline nobody else can have it. A failed
//! heartbeat says nothing about the grant. Only the server's word, or the deadline, makes it lost.

use crate::{
    body::Body,
    error::{Error, Result},
    reply::Reply,
    transport::{Answer, Scope},
};
use reqwest::Method;
use serde::{Deserialize, de::DeserializeOwned};
use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::{runtime::Handle, task::AbortHandle, time::Instant};
use tokio_util::sync::CancellationToken;

/// A lock or a lease that is held. It dereferences to the server's grant.
///
/// Dropping the guard releases the grant in the background. [`Guard::release`] waits for the server's answer, and reports an error.
#[must_use = "dropping a guard releases its grant"]
pub struct Guard<G> {
    grant: Reply<G>,
    fencing_token: u64,
    keeper: Arc<Keeper>,
    /// `None` until the grant is known to be held.
    heartbeats: Option<AbortHandle>,
    runtime: Handle,
}

/// The part of a guard that its heartbeats share.
pub(crate) struct Keeper {
    scope: Scope,
    /// The path of the grant.
    path: String,
    /// The secret of a lock or a lease. A decision has none: whoever knows its id may end it.
    session_id: Option<String>,
    ttl: Duration,
    deadline: Mutex<Instant>,
    lost: CancellationToken,
    /// The server has said that the grant is gone.
    gone: AtomicBool,
    /// A request that ends the grant is under way. A heartbeat that finds the grant ended then proves nothing.
    pub(crate) ending: AtomicBool,
    /// The guard must not end the grant when it is dropped.
    pub(crate) ended: AtomicBool,
}

/// What every grant has.
#[derive(Deserialize)]
pub(crate) struct Granted {
    fencing_token: u64,
    expires_in_ms: u64,
    session_id: Option<String>,
}

impl<G> Guard<G> {
    /// The server's answer: ids, limits, locks, and its JSON.
    pub fn grant(&self) -> &Reply<G> {
        &self.grant
    }

    /// Grows with every grant of the namespace. The protected resource rejects a token that is smaller than one it has seen.
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// Whether the grant has ended, or may have ended. It is judged by the clock, so it is right even if tasks run late.
    pub fn is_lost(&self) -> bool {
        if self.keeper.remaining().is_zero() {
            self.keeper.lost.cancel();
        }
        self.keeper.lost.is_cancelled()
    }

    /// Is cancelled when the grant is lost. Clone it into the work that the grant protects.
    pub fn lost(&self) -> &CancellationToken {
        &self.keeper.lost
    }

    /// How long the grant is certainly held without a further heartbeat.
    pub fn remaining(&self) -> Duration {
        if self.is_lost() { Duration::ZERO } else { self.keeper.remaining() }
    }

    /// Ends the grant, and waits for the answer. If it fails, the `ttl` ends the grant.
    pub async fn release(self) -> Result<()> {
        self.stop();
        self.keeper.end().await
    }

    /// Ends the grant, and waits until that has succeeded or failed. Use it at the end of work whose own result matters more.
    pub async fn leave(self) {
        if !self.keeper.gone.load(SeqCst) && !self.keeper.ended.load(SeqCst) {
            let _ttl_ends_it = self.release().await;
        }
    }

    /// Guards what an answer grants. If the grant took so long to arrive that less than two thirds of its time are certainly left,
    /// a heartbeat comes first: a request that waited for its turn was granted long after it left.
    pub(crate) async fn new(
        scope: &Scope,
        ttl: Duration,
        answer: Answer,
        path: impl FnOnce(&G) -> String,
    ) -> Result<Guard<G>>
    where
        G: DeserializeOwned,
    {
        let sent_at = answer.sent_at;
        let grant: Reply<G> = answer.reply()?;
        let granted: Granted =
            serde_json::from_str(grant.json()).map_err(|error| Error::unreadable(200, error))?;
        let deadline = sent_at + Duration::from_millis(granted.expires_in_ms);
        let keeper = Arc::new(Keeper {
            scope: scope.clone(),
            path: path(&grant),
            session_id: granted.session_id,
            ttl,
            deadline: Mutex::new(deadline),
            lost: CancellationToken::new(),
            gone: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        // The guard exists before the first heartbeat: if it is dropped meanwhile, it ends the grant.
        let mut guard = Guard {
            grant,
            fencing_token: granted.fencing_token,
            keeper,
            heartbeats: None,
            runtime: Handle::current(),
        };
        let mut failed = false;
        if guard.keeper.remaining() < ttl * 2 / 3
            && let Err(error) = guard.keeper.beat(ttl).await
        {
            failed = true;
            guard.keeper.gone.store(error.says_gone(), SeqCst);
            if error.says_gone() || guard.keeper.remaining().is_zero() {
                return Err(error);
            }
        }
        guard.heartbeats = Some(guard.runtime.spawn(guard.keeper.clone().keep(failed)).abort_handle());
        Ok(guard)
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    /// The grant is no longer this guard's to keep, nor to end.
    pub(crate) fn stop(&self) {
        self.keeper.ended.store(true, SeqCst);
        self.heartbeats.iter().for_each(AbortHandle::abort);
    }
}

impl<G> Deref for Guard<G> {
    type Target = G;

    fn deref(&self) -> &G {
        &self.grant
    }
}

impl<G> Drop for Guard<G> {
    fn drop(&mut self) {
        self.heartbeats.iter().for_each(AbortHandle::abort);
        if !self.keeper.ended.load(SeqCst) && !self.keeper.gone.load(SeqCst) {
            let keeper = self.keeper.clone();
            self.runtime.spawn(async move { keeper.end().await });
        }
    }
}

impl Keeper {
    /// Sends a heartbeat every third of the ttl, until the grant is lost.
    async fn keep(self: Arc<Keeper>, mut failed: bool) {
        loop {
            let next = Instant::now() + self.ttl / if failed { 12 } else { 3 };
            let deadline = self.deadline();
            tokio::time::sleep_until(next.min(deadline)).await;
            if next < deadline {
                match self.beat(self.remaining()).await {
                    Ok(()) => failed = false,
                    Err(error) => {
                        failed = true;
                        if error.says_gone() && !self.ending.load(SeqCst) {
                            self.gone.store(true, SeqCst);
                            return self.lost.cancel();
                        }
                    }
                }
            }
            if self.remaining().is_zero() {
                return self.lost.cancel();
            }
        }
    }

    /// One heartbeat. It touches neither the budget of retries nor a key: a kept answer would extend nothing.
    async fn beat(&self, timeout: Duration) -> Result<()> {
        let mut call = self.scope.post(format!("{}/heartbeat", self.path)).without_key();
        if let Some(session_id) = &self.session_id {
            call = call.with_body(Body::default().with("session_id", session_id.as_str()));
        }
        let answer = call.once(timeout.min(self.scope.timeout)).await?;
        let sent_at = answer.sent_at;

        #[derive(Deserialize)]
        struct Extended {
            expires_in_ms: u64,
        }
        let extended: Reply<Extended> = answer.reply()?;
        let deadline = sent_at + Duration::from_millis(extended.expires_in_ms);
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        Ok(())
    }

    /// Releases, or rolls back. If the answer to an earlier attempt was lost, 404 means that it was executed.
    async fn end(&self) -> Result<()> {
        let Some(session_id) = &self.session_id else {
            self.scope.post(format!("{}/rollback", self.path)).ask().await?.success()?;
            return Ok(());
        };
        let call = self.scope.call(Method::DELETE, &self.path).query("session_id", session_id);
        let request = call.request()?;
        let transport = &self.scope.transport;
        let mut retried = false;
        let attempt = |retry| {
            retried = retry > 0;
            transport.attempt(&request, self.scope.timeout)
        };
        match transport.persist(&self.scope, (true, false), attempt).await?.success() {
            Err(Error::NotFound(_)) if retried => Ok(()),
            result => result.map(drop),
        }
    }

    fn deadline(&self) -> Instant {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remaining(&self) -> Duration {
        self.deadline().duration_since(Instant::now())
    }
}
