//! Reads of stored records that are not resident.
//!
//! A command reads through a `Reader`. If a record is not fetched yet, the reader notes it, and the command stops before it has
//! changed anything. The shard fetches the noted records and runs the command again.

use crate::{
    recent::{RecentWrites, Writes},
    record,
};
use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use bytes::Bytes;
use core::cell::RefCell;
use hashbrown::HashMap;
use serde::de::DeserializeOwned;

/// One look-up among the stored records.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// The record under this key.
    Get(Bytes),
    /// The last record with `from <= key <= at`.
    LastAtOrBefore {
        /// The first key of the range.
        from: Bytes,
        /// The last key of the range.
        at: Bytes,
    },
    /// The first `limit` records with `from <= key < to`.
    Scan {
        /// The first key of the range.
        from: Bytes,
        /// The first key behind the range.
        to: Bytes,
        /// The largest number of records.
        limit: usize,
    },
}

/// The result of a [`Read`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadResult {
    /// For [`Read::Get`].
    Value(Option<Bytes>),
    /// For [`Read::LastAtOrBefore`].
    Last(Option<(Bytes, Bytes)>),
    /// For [`Read::Scan`].
    Page(Vec<(Bytes, Bytes)>),
    /// The store failed to read the record.
    Unreadable,
}

/// The records that must be fetched before the command can run.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing(pub Vec<Read>);

/// The results fetched for a round of commands. They must be read after all batches before the last sealed one are durable:
/// the engine itself remembers the last sealed batch and the one being built, but no earlier one.
#[derive(Debug, Default)]
pub struct Fetched {
    /// The results of [`Read::Get`], by key.
    values: HashMap<Bytes, ReadResult>,
    others: HashMap<Read, ReadResult>,
}

impl Fetched {
    /// Adds a result.
    pub fn insert(&mut self, read: Read, answer: ReadResult) {
        match read {
            Read::Get(key) => self.values.insert(key, answer),
            other => self.others.insert(other, answer),
        };
    }

    /// Whether there is a result of this read.
    pub fn contains(&self, read: &Read) -> bool {
        match read {
            Read::Get(key) => self.values.contains_key(key),
            other => self.others.contains_key(other),
        }
    }

    /// Removes all results. Must be called before the next round, because they are out of date then.
    pub fn clear(&mut self) {
        self.values.clear();
        self.others.clear();
    }
}

/// Why a record cannot be read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The record is not fetched yet. The reader has noted it.
    NotFetched,
    /// The store failed to read the record, or the record is damaged.
    Unreadable,
}

