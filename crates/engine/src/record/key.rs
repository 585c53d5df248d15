//! The keys of what is stored. They are ordered so that one scan loads everything resident, and so that one short
//! scan answers a page of a list.
//!
//! The first byte tells resident records from paged ones, and from those of histories, which are paged too and only ever
//! added to; then comes the namespace's id, then the kind of record.
//! Numbers are big-endian, so that their order is the bytes' order.

use crate::{Name, Position, Time};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::{Deref, Range};

const RESIDENT: u8 = 0x01;
const PAGED: u8 = 0x02;
/// Paged records that are written once, in the order of the number with which their keys end, and removed with their
/// whole namespace. The store makes use of that.
pub const HISTORY: u8 = 0x03;

const SHARD_META: u8 = 0x00;
const SWEEP: u8 = 0x01;
const NAMESPACE: u8 = 0x02;

const HEAD: u8 = 0x00;
const LEDGER_LIMIT: u8 = 0x10;
const LEDGER_BALANCE: u8 = 0x11;
const LEDGER_EXPIRY: u8 = 0x12;
const LIMITER_RULE: u8 = 0x20;
const LIMITER_OVERRIDE: u8 = 0x21;
const LIMITER_WINDOW: u8 = 0x22;
const LIMITER_COUNTER: u8 = 0x23;
const LIMITER_LEASE: u8 = 0x24;
const LOCK: u8 = 0x30;
const LOCK_LISTENERS: u8 = 0x31;
const EVENT_STREAM: u8 = 0x40;
const EVENT_KEY: u8 = 0x41;

const REPLY: u8 = 0x01;
const LEDGER_OPERATION: u8 = 0x10;
const LEDGER_OPEN: u8 = 0x11;
const EVENT_CHANGE: u8 = 0x40;

const LEDGER_ENTRY: u8 = 0x10;

/// A namespace's number within its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId(pub u32);

/// A resident record's key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resident {
    /// [`shard_meta`]
    ShardMeta,
    /// [`sweep`]
    Sweep(u64),
    /// [`namespace`]
    Namespace(NamespaceId),
    /// [`ledger_limit`]
    LedgerLimit(NamespaceId, u32),
    /// [`ledger_balance`]
    LedgerBalance(NamespaceId, u32),
    /// [`ledger_expiry`]
    LedgerExpiry(NamespaceId, Time, Position),
    /// [`limiter_rule`]
    LimiterRule(NamespaceId, Position),
    /// [`limiter_override`]
    LimiterOverride(NamespaceId, Position, Position),
    /// [`limiter_window`]
    LimiterWindow(NamespaceId, u32),
    /// [`limiter_counter`]
    LimiterCounter(NamespaceId, u32),
    /// [`limiter_lease`]
    LimiterLease(NamespaceId, Position),
    /// [`lock`]
    Lock(NamespaceId, Position),
    /// [`lock_listeners`]
    LockListeners(NamespaceId, Position),
    /// [`event_stream`]
    EventStream(NamespaceId, Position),
    /// [`event_key`]
    EventKey(NamespaceId, Position, Position),
}

/// All resident records.
pub fn residents() -> Range<Bytes> {
    Bytes::from_static(&[RESIDENT])..Bytes::from_static(&[RESIDENT + 1])
}

/// The shard's own record.
pub fn shard_meta() -> Bytes {
    Bytes::from_static(&[RESIDENT, SHARD_META])
}

/// A pending sweep.
pub fn sweep(id: u64) -> Bytes {
    Key::new(&[RESIDENT, SWEEP]).u64(id).done()
}

/// A namespace's own record.
pub fn namespace(id: NamespaceId) -> Key {
    resident(id, HEAD)
}

/// A ledger limit: its name, context and ceiling.
pub fn ledger_limit(id: NamespaceId, limit: u32) -> Key {
    resident(id, LEDGER_LIMIT).u32(limit)
}

/// A ledger limit's sums.
pub fn ledger_balance(id: NamespaceId, limit: u32) -> Key {
    resident(id, LEDGER_BALANCE).u32(limit)
}

