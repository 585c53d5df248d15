//! Reads the table's files in fjall's format (of the pinned version), without fjall.
//!
//! The file `version` names the format. Each keyspace has a file `current` with the name and the checksum of a version
//! file. The version file lists the live table files, each with the checksum of all its bytes. A table file is a
//! sequence of blocks, each with a header that has its checksum, followed by a table of contents and a trailer. fjall's
//! own log (`*.jnl`) is a sequence of batches, each with a checksum over its items.

use super::directory;
use crate::StoreError;
use std::{
    fs::File,
    io::{ErrorKind, Read, Seek, SeekFrom},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64, xxh3_128};

/// `current`: the version's id (u64), its checksum (u128), the kind of checksum (u8).
const CURRENT: usize = 25;
const MARKER: &[u8] = b"FJL\x03";
const BLOCK_MAGIC: [u8; 4] = *b"LSM\x03";
/// Magic, type (u8), checksum (u128), length (u32), uncompressed length (u32), checksum of the header (u32).
const BLOCK_HEADER: usize = 33;
/// Magic, version (u8), kind of checksum (u8), checksum of the contents (u128), their offset (u64), their length (u64).
const TRAILER: usize = 38;
const TRAILER_BEGINS: &[u8] = b"SFA!\x01\x00";
const CONTENTS_BEGIN: &[u8] = b"TOC!";
/// For each table, a version file lists: id (u64), kind of checksum (u8), checksum (u128), global seqno (u64).
const LISTED: usize = 33;
/// The maximum number of damaged blocks that are reported for a file.
const MAX_REPORTED: usize = 8;

/// The current version of a keyspace.
pub(super) struct Version {
    pub(super) number: u64,
    /// The checksum of its version file.
    pub(super) checksum: u128,
    pub(super) tables: Vec<LiveTable>,
}

/// A table file that the current version lists.
pub(super) struct LiveTable {
    pub(super) path: PathBuf,
    pub(super) checksum: u128,
}

/// The directories of the keyspaces.
pub(super) fn keyspaces(directory: &Path) -> Vec<PathBuf> {
    files(&directory.join("keyspaces"))
}

/// The directory of one keyspace.
pub(super) fn keyspace(directory: &Path, id: u64) -> PathBuf {
    directory.join("keyspaces").join(id.to_string())
}

/// fjall's own logs.
pub(super) fn logs(directory: &Path) -> Vec<PathBuf> {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jnl");
    files(directory).into_iter().filter(is_log).collect()
}

/// The files of a directory, sorted. Empty if the directory cannot be read; code that opens its files will report that.
pub(super) fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths
}

/// Makes the names of all table files, and of each keyspace's current version, durable.
pub(super) fn sync_names(directory: &Path) -> Result<(), StoreError> {
    keyspaces(directory).iter().try_for_each(|keyspace| {
        directory::sync(&keyspace.join("tables"))?;
        directory::sync(keyspace)
    })
}

/// Checks that the file `version` has the expected content.
pub(super) fn check_version_file(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join("version");
    match std::fs::read(&path) {
        Ok(bytes) if bytes == MARKER => Ok(()),
        Ok(bytes) if bytes.len() == MARKER.len() && bytes[..3] == MARKER[..3] => {
            Err(StoreError::Unusable(format!(
                "{} has format version {}, and this program knows {}",
                path.display(),
                bytes[3],
                MARKER[3]
            )))
        }
        Ok(_) => Err(corrupt(&path, 0, "the file does not name the expected format of the table")),
        Err(error) => Err(failed("reading", &path, error)),
    }
}

/// The number of a keyspace's current version, and the checksum of its version file. `None` if there is no `current`: then the
/// keyspace was never completely created, and fjall handles that.
pub(super) fn current(keyspace: &Path) -> Result<Option<(u64, u128)>, StoreError> {
    let current = keyspace.join("current");
    let bytes = match std::fs::read(&current) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("reading", &current, error)),
    };
    let bytes: [u8; CURRENT] =
        bytes.try_into().map_err(|_| corrupt(&current, 0, "the file has the wrong length"))?;
    if bytes[24] != 0 {
        return Err(corrupt(&current, 24, "the file has an unknown kind of checksum"));
    }
    Ok(Some((u64_at(&bytes, 0), u128_at(&bytes, 8))))
}

