//! Histories, and the runs in which a table stores them.
//!
//! A *history* is a sequence of records that only grows. The keys of its records differ only in their last eight bytes,
//! which are a big-endian number. Between two checkpoints many records are added to the same history, and they are
//! neighbours in the order of keys. A table stores such neighbours as one record, a *run*, so that it has far fewer
//! records to sort, index and compact. Code above the table never sees runs.
//!
//! A run is stored under the key of its first record. Its value contains, for each of its records, the number from the
//! key (8 bytes, big-endian), the length of the value (4 bytes, little-endian) and the value. The records from the
//! first one on determine where a run ends. So if a checkpoint is repeated with more records at the end, it replaces
//! the runs that it had written before.

use crate::RecordRef;
use bytes::{Bytes, BytesMut};
use std::borrow::Cow;

/// The first byte of the keys of histories. A caller that writes such keys promises that
///
/// - each key is written once, above all other keys of its history, and no key of another kind lies between two of the
///   same history;
/// - records are removed from the first one on, and a caller that removes one removes all of them. Until it has,
///   look-ups may find more or fewer of the remaining records.
pub const HISTORY: u8 = 0x03;

/// A look-up reads a whole run, so runs must be short.
const MAX_RECORDS: usize = 256;
const MAX_BYTES: usize = 16 << 10;
const NUMBER: usize = 8;
const LENGTH: usize = 4;

/// A key and its value in the table. `None` removes the key.
pub(crate) type Stored<'a> = (&'a [u8], Option<Cow<'a, [u8]>>);

/// Whether the key belongs to a history.
pub(crate) fn is_history(key: &[u8]) -> bool {
    key.first() == Some(&HISTORY)
}

/// Packs sorted records into the form in which a table stores them.
pub(crate) fn pack<'a>(sorted: impl Iterator<Item = RecordRef<'a>>) -> impl Iterator<Item = Stored<'a>> {
    let mut sorted = sorted.peekable();
    std::iter::from_fn(move || {
        let first = sorted.next()?;
        let (Some(value), Some(prefix)) = (first.value, prefix(first.key)) else {
            return Some((first.key, first.value.map(Cow::Borrowed)));
        };
        let mut run = Vec::new();
        add(&mut run, first.key, value);
        for _ in 1..MAX_RECORDS {
            let fits = |next: &RecordRef<'_>| {
                let value = next.value.filter(|value| run.len() + NUMBER + LENGTH + value.len() <= MAX_BYTES);
                value.is_some() && self::prefix(next.key) == Some(prefix)
            };
            let Some(RecordRef { key, value: Some(value), .. }) = sorted.next_if(fits) else { break };
            add(&mut run, key, value);
        }
        Some((first.key, Some(run.into())))
    })
}

/// The common part of all keys of a history; `None` if the key does not belong to one.
fn prefix(key: &[u8]) -> Option<&[u8]> {
    is_history(key).then(|| key.split_last_chunk::<NUMBER>()).flatten().map(|(prefix, _)| prefix)
}

fn add(run: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    run.extend_from_slice(&key[key.len() - NUMBER..]);
    run.extend_from_slice(&u32::try_from(value.len()).expect("it was in a batch").to_le_bytes());
    run.extend_from_slice(value);
}

/// Unpacks a record of the table: the members of a run, or the record itself. `None` if it should be a run and is not.
pub(crate) fn unpack(key: Bytes, value: Bytes) -> Option<Vec<(Bytes, Bytes)>> {
    let Some(prefix) = prefix(&key) else { return Some(vec![(key, value)]) };
    let mut unpacked = Vec::new();
    for member in Members::of(&key, &value) {
        let (number, member) = member?;
        unpacked.push((member_key(prefix, number), value.slice_ref(member)));
    }
    (!unpacked.is_empty()).then_some(unpacked)
}

/// The last member of a run with `from <= key <= at`. `Some(None)` if there is none, and `None` if it is not a run.
///
/// It copies this member only. With [`unpack`], a look-up spent most of its time on allocations for the others.
pub(crate) fn last_at_or_before(
    key: &[u8],
    run: &[u8],
    from: &[u8],
    at: &[u8],
) -> Option<Option<(Bytes, Bytes)>> {
    let prefix = prefix(key)?;
    let mut last = None;
    for member in Members::of(key, run) {
        let (number, value) = member?;
        let order = |bound: &[u8]| prefix.iter().chain(number).cmp(bound);
        if order(at).is_le() && order(from).is_ge() {
            last = Some((number, value));
        }
    }
    let copy =
        |(number, value): (&[u8; NUMBER], &[u8])| (member_key(prefix, number), Bytes::copy_from_slice(value));
    Some(last.map(copy))
}

/// Whether the run has a member at `at` or behind it. `at` is a key of the same history that is not before the run's own.
pub(crate) fn reaches(key: &[u8], run: &[u8], at: &[u8]) -> bool {
    let last = Members::of(key, run).flatten().last();
    at.last_chunk().zip(last).is_some_and(|(at, (number, _))| at <= number)
}

/// The least key of the history of a key.
pub(crate) fn first_key(key: &[u8]) -> Vec<u8> {
    let mut first = key.to_vec();
    let number = first.len().saturating_sub(NUMBER);
    first[number..].fill(0);
    first
}

/// Whether both keys belong to the same history.
pub(crate) fn is_same_history(key: &[u8], other: &[u8]) -> bool {
    prefix(key).is_some_and(|history| prefix(other) == Some(history))
}

/// The numbers and values of a run. An item is `None` if the run is damaged: the first member has the run's key, and members are
/// sorted.
struct Members<'a> {
    key: &'a [u8],
    rest: &'a [u8],
    before: Option<&'a [u8; NUMBER]>,
}

