//! Decisions: one question over all families. A decision takes from limits of the limiter, holds in limits of the ledger, takes
//! locks and submits an event, all at one instant or not at all. Later it is *committed* with what really happened, or *rolled
//! back*. If its caller stops, it expires, and everything that it held is free again.
//!
//! ```
//! use limina_embed::{Limina, decisions::{Check, Commit, Decide}, ledger::NewLimit, limiter::{Limit, Rule}};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let gateway = Limina::in_memory().await?.namespace("gateway")?;
//! let tokens = Rule::new("tokens", Limit::AtMost(10_000)).group_by(["tenant"]);
//! gateway.limiter().create_rule(tokens.fixed_window(Duration::from_secs(24 * 3600))).await?;
//! gateway.ledger().create_limit(NewLimit::new("budget/acme").ceiling(1_000)).await?;
//!
//! // Reserve an estimate: 4,000 tokens and 400 cents, both or none.
//! let decisions = gateway.decisions();
//! let request = Decide::new("req-1")
//!     .check(Check::of([("tenant", "acme")]).hits(4_000).estimate("tokens"))
//!     .hold("budget/acme", 400);
//! decisions.decide(request).await?;
//!
//! // Settle the actual: 3,100 tokens and 310 cents. The rest is free again.
//! let done = decisions.commit(Commit::new("req-1").hits("tokens", 3_100).value("budget/acme", 310)).await?;
//! assert_eq!(done.limits[0].status.used, 3_100);
//! assert_eq!((done.values[0].commit_value, done.values[0].hold_value), (310, 0));
//! # Ok(())
//! # }
//! ```

mod args;

pub use args::{Check, Commit, Decide};
pub use limina_engine::{
    decisions::{Decision, HoldOfDecision, Refusal, Refused, State},
    events::{EventPart, EventState, RefusedEvent},
    ledger::RefusedHold,
    limiter::{HeldBy, LimitOfCheck},
    locks::RefusedLock,
};

use crate::{
    Error, Invalid, Listed, Position,
    call::{Caller, failure, millis, mismatched, page, reply},
    error::name,
};
use limina_engine::{
    Command as AnyCommand, Millis, Outcome,
    decisions::{Batch, BatchItem, Command, DecideRequest, Reply},
};
use limina_node::draw_id;
use std::time::Duration;

type Result<T> = std::result::Result<T, Error<Refusal>>;

/// The decisions of a namespace. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Decisions {
    caller: Caller,
}

/// Which open decisions [`Decisions::list`] returns.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    owner: Option<String>,
    older_than: Option<Duration>,
}

impl Filter {
    /// All open decisions.
    pub fn all() -> Filter {
        Filter::default()
    }

    /// Only the decisions of this owner.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Filter {
        self.owner = Some(owner.into());
        self
    }

    /// Only decisions that were made longer ago than this.
    #[must_use]
    pub fn older_than(mut self, age: Duration) -> Filter {
        self.older_than = Some(age);
        self
    }
}

impl Decisions {
    pub(crate) fn new(caller: Caller) -> Decisions {
        Decisions { caller }
    }

    /// A handle whose next write is done once, however often it is repeated under this key within a day: see
    /// [`Ledger::idempotency_key`](crate::Ledger::idempotency_key). Decisions are safe to repeat under their operation id, so
    /// they rarely need a key.
    pub fn idempotency_key(&self, key: &str) -> std::result::Result<Decisions, Invalid> {
        Ok(Decisions { caller: self.caller.with_idempotency_key(key)? })
    }

    /// Decides: all parts move at one instant, or none does ([`Refusal::Refused`] says which parts refuse).
    ///
    /// If the returned future is dropped while the request waits, it stops waiting. A decision that was made is never taken
    /// back: its id finds it, and its ttl ends it.
    pub async fn decide(&self, request: Decide) -> Result<Decision> {
        let plain = DecideRequest::from(request.build()?);
        let waiter = match plain.wanted.wait() {
            Millis(0) => None,
            _ => Some(draw_id().map_err(crate::Failure::from)?),
        };
        let command = AnyCommand::Decisions(Command::Decide(DecideRequest { waiter, ..plain.clone() }));
        let plain = AnyCommand::Decisions(Command::Decide(plain));
        let outcome = self.caller.call_drawn(command, plain).await?;
        reply!(decided(outcome), Reply::Decided(decision) => *decision)
    }

