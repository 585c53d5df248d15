//! Stored records that are not resident: what a command asks for, and where it finds it.
//!
//! A command runs against a `Reader`. Where a record is not at hand, the reader notes it and the command stops before
//! it has changed anything; whoever drives the engine fetches what was noted and runs the command again.

use crate::{recent::Recent, record};
use alloc::{collections::BTreeMap, vec::Vec};
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
        /// The first key that counts.
        from: Bytes,
        /// The last key that counts.
        at: Bytes,
    },
    /// The first `limit` records with `from <= key < to`.
    Scan {
        /// The first key that counts.
        from: Bytes,
        /// The first key that no longer counts.
        to: Bytes,
        /// How many at most.
        limit: usize,
    },
}

/// What a [`Read`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// For [`Read::Get`].
    Value(Option<Bytes>),
    /// For [`Read::LastAtOrBefore`].
    Last(Option<(Bytes, Bytes)>),
    /// For [`Read::Scan`].
    Page(Vec<(Bytes, Bytes)>),
    /// The store could not read it.
    Unreadable,
}

/// What must be fetched before the command can run.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing(pub Vec<Read>);

/// Answers fetched for a round of commands. They must have been asked for after everything but the last sealed batch
/// and the one being built had become durable: those two the engine remembers itself.
#[derive(Debug, Default)]
pub struct Fetched(HashMap<Read, Answer>);

impl Fetched {
    /// Takes in an answer.
    pub fn insert(&mut self, read: Read, answer: Answer) {
        self.0.insert(read, answer);
    }

    /// Whether this was fetched already.
    pub fn contains(&self, read: &Read) -> bool {
        self.0.contains_key(read)
    }

    /// Forgets everything, as must be done before the next round.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Why a record is not at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It must be fetched first; the reader has noted it.
    NotFetched,
    /// It was fetched, but could not be read or understood.
    Unreadable,
}

/// Finds stored records: in the batch being built, in the batch on its way to the journal, then in what was fetched.
/// A fetched "there is none" therefore never hides a newer record.
pub(crate) struct Reader<'a> {
    building: &'a Recent,
    sealed: &'a Recent,
    fetched: &'a Fetched,
    missing: RefCell<Vec<Read>>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(building: &'a Recent, sealed: &'a Recent, fetched: &'a Fetched) -> Reader<'a> {
        Reader { building, sealed, fetched, missing: RefCell::new(Vec::new()) }
    }

    /// What was asked for and not found at hand.
    pub(crate) fn into_missing(self) -> Missing {
        Missing(self.missing.into_inner())
    }

    /// The record under `key`, decoded.
    pub(crate) fn get<T: DeserializeOwned>(&self, key: Bytes) -> Result<Option<T>, Absent> {
        let value = match self.building.get(&key).or_else(|| self.sealed.get(&key)) {
            Some(recent) => recent.as_ref(),
            None => match self.fetched(Read::Get(key))? {
                Answer::Value(value) => value.as_ref(),
                _ => return Err(Absent::Unreadable),
            },
        };
        value.map(decode).transpose()
    }

    /// The last record with `from <= key <= at`, decoded, with its key. Records read this way are never removed
    /// one by one, so the newest layer that has one within the range need only be compared by key.
    pub(crate) fn last_at_or_before<T: DeserializeOwned>(
        &self,
        from: Bytes,
        at: Bytes,
    ) -> Result<Option<(Bytes, T)>, Absent> {
        let recent = [self.building, self.sealed]
            .into_iter()
            .filter_map(|layer| {
                layer.range(from.clone()..=at.clone()).rev().find_map(|(k, v)| Some((k, v.as_ref()?)))
            })
            .max_by_key(|(key, _)| *key);
        if let Some((key, value)) = recent
            && *key == at
        {
            return Ok(Some((key.clone(), decode(value)?)));
        }
        let stored = match self.fetched(Read::LastAtOrBefore { from, at })? {
            Answer::Last(last) => last.as_ref().map(|(key, value)| (key, value)),
            _ => return Err(Absent::Unreadable),
        };
        match recent.into_iter().chain(stored).max_by_key(|(key, _)| *key) {
            Some((key, value)) => Ok(Some((key.clone(), decode(value)?))),
            None => Ok(None),
        }
    }

    /// The first `limit` records from `from` on, before `to`; fewer only where there are no more.
    pub(crate) fn scan(&self, from: Bytes, to: Bytes, limit: usize) -> Result<Scanned, Absent> {
        let mut from = from;
        let mut records: Vec<(Bytes, Bytes)> = Vec::new();
        loop {
            // One more than needed tells whether there is more.
            let asked = limit + 1;
            let stored =
                match self.fetched(Read::Scan { from: from.clone(), to: to.clone(), limit: asked })? {
                    Answer::Page(page) => page,
                    _ => return Err(Absent::Unreadable),
                };
            // Beyond the last stored record of a full page nothing is known, so recent records count only up to there.
            let is_full = stored.len() == asked;
            let horizon = if is_full { successor(&stored[limit].0) } else { to.clone() };
            let mut merged: BTreeMap<Bytes, Option<Bytes>> =
                stored.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
            for layer in [self.sealed, self.building] {
                let recent = layer.range(from.clone()..horizon.clone());
                merged.extend(recent.map(|(k, v)| (k.clone(), v.clone())));
            }
            records.extend(merged.into_iter().filter_map(|(k, v)| Some((k, v?))));
            if records.len() > limit {
                records.truncate(limit);
                let more_after = records.last().map(|(key, _)| key.clone());
                return Ok(Scanned { records, more_after });
            }
            if !is_full {
                return Ok(Scanned { records, more_after: None });
            }
            // So many of the stored ones were removed just now that the page is not full.
            from = horizon;
        }
    }

    /// Notes the record under `key` as needed, if it is not at hand.
    pub(crate) fn want(&self, key: Bytes) {
        if self.building.get(&key).is_none() && self.sealed.get(&key).is_none() {
            let _noted = self.fetched(Read::Get(key));
        }
    }

    pub(crate) fn has_missing(&self) -> bool {
        !self.missing.borrow().is_empty()
    }

    fn fetched(&self, read: Read) -> Result<&'a Answer, Absent> {
        match self.fetched.0.get(&read) {
            Some(Answer::Unreadable) => Err(Absent::Unreadable),
            Some(answer) => Ok(answer),
            None => {
                self.missing.borrow_mut().push(read);
                Err(Absent::NotFetched)
            }
        }
    }
}

/// A part of a range of records.
pub(crate) struct Scanned {
    pub(crate) records: Vec<(Bytes, Bytes)>,
    /// The last record's key, if there are more behind it.
    pub(crate) more_after: Option<Bytes>,
}

/// The smallest key that follows `key`.
pub(crate) fn successor(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

fn decode<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Absent> {
    record::decode(bytes).map_err(|_| Absent::Unreadable)
}
