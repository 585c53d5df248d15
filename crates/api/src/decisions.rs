//! Decisions: checks, holds, locks and an event, all or nothing, under one operation id.

#[cfg(feature = "openapi")]
use crate::schema::{Ttl, Wait};
use crate::{
    Duration, Invalid, KeyValues, MAX_BATCH, Millis, Name, Problem, Reason, RequestId,
    invalid::{check_bytes, check_distinct, check_duration, check_items, check_number, check_span},
    ledger::{Change, LimitValue, MAX_CHANGES},
    limiter::LimitStatus,
    locks::{Acquire, Lock, Mode, WantedLock},
    object,
};
use alloc::{borrow::Cow, format, string::String, sync::Arc, vec::Vec};
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

fn check_hits(hits: u64) -> Result<(), Invalid> {
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

/// `POST /decisions/{operation_id}/commit`: it has happened, at these amounts. What is not named ends at its default: an
/// estimate as it was taken, a hold as it was held.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CommitDecision {
    /// The actual hits of checks that are estimates. Each check may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_CHECKS }, _, _>")]
    #[schema(max_items = 16)]
    pub checks: Vec<ActualHits>,
    /// The values to commit. Each limit may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_HOLDS }, _, _>")]
    #[schema(max_items = 64)]
    pub holds: Vec<ActualValue>,
    /// It has happened anyway: book more than was held, past a ceiling, and also after the decision has expired or was
    /// released by force. Default: `false`.
    #[serde(default)]
    pub record: bool,
}

impl CommitDecision {
    /// The commit of this decision.
    pub fn of(self, operation_id: Name) -> Result<Settle, Invalid> {
        let CommitDecision { checks, holds, record } = self;
        let settle = Settle { operation_id, checks, holds, record };
        settle.validate()?;
        Ok(settle)
    }
}

/// An item of `POST /decisions/commit/batch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CommitItem)]
pub struct Settle {
    /// The decision to commit.
    #[schema(example = "req-8f2c")]
    pub operation_id: Name,
    /// The actual hits of checks that are estimates. Each check may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_CHECKS }, _, _>")]
    #[schema(max_items = 16)]
    pub checks: Vec<ActualHits>,
    /// The values to commit. Each limit may occur once.
    #[serde(default, deserialize_with = "object::list::<{ Decide::MAX_HOLDS }, _, _>")]
    #[schema(max_items = 64)]
    pub holds: Vec<ActualValue>,
    /// It has happened anyway. Default: `false`.
    #[serde(default)]
    pub record: bool,
}

impl Settle {
    /// Commits every part at its default.
    pub fn new(operation_id: Name) -> Settle {
        Settle { operation_id, checks: Vec::new(), holds: Vec::new(), record: false }
    }

    /// The actual hits of checks, by their names. Each must be an estimate.
    pub fn with_checks(self, checks: impl IntoIterator<Item = (Name, u64)>) -> Result<Settle, Invalid> {
        let checks = checks.into_iter().map(|(name, hits)| ActualHits { name, hits }).collect();
        let settle = Settle { checks, ..self };
        settle.validate()?;
        Ok(settle)
    }

    /// The values to commit, by the names of the limits. In each of these the decision must hold.
    pub fn with_holds(self, holds: impl IntoIterator<Item = (Name, i64)>) -> Result<Settle, Invalid> {
        let holds = holds.into_iter().map(|(limit_name, value)| ActualValue { limit_name, value }).collect();
        let settle = Settle { holds, ..self };
        settle.validate()?;
        Ok(settle)
    }

    /// Whether it has happened anyway: more than was held, past a ceiling, or after the decision has expired.
    #[must_use]
    pub fn with_record(self, record: bool) -> Settle {
        Settle { record, ..self }
    }

    /// Checks what reading does not.
    pub fn validate(&self) -> Result<(), Invalid> {
        check_items("checks", self.checks.len(), 0..=Decide::MAX_CHECKS)?;
        check_items("holds", self.holds.len(), 0..=Decide::MAX_HOLDS)?;
        check_distinct(self.checks.iter().map(|check| &check.name), |index| format!("checks[{index}].name"))?;
        check_distinct(self.holds.iter().map(|hold| &hold.limit_name), |index| {
            format!("holds[{index}].limit_name")
        })?;
        let mut checks = self.checks.iter().enumerate();
        checks.try_for_each(|(index, check)| {
            check_hits(check.hits).map_err(|invalid| invalid.within_item("checks", index))
        })
    }
}

