//! Requests to decide, and their parts.

#[cfg(feature = "openapi")]
use crate::schema::{Ttl, Wait};
use crate::{
    Duration, Invalid, KeyValues, Millis, Name, Reason,
    invalid::{check_bytes, check_distinct, check_duration, check_items, check_number, check_span},
    ledger::{Change, MAX_CHANGES},
    locks::{Acquire, Lock, WantedLock},
    object,
};
use alloc::{format, sync::Arc, vec::Vec};
use core::ops::RangeInclusive;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// A request to decide: take, hold, lock and submit at one instant, or nothing.
///
/// JSON is only read, as [`NewDecision`]. Nodes send the fields below.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Decide {
    operation_id: Name,
    owner: Option<Name>,
    ttl: Millis,
    wait: Millis,
    dry_run: bool,
    explain: bool,
    parts: Parts,
}

/// The parts of a decision. There is at least one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// What is taken from limits of the limiter, in this order: a later check sees what an earlier one takes.
    pub checks: Vec<PartCheck>,
    /// What is held in limits of the ledger, each once.
    pub holds: Vec<Change>,
    /// Whether limits of the ledger that do not exist are created.
    pub create_missing: bool,
    /// The locks, each once.
    pub locks: Vec<Lock>,
    /// The event that is published when the decision is committed. Its stream must exist.
    pub event: Option<PartEvent>,
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

    /// Decides about all parts together, at least one. The decision has no owner, lives for [`Decide::DEFAULT_TTL`] and does not wait,
    /// unless the `with_…` methods say otherwise.
    pub fn new(operation_id: Name, parts: Parts) -> Result<Decide, Invalid> {
        let decide = Decide {
            operation_id,
            owner: None,
            ttl: Decide::DEFAULT_TTL,
            wait: Millis(0),
            dry_run: false,
            explain: false,
            parts,
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
    pub fn with_ttl(self, ttl: impl Into<Millis>) -> Result<Decide, Invalid> {
        let decide = Decide { ttl: ttl.into(), ..self };
        decide.check_spans()?;
        Ok(decide)
    }

    /// How long the request waits for locks and slots, at most [`Decide::MAX_WAIT`].
    pub fn with_wait(self, wait: impl Into<Millis>) -> Result<Decide, Invalid> {
        let decide = Decide { wait: wait.into(), ..self };
        decide.check_spans()?;
        Ok(decide)
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

    /// How long the request waits for locks and slots.
    pub fn wait(&self) -> Millis {
        self.wait
    }

    /// Whether the request only asks, and moves nothing.
    pub fn dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether a refusal says who holds what is missing.
    pub fn explain(&self) -> bool {
        self.explain
    }

    /// What is decided about.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Whether this is the request of another one again. It may wait, explain and only ask as it likes.
    pub fn repeats(&self, other: &Decide) -> bool {
        fn asked(decide: &Decide) -> (&Name, &Option<Name>, Millis, &Parts) {
            (&decide.operation_id, &decide.owner, decide.ttl, &decide.parts)
        }
        asked(self) == asked(other)
    }

    /// Checks what reading the binary form does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.parts.validate()?;
        self.check_spans()
    }

    fn check_spans(&self) -> Result<(), Invalid> {
        check_duration("ttl", self.ttl, TTL)?;
        check_duration("wait", self.wait, WAIT)
    }
}

/// The largest number of hits: the largest integer of JSON.
const MAX_COUNT: u64 = (1 << 53) - 1;

const TTL: RangeInclusive<Millis> = Decide::MIN_TTL..=Decide::MAX_TTL;
const WAIT: RangeInclusive<Millis> = Millis(0)..=Decide::MAX_WAIT;

impl Parts {
    fn validate(&self) -> Result<(), Invalid> {
        let Parts { checks, holds, create_missing: _, locks, event } = self;
        check_items("checks", checks.len(), 0..=Decide::MAX_CHECKS)?;
        check_items("holds", holds.len(), 0..=Decide::MAX_HOLDS)?;
        check_items("locks", locks.len(), 0..=Decide::MAX_LOCKS)?;
        if checks.is_empty() && holds.is_empty() && locks.is_empty() && event.is_none() {
            check_items("checks", 0, 1..=Decide::MAX_CHECKS)?;
        }
        for (index, check) in checks.iter().enumerate() {
            check_hits(check.hits).map_err(|invalid| invalid.within_item("checks", index))?;
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
        event.as_ref().map_or(Ok(()), PartEvent::validate)
    }
}

pub(super) fn check_hits(hits: u64) -> Result<(), Invalid> {
    let hits = i64::try_from(hits).unwrap_or(i64::MAX);
    check_number("hits", hits, 0..=MAX_COUNT as i64)
}

impl Serialize for Decide {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Decide::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Decide {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Decide, D::Error> {
        match deserializer.is_human_readable() {
            true => NewDecision::deserialize(deserializer)?.try_into().map_err(Invalid::into_serde),
            false => Decide::deserialize(deserializer),
        }
    }
}

/// A request to decide that is an item of a batch, and so must not wait. It is only read from JSON.
#[derive(Debug)]
pub struct DecideNow(pub Decide);

impl<'de> Deserialize<'de> for DecideNow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<DecideNow, D::Error> {
        let new = NewDecision::deserialize(deserializer)?;
        let field = if new.wait_ms.is_some() { "wait_ms" } else { "wait" };
        let decide = Decide::try_from(new).map_err(Invalid::into_serde)?;
        match decide.wait {
            Millis(0) => Ok(DecideNow(decide)),
            _ => Err(Invalid::new(field, Reason::Condition("must be 0 or absent in a batch")).into_serde()),
        }
    }
}

/// `POST /decisions`: take, hold, lock and submit at one instant, or nothing. At least one part.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDecision {
    /// The client's id for the operation. Operations of the ledger share these ids. Whoever knows the id can end the
    /// decision, so choose one that cannot be guessed.
    #[schema(example = "req-8f2c")]
    operation_id: Name,
    /// The client's name for itself, which everybody can read. Absent: none.
    #[serde(default)]
    #[schema(example = "gateway-3")]
    owner: Option<Name>,
    /// How long the decision stays open without a heartbeat: 100 ms–24 h. Default: 60 s.
    #[serde(default)]
    #[schema(value_type = Option<Ttl>)]
    ttl: Option<Duration>,
    /// The ttl in milliseconds, in place of `ttl`.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 100, maximum = 86_400_000)]
    ttl_ms: Option<Millis>,
    /// How long to wait for locks and slots: 0–5 min. Default: 0. In a batch it must be 0.
    #[serde(default)]
    #[schema(value_type = Option<Wait>)]
    wait: Option<Duration>,
    /// The wait in milliseconds, in place of `wait`.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 0, maximum = 300_000)]
    wait_ms: Option<Millis>,
    /// Decide, but move nothing, and do not wait. Default: `false`.
    #[serde(default)]
    dry_run: bool,
    /// If a slot or a ceiling refuses, name those who hold it. Default: `false`.
    #[serde(default)]
    explain: bool,
    /// What is taken from limits of the limiter, in this order: a later check sees what an earlier one takes.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_CHECKS }, _, _>")]
    #[schema(max_items = 16)]
    checks: Vec<PartCheck>,
    /// What is held in limits of the ledger. Each limit may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_HOLDS }, _, _>")]
    #[schema(max_items = 64)]
    holds: Vec<Change>,
    /// Create the limits of the ledger that do not exist. Default: `false`.
    #[serde(default)]
    create_missing: bool,
    /// The locks. Each may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_LOCKS }, _, _>")]
    #[schema(max_items = 64)]
    locks: Vec<WantedLock>,
    /// An event that is published after the commit.
    #[serde(default, deserialize_with = "object::optional")]
    event: Option<PartEvent>,
}

impl TryFrom<NewDecision> for Decide {
    type Error = Invalid;

    fn try_from(new: NewDecision) -> Result<Decide, Invalid> {
        let NewDecision {
            operation_id, owner, dry_run, explain, checks, holds, create_missing, event, ..
        } = new;
        let locks = new.locks.into_iter().map(Lock::from).collect();
        let parts = Parts { checks, holds, create_missing, locks, event };
        parts.validate()?;
        let ttl = check_span(["ttl", "ttl_ms"], new.ttl, new.ttl_ms, TTL)?.unwrap_or(Decide::DEFAULT_TTL);
        let wait = check_span(["wait", "wait_ms"], new.wait, new.wait_ms, WAIT)?.unwrap_or(Millis(0));
        Ok(Decide { operation_id, owner, ttl, wait, dry_run, explain, parts })
    }
}

/// A check of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DecisionCheck)]
pub struct PartCheck {
    /// The name of the check within the decision, each once. A commit needs it to state the actual hits.
    #[serde(default)]
    #[schema(example = "tokens")]
    pub name: Option<Name>,
    /// What is about to happen. The rules that apply are found by these key-values.
    #[serde(alias = "KeyValues")]
    pub key_values: KeyValues,
    /// How much to take: 0 to 2^53−1. 0 takes nothing and only reports. Default: 1.
    #[serde(default = "one")]
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
    /// If no rule applies, refuse the decision with `NoRuleApplies`. Default: `false`.
    #[serde(default)]
    pub require_match: bool,
    /// `hits` is an estimate: a commit may state the actual hits, and a rollback refunds the windows. Default: `false`.
    #[serde(default)]
    pub estimate: bool,
}

impl PartCheck {
    /// Takes `hits` for good. The check has no name, and a rule need not apply.
    pub fn new(key_values: KeyValues, hits: u64) -> PartCheck {
        PartCheck { name: None, key_values, hits, require_match: false, estimate: false }
    }
}

fn one() -> u64 {
    1
}

/// The event of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DecisionEvent)]
pub struct PartEvent {
    /// The name of the stream. It must exist.
    #[schema(example = "mails")]
    pub stream: Name,
    /// The text of the event, 1–1,024 bytes. Events with the same text are duplicates.
    #[schema(value_type = String, min_length = 1, max_length = 1024, example = "welcome, ann", extensions(("x-max-bytes" = json!(1024))))]
    pub event: Arc<str>,
}

impl PartEvent {
    /// The longest text of an event, in bytes. It is not empty.
    pub const MAX_BYTES: usize = 1024;

    /// An event that is published to an existing stream when the decision is committed.
    pub fn new(stream: Name, event: &str) -> PartEvent {
        PartEvent { stream, event: event.into() }
    }

    fn validate(&self) -> Result<(), Invalid> {
        check_bytes("event", &self.event, 1..=PartEvent::MAX_BYTES).map_err(|invalid| invalid.within("event"))
    }
}
