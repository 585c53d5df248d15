//! A namespace in memory: the unit of atomicity and of order.

use super::Sizes;
use crate::{
    Idempotency, Name, Outcome, Position, Request,
    events::{self, Events},
    ids::{NamespaceId, WaitId},
    ledger::{self, Ledger},
    limiter::{self, Limiter},
    locks::{self, Locks},
    record::{Malformed, NamespaceHead, key::ResidentKey},
    timers::Timers,
};
use alloc::collections::{BTreeMap, BTreeSet};

/// A namespace. One position counter (in `head`) orders the changes of all families.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) id: NamespaceId,
    pub(super) head: NamespaceHead,
    pub(super) families: Families,
    pub(super) waits: KeyedWaits,
    /// Whether this namespace is already on the list of namespaces that the next seal writes.
    pub(super) changed: bool,
}

impl Namespace {
    pub(super) fn new(id: NamespaceId, name: Name, position: Position) -> Namespace {
        Namespace {
            id,
            head: NamespaceHead { name, position, replies: None },
            families: Families::default(),
            waits: KeyedWaits::default(),
            changed: false,
        }
    }
}

impl Namespace {
    /// Whether a request that waits for its answer has the same idempotency key.
    pub(super) fn is_key_in_use(&self, request: &Request) -> bool {
        request.idempotency.as_ref().is_some_and(|idempotency| self.waits.is_in_use(&idempotency.key))
    }
}

/// The idempotency keys of waiting requests.
#[derive(Debug, Default)]
pub(super) struct KeyedWaits {
    keys: BTreeSet<Name>,
    by_wait: BTreeMap<WaitId, Idempotency>,
}

impl KeyedWaits {
    pub(super) fn is_in_use(&self, key: &Name) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn begin(&mut self, wait: WaitId, idempotency: Idempotency) {
        self.keys.insert(idempotency.key.clone());
        self.by_wait.insert(wait, idempotency);
    }

    /// Removes the key of a request that no longer waits, and returns it.
    pub(super) fn end(&mut self, wait: WaitId) -> Option<Idempotency> {
        let idempotency = self.by_wait.remove(&wait)?;
        self.keys.remove(&idempotency.key);
        Some(idempotency)
    }
}

/// The state of each family.
#[derive(Debug, Default)]
pub(super) struct Families {
    pub(super) ledger: Ledger,
    pub(super) limiter: Limiter,
    pub(super) locks: Locks,
    pub(super) events: Events,
}

impl Families {
    pub(super) fn sizes(&self) -> Sizes {
        Sizes {
            ledger_limits: self.ledger.len(),
            limiter: self.limiter.sizes(),
            locks: self.locks.sizes(),
            events: self.events.sizes(),
        }
    }

    /// The answers to requests that waited, since the last call, in order.
    pub(super) fn take_completed(&mut self) -> impl Iterator<Item = (WaitId, Outcome)> + use<> {
        let limiter = self.limiter.take_completed().into_iter();
        let locks = self.locks.take_completed().into_iter();
        let limiter = limiter.map(|(wait, result)| (wait, Outcome::Limiter(result)));
        limiter.chain(locks.map(|(wait, result)| (wait, Outcome::Locks(result))))
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
            _ => Err(Malformed),
        }
    }
}
