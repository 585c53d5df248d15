//! The commands about decisions, and the limits within which they can be built.
//!
//! `Deserialize` does not check these limits: see [`UncheckedRequest`](crate::UncheckedRequest).

use crate::{
    Invalid, Millis, Name, Page, Position,
    events::Submit,
    key_values::KeyValues,
    ledger::{self, MAX_CHANGES},
    limiter::{MAX_COUNT, Take},
    locks::{Acquire, Lock},
};
use alloc::{boxed::Box, format, vec::Vec};
use core::ops::Deref;
use limina_api::invalid::{check_distinct, check_duration, check_items, check_number};
use serde::{Deserialize, Serialize};

/// A command about decisions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Take, hold, lock and submit at one instant, or nothing.
    Decide(Decide),
    /// It has happened, at these amounts.
    Settle(Settle),
    /// It has not happened.
    Rollback(Name),
    /// All of it lives for its ttl from now on.
    Heartbeat(Name),
    /// What became of each part.
    Get(Name),
    /// Several decisions, commits and rollbacks, in order. Each of them succeeds or is refused on its own.
    Batch(Batch),
    /// The client of a waiting [`Decide`] has gone: the request stops waiting. A decision that was made stays.
    Abandon {
        /// The operation.
        operation_id: Name,
        /// The request, as [`Decide::with_wait`] named it.
        waiter: Name,
    },
    /// A page of the open decisions, the oldest first.
    List {
        /// Only the decisions of this owner. None means all.
        owner: Option<Name>,
        /// Only decisions that were made more than this long ago.
        older_than: Option<Millis>,
        /// The page.
        page: Page<Position>,
    },
}

impl Command {
    /// Whether the command may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Decide(decide) => !decide.dry_run,
            Command::Settle(_)
            | Command::Rollback(_)
            | Command::Heartbeat(_)
            | Command::Batch(_)
            | Command::Abandon { .. } => true,
            Command::Get(_) | Command::List { .. } => false,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), Invalid> {
        match self {
            Command::Decide(decide) => decide.validate(),
            Command::Settle(settle) => settle.validate(),
            Command::Batch(batch) => batch.validate(),
            Command::List { owner: _, older_than: _, page } => page.validate(),
            Command::Rollback(_) | Command::Heartbeat(_) | Command::Abandon { .. } | Command::Get(_) => {
                Ok(())
            }
        }
    }
}

/// Several decisions, commits and rollbacks in one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Batch(Vec<BatchItem>);

/// One item of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum BatchItem {
    /// As [`Command::Decide`]. It must not wait.
    Decide(Decide),
    /// As [`Command::Settle`].
    Settle(Settle),
    /// As [`Command::Rollback`].
    Rollback(Name),
}

impl Batch {
    /// The most items. A batch has at least one.
    pub const MAX_ITEMS: usize = 8_192;

    /// Takes the items in the order in which they are to be done.
    pub fn new(items: Vec<BatchItem>) -> Result<Batch, Invalid> {
        let batch = Batch(items);
        batch.validate()?;
        Ok(batch)
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_items("operations", self.0.len(), 1..=Batch::MAX_ITEMS)?;
        self.0.iter().enumerate().try_for_each(|(index, item)| {
            item.validate().map_err(|invalid| invalid.within_item("operations", index))
        })
    }
}

impl Deref for Batch {
    type Target = [BatchItem];

    fn deref(&self) -> &[BatchItem] {
        &self.0
    }
}

impl BatchItem {
    /// The operation.
    pub fn operation_id(&self) -> &Name {
        match self {
            BatchItem::Decide(decide) => &decide.operation_id,
            BatchItem::Settle(settle) => &settle.operation_id,
            BatchItem::Rollback(id) => id,
        }
    }

    /// About how much work the item is.
    pub(crate) fn weight(&self) -> usize {
        match self {
            BatchItem::Decide(decide) => decide.weight(),
            BatchItem::Settle(_) | BatchItem::Rollback(_) => 16,
        }
    }

    fn validate(&self) -> Result<(), Invalid> {
        match self {
            BatchItem::Decide(decide) => {
                decide.validate()?;
                check_duration("wait", decide.wait, Millis(0)..=Millis(0))
            }
            BatchItem::Settle(settle) => settle.validate(),
            BatchItem::Rollback(_) => Ok(()),
        }
    }
}

/// The parts of a decision. There is at least one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// What is taken from limits of the limiter, in order: a later check sees what an earlier one takes.
    pub checks: Vec<PartCheck>,
    /// What is held in limits of the ledger, each once.
    pub holds: Vec<ledger::Change>,
    /// Whether limits of the ledger that do not exist are created.
    pub create_missing: bool,
    /// The locks, each once.
    pub locks: Vec<Lock>,
    /// The event that is published when the decision is committed. Its stream must exist.
    pub event: Option<Submit>,
}