    /// Commits a decision, with the actual amounts. The same commit again returns the first answer.
    pub async fn commit(&self, commit: Commit) -> Result<Decision> {
        reply!(self.call(Command::Settle(commit.build()?)).await, Reply::Ended(decision) => *decision)
    }

    /// Rolls a decision back. The same rollback again returns the first answer. An expired decision stays expired, and is
    /// returned too.
    pub async fn rollback(&self, operation_id: &str) -> Result<Decision> {
        let command = Command::Rollback(name("operation_id", operation_id)?);
        reply!(self.call(command).await, Reply::Ended(decision) => *decision)
    }

    /// Extends a decision: all of it lives for its ttl from now on.
    pub async fn heartbeat(&self, operation_id: &str) -> Result<Decision> {
        let command = Command::Heartbeat(name("operation_id", operation_id)?);
        reply!(self.call(command).await, Reply::Extended(decision) => *decision)
    }

    /// Reads a decision, as it is or as it ended.
    pub async fn get(&self, operation_id: &str) -> Result<Decision> {
        let command = Command::Get(name("operation_id", operation_id)?);
        reply!(self.call(command).await, Reply::Decision(decision) => *decision)
    }

    /// The open decisions that the filter finds, the oldest first: at most `limit` of those that follow `after`. A page may be
    /// short, or even empty, although `next` says that more follow.
    pub async fn list(
        &self,
        filter: Filter,
        after: Option<Position>,
        limit: usize,
    ) -> Result<Listed<Decision, Position>> {
        let owner = filter.owner.map(|owner| name("owner", &owner)).transpose()?;
        let older_than = filter.older_than.map(millis);
        let command = Command::List { owner, older_than, page: page(after.as_ref(), limit)? };
        reply!(self.call(command).await, Reply::Decisions(listed) => listed)
    }

    /// Makes several decisions in order, each on its own. None may wait. The results are in the same order.
    pub async fn decide_batch(
        &self,
        requests: impl IntoIterator<Item = Decide>,
    ) -> Result<Vec<std::result::Result<Decision, Refusal>>> {
        let item = |request: Decide| Ok(BatchItem::Decide(request.build()?.into()));
        self.batch(requests.into_iter().map(item)).await
    }

    /// Commits several decisions in order, each on its own. The results are in the same order.
    pub async fn commit_batch(
        &self,
        commits: impl IntoIterator<Item = Commit>,
    ) -> Result<Vec<std::result::Result<Decision, Refusal>>> {
        self.batch(commits.into_iter().map(|commit| commit.build().map(BatchItem::Settle))).await
    }

    /// Rolls several decisions back in order, each on its own. The results are in the same order.
    pub async fn rollback_batch<I: AsRef<str>>(
        &self,
        operation_ids: impl IntoIterator<Item = I>,
    ) -> Result<Vec<std::result::Result<Decision, Refusal>>> {
        let items =
            operation_ids.into_iter().map(|id| name("operation_id", id.as_ref()).map(BatchItem::Rollback));
        self.batch(items).await
    }

    async fn batch(
        &self,
        items: impl Iterator<Item = std::result::Result<BatchItem, Invalid>>,
    ) -> Result<Vec<std::result::Result<Decision, Refusal>>> {
        let items = items
            .enumerate()
            .map(|(index, item)| item.map_err(|invalid| invalid.within_item("operations", index)))
            .collect::<std::result::Result<_, Invalid>>()?;
        let results: Vec<std::result::Result<Reply, Refusal>> = reply!(
            self.call(Command::Batch(Batch::new(items)?)).await,
            Reply::Batch(results) => results
        )?;
        let result = |result: std::result::Result<Reply, Refusal>| match result {
            Ok(Reply::Decided(decision) | Reply::Ended(decision)) => Ok(Ok(*decision)),
            Ok(_) => Err(Error::Failed(mismatched())),
            Err(refusal) => Ok(Err(refusal)),
        };
        results.into_iter().map(result).collect()
    }

    async fn call(&self, command: Command) -> Result<Reply> {
        decided(self.caller.call(AnyCommand::Decisions(command)).await?)
    }
}

fn decided(outcome: Outcome) -> Result<Reply> {
    match outcome {
        Outcome::Decisions(Ok(reply)) => Ok(reply),
        Outcome::Decisions(Err(refusal)) => Err(Error::Refused(refusal)),
        outcome => Err(Error::Failed(failure(&outcome))),
    }
}
