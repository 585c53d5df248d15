//! The open decisions of a namespace. Each is one stored record, which contains all its parts that have no record of their own:
//! so there is no part without its decision, and no decision without its parts.

use super::{
    Families,
    command::{Decide, Parts},
    keys,
    reply::{Decision, Refusal, Reply, State},
    waiting::Waiting,
};
use crate::{
    Name, Position, Time, WaitId,
    answer_size::{AnswerBudget, TooLarge},
    effect::EventInfo,
    events::{self, EventPart},
    ids::NamespaceId,
    ledger::{self, operations::HeldLimit},
    leftovers::Leftovers,
    limiter::{
        self,
        parts::{NewPart, Taken},
    },
    locks::{self, Lock, parts::NewGrant},
    record::{self, Malformed, key::ResidentKey},
    resident::{self, Shrink},
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource, Timers},
    turn::Turn,
};
use alloc::{collections::BTreeMap, vec::Vec};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// The decisions of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    pub(super) open: BTreeMap<Position, Open>,
    pub(super) by_id: HashMap<Name, Position>,
    /// The first and the last period with an ended decision that held nothing.
    pub(super) periods: Option<(u32, u32)>,
    /// The resident bytes of all open decisions, without what the families count.
    bytes: u64,
    pub(super) waiting: Waiting,
    /// Replies to requests that waited.
    pub(super) completed: Vec<(WaitId, Result<Reply, Refusal>)>,
}

/// A decision in memory, without its texts. Its id is reserved in the ledger too.
const OPEN_BYTES: u64 = resident::tree_slot::<(Position, Open)>()
    + resident::hash_slot::<(Name, Position)>()
    + resident::hash_slot::<(Name, Time)>()
    + TIMER_BYTES;

/// What the first decision takes besides.
const FIRST_OPEN_BYTES: u64 = resident::first_in_tree::<(Position, Open)>()
    + resident::first_in_hash::<(Name, Position)>()
    + resident::first_in_hash::<(Name, Time)>();

/// An open decision, in memory and as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) request: Decide,
    pub(super) position: Position,
    pub(super) made_at: Time,
    pub(super) expires_at: Time,
    /// What each check has taken.
    pub(super) taken: Vec<Taken>,
    /// The ids of the leases, for the checks that have one. They are made again at each opening.
    #[serde(skip)]
    pub(super) leases: Vec<Name>,
    /// The holds in the ledger. Nobody else changes them, so the ledger's own record need not be read to end them.
    pub(super) holds: Vec<HeldLimit>,
    /// The number of the event's stream, and the event.
    pub(super) event: Option<(Position, EventInfo)>,
}

impl Open {
    pub(super) fn id(&self) -> &Name {
        &self.request.operation_id
    }

    pub(super) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.expires_at, namespace, source: TimerSource::Change(self.position) }
    }

    fn timer(&self) -> Timer {
        Timer::OperationExpiry { position: self.position }
    }

    fn resident_bytes(&self) -> u64 {
        let windows = self.taken.iter().flat_map(|taken| &taken.windows);
        let taken = resident::heap(size_of_val(&self.taken[..]))
            + windows.map(limiter::parts::TakenWindow::resident_bytes).sum::<u64>();
        request_bytes(&self.request) + taken + resident::heap(size_of_val(&self.holds[..]))
    }

    /// Stores the decision and sets the timer of its expiry. That is the only timer: its parts have none.
    pub(super) fn keep(&self, turn: &mut Turn<'_>) {
        turn.put(keys::open(turn.namespace, self.position), self);
        turn.timers.set(self.timer_key(turn.namespace), self.timer());
    }

    /// The decision as it is now. Fails if the answer would be too large.
    pub(super) fn info(
        &self,
        families: &Families<'_>,
        now: Time,
        budget: &mut AnswerBudget,
    ) -> Result<Decision, TooLarge> {
        let limits = limiter::parts::look(families.limiter, now, &self.request.takes(), budget)?;
        let limits = named(&self.request, limits);
        Ok(Decision { limits, ..self.without_limits(families, now) })
    }

    /// The same without its limits, whose number is not bounded.
    pub(super) fn without_limits(&self, families: &Families<'_>, now: Time) -> Decision {
        let event = self.event.as_ref().and_then(|(stream, info)| {
            let state = events::parts::look(families.events, *stream, self.position)?;
            Some(self.event_part(info, state))
        });
        Decision {
            operation_id: self.id().clone(),
            state: State::Open,
            repeated: false,
            late: false,
            owner: self.request.owner.clone(),
            position: Some(self.position),
            fencing_token: Some(self.position),
            ttl: self.request.ttl,
            made_at: self.made_at,
            expires_at: Some(self.expires_at),
            limits: Vec::new(),
            values: ledger::parts::values(families.ledger, &self.holds),
            locks: self.request.parts.locks.clone(),
            event,
            now,
        }
    }

    pub(super) fn event_part(&self, info: &EventInfo, state: events::EventState) -> EventPart {
        let stream = self.request.parts.event.as_ref().expect("it has an event").stream().clone();
        EventPart { stream, event: info.clone(), state }
    }

    /// Says to its parts when they expire.
    pub(super) fn extend_parts(&self, families: &mut Families<'_>) {
        for lease in &self.leases {
            limiter::parts::extend(families.limiter, lease, self.expires_at);
        }
        locks::parts::extend(families.locks, self.position, self.expires_at);
        ledger::parts::reserve(families.ledger, self.id(), self.expires_at);
    }
}