/// A check of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartCheck {
    /// The name by which the check is settled. Each name once.
    pub name: Option<Name>,
    /// The key-values that select the limits.
    pub key_values: KeyValues,
    /// How much is taken, at most [`MAX_COUNT`]. 0 only looks.
    pub hits: u64,
    /// Whether the decision is refused if no rule applies to the check.
    pub require_match: bool,
    /// Whether `hits` is an estimate: a commit may say how much it was, and a rollback refunds it.
    pub estimate: bool,
}

impl PartCheck {
    /// Takes `hits` for good. The check has no name, and a rule need not apply.
    pub fn new(key_values: KeyValues, hits: u64) -> PartCheck {
        PartCheck { name: None, key_values, hits, require_match: false, estimate: false }
    }
}

/// A request to decide.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decide {
    pub(super) operation_id: Name,
    pub(super) owner: Option<Name>,
    pub(super) ttl: Millis,
    /// In a box: every command would be as large as the largest one.
    pub(super) parts: Box<Parts>,
    pub(super) dry_run: bool,
    pub(super) explain: bool,
    pub(super) wait: Millis,
    pub(super) waiter: Option<Name>,
}

impl Decide {
    /// The most checks.
    pub const MAX_CHECKS: usize = 16;
    /// The most holds.
    pub const MAX_HOLDS: usize = MAX_CHANGES;
    /// The most locks.
    pub const MAX_LOCKS: usize = Acquire::MAX_LOCKS;
    /// The ttl unless another one is set.
    pub const DEFAULT_TTL: Millis = Millis(60_000);
    /// The shortest ttl.
    pub const MIN_TTL: Millis = Millis(100);
    /// The longest ttl.
    pub const MAX_TTL: Millis = Millis::DAY;
    /// The longest wait.
    pub const MAX_WAIT: Millis = Acquire::MAX_WAIT;

    /// Decides about all parts together, at least one. The decision has no owner and lives for [`Decide::DEFAULT_TTL`], unless
    /// the `with_…` methods say otherwise.
    pub fn new(operation_id: Name, parts: Parts) -> Result<Decide, Invalid> {
        let ttl = Decide::DEFAULT_TTL;
        let parts = Parts { event: parts.event.map(|event| event.with_make(None)), ..parts };
        let decide = Decide {
            operation_id,
            owner: None,
            ttl,
            parts: Box::new(parts),
            dry_run: false,
            explain: false,
            wait: Millis(0),
            waiter: None,
        };
        decide.validate()?;
        Ok(decide)
    }

    /// The client's own word for the holder. Other clients can read it.
    #[must_use]
    pub fn with_owner(self, owner: Option<Name>) -> Decide {
        Decide { owner, ..self }
    }

    /// How long the decision stays open without a heartbeat.
    pub fn with_ttl(self, ttl: Millis) -> Result<Decide, Invalid> {
        check_ttl(ttl)?;
        Ok(Decide { ttl, ..self })
    }

    /// Whether the request only asks, and moves nothing.
    #[must_use]
    pub fn with_dry_run(self, dry_run: bool) -> Decide {
        Decide { dry_run, ..self }
    }

    /// Whether a refusal says who holds what is missing.
    #[must_use]
    pub fn with_explain(self, explain: bool) -> Decide {
        Decide { explain, ..self }
    }

    /// How long the request waits for locks and slots, at most [`Decide::MAX_WAIT`]. `waiter` identifies the request among all
    /// requests under the same operation id, so that [`Command::Abandon`] ends the wait of this request alone: the caller draws
    /// a new one for each request.
    pub fn with_wait(self, wait: Millis, waiter: Name) -> Result<Decide, Invalid> {
        check_wait(wait)?;
        Ok(Decide { wait, waiter: (wait > Millis(0)).then_some(waiter), ..self })
    }

    /// How long the request waits for locks and slots.
    pub fn wait(&self) -> Millis {
        self.wait
    }

    /// What identifies the request if it waits.
    pub fn waiter(&self) -> Option<&Name> {
        self.waiter.as_ref()
    }

    /// The client's id for the operation. Operations of the ledger share these ids.
    pub fn operation_id(&self) -> &Name {
        &self.operation_id
    }

    /// The client's own word for the holder.
    pub fn owner(&self) -> Option<&Name> {
        self.owner.as_ref()
    }

    /// How long the decision stays open without a heartbeat.
    pub fn ttl(&self) -> Millis {
        self.ttl
    }

    /// What is decided about.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Whether the request only asks, and moves nothing.
    pub fn dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether a refusal says who holds what is missing.
    pub fn explain(&self) -> bool {
        self.explain
    }

    /// What a repeated request must agree with.
    pub(super) fn without_modes(&self) -> Decide {
        Decide { dry_run: false, explain: false, wait: Millis(0), waiter: None, ..self.clone() }
    }

    /// The checks as entries of the limiter.
    pub(super) fn takes(&self) -> Vec<Take> {
        let checks = self.parts.checks.iter();
        let hits = |check: &PartCheck| i64::try_from(check.hits).unwrap_or(i64::MAX);
        checks
            .map(|check| Take::new(check.key_values.clone(), hits(check)).expect("the check is valid"))
            .collect()
    }