/// A hold request that expires, by its due time.
pub fn ledger_expiry(id: NamespaceId, due: Time, held_at: Position) -> Key {
    resident(id, LEDGER_EXPIRY).u64(due.0).u64(held_at.0)
}

/// A limiter rule, by the change that made it.
pub fn limiter_rule(id: NamespaceId, rule: Position) -> Key {
    resident(id, LIMITER_RULE).u64(rule.0)
}

/// An override of a limiter rule, by the change that made it.
pub fn limiter_override(id: NamespaceId, rule: Position, item: Position) -> Key {
    resident(id, LIMITER_OVERRIDE).u64(rule.0).u64(item.0)
}

/// All overrides of a limiter rule.
pub fn limiter_overrides(id: NamespaceId, rule: Position) -> Range<Bytes> {
    let all = |rule: u64| resident(id, LIMITER_OVERRIDE).u64(rule).done();
    all(rule.0)..all(rule.0 + 1)
}

/// A window's state, by its place among all groups.
pub fn limiter_window(id: NamespaceId, place: u32) -> Key {
    resident(id, LIMITER_WINDOW).u32(place)
}

/// A counter, by its place among all counters.
pub fn limiter_counter(id: NamespaceId, place: u32) -> Key {
    resident(id, LIMITER_COUNTER).u32(place)
}

/// A lease, by its fencing token.
pub fn limiter_lease(id: NamespaceId, token: Position) -> Key {
    resident(id, LIMITER_LEASE).u64(token.0)
}

/// A lock that is held, by its fencing token.
pub fn lock(id: NamespaceId, token: Position) -> Key {
    resident(id, LOCK).u64(token.0)
}

/// The requests that were answered with the lock of this fencing token.
pub fn lock_listeners(id: NamespaceId, token: Position) -> Key {
    resident(id, LOCK_LISTENERS).u64(token.0)
}

/// A stream of events, by the change that made it.
pub fn event_stream(id: NamespaceId, stream: Position) -> Key {
    resident(id, EVENT_STREAM).u64(stream.0)
}

/// A key that a stream remembers, by the change since which it does.
pub fn event_key(id: NamespaceId, stream: Position, key: Position) -> Key {
    resident(id, EVENT_KEY).u64(stream.0).u64(key.0)
}

/// All keys that a stream remembers.
pub fn event_keys(id: NamespaceId, stream: Position) -> Range<Bytes> {
    let all = |stream: u64| resident(id, EVENT_KEY).u64(stream).done();
    all(stream.0)..all(stream.0 + 1)
}

/// A kept change of a stream of events, by its clock.
pub fn event_change(id: NamespaceId, stream: Position, clock: u64) -> Key {
    paged(id, EVENT_CHANGE).u64(stream.0).u64(clock)
}

/// All kept changes of a stream of events.
pub fn event_changes(id: NamespaceId, stream: Position) -> Range<Bytes> {
    let all = |stream: u64| paged(id, EVENT_CHANGE).u64(stream).done();
    all(stream.0)..all(stream.0 + 1)
}

/// A kept reply, by the period in which it was given.
pub fn reply(id: NamespaceId, period: u32, key: &Name) -> Key {
    paged(id, REPLY).u32(period).bytes(key.as_bytes())
}

/// All replies of a period.
pub fn replies(id: NamespaceId, period: u32) -> Range<Bytes> {
    paged(id, REPLY).u32(period).done()..paged(id, REPLY).u32(period + 1).done()
}

/// A ledger operation.
pub fn ledger_operation(id: NamespaceId, operation: &Name) -> Key {
    paged(id, LEDGER_OPERATION).bytes(operation.as_bytes())
}

/// All ledger operations that follow the given one, by id.
pub fn ledger_operations_after(id: NamespaceId, after: Option<&Name>) -> Range<Bytes> {
    after_name(id, LEDGER_OPERATION, after)
}

/// The mark of a ledger operation with at least one open hold.
pub fn ledger_open(id: NamespaceId, operation: &Name) -> Key {
    paged(id, LEDGER_OPEN).bytes(operation.as_bytes())
}