/// Names the checks to which limits apply.
pub(super) fn named(request: &Decide, mut limits: Vec<limiter::LimitOfCheck>) -> Vec<limiter::LimitOfCheck> {
    for limit in &mut limits {
        limit.check = request.parts.checks[limit.status.entry as usize].name.clone();
    }
    limits
}

/// The resident bytes of an open decision without what it remembers for a settlement, and without its holds.
fn request_bytes(request: &Decide) -> u64 {
    let Decide { operation_id, owner, parts, .. } = request;
    let Parts { checks, holds, locks, event, .. } = &**parts;
    let checks_bytes = checks.iter().map(|check| {
        check.name.as_ref().map_or(0, Name::heap) + check.key_values.heap() + resident::heap(64)
    });
    let holds_bytes = holds.iter().map(|change| {
        let context = change.context.iter().map(|(key, value)| resident::heap(key.len() + value.len()) + 64);
        change.limit_name.heap() + change.limit_id.as_ref().map_or(0, Name::heap) + context.sum::<u64>()
    });
    let event_bytes =
        event.as_ref().map_or(0, |event| event.stream().heap() + resident::shared(event.event().len()));
    OPEN_BYTES
        + 3 * operation_id.heap()
        + owner.as_ref().map_or(0, Name::heap)
        + resident::heap(size_of_val(&checks[..]))
        + checks_bytes.sum::<u64>()
        + resident::heap(size_of_val(&holds[..]))
        + holds_bytes.sum::<u64>()
        + resident::heap(size_of_val(&locks[..]))
        + locks.iter().map(|lock: &Lock| lock.key_values.heap()).sum::<u64>()
        + event_bytes
}

/// The resident bytes of the decision that the request would make, without what it remembers for a settlement.
pub(super) fn growth(request: &Decide) -> u64 {
    let Parts { checks, holds, .. } = &*request.parts;
    request_bytes(request)
        + resident::heap(checks.len() * size_of::<Taken>())
        + resident::heap(holds.len() * size_of::<HeldLimit>())
}

/// The lease of a check, as the limiter needs it.
pub(super) fn lease_of<'a>(
    request: &'a Decide,
    place: usize,
    taken_at: Time,
    expires_at: Time,
    token: Position,
) -> NewPart<'a> {
    let check = &request.parts.checks[place];
    NewPart {
        operation_id: &request.operation_id,
        owner: request.owner.as_ref(),
        key_values: &check.key_values,
        hits: check.hits,
        place,
        ttl: request.ttl,
        taken_at,
        expires_at,
        token,
    }
}

/// The grant of the locks, as the family needs it.
pub(super) fn grant_of(request: &Decide, taken_at: Time, expires_at: Time, token: Position) -> NewGrant<'_> {
    NewGrant {
        operation_id: &request.operation_id,
        owner: request.owner.as_ref(),
        locks: &request.parts.locks,
        ttl: request.ttl,
        taken_at,
        expires_at,
        token,
    }
}

