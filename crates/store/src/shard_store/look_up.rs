//! Look-ups over the overlays and the table together.
//!
//! A look-up first copies what it needs from memory, and then reads the table. A record that moves from the overlay to
//! the table in between is seen twice, but never missed. A look-up returns each record as it was at some moment during
//! the call.

use super::{MAX_KEY_BYTES, ShardStore, State};
use crate::{Journal, StoreError, Table};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Bound, ControlFlow, Range},
    sync::Arc,
    vec,
};

/// A look-up in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The value under a key.
    Get(Bytes),
    /// The last record with `from <= key <= at`.
    LastAtOrBefore {
        /// The lowest key of the range.
        from: Bytes,
        /// The highest key of the range, inclusive.
        at: Bytes,
    },
    /// The first `limit` records with `from <= key < to`.
    Scan {
        /// The lowest key of the range.
        from: Bytes,
        /// The end of the range, exclusive.
        to: Bytes,
        /// The maximum number of records.
        limit: usize,
    },
}

/// The result of a [`Read`] of the corresponding kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Read::Get`]: the value, if there is a record.
    Value(Option<Bytes>),
    /// Of [`Read::LastAtOrBefore`]: key and value, if there is a record in the range.
    Last(Option<(Bytes, Bytes)>),
    /// Of [`Read::Scan`]: keys and values. Fewer than the limit means that there are no more.
    Page(Vec<(Bytes, Bytes)>),
}

type Found = Result<Answer, Arc<StoreError>>;

/// The number of overlay records that a scan copies at a time.
const SCAN_PART: usize = 16 << 10;

impl<J: Journal, T: Table> ShardStore<J, T> {
    /// Answers from memory alone, which is possible for keys that changed since the last checkpoint, and for keys that the
    /// filter knows to be absent. `None` means that the table is needed.
    pub fn read_now(&self, reads: &[Read]) -> Vec<Option<Answer>> {
        let state = self.lock();
        let now = |read: &Read| match read {
            Read::Get(key) => {
                let absent = || self.filtering.is_absent(key).then_some(None);
                state.get(key).or_else(absent).map(Answer::Value)
            }
            Read::LastAtOrBefore { .. } | Read::Scan { .. } => None,
        };
        reads.iter().map(now).collect()
    }

    /// Answers all look-ups, in their order.
    pub async fn read(&self, reads: Vec<Read>) -> Vec<Found> {
        let mut answers: Vec<Option<Found>> =
            self.read_now(&reads).into_iter().map(|answer| answer.map(Ok)).collect();
        let mut gets = Vec::new();
        let mut lasts = Vec::new();
        for (index, read) in reads.into_iter().enumerate() {
            match read {
                _ if answers[index].is_some() => {}
                Read::Get(key) => gets.push((index, key)),
                Read::LastAtOrBefore { from, at } => lasts.push((index, from, at)),
                Read::Scan { from, to, limit } => {
                    let page = self.scan(from, to, limit).await;
                    answers[index] = Some(page.map(Answer::Page).map_err(Arc::new));
                }
            }
        }
        self.get_from_table(gets, &mut answers).await;
        self.find_lasts(lasts, &mut answers).await;
        answers.into_iter().map(|answer| answer.expect("every question was asked")).collect()
    }

    async fn get_from_table(&self, gets: Vec<(usize, Bytes)>, answers: &mut [Option<Found>]) {
        if gets.is_empty() {
            return;
        }
        let (indexes, keys): (Vec<usize>, Vec<Bytes>) = gets.into_iter().unzip();
        match self.table.get_many(self.shard, keys).await {
            Ok(values) => {
                for (index, value) in indexes.into_iter().zip(values) {
                    answers[index] = Some(Ok(Answer::Value(value)));
                }
            }
            Err(error) => fail(&indexes, error, answers),
        }
    }