/// All open marks that follow the given operation's, by id.
pub fn ledger_open_after(id: NamespaceId, after: Option<&Name>) -> Range<Bytes> {
    after_name(id, LEDGER_OPEN, after)
}

/// The operation id in the key of an operation or of its open mark.
pub fn ledger_operation_id(key: &[u8]) -> Option<Name> {
    Name::new(core::str::from_utf8(key.get(6..)?).ok()?).ok()
}

/// An entry of a ledger limit's history.
pub fn ledger_entry(id: NamespaceId, limit: u32, position: Position) -> Key {
    ledger_entries(id, limit).u64(position.0)
}

/// A ledger limit's entries at or after the given position.
pub fn ledger_entries_from(id: NamespaceId, limit: u32, from: Position) -> Range<Bytes> {
    ledger_entry(id, limit, from).done()..ledger_entries(id, limit + 1).done()
}

fn ledger_entries(id: NamespaceId, limit: u32) -> Key {
    Key::new(&[HISTORY]).u32(id.0).bytes(&[LEDGER_ENTRY]).u32(limit)
}

/// The position in an entry's key.
pub fn ledger_entry_position(key: &[u8]) -> Option<Position> {
    Some(Position(u64::from_be_bytes(key.get(10..18)?.try_into().ok()?)))
}

/// Everything of a namespace: its resident records, its paged ones and its histories.
pub fn all_of_namespace(id: NamespaceId) -> [Range<Bytes>; 3] {
    let prefix = |first: &[u8]| Key::new(first).u32(id.0).done()..Key::new(first).u32(id.0 + 1).done();
    [prefix(&[RESIDENT, NAMESPACE]), prefix(&[PAGED]), prefix(&[HISTORY])]
}

/// All pending sweeps.
pub fn sweeps() -> Range<Bytes> {
    Bytes::from_static(&[RESIDENT, SWEEP])..Bytes::from_static(&[RESIDENT, SWEEP + 1])
}

/// The resident records of all namespaces from the given one on.
pub fn namespaces_from(id: NamespaceId) -> Range<Bytes> {
    Key::new(&[RESIDENT, NAMESPACE]).u32(id.0).done()..Bytes::from_static(&[RESIDENT, NAMESPACE + 1])
}

/// The namespace in the key of one of its records, and the key without it: its first byte, and what follows the
/// namespace. That is the same in whichever shard the namespace lives.
pub fn take_out(key: &[u8]) -> Option<(NamespaceId, Key)> {
    let (class, mut rest) = match key {
        [RESIDENT, NAMESPACE, rest @ ..] => (RESIDENT, rest),
        [class @ (PAGED | HISTORY), rest @ ..] => (*class, rest),
        _ => return None,
    };
    let id = NamespaceId(take_u32(&mut rest)?);
    Some((id, Key::new(&[class]).bytes(rest)))
}

/// The opposite of [`take_out`]: the key that a record has in the namespace.
pub fn put_in(id: NamespaceId, taken_out: &[u8]) -> Option<Key> {
    let (class, rest) = taken_out.split_first()?;
    let first = match *class {
        RESIDENT => Key::new(&[RESIDENT, NAMESPACE]),
        PAGED | HISTORY => Key::new(&[*class]),
        _ => return None,
    };
    Some(first.u32(id.0).bytes(rest))
}