impl Decisions {
    /// The number of open decisions.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn resident_bytes(&self) -> u64 {
        self.bytes + resident::unless_empty(self.open.len(), FIRST_OPEN_BYTES) + self.waiting.resident_bytes()
    }

    /// The resident bytes, summed up anew.
    pub(crate) fn recount_bytes(&self) -> u64 {
        let open = self.open.values().map(Open::resident_bytes).sum::<u64>();
        open + resident::unless_empty(self.open.len(), FIRST_OPEN_BYTES) + self.waiting.recount_bytes()
    }

    /// The number of decisions that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The replies to requests that waited, since the last call, in order.
    pub(crate) fn take_completed(&mut self) -> Vec<(WaitId, Result<Reply, Refusal>)> {
        core::mem::take(&mut self.completed)
    }

    pub(super) fn find(&self, id: &Name) -> Option<&Open> {
        self.by_id.get(id).map(|position| &self.open[position])
    }

    /// Inserts a decision. Returns false if there is one under the same id: that is a bug, or a damaged record.
    pub(super) fn insert(&mut self, open: Open) -> bool {
        self.bytes += open.resident_bytes();
        let is_new = self.by_id.insert(open.id().clone(), open.position).is_none();
        is_new && self.open.insert(open.position, open).is_none()
    }

    pub(super) fn remove(&mut self, turn: &mut Turn<'_>, position: Position) -> Option<Open> {
        let open = self.open.remove(&position)?;
        self.bytes -= open.resident_bytes();
        self.by_id.remove(open.id());
        self.by_id.shrink();
        turn.timers.cancel(open.timer_key(turn.namespace));
        turn.remove(keys::open(turn.namespace, position));
        Some(open)
    }

    /// The requests that wait in a deleted namespace, and the rest of its memory.
    pub(crate) fn into_waits_and_leftovers(self) -> (Vec<WaitId>, Leftovers, Leftovers) {
        let (waits, waiting) = self.waiting.into_waits_and_leftovers();
        (waits, Leftovers::of(self.open).and(self.by_id), waiting)
    }

    /// Loads a stored record. All records of the families are loaded before, and nothing is counted yet.
    pub(crate) fn load(
        &mut self,
        families: &mut Families<'_>,
        key: ResidentKey<'_>,
        bytes: &[u8],
        timers: &mut Timers,
    ) -> Result<(), Malformed> {
        match keys::parse(key).ok_or(Malformed)? {
            keys::Resident::Open(position) => {
                let open: Open = record::decode(bytes)?;
                if open.position != position || open.taken.len() != open.request.parts.checks.len() {
                    return Err(Malformed);
                }
                self.load_open(families, key.namespace, open, timers)
            }
            keys::Resident::Periods => {
                let (first, last) = record::decode(bytes)?;
                self.periods = Some((first, last));
                let (key, timer) = super::ended::drop_timer(key.namespace, first);
                timers.set(key, timer);
                Ok(())
            }
        }
    }

    fn load_open(
        &mut self,
        families: &mut Families<'_>,
        namespace: NamespaceId,
        mut open: Open,
        timers: &mut Timers,
    ) -> Result<(), Malformed> {
        let (request, made_at, expires_at) = (&open.request, open.made_at, open.expires_at);
        let counted = (0..open.taken.len()).filter(|place| open.taken[*place].is_counted);
        let leases = counted.map(|place| {
            let part = lease_of(request, place, made_at, expires_at, open.position);
            limiter::parts::load(families.limiter, &part)
        });
        open.leases = leases.collect();
        let is_sound = open.request.parts.locks.is_empty()
            || locks::parts::load(
                families.locks,
                &grant_of(&open.request, made_at, expires_at, open.position),
            );
        ledger::parts::reserve(families.ledger, open.id(), expires_at);
        timers.set(open.timer_key(namespace), open.timer());
        if is_sound && self.insert(open) { Ok(()) } else { Err(Malformed) }
    }

    /// Gives each decision at least its whole ttl from `ready` on.
    pub(crate) fn apply_grace_period(
        &mut self,
        families: &mut Families<'_>,
        ready: Time,
        namespace: NamespaceId,
        timers: &mut Timers,
    ) {
        for open in self.open.values_mut() {
            timers.cancel(open.timer_key(namespace));
            open.expires_at = open.expires_at.max(ready.after(open.request.ttl));
            timers.set(open.timer_key(namespace), open.timer());
            open.extend_parts(families);
        }
    }
}
