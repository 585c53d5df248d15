//! What callers build: requests to decide and to commit.

use crate::{Invalid, Keys, error::name, ledger::NewLimit};
use limina_engine::{
    decisions as engine,
    ledger::Change,
    locks::{Lock, Mode},
};
use std::time::Duration;

/// A check of a decision: what it takes from the limits that apply to these key-values. By default it takes 1, for good.
#[derive(Debug, Clone)]
pub struct Check {
    name: Option<String>,
    keys: Keys,
    hits: u64,
    require_match: bool,
    estimate: bool,
}

impl Check {
    /// Takes 1 from every limit that applies to these key-values.
    pub fn of(keys: impl Into<Keys>) -> Check {
        Check { name: None, keys: keys.into(), hits: 1, require_match: false, estimate: false }
    }

    /// Takes so much. 0 takes nothing and only reports.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Check {
        self.hits = hits;
        self
    }

    /// Refuses the decision if no rule applies, so that a misspelt key cannot switch a limit off.
    #[must_use]
    pub fn require_match(mut self) -> Check {
        self.require_match = true;
        self
    }

    /// The hits are an estimate. Under this name a commit states the actual hits ([`Commit::hits`]): less is refunded as far as
    /// it still counts, more is counted past the limit. A rollback refunds all of it.
    #[must_use]
    pub fn estimate(mut self, name: impl Into<String>) -> Check {
        self.name = Some(name.into());
        self.estimate = true;
        self
    }

    fn build(self) -> Result<engine::PartCheck, Invalid> {
        let Check { name: text, keys, hits, require_match, estimate } = self;
        let name = text.map(|text| name("name", &text)).transpose()?;
        Ok(engine::PartCheck { name, key_values: keys.build()?, hits, require_match, estimate })
    }
}

/// A request to decide: take, hold, lock and submit at one instant, or nothing. By default it does not wait, and the decision
/// expires after 60 seconds without a heartbeat.
#[derive(Debug, Clone)]
pub struct Decide {
    operation_id: String,
    owner: Option<String>,
    ttl: Option<Duration>,
    wait: Duration,
    checks: Vec<Check>,
    holds: Vec<(NewLimit, i64)>,
    create_missing: bool,
    locks: Vec<(Keys, Mode)>,
    event: Option<(String, String)>,
    dry_run: bool,
    explain: bool,
}

impl Decide {
    /// A decision under this id, without parts yet. The same request again returns the same decision, so a retry after an
    /// unknown outcome is safe. Operations of the ledger share these ids.
    pub fn new(operation_id: impl Into<String>) -> Decide {
        Decide {
            operation_id: operation_id.into(),
            owner: None,
            ttl: None,
            wait: Duration::ZERO,
            checks: Vec::new(),
            holds: Vec::new(),
            create_missing: false,
            locks: Vec::new(),
            event: None,
            dry_run: false,
            explain: false,
        }
    }

    /// Takes from limits of the limiter. A later check sees what an earlier one takes.
    #[must_use]
    pub fn check(mut self, check: Check) -> Decide {
        self.checks.push(check);
        self
    }

    /// Holds an amount in a limit of the ledger. Each limit may be named once.
    #[must_use]
    pub fn hold(mut self, limit_name: impl Into<String>, value: i64) -> Decide {
        self.holds.push((NewLimit::new(limit_name), value));
        self
    }

    /// Holds an amount in a limit that is created with this id, context and ceiling if it does not exist.
    #[must_use]
    pub fn hold_or_create(mut self, limit: NewLimit, value: i64) -> Decide {
        self.holds.push((limit, value));
        self.create_missing = true;
        self
    }

    /// Adds a lock that nobody else can hold at the same time.
    #[must_use]
    pub fn exclusive(mut self, keys: impl Into<Keys>) -> Decide {
        self.locks.push((keys.into(), Mode::Exclusive));
        self
    }

    /// Adds a lock that others can hold at the same time, if they share it as well.
    #[must_use]
    pub fn shared(mut self, keys: impl Into<Keys>) -> Decide {
        self.locks.push((keys.into(), Mode::Shared));
        self
    }

    /// Submits an event to a stream that exists. It is published after the commit, and invalidated by a rollback.
    #[must_use]
    pub fn event(mut self, stream: impl Into<String>, event: impl Into<String>) -> Decide {
        self.event = Some((stream.into(), event.into()));
        self
    }

