//! The keys of the limiter's records. All of them are resident.

use crate::{
    Position,
    ids::NamespaceId,
    record::key::{self, Key, ResidentKey},
    slab::SlabIndex,
};
use bytes::Bytes;
use core::ops::Range;

/// The first kind byte of the limiter's records.
pub(crate) const FAMILY: u8 = 0x20;

const RULE: u8 = FAMILY;
const OVERRIDE: u8 = FAMILY + 1;
const WINDOW: u8 = FAMILY + 2;
const COUNTER: u8 = FAMILY + 3;
const LEASE: u8 = FAMILY + 4;
const RULE_SET: u8 = FAMILY + 5;

/// A parsed key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resident {
    Rule(Position),
    Override { rule: Position, id: Position },
    Window(SlabIndex),
    Counter(SlabIndex),
    Lease(Position),
    RuleSet(Position),
}

pub(super) fn parse(key: ResidentKey<'_>) -> Option<Resident> {
    let mut rest = key.rest();
    let parsed = match key.kind {
        RULE => Resident::Rule(Position(rest.u64()?)),
        OVERRIDE => Resident::Override { rule: Position(rest.u64()?), id: Position(rest.u64()?) },
        WINDOW => Resident::Window(rest.u32()?),
        COUNTER => Resident::Counter(rest.u32()?),
        LEASE => Resident::Lease(Position(rest.u64()?)),
        RULE_SET => Resident::RuleSet(Position(rest.u64()?)),
        _ => return None,
    };
    rest.end(parsed)
}

/// A rule, by its id.
pub(super) fn rule(id: NamespaceId, rule: Position) -> Key {
    key::resident(id, RULE).u64(rule.0)
}

/// An override, by the ids of its rule and of itself.
pub(super) fn override_of(id: NamespaceId, rule: Position, item: Position) -> Key {
    key::resident(id, OVERRIDE).u64(rule.0).u64(item.0)
}

/// All overrides of a rule.
pub(super) fn overrides(id: NamespaceId, rule: Position) -> Range<Bytes> {
    let all = |rule: u64| key::resident(id, OVERRIDE).u64(rule).into_bytes();
    all(rule.0)..all(rule.0 + 1)
}

/// The state of a window, by its index among all groups.
pub(super) fn window(id: NamespaceId, index: SlabIndex) -> Key {
    key::resident(id, WINDOW).u32(index)
}

/// A counter, by its index among all counters.
pub(super) fn counter(id: NamespaceId, index: SlabIndex) -> Key {
    key::resident(id, COUNTER).u32(index)
}

/// A lease, by its fencing token.
pub(super) fn lease(id: NamespaceId, token: Position) -> Key {
    key::resident(id, LEASE).u64(token.0)
}

/// A rule set, by its id.
pub(super) fn rule_set(id: NamespaceId, set: Position) -> Key {
    key::resident(id, RULE_SET).u64(set.0)
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
        check(rule(id, Position(5)), Resident::Rule(Position(5)));
        let item = Resident::Override { rule: Position(5), id: Position(6) };
        check(override_of(id, Position(5), Position(6)), item);
        check(window(id, 5), Resident::Window(5));
        check(counter(id, 5), Resident::Counter(5));
        check(lease(id, Position(5)), Resident::Lease(Position(5)));
        check(rule_set(id, Position(5)), Resident::RuleSet(Position(5)));
    }

    #[test]
    fn a_range_of_overrides_holds_those_of_its_rule() {
        let id = NamespaceId(7);
        let range = overrides(id, Position(5));
        assert!(range.contains(&override_of(id, Position(5), Position(6)).into_bytes()));
        assert!(!range.contains(&override_of(id, Position(6), Position(6)).into_bytes()));
    }
}
