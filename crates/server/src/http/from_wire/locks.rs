//! The requests about locks.

use super::{
    super::problem::Failure, check_count, key_values::key_values, name, optional_name, ttl, within_span,
};
use limina_engine::{
    Millis, Name,
    locks::{Acquire, Command, Lock, MAX_LOCKS, Mode},
};
use limina_wire::{key_values as wire_key_values, locks as wire};
use std::collections::HashSet;

const MAX_WAIT: Millis = Millis(5 * 60 * 1000);

/// The id and the session are drawn by the caller.
pub(crate) fn acquire(id: Name, session: Name, new: wire::NewLock<'_>) -> Result<Command, Failure> {
    let wait = match new.wait {
        Some(wait) => within_span("wait", wait, Millis(0), MAX_WAIT, "must be from 0 to 5 minutes")?,
        None => Millis(0),
    };
    let locks = match (new.key_values, new.locks) {
        (Some(key_values), None) => vec![lock(key_values, new.mode)?],
        (None, Some(locks)) => {
            if new.mode.is_some() {
                return Err(Failure::invalid(
                    "mode",
                    "must be absent, because each of the `locks` has its own",
                ));
            }
            several(locks)?
        }
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("locks", "must be absent if `key_values` is given"));
        }
        (None, None) => return Err(Failure::invalid("key_values", "is required, unless `locks` is given")),
    };
    let owner = optional_name("owner", new.owner.as_deref())?;
    Ok(Command::Acquire(Acquire { id, session, locks, ttl: ttl(new.ttl)?, wait, owner }))
}

pub(crate) fn heartbeat(id: Name, request: &wire::Heartbeat<'_>) -> Result<Command, Failure> {
    Ok(Command::Heartbeat { id, session: name("session_id", &request.session_id)? })
}

fn several(wanted: Vec<wire::WantedLock<'_>>) -> Result<Vec<Lock>, Failure> {
    check_count("locks", wanted.len(), MAX_LOCKS)?;
    let mut locks = Vec::with_capacity(wanted.len());
    let mut seen = HashSet::new();
    for (place, wanted) in wanted.into_iter().enumerate() {
        let lock = lock(wanted.key_values, wanted.mode)
            .and_then(|lock| match seen.insert(lock.key_values.clone()) {
                true => Ok(lock),
                false => Err(Failure::invalid("key_values", "the same lock is named twice")),
            })
            .map_err(|failure| failure.within(&format!("locks[{place}]")))?;
        locks.push(lock);
    }
    Ok(locks)
}

fn lock(pairs: wire_key_values::KeyValues<'_>, mode: Option<wire::Mode>) -> Result<Lock, Failure> {
    let key_values = key_values(pairs)?;
    if key_values.is_empty() {
        return Err(Failure::invalid("key_values", "a lock has at least one key"));
    }
    let mode = match mode {
        None | Some(wire::Mode::Exclusive) => Mode::Exclusive,
        Some(wire::Mode::Shared) => Mode::Shared,
    };
    Ok(Lock { key_values, mode })
}
