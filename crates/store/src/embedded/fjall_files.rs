//! The files of the table as fjall writes them (the version that is pinned), read without fjall.
//!
//! `version` says which format it is. Each keyspace has a file `current` that names a version file and bears its
//! checksum; the version file lists the live table files, each with the checksum of all its bytes. A table file is blocks,
//! one after the other, each with a header that bears its checksum, then a table of contents and a trailer. fjall's own
//! log (`*.jnl`) is batches with a checksum over their items.

use crate::StoreError;
use std::{
    fs::File,
    io::{BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_128};

/// `current`: the version's id (u64), its checksum (u128), the kind of checksum (u8).
const CURRENT: usize = 25;
const MARKER: &[u8] = b"FJL\x03";
const BLOCK_MAGIC: [u8; 4] = *b"LSM\x03";
/// Magic, type (u8), checksum (u128), length (u32), uncompressed length (u32), checksum of the header (u32).
const BLOCK_HEADER: usize = 33;
/// Magic, version (u8), kind of checksum (u8), checksum of the contents (u128), where they are (u64), their length (u64).
const TRAILER: usize = 38;
const TRAILER_BEGINS: &[u8] = b"SFA!\x01\x00";
const CONTENTS_BEGIN: &[u8] = b"TOC!";
/// A version file lists these of each table: id (u64), kind of checksum (u8), checksum (u128), global seqno (u64).
const LISTED: usize = 33;
/// How many damaged places of one file are told.
const PLACES: usize = 8;

/// A table file that the current version lists.
pub(super) struct Live {
    pub(super) path: PathBuf,
    pub(super) checksum: u128,
}

/// The folders of the keyspaces.
pub(super) fn keyspaces(directory: &Path) -> Vec<PathBuf> {
    files(&directory.join("keyspaces"))
}

/// fjall's own logs.
pub(super) fn logs(directory: &Path) -> Vec<PathBuf> {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jnl");
    files(directory).into_iter().filter(is_log).collect()
}

/// What a directory holds, in order; nothing if it cannot be read, which those who open its files notice.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths
}

/// Whether `version` says what it should.
pub(super) fn check_marker(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join("version");
    match std::fs::read(&path) {
        Ok(bytes) if bytes == MARKER => Ok(()),
        Ok(_) => Err(corrupt(&path, 0, "it does not say that this is a table of the format that is used")),
        Err(error) => Err(failed("reading", &path, error)),
    }
}

/// The live tables of a keyspace, by its version file, which must have the checksum that stands in `current`. Nothing
/// where there is no `current`: then the keyspace was never completely created, and fjall deals with it.
pub(super) fn live_tables(keyspace: &Path) -> Result<Option<Vec<Live>>, StoreError> {
    let current = keyspace.join("current");
    let bytes = match std::fs::read(&current) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("reading", &current, error)),
    };
    let bytes: [u8; CURRENT] =
        bytes.try_into().map_err(|_| corrupt(&current, 0, "it does not have its length"))?;
    if bytes[24] != 0 {
        return Err(corrupt(&current, 24, "it bears an unknown kind of checksum"));
    }
    let (id, checksum) = (u64_at(&bytes, 0), u128_at(&bytes, 8));
    let version = keyspace.join(format!("v{id}"));
    let bytes = std::fs::read(&version).map_err(|error| {
        corrupt(&current, 0, &format!("the version that it names cannot be read ({error})"))
    })?;
    if xxh3_128(&bytes) != checksum {
        let words = "it does not have the checksum that stands in the file \"current\"";
        return Err(corrupt(&version, 0, words));
    }
    let listed = section(&bytes, b"tables").and_then(listed_tables);
    let listed = listed.ok_or_else(|| corrupt(&version, 0, "its list of tables cannot be understood"))?;
    let tables = keyspace.join("tables");
    let live = |(id, checksum): (u64, u128)| Live { path: tables.join(id.to_string()), checksum };
    Ok(Some(listed.into_iter().map(live).collect()))
}

/// A section of a file that ends with contents and a trailer.
fn section<'a>(bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let trailer = bytes.last_chunk::<TRAILER>()?;
    let mut rest = bytes.get(usize::try_from(u64_at(trailer, 22)).ok()?..)?.strip_prefix(CONTENTS_BEGIN)?;
    for _ in 0..take_u32(&mut rest)? {
        let entry = rest.split_off(..18)?;
        let name = rest.split_off(..usize::from(u16::from_le_bytes([entry[16], entry[17]])))?;
        if name == wanted {
            let (at, length) = (usize::try_from(u64_at(entry, 0)).ok()?, usize::try_from(u64_at(entry, 8)).ok()?);
            return bytes.get(at..at.checked_add(length)?);
        }
    }
    None
}

