//! The keys of the records of events.

use crate::{
    Position,
    ids::NamespaceId,
    record::key::{self, Key, ResidentKey},
};
use bytes::Bytes;
use core::ops::Range;

/// The first kind byte of the events' records.
pub(crate) const FAMILY: u8 = 0x40;

// Resident records.
const STREAM: u8 = FAMILY;
const EVENT: u8 = FAMILY + 1;
// Paged records.
const CHANGE: u8 = FAMILY;

/// A parsed key of a resident record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resident {
    Stream(Position),
    Event { stream: Position, number: Position },
}

pub(super) fn parse(key: ResidentKey<'_>) -> Option<Resident> {
    let mut rest = key.rest();
    let parsed = match key.kind {
        STREAM => Resident::Stream(Position(rest.u64()?)),
        EVENT => Resident::Event { stream: Position(rest.u64()?), number: Position(rest.u64()?) },
        _ => return None,
    };
    rest.end(parsed)
}

/// The head of a stream, by the position of the change that created it.
pub(super) fn stream(id: NamespaceId, stream: Position) -> Key {
    key::resident(id, STREAM).u64(stream.0)
}

/// A closed key of a stream, by its number.
pub(super) fn event(id: NamespaceId, stream: Position, number: Position) -> Key {
    key::resident(id, EVENT).u64(stream.0).u64(number.0)
}

/// All closed keys of a stream.
pub(super) fn events(id: NamespaceId, stream: Position) -> Range<Bytes> {
    let all = |stream: u64| key::resident(id, EVENT).u64(stream).into_bytes();
    all(stream.0)..all(stream.0 + 1)
}

/// A kept change of a stream, by its clock.
pub(super) fn change(id: NamespaceId, stream: Position, clock: u64) -> Key {
    key::paged(id, CHANGE).u64(stream.0).u64(clock)
}

/// All kept changes of a stream.
pub(super) fn changes(id: NamespaceId, stream: Position) -> Range<Bytes> {
    let all = |stream: u64| key::paged(id, CHANGE).u64(stream).into_bytes();
    all(stream.0)..all(stream.0 + 1)
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
        check(stream(id, Position(5)), Resident::Stream(Position(5)));
        let expect = Resident::Event { stream: Position(5), number: Position(6) };
        check(event(id, Position(5), Position(6)), expect);
    }
}