/// How much a check that was an estimate has really taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualHits {
    /// The name of the check.
    #[schema(example = "tokens")]
    pub name: Name,
    /// The actual hits: 0 to 2^53−1.
    #[schema(maximum = 9_007_199_254_740_991_i64)]
    pub hits: u64,
}

/// The value to commit in one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActualValue {
    /// The name of the limit. The decision must hold in it.
    #[schema(example = "budget/acme/2026-11")]
    pub limit_name: Name,
    /// The value: without `record`, 0 or a value with the sign of the held one and not larger.
    pub value: i64,
}

/// A body without fields. It may be absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoFields {}

/// An item of `POST /decisions/rollback/batch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackItem {
    /// The decision to roll back.
    #[schema(example = "req-8f2c")]
    pub operation_id: Name,
}

/// `POST /decisions/batch`: several decisions, made in order. Each succeeds or fails alone, and none may wait.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionBatch {
    /// The decisions, 1–8,192.
    #[serde(deserialize_with = "object::list::<MAX_BATCH, _, _>")]
    #[schema(min_items = 1, max_items = 8192)]
    pub operations: Vec<NewDecision>,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Decision<'a> {
    /// Only in a batch: the HTTP status that the single call would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<u16>,
    /// The client's id for the operation.
    pub operation_id: Cow<'a, str>,
    /// Whether the decision is open, or how it has ended.
    pub state: State,
    /// Whether an earlier request made the decision.
    pub repeated: bool,
    /// Whether the decision was recorded after it had ended in another way.
    pub late: bool,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// The position of the change that made the decision or, if it has ended, of its end; `null` in a dry run.
    #[schema(required)]
    pub position: Option<u64>,
    /// A number that grows with every decision and every lock of the namespace; `null` in a dry run.
    #[schema(required)]
    pub fencing_token: Option<u64>,
    /// The time since the decision was made, in milliseconds. If it has ended: until then.
    pub held_ms: u64,
    /// The time until the decision expires without a heartbeat, in milliseconds; `null` if it has ended.
    #[schema(required)]
    pub expires_in_ms: Option<u64>,
    /// The ttl in milliseconds: a heartbeat extends the decision to this time from now.
    pub ttl_ms: u64,
    /// Every limit that applies to the checks, in the order of the checks, then by rule, then by override.
    pub limits: Vec<LimitOfDecision<'a>>,
    /// The values of the limits in which the decision holds, in the order of the request.
    pub values: Vec<LimitValue>,
    /// The locks.
    pub locks: Vec<Lock>,
    /// The event; `null` if the decision has none, or if its stream was deleted.
    #[schema(required)]
    pub event: Option<EventOfDecision<'a>>,
}

/// The state of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DecisionState)]
pub enum State {
    /// A request under the id waits for locks or slots. Nothing is held.
    Waiting,
    /// The decision is open.
    Open,
    /// It has happened.
    Committed,
    /// It has not happened.
    RolledBack,
    /// Its ttl passed without a heartbeat.
    Expired,
}

/// A limit that applies to a check of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LimitOfDecision<'a> {
    /// The check.
    pub check: CheckOfDecision<'a>,
    /// The limit.
    #[serde(flatten)]
    pub status: LimitStatus,
}

/// A check of a decision: its name or, if it has none, its place among the checks, from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CheckOfDecision<'a> {
    /// The name.
    Name(Cow<'a, str>),
    /// The place.
    Place(u32),
}

/// The event of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventOfDecision<'a> {
    /// The name of the stream.
    pub stream: Cow<'a, str>,
    /// The text of the event.
    pub event: Cow<'a, str>,
    /// What became of the event.
    pub status: EventStatus,
    /// When the event was accepted, in epoch milliseconds.
    pub time: u64,
    /// When the event is published if the decision is committed by then, in epoch milliseconds. A later commit publishes
    /// it at once.
    pub publishes_at: u64,
}

/// What became of the event of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventStatus {
    /// The event incubates.
    Submitted,
    /// The event is published.
    Published,
    /// The event will not be published.
    Invalidated,
}