/// Levels, in each runs, in each tables.
fn listed_tables(mut bytes: &[u8]) -> Option<Vec<(u64, u128)>> {
    let mut listed = Vec::new();
    for _ in 0..*bytes.split_off_first()? {
        for _ in 0..*bytes.split_off_first()? {
            for _ in 0..take_u32(&mut bytes)? {
                let table = bytes.split_off(..LISTED)?;
                listed.push((u64_at(table, 0), u128_at(table, 9)));
            }
        }
    }
    Some(listed)
}

/// Holds the contents of a table file against the checksum in its trailer. fjall does so too, but only after it has made
/// room for as many sections as damaged bytes may say, and ends the process where there is not so much memory.
pub(super) fn check_contents(path: &Path) -> Result<(), StoreError> {
    let read = || -> std::io::Result<Result<(), (u64, &'static str)>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let Some(at) = length.checked_sub(TRAILER as u64) else {
            return Ok(Err((length, "the file ends too early")));
        };
        let mut trailer = [0; TRAILER];
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut trailer)?;
        let (start, size) = (u64_at(&trailer, 22), u64_at(&trailer, 30));
        if !trailer.starts_with(TRAILER_BEGINS) || start.checked_add(size) != Some(at) {
            return Ok(Err((at, "the file does not end as a table does")));
        }
        let mut contents = vec![0; size as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut contents)?;
        Ok(match xxh3_128(&contents) == u128_at(&trailer, 6) {
            true => Ok(()),
            false => Err((start, "the table of contents does not have its checksum")),
        })
    };
    match read() {
        Ok(Ok(())) => Ok(()),
        Ok(Err((offset, detail))) => Err(corrupt(path, offset, detail)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(corrupt(path, 0, "the file is missing, though the current version lists it"))
        }
        Err(error) => Err(failed("reading", path, error)),
    }
}

/// Reads a table file to the end; says how long it is, or what is wrong with it.
pub(super) fn check_table(table: &Live) -> Result<u64, Vec<StoreError>> {
    check_contents(&table.path).or_else(|damage| match places(&table.path) {
        places if places.is_empty() => Err(vec![damage]),
        places => Err(places),
    })?;
    let hashed = File::open(&table.path).and_then(|mut file| hash(&mut file));
    match hashed {
        Ok((length, checksum)) if checksum == table.checksum => Ok(length),
        Ok(_) => match places(&table.path) {
            places if places.is_empty() => {
                let words = "the file does not have the checksum that stands in its keyspace's version";
                Err(vec![corrupt(&table.path, 0, words)])
            }
            places => Err(places),
        },
        Err(error) => Err(vec![failed("reading", &table.path, error)]),
    }
}

