//! Segment files: their names, how they are created, and their state in memory.

use super::frame::BLOCK;
use crate::{
    StoreError,
    disk::{Disk, DiskFile},
};
use std::{collections::BTreeMap, sync::Arc};

/// A segment that contains frames.
pub(super) struct Segment<F> {
    pub(super) file: F,
    pub(super) number: u64,
    pub(super) salt: u64,
    pub(super) length: u64,
    /// The offset of the next frame.
    pub(super) end: u64,
    /// The highest number that a frame in the file may have, including superseded ones.
    pub(super) highest_frame: u64,
    /// The last seq of each shard that has entries here.
    pub(super) last_seqs: BTreeMap<u16, u64>,
}

/// A file that is ready to become a segment.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(super) name: String,
    pub(super) length: u64,
}

/// Creates a spare, which takes a while.
pub(crate) struct SpareJob<D> {
    pub(super) disk: Arc<D>,
    pub(super) number: u64,
    pub(super) length: u64,
}

impl<D: Disk> SpareJob<D> {
    pub(crate) fn run(self) -> Result<Spare, StoreError> {
        make_spare(&*self.disk, self.number, self.length)
    }
}

/// The name of a segment's file.
pub(super) fn name(number: u64) -> String {
    format!("journal-{number:010}.seg")
}

/// The segment's number, if this is the name of a segment.
pub(super) fn number(name: &str) -> Option<u64> {
    numbered(name, "journal-")
}

/// The spare's number, if this is the name of a spare.
pub(super) fn spare_number(name: &str) -> Option<u64> {
    numbered(name, "spare-")
}

fn numbered(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.strip_suffix(".seg")?.parse().ok()
}

/// Creates a file of zeros. It is written in full, because writing to blocks that are not allocated yet is several
/// times slower, and because writing to an allocated block cannot fail for lack of space.
pub(super) fn make_spare<D: Disk>(disk: &D, number: u64, length: u64) -> Result<Spare, StoreError> {
    let name = format!("spare-{number:010}.seg");
    let made = || {
        let file = disk.create(&name)?;
        let zeros = vec![0; (1 << 20).min(length.max(BLOCK as u64) as usize)];
        let mut written = 0;
        while written < length {
            let part = (length - written).min(zeros.len() as u64) as usize;
            file.write_at(&zeros[..part], written)?;
            written += part as u64;
        }
        file.sync()
    };
    match made() {
        Ok(()) => Ok(Spare { name, length }),
        Err(source) => {
            // The incomplete file takes up the space that is missing.
            let _ = disk.remove(&name);
            Err(StoreError::io("preparing", disk.path(&name), source))
        }
    }
}
