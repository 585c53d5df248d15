//! Finding the damaged file when fjall only says that something is damaged.
//!
//! It reads two parts of fjall's format (of the version that is pinned). Each keyspace has a file `current` that names
//! a version file and bears its checksum, which fjall writes and does not look at. Table files are blocks, one
//! after the other, each with a header that bears its checksum, before a table of contents.

use crate::StoreError;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_128;

/// `current`: the version's id (u64), its checksum (u128), the kind of checksum (u8).
const CURRENT: usize = 25;
const BLOCK_MAGIC: [u8; 4] = *b"LSM\x03";
/// Magic, type (u8), checksum (u128), length (u32), uncompressed length (u32), checksum of the header (u32).
const BLOCK_HEADER: usize = 33;

/// Holds every version file against the checksum that stands in `current`: a wrong one would not always show.
pub(super) fn check_versions(directory: &Path) -> Result<(), StoreError> {
    match keyspaces(directory).iter().find_map(|keyspace| version_damage(keyspace)) {
        Some(damage) => Err(damage),
        None => Ok(()),
    }
}

/// The error to report when fjall failed with these words: where the damage is, if it can be found.
pub(super) fn explain(directory: &Path, words: String) -> StoreError {
    let keyspaces = keyspaces(directory);
    let version = keyspaces.iter().find_map(|keyspace| version_damage(keyspace));
    version
        .or_else(|| keyspaces.iter().find_map(|keyspace| table_damage(keyspace)))
        .unwrap_or_else(|| StoreError::Table(format!("{words}, in {}", directory.display())))
}

fn keyspaces(directory: &Path) -> Vec<PathBuf> {
    files(&directory.join("keyspaces"))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable();
    paths
}

fn version_damage(keyspace: &Path) -> Option<StoreError> {
    let current = keyspace.join("current");
    // Without that file the keyspace was never completely created; fjall deals with it.
    let bytes = std::fs::read(&current).ok()?;
    let Ok(bytes) = <[u8; CURRENT]>::try_from(bytes) else {
        return Some(corrupt(&current, 0, "it does not have its length"));
    };
    let (id, rest) = bytes.split_first_chunk::<8>()?;
    let (checksum, kind) = rest.split_first_chunk::<16>()?;
    if kind != [0] {
        return Some(corrupt(&current, 24, "it bears an unknown kind of checksum"));
    }
    let version = keyspace.join(format!("v{}", u64::from_le_bytes(*id)));
    match std::fs::read(&version) {
        Ok(bytes) if xxh3_128(&bytes) == u128::from_le_bytes(*checksum) => None,
        Ok(_) => {
            Some(corrupt(&version, 0, "it does not have the checksum that stands in the file \"current\""))
        }
        Err(error) => {
            Some(corrupt(&current, 0, &format!("the version that it names cannot be read ({error})")))
        }
    }
}

fn table_damage(keyspace: &Path) -> Option<StoreError> {
    files(&keyspace.join("tables")).iter().find_map(|path| {
        let bytes = std::fs::read(path).ok()?;
        let mut offset = 0;
        // What follows the blocks is the table of contents, which fjall checks by itself.
        while let Some(header) = bytes.get(offset..offset + BLOCK_HEADER) {
            if header[..4] != BLOCK_MAGIC {
                // The first block begins the file: if not even that is one, the file is damaged there.
                return (offset == 0).then(|| corrupt(path, 0, "a block does not begin as one"));
            }
            let stated = u32::from_le_bytes(header[29..33].try_into().ok()?);
            if xxh3_128(&header[..29]) as u32 != stated {
                return Some(corrupt(path, offset, "the header of a block does not have its checksum"));
            }
            let length = u32::from_le_bytes(header[21..25].try_into().ok()?) as usize;
            let checksum = u128::from_le_bytes(header[5..21].try_into().ok()?);
            let start = offset + BLOCK_HEADER;
            match bytes.get(start..start + length) {
                Some(block) if xxh3_128(block) == checksum => offset = start + length,
                Some(_) => return Some(corrupt(path, offset, "a block does not have its checksum")),
                None => return Some(corrupt(path, offset, "the file ends within a block")),
            }
        }
        None
    })
}

fn corrupt(path: &Path, offset: usize, detail: &str) -> StoreError {
    StoreError::Corrupt {
        path: path.display().to_string(),
        offset: offset as u64,
        detail: detail.to_string(),
    }
}
