//! The keys of the ledger's records.

use crate::{
    Name, Position, Time,
    ids::NamespaceId,
    record::key::{self, Key, ResidentKey},
};
use bytes::Bytes;
use core::ops::Range;

/// The first kind byte of the ledger's records.
pub(crate) const FAMILY: u8 = 0x10;

// Resident records.
const LIMIT: u8 = FAMILY;
const BALANCE: u8 = FAMILY + 1;
const EXPIRY: u8 = FAMILY + 2;
const NEXT_LIMIT: u8 = FAMILY + 3;
// Paged records.
/// The kind of operations.
pub(crate) const OPERATION: u8 = FAMILY;
const OPEN: u8 = FAMILY + 1;
const DELETED: u8 = FAMILY + 2;
// Histories.
const ENTRY: u8 = FAMILY;

/// A parsed key of a resident record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resident {
    Limit(u32),
    Balance(u32),
    Expiry(Time, Position),
    NextLimit,
}

pub(super) fn parse(key: ResidentKey<'_>) -> Option<Resident> {
    let mut rest = key.rest();
    let parsed = match key.kind {
        LIMIT => Resident::Limit(rest.u32()?),
        BALANCE => Resident::Balance(rest.u32()?),
        EXPIRY => Resident::Expiry(Time(rest.u64()?), Position(rest.u64()?)),
        NEXT_LIMIT => Resident::NextLimit,
        _ => return None,
    };
    rest.end(parsed)
}

/// The terms of a limit.
pub(super) fn limit(id: NamespaceId, limit: u32) -> Key {
    key::resident(id, LIMIT).u32(limit)
}

/// The balance of a limit, and how many holds are open in it.
pub(super) fn balance(id: NamespaceId, limit: u32) -> Key {
    key::resident(id, BALANCE).u32(limit)
}

/// The expiry of a hold request. Sorted by the time at which it expires.
pub(super) fn expiry(id: NamespaceId, due: Time, held_at: Position) -> Key {
    key::resident(id, EXPIRY).u64(due.0).u64(held_at.0)
}

/// A number above those of all limits that were deleted. No number is used again.
pub(super) fn next_limit(id: NamespaceId) -> Key {
    key::resident(id, NEXT_LIMIT)
}

/// The name and the id of a deleted limit, for the operations that held in it.
pub(super) fn deleted(id: NamespaceId, limit: u32) -> Key {
    key::paged(id, DELETED).u32(limit)
}

/// The record of an operation.
pub(crate) fn operation(id: NamespaceId, operation: &Name) -> Key {
    key::paged(id, OPERATION).bytes(operation.as_bytes())
}

/// The operations whose ids follow `after`, by id.
pub(super) fn operations_after(id: NamespaceId, after: Option<&Name>) -> Range<Bytes> {
    key::paged_names_after(id, OPERATION, after)
}

/// The mark of an operation with at least one open hold.
pub(super) fn open(id: NamespaceId, operation: &Name) -> Key {
    key::paged(id, OPEN).bytes(operation.as_bytes())
}

/// The open marks of the operations whose ids follow `after`, by id.
pub(super) fn open_after(id: NamespaceId, after: Option<&Name>) -> Range<Bytes> {
    key::paged_names_after(id, OPEN, after)
}

/// The operation id in the key of an operation or of its open mark.
pub(super) fn operation_id(key: &[u8]) -> Option<Name> {
    key::paged_name(key)
}

/// An entry of a limit's history.
pub(super) fn entry(id: NamespaceId, limit: u32, position: Position) -> Key {
    entries(id, limit).u64(position.0)
}

/// The entries of a limit from position `from` on.
pub(super) fn entries_from(id: NamespaceId, limit: u32, from: Position) -> Range<Bytes> {
    entry(id, limit, from).into_bytes()..entries(id, limit + 1).into_bytes()
}

fn entries(id: NamespaceId, limit: u32) -> Key {
    key::history(id, ENTRY).u32(limit)
}

/// The position in an entry's key.
pub(super) fn entry_position(key: &[u8]) -> Option<Position> {
    Some(Position(u64::from_be_bytes(key.get(10..18)?.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_keys_are_parsed_as_they_were_made() {
        #[track_caller]
        fn check(key: Key, expect: Resident) {
            assert_eq!(parse(key::family_record(&key).expect("a family's key")), Some(expect));
            assert_eq!(key::family_record(&key[..key.len() - 1]).and_then(parse), None);
        }
        let id = NamespaceId(7);
        check(limit(id, 3), Resident::Limit(3));
        check(balance(id, 3), Resident::Balance(3));
        check(expiry(id, Time(5), Position(6)), Resident::Expiry(Time(5), Position(6)));
        assert_eq!(
            parse(key::family_record(&next_limit(id)).expect("a family's key")),
            Some(Resident::NextLimit)
        );
    }

    #[test]
    fn limits_come_before_balances_and_names_and_positions_are_read_back() {
        let id = NamespaceId(7);
        let name = Name::new("x").unwrap();
        assert!(*limit(id, u32::MAX) < *balance(id, 0));
        assert_eq!(operation_id(&open(id, &name)), Some(name));
        assert_eq!(entry_position(&entry(id, 1, Position(77))), Some(Position(77)));
    }
}