/// Finds stored records: first in the batch being built, then in the sealed batch, then among the fetched results. So a
/// fetched "not found" never hides a newer record.
pub(crate) struct Reader<'a> {
    building: &'a RecentWrites,
    sealed: &'a RecentWrites<Arc<Writes>>,
    fetched: &'a Fetched,
    missing: RefCell<Vec<Read>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        building: &'a RecentWrites,
        sealed: &'a RecentWrites<Arc<Writes>>,
        fetched: &'a Fetched,
    ) -> Reader<'a> {
        Reader { building, sealed, fetched, missing: RefCell::new(Vec::new()) }
    }

    /// The reads that were needed and not fetched.
    pub(crate) fn into_missing(self) -> Missing {
        Missing(self.missing.into_inner())
    }

    /// The record under `key`, decoded.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: impl AsRef<[u8]>) -> Result<Option<T>, ReadError> {
        self.get_bytes(key.as_ref())?.map(decode).transpose()
    }

    /// The first fields of the record under `key`, decoded. This takes less time than decoding all of it.
    pub(crate) fn get_first<T: DeserializeOwned>(
        &self,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<T>, ReadError> {
        let decode = |bytes| record::decode_first(bytes).map(|(fields, _)| fields);
        self.get_bytes(key.as_ref())?.map(decode).transpose().map_err(|_| ReadError::Unreadable)
    }

    fn get_bytes(&self, key: &[u8]) -> Result<Option<&'a [u8]>, ReadError> {
        match self.building.get(self.sealed, key) {
            Some(recent) => Ok(recent),
            None => match self.fetched_value(key)? {
                ReadResult::Value(value) => Ok(value.as_deref()),
                _ => Err(ReadError::Unreadable),
            },
        }
    }

    /// The last record with `from <= key <= at`, decoded, with its key. Records that are read this way are never removed one by
    /// one, so the largest key of all layers is the result.
    pub(crate) fn last_at_or_before<T: DeserializeOwned>(
        &self,
        from: Bytes,
        at: Bytes,
    ) -> Result<Option<(Bytes, T)>, ReadError> {
        let range = || from.clone()..=at.clone();
        let building = self.building.range(range()).rev().find_map(|(key, value)| Some((key, value?)));
        let sealed = self.sealed.range(range()).rev().find_map(|(key, value)| Some((key, value?)));
        let recent = building.into_iter().chain(sealed).max_by_key(|(key, _)| *key);
        if let Some((key, value)) = recent
            && *key == at
        {
            return Ok(Some((at, decode(value)?)));
        }
        let stored = match self.fetched(Read::LastAtOrBefore { from, at })? {
            ReadResult::Last(last) => last.as_ref().map(|(key, value)| (&key[..], &value[..])),
            _ => return Err(ReadError::Unreadable),
        };
        match recent.into_iter().chain(stored).max_by_key(|(key, _)| *key) {
            Some((key, value)) => Ok(Some((Bytes::copy_from_slice(key), decode(value)?))),
            None => Ok(None),
        }
    }

    /// The first `limit` records with `from <= key < to`. Fewer only if there are no more.
    pub(crate) fn scan(&self, from: Bytes, to: Bytes, limit: usize) -> Result<Scanned, ReadError> {
        let mut from = from;
        let mut records: Vec<(Bytes, Bytes)> = Vec::new();
        loop {
            // One more record than needed shows whether there are more.
            let asked = limit + 1;
            let stored =
                match self.fetched(Read::Scan { from: from.clone(), to: to.clone(), limit: asked })? {
                    ReadResult::Page(page) => page,
                    _ => return Err(ReadError::Unreadable),
                };
            // If the page is full, the stored records behind its last one are unknown. So merge recent writes only up to there.
            let is_full = stored.len() == asked;
            let horizon = if is_full { successor(&stored[limit].0) } else { to.clone() };
            let mut merged: BTreeMap<Bytes, Option<Bytes>> =
                stored.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
            let copy = |(key, value): (&[u8], Option<&[u8]>)| {
                (Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice))
            };
            merged.extend(self.sealed.range(from.clone()..horizon.clone()).map(copy));
            merged.extend(self.building.range(from.clone()..horizon.clone()).map(copy));
            records.extend(merged.into_iter().filter_map(|(k, v)| Some((k, v?))));
            if records.len() > limit {
                records.truncate(limit);
                let more_after = records.last().map(|(key, _)| key.clone());
                return Ok(Scanned { records, more_after });
            }
            if !is_full {
                return Ok(Scanned { records, more_after: None });
            }
            // Recent writes have removed some of the stored records, so the page is not full yet.
            from = horizon;
        }
    }

    /// Notes the record under `key` as missing if it is not fetched yet.
    pub(crate) fn want(&self, key: impl AsRef<[u8]>) {
        let key = key.as_ref();
        if self.building.get(self.sealed, key).is_none() {
            let _noted = self.fetched_value(key);
        }
    }

    pub(crate) fn has_missing(&self) -> bool {
        !self.missing.borrow().is_empty()
    }

    fn fetched(&self, read: Read) -> Result<&'a ReadResult, ReadError> {
        self.answer(self.fetched.others.get(&read), || read)
    }

    fn fetched_value(&self, key: &[u8]) -> Result<&'a ReadResult, ReadError> {
        self.answer(self.fetched.values.get(key), || Read::Get(Bytes::copy_from_slice(key)))
    }

    fn answer(
        &self,
        answer: Option<&'a ReadResult>,
        read: impl FnOnce() -> Read,
    ) -> Result<&'a ReadResult, ReadError> {
        match answer {
            Some(ReadResult::Unreadable) => Err(ReadError::Unreadable),
            Some(answer) => Ok(answer),
            None => {
                self.missing.borrow_mut().push(read());
                Err(ReadError::NotFetched)
            }
        }
    }
}

/// A part of a range of records.
pub(crate) struct Scanned {
    pub(crate) records: Vec<(Bytes, Bytes)>,
    /// The key of the last record, if more records follow.
    pub(crate) more_after: Option<Bytes>,
}

/// The smallest key that follows `key`.
pub(crate) fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ReadError> {
    record::decode(bytes).map_err(|_| ReadError::Unreadable)
}
