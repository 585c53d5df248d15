//! Reads a journal back, and distinguishes what a loss of power may remove from damage.
//!
//! Segments follow each other without a gap. So do the frames in them, from each segment's first frame up to the frame
//! with which a later segment begins; what lies beyond that is superseded. Only in the last segment may the frames
//! simply end, and only if nothing proves that another frame once followed. Everything else is damage, and damage is
//! always reported.

use super::{
    Append, AppendLocation, EPOCHS_PER_OPENING, JournalStats, OpenReport, SegmentedJournal, SegmentedOptions,
    Shard,
    frame::{self, BLOCK},
    header::{self, Header, Problem},
    history,
    segment::{self, Segment, Spare},
};
use crate::{
    Epoch, StoreError,
    disk::{Disk, DiskFile},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::AtomicU64},
};

impl<D: Disk> SegmentedJournal<D> {
    /// Reads the journal, moves the last frame into a new segment, and returns a journal that can be written to.
    ///
    /// Only the last frame can be readable without ever having been synced, because each frame is written after the
    /// sync of the previous one. It is written again with a new salt and synced, so it is as durable as the others
    /// before anybody sees it.
    pub fn open(disk: Arc<D>, options: SegmentedOptions) -> Result<(Self, OpenReport), StoreError> {
        let (mut journal, read) = SegmentedJournal::read_back(disk, options)?;
        journal.remove_left_over(&read.left_over)?;
        journal.rewrite_last_header(read.last_header)?;
        journal.move_last_frame(read.last_frame)?;
        journal.seal()?;
        journal.stats = JournalStats::default();
        Ok((journal, read.report))
    }

    /// Reads the journal like `open` does, without changing anything. The result can only be read.
    pub(crate) fn open_read_only(
        disk: Arc<D>,
        options: SegmentedOptions,
    ) -> Result<(Self, OpenReport), StoreError> {
        let (journal, read) = SegmentedJournal::read_back(disk, options)?;
        Ok((journal, read.report))
    }

    fn read_back(disk: Arc<D>, options: SegmentedOptions) -> Result<(Self, JournalContents), StoreError> {
        let mut reading = JournalReader::begin(&*disk, &options)?;
        reading.read_all()?;
        let JournalReader { segments, shards, next_frame, last_frame, last_header, .. } = reading;
        let JournalReader { report, spares, left_over, next_spare, last_segment, .. } = reading;
        let epochs: Arc<[AtomicU64]> =
            shards.iter().map(|_| AtomicU64::new((last_segment + 1) * EPOCHS_PER_OPENING)).collect();
        let journal = SegmentedJournal {
            disk,
            options,
            segments,
            last_segment,
            spares,
            next_spare,
            shards,
            epochs,
            next_frame,
            needs_new_segment: true,
            unsealed: false,
            unsynced_removal: true,
            unsynced_spare: None,
            buffer: Vec::new(),
            stats: JournalStats::default(),
        };
        if let Some(once) = journal.options.must_reach {
            journal.check_reaches(once)?;
        }
        Ok((journal, JournalContents { last_frame, last_header, left_over, report }))
    }

    /// Removes spares that have another length or are too many. Called only when it is certain that the journal opens.
    fn remove_left_over(&self, names: &[String]) -> Result<(), StoreError> {
        names.iter().try_for_each(|name| {
            let removed = self.disk.remove(name);
            removed.map_err(|error| StoreError::io("removing", self.disk.path(name), error))
        })
    }

    /// After a kill, the data that was read may only be in the operating system's memory, and after a failed sync it
    /// would stay there. Writing the last segment's header again makes the segment durable.
    fn rewrite_last_header(&self, header: Option<Header>) -> Result<(), StoreError> {
        let (Some(segment), Some(header)) = (self.segments.back(), header) else { return Ok(()) };
        let written = segment.file.write_at(&header.encode(), 0).and_then(|()| segment.file.sync());
        let synced = written.and_then(|()| self.disk.sync_dir());
        synced
            .map_err(|error| StoreError::io("syncing", self.disk.path(&segment::name(segment.number)), error))
    }

    fn move_last_frame(&mut self, last: Option<LastFrame>) -> Result<(), StoreError> {
        let mut carried = Vec::new();
        if let Some(last) = last {
            self.next_frame = last.number;
            for entry in last.entries.iter().rev() {
                let shard = &mut self.shards[usize::from(entry.shard.0)];
                let located = shard.pop();
                let located = located.expect("the last frame's entries are the last ones");
                let payload = self.read(&located)?;
                carried.push(Append { shard: entry.shard, epoch: Epoch(0), seq: entry.seq, payload });
            }
            carried.reverse();
        }
        let carried: Vec<&Append> = carried.iter().collect();
        let room = frame::size(carried.iter().map(|append| &append.payload[..])) as u64;
        self.begin_segment(room, &carried)?;
        Ok(())
    }
}

