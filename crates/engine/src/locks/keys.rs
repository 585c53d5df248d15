//! The keys of the records of locks. All of them are resident.

use crate::{
    Position,
    ids::NamespaceId,
    record::key::{self, Key, ResidentKey},
};

/// The first kind byte of the locks' records.
pub(crate) const FAMILY: u8 = 0x30;

const GRANT: u8 = FAMILY;
const LISTENERS: u8 = FAMILY + 1;

/// A parsed key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resident {
    Grant(Position),
    Listeners(Position),
}

pub(super) fn parse(key: ResidentKey<'_>) -> Option<Resident> {
    let mut rest = key.rest();
    let parsed = match key.kind {
        GRANT => Resident::Grant(Position(rest.u64()?)),
        LISTENERS => Resident::Listeners(Position(rest.u64()?)),
        _ => return None,
    };
    rest.end(parsed)
}

/// A grant, by its fencing token.
pub(super) fn grant(id: NamespaceId, token: Position) -> Key {
    key::resident(id, GRANT).u64(token.0)
}

/// The requests that were answered with the grant of this fencing token.
pub(super) fn listeners(id: NamespaceId, token: Position) -> Key {
    key::resident(id, LISTENERS).u64(token.0)
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
        check(grant(id, Position(5)), Resident::Grant(Position(5)));
        check(listeners(id, Position(5)), Resident::Listeners(Position(5)));
    }
}
