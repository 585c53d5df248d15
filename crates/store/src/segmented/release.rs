//! Releases what the table contains: released segments become spares, and spares become segments again.

use super::{
    JournalStats, SegmentedJournal, Shard, frame,
    segment::{self, Segment, Spare, SpareJob},
};
use crate::{LogLimit, Seq, ShardId, StoreError, disk::Disk};

impl<D: Disk> SegmentedJournal<D> {
    /// The shard's last seq. Zero before its first append.
    pub fn last_seq(&self, shard: ShardId) -> Seq {
        Seq(self.shards.get(usize::from(shard.0)).map_or(0, |state| state.next - 1))
    }

    /// The seq before the first append of the shard that the journal still has. The table must contain at least up to
    /// here.
    pub fn released_before(&self, shard: ShardId) -> Seq {
        let state = self.shards.get(usize::from(shard.0));
        Seq(state.map_or(0, Shard::released_before))
    }

    /// Checks that a table that contains the shard up to `applied` fits this journal, and that neither has lost data.
    pub fn check_applied(&self, shard: ShardId, applied: Seq) -> Result<(), StoreError> {
        let (oldest, last) = (self.released_before(shard), self.last_seq(shard));
        if applied < oldest {
            return Err(StoreError::Unusable(format!(
                "the table has lost data: it holds shard {} up to append {}, but the journal was released up to {}",
                shard.0, applied.0, oldest.0
            )));
        }
        if applied > last {
            return Err(StoreError::Unusable(format!(
                "the journal has lost data: it ends with append {} of shard {}, but the table holds up to {}",
                last.0, shard.0, applied.0
            )));
        }
        Ok(())
    }

    /// The table contains the shard up to `upto`. Segments that are no longer needed become spares.
    pub fn release(&mut self, shard: ShardId, upto: Seq) {
        let Some(state) = self.shards.get_mut(usize::from(shard.0)) else { return };
        state.released = state.released.max(upto.0.min(state.next - 1));
        static FAILURES: LogLimit = LogLimit::new();
        if let Err(error) = self.recycle()
            && let Some(times) = FAILURES.times(&error)
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, times, "a segment could not be released; trying again");
        }
    }

    /// Removes the oldest segments one after the other, so that a crash never leaves a gap in the middle.
    fn recycle(&mut self) -> Result<(), StoreError> {
        loop {
            if self.unsynced_removal {
                self.disk.sync_dir().map_err(|error| StoreError::io("syncing", self.disk.path(""), error))?;
                self.unsynced_removal = false;
                self.spares.extend(self.unsynced_spare.take());
            }
            let Some(oldest) = self.segments.front() else { return Ok(()) };
            if self.segments.len() < 2 || self.pins(oldest).next().is_some() {
                return Ok(());
            }
            let (number, length) = (oldest.number, oldest.length);
            let name = segment::name(number);
            // An old frame in a spare must never be mistaken for a future frame.
            let reusable = oldest.highest_frame < self.next_frame
                && length == self.options.segment_bytes
                && self.spares.len() < self.options.spares;
            let removed = if reusable {
                self.next_spare += 1;
                let spare = format!("spare-{:010}.seg", self.next_spare);
                self.disk
                    .rename(&name, &spare)
                    .map(|()| self.unsynced_spare = Some(Spare { name: spare, length }))
            } else {
                self.disk.remove(&name)
            };
            removed.map_err(|error| StoreError::io("releasing", self.disk.path(&name), error))?;
            self.unsynced_removal = true;
            self.segments.pop_front();
            for shard in &mut self.shards {
                shard.forget(number);
            }
        }
    }

    /// The shards that have unreleased appends in the segment, each with its first unreleased seq.
    fn pins<'a>(&'a self, segment: &'a Segment<D::File>) -> impl Iterator<Item = (ShardId, Seq)> + 'a {
        segment.last_seqs.iter().filter_map(|(shard, last)| {
            let released = self.shards[usize::from(*shard)].released;
            (released < *last).then_some((ShardId(*shard), Seq(released + 1)))
        })
    }

    /// The shards that prevent the oldest segment from being released, if there is a newer one.
    pub fn pinning_shards(&self) -> Vec<(ShardId, Seq)> {
        match self.segments.front() {
            Some(oldest) if self.segments.len() > 1 => self.pins(oldest).collect(),
            _ => Vec::new(),
        }
    }

    /// The journal's present size, and its work since it was opened.
    pub fn stats(&self) -> JournalStats {
        JournalStats {
            segments: self.segments.len() as u64,
            live_bytes: self.segments.iter().map(|segment| segment.length).sum(),
            spares: self.spares.len() as u64,
            pinning: self.pinning_shards(),
            ..self.stats.clone()
        }
    }

    /// A file that can become a segment of at least `needed` bytes.
    pub(super) fn spare(&mut self, needed: u64) -> Result<Spare, StoreError> {
        if let Some(index) = self.spares.iter().position(|spare| spare.length >= needed) {
            return Ok(self.spares.swap_remove(index));
        }
        let length = self.options.segment_bytes.max(needed).next_multiple_of(frame::BLOCK as u64);
        self.next_spare += 1;
        segment::make_spare(&*self.disk, self.next_spare, length)
    }

    /// Creates a spare if there is none.
    pub(crate) fn ensure_spare(&mut self) -> Result<(), StoreError> {
        if self.spares.is_empty() {
            let spare = self.spare(self.options.segment_bytes)?;
            self.spares.push(spare);
        }
        Ok(())
    }

    /// A job that creates the next spare on another thread, if it will be needed soon: the last segment is half full,
    /// and there is no spare.
    pub(crate) fn next_spare_job(&mut self) -> Option<SpareJob<D>> {
        let half_full = self.segments.back().is_some_and(|segment| segment.end * 2 > segment.length);
        if !half_full || !self.spares.is_empty() {
            return None;
        }
        self.next_spare += 1;
        let (disk, number, length) = (self.disk.clone(), self.next_spare, self.options.segment_bytes);
        Some(SpareJob { disk, number, length })
    }

    /// Adds the result of a [`SpareJob`].
    pub(crate) fn add_spare(&mut self, spare: Spare) {
        self.spares.push(spare);
    }
}