/// The current version of a keyspace, from its version file, which must have the checksum that `current` states. `None` as in
/// [`current`].
pub(super) fn current_version(keyspace: &Path) -> Result<Option<Version>, StoreError> {
    let current = keyspace.join("current");
    let Some((id, checksum)) = self::current(keyspace)? else { return Ok(None) };
    let version = keyspace.join(format!("v{id}"));
    let bytes = std::fs::read(&version).map_err(|error| {
        corrupt(&current, 0, &format!("the version file that it names cannot be read ({error})"))
    })?;
    if xxh3_128(&bytes) != checksum {
        let words = format!("the file's checksum is not the one in {}", current.display());
        return Err(corrupt(&version, 0, &words));
    }
    let listed = section(&bytes, b"tables").and_then(listed_tables);
    let listed = listed.ok_or_else(|| corrupt(&version, 0, "the list of tables is damaged"))?;
    let tables = keyspace.join("tables");
    let live = |(id, checksum): (u64, u128)| LiveTable { path: tables.join(id.to_string()), checksum };
    Ok(Some(Version { number: id, checksum, tables: listed.into_iter().map(live).collect() }))
}

/// A section of a file that ends with a table of contents and a trailer.
fn section<'a>(bytes: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    let trailer = bytes.last_chunk::<TRAILER>()?;
    let contents = bytes.get(usize::try_from(u64_at(trailer, 22)).ok()?..)?;
    let (at, length) = find_section(contents, wanted)?;
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(usize::try_from(length).ok()?)?)
}

/// Offset and length of a section, from the table of contents.
fn find_section(contents: &[u8], wanted: &[u8]) -> Option<(u64, u64)> {
    let mut rest = contents.strip_prefix(CONTENTS_BEGIN)?;
    for _ in 0..take_u32(&mut rest)? {
        let entry = rest.split_off(..18)?;
        let name = rest.split_off(..usize::from(u16::from_le_bytes([entry[16], entry[17]])))?;
        if name == wanted {
            return Some((u64_at(entry, 0), u64_at(entry, 8)));
        }
    }
    None
}

/// The file contains levels, each level contains runs, and each run contains tables.
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

/// Checks the contents of a table file against the checksum in its trailer. fjall checks it too, but first allocates
/// memory for as many sections as the damaged bytes may say, and aborts the process if there is not enough memory.
///
/// Returns the checksum of everything from the section `meta` on: it has the file's number, the time of its creation in nanoseconds,
/// its first and last key, and what is where in it. So no two files have the same.
pub(super) fn check_end(path: &Path) -> Result<u128, StoreError> {
    let read = || -> std::io::Result<Result<u128, (u64, &'static str)>> {
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
        if xxh3_128(&contents) != u128_at(&trailer, 6) {
            return Ok(Err((start, "the table of contents does not have its checksum")));
        }
        let Some((meta, _)) = find_section(&contents, b"meta").filter(|(meta, _)| *meta < start) else {
            return Ok(Err((start, "the table of contents names no metadata")));
        };
        let mut end = vec![0; (length - meta) as usize];
        file.seek(SeekFrom::Start(meta))?;
        file.read_exact(&mut end)?;
        Ok(Ok(xxh3_128(&end)))
    };
    match read() {
        Ok(Ok(end)) => Ok(end),
        Ok(Err((offset, detail))) => Err(corrupt(path, offset, detail)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(corrupt(path, 0, "the file is missing, though the current version lists it"))
        }
        Err(error) => Err(failed("reading", path, error)),
    }
}

/// Reads a whole table file. Returns its length, or the damage.
pub(super) fn check_table(table: &LiveTable) -> Result<u64, Vec<StoreError>> {
    check_end(&table.path).map_err(|damage| vec![damage])?;
    let hashed = File::open(&table.path).and_then(|mut file| hash(&mut file));
    match hashed {
        Ok((length, checksum)) if checksum == table.checksum => Ok(length),
        Ok(_) => match damaged_blocks(&table.path) {
            damaged_blocks if damaged_blocks.is_empty() => {
                let words = "the file's checksum is not the one in its keyspace's version file";
                Err(vec![corrupt(&table.path, 0, words)])
            }
            damaged_blocks => Err(damaged_blocks),
        },
        Err(error) => Err(vec![failed("reading", &table.path, error)]),
    }
}

