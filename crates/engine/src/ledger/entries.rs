//! `entries`: the history of a limit. Each entry contains the sums after it, so that no read has to add up history.

use super::{
    balance::Balance,
    keys, limits,
    reply::{Refusal, Reply},
    state::Ledger,
};
use crate::{
    Listed, Name, Page, Position, Time,
    ids::NamespaceId,
    reads::{ReadError, Reader},
    record,
    turn::{CannotRun, Turn, View},
};
use alloc::vec::Vec;
use limina_api::ledger::{self as api, EntryType};
use serde::{Deserialize, Serialize};

/// An entry as it is stored. Its key is (limit, position). `I` is the id of the operation, or a reference to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry<I = Name> {
    time: Time,
    operation_id: I,
    kind: EntryKind,
    value: i64,
    pub(super) balance: Balance,
}

/// The kind of a change of a limit, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EntryKind {
    Hold,
    Commit,
    Rollback,
    Expiry,
    Overage,
}

impl From<EntryKind> for EntryType {
    fn from(kind: EntryKind) -> EntryType {
        match kind {
            EntryKind::Hold => EntryType::Hold,
            EntryKind::Commit => EntryType::Commit,
            EntryKind::Rollback => EntryType::Rollback,
            EntryKind::Expiry => EntryType::Expiry,
            EntryKind::Overage => EntryType::Overage,
        }
    }
}

pub(super) fn put(
    turn: &mut Turn<'_>,
    operation_id: &Name,
    kind: EntryKind,
    limit: u32,
    position: Position,
    value: i64,
    balance: Balance,
) {
    let entry = Entry { time: turn.now, operation_id, kind, value, balance };
    turn.put(keys::entry(turn.namespace, limit, position), &entry);
}

pub(super) fn last_at_or_before(
    reader: &Reader<'_>,
    namespace: NamespaceId,
    limit: u32,
    position: Position,
) -> Result<Option<Entry>, ReadError> {
    let (from, at) = (keys::entry(namespace, limit, Position(0)), keys::entry(namespace, limit, position));
    let found = reader.last_at_or_before(from.into_bytes(), at.into_bytes())?;
    Ok(found.map(|(_, entry)| entry))
}

pub(super) fn list(
    ledger: &Ledger,
    view: View<'_>,
    limit_name: &Name,
    page: &Page<Position>,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let number = match limits::find(ledger, limit_name) {
        Ok(number) => number,
        Err(refusal) => return Ok(Err(refusal)),
    };
    view.read(|reader| {
        let from = page.after.map_or(Position(0), |after| Position(after.0.saturating_add(1)));
        let range = keys::entries_from(view.namespace, number, from);
        let scanned = reader.scan(range.start, range.end, page.limit())?;
        let mut items = Vec::with_capacity(scanned.records.len());
        for (key, bytes) in &scanned.records {
            let position = keys::entry_position(key).ok_or(ReadError::Unreadable)?;
            let entry: Entry = record::decode(bytes).map_err(|_| ReadError::Unreadable)?;
            let (commit_value, hold_value) = (entry.balance.commit, entry.balance.hold_value());
            items.push(api::Entry {
                position,
                time: entry.time,
                operation_id: entry.operation_id,
                kind: entry.kind.into(),
                value: entry.value,
                commit_value,
                hold_value,
                total_value: commit_value + hold_value,
            });
        }
        let next = scanned.more_after.as_deref().and_then(keys::entry_position);
        Ok(Ok(Reply::Entries(Listed { items, next })))
    })
}
