//! Reads of grants.

use super::{
    reply::{Refusal, Reply},
    state::Locks,
};
use crate::{
    Name, Page, Position, Time,
    lists::{looked_at, pick},
    selection::Query,
};

/// The number of locks of a grant that a list reckons with.
const LOCKS: usize = 4;

pub(super) fn get(locks: &Locks, now: Time, id: &Name) -> Result<Reply, Refusal> {
    let grant = locks.by_id(id).ok_or_else(|| Refusal::LockNotFound { lock_id: id.clone() })?;
    Ok(Reply::Grant(locks.info(now, grant)))
}

pub(super) fn list(locks: &Locks, now: Time, query: &Query, page: &Page<Position>) -> Reply {
    use core::ops::Bound::{Excluded, Unbounded};
    let after = page.after.map_or(Unbounded, Excluded);
    Reply::Grants(pick(
        locks.grants.range((after, Unbounded)),
        page.limit(),
        looked_at(LOCKS * query.weight()),
        |(_, grant)| {
            let is_found = grant.locks.iter().any(|lock| query.finds(&lock.key_values));
            is_found.then(|| locks.info(now, grant))
        },
        |(token, _)| **token,
    ))
}