/// The first of several errors about one file.
pub(super) fn first(errors: Vec<StoreError>) -> StoreError {
    let unknown = || StoreError::Table("a table file cannot be read".to_string());
    errors.into_iter().next().unwrap_or_else(unknown)
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

/// Some of the damaged blocks of a table file.
fn damaged_blocks(path: &Path) -> Vec<StoreError> {
    let Ok(bytes) = std::fs::read(path) else { return Vec::new() };
    let contents = bytes.last_chunk::<TRAILER>().map_or(0, |trailer| u64_at(trailer, 22));
    let end = usize::try_from(contents).unwrap_or(usize::MAX).min(bytes.len());
    let mut found = Vec::new();
    let mut offset = 0;
    while offset < end && found.len() < MAX_REPORTED {
        let Some(header) = bytes.get(offset..offset + BLOCK_HEADER) else { break };
        if header[..4] != BLOCK_MAGIC || xxh3_128(&header[..29]) as u32 != u32_at(header, 29) {
            // Without a valid header, the offset of the next block is not known. Or the blocks end here, followed by
            // small sections without checksums.
            if found.is_empty() {
                let words = "the header of a block, or the data after the last block, is damaged";
                found.push(corrupt(path, offset as u64, words));
            }
            break;
        }
        let start = offset + BLOCK_HEADER;
        let next = start + u32_at(header, 21) as usize;
        match bytes.get(start..next) {
            Some(block) if xxh3_128(block) == u128_at(header, 5) => {}
            Some(_) => found.push(corrupt(path, offset as u64, "the checksum of a block does not match")),
            None => found.push(corrupt(path, offset as u64, "the file ends within a block")),
        }
        offset = next;
    }
    found
}

/// What one of fjall's logs contains.
pub(super) struct Log {
    pub(super) batches: u64,
    /// Offset of an incomplete batch, if there is one. It is the last one, and fjall drops it.
    pub(super) torn: Option<u64>,
}

/// Reads a log. A batch is written only after the sync of the previous one, so only the last one may be torn. fjall
/// itself would truncate a log at damage in the middle without an error.
pub(super) fn check_log(path: &Path) -> Result<Log, StoreError> {
    let bytes = read_without_zeros(path).map_err(|error| failed("reading", path, error))?;
    let (mut batches, mut offset, mut last) = (0, 0, None);
    while let Some(batch) = whole_batch(&bytes[offset..]) {
        if last.is_some_and(|last| batch.seqno <= last) {
            return Err(corrupt(path, offset as u64, "a batch has an unexpected number"));
        }
        (batches, offset, last) = (batches + 1, offset + batch.length, Some(batch.seqno));
    }
    if (offset + 1..bytes.len()).any(|later| whole_batch(&bytes[later..]).is_some()) {
        return Err(corrupt(path, offset as u64, "a batch is damaged; an intact one follows it"));
    }
    Ok(Log { batches, torn: (offset < bytes.len()).then_some(offset as u64) })
}

/// Reads a file up to the zeros at its end. A log ends with many megabytes of zeros.
pub(super) fn read_without_zeros(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    let mut zeros = 0;
    let mut part = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut part)?;
        if read == 0 {
            return Ok(bytes);
        }
        let used = length_without_zeros(&part[..read]);
        if used > 0 {
            bytes.resize(bytes.len() + zeros, 0);
            bytes.extend_from_slice(&part[..used]);
            zeros = 0;
        }
        zeros += read - used;
    }
}

/// The length up to the zeros at the end. Most blocks are all zeros, and a block is compared at once.
fn length_without_zeros(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut rest = bytes;
    while let Some((before, last)) = rest.split_last_chunk()
        && *last == ZEROS
    {
        rest = before;
    }
    rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Writes the bytes of a log over themselves and syncs them. The content does not change, but now it is certainly on
/// disk.
pub(super) fn rewrite_log(path: &Path) -> Result<(), StoreError> {
    let bytes = read_without_zeros(path).map_err(|error| failed("reading", path, error))?;
    let file = File::options().write(true).open(path);
    let written = file.and_then(|file| file.write_all_at(&bytes, 0).and_then(|()| file.sync_all()));
    written.map_err(|error| failed("writing", path, error))
}

struct Batch {
    seqno: u64,
    length: usize,
}

/// Start (1): number of items (u32), seqno (u64). Item (2): type (u8), compression (u8), keyspace (u64), lengths of
/// key (u16), value (u32) and stored value (u32), key, stored value. End (3): checksum of the items (u64), magic.
fn whole_batch(bytes: &[u8]) -> Option<Batch> {
    let mut rest = bytes;
    let start = rest.split_off(..13).filter(|start| start[0] == 1)?;
    let items = rest;
    for _ in 0..u32_at(start, 1) {
        let head = rest.split_off(..21).filter(|head| head[0] == 2)?;
        let key = usize::from(u16::from_le_bytes([head[11], head[12]]));
        rest.split_off(..key.checked_add(u32_at(head, 17) as usize)?)?;
    }
    let items = &items[..items.len() - rest.len()];
    let end = rest.split_off(..13).filter(|end| end[0] == 3 && end[9..] == *MARKER)?;
    let whole = xxh3_64(items) == u64_at(end, 1);
    whole.then(|| Batch { seqno: u64_at(start, 5), length: bytes.len() - rest.len() })
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

pub(super) fn corrupt(path: &Path, offset: u64, detail: &str) -> StoreError {
    StoreError::Corrupt { path: path.display().to_string(), offset, detail: detail.to_string() }
}
