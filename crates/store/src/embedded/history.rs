//! Finds the last record of a history up to some key, without a merge of all tables of the database.
//!
//! An iterator of fjall reads a block of every table that overlaps its range, and that is most of the time of such a look-up. But
//! a run has neighbours of its history. So if a run begins before the key and ends behind it, no other run has anything in between.
//! The tables are searched one after another until one has such a run, beginning with the oldest level, which has most records.

use fjall::{AbstractTree, Keyspace, LsmError, UserKey, UserValue};

/// The key of the run that has the last record with `first <= key <= at`. `None` if there is no such record. `first` is the
/// least key of the history to which `at` belongs. `reaches` says whether a run ends at `at` or behind it.
///
/// Removals are not looked for, so the run may have been removed. The memory of the database is not searched, because records
/// are only written by ingestion, which bypasses it.
pub(super) fn find_run(
    records: &Keyspace,
    first: &UserKey,
    at: &UserKey,
    reaches: impl Fn(&UserKey, &UserValue) -> bool,
) -> Result<Option<UserKey>, LsmError> {
    let version = records.tree.current_version();
    let mut last = None;
    for level in (0..version.level_count()).rev().filter_map(|number| version.level(number)) {
        for tables in level.iter().rev() {
            let Some((begin, end)) = tables.range_overlap_indexes::<UserKey, _>(&(first..=at)) else {
                continue;
            };
            let mut tables = tables[begin..=end].iter().rev();
            let found = tables.find_map(|table| table.range(first.clone()..=at.clone()).next_back());
            let Some(found) = found.transpose()? else { continue };
            let key = found.key.user_key;
            if reaches(&key, &found.value) {
                return Ok(Some(key));
            }
            last = last.max(Some(key));
        }
    }
    Ok(last)
}