impl<'a> Members<'a> {
    fn of(key: &'a [u8], run: &'a [u8]) -> Members<'a> {
        Members { key, rest: run, before: None }
    }

    fn take(&mut self) -> Option<(&'a [u8; NUMBER], &'a [u8])> {
        let (number, rest) = self.rest.split_first_chunk::<NUMBER>()?;
        let (length, rest) = rest.split_first_chunk::<LENGTH>()?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let is_in_place = self.before.map_or(self.key.ends_with(number), |before| before < number);
        (self.rest, self.before) = (rest, Some(number));
        is_in_place.then_some((number, value))
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Option<(&'a [u8; NUMBER], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let member = self.take();
        if member.is_none() {
            self.rest = &[];
        }
        Some(member)
    }
}

fn member_key(prefix: &[u8], number: &[u8; NUMBER]) -> Bytes {
    let mut key = BytesMut::with_capacity(prefix.len() + NUMBER);
    key.extend_from_slice(prefix);
    key.extend_from_slice(number);
    key.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(history: u8, number: u64) -> Vec<u8> {
        [&[HISTORY, history][..], &number.to_be_bytes()].concat()
    }

    /// Packs the records and compares the number of records in each stored one; unpacking must return what was packed.
    #[track_caller]
    fn check(records: &[(Vec<u8>, Option<Vec<u8>>)], expect: &[usize]) {
        let image = |(key, value): &'_ (Vec<u8>, Option<Vec<u8>>)| (key.clone(), value.clone());
        let images =
            records.iter().map(|(key, value)| RecordRef { key, value: value.as_deref(), is_first: false });
        let mut counts = Vec::new();
        let mut unpacked = Vec::new();
        for (key, value) in pack(images) {
            let Some(value) = value else {
                counts.push(0);
                unpacked.push((key.to_vec(), None));
                continue;
            };
            assert!(value.len() <= MAX_BYTES || counts.len() == records.len() - 1);
            let members = unpack(Bytes::copy_from_slice(key), Bytes::copy_from_slice(&value)).expect("a run");
            counts.push(members.len());
            unpacked.extend(members.into_iter().map(|(key, value)| (key.to_vec(), Some(value.to_vec()))));
        }
        assert_eq!(unpacked, records.iter().map(image).collect::<Vec<_>>());
        assert_eq!(counts, expect);
    }

    #[test]
    fn neighbours_of_a_history_are_packed_and_others_are_not() {
        let value = |length: usize| Some(vec![7; length]);
        check(&[], &[]);
        check(&[(vec![2, 1], value(1)), (vec![2, 2], None), (vec![4], value(0))], &[1, 0, 1]);
        check(&[(key(1, 1), value(3)), (key(1, 2), value(0)), (key(2, 1), value(1))], &[2, 1]);
        check(
            &[(key(1, 1), None), (key(1, 2), None), (key(1, 3), value(1)), (key(1, 9), value(1))],
            &[0, 0, 2],
        );
        // Too short for a number, so these are ordinary records.
        check(&[(vec![HISTORY], value(1)), (vec![HISTORY, 0], value(1)), (key(0, 0), value(1))], &[1, 1, 1]);
    }

    #[test]
    fn runs_are_short() {
        let many: Vec<_> = (0..600).map(|number| (key(1, number), Some(vec![1]))).collect();
        check(&many, &[256, 256, 88]);
        let long: Vec<_> = (0..5).map(|number| (key(1, number), Some(vec![1; MAX_BYTES / 2 - 12]))).collect();
        check(&long, &[2, 2, 1]);
        check(&[(key(1, 1), Some(vec![1; MAX_BYTES]))], &[1]);
    }

    #[test]
    fn the_last_member_up_to_a_key_is_found() {
        let records: Vec<(Vec<u8>, Vec<u8>)> =
            [3, 5, 9].into_iter().map(|number| (key(1, number), vec![number as u8])).collect();
        let images =
            records.iter().map(|(key, value)| RecordRef { key, value: Some(value), is_first: false });
        let (first, run) = pack(images).next().expect("one run");
        let run = run.expect("a value");
        let check = |from: u64, at: u64, expect: Option<u64>, is_reached: bool| {
            let found = last_at_or_before(first, &run, &key(1, from), &key(1, at)).expect("a run");
            let expect = expect.map(|number| (key(1, number).into(), vec![number as u8].into()));
            assert_eq!(found, expect, "{from} to {at}");
            assert_eq!(reaches(first, &run, &key(1, at)), is_reached, "{at}");
        };
        check(0, 3, Some(3), true);
        check(0, 4, Some(3), true);
        check(4, 4, None, true);
        check(4, 8, Some(5), true);
        check(0, 9, Some(9), true);
        check(0, u64::MAX, Some(9), false);
        check(10, u64::MAX, None, false);
        assert_eq!(last_at_or_before(first, &run[1..], &key(1, 0), &key(1, 9)), None);
        assert!(is_same_history(&key(1, 0), &key(1, 9)) && !is_same_history(&key(1, 0), &key(2, 0)));
        assert_eq!(first_key(&key(1, 9)), key(1, 0));
    }

    #[test]
    fn bytes_that_are_no_run_are_refused() {
        let images = [RecordRef { key: &key(1, 1), value: Some(b"one"), is_first: false }];
        let (_, run) = pack(images.into_iter()).next().expect("one run");
        let run = Bytes::from(run.expect("a value").into_owned());
        let check = |number: u64, bytes: Bytes, expect: bool| {
            assert_eq!(unpack(key(1, number).into(), bytes).is_some(), expect);
        };
        check(1, run.clone(), true);
        check(2, run.clone(), false);
        check(1, [run.clone(), run.clone()].concat().into(), false);
        for end in 0..run.len() {
            check(1, run.slice(..end), false);
        }
    }
}