/// Takes a resident record's key apart.
pub fn parse_resident(key: &[u8]) -> Option<Resident> {
    let (first, mut rest) = (key.get(..2)?, key.get(2..)?);
    let parsed = match first {
        [RESIDENT, SHARD_META] => Resident::ShardMeta,
        [RESIDENT, SWEEP] => Resident::Sweep(take_u64(&mut rest)?),
        [RESIDENT, NAMESPACE] => {
            let id = NamespaceId(take_u32(&mut rest)?);
            let (kind, after) = rest.split_first()?;
            rest = after;
            match *kind {
                HEAD => Resident::Namespace(id),
                LEDGER_LIMIT => Resident::LedgerLimit(id, take_u32(&mut rest)?),
                LEDGER_BALANCE => Resident::LedgerBalance(id, take_u32(&mut rest)?),
                LEDGER_EXPIRY => {
                    Resident::LedgerExpiry(id, Time(take_u64(&mut rest)?), Position(take_u64(&mut rest)?))
                }
                LIMITER_RULE => Resident::LimiterRule(id, Position(take_u64(&mut rest)?)),
                LIMITER_OVERRIDE => {
                    let rule = Position(take_u64(&mut rest)?);
                    Resident::LimiterOverride(id, rule, Position(take_u64(&mut rest)?))
                }
                LIMITER_WINDOW => Resident::LimiterWindow(id, take_u32(&mut rest)?),
                LIMITER_COUNTER => Resident::LimiterCounter(id, take_u32(&mut rest)?),
                LIMITER_LEASE => Resident::LimiterLease(id, Position(take_u64(&mut rest)?)),
                LOCK => Resident::Lock(id, Position(take_u64(&mut rest)?)),
                LOCK_LISTENERS => Resident::LockListeners(id, Position(take_u64(&mut rest)?)),
                EVENT_STREAM => Resident::EventStream(id, Position(take_u64(&mut rest)?)),
                EVENT_KEY => {
                    let stream = Position(take_u64(&mut rest)?);
                    Resident::EventKey(id, stream, Position(take_u64(&mut rest)?))
                }
                _ => return None,
            }
        }
        _ => return None,
    };
    rest.is_empty().then_some(parsed)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    let (head, tail) = rest.split_first_chunk::<4>()?;
    *rest = tail;
    Some(u32::from_be_bytes(*head))
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    let (head, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_be_bytes(*head))
}

fn resident(id: NamespaceId, kind: u8) -> Key {
    Key::new(&[RESIDENT, NAMESPACE]).u32(id.0).bytes(&[kind])
}

fn paged(id: NamespaceId, kind: u8) -> Key {
    Key::new(&[PAGED]).u32(id.0).bytes(&[kind])
}

fn after_name(id: NamespaceId, kind: u8, after: Option<&Name>) -> Range<Bytes> {
    let from = match after {
        Some(name) => paged(id, kind).bytes(name.as_bytes()).bytes(&[0]),
        None => paged(id, kind),
    };
    from.done()..paged(id, kind + 1).done()
}

/// A key. Most are short and need no allocation: there are several for each decision.
#[derive(Debug, Clone)]
pub struct Key {
    short: [u8; Key::SHORT],
    length: usize,
    /// All of it, where it is longer.
    long: Vec<u8>,
}

impl Key {
    const SHORT: usize = 64;

    #[inline]
    fn new(first: &[u8]) -> Key {
        Key { short: [0; Key::SHORT], length: 0, long: Vec::new() }.bytes(first)
    }

