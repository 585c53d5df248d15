//! Checks a data directory that no server uses, part by part, and reports what it finds.
//!
//! The journal is read by the same code that opens it, over a disk that rejects writes. For the table, first the checksum of
//! every file is checked. Only if all files are intact, fjall reads the records, from a [`Shadow`].

use super::{
    directory::{META, Meta},
    fjall_files,
    inventory::{self, Inventory},
    read_only::ReadOnlyDisk,
    shadow::Shadow,
    table::{FjallTable, TableOptions},
};
use crate::{
    Batch, ShardId, Sharding, StoreError,
    disk::OsDisk,
    segmented::{JournalEnd, SegmentedJournal, SegmentedOptions, find_all_damage},
};
use std::{path::Path, sync::Arc};

const TABLE: TableOptions = TableOptions { cache_bytes: 16 << 20, cached_files: 64 };
/// Progress is reported after this many bytes or records.
const PROGRESS_BYTES: u64 = 64 << 20;
const PROGRESS_RECORDS: u64 = 1 << 18;

/// Something that a check of a directory reports.
#[derive(Debug)]
pub enum Finding {
    /// A part was read to its end. The text says what it contained.
    Checked(String),
    /// Information that is not about damage.
    Note(String),
    /// Damage, or something that could not be read.
    Problem(StoreError),
    /// The check has started to read a part, or continues with it.
    Progress(String),
}

/// Reads the metadata and the inventory. Returns an error if the directory has another format: then nothing else in it can be judged.
pub(super) fn check_meta(
    directory: &Path,
    report: &mut dyn FnMut(Finding),
) -> Result<Option<(Meta, Inventory)>, StoreError> {
    let path = directory.join(META);
    let meta = match Meta::read(directory) {
        Ok(Some(meta)) => meta,
        Ok(None) => {
            let words = "the file is missing: it was lost, or the directory was never completely created";
            report(Finding::Problem(fjall_files::corrupt(&path, 0, words)));
            return Ok(None);
        }
        Err(error @ StoreError::Unusable(_)) => return Err(error),
        Err(error) => {
            report(Finding::Problem(error));
            return Ok(None);
        }
    };
    report(Finding::Checked(format!("{}: {} shards", path.display(), meta.sharding.shards)));
    match Inventory::read(directory) {
        Ok(inventory) => Ok(Some((meta, inventory))),
        Err(error) => {
            report(Finding::Problem(error));
            Ok(None)
        }
    }
}

pub(super) fn check_journal(
    directory: &Path,
    sharding: Sharding,
    once: JournalEnd,
    report: &mut dyn FnMut(Finding),
) -> Option<SegmentedJournal<ReadOnlyDisk>> {
    let shards = sharding.shards;
    let path = directory.join("journal");
    report(Finding::Progress(format!("reading {}", path.display())));
    let disk = Arc::new(ReadOnlyDisk { disk: OsDisk::new(&path), directory: path.clone() });
    let options = SegmentedOptions {
        shards,
        must_exist: true,
        must_reach: Some(once),
        history_key: *sharding.key.bytes(),
        ..SegmentedOptions::default()
    };
    let (journal, opened) = match SegmentedJournal::open_read_only(disk.clone(), options) {
        Ok(examined) => examined,
        Err(first) => {
            // The first problem is reported with the words that a server would use.
            let more =
                find_all_damage(&*disk).into_iter().filter(|damage| position(damage) != position(&first));
            let more: Vec<StoreError> = more.collect();
            report(Finding::Problem(first));
            more.into_iter().for_each(|damage| report(Finding::Problem(damage)));
            report(Finding::Note(
                "the journal's appends were not read, because of these problems".to_string(),
            ));
            return None;
        }
    };
    if let Some((file, offset)) = &opened.torn {
        let words = format!("{file}: the last frame, at offset {offset}, is torn; it was never answered");
        report(Finding::Note(words));
    }
    let (mut appends, mut malformed) = (0_u64, 0);
    for shard in (0..shards).map(ShardId) {
        journal.each_append(shard, |seq, file, offset, payload| {
            appends += 1;
            let damage = match payload.map(Batch::decode) {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => StoreError::Corrupt {
                    path: file.to_string(),
                    offset: offset + error.offset as u64,
                    detail: format!("append {} of shard {} is {error}", seq.0, shard.0),
                },
                Err(error) => error,
            };
            malformed += 1;
            report(Finding::Problem(damage));
        });
    }
    report(Finding::Checked(format!(
        "{}: {} segments, {} bytes, {} frames, {appends} appends",
        path.display(),
        opened.segments,
        opened.bytes,
        opened.frames
    )));
    (malformed == 0).then_some(journal)
}

fn position(damage: &StoreError) -> Option<(&str, u64)> {
    match damage {
        StoreError::Corrupt { path, offset, .. } => Some((path, *offset)),
        _ => None,
    }
}

