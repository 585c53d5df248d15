//! The layout of keys. One scan loads everything that is resident, and one short scan reads a page of a list.
//!
//! A key begins with its class: resident, paged, or history (paged records that are only ever appended). The namespace's id
//! follows, then the kind of record. The upper four bits of the kind are the family: each family's `keys.rs` has its kinds and
//! the rest of its keys. Numbers are big-endian, so that keys sort by number.

use crate::{Name, ids::NamespaceId};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::{Deref, Range};

const RESIDENT: u8 = 0x01;
const PAGED: u8 = 0x02;
/// The class of paged records that are written once, in the order of the number at the end of their keys, and removed only with
/// their whole namespace. The store depends on this.
pub const HISTORY: u8 = 0x03;

/// The class of the audit's records, which belong to no namespace's id: they outlive their namespace.
const AUDIT: u8 = 0x04;

const SHARD_META: u8 = 0x00;
const SWEEP: u8 = 0x01;
const NAMESPACE: u8 = 0x02;
const RESTORED: u8 = 0x03;

/// The kind of a namespace's own record.
const HEAD: u8 = 0x00;
/// The kind of kept replies, which are paged.
pub(crate) const REPLY: u8 = 0x01;

/// A parsed key of a resident record. The rest of a family's key is parsed by the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resident<'a> {
    /// [`shard_meta`]
    ShardMeta,
    /// [`sweep`]
    Sweep(u64),
    /// [`namespace`]
    Namespace(NamespaceId),
    /// A family's record.
    Family(ResidentKey<'a>),
    /// [`restored`]
    Restored,
}

/// The key of a family's resident record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidentKey<'a> {
    /// The namespace that it belongs to.
    pub namespace: NamespaceId,
    /// The kind of record.
    pub kind: u8,
    rest: &'a [u8],
}

impl<'a> ResidentKey<'a> {
    /// The first kind byte of the family.
    pub(crate) fn family(self) -> u8 {
        self.kind & 0xf0
    }

    /// A parser of the part behind the kind.
    pub(crate) fn rest(self) -> KeyParser<'a> {
        KeyParser(self.rest)
    }
}

/// Parses a key from its beginning.
#[derive(Debug)]
pub(crate) struct KeyParser<'a>(&'a [u8]);

impl KeyParser<'_> {
    pub(crate) fn u32(&mut self) -> Option<u32> {
        let (head, tail) = self.0.split_first_chunk::<4>()?;
        self.0 = tail;
        Some(u32::from_be_bytes(*head))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        let (head, tail) = self.0.split_first_chunk::<8>()?;
        self.0 = tail;
        Some(u64::from_be_bytes(*head))
    }

    /// Returns `parsed` if the key ends here.
    pub(crate) fn end<T>(self, parsed: T) -> Option<T> {
        self.0.is_empty().then_some(parsed)
    }
}

/// The range of all resident records.
pub fn residents() -> Range<Bytes> {
    Bytes::from_static(&[RESIDENT])..Bytes::from_static(&[RESIDENT + 1])
}

/// The range of all paged records.
pub fn paged_records() -> Range<Bytes> {
    Bytes::from_static(&[PAGED])..Bytes::from_static(&[PAGED + 1])
}

/// The kind of a paged record. `None` if the key is not that of a paged record.
pub(crate) fn paged_kind(key: &[u8]) -> Option<u8> {
    match key {
        [PAGED, _, _, _, _, kind, ..] => Some(*kind),
        _ => None,
    }
}

/// The shard's own record.
pub fn shard_meta() -> Bytes {
    Bytes::from_static(&[RESIDENT, SHARD_META])
}

/// The mark of a shard that was restored from an older state: how often its positions must jump.
pub fn restored() -> Bytes {
    Bytes::from_static(&[RESIDENT, RESTORED])
}

/// A pending sweep.
pub fn sweep(id: u64) -> Bytes {
    Key::new(&[RESIDENT, SWEEP]).u64(id).into_bytes()
}

/// The beginning of the keys of the audit's records by time.
pub(crate) fn audit_by_time() -> Key {
    Key::new(&[AUDIT, 0])
}

/// The beginning of the keys of the audit's records by namespace.
pub(crate) fn audit_by_namespace() -> Key {
    Key::new(&[AUDIT, 1])
}

/// A namespace's own record.
pub fn namespace(id: NamespaceId) -> Key {
    resident(id, HEAD)
}

/// A kept reply, by the period of the reply, the owner of the idempotency key, and the key. No name contains a control
/// character, so the keys of different owners differ.
pub fn reply(id: NamespaceId, period: u32, owner: Option<&Name>, key: &Name) -> Key {
    let start = paged(id, REPLY).u32(period);
    let start = match owner {
        Some(owner) => start.bytes(owner.as_bytes()).bytes(&[1]),
        None => start,
    };
    start.bytes(key.as_bytes())
}

