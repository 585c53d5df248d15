//! The journal in segment files: synchronous, single-threaded, over a [`Disk`].
//!
//! All shards share it. One [`SegmentedJournal::append`] is one frame and one sync. Four rules keep it correct:
//!
//! 1. A frame is written only after the sync of the previous one has returned. So only the last frame can be torn.
//! 2. After a failed write or sync, nothing more is written to that segment. A new segment supersedes the failed frame:
//!    its header says that it begins with the number of that frame. Nothing is answered before that header is durable.
//! 3. As soon as the name of a new segment may be on disk, the old segment gets no more frames, because the new header
//!    would supersede them.
//! 4. Every answered frame soon gets a successor ([`SegmentedJournal::seal`]), so that a damaged frame cannot be
//!    mistaken for a torn one.
//!
//! `opening.rs` reads the journal back.

mod damage;
mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod header;
mod history;
mod opening;
mod options;
mod release;
mod segment;

pub use options::{Append, JournalEnd, OpenReport, Salts, SegmentedOptions};

use crate::{
    AppendError, Epoch, JournalStats, LogLimit, Seq, ShardId, StoreError,
    disk::{Disk, DiskFile},
};
use bytes::Bytes;
pub(crate) use damage::find_all_damage;
use header::Header;
use history::Shard;
use segment::Segment;
pub(crate) use segment::Spare;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The maximum number of bytes that [`SegmentedJournal::tail`] returns, unless a single payload is longer.
const TAIL_BYTES: u64 = 8 << 20;
/// Buffer memory that is kept for the next frame, in bytes.
const BUFFER_BYTES: usize = 8 << 20;
/// The range of epochs that each opening reserves for a shard. It must exceed the number of times that the shard is
/// taken before the next opening.
const EPOCHS_PER_OPENING: u64 = 1 << 24;

/// The journal in segment files. See the module's description.
pub struct SegmentedJournal<D: Disk> {
    disk: Arc<D>,
    options: SegmentedOptions,
    /// Sorted by number. The last one is written to.
    segments: VecDeque<Segment<D::File>>,
    last_segment: u64,
    spares: Vec<Spare>,
    next_spare: u64,
    shards: Vec<Shard>,
    epochs: Arc<[AtomicU64]>,
    next_frame: u64,
    /// A new segment must begin before the next frame is written, because the last one failed.
    needs_new_segment: bool,
    /// The last frame has entries, and no frame follows it.
    unsealed: bool,
    /// A segment was removed from the journal, but the directory was not synced since.
    unsynced_removal: bool,
    /// The segment's new name after recycling. Do not write to the segment before the rename is durable: after a crash the
    /// old name may return.
    unsynced_spare: Option<Spare>,
    buffer: Vec<u8>,
    stats: JournalStats,
}

/// Where the payload of an append is stored.
#[derive(Debug, Clone, Copy)]
struct AppendLocation {
    seq: u64,
    segment: u64,
    offset: u64,
    length: u32,
    crc: u32,
    /// The digest of the shard's history up to this append.
    digest: u64,
}