    /// Inlined, as the others here: where all lengths are known, a key is then a few stores.
    #[inline]
    fn bytes(mut self, bytes: &[u8]) -> Key {
        let end = self.length + bytes.len();
        match self.short.get_mut(self.length..end) {
            Some(place) => place.copy_from_slice(bytes),
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

    #[inline]
    fn u32(self, number: u32) -> Key {
        self.bytes(&number.to_be_bytes())
    }

    #[inline]
    fn u64(self, number: u64) -> Key {
        self.bytes(&number.to_be_bytes())
    }

    /// The key as bytes of its own.
    pub fn done(self) -> Bytes {
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
mod tests {
    use super::*;

    #[test]
    fn resident_keys_are_taken_apart_as_they_were_made() {
        #[track_caller]
        fn check(key: Bytes, expect: Resident) {
            assert_eq!(parse_resident(&key), Some(expect));
            assert!(residents().contains(&key));
            assert_eq!(parse_resident(&key[..key.len() - 1]), None);
        }
        let id = NamespaceId(7);
        assert_eq!(parse_resident(&shard_meta()), Some(Resident::ShardMeta));
        assert!(residents().contains(&shard_meta()));
        check(sweep(9), Resident::Sweep(9));
        check(namespace(id).done(), Resident::Namespace(id));
        check(ledger_limit(id, 3).done(), Resident::LedgerLimit(id, 3));
        check(ledger_balance(id, 3).done(), Resident::LedgerBalance(id, 3));
        check(
            ledger_expiry(id, Time(5), Position(6)).done(),
            Resident::LedgerExpiry(id, Time(5), Position(6)),
        );
        check(limiter_rule(id, Position(5)).done(), Resident::LimiterRule(id, Position(5)));
        let item = Resident::LimiterOverride(id, Position(5), Position(6));
        check(limiter_override(id, Position(5), Position(6)).done(), item);
        assert!(
            limiter_overrides(id, Position(5))
                .contains(&limiter_override(id, Position(5), Position(6)).done())
        );
        assert!(
            !limiter_overrides(id, Position(5))
                .contains(&limiter_override(id, Position(6), Position(6)).done())
        );
        check(limiter_window(id, 5).done(), Resident::LimiterWindow(id, 5));
        check(limiter_counter(id, 5).done(), Resident::LimiterCounter(id, 5));
        check(limiter_lease(id, Position(5)).done(), Resident::LimiterLease(id, Position(5)));
        check(lock(id, Position(5)).done(), Resident::Lock(id, Position(5)));
        check(lock_listeners(id, Position(5)).done(), Resident::LockListeners(id, Position(5)));
        check(event_stream(id, Position(5)).done(), Resident::EventStream(id, Position(5)));
        let key = Resident::EventKey(id, Position(5), Position(6));
        check(event_key(id, Position(5), Position(6)).done(), key);
    }

    #[test]
    fn a_namespace_comes_before_what_it_holds_and_its_neighbours_stay_apart() {
        let (id, next) = (NamespaceId(7), NamespaceId(8));
        assert!(*namespace(id) < *ledger_limit(id, 0));
        assert!(*ledger_limit(id, u32::MAX) < *ledger_balance(id, 0));
        let [resident, paged, histories] = all_of_namespace(id);
        let name = Name::new("x").unwrap();
        assert!(resident.contains(&namespace(id).done()) && !resident.contains(&namespace(next).done()));
        assert!(
            paged.contains(&ledger_operation(id, &name).done())
                && !paged.contains(&ledger_operation(next, &name).done())
        );
        assert!(histories.contains(&ledger_entry(id, u32::MAX - 1, Position(u64::MAX)).done()));
        assert_eq!(ledger_operation_id(&ledger_open(id, &name)), Some(name));
        assert_eq!(ledger_entry_position(&ledger_entry(id, 1, Position(77))), Some(Position(77)));
    }

    #[test]
    fn a_key_is_put_into_another_namespace() {
        #[track_caller]
        fn check(of: impl Fn(NamespaceId) -> Key) {
            let (id, taken_out) = take_out(&of(NamespaceId(7))).unwrap();
            assert_eq!(id, NamespaceId(7));
            assert_eq!(*put_in(NamespaceId(300), &taken_out).unwrap(), *of(NamespaceId(300)));
        }
        let name = Name::new(&"x".repeat(Name::MAX_BYTES)).unwrap();
        check(namespace);
        check(|id| ledger_limit(id, 3));
        check(|id| ledger_operation(id, &name));
        check(|id| ledger_entry(id, 3, Position(5)));
        assert!(take_out(&shard_meta()).is_none() && take_out(&sweep(7)).is_none());
        assert!(take_out(&namespace(NamespaceId(7))[..5]).is_none());
        assert!(put_in(NamespaceId(7), &[]).is_none() && put_in(NamespaceId(7), &[HISTORY + 1, 0]).is_none());
    }

    #[test]
    fn long_keys_are_as_whole_as_short_ones() {
        for length in [1, Key::SHORT - 7, Key::SHORT - 6, Key::SHORT - 5, Name::MAX_BYTES] {
            let name = Name::new(&"x".repeat(length)).unwrap();
            let key = ledger_operation(NamespaceId(7), &name);
            assert_eq!(*key, *[&[PAGED, 0, 0, 0, 7, LEDGER_OPERATION][..], name.as_bytes()].concat());
            assert_eq!(ledger_operation_id(&key), Some(name));
        }
    }
}
