//! Segment files: their names, how they are made, and what is known of each.

use super::frame::BLOCK;
use crate::{
    StoreError,
    disk::{Disk, DiskFile},
};
use std::{collections::BTreeMap, sync::Arc};

/// A segment that holds frames.
pub(super) struct Segment<F> {
    pub(super) file: F,
    pub(super) number: u64,
    pub(super) salt: u64,
    pub(super) length: u64,
    /// Where the next frame goes.
    pub(super) end: u64,
    /// The highest number that any frame in the file may bear, superseded ones included.
    pub(super) highest_frame: u64,
    /// The last seq of each shard that has entries here.
    pub(super) last_seqs: BTreeMap<u16, u64>,
}

/// A file made ready to become a segment.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(super) name: String,
    pub(super) length: u64,
}

/// A spare yet to be made, which takes a while.
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

/// The number of the segment that a file name stands for.
pub(super) fn number(name: &str) -> Option<u64> {
    numbered(name, "journal-")
}

/// The number of the spare that a file name stands for.
pub(super) fn spare_number(name: &str) -> Option<u64> {
    numbered(name, "spare-")
}

fn numbered(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.strip_suffix(".seg")?.parse().ok()
}

/// Makes a file of zeros. It is written in full, because writing to blocks that the file system has yet to allocate is
/// several times slower, and because an allocated block cannot be refused for lack of space.
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
            // What there is of it takes up the space that is missing.
            let _ = disk.remove(&name);
            Err(StoreError::io("preparing", disk.path(&name), source))
        }
    }
}