impl<D: Disk> SegmentedJournal<D> {
    /// Writes all valid appends as one frame, which is durable on return. Returns one result per append.
    pub fn append(&mut self, appends: &[Append]) -> Vec<Result<(), AppendError>> {
        let mut answers: Vec<Result<(), AppendError>> = Vec::with_capacity(appends.len());
        let mut upcoming: BTreeMap<u16, u64> = BTreeMap::new();
        for append in appends {
            answers.push(self.admit(append, &mut upcoming));
        }
        let admitted: Vec<&Append> = appends
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_ok())
            .map(|(append, _)| append)
            .collect();
        if admitted.is_empty() {
            return answers;
        }
        let refuse: Box<dyn Fn() -> AppendError> = match self.ensure_segment_for(&admitted) {
            Err(error) if error.is_full() => Box::new(|| AppendError::Full),
            Err(error) => Box::new(move || AppendError::NotDone(error.again())),
            Ok(()) => match self.write_frame(&admitted) {
                Ok(()) => return answers,
                Err(error) => {
                    self.supersede_failed(&admitted, &error);
                    Box::new(move || AppendError::Unknown(error.again()))
                }
            },
        };
        for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
            *answer = Err(refuse());
        }
        answers
    }

    fn admit(&self, append: &Append, upcoming: &mut BTreeMap<u16, u64>) -> Result<(), AppendError> {
        let not_done = |detail: String| Err(AppendError::NotDone(StoreError::Unusable(detail)));
        let shard = append.shard.0;
        let Some(state) = self.shards.get(usize::from(shard)) else {
            return not_done(format!("there is no shard {shard}"));
        };
        if self.epoch(append.shard) != append.epoch {
            return Err(AppendError::Fenced);
        }
        let next = upcoming.get(&shard).copied().unwrap_or(state.next);
        if append.seq.0 != next {
            return not_done(format!(
                "append {} of shard {shard} is out of order: the next one is {next}",
                append.seq.0
            ));
        }
        if append.payload.len() > self.options.payload_bytes {
            let (length, bound) = (append.payload.len(), self.options.payload_bytes);
            return not_done(format!("a payload of {length} bytes is longer than {bound}"));
        }
        upcoming.insert(shard, next + 1);
        Ok(())
    }

    /// Begins a new segment if the last one failed or is too full for the frame.
    fn ensure_segment_for(&mut self, admitted: &[&Append]) -> Result<(), StoreError> {
        let size = frame::size(admitted.iter().map(|append| &append.payload[..])) as u64;
        let fits = self.segments.back().is_some_and(|segment| segment.end + size <= segment.length);
        match !self.needs_new_segment && fits {
            true => Ok(()),
            false => self.begin_segment(size, &[]),
        }
    }

    /// Writes the frame into the last segment and syncs it. Only then are its appends added to the index.
    fn write_frame(&mut self, admitted: &[&Append]) -> Result<(), StoreError> {
        let segment = self.segments.back_mut().expect("a segment stands");
        let entries = admitted.iter().map(|append| (append.shard, append.seq, &append.payload[..]));
        let written = frame::encode(&mut self.buffer, segment.salt, self.next_frame, entries);
        let offset = segment.end;
        segment.highest_frame = self.next_frame;
        let path = || self.disk.path(&segment::name(segment.number));
        segment
            .file
            .write_at(&self.buffer, offset)
            .map_err(|error| StoreError::io("writing", path(), error))?;
        segment.file.sync().map_err(|error| StoreError::io("syncing", path(), error))?;
        self.stats.syncs += 1;
        self.stats.appends += admitted.len() as u64;
        self.frame_is_durable(offset, &written);
        Ok(())
    }

    fn frame_is_durable(&mut self, offset: u64, entries: &[frame::Entry]) {
        let segment = self.segments.back_mut().expect("a segment stands");
        segment.end = offset + self.buffer.len() as u64;
        segment.highest_frame = segment.highest_frame.max(self.next_frame);
        for entry in entries {
            segment.last_seqs.insert(entry.shard.0, entry.seq.0);
            let shard = &mut self.shards[usize::from(entry.shard.0)];
            let location = AppendLocation {
                seq: entry.seq.0,
                segment: segment.number,
                offset: offset + entry.range.start as u64,
                length: entry.range.len() as u32,
                crc: crc32c::crc32c(&self.buffer[entry.range.clone()]),
                digest: 0,
            };
            shard.push(&self.options.history_key, location);
        }
        self.next_frame += 1;
        self.stats.frames += 1;
        self.unsealed = !entries.is_empty();
        // Release the memory of a rare large frame.
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES);
    }

    /// Handles a failed write or sync: the shards of the frame must be taken again, and the frame must never be read
    /// back.
    fn supersede_failed(&mut self, admitted: &[&Append], error: &StoreError) {
        static FAILURES: LogLimit = LogLimit::new();
        static NO_SEGMENT: LogLimit = LogLimit::new();
        if let Some(times) = FAILURES.times(error) {
            let (error, frame) = (error as &dyn std::error::Error, self.next_frame);
            tracing::error!(error, frame, times, "the journal failed");
        }
        let shards: BTreeSet<ShardId> = admitted.iter().map(|append| append.shard).collect();
        for shard in shards {
            self.epochs[usize::from(shard.0)].fetch_add(1, Ordering::SeqCst);
        }
        self.needs_new_segment = true;
        if let Err(error) = self.replace_failed_segment()
            && let Some(times) = NO_SEGMENT.times(&error)
        {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, times, "a new segment could not be created");
        }
    }

    /// Begins a new segment if the last one failed. Until this succeeds, no shard can be taken and nothing can be
    /// appended.
    pub fn replace_failed_segment(&mut self) -> Result<(), StoreError> {
        match self.needs_new_segment {
            true => self.begin_segment(0, &[]),
            false => Ok(()),
        }
    }

    /// Whether a new segment must begin because the last one failed.
    pub fn needs_new_segment(&self) -> bool {
        self.needs_new_segment
    }

    /// Writes an empty frame if the last frame has entries and no successor, because only then can damage to that frame
    /// be recognized. To be called after a short idle time, and before closing.
    pub fn seal(&mut self) -> Result<(), StoreError> {
        if !self.unsealed || self.needs_new_segment {
            return Ok(());
        }
        self.ensure_segment_for(&[])?;
        self.write_frame(&[]).inspect_err(|error| self.supersede_failed(&[], error))
    }

    /// Begins the next segment, and writes `carried` as its first frame. These are appends that were accepted before:
    /// they must be durable in the new segment before its header supersedes the place where they were.
    fn begin_segment(&mut self, room: u64, carried: &[&Append]) -> Result<(), StoreError> {
        let start = header::data_start(self.shards.len()) as u64;
        let spare = self.spare(start + room)?;
        let number = self.last_segment + 1;
        let salt = self.options.salts.draw(number)?;
        let name = segment::name(number);
        let path = self.disk.path(&name);
        let failed = |action: &'static str| {
            let path = path.clone();
            move |error| StoreError::io(action, path, error)
        };

        let header = Header {
            number,
            salt,
            first_frame: self.next_frame,
            length: spare.length,
            next_seqs: self.shards.iter().map(|shard| shard.next).collect(),
            digests: self.shards.iter().map(Shard::digest).collect(),
        };
        self.needs_new_segment = true;
        self.disk.rename(&spare.name, &name).map_err(failed("renaming"))?;
        let file = self.disk.open(&name).map_err(failed("opening"))?;
        let mut entries = Vec::new();
        if !carried.is_empty() {
            let appends = carried.iter().map(|append| (append.shard, append.seq, &append.payload[..]));
            entries = frame::encode(&mut self.buffer, salt, self.next_frame, appends);
            file.write_at(&self.buffer, start).map_err(failed("writing"))?;
            file.sync().map_err(failed("syncing"))?;
        }
        file.write_at(&header.encode(), 0).map_err(failed("writing"))?;
        file.sync().map_err(failed("syncing"))?;
        self.disk.sync_dir().map_err(failed("naming"))?;
        self.stats.syncs += 2;
        self.close_last_segment();

        self.segments.push_back(Segment {
            file,
            number,
            salt,
            length: header.length,
            end: start,
            highest_frame: 0,
            last_seqs: BTreeMap::new(),
        });
        self.last_segment = number;
        self.needs_new_segment = false;
        self.unsealed = false;
        if !carried.is_empty() {
            self.frame_is_durable(start, &entries);
        }
        Ok(())
    }

    /// Marks the last segment as continued. If this fails, only a later loss of the new file would go unnoticed.
    fn close_last_segment(&mut self) {
        let Some(segment) = self.segments.back() else { return };
        let mark = header::closing_mark(segment.number, segment.salt);
        let offset = header::size(self.shards.len()) as u64;
        if let Err(error) = segment.file.write_at(&mark, offset).and_then(|()| segment.file.sync()) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                number = segment.number,
                "a segment could not be marked as continued"
            );
        }
        self.stats.syncs += 1;
    }

    /// Whether the last frame has entries and no successor.
    pub fn is_unsealed(&self) -> bool {
        self.unsealed && !self.needs_new_segment
    }

    /// The epoch that owns the shard now.
    pub fn epoch(&self, shard: ShardId) -> Epoch {
        Epoch(self.epochs.get(usize::from(shard.0)).map_or(0, |epoch| epoch.load(Ordering::SeqCst)))
    }

    /// The present epoch of every shard, for other threads to read.
    pub fn epochs(&self) -> Arc<[AtomicU64]> {
        self.epochs.clone()
    }

    /// Takes ownership of the shard. All older epochs are rejected from now on.
    pub fn take(&mut self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.replace_failed_segment()?;
        let epoch = self.epochs.get(usize::from(shard.0)).ok_or_else(|| no_such_shard(shard))?;
        Ok(Epoch(epoch.fetch_add(1, Ordering::SeqCst) + 1))
    }

    /// Returns the appends after `after`; at most a few megabytes of them.
    pub fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        let state = self.shards.get(usize::from(shard.0)).ok_or_else(|| no_such_shard(shard))?;
        if self.epoch(shard) != epoch {
            return Err(StoreError::NotOwned);
        }
        let oldest = state.entries.front().map_or(state.next, |entry| entry.seq);
        let Some(skip) = after.0.saturating_add(1).checked_sub(oldest) else {
            return Err(StoreError::Unusable(format!(
                "the journal has shard {} only from append {oldest} on, but appends after {} were requested",
                shard.0, after.0
            )));
        };
        let mut part = Vec::new();
        let mut bytes = 0;
        for entry in state.entries.iter().skip(skip as usize) {
            if bytes > 0 && bytes + u64::from(entry.length) > TAIL_BYTES {
                break;
            }
            bytes += u64::from(entry.length);
            part.push((Seq(entry.seq), self.read(entry)?));
        }
        Ok(part)
    }

    /// Calls `each` for every append of the shard, with its file and the offset of its payload.
    pub(crate) fn each_append(
        &self,
        shard: ShardId,
        mut each: impl FnMut(Seq, &str, u64, Result<Bytes, StoreError>),
    ) {
        for entry in self.shards.get(usize::from(shard.0)).iter().flat_map(|state| &state.entries) {
            let path = self.disk.path(&segment::name(entry.segment));
            each(Seq(entry.seq), &path, entry.offset, self.read(entry));
        }
    }

    fn read(&self, entry: &AppendLocation) -> Result<Bytes, StoreError> {
        let index = self.segments.front().map_or(0, |first| entry.segment - first.number);
        let segment = &self.segments[index as usize];
        let path = || self.disk.path(&segment::name(entry.segment));
        let mut payload = vec![0; entry.length as usize];
        let read = segment.file.read_at(&mut payload, entry.offset);
        let length = read.map_err(|error| StoreError::io("reading", path(), error))?;
        if length < payload.len() || crc32c::crc32c(&payload) != entry.crc {
            return Err(StoreError::Corrupt {
                path: path(),
                offset: entry.offset,
                detail: format!("append {} is damaged: its checksum does not match", entry.seq),
            });
        }
        Ok(payload.into())
    }
}

fn no_such_shard(shard: ShardId) -> StoreError {
    StoreError::Unusable(format!("there is no shard {}", shard.0))
}