    /// About how much work the request is, in units of about a microsecond.
    pub(crate) fn weight(&self) -> usize {
        let Parts { checks, holds, locks, event, .. } = &*self.parts;
        8 + 4 * (checks.len() + holds.len() + locks.len() + usize::from(event.is_some()))
    }

    fn validate(&self) -> Result<(), Invalid> {
        let Parts { checks, holds, create_missing: _, locks, event } = &*self.parts;
        check_items("checks", checks.len(), 0..=Decide::MAX_CHECKS)?;
        check_items("holds", holds.len(), 0..=Decide::MAX_HOLDS)?;
        check_items("locks", locks.len(), 0..=Decide::MAX_LOCKS)?;
        if checks.is_empty() && holds.is_empty() && locks.is_empty() && event.is_none() {
            check_items("checks", 0, 1..=Decide::MAX_CHECKS)?;
        }
        for (index, check) in checks.iter().enumerate() {
            let hits = i64::try_from(check.hits).unwrap_or(i64::MAX);
            check_number("hits", hits, 0..=MAX_COUNT as i64)
                .map_err(|invalid| invalid.within_item("checks", index))?;
        }
        let named: Vec<(&Name, usize)> = checks
            .iter()
            .enumerate()
            .filter_map(|(index, check)| Some((check.name.as_ref()?, index)))
            .collect();
        check_distinct(named.iter().map(|(name, _)| *name), |place| {
            format!("checks[{}].name", named[place].1)
        })?;
        let limits = holds.iter().map(|change| &change.limit_name);
        check_distinct(limits, |index| format!("holds[{index}].limit_name"))?;
        for (index, change) in holds.iter().enumerate() {
            change.context.validate().map_err(|invalid| invalid.within_item("holds", index))?;
        }
        for (index, lock) in locks.iter().enumerate() {
            check_items("key_values", lock.key_values.len(), 1..=KeyValues::MAX_KEYS)
                .map_err(|invalid| invalid.within_item("locks", index))?;
        }
        check_distinct(locks.iter().map(|lock| &lock.key_values), |index| {
            format!("locks[{index}].key_values")
        })?;
        if let Some(event) = event {
            event.validate().map_err(|invalid| invalid.within("event"))?;
        }
        check_ttl(self.ttl)?;
        check_wait(self.wait)
    }
}

fn check_wait(wait: Millis) -> Result<(), Invalid> {
    check_duration("wait", wait, Millis(0)..=Decide::MAX_WAIT)
}

fn check_ttl(ttl: Millis) -> Result<(), Invalid> {
    check_duration("ttl", ttl, Decide::MIN_TTL..=Decide::MAX_TTL)
}

/// A commit: it has happened, at these amounts. What is not named ends at its default: an estimate as it was taken, a hold as
/// it was held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settle {
    pub(super) operation_id: Name,
    pub(super) checks: Vec<(Name, u64)>,
    pub(super) holds: Vec<(Name, i64)>,
    pub(super) record: bool,
}

impl Settle {
    /// Commits every part at its default.
    pub fn new(operation_id: Name) -> Settle {
        Settle { operation_id, checks: Vec::new(), holds: Vec::new(), record: false }
    }

    /// The actual hits of checks, by their names. Each must be an estimate.
    pub fn with_checks(self, checks: Vec<(Name, u64)>) -> Result<Settle, Invalid> {
        let settle = Settle { checks, ..self };
        settle.validate()?;
        Ok(settle)
    }

    /// The values to commit, by the names of the limits. In each of these the decision must hold.
    pub fn with_holds(self, holds: Vec<(Name, i64)>) -> Result<Settle, Invalid> {
        let settle = Settle { holds, ..self };
        settle.validate()?;
        Ok(settle)
    }

    /// Whether it has happened anyway: more than was held, past a ceiling, or after the decision has expired.
    #[must_use]
    pub fn with_record(self, record: bool) -> Settle {
        Settle { record, ..self }
    }

    /// The decision that is committed.
    pub fn operation_id(&self) -> &Name {
        &self.operation_id
    }

    /// The actual hits of checks, by their names.
    pub fn checks(&self) -> &[(Name, u64)] {
        &self.checks
    }

    /// The values to commit, by the names of the limits.
    pub fn holds(&self) -> &[(Name, i64)] {
        &self.holds
    }

    /// Whether it has happened anyway.
    pub fn record(&self) -> bool {
        self.record
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_items("checks", self.checks.len(), 0..=Decide::MAX_CHECKS)?;
        check_items("holds", self.holds.len(), 0..=Decide::MAX_HOLDS)?;
        check_distinct(self.checks.iter().map(|(name, _)| name), |index| format!("checks[{index}].name"))?;
        check_distinct(self.holds.iter().map(|(name, _)| name), |index| {
            format!("holds[{index}].limit_name")
        })?;
        for (index, (_, hits)) in self.checks.iter().enumerate() {
            let hits = i64::try_from(*hits).unwrap_or(i64::MAX);
            check_number("hits", hits, 0..=MAX_COUNT as i64)
                .map_err(|invalid| invalid.within_item("checks", index))?;
        }
        Ok(())
    }
}