fn hash(file: &mut File) -> std::io::Result<(u64, u128)> {
    let mut hasher = Xxh3Default::new();
    let mut part = vec![0; 1 << 20];
    let mut length = 0;
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok((length, hasher.digest128())),
            Ok(read) => {
                hasher.update(&part[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Which blocks of a table file are damaged, some of them.
fn places(path: &Path) -> Vec<StoreError> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let contents = bytes.last_chunk::<TRAILER>().map_or(0, |trailer| u64_at(trailer, 22));
    let end = usize::try_from(contents).unwrap_or(usize::MAX).min(bytes.len());
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < end && found.len() < PLACES {
        let Some(header) = bytes.get(offset..offset + BLOCK_HEADER) else { break };
        if header[..4] != BLOCK_MAGIC || xxh3_128(&header[..29]) as u32 != u32_at(header, 29) {
            // Where the next block begins stands here, so this is the last that can be told.
            found.push(corrupt(path, offset as u64, "the header of a block does not have its checksum"));
            break;
        }
        let start = offset + BLOCK_HEADER;
        let next = start + u32_at(header, 21) as usize;
        match bytes.get(start..next) {
            Some(block) if xxh3_128(block) == u128_at(header, 5) => {}
            Some(_) => found.push(corrupt(path, offset as u64, "a block does not have its checksum")),
            None => found.push(corrupt(path, offset as u64, "the file ends within a block")),
        }
        offset = next;
    }
    found
}

/// What one of fjall's own logs holds.
pub(super) struct Log {
    pub(super) batches: u64,
    /// Where the whole batches end.
    pub(super) end: u64,
    /// Whether anything but zeros follows there: a batch that was torn, or damage. fjall drops it.
    pub(super) torn: bool,
}

/// Reads a log to its end. Errors are those for which fjall refuses to open.
pub(super) fn check_log(path: &Path) -> Result<Log, StoreError> {
    let file = File::open(path).map_err(|error| failed("reading", path, error))?;
    let length = file.metadata().map_err(|error| failed("reading", path, error))?.len();
    let mut walk = LogWalk { reader: BufReader::with_capacity(1 << 20, file), offset: 0, length };
    let (mut batches, mut end) = (0, 0);
    loop {
        match walk.batch() {
            Ok(()) => (batches, end) = (batches + 1, walk.offset),
            Err(Stop::End) => break,
            Err(Stop::Refused(detail)) => return Err(corrupt(path, end, detail)),
            Err(Stop::Io(error)) => return Err(failed("reading", path, error)),
        }
    }
    let torn = walk.is_dirty_from(end).map_err(|error| failed("reading", path, error))?;
    Ok(Log { batches, end, torn })
}

struct LogWalk {
    reader: BufReader<File>,
    offset: u64,
    length: u64,
}

enum Stop {
    /// No whole batch follows.
    End,
    /// A batch follows that contradicts itself.
    Refused(&'static str),
    Io(std::io::Error),
}

impl LogWalk {
    /// Start (1): items (u32), seqno (u64). Item (2): type (u8), compression (u8), keyspace (u64), lengths of key (u16),
    /// value (u32) and stored value (u32), key, stored value. End (3): checksum of the items (u64), magic. Clear (4):
    /// keyspace (u64), which we never write.
    fn batch(&mut self) -> Result<(), Stop> {
        if self.take(1)? != [1] {
            return Err(Stop::End);
        }
        let mut left = u32_at(&self.take(12)?, 0);
        let mut items = Vec::new();
        loop {
            match self.take(1)?[..] {
                [2] if left == 0 => return Err(Stop::Refused("a batch has more items than it says")),
                [2] => {
                    left -= 1;
                    let head = self.take(20)?;
                    let key = u16::from_le_bytes([head[10], head[11]]);
                    let rest = self.take(u64::from(key) + u64::from(u32_at(&head, 16)))?;
                    items.push(2);
                    items.extend_from_slice(&head);
                    items.extend_from_slice(&rest);
                }
                [3] => {
                    let end = self.take(12)?;
                    if end[8..] != MARKER[..] {
                        return Err(Stop::End);
                    }
                    return match (left, xxh3_64(&items) == u64_at(&end, 0)) {
                        (0, true) => Ok(()),
                        (0, false) => Err(Stop::Refused("a batch does not have its checksum")),
                        _ => Err(Stop::Refused("a batch has fewer items than it says")),
                    };
                }
                _ => return Err(Stop::End),
            }
        }
    }

    fn take(&mut self, count: u64) -> Result<Vec<u8>, Stop> {
        if count > self.length - self.offset {
            return Err(Stop::End);
        }
        let mut bytes = vec![0; count as usize];
        self.reader.read_exact(&mut bytes).map_err(Stop::Io)?;
        self.offset += count;
        Ok(bytes)
    }

    fn is_dirty_from(&mut self, offset: u64) -> std::io::Result<bool> {
        self.reader.seek(SeekFrom::Start(offset))?;
        let mut part = vec![0; 1 << 20];
        loop {
            match self.reader.read(&mut part)? {
                0 => return Ok(false),
                read if part[..read].iter().any(|byte| *byte != 0) => return Ok(true),
                _ => {}
            }
        }
    }
}

fn take_u32(bytes: &mut &[u8]) -> Option<u32> {
    bytes.split_off(..4).map(|taken| u32_at(taken, 0))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

fn failed(action: &'static str, path: &Path, error: std::io::Error) -> StoreError {
    StoreError::io(action, path.display().to_string(), error)
}

fn corrupt(path: &Path, offset: u64, detail: &str) -> StoreError {
    StoreError::Corrupt { path: path.display().to_string(), offset, detail: detail.to_string() }
}
