//! A digest of each shard's history, which proves that a table and a journal belong together.
//!
//! The digest after an append covers all appends of the shard up to there: it is the hash, under the key of the journal, of the digest
//! before, the append's seq and the checksum of its payload. Each segment's header has the digests at its beginning, so that they are
//! known of every append that the journal still has, and of the one before. A checkpoint stores the digest with its seq. The same seq
//! under another digest is the seq of another history: of another directory, or of a copy that was used on its own.

use super::{AppendLocation, JournalEnd, SegmentedJournal};
use crate::{Seq, ShardId, StoreError, disk::Disk, sip_hash};
use std::collections::VecDeque;

/// What is known of a shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) next: u64,
    pub(super) released: u64,
    /// The appends that are in live segments, in order and without gaps.
    pub(super) entries: VecDeque<AppendLocation>,
    /// The digest before the first of these appends.
    base: u64,
}

/// The digest of a shard that has no append yet.
pub(super) fn first_digest(key: &[u8; 16], shard: u16) -> u64 {
    sip_hash(key, &shard.to_le_bytes())
}

fn digest_after(key: &[u8; 16], before: u64, seq: u64, crc: u32) -> u64 {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&before.to_le_bytes());
    bytes[8..16].copy_from_slice(&seq.to_le_bytes());
    bytes[16..].copy_from_slice(&crc.to_le_bytes());
    sip_hash(key, &bytes)
}

impl Shard {
    /// A shard whose appends before `next` are not in the journal any more.
    pub(super) fn starting_at(next: u64, digest: u64) -> Shard {
        Shard { next, released: next - 1, entries: VecDeque::new(), base: digest }
    }

    /// The digest after the last append.
    pub(super) fn digest(&self) -> u64 {
        self.entries.back().map_or(self.base, |append| append.digest)
    }

    /// Adds an append, and its digest.
    pub(super) fn push(&mut self, key: &[u8; 16], mut append: AppendLocation) {
        append.digest = digest_after(key, self.digest(), append.seq, append.crc);
        self.next = append.seq + 1;
        self.entries.push_back(append);
    }

    /// Takes the last append back.
    pub(super) fn pop(&mut self) -> Option<AppendLocation> {
        let append = self.entries.pop_back()?;
        self.next = append.seq;
        Some(append)
    }

    /// Forgets the appends up to the end of this segment, which is released.
    pub(super) fn forget(&mut self, segment: u64) {
        while self.entries.front().is_some_and(|append| append.segment <= segment)
            && let Some(append) = self.entries.pop_front()
        {
            self.base = append.digest;
        }
    }

    /// The seq before the first append that is still here.
    pub(super) fn released_before(&self) -> u64 {
        self.entries.front().map_or(self.next, |append| append.seq) - 1
    }

    fn digest_at(&self, seq: u64) -> Option<u64> {
        match seq.checked_sub(self.released_before())? {
            0 => Some(self.base),
            appends => self.entries.get(usize::try_from(appends).ok()? - 1).map(|append| append.digest),
        }
    }
}

impl<D: Disk> SegmentedJournal<D> {
    /// The digest of the shard's history up to this append. `None` if the journal does not reach so far, or not so far back.
    pub fn digest_at(&self, shard: ShardId, seq: Seq) -> Option<u64> {
        self.shards.get(usize::from(shard.0))?.digest_at(seq.0)
    }

    /// Checks that a table with this digest at `seq` has the history of this journal.
    pub fn check_history(&self, shard: ShardId, seq: Seq, digest: u64) -> Result<(), StoreError> {
        match self.digest_at(shard, seq) {
            Some(own) if own == digest => Ok(()),
            Some(_) => Err(StoreError::Unusable(format!(
                "table and journal do not belong together: append {} of shard {} is not the one that the table contains",
                seq.0, shard.0
            ))),
            None => Err(StoreError::Unusable(format!(
                "table and journal do not belong together: the table contains append {} of shard {}, and the journal has {} to {}",
                seq.0,
                shard.0,
                self.released_before(shard).next().0,
                self.last_seq(shard).0
            ))),
        }
    }

    /// Where the journal ends now. All of it up to there is durable.
    pub fn end(&self) -> JournalEnd {
        let (segment, salt) = self.segments.back().map_or((0, 0), |segment| (segment.number, segment.salt));
        JournalEnd { segment, salt, frame: self.next_frame - 1 }
    }

    /// Checks that the journal still reaches to where it ended once.
    pub(super) fn check_reaches(&self, once: JournalEnd) -> Result<(), StoreError> {
        let end = self.end();
        let same = self.segments.iter().find(|segment| segment.number == once.segment);
        if (end.segment, end.frame) < (once.segment, once.frame) {
            return Err(StoreError::Unusable(format!(
                "the journal {} has lost data: it ends with frame {} in segment {}, and once had frame {} in segment {}",
                self.disk.path(""),
                end.frame,
                end.segment,
                once.frame,
                once.segment
            )));
        }
        if same.is_some_and(|segment| segment.salt != once.salt) {
            return Err(StoreError::Unusable(format!(
                "the journal {} is that of another history: its segment {} is not the one that was used with this table",
                self.disk.path(""),
                once.segment
            )));
        }
        Ok(())
    }
}
