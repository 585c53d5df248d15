//! Records in memory, and what they weigh.

use crate::{Record, Records};
use bytes::Bytes;

/// What an entry of the map costs beside its bytes, about.
const ENTRY_BYTES: usize = 96;

/// The records since the last checkpoint: one for each key, the newest.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    records: Records,
    bytes: usize,
}

impl Overlay {
    pub(super) fn insert(&mut self, record: Record) {
        let key = record.key.len();
        self.bytes += weight(key, &record.value);
        if let Some(old) = self.records.insert(record.key, record.value) {
            self.bytes -= weight(key, &old);
        }
    }

    pub(super) fn records(&self) -> &Records {
        &self.records
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is there and what it weighs; nothing stays.
    pub(super) fn take(&mut self) -> (Records, usize) {
        let next = Overlay { records: self.records.next(), bytes: 0 };
        let Overlay { records, bytes } = std::mem::replace(self, next);
        (records, bytes)
    }
}

fn weight(key: usize, value: &Option<Bytes>) -> usize {
    ENTRY_BYTES + key + value.as_ref().map_or(0, Bytes::len)
}

/// A record that was cut out of a payload of this length, fit to be kept.
///
/// A slice keeps its whole payload alive. One that is at least a quarter of it may do so; anything smaller is copied, key
/// and value into one allocation. So what is kept never takes more than four times its own size.
pub(super) fn detached(record: Record, payload: usize) -> Record {
    let key = record.key.len();
    let size = key + record.value.as_ref().map_or(0, Bytes::len);
    if size >= payload / 4 {
        return record;
    }
    let mut copy = Vec::with_capacity(size);
    copy.extend_from_slice(&record.key);
    copy.extend_from_slice(record.value.as_deref().unwrap_or_default());
    let copy = Bytes::from(copy);
    Record { key: copy.slice(..key), value: record.value.map(|_| copy.slice(key..)) }
}