    /// Searches the table for the last record of each range. If the overlay says that this record was removed, the
    /// search continues below it.
    async fn find_lasts(&self, lasts: Vec<(usize, Bytes, Bytes)>, answers: &mut [Option<Found>]) {
        let mut searches: Vec<Search> = {
            let state = self.lock();
            lasts.into_iter().map(|(index, from, at)| state.search(index, from, at)).collect()
        };
        while !searches.is_empty() {
            let ranges = searches.iter().map(|search| (search.from.clone(), search.at.clone())).collect();
            let found = match self.table.last_at_or_before(self.shard, ranges).await {
                Ok(found) => found,
                Err(error) => {
                    let indexes: Vec<usize> = searches.iter().map(|search| search.index).collect();
                    return fail(&indexes, error, answers);
                }
            };
            let mut unfinished = Vec::new();
            for (mut search, found) in searches.into_iter().zip(found) {
                match search.advance(found) {
                    ControlFlow::Break(last) => answers[search.index] = Some(Ok(Answer::Last(last))),
                    ControlFlow::Continue(()) => unfinished.push(search),
                }
            }
            searches = unfinished;
        }
    }

    /// The first `limit` records with `from <= key < to`. Merges pages of the overlays with pages of the table until
    /// the limit is reached.
    pub async fn scan(
        &self,
        from: Bytes,
        to: Bytes,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut page = Vec::new();
        let mut from = from;
        while page.len() < limit && from < to {
            let wanted = limit - page.len();
            let (mut part, part_ends) = self.lock().part(&from, &to, wanted.clamp(1, SCAN_PART));
            let end = part_ends.unwrap_or_else(|| to.clone());
            let below = self.table.scan(self.shard, from, end.clone(), wanted).await?;
            // A full page of the table says nothing about the keys after it.
            let end = match below.last() {
                Some((last, _)) if below.len() >= wanted => successor(last),
                _ => end,
            };
            part.split_off(&end);
            // Most pages of a scan of the whole shard have no part in the overlays.
            match part.is_empty() && page.is_empty() {
                true => page = below,
                false => merge(part.into_iter(), below, &mut page),
            }
            page.truncate(limit);
            from = end;
        }
        Ok(page)
    }
}

/// A scan of all records of a range, page by page: [`ShardStore::begin_full_scan`] begins it.
pub struct FullScan {
    /// The records of the overlays that were not returned yet.
    overlays: vec::IntoIter<(Bytes, Option<Bytes>)>,
    /// What is left of the range.
    rest: Range<Bytes>,
}

impl<J: Journal, T: Table> ShardStore<J, T> {
    /// Begins to read all records of a range, for opening. The overlays are sorted only once, so this is faster than
    /// [`ShardStore::scan`] after [`ShardStore::scan`]. Nothing may be appended before the last page was read.
    pub fn begin_full_scan(&self, range: Range<Bytes>) -> FullScan {
        let state = self.lock();
        let mut overlays = state.active.sorted_range(&range);
        if let Some(frozen) = &state.frozen {
            // The sort is stable and active records come first, so they replace frozen ones.
            overlays.extend(frozen.records.sorted_range(&range));
            overlays.sort_by(|a, b| a.0.cmp(&b.0));
            overlays.dedup_by(|later, kept| later.0 == kept.0);
        }
        FullScan { overlays: overlays.into_iter(), rest: range }
    }

    /// The next records of the scan: at most twice `limit`, and none only after the last one.
    pub async fn next_page(
        &self,
        scan: &mut FullScan,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut page = Vec::new();
        while page.is_empty() && !scan.rest.is_empty() {
            let end = scan.overlays.as_slice().get(limit).map_or(&scan.rest.end, |(key, _)| key).clone();
            let table = self.table.scan(self.shard, scan.rest.start.clone(), end.clone(), limit).await?;
            // A full page of the table says nothing about the keys after it.
            let end = match table.last() {
                Some((last, _)) if table.len() >= limit => successor(last),
                _ => end,
            };
            match scan.overlays.as_slice().partition_point(|(key, _)| *key < end) {
                0 => page = table,
                count => merge(scan.overlays.by_ref().take(count), table, &mut page),
            }
            scan.rest.start = end;
        }
        Ok(page)
    }
}

/// Adds the records of the overlays and of the table to the page, in the order of their keys. A record of the overlays
/// replaces that of the table, or removes it.
fn merge(
    overlays: impl Iterator<Item = (Bytes, Option<Bytes>)>,
    table: Vec<(Bytes, Bytes)>,
    page: &mut Vec<(Bytes, Bytes)>,
) {
    let mut overlays = overlays.peekable();
    for (key, value) in table {
        while let Some((before, value)) = overlays.next_if(|(above, _)| *above < key) {
            page.extend(value.map(|value| (before, value)));
        }
        let value = match overlays.next_if(|(above, _)| *above == key) {
            Some((_, newer)) => newer,
            None => Some(value),
        };
        page.extend(value.map(|value| (key, value)));
    }
    page.extend(overlays.filter_map(|(key, value)| value.map(|value| (key, value))));
}

