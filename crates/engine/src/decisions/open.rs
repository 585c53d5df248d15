//! An open decision: in memory, as it is stored, as its parts see it and as clients see it.

use super::{command::takes, families::Families, keys, record, reply::Decision};
use crate::{
    Name, Position, Time,
    answer_size::{AnswerBudget, TooLarge},
    effect::EventInfo,
    events::{self, EventPart},
    ids::NamespaceId,
    ledger::{self, operations::HeldLimit},
    limiter::{
        self,
        parts::{NewPart, RefundInfo},
    },
    locks::{self, Lock, parts::NewGrant},
    resident::{self, Heap},
    timers::{TIMER_BYTES, Timer, TimerKey, TimerSource},
    turn::Turn,
};
use alloc::{sync::Arc, vec::Vec};
use limina_api::decisions::{Decide, Parts, State};
use serde::{Deserialize, Serialize};

/// A decision in memory, without its texts. Its id is reserved in the ledger too.
const OPEN_BYTES: u64 = resident::tree_slot::<(Position, Open)>()
    + resident::hash_slot::<(Name, Position)>()
    + resident::hash_slot::<(Name, Time)>()
    + TIMER_BYTES;

/// An open decision, in memory and as stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Open {
    #[serde(with = "record")]
    pub(super) request: Arc<Decide>,
    pub(super) position: Position,
    pub(super) made_at: Time,
    pub(super) expires_at: Time,
    /// What each check has taken.
    pub(super) taken: Vec<RefundInfo>,
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
        self.request.operation_id()
    }

    pub(super) fn timer_key(&self, namespace: NamespaceId) -> TimerKey {
        TimerKey { due: self.expires_at, namespace, source: TimerSource::Change(self.position) }
    }

    pub(super) fn timer(&self) -> Timer {
        Timer::OperationExpiry { position: self.position }
    }

    pub(super) fn resident_bytes(&self) -> u64 {
        let windows = self.taken.iter().flat_map(|taken| &taken.windows);
        let taken = resident::heap(size_of_val(&self.taken[..]))
            + windows.map(limiter::parts::WindowRefund::resident_bytes).sum::<u64>();
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
        let limits = limiter::parts::look(families.limiter, now, &takes(&self.request), budget)?;
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
            owner: self.request.owner().cloned(),
            position: Some(self.position),
            fencing_token: Some(self.position),
            ttl: self.request.ttl(),
            made_at: self.made_at,
            expires_at: Some(self.expires_at),
            limits: Vec::new(),
            values: ledger::parts::values(families.ledger, &self.holds),
            locks: self.request.parts().locks.clone(),
            event,
            now,
        }
    }

    pub(super) fn event_part(&self, info: &EventInfo, state: events::EventState) -> EventPart {
        let stream = self.request.parts().event.as_ref().expect("it has an event").stream.clone();
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
        limit.check = request.parts().checks[limit.status.entry as usize].name.clone();
    }
    limits
}

/// The resident bytes of an open decision without what it remembers for a settlement, and without its holds.
fn request_bytes(request: &Decide) -> u64 {
    let Parts { checks, holds, locks, event, .. } = request.parts();
    let checks_bytes = checks.iter().map(|check| {
        check.name.as_ref().map_or(0, Name::heap) + check.key_values.heap() + resident::heap(64)
    });
    let holds_bytes = holds.iter().map(|change| {
        let context = change.context.iter().map(|(key, value)| resident::heap(key.len() + value.len()) + 64);
        change.limit_name.heap() + change.limit_id.as_ref().map_or(0, Name::heap) + context.sum::<u64>()
    });
    let event_bytes =
        event.as_ref().map_or(0, |event| event.stream.heap() + resident::shared(event.event.len()));
    OPEN_BYTES
        + resident::shared(size_of::<Decide>())
        + 3 * request.operation_id().heap()
        + request.owner().map_or(0, Name::heap)
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
    let Parts { checks, holds, .. } = request.parts();
    request_bytes(request)
        + resident::heap(checks.len() * size_of::<RefundInfo>())
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
    let check = &request.parts().checks[place];
    NewPart {
        operation_id: request.operation_id(),
        owner: request.owner(),
        key_values: &check.key_values,
        hits: check.hits,
        place,
        ttl: request.ttl(),
        taken_at,
        expires_at,
        token,
    }
}

/// The grant of the locks, as the family needs it.
pub(super) fn grant_of(request: &Decide, taken_at: Time, expires_at: Time, token: Position) -> NewGrant<'_> {
    NewGrant {
        operation_id: request.operation_id(),
        owner: request.owner(),
        locks: &request.parts().locks,
        ttl: request.ttl(),
        taken_at,
        expires_at,
        token,
    }
}
