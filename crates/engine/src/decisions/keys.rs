//! The keys of the records of decisions.

use crate::{
    Name, Position,
    ids::NamespaceId,
    record::key::{self, Key, ResidentKey},
};
use bytes::Bytes;
use core::ops::Range;

/// The first kind byte of the records of decisions. They are loaded after those of all families.
pub(crate) const FAMILY: u8 = 0x50;

// Resident records.
const OPEN: u8 = FAMILY;
const PERIODS: u8 = FAMILY + 1;
// Paged records.
/// The kinds of ended decisions.
pub(crate) const ENDED: u8 = FAMILY;
pub(crate) const ENDED_IN_PERIOD: u8 = FAMILY + 1;

/// A parsed key of a resident record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resident {
    Open(Position),
    Periods,
}

pub(super) fn parse(key: ResidentKey<'_>) -> Option<Resident> {
    let mut rest = key.rest();
    let parsed = match key.kind {
        OPEN => Resident::Open(Position(rest.u64()?)),
        PERIODS => Resident::Periods,
        _ => return None,
    };
    rest.end(parsed)
}

/// An open decision, by its position.
pub(super) fn open(id: NamespaceId, position: Position) -> Key {
    key::resident(id, OPEN).u64(position.0)
}

/// The periods that have ended decisions.
pub(super) fn periods(id: NamespaceId) -> Key {
    key::resident(id, PERIODS)
}

/// An ended decision that held something. It is kept.
pub(super) fn ended(id: NamespaceId, operation_id: &Name) -> Key {
    key::paged(id, ENDED).bytes(operation_id.as_bytes())
}

/// An ended decision that held nothing, by the period in which it ended.
pub(super) fn ended_in(id: NamespaceId, period: u32, operation_id: &Name) -> Key {
    key::paged(id, ENDED_IN_PERIOD).u32(period).bytes(operation_id.as_bytes())
}

/// The range of all ended decisions of a period that held nothing.
pub(super) fn period(id: NamespaceId, period: u32) -> Range<Bytes> {
    let from = |period: u32| key::paged(id, ENDED_IN_PERIOD).u32(period).into_bytes();
    from(period)..from(period + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_as_they_were_made() {
        #[track_caller]
        fn check(key: Key, expect: Resident) {
            assert_eq!(parse(key::family_record(&key).expect("a family's key")), Some(expect));
            assert_eq!(key::family_record(&key[..key.len() - 1]).and_then(parse), None);
        }
        let id = NamespaceId(7);
        check(open(id, Position(5)), Resident::Open(Position(5)));
        check(periods(id), Resident::Periods);
    }

    #[test]
    fn an_ended_decision_is_in_the_range_of_its_period() {
        let (id, name) = (NamespaceId(7), Name::new("x").unwrap());
        assert!(period(id, 3).contains(&ended_in(id, 3, &name).into_bytes()));
        assert!(!period(id, 3).contains(&ended_in(id, 4, &name).into_bytes()));
    }
}