fn fail(indexes: &[usize], error: StoreError, answers: &mut [Option<Found>]) {
    let error = Arc::new(error);
    for index in indexes {
        answers[*index] = Some(Err(error.clone()));
    }
}

impl State {
    /// What the overlays know about a key: nothing, its value, or that it was removed.
    fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.records.get(key));
        self.active.get(key).or_else(frozen)
    }

    /// The first `limit` overlay records of the range. If there are more, also the key before which they are complete.
    fn part(
        &self,
        from: &Bytes,
        to: &Bytes,
        limit: usize,
    ) -> (BTreeMap<Bytes, Option<Bytes>>, Option<Bytes>) {
        let range = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        let mut part = BTreeMap::new();
        // Frozen first, so that active records replace frozen ones.
        let frozen = self.frozen.as_ref().map(|frozen| &*frozen.records);
        let mut ends: Option<Bytes> = None;
        for records in frozen.into_iter().chain([&self.active]) {
            let mut records = records.range(range.clone());
            for (key, value) in records.by_ref().take(limit) {
                part.insert(key, value);
            }
            if let Some((next, _)) = records.next() {
                ends = Some(ends.map_or_else(|| next.clone(), |end| end.min(next.clone())));
            }
        }
        if let Some(end) = &ends {
            part.split_off(end);
        }
        (part, ends)
    }

    fn search(&self, index: usize, from: Bytes, at: Bytes) -> Search {
        let mut search = Search { index, from, at, candidate: None, gone: BTreeSet::new() };
        if search.from > search.at {
            return search;
        }
        let range = (Bound::Included(search.from.clone()), Bound::Included(search.at.clone()));
        let mut active = self.active.range(range.clone()).rev().peekable();
        let frozen = self.frozen.as_ref().map(|frozen| &*frozen.records);
        let mut frozen = frozen.into_iter().flat_map(|records| records.range(range.clone()).rev()).peekable();
        // Go down through both overlays until there is a record that is not removed. Removed keys on the way hide
        // records of the table.
        loop {
            let (key, value) = match (active.peek(), frozen.peek()) {
                (Some((above, _)), Some((below, _))) if above == below => {
                    frozen.next();
                    active.next().expect("was peeked at")
                }
                (Some((above, _)), Some((below, _))) if above < below => {
                    frozen.next().expect("was peeked at")
                }
                (Some(_), _) => active.next().expect("was peeked at"),
                (None, Some(_)) => frozen.next().expect("was peeked at"),
                (None, None) => return search,
            };
            match value {
                Some(value) => {
                    search.candidate = Some((key, value));
                    return search;
                }
                None => {
                    search.gone.insert(key);
                }
            }
        }
    }
}

/// A search for the last record of a range.
struct Search {
    index: usize,
    from: Bytes,
    at: Bytes,
    /// The last record of the overlays that is not removed.
    candidate: Option<(Bytes, Bytes)>,
    /// Keys above the candidate that the overlays know to be removed.
    gone: BTreeSet<Bytes>,
}

impl Search {
    /// Takes the last record that the table has, and returns the result, or continues the search below that record.
    fn advance(&mut self, found: Option<(Bytes, Bytes)>) -> ControlFlow<Option<(Bytes, Bytes)>> {
        let Some((key, value)) = found else { return ControlFlow::Break(self.candidate.take()) };
        if self.candidate.as_ref().is_some_and(|(above, _)| *above >= key) {
            return ControlFlow::Break(self.candidate.take());
        }
        if !self.gone.contains(&key) {
            return ControlFlow::Break(Some((key, value)));
        }
        match predecessor(&key) {
            Some(at) if at >= self.from => {
                self.at = at;
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(self.candidate.take()),
        }
    }
}

/// The smallest key that is greater than `key`.
pub(super) fn successor(key: &Bytes) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The greatest key below `key`, among keys of at most [`MAX_KEY_BYTES`]. `None` if there is none.
fn predecessor(key: &Bytes) -> Option<Bytes> {
    let (last, before) = key.split_last()?;
    let mut bound = before.to_vec();
    if *last > 0 {
        bound.push(last - 1);
        bound.resize(MAX_KEY_BYTES, u8::MAX);
    }
    Some(bound.into())
}
