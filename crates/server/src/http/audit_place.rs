//! The `after` and the `next` of pages of the audit.
//!
//! A page may end between records that its client must not see. Then `next` is sealed: it contains a time that only the nodes can
//! read.

use limina_engine::{Name, Position, Time, audit::AuditCursor};
use sha2::{Digest, Sha256};
use std::fmt;

/// The beginning of a sealed place. No other place begins with it.
const SEALED: char = '~';
/// With four rounds of a good function, a Feistel network cannot be told from a random permutation.
const ROUNDS: u8 = 4;

/// A place in the audit, as clients have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuditPlace {
    /// That of a record, which the client may see.
    Record(AuditCursor),
    /// Before all records of a time, which is sealed.
    Sealed(u64),
}

impl AuditPlace {
    pub(crate) fn parse(text: &str) -> Option<AuditPlace> {
        if let Some(digits) = text.strip_prefix(SEALED) {
            let number = u64::from_str_radix(digits, 16).ok()?;
            return Some(AuditPlace::Sealed(number)).filter(|place| place.to_string() == text);
        }
        let mut parts = text.splitn(4, '.');
        let mut number = || parts.next()?.parse().ok();
        let (time, position, deletion): (u64, u64, u64) = (number()?, number()?, number()?);
        let namespace = Name::new(parts.next()?).ok()?;
        let (time, position) = (Time(time), Position(position));
        Some(AuditPlace::Record(AuditCursor { time, namespace, position, is_deletion: deletion != 0 }))
    }

    /// The place before all records of this time.
    pub(super) fn sealed(time: Time, secret: &[u8]) -> AuditPlace {
        let mut halves = ((time.0 >> 32) as u32, time.0 as u32);
        for round in 0..ROUNDS {
            halves = (halves.1, halves.0 ^ mix(secret, round, halves.1));
        }
        AuditPlace::Sealed(u64::from(halves.0) << 32 | u64::from(halves.1))
    }

    /// The place as a cursor. It names no record unless the client has named it.
    pub(super) fn open(self, secret: &[u8]) -> AuditCursor {
        let number = match self {
            AuditPlace::Record(cursor) => return cursor,
            AuditPlace::Sealed(number) => number,
        };
        let mut halves = ((number >> 32) as u32, number as u32);
        for round in (0..ROUNDS).rev() {
            halves = (halves.1 ^ mix(secret, round, halves.0), halves.0);
        }
        let time = Time(u64::from(halves.0) << 32 | u64::from(halves.1));
        let namespace = Name::new(" ").expect("the smallest name");
        AuditCursor { time, namespace, position: Position(0), is_deletion: false }
    }
}

impl fmt::Display for AuditPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AuditPlace::Record(AuditCursor { time, namespace, position, is_deletion }) => {
                write!(f, "{}.{}.{}.{namespace}", time.0, position.0, u8::from(*is_deletion))
            }
            AuditPlace::Sealed(number) => write!(f, "{SEALED}{number:016x}"),
        }
    }
}

fn mix(secret: &[u8], round: u8, half: u32) -> u32 {
    let mut hash = Sha256::new_with_prefix(b"limina: places in the audit");
    hash.update(secret);
    hash.update([round]);
    hash.update(half.to_be_bytes());
    let [a, b, c, d, ..] = <[u8; 32]>::from(hash.finalize());
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        #[track_caller]
        fn check(text: &str, expect: bool) {
            let place = AuditPlace::parse(text);
            assert_eq!(place.is_some(), expect, "{text}");
            assert!(place.is_none_or(|place| place.to_string() == text), "{text}");
        }
        check("5.7.1.a.b", true);
        check("18446744073709551615.0.0. ", true);
        check("~00000000000000ff", true);
        for text in
            ["", "~", "~ff", "~00000000000000FF", "~+0000000000000ff", "~10000000000000000", "5.7.1.", "5.7"]
        {
            check(text, false);
        }
    }

    #[test]
    fn only_the_nodes_can_read_a_sealed_time() {
        let (secret, other) = ([7; 16], [8; 16]);
        let times = [0, 1, 2, 1_794_850_856_658, 1_794_850_856_659, u64::MAX].map(Time);
        let sealed = times.map(|time| AuditPlace::sealed(time, &secret));
        for (time, place) in times.into_iter().zip(&sealed) {
            assert_eq!(place.clone().open(&secret).time, time);
            assert_ne!(place.clone().open(&other).time, time);
            assert_ne!(*place, AuditPlace::Sealed(time.0));
        }
        // Neighbouring times look unrelated.
        let [.., before, after, _] = sealed;
        let (AuditPlace::Sealed(before), AuditPlace::Sealed(after)) = (before, after) else {
            panic!("not sealed")
        };
        assert!((before ^ after).count_ones() > 8, "{before:x} and {after:x}");
    }
}
