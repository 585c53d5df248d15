//! Locks with a time to live, held by one holder or shared by several.
//!
//! A request names one or more locks and gets all of them or none. It may wait for them in a fair queue. A holder extends
//! its locks with heartbeats. If the holder stops, the locks expire and the next request in the queue gets them.
//!
//! ```
//! use limina_embed::{Limina, locks::Acquire};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let locks = Limina::in_memory().await?.namespace("shop")?.locks();
//!
//! let stock = Acquire::exclusive([("item", "chair")]).ttl(Duration::from_secs(30)).wait(Duration::from_secs(5));
//! let held = locks.acquire(stock).await?;
//! // Pass the fencing token to whatever the lock protects: a later holder has a greater one.
//! println!("token {:?}", held.grant.fencing_token);
//! locks.heartbeat(&held).await?;
//! locks.release(&held).await?;
//! # Ok(())
//! # }
//! ```

use crate::{
    Error, Invalid, Keys, Listed, Name, Position,
    call::{Caller, failure, millis, page, reply},
    error::name,
};
pub use limina_engine::locks::{Blocked, GrantInfo, Holder, Lock, Mode, Refusal};
use limina_engine::{
    Command as AnyCommand, Outcome,
    locks::{self as engine, Command, Reply},
    selection::Query,
};
use limina_node::draw_id;
use std::time::Duration;

type Result<T> = std::result::Result<T, Error<Refusal>>;

/// The locks of a namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Locks {
    caller: Caller,
}

/// A request for locks. By default it does not wait, and the locks are held for 30 seconds unless a heartbeat extends them.
#[derive(Debug, Clone)]
pub struct Acquire {
    locks: Vec<(Keys, Mode)>,
    ttl: Duration,
    wait: Duration,
    owner: Option<String>,
}

/// Locks that this caller holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// What is held, until when, and the fencing token.
    pub grant: GrantInfo,
    /// The secret that heartbeats and releases need, together with the id of the grant.
    pub session: Name,
}

impl Acquire {
    /// A lock that nobody else can hold at the same time. A lock is identified by exactly these key-values.
    pub fn exclusive(keys: impl Into<Keys>) -> Acquire {
        Acquire::new().and_exclusive(keys)
    }

    /// A lock that others can hold at the same time, if they share it as well.
    pub fn shared(keys: impl Into<Keys>) -> Acquire {
        Acquire::new().and_shared(keys)
    }

    fn new() -> Acquire {
        Acquire { locks: Vec::new(), ttl: Duration::from_secs(30), wait: Duration::ZERO, owner: None }
    }

    /// Adds an exclusive lock. Either all locks of the request are granted or none.
    #[must_use]
    pub fn and_exclusive(mut self, keys: impl Into<Keys>) -> Acquire {
        self.locks.push((keys.into(), Mode::Exclusive));
        self
    }

    /// Adds a shared lock. Either all locks of the request are granted or none.
    #[must_use]
    pub fn and_shared(mut self, keys: impl Into<Keys>) -> Acquire {
        self.locks.push((keys.into(), Mode::Shared));
        self
    }

    /// How long the locks are held without a heartbeat: from 100 ms to 24 hours.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Acquire {
        self.ttl = ttl;
        self
    }

    /// How long to wait for the locks, at most 5 minutes. Without this, a request for a lock that is held is refused at once.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Acquire {
        self.wait = wait;
        self
    }

    /// The name of the holder, shown to those who list locks or are refused.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Acquire {
        self.owner = Some(owner.into());
        self
    }

    fn build(&self, id: Name, session: Name) -> std::result::Result<Command, Invalid> {
        let lock = |(index, (keys, mode)): (usize, &(Keys, Mode))| {
            let key_values = keys.clone().build().map_err(|invalid| invalid.within_item("locks", index))?;
            Ok(Lock { key_values, mode: *mode })
        };
        let locks = self.locks.iter().enumerate().map(lock).collect::<std::result::Result<_, Invalid>>()?;
        let owner = self.owner.as_deref().map(|owner| name("owner", owner)).transpose()?;
        let acquire = engine::Acquire::new(id, session, locks, millis(self.ttl))?;
        Ok(Command::Acquire(acquire.with_wait(millis(self.wait))?.with_owner(owner)))
    }
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
        let (id, session) =
            (draw_id().map_err(crate::Failure::from)?, draw_id().map_err(crate::Failure::from)?);
        let command = AnyCommand::Locks(request.build(id, session)?);
        let same = Name::new("drawn").expect("a valid name");
        let plain = AnyCommand::Locks(request.build(same.clone(), same)?);
        let outcome = self.caller.call_drawn(command, plain).await?;
        reply!(decided(outcome), Reply::Granted { grant, session } => Held { grant, session })
    }

    /// Extends the locks: they are held for their ttl from now on.
    pub async fn heartbeat(&self, held: &Held) -> Result<GrantInfo> {
        self.heartbeat_as(held.grant.id.as_str(), held.session.as_str()).await
    }

    /// Extends locks by the id of their grant and the session of their holder.
    pub async fn heartbeat_as(&self, id: &str, session: &str) -> Result<GrantInfo> {
        let command = Command::Heartbeat { id: name("lock_id", id)?, session: name("session_id", session)? };
        reply!(self.call(command).await, Reply::Extended(grant) => grant)
    }

    /// Releases the locks.
    pub async fn release(&self, held: &Held) -> Result<()> {
        let (id, session) = (held.grant.id.clone(), Some(held.session.clone()));
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
