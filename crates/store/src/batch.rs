//! A batch of records as one run of bytes, which is what the journal carries.
//!
//! Layout, little endian: a format byte (1), the number of records (u32), then for each record the length of its key
//! (u32), the length of its value (u32, all ones where the record was removed), the key and the value. Each key stands
//! once. There is no checksum: the journal has one over everything that it carries.

use crate::Record;
use bytes::{BufMut, Bytes, BytesMut};

const FORMAT: u8 = 1;
const HEAD: usize = 5;
const RECORD_HEAD: usize = 8;
const REMOVED: u32 = u32::MAX;

/// One payload from records, each key once.
///
/// # Panics
///
/// When one key or value is four gigabytes long: that is a mistake of the caller, and what was written could not be
/// read again.
pub fn encode(records: &[Record]) -> Bytes {
    let size = records.iter().map(|record| RECORD_HEAD + length(record)).sum::<usize>() + HEAD;
    let mut out = BytesMut::with_capacity(size);
    out.put_u8(FORMAT);
    out.put_u32_le(u32::try_from(records.len()).expect("a batch holds fewer than 2^32 records"));
    for record in records {
        out.put_u32_le(u32::try_from(record.key.len()).expect("a key is shorter than 4 GiB"));
        match &record.value {
            Some(value) => {
                let length = u32::try_from(value.len()).ok().filter(|length| *length != REMOVED);
                out.put_u32_le(length.expect("a value is shorter than 4 GiB"));
            }
            None => out.put_u32_le(REMOVED),
        }
        out.put_slice(&record.key);
        if let Some(value) = &record.value {
            out.put_slice(value);
        }
    }
    out.freeze()
}

fn length(record: &Record) -> usize {
    record.key.len() + record.value.as_ref().map_or(0, Bytes::len)
}

/// Why a payload is not a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a batch of records, at byte {offset}: {problem}")]
pub struct Malformed {
    /// Where in the payload.
    pub offset: usize,
    /// What is wrong there.
    pub problem: &'static str,
}

/// The records of a payload, as slices of it: nothing is copied.
pub fn decode(payload: Bytes) -> Result<Vec<Record>, Malformed> {
    let mut cursor = Cursor { payload, offset: 0 };
    if cursor.take(1)?[0] != FORMAT {
        return Err(Malformed { offset: 0, problem: "unknown format" });
    }
    let count = cursor.number()?;
    // A damaged count must not make us reserve memory for records that cannot be there.
    let possible = (cursor.payload.len() - cursor.offset) / RECORD_HEAD;
    let mut records: Vec<Record> = Vec::with_capacity((count as usize).min(possible));
    for _ in 0..count {
        let key_length = cursor.number()?;
        let value_length = cursor.number()?;
        let key = cursor.take(key_length as usize)?;
        let value = match value_length {
            REMOVED => None,
            length => Some(cursor.take(length as usize)?),
        };
        records.push(Record { key, value });
    }
    match cursor.offset == cursor.payload.len() {
        true => Ok(records),
        false => Err(Malformed { offset: cursor.offset, problem: "more bytes than records" }),
    }
}

struct Cursor {
    payload: Bytes,
    offset: usize,
}

impl Cursor {
    fn take(&mut self, length: usize) -> Result<Bytes, Malformed> {
        match self.offset.checked_add(length).filter(|end| *end <= self.payload.len()) {
            Some(end) => {
                let taken = self.payload.slice(self.offset..end);
                self.offset = end;
                Ok(taken)
            }
            None => Err(Malformed { offset: self.offset, problem: "it ends too early" }),
        }
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(records: &[(&[u8], Option<&[u8]>)]) {
        let records: Vec<Record> = records
            .iter()
            .map(|(key, value)| Record {
                key: Bytes::copy_from_slice(key),
                value: value.map(Bytes::copy_from_slice),
            })
            .collect();
        let payload = encode(&records);
        assert_eq!(decode(payload.clone()).as_deref(), Ok(&records[..]));
        for end in 0..payload.len() {
            assert!(decode(payload.slice(..end)).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded_and_nothing_shorter_is() {
        check(&[]);
        check(&[(b"", Some(b""))]);
        check(&[(b"a", None), (b"ab", Some(b"value")), (b"b", Some(b""))]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), valid_start in any::<bool>()) {
            let mut bytes = bytes;
            if valid_start && !bytes.is_empty() { bytes[0] = FORMAT; }
            let _ = decode(bytes.into());
        }
    }
}