/// What reading found besides the journal itself.
struct JournalContents {
    last_frame: Option<LastFrame>,
    last_header: Option<Header>,
    left_over: Vec<String>,
    report: OpenReport,
}

struct LastFrame {
    number: u64,
    entries: Vec<frame::Entry>,
}

/// The reader's state: the result of the segments so far.
struct JournalReader<'a, D: Disk> {
    disk: &'a D,
    options: &'a SegmentedOptions,
    /// Segments with valid headers that are still to be read.
    found: Vec<(Header, D::File)>,
    /// The newest file, if its header never became durable.
    headerless: Option<(u64, D::File)>,
    segments: VecDeque<Segment<D::File>>,
    shards: Vec<Shard>,
    next_frame: u64,
    last_frame: Option<LastFrame>,
    last_header: Option<Header>,
    last_segment: u64,
    spares: Vec<Spare>,
    /// Spares that cannot be used.
    left_over: Vec<String>,
    next_spare: u64,
    report: OpenReport,
    buffer: Vec<u8>,
}

impl<'a, D: Disk> JournalReader<'a, D> {
    /// Lists the files and reads the headers.
    fn begin(disk: &'a D, options: &'a SegmentedOptions) -> Result<Self, StoreError> {
        let mut reading = JournalReader {
            disk,
            options,
            found: Vec::new(),
            headerless: None,
            segments: VecDeque::new(),
            shards: Vec::new(),
            next_frame: 1,
            last_frame: None,
            last_header: None,
            last_segment: 0,
            spares: Vec::new(),
            left_over: Vec::new(),
            next_spare: 0,
            report: OpenReport::default(),
            buffer: Vec::new(),
        };
        let names = disk.list().map_err(|error| StoreError::io("listing", disk.path(""), error))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment::number(name)).collect();
        numbers.sort_unstable();
        for name in &names {
            if let Some(number) = segment::spare_number(name) {
                reading.next_spare = reading.next_spare.max(number);
                reading.keep_spare(name)?;
            }
        }
        for (index, number) in numbers.iter().copied().enumerate() {
            let newest = index + 1 == numbers.len();
            if index > 0 && numbers[index - 1] + 1 != number {
                return Err(reading.missing(numbers[index - 1] + 1));
            }
            reading.read_header(number, newest)?;
        }
        if reading.found.is_empty() && options.must_exist {
            return Err(match &reading.headerless {
                Some((number, _)) => reading.corrupt(*number, 0, "the only segment has no valid header"),
                None => reading.missing(1),
            });
        }
        Ok(reading)
    }

    /// A spare of the usual length is reused. Any other is removed later.
    fn keep_spare(&mut self, name: &str) -> Result<(), StoreError> {
        let length = self.disk.open(name).and_then(|file| file.len());
        let length = length.map_err(|error| StoreError::io("opening", self.disk.path(name), error))?;
        if length == self.options.segment_bytes && self.spares.len() < self.options.spares {
            self.spares.push(Spare { name: name.to_string(), length });
        } else {
            self.left_over.push(name.to_string());
        }
        Ok(())
    }

    fn read_header(&mut self, number: u64, newest: bool) -> Result<(), StoreError> {
        let name = segment::name(number);
        let failed = |error| StoreError::io("reading", self.disk.path(&name), error);
        let file = self.disk.open(&name).map_err(failed)?;
        // Long enough for the header of a journal that was created with more shards than the caller expects.
        let mut bytes = vec![0; header::size(usize::from(self.options.shards)).max(8 * BLOCK)];
        let length = file.read_at(&mut bytes, 0).map_err(failed)?;
        match Header::decode(&bytes[..length]) {
            Ok(header) if header.number == number => {
                let (theirs, ours) = (header.next_seqs.len(), usize::from(self.options.shards));
                if theirs != ours {
                    return Err(StoreError::Unusable(format!(
                        "{} was made for {theirs} shards, not for {ours}",
                        self.disk.path(&name)
                    )));
                }
                let length = file.len().map_err(failed)?;
                if length < header.length {
                    return Err(self.corrupt(number, length, "the file is shorter than its header says"));
                }
                self.found.push((header, file));
            }
            Err(Problem::Version(version)) => {
                return Err(StoreError::Unusable(format!(
                    "{} has format version {version}, and this program knows {}",
                    self.disk.path(&name),
                    header::VERSION
                )));
            }
            // A new file whose header did not become durable. A recycled file may still have its old header.
            Ok(_) | Err(Problem::Invalid) if newest => self.headerless = Some((number, file)),
            Ok(_) => return Err(self.corrupt(number, 0, "the header is that of another segment")),
            Err(Problem::Invalid) => return Err(self.corrupt(number, 0, "the header is damaged")),
        }
        Ok(())
    }

    fn read_all(&mut self) -> Result<(), StoreError> {
        let found = std::mem::take(&mut self.found);
        let mut limits = vec![u64::MAX; found.len()];
        for index in (1..found.len()).rev() {
            limits[index - 1] = limits[index].min(found[index].0.first_frame);
        }
        // The first segment that is not completely superseded determines where the journal begins.
        let base = found.iter().zip(&limits).map(|((header, _), limit)| (header, limit));
        let base =
            base.filter(|(header, limit)| header.first_frame < **limit).map(|(header, _)| header).next();
        self.shards = match base {
            Some(header) => {
                let begins = header.next_seqs.iter().zip(&header.digests);
                begins.map(|(next, digest)| Shard::starting_at(*next, *digest)).collect()
            }
            None => {
                let digest = |shard| history::first_digest(&self.options.history_key, shard);
                (0..self.options.shards).map(|shard| Shard::starting_at(1, digest(shard))).collect()
            }
        };
        self.next_frame = base.map_or(1, |header| header.first_frame);
        if let (None, Some((number, _))) = (base, &self.headerless) {
            self.last_segment = number - 1;
        }
        let newest = found.last().map(|(header, _)| header.number);
        for ((header, file), limit) in found.into_iter().zip(limits) {
            self.last_segment = header.number;
            let closed = self.read_segment(header, file, limit)?;
            if closed && newest == Some(self.last_segment) {
                return Err(match &self.headerless {
                    Some((number, _)) => self.corrupt(*number, 0, "the header is damaged"),
                    None => self.missing(self.last_segment + 1),
                });
            }
        }
        self.check_headerless()
    }

    /// Reads the frames below `limit`. Returns whether the segment has its closing mark.
    fn read_segment(&mut self, header: Header, file: D::File, limit: u64) -> Result<bool, StoreError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.load(header.number, &file, header.length, &mut buffer)?;
        let last = limit == u64::MAX;
        let start = header::data_start(header.next_seqs.len());
        let mut offset = start;
        let mut frame_number = header.first_frame;
        let mut segment = Segment {
            file,
            number: header.number,
            salt: header.salt,
            length: header.length,
            end: 0,
            highest_frame: 0,
            last_seqs: BTreeMap::new(),
        };
        if frame_number < limit {
            self.check_continuity(&header)?;
        }
        while frame_number < limit {
            let whole = buffer
                .get(offset..)
                .and_then(frame::check)
                .filter(|head| head.salt == header.salt && head.number == frame_number);
            let Some(head) = whole else { break };
            self.accept(&mut segment, &buffer[offset..], offset, &head)?;
            offset += head.size();
            frame_number += 1;
        }
        if frame_number < limit {
            if !last {
                return Err(self.corrupt(
                    header.number,
                    offset as u64,
                    &format!("frame {frame_number} is damaged; the next segment shows that it was written"),
                ));
            }
            self.check_end(&header, &buffer, offset, frame_number)?;
        }
        segment.highest_frame =
            highest_frame(&buffer, start, header.salt).max(frame_number.saturating_sub(1));
        segment.end = offset as u64;
        let closed = is_closed(&buffer, &header);
        self.segments.push_back(segment);
        self.last_header = Some(header);
        self.buffer = buffer;
        Ok(closed)
    }

    fn load(
        &mut self,
        number: u64,
        file: &D::File,
        length: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let path = || self.disk.path(&segment::name(number));
        // Segments mostly have the same length, so the buffer is seldom made anew. New memory is zero; `resize` would clear it
        // byte by byte in a debug build, which took most of a restart.
        if buffer.len() < length as usize {
            *buffer = vec![0; length as usize];
        }
        buffer.truncate(length as usize);
        let read = file.read_at(buffer, 0).map_err(|error| StoreError::io("reading", path(), error))?;
        buffer.truncate(read);
        self.report.segments += 1;
        self.report.bytes += read as u64;
        Ok(())
    }

    /// Checks that a segment's header continues the segments before it.
    fn check_continuity(&self, header: &Header) -> Result<(), StoreError> {
        if header.first_frame != self.next_frame {
            let detail = format!("it begins with frame {}, not {}", header.first_frame, self.next_frame);
            return Err(self.corrupt(header.number, 0, &detail));
        }
        for (shard, (state, next)) in self.shards.iter().zip(&header.next_seqs).enumerate() {
            if state.next != *next {
                let detail =
                    format!("it says that append {next} of shard {shard} is next, not {}", state.next);
                return Err(self.corrupt(header.number, 0, &detail));
            }
            if state.digest() != header.digests[shard] {
                let detail = format!("the appends of shard {shard} before it are those of another history");
                return Err(self.corrupt(header.number, 0, &detail));
            }
        }
        Ok(())
    }

    fn accept(
        &mut self,
        segment: &mut Segment<D::File>,
        bytes: &[u8],
        offset: usize,
        head: &frame::Head,
    ) -> Result<(), StoreError> {
        let Some(entries) = frame::entries(bytes, head) else {
            return Err(self.corrupt(
                segment.number,
                offset as u64,
                "the lengths of the frame's entries do not add up",
            ));
        };
        for entry in &entries {
            let next = self.shards.get(usize::from(entry.shard.0)).map(|shard| shard.next);
            if next != Some(entry.seq.0) {
                let detail = format!("append {} of shard {} does not follow", entry.seq.0, entry.shard.0);
                return Err(self.corrupt(segment.number, offset as u64, &detail));
            }
            let location = AppendLocation {
                seq: entry.seq.0,
                segment: segment.number,
                offset: (offset + entry.range.start) as u64,
                length: entry.range.len() as u32,
                crc: crc32c::crc32c(&bytes[entry.range.clone()]),
                digest: 0,
            };
            self.shards[usize::from(entry.shard.0)].push(&self.options.history_key, location);
            segment.last_seqs.insert(entry.shard.0, entry.seq.0);
        }
        self.next_frame = head.number + 1;
        self.last_frame = Some(LastFrame { number: head.number, entries });
        self.report.frames += 1;
        Ok(())
    }

    /// Decides whether the frames may end here. A torn frame is the normal end after a loss of power, unless a later
    /// frame was begun: that happens only after a sync, so this frame was complete once. The salt of a later frame
    /// proves it, even if that frame is torn.
    fn check_end(
        &mut self,
        header: &Header,
        buffer: &[u8],
        end: usize,
        expected: u64,
    ) -> Result<(), StoreError> {
        let later = blocks(buffer, end + BLOCK).find_map(|block| {
            frame::peek(block).filter(|head| head.salt == header.salt && head.number > expected)
        });
        if let Some(later) = later {
            let detail = format!("frame {expected} is damaged; frame {} follows it", later.number);
            return Err(self.corrupt(header.number, end as u64, &detail));
        }
        let begun = buffer.get(end..).and_then(frame::peek);
        if begun.is_some_and(|head| head.salt == header.salt && head.number == expected) {
            let path = self.disk.path(&segment::name(header.number));
            tracing::info!(
                path,
                offset = end,
                frame = expected,
                "dropped a torn frame that was never answered"
            );
            self.report.torn = Some((path, end as u64));
        }
        Ok(())
    }

    /// A file without a valid header is harmless only if no frame was ever written to it.
    fn check_headerless(&mut self) -> Result<(), StoreError> {
        let Some((number, file)) = self.headerless.take() else { return Ok(()) };
        let path = self.disk.path(&segment::name(number));
        let length = file.len().map_err(|error| StoreError::io("reading", path.clone(), error))?;
        let mut buffer = Vec::new();
        self.load(number, &file, length, &mut buffer)?;
        let next = self.next_frame;
        let newer = |block: &[u8]| frame::check(block).is_some_and(|head| head.number >= next);
        if blocks(&buffer, 0).any(newer) {
            return Err(self.corrupt(number, 0, "the header is damaged; frames follow it"));
        }
        tracing::info!(path, "ignored a segment whose header was never written");
        Ok(())
    }

    fn corrupt(&self, number: u64, offset: u64, detail: &str) -> StoreError {
        let path = self.disk.path(&segment::name(number));
        StoreError::Corrupt { path, offset, detail: detail.to_string() }
    }

    fn missing(&self, number: u64) -> StoreError {
        self.corrupt(number, 0, "the segment is missing")
    }
}

/// The rest of the buffer, from each block boundary on.
fn blocks(buffer: &[u8], from: usize) -> impl Iterator<Item = &[u8]> {
    (from..buffer.len()).step_by(BLOCK).map(|offset| &buffer[offset..])
}

/// The highest number of a frame of this segment, including superseded and torn ones.
fn highest_frame(buffer: &[u8], start: usize, salt: u64) -> u64 {
    let heads = blocks(buffer, start).filter_map(frame::peek).filter(|head| head.salt == salt);
    heads.map(|head| head.number).max().unwrap_or(0)
}

fn is_closed(buffer: &[u8], header: &Header) -> bool {
    let at = header::size(header.next_seqs.len());
    buffer.get(at..).is_some_and(|bytes| header::is_closing_mark(bytes, header))
}
