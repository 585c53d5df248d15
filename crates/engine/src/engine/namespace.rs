//! A namespace in memory: the unit of atomicity and of order.

use super::{Sizes, audit::Draft};
use crate::{
    Idempotency, Name, Outcome, Position, Request, Time,
    decisions::{self, Decisions},
    events::{self, Events},
    ids::{NamespaceId, WaitId},
    ledger::{self, Ledger},
    limiter::{self, Limiter},
    locks::{self, Locks},
    quotas::{QuotaTable, Quotas},
    record::{Malformed, NamespaceHead, key::ResidentKey},
    resident::{self, Heap},
    timers::{TIMER_BYTES, Timers},
};
use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
};

/// A namespace. One position counter (in `head`) orders the changes of all families.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) id: NamespaceId,
    pub(super) head: NamespaceHead,
    pub(super) families: Families,
    pub(super) waits: KeyedWaits,
    /// What the audit will say about commands that wait.
    pub(super) drafts: BTreeMap<WaitId, Draft>,
    pub(super) quotas: Quotas,
    /// Whether this namespace is already on the list of namespaces that the next seal writes.
    pub(super) changed: bool,
}

impl Namespace {
    pub(super) fn new(id: NamespaceId, name: Name, position: Position, quotas: &QuotaTable) -> Namespace {
        Namespace {
            id,
            quotas: quotas.of(&name),
            head: NamespaceHead { name, position, replies: None },
            families: Families::default(),
            waits: KeyedWaits::default(),
            drafts: BTreeMap::new(),
            changed: false,
        }
    }

    /// Everything that the namespace has.
    pub(super) fn sizes(&self) -> Sizes {
        let mut sizes = self.families.sizes();
        sizes.kept_replies = kept_replies(&self.head, &self.waits);
        sizes.resident_bytes += own_bytes(&self.head.name);
        sizes
    }

    /// The same, with the resident bytes of every entry summed up anew, except those of timers of the ledger.
    pub(super) fn recount(&self) -> Sizes {
        let Families { ledger, limiter, locks, events, decisions } = &self.families;
        let (limiter_sizes, limiter_bytes) = limiter.recount();
        let bytes = ledger.recount_bytes() + limiter_bytes + locks.recount_bytes() + events.recount_bytes();
        let resident_bytes = own_bytes(&self.head.name) + bytes + decisions.recount_bytes();
        Sizes { limiter: limiter_sizes, resident_bytes, ..self.sizes() }
    }
}

/// The resident bytes of a namespace without what its families have. Windows have two timers.
pub(super) fn own_bytes(name: &Name) -> u64 {
    resident::heap(size_of::<Namespace>())
        + resident::tree_slot::<(Name, Box<Namespace>)>()
        + resident::hash_slot::<(NamespaceId, Name)>()
        + 2 * TIMER_BYTES
        + limiter::EMPTY_BYTES
        + name.heap()
}

/// The replies that are kept, and those that will be kept when requests that wait are answered.
pub(super) fn kept_replies(head: &NamespaceHead, waits: &KeyedWaits) -> u64 {
    head.replies.map_or(0, |replies| replies.sum()) + waits.len()
}

impl Namespace {
    /// Whether a request that waits for its answer has the same idempotency key.
    pub(super) fn is_key_in_use(&self, request: &Request) -> bool {
        request.idempotency.as_ref().is_some_and(|idempotency| self.waits.is_in_use(idempotency))
    }
}

/// The idempotency keys of waiting requests.
#[derive(Debug, Default)]
pub(super) struct KeyedWaits {
    /// Owner and key of each.
    keys: BTreeSet<(Option<Name>, Name)>,
    by_wait: BTreeMap<WaitId, KeyedWait>,
}

/// The idempotency key of a waiting request.
#[derive(Debug)]
pub(super) struct KeyedWait {
    pub(super) idempotency: Idempotency,
    /// The period that has a reply under this key already.
    pub(super) replaced: Option<u32>,
}