/// A part of a kept reply that is too large for one record. No idempotency key contains a zero byte, so the keys of parts and
/// of replies differ.
pub fn reply_part(id: NamespaceId, period: u32, owner: Option<&Name>, key: &Name, number: u32) -> Key {
    reply(id, period, owner, key).bytes(&[0]).u32(number)
}

/// The range of all replies of a period, with their parts.
pub fn replies(id: NamespaceId, period: u32) -> Range<Bytes> {
    paged(id, REPLY).u32(period).into_bytes()..paged(id, REPLY).u32(period + 1).into_bytes()
}

/// The beginning of the key of a namespace's resident record.
pub fn resident(id: NamespaceId, kind: u8) -> Key {
    Key::new(&[RESIDENT, NAMESPACE]).u32(id.0).bytes(&[kind])
}

/// The beginning of the key of a namespace's paged record.
pub fn paged(id: NamespaceId, kind: u8) -> Key {
    Key::new(&[PAGED]).u32(id.0).bytes(&[kind])
}

/// The beginning of the key of a record of one of a namespace's histories.
pub fn history(id: NamespaceId, kind: u8) -> Key {
    Key::new(&[HISTORY]).u32(id.0).bytes(&[kind])
}

/// The range of the paged records of a kind whose names follow `after`. Their keys end with a name.
pub(crate) fn paged_names_after(id: NamespaceId, kind: u8, after: Option<&Name>) -> Range<Bytes> {
    let from = match after {
        Some(name) => paged(id, kind).bytes(name.as_bytes()).bytes(&[0]),
        None => paged(id, kind),
    };
    from.into_bytes()..paged(id, kind + 1).into_bytes()
}

/// The name with which a paged record's key ends.
pub(crate) fn paged_name(key: &[u8]) -> Option<Name> {
    Name::new(core::str::from_utf8(key.get(6..)?).ok()?).ok()
}

/// The ranges of all records of a namespace: resident, paged, histories.
pub fn namespace_ranges(id: NamespaceId) -> [Range<Bytes>; 3] {
    let prefix =
        |first: &[u8]| Key::new(first).u32(id.0).into_bytes()..Key::new(first).u32(id.0 + 1).into_bytes();
    [prefix(&[RESIDENT, NAMESPACE]), prefix(&[PAGED]), prefix(&[HISTORY])]
}

/// The range of all pending sweeps.
pub fn sweeps() -> Range<Bytes> {
    Bytes::from_static(&[RESIDENT, SWEEP])..Bytes::from_static(&[RESIDENT, SWEEP + 1])
}

/// The range of the resident records of all namespaces from `id` on.
pub fn namespaces_from(id: NamespaceId) -> Range<Bytes> {
    Key::new(&[RESIDENT, NAMESPACE]).u32(id.0).into_bytes()..Bytes::from_static(&[RESIDENT, NAMESPACE + 1])
}

/// Splits the key of a namespace's record into the namespace's id and the key without it: the class, and what follows the id.
/// The key without the id is the same in every shard. `None` if the record belongs to no namespace.
pub fn split_namespace(key: &[u8]) -> Option<(NamespaceId, Key)> {
    let (class, rest) = match key {
        [RESIDENT, NAMESPACE, rest @ ..] => (RESIDENT, rest),
        [class @ (PAGED | HISTORY), rest @ ..] => (*class, rest),
        _ => return None,
    };
    let mut rest = KeyParser(rest);
    let id = NamespaceId(rest.u32()?);
    Some((id, Key::new(&[class]).bytes(rest.0)))
}

/// The opposite of [`split_namespace`]: the key of the record in the namespace `id`. `None` if the class is unknown.
pub fn with_namespace(id: NamespaceId, taken_out: &[u8]) -> Option<Key> {
    let (class, rest) = taken_out.split_first()?;
    let first = match *class {
        RESIDENT => Key::new(&[RESIDENT, NAMESPACE]),
        PAGED | HISTORY => Key::new(&[*class]),
        _ => return None,
    };
    Some(first.u32(id.0).bytes(rest))
}

/// Parses a resident record's key.
pub fn parse_resident(key: &[u8]) -> Option<Resident<'_>> {
    let (first, rest) = key.split_first_chunk::<2>()?;
    let mut rest = KeyParser(rest);
    match *first {
        [RESIDENT, SHARD_META] => rest.end(Resident::ShardMeta),
        [RESIDENT, RESTORED] => rest.end(Resident::Restored),
        [RESIDENT, SWEEP] => {
            let id = rest.u64()?;
            rest.end(Resident::Sweep(id))
        }
        [RESIDENT, NAMESPACE] => {
            let namespace = NamespaceId(rest.u32()?);
            match rest.0.split_first()? {
                (&HEAD, []) => Some(Resident::Namespace(namespace)),
                (&HEAD, _) => None,
                (&kind, rest) => Some(Resident::Family(ResidentKey { namespace, kind, rest })),
            }
        }
        _ => None,
    }
}