    /// The name of the holder, shown to those who list decisions or are refused.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Decide {
        self.owner = Some(owner.into());
        self
    }

    /// How long the decision stays open without a heartbeat: from 100 ms to 24 hours.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Decide {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait for locks and slots, at most 5 minutes. Everything else refuses at once.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Decide {
        self.wait = wait;
        self
    }

    /// Only asks: nothing moves, and nothing waits.
    #[must_use]
    pub fn dry_run(mut self) -> Decide {
        self.dry_run = true;
        self
    }

    /// If a slot or a ceiling refuses, the refusal names those who hold it.
    #[must_use]
    pub fn explain(mut self) -> Decide {
        self.explain = true;
        self
    }

    pub(super) fn build(self) -> Result<engine::Decide, Invalid> {
        let check = |(index, check): (usize, Check)| {
            check.build().map_err(|invalid| invalid.within_item("checks", index))
        };
        let hold = |(index, (limit, value)): (usize, (NewLimit, i64))| {
            limit.build_change(value).map_err(|invalid| invalid.within_item("holds", index))
        };
        let lock = |(index, (keys, mode)): (usize, (Keys, Mode))| {
            let key_values = keys.build().map_err(|invalid| invalid.within_item("locks", index))?;
            Ok(Lock { key_values, mode })
        };
        let event = self.event.map(|(stream, event)| {
            let stream = name("stream", &stream).map_err(|invalid| invalid.within("event"))?;
            Ok(engine::PartEvent::new(stream, &event))
        });
        let parts = engine::Parts {
            checks: self.checks.into_iter().enumerate().map(check).collect::<Result<_, Invalid>>()?,
            holds: self.holds.into_iter().enumerate().map(hold).collect::<Result<Vec<Change>, Invalid>>()?,
            create_missing: self.create_missing,
            locks: self.locks.into_iter().enumerate().map(lock).collect::<Result<_, Invalid>>()?,
            event: event.transpose()?,
        };
        let owner = self.owner.map(|owner| name("owner", &owner)).transpose()?;
        let mut decide = engine::Decide::new(name("operation_id", &self.operation_id)?, parts)?;
        if let Some(ttl) = self.ttl {
            decide = decide.with_ttl(ttl)?;
        }
        let decide = decide.with_wait(self.wait)?.with_owner(owner);
        Ok(decide.with_dry_run(self.dry_run).with_explain(self.explain))
    }
}

/// A commit: it has happened, at these amounts. What is not named ends at its default: an estimate as it was taken, a hold as
/// it was held.
#[derive(Debug, Clone)]
pub struct Commit {
    operation_id: String,
    hits: Vec<(String, u64)>,
    values: Vec<(String, i64)>,
    record: bool,
}

impl Commit {
    /// Commits every part at its default.
    pub fn new(operation_id: impl Into<String>) -> Commit {
        Commit { operation_id: operation_id.into(), hits: Vec::new(), values: Vec::new(), record: false }
    }

    /// The actual hits of a check that was an [estimate](Check::estimate), by its name.
    #[must_use]
    pub fn hits(mut self, check: impl Into<String>, hits: u64) -> Commit {
        self.hits.push((check.into(), hits));
        self
    }

    /// The value to commit in a limit of the ledger, instead of the held one. Without [`Commit::record`] it must be at most the
    /// held value, with the same sign.
    #[must_use]
    pub fn value(mut self, limit_name: impl Into<String>, value: i64) -> Commit {
        self.values.push((limit_name.into(), value));
        self
    }

    /// It has happened anyway: books more than was held, past a ceiling, and also after the decision has expired or was
    /// released by force.
    #[must_use]
    pub fn record(mut self) -> Commit {
        self.record = true;
        self
    }

    pub(super) fn build(self) -> Result<engine::Settle, Invalid> {
        let check = |(index, (text, hits)): (usize, (String, u64))| {
            let name = name("name", &text).map_err(|invalid| invalid.within_item("checks", index))?;
            Ok((name, hits))
        };
        let hold = |(index, (text, value)): (usize, (String, i64))| {
            let name = name("limit_name", &text).map_err(|invalid| invalid.within_item("holds", index))?;
            Ok((name, value))
        };
        let checks = self.hits.into_iter().enumerate().map(check).collect::<Result<Vec<_>, Invalid>>()?;
        let holds = self.values.into_iter().enumerate().map(hold).collect::<Result<Vec<_>, Invalid>>()?;
        let settle = engine::Settle::new(name("operation_id", &self.operation_id)?);
        Ok(settle.with_checks(checks)?.with_holds(holds)?.with_record(self.record))
    }
}