impl KeyedWaits {
    pub(super) fn is_in_use(&self, idempotency: &Idempotency) -> bool {
        !self.keys.is_empty() && self.keys.contains(&idempotency.owned_key())
    }

    pub(super) fn len(&self) -> u64 {
        self.by_wait.len() as u64
    }

    pub(super) fn begin(&mut self, wait: WaitId, keyed: KeyedWait) {
        self.keys.insert(keyed.idempotency.owned_key());
        self.by_wait.insert(wait, keyed);
    }

    /// Removes the key of a request that no longer waits, and returns it.
    pub(super) fn end(&mut self, wait: WaitId) -> Option<KeyedWait> {
        let keyed = self.by_wait.remove(&wait)?;
        self.keys.remove(&keyed.idempotency.owned_key());
        Some(keyed)
    }
}

/// The state of each family.
#[derive(Debug, Default)]
pub(super) struct Families {
    pub(super) ledger: Ledger,
    pub(super) limiter: Limiter,
    pub(super) locks: Locks,
    pub(super) events: Events,
    pub(super) decisions: Decisions,
}

impl Families {
    /// The decisions, and the families that they are made about.
    pub(super) fn split(&mut self) -> (&mut Decisions, decisions::Families<'_>) {
        let Families { ledger, limiter, locks, events, decisions } = self;
        (decisions, decisions::Families { ledger, limiter, locks, events })
    }

    /// What the families have. Kept replies are not theirs.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            ledger_limits: self.ledger.len(),
            limiter: self.limiter.sizes(),
            locks: locks::Sizes {
                waiting: self.locks.sizes().waiting + self.limiter.waiting() + self.decisions.waiting(),
                ..self.locks.sizes()
            },
            events: self.events.sizes(),
            decisions: self.decisions.len(),
            kept_replies: 0,
            resident_bytes: self.ledger.resident_bytes()
                + self.limiter.resident_bytes()
                + self.locks.resident_bytes()
                + self.events.resident_bytes()
                + self.decisions.resident_bytes(),
        }
    }

    /// The answers to requests that waited, since the last call, in order.
    pub(super) fn take_completed(&mut self) -> impl Iterator<Item = (WaitId, Outcome)> + use<> {
        let limiter = self.limiter.take_completed().into_iter();
        let locks = self.locks.take_completed().into_iter();
        let limiter = limiter.map(|(wait, result)| (wait, Outcome::Limiter(result)));
        let decisions = self.decisions.take_completed().into_iter();
        let decisions = decisions.map(|(wait, result)| (wait, Outcome::Decisions(result)));
        limiter.chain(locks.map(|(wait, result)| (wait, Outcome::Locks(result)))).chain(decisions)
    }

    /// Replaces a stored record of one of the families, or removes it. Returns false if that is not possible for a record of this kind.
    pub(super) fn amend(
        &mut self,
        key: ResidentKey<'_>,
        bytes: Option<&[u8]>,
        now: Time,
        timers: &mut Timers,
    ) -> Result<bool, Malformed> {
        match key.family() {
            ledger::keys::FAMILY => self.ledger.amend(key, bytes, timers),
            limiter::keys::FAMILY => self.limiter.amend(key, bytes, now, timers),
            _ => Ok(false),
        }
    }

    /// Loads a stored record of one of the families.
    pub(super) fn load(
        &mut self,
        key: ResidentKey<'_>,
        bytes: &[u8],
        timers: &mut Timers,
    ) -> Result<(), Malformed> {
        match key.family() {
            ledger::keys::FAMILY => self.ledger.load(key, bytes, timers),
            limiter::keys::FAMILY => self.limiter.load(key, bytes),
            locks::keys::FAMILY => self.locks.load(key, bytes),
            events::keys::FAMILY => self.events.load(key, bytes),
            decisions::keys::FAMILY => {
                let (decisions, mut families) = self.split();
                decisions.load(&mut families, key, bytes, timers)
            }
            _ => Err(Malformed),
        }
    }
}
