//! The replies of the locks family.

use super::{borrowed, span};
use limina_api::{
    Page,
    locks::{Granted, HeldLock, Lock, Mode},
};
use limina_engine::{
    Listed, Name, Position,
    locks::{self, GrantInfo},
};

pub(crate) fn granted<'a>(grant: &'a GrantInfo, session: &'a Name) -> Granted<'a> {
    Granted {
        lock_id: borrowed(&grant.id),
        session_id: borrowed(session),
        fencing_token: grant.fencing_token.0,
        expires_in_ms: span(grant.now, grant.expires_at),
        locks: grant.locks.iter().map(held).collect(),
    }
}

pub(crate) fn lock(grant: &GrantInfo) -> Lock<'_> {
    Lock {
        lock_id: borrowed(&grant.id),
        operation_id: grant.operation_id.as_ref().map(borrowed),
        owner: grant.owner.as_ref().map(borrowed),
        locks: grant.locks.iter().map(held).collect(),
        held_ms: span(grant.granted_at, grant.now),
        expires_in_ms: span(grant.now, grant.expires_at),
        ttl_ms: grant.ttl.0,
        fencing_token: grant.fencing_token.0,
        waiting: grant.waiting,
    }
}

pub(crate) fn page(listed: &Listed<GrantInfo, Position>) -> Page<Lock<'_>> {
    let next = listed.next.map(|Position(token)| token.to_string());
    Page { items: listed.items.iter().map(lock).collect(), next }
}

pub(super) fn held(lock: &locks::Lock) -> HeldLock {
    HeldLock { key_values: lock.key_values.clone(), mode: mode(lock.mode) }
}

pub(super) fn mode(mode: locks::Mode) -> Mode {
    match mode {
        locks::Mode::Exclusive => Mode::Exclusive,
        locks::Mode::Shared => Mode::Shared,
    }
}
