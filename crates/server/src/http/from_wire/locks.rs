//! The requests about locks.

use super::{super::problem::Failure, Span, name, optional_name};
use limina_api::{Heartbeat, KeyValues, locks as wire};
use limina_engine::{
    Name,
    locks::{Acquire, Command, Lock, Mode},
};

/// The id and the session are drawn by the caller.
pub(crate) fn acquire(id: Name, session: Name, new: wire::NewLock) -> Result<Command, Failure> {
    let (locks, is_one) = match (new.key_values, new.locks) {
        (Some(key_values), None) => (vec![lock(key_values, new.mode)], true),
        (None, Some(locks)) => {
            if new.mode.is_some() {
                return Err(Failure::invalid(
                    "mode",
                    "must be absent, because each of the `locks` has its own",
                ));
            }
            (several(locks), false)
        }
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("locks", "must be absent if `key_values` is given"));
        }
        (None, None) => return Err(Failure::invalid("key_values", "is required, unless `locks` is given")),
    };
    let owner = optional_name("owner", new.owner.as_deref())?;
    let ttl = Span::new("ttl", new.ttl, new.ttl_ms)?;
    let acquire = Acquire::new(id, session, locks, ttl.required()?).map_err(|invalid| {
        // A request for one lock has no list.
        match invalid.field() {
            "locks[0].key_values" if is_one => invalid.renamed("key_values"),
            _ => ttl.as_sent(invalid),
        }
    })?;
    let wait = Span::new("wait", new.wait, new.wait_ms)?;
    let acquire = match wait.millis {
        Some(millis) => acquire.with_wait(millis).map_err(|invalid| wait.as_sent(invalid))?,
        None => acquire,
    };
    Ok(Command::Acquire(acquire.with_owner(owner)))
}

pub(crate) fn heartbeat(id: Name, request: &Heartbeat<'_>) -> Result<Command, Failure> {
    Ok(Command::Heartbeat { id, session: name("session_id", &request.session_id)? })
}

pub(super) fn several(wanted: Vec<wire::WantedLock>) -> Vec<Lock> {
    wanted.into_iter().map(|wanted| lock(wanted.key_values, wanted.mode)).collect()
}

fn lock(key_values: KeyValues, mode: Option<wire::Mode>) -> Lock {
    let mode = match mode {
        None | Some(wire::Mode::Exclusive) => Mode::Exclusive,
        Some(wire::Mode::Shared) => Mode::Shared,
    };
    Lock { key_values, mode }
}
