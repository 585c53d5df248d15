//! The keys of the records of locks.

use crate::{
    Position,
    ids::NamespaceId,
    record::key::{self, Key, ResidentKey},
};

/// The only kind of record that locks have.
pub(crate) const FAMILY: u8 = 0x30;

/// A grant, by its fencing token.
pub(super) fn grant(id: NamespaceId, token: Position) -> Key {
    key::resident(id, FAMILY).u64(token.0)
}

/// The fencing token in a grant's key.
pub(super) fn parse(key: ResidentKey<'_>) -> Option<Position> {
    let mut rest = key.rest();
    match key.kind {
        FAMILY => {
            let token = Position(rest.u64()?);
            rest.end(token)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_parsed_as_it_was_made() {
        let key = grant(NamespaceId(7), Position(5));
        assert_eq!(key::family_record(&key).and_then(parse), Some(Position(5)));
        assert_eq!(key::family_record(&key[..key.len() - 1]).and_then(parse), None);
    }
}