/// A key under construction. Most keys are short and need no allocation: each decision builds several.
#[derive(Debug, Clone)]
pub struct Key {
    short: [u8; Key::SHORT],
    length: usize,
    /// The whole key, if it is longer than `SHORT`.
    long: Vec<u8>,
}

impl Key {
    const SHORT: usize = 64;

    #[inline]
    fn new(first: &[u8]) -> Key {
        Key { short: [0; Key::SHORT], length: 0, long: Vec::new() }.bytes(first)
    }

    /// Appends bytes. Inlined like the other methods: if all lengths are known, building a key is then a few stores.
    #[inline]
    pub fn bytes(mut self, bytes: &[u8]) -> Key {
        let end = self.length + bytes.len();
        match self.short.get_mut(self.length..end) {
            Some(free) => free.copy_from_slice(bytes),
            None => self.lengthen(bytes),
        }
        self.length = end;
        self
    }

    #[cold]
    fn lengthen(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.length]);
        }
        self.long.extend_from_slice(bytes);
    }

    /// Appends a number, big-endian.
    #[inline]
    pub fn u32(self, number: u32) -> Key {
        self.bytes(&number.to_be_bytes())
    }

    /// Appends a number, big-endian.
    #[inline]
    pub fn u64(self, number: u64) -> Key {
        self.bytes(&number.to_be_bytes())
    }

    /// The finished key.
    pub fn into_bytes(self) -> Bytes {
        Bytes::copy_from_slice(&self)
    }
}

impl Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        if self.length <= Key::SHORT { &self.short[..self.length] } else { &self.long }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
pub(crate) fn family_record(key: &[u8]) -> Option<ResidentKey<'_>> {
    match parse_resident(key) {
        Some(Resident::Family(key)) => Some(key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_keys_are_parsed_as_they_were_made() {
        #[track_caller]
        fn check(key: &[u8], expect: Resident<'_>) {
            assert_eq!(parse_resident(key), Some(expect));
            assert!(residents().contains(key));
            assert_eq!(parse_resident(&key[..key.len() - 1]), None);
        }
        let id = NamespaceId(7);
        check(&shard_meta(), Resident::ShardMeta);
        check(&restored(), Resident::Restored);
        check(&sweep(9), Resident::Sweep(9));
        check(&namespace(id), Resident::Namespace(id));
        let record = resident(id, 0x21).u32(5);
        let parsed = ResidentKey { namespace: id, kind: 0x21, rest: &[0, 0, 0, 5] };
        assert_eq!(parse_resident(&record), Some(Resident::Family(parsed)));
        assert_eq!(parsed.family(), 0x20);
        assert!(residents().contains(&record[..]));
    }

    #[test]
    fn a_namespace_comes_before_what_it_holds_and_its_neighbours_stay_apart() {
        let (id, next) = (NamespaceId(7), NamespaceId(8));
        assert!(*namespace(id) < *resident(id, 0x10));
        let [residents, paged_ones, histories] = namespace_ranges(id);
        assert!(
            residents.contains(&namespace(id).into_bytes())
                && !residents.contains(&namespace(next).into_bytes())
        );
        let operation = |id| paged(id, 0x10).bytes(b"x").into_bytes();
        assert!(paged_ones.contains(&operation(id)) && !paged_ones.contains(&operation(next)));
        assert!(histories.contains(&history(id, 0xff).u32(u32::MAX).u64(u64::MAX).into_bytes()));
    }

    #[test]
    fn a_key_is_put_into_another_namespace() {
        #[track_caller]
        fn check(of: impl Fn(NamespaceId) -> Key) {
            let (id, taken_out) = split_namespace(&of(NamespaceId(7))).unwrap();
            assert_eq!(id, NamespaceId(7));
            assert_eq!(*with_namespace(NamespaceId(300), &taken_out).unwrap(), *of(NamespaceId(300)));
        }
        let name = Name::new(&"x".repeat(Name::MAX_BYTES)).unwrap();
        check(namespace);
        check(|id| resident(id, 0x10).u32(3));
        check(|id| paged(id, 0x10).bytes(name.as_bytes()));
        check(|id| history(id, 0x10).u32(3).u64(5));
        assert!(split_namespace(&shard_meta()).is_none() && split_namespace(&sweep(7)).is_none());
        assert!(split_namespace(&namespace(NamespaceId(7))[..5]).is_none());
        assert!(
            with_namespace(NamespaceId(7), &[]).is_none()
                && with_namespace(NamespaceId(7), &[HISTORY + 1, 0]).is_none()
        );
    }

    #[test]
    fn long_keys_are_as_whole_as_short_ones() {
        for length in [1, Key::SHORT - 7, Key::SHORT - 6, Key::SHORT - 5, Name::MAX_BYTES] {
            let name = Name::new(&"x".repeat(length)).unwrap();
            let key = paged(NamespaceId(7), 0x10).bytes(name.as_bytes());
            assert_eq!(*key, *[&[PAGED, 0, 0, 0, 7, 0x10][..], name.as_bytes()].concat());
            assert_eq!(paged_name(&key), Some(name));
        }
    }
}
