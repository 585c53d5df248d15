//! Finds the damaged file when fjall reports damage without naming a file, or would not report it.

use super::fjall_files::{self, LiveTable};
use crate::StoreError;
use std::path::Path;

/// Checks what fjall does not check, or checks too late: every version file against the checksum in `current`, every
/// table file's contents against the checksum in its trailer, and every batch of its log. Returns a description of each
/// torn batch at the end of a log, because fjall will drop it.
pub(super) fn check_before_opening(directory: &Path) -> Result<Vec<String>, StoreError> {
    for keyspace in fjall_files::keyspaces(directory) {
        let Some(version) = fjall_files::current_version(&keyspace)? else { continue };
        for table in &version.tables {
            fjall_files::check_end(&table.path)?;
        }
    }
    let mut torn = Vec::new();
    for log in fjall_files::logs(directory) {
        if let Some(offset) = fjall_files::check_log(&log)?.torn {
            tracing::warn!(path = %log.display(), offset, "the last batch of the table's own log is torn, and dropped");
            torn.push(format!("the last batch in {}, at offset {offset}, was incomplete", log.display()));
        }
    }
    Ok(torn)
}

/// The error to report when fjall failed with these words. It names the damaged file if one can be found.
pub(super) fn explain(directory: &Path, words: String) -> StoreError {
    first_damage(directory)
        .unwrap_or_else(|| StoreError::Table(format!("{words}, in {}", directory.display())))
}

fn first_damage(directory: &Path) -> Option<StoreError> {
    let keyspaces = fjall_files::keyspaces(directory);
    let mut tables: Vec<LiveTable> = Vec::new();
    for keyspace in &keyspaces {
        match fjall_files::current_version(keyspace) {
            Ok(version) => tables.extend(version.into_iter().flat_map(|version| version.tables)),
            Err(damage) => return Some(damage),
        }
    }
    let table = || tables.iter().find_map(|table| fjall_files::check_table(table).err()?.into_iter().next());
    let log = || {
        fjall_files::logs(directory).iter().find_map(|path| match fjall_files::check_log(path) {
            Ok(log) => log.torn.map(|offset| fjall_files::corrupt(path, offset, "the last batch is damaged")),
            Err(damage) => Some(damage),
        })
    };
    fjall_files::check_version_file(directory).err().or_else(table).or_else(log)
}
