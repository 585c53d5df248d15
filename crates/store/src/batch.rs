//! A batch of records in its encoded form: the payload of one append, and how records are kept in memory.
//!
//! Layout, little endian: a format byte (2), the number of records (u32), then for each record the length of its key
//! (u32; the highest bit is set if the record is the first one ever under its key), the length of its value (u32; all
//! ones if the record is removed), the key and the value. A key occurs once. There is no checksum, because the journal
//! has one over each frame.

use bytes::{BufMut, Bytes, BytesMut};

const FORMAT: u8 = 2;
const HEAD: usize = 5;
const RECORD_HEAD: usize = 8;
const REMOVED: u32 = u32::MAX;
const FIRST: u32 = 1 << 31;

/// Records in their encoded form. Cloning shares the bytes.
#[derive(Debug, Clone)]
pub struct Batch {
    payload: Bytes,
}

/// An after-image: the new value of a record under its key, or its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Records of a shard are sorted by the bytes of their keys.
    pub key: Bytes,
    /// The new value; `None` removes the record.
    pub value: Option<Bytes>,
}

impl Record {
    /// Borrows the record. `is_first` is false, because other records may have been under its key before.
    pub fn image(&self) -> RecordRef<'_> {
        RecordRef { key: &self.key, value: self.value.as_deref(), is_first: false }
    }
}

/// A borrowed after-image: the new value of a record under its key, or its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Records of a shard are sorted by the bytes of their keys.
    pub key: &'a [u8],
    /// The new value; `None` removes the record.
    pub value: Option<&'a [u8]>,
    /// True if no record has ever been under this key before this batch. If such a record is removed before the next
    /// checkpoint, the table never has to know of it.
    pub is_first: bool,
}

/// The offsets of a record within the payload of its batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    /// Offset of the key. The value follows the key.
    pub(crate) at: u32,
    pub(crate) key: u32,
    pub(crate) value: Option<u32>,
    pub(crate) is_first: bool,
}

impl Batch {
    /// Encodes records. No key may occur twice.
    ///
    /// # Panics
    ///
    /// If a key has 2 GiB or more, or the whole batch has 4 GiB or more. The lengths would not fit their fields, so the
    /// batch could not be read again.
    pub fn new<'a>(records: impl Iterator<Item = RecordRef<'a>> + Clone) -> Batch {
        // A record that was created and removed within this batch leaves no trace.
        let records = records.filter(|record| record.value.is_some() || !record.is_first);
        let (count, size) = (records.clone())
            .fold((0, HEAD), |(count, size), record| (count + 1, size + RECORD_HEAD + length(record)));
        u32::try_from(size).expect("a batch is shorter than 4 GiB");
        let mut out = BytesMut::with_capacity(size);
        out.put_u8(FORMAT);
        out.put_u32_le(count);
        for record in records {
            let key = u32::try_from(record.key.len()).ok().filter(|length| length & FIRST == 0);
            let key = key.expect("a key is shorter than 2 GiB");
            out.put_u32_le(if record.is_first { key | FIRST } else { key });
            out.put_u32_le(record.value.map_or(REMOVED, |value| value.len() as u32));
            out.put_slice(record.key);
            out.put_slice(record.value.unwrap_or_default());
        }
        Batch { payload: out.freeze() }
    }

    /// Checks that the bytes are a batch.
    pub fn decode(payload: Bytes) -> Result<Batch, Malformed> {
        let malformed = |offset, problem| Err(Malformed { offset, problem });
        if payload.first() != Some(&FORMAT) {
            return malformed(0, "unknown format");
        }
        let Some(count) = number(&payload, 1) else { return malformed(1, "it ends too early") };
        let mut end = HEAD;
        for _ in 0..count {
            match slot(&payload, end) {
                Some((_, next)) => end = next,
                None => return malformed(end, "it ends too early"),
            }
        }
        match end == payload.len() {
            true => Ok(Batch { payload }),
            false => malformed(end, "more bytes than records"),
        }
    }

    /// The encoded bytes, which are the payload of an append.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The records, in the order in which they were encoded.
    pub fn images(&self) -> impl Iterator<Item = RecordRef<'_>> {
        self.slots().map(|slot| slot.image(&self.payload))
    }

    /// The key of each record with its new value, or `None` if it is removed. They share the bytes of the batch.
    pub fn records(&self) -> impl Iterator<Item = (Bytes, Option<Bytes>)> {
        self.slots().map(|slot| {
            let value = (slot.at + slot.key) as usize;
            let length = slot.value.map(|length| length as usize);
            let key = self.payload.slice(slot.at as usize..value);
            (key, length.map(|length| self.payload.slice(value..value + length)))
        })
    }

    pub(crate) fn len(&self) -> usize {
        number(&self.payload, 1).expect("it was checked") as usize
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        let mut end = HEAD;
        std::iter::from_fn(move || {
            let (slot, next) = slot(&self.payload, end)?;
            end = next;
            Some(slot)
        })
    }
}

