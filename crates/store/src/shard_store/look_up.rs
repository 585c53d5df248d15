//! Look-ups over the overlays and the table together.
//!
//! What is in memory is copied out first and the table asked afterwards: a record that moves down in between is seen
//! twice, never missed. A look-up sees each record as it was at some moment during the call.

use super::{MAX_KEY_BYTES, ShardStore, State};
use crate::{Journal, StoreError, Table};
use bytes::Bytes;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Bound, ControlFlow},
    sync::Arc,
};

/// A question to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The value under a key.
    Get(Bytes),
    /// The last record with `from <= key <= at`.
    LastAtOrBefore {
        /// The lowest key that counts.
        from: Bytes,
        /// The highest key that counts.
        at: Bytes,
    },
    /// The first `limit` records with `from <= key < to`.
    Scan {
        /// The lowest key that counts.
        from: Bytes,
        /// The first key that no longer counts.
        to: Bytes,
        /// How many records at most.
        limit: usize,
    },
}

/// What a [`Read`] of the same kind found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// To [`Read::Get`].
    Value(Option<Bytes>),
    /// To [`Read::LastAtOrBefore`].
    Last(Option<(Bytes, Bytes)>),
    /// To [`Read::Scan`]. Fewer than the limit means that there are no more.
    Page(Vec<(Bytes, Bytes)>),
}

type Found = Result<Answer, Arc<StoreError>>;

/// How much of the overlays a scan copies out at a time.
const SCAN_PART: usize = 16 << 10;

impl<J: Journal, T: Table> ShardStore<J, T> {
    /// What memory alone can answer: the keys that changed since the last checkpoint. None where the table is needed.
    pub fn read_now(&self, reads: &[Read]) -> Vec<Option<Answer>> {
        let state = self.lock();
        let now = |read: &Read| match read {
            Read::Get(key) => state.get(key).map(Answer::Value),
            Read::LastAtOrBefore { .. } | Read::Scan { .. } => None,
        };
        reads.iter().map(now).collect()
    }

    /// Answers each question, in their order.
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

    /// Asks the table for the last record of each range, and again below it where the overlay says that it is gone.
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
                match search.go_on(found) {
                    ControlFlow::Break(last) => answers[search.index] = Some(Ok(Answer::Last(last))),
                    ControlFlow::Continue(()) => unfinished.push(search),
                }
            }
            searches = unfinished;
        }
    }

    /// The first `limit` records with `from <= key < to`. Merges part after part of the overlays with pages of the table
    /// until the page is full.
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
            // A full page of the table says nothing about what follows it.
            let end = match below.last() {
                Some((last, _)) if below.len() >= wanted => successor(last),
                _ => end,
            };
            part.split_off(&end);
            for (key, value) in below {
                part.entry(key).or_insert(Some(value));
            }
            let live = part.into_iter().filter_map(|(key, value)| value.map(|value| (key, value)));
            page.extend(live.take(wanted));
            from = end;
        }
        Ok(page)
    }
}

fn fail(indexes: &[usize], error: StoreError, answers: &mut [Option<Found>]) {
    let error = Arc::new(error);
    for index in indexes {
        answers[*index] = Some(Err(error.clone()));
    }
}

impl State {
    /// What the overlays say about a key: nothing, or its value, or that it is gone.
    fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.records.get(key));
        self.active.get(key).or_else(frozen)
    }

    /// The first `limit` records of the overlays in the range, and the key before which they are complete, if that is
    /// not the end of the range.
    fn part(
        &self,
        from: &Bytes,
        to: &Bytes,
        limit: usize,
    ) -> (BTreeMap<Bytes, Option<Bytes>>, Option<Bytes>) {
        let range = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        let mut part = BTreeMap::new();
        // Frozen first, so that what is active replaces it.
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
        // Downwards through both until something is alive; what is gone on the way outranks the table.
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
    /// The last live record of the overlays.
    candidate: Option<(Bytes, Bytes)>,
    /// What the overlays know to be gone above the candidate.
    gone: BTreeSet<Bytes>,
}

impl Search {
    /// The result, given what the table holds last; or the search goes on below that.
    fn go_on(&mut self, found: Option<(Bytes, Bytes)>) -> ControlFlow<Option<(Bytes, Bytes)>> {
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

/// The least key that is greater.
fn successor(key: &Bytes) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// A bound below which, or at which, every key is that is smaller and not longer than [`MAX_KEY_BYTES`].
fn predecessor(key: &Bytes) -> Option<Bytes> {
    let (last, before) = key.split_last()?;
    let mut bound = before.to_vec();
    if *last > 0 {
        bound.push(last - 1);
        bound.resize(MAX_KEY_BYTES, u8::MAX);
    }
    Some(bound.into())
}
