//! Locks with a time to live, held by one holder or shared by several.
//!
//! A request names one or more locks and gets all of them or none. It may wait for them in a fair queue. A holder extends
//! its locks with heartbeats. If the holder stops, the locks expire and the next request in the queue gets them.
//!
//! ```
//! use limina_embed::{Limina, locks::{Acquire, Lock}};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Limina::in_memory().await?.namespace("shop")?.locks();
//!
//! let chair = Lock::exclusive([("item", "chair")])?;
//! let request = Acquire::new(vec![chair], Duration::from_secs(30))?.with_wait(Duration::from_secs(5))?;
//! let held = locks.acquire(request).await?;
//! // Pass the fencing token to whatever the lock protects: a later holder has a greater one.
//! println!("token {:?}", held.grant.fencing_token);
//! locks.heartbeat(&held).await?;
//! locks.release(&held).await?;
//! # Ok(())
//! # }
//! ```

use crate::{
    Error, Invalid, Listed, Name, Position,
    call::{Caller, failure, page, reply},
    error::name,
};
pub use limina_engine::locks::{Acquire, Blocked, GrantInfo, Holder, Lock, Mode, Refusal};
use limina_engine::{
    Command as AnyCommand, Outcome,
    locks::{Command, LockRequest, Reply},
    selection::Query,
};
use limina_node::draw_id;

type Result<T> = std::result::Result<T, Error<Refusal>>;

/// The locks of a namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Locks {
    caller: Caller,
}

/// Locks that this caller holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// What is held, until when, and the fencing token.
    pub grant: GrantInfo,
    /// The secret that heartbeats and releases need, together with the id of the grant.
    pub session: Name,
}

impl Locks {
    pub(crate) fn new(caller: Caller) -> Locks {
        Locks { caller }
    }

    /// A handle whose next write is done once, however often it is repeated under this key within a day: see
    /// [`Ledger::idempotency_key`](crate::Ledger::idempotency_key).
    pub fn idempotency_key(&self, key: &str) -> std::result::Result<Locks, Invalid> {
        Ok(Locks { caller: self.caller.with_idempotency_key(key)? })
    }

    /// Acquires all locks of the request, or none. If the request waits, this returns when the locks are granted or the
    /// time is over ([`Refusal::LockWaitTimeout`]).
    ///
    /// If the returned future is dropped before it is ready, the request is abandoned: it leaves the queue, and a lock
    /// that was granted meanwhile is released.
    pub async fn acquire(&self, request: Acquire) -> Result<Held> {
        let draw = || draw_id().map_err(crate::Failure::from);
        let command =
            |id, session, wanted| AnyCommand::Locks(Command::Acquire(LockRequest { id, session, wanted }));
        let same = Name::new("drawn").expect("a valid name");
        let plain = command(same.clone(), same, request.clone());
        let outcome = self.caller.call_drawn(command(draw()?, draw()?, request), plain).await?;
        reply!(decided(outcome), Reply::Granted { grant, session } => Held { grant, session })
    }

    /// Extends the locks: they are held for their ttl from now on.
    pub async fn heartbeat(&self, held: &Held) -> Result<GrantInfo> {
        self.heartbeat_as(held.grant.lock_id.as_str(), held.session.as_str()).await
    }

    /// Extends locks by the id of their grant and the session of their holder.
    pub async fn heartbeat_as(&self, id: &str, session: &str) -> Result<GrantInfo> {
        let command = Command::Heartbeat { id: name("lock_id", id)?, session: name("session_id", session)? };
        reply!(self.call(command).await, Reply::Extended(grant) => grant)
    }

    /// Releases the locks.
    pub async fn release(&self, held: &Held) -> Result<()> {
        let (id, session) = (held.grant.lock_id.clone(), Some(held.session.clone()));
        reply!(self.call(Command::Release { id, session }).await, Reply::Released => ())
    }

    /// Releases locks by the id of their grant and the session of their holder.
    pub async fn release_as(&self, id: &str, session: &str) -> Result<()> {
        let (id, session) = (name("lock_id", id)?, Some(name("session_id", session)?));
        reply!(self.call(Command::Release { id, session }).await, Reply::Released => ())
    }

    /// Releases locks of any holder. For operators: the holder is not asked, and learns of it with its next heartbeat.
    pub async fn force_release(&self, id: &str) -> Result<()> {
        let command = Command::Release { id: name("lock_id", id)?, session: None };
        reply!(self.call(command).await, Reply::Released => ())
    }

    /// Reads a grant by its id.
    pub async fn get(&self, id: &str) -> Result<GrantInfo> {
        let command = Command::Get(name("lock_id", id)?);
        reply!(self.call(command).await, Reply::Grant(grant) => grant)
    }

    /// The grants whose locks match the query, the oldest first: at most `limit` of those that follow `after`.
    /// [`Query::default`] matches all.
    pub async fn list(
        &self,
        query: Query,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Listed<GrantInfo, Position>> {
        let command = Command::List { query, page: page(after.as_ref(), limit)? };
        reply!(self.call(command).await, Reply::Grants(grants) => grants)
    }

    async fn call(&self, command: Command) -> Result<Reply> {
        decided(self.caller.call(AnyCommand::Locks(command)).await?)
    }
}

fn decided(outcome: Outcome) -> Result<Reply> {
    match outcome {
        Outcome::Locks(Ok(reply)) => Ok(reply),
        Outcome::Locks(Err(refusal)) => Err(Error::Refused(refusal)),
        outcome => Err(Error::Failed(failure(&outcome))),
    }
}