impl Slot {
    pub(crate) fn image(self, payload: &[u8]) -> RecordRef<'_> {
        let (key, after) = payload[self.at as usize..].split_at(self.key as usize);
        let value = self.value.map(|length| &after[..length as usize]);
        RecordRef { key, value, is_first: self.is_first }
    }
}

impl From<Vec<Record>> for Batch {
    fn from(records: Vec<Record>) -> Batch {
        Batch::new(records.iter().map(Record::image))
    }
}

fn length(record: RecordRef<'_>) -> usize {
    record.key.len() + record.value.map_or(0, <[u8]>::len)
}

fn number(payload: &[u8], at: usize) -> Option<u32> {
    let bytes = payload.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// The record whose header begins at offset `head`, and the offset of the next one. `None` if the payload ends before.
fn slot(payload: &[u8], head: usize) -> Option<(Slot, usize)> {
    let (key, value) = (number(payload, head)?, number(payload, head + 4)?);
    let value = (value != REMOVED).then_some(value);
    let at = head + RECORD_HEAD;
    let end = at.checked_add((key & !FIRST) as usize)?.checked_add(value.unwrap_or(0) as usize)?;
    let slot = Slot { at: u32::try_from(at).ok()?, key: key & !FIRST, value, is_first: key & FIRST != 0 };
    (end <= payload.len()).then_some((slot, end))
}

/// The payload is not a batch of records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a batch of records, at byte {offset}: {problem}")]
pub struct Malformed {
    /// Offset of the error in the payload.
    pub offset: usize,
    /// A description of the error.
    pub problem: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Key, value, and whether it is the first under the key.
    type Given<'a> = (&'a [u8], Option<&'a [u8]>, bool);

    fn check(records: &[Given<'_>]) {
        let image = |&(key, value, is_first)| RecordRef { key, value, is_first };
        let images: Vec<RecordRef<'_>> = records.iter().map(image).collect();
        let batch = Batch::new(images.iter().copied());
        let payload = batch.payload().clone();
        assert_eq!(batch.len(), records.len());
        assert_eq!(Batch::decode(payload.clone()).expect("a batch").images().collect::<Vec<_>>(), images);
        for end in 0..payload.len() {
            assert!(Batch::decode(payload.slice(..end)).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn batches_round_trip_and_truncated_ones_are_refused() {
        check(&[]);
        check(&[(b"", Some(b""), false)]);
        check(&[(b"a", None, false), (b"ab", Some(b"value"), true), (b"b", Some(b""), false)]);
    }

    #[test]
    fn records_created_and_removed_in_a_batch_are_left_out() {
        let gone = RecordRef { key: b"a", value: None, is_first: true };
        assert_eq!(Batch::new([gone].into_iter()).len(), 0);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), valid_start in any::<bool>()) {
            let mut bytes = bytes;
            if valid_start && !bytes.is_empty() { bytes[0] = FORMAT; }
            let _ = Batch::decode(bytes.into());
        }
    }
}