/// The problem document of a refused decision. Nothing has moved, and the id is free.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = RefusedDecision)]
pub struct Refused<'a> {
    /// A reference to the description of `code`.
    #[serde(rename = "type")]
    #[schema(example = "/docs#Refused")]
    pub kind: Cow<'static, str>,
    /// What `code` means, in a few words. For people; may change.
    pub title: Cow<'static, str>,
    /// The HTTP status: 429 if a limit of the limiter refuses, else 409.
    pub status: u16,
    /// Which parts refuse. For people; may change.
    pub detail: String,
    /// Always `Refused`.
    pub code: Cow<'static, str>,
    /// The id of the request, which the header `X-Request-Id` has too. Absent in the results of a batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub request_id: Option<RequestId>,
    /// The kinds of parts that refuse.
    pub refused_by: Vec<Part>,
    /// The limits of the limiter that refuse.
    pub limits: Vec<RefusedLimit<'a>>,
    /// The holds that are refused.
    pub holds: Vec<RefusedHold<'a>>,
    /// The locks that cannot be had.
    pub locks: Vec<RefusedLock<'a>>,
    /// Why the event is refused; `null` if it is not.
    #[schema(required)]
    pub event: Option<RefusedEvent>,
    /// The time in milliseconds after which all of it would be allowed if nothing else happened; `null` if a slot, a
    /// ceiling or a lock refuses, or if the time is not known.
    #[schema(required)]
    pub retry_after_ms: Option<u64>,
}

/// A kind of parts of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DecisionPart)]
pub enum Part {
    /// Limits of the limiter.
    Limits,
    /// Holds in limits of the ledger.
    Holds,
    /// Locks.
    Locks,
    /// The event.
    Event,
}

/// A limit of the limiter that refuses a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedLimit<'a> {
    /// Always `LimitReached`.
    pub code: Cow<'static, str>,
    /// The check.
    pub check: CheckOfDecision<'a>,
    /// The limit.
    #[serde(flatten)]
    pub status: LimitStatus,
    /// Only with `explain`, for a limit without a window: those who have held it longest, at most 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub held_by: Option<Vec<HeldBy<'a>>>,
}

/// A hold that refuses a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedHold<'a> {
    /// `LimitExceeded`, or `ValueOverflow`.
    pub code: Cow<'static, str>,
    /// The name of the limit.
    pub limit_name: Cow<'a, str>,
    /// The ceiling. `null` if the limit has none.
    pub ceiling: Option<i64>,
    /// The sum of all commits.
    pub commit_value: i64,
    /// The sum of all open holds.
    pub hold_value: i64,
    /// The largest value that could be held now.
    pub available: i64,
    /// Only with `explain`: the decisions that have held in the limit longest, at most 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub held_by: Option<Vec<HeldBy<'a>>>,
}

/// Who holds a part of a slot or of a ceiling: a decision (`operation_id`) or a lease (`lease_id`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HeldBy<'a> {
    /// The decision. Absent for a lease by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub operation_id: Option<Cow<'a, str>>,
    /// The lease. Absent for a decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lease_id: Option<Cow<'a, str>>,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// The time since it is held, in milliseconds.
    pub held_ms: u64,
    /// The time until it expires without a heartbeat, in milliseconds.
    pub expires_in_ms: u64,
}

/// A lock that refuses a decision, with the first that is in its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RefusedLock<'a> {
    /// Always `LockHeld`.
    pub code: Cow<'static, str>,
    /// The key-values that identify the lock.
    pub key_values: KeyValues,
    /// The mode that was asked for.
    pub mode: Mode,
    /// The holder's name for itself, or `null`.
    #[schema(required)]
    pub owner: Option<Cow<'a, str>>,
    /// The time since the lock is held, in milliseconds; `null` if an earlier request waits for the lock and nobody holds it.
    #[schema(required)]
    pub held_ms: Option<u64>,
    /// The time until the holder's grant expires without a heartbeat, in milliseconds; `null` as for `held_ms`.
    #[schema(required)]
    pub expires_in_ms: Option<u64>,
    /// The number of requests that wait for the lock.
    pub waiting: usize,
}

/// Why the event of a decision is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RefusedEvent {
    /// `EventConflict`: the same event happened within the duration. `StreamFull`: the stream remembers its maximum of events.
    pub code: Cow<'static, str>,
    /// The time of the latest occurrence, in epoch milliseconds. `null` with `StreamFull`.
    pub conflicting_time: Option<u64>,
    /// When the event is accepted again, in epoch milliseconds. `null` with `StreamFull`, and if it is not known, because an open
    /// decision has submitted the event.
    pub open_at: Option<u64>,
    /// With `StreamFull`: how many distinct events the stream can remember.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub max_events: Option<u32>,
}

/// The results of a batch of decisions, commits or rollbacks.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct DecisionBatchReply<'a> {
    /// One result per item, in the order of the request.
    pub results: Vec<DecisionResult<'a>>,
}

/// The result of one item of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum DecisionResult<'a> {
    /// The item succeeded.
    Done(Decision<'a>),
    /// At least one part refuses.
    Refused(Refused<'a>),
    /// The item is not valid, or was refused for another reason.
    Problem(Problem),
}