/// Returns true if all files are intact. Only then is it safe to let fjall read them.
pub(super) fn check_table_files(table: &Path, report: &mut dyn FnMut(Finding)) -> bool {
    let mut problems = 0_u64;
    let mut problem = |report: &mut dyn FnMut(Finding), error: StoreError| {
        problems += 1;
        report(Finding::Problem(error));
    };
    if let Err(error) = fjall_files::check_version_file(table) {
        problem(report, error);
    }
    for log in fjall_files::logs(table) {
        match fjall_files::check_log(&log) {
            Ok(found) => {
                report(Finding::Checked(format!("{}: {} batches", log.display(), found.batches)));
                if let Some(offset) = found.torn {
                    report(Finding::Note(format!(
                        "{}: the last batch, at offset {offset}, is not whole and will be dropped; it can only say how \
                         far a checkpoint came, which is checked below",
                        log.display()
                    )));
                }
            }
            Err(error) => problem(report, error),
        }
    }
    let (mut files, mut bytes, mut told) = (0_u64, 0, 0);
    for keyspace in fjall_files::keyspaces(table) {
        let live = match fjall_files::current_version(&keyspace) {
            Ok(version) => version.map(|version| version.tables).unwrap_or_default(),
            Err(error) => {
                problem(report, error);
                continue;
            }
        };
        for table in &live {
            match fjall_files::check_table(table) {
                Ok(length) => (files, bytes) = (files + 1, bytes + length),
                Err(errors) => errors.into_iter().for_each(|error| problem(report, error)),
            }
            if bytes >= told + PROGRESS_BYTES {
                told = bytes;
                report(Finding::Progress(format!("{bytes} bytes of the table's files are read")));
            }
        }
        for file in fjall_files::files(&keyspace.join("tables")) {
            if !live.iter().any(|table| table.path == file) {
                let words = "is left over from an interrupted operation and is not in use";
                report(Finding::Note(format!("{} {words}", file.display())));
            }
        }
    }
    report(Finding::Checked(format!("{}: {files} files, {bytes} bytes", table.join("keyspaces").display())));
    if problems > 0 {
        report(Finding::Note("the table's records were not read, because of these problems".to_string()));
    }
    problems == 0
}

pub(super) fn check_records(
    shadow: &Shadow,
    original: &Path,
    sharding: Option<Sharding>,
    report: &mut dyn FnMut(Finding),
) -> Option<FjallTable> {
    let shards = sharding.map(|sharding| sharding.shards);
    let directory_id = sharding.map(|sharding| inventory::directory_id(&sharding.key));
    let table = match FjallTable::open_copy(shadow.path(), original, TABLE, directory_id) {
        Ok(table) => table,
        Err(error) => {
            report(Finding::Problem(error));
            return None;
        }
    };
    let (mut records, mut bytes) = (0_u64, 0_u64);
    let mut last: Option<(ShardId, Vec<u8>)> = None;
    let read = table.each_record(|shard, key, value| {
        // The record that marks the table as created is stored under a shard number that cannot exist.
        let strange = shard.0 != u16::MAX && shards.is_some_and(|shards| shard.0 >= shards);
        let is_behind = last.as_ref().is_some_and(|(before, last)| (*before, &last[..]) >= (shard, key));
        if strange || is_behind {
            let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            let words = "is out of order, or the shard does not exist";
            return Err(StoreError::Corrupt {
                path: original.display().to_string(),
                offset: 0,
                detail: format!("the record of shard {} under {key} {words}", shard.0),
            });
        }
        last = Some((shard, key.to_vec()));
        (records, bytes) = (records + 1, bytes + (key.len() + value.len()) as u64);
        if records.is_multiple_of(PROGRESS_RECORDS) {
            report(Finding::Progress(format!("{records} records of the table are read")));
        }
        Ok(())
    });
    report(Finding::Checked(format!("{}: {records} records, {bytes} bytes", original.display())));
    match read {
        Ok(()) => Some(table),
        Err(error) => {
            report(Finding::Problem(error));
            None
        }
    }
}

pub(super) fn check_parts(
    journal: &SegmentedJournal<ReadOnlyDisk>,
    table: &FjallTable,
    shards: u16,
    report: &mut dyn FnMut(Finding),
) -> bool {
    let mut agree = true;
    let mut problem = |error: StoreError| {
        agree = false;
        report(Finding::Problem(error));
    };
    match table.each_applied() {
        Ok(all) => all.into_iter().filter(|(shard, _)| shard.0 >= shards).for_each(|(shard, _)| {
            let words = format!("it holds shard {}, which does not exist", shard.0);
            problem(StoreError::Table(words));
        }),
        Err(error) => problem(error),
    }
    let mut behind = 0_u64;
    for shard in (0..shards).map(ShardId) {
        match super::check_parts(journal, table, shard) {
            Ok(applied) => behind += journal.last_seq(shard).0 - applied.0,
            Err(error) => problem(error),
        }
    }
    if agree {
        report(Finding::Checked(format!(
            "journal and table agree on {shards} shards; {behind} appends are in the journal alone"
        )));
    }
    agree
}
