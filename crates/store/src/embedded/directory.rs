//! The data directory itself: its lock, its metadata, and the mark of an unfinished import.

use crate::{Sharding, ShardingKey, StoreError, sharding};
use std::{
    fs::{DirBuilder, File, TryLockError},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

const LOCK: &str = "LOCK";
pub(super) const META: &str = "limina.meta";
/// This file exists while an import is loading the directory.
const INCOMPLETE_MARK: &str = "limina.filling";
/// File systems create this directory in a new volume, so it does not count as content.
const LOST_AND_FOUND: &str = "lost+found";
const FORMAT: u32 = 3;
/// The difference of format 2, for [`sharding::too_old`].
const PARTS_WITHOUT_PROOF: &str = "whose parts do not prove that they belong together";

/// The lock file of the directory. The operating system unlocks it when the process ends.
pub(super) struct Lock {
    file: File,
}

/// Closing the file would not be enough: a process that is just being started by another thread has a copy of the open file until
/// it runs its program, and the lock belongs to all copies.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Creates the directory if needed, and locks it for this process.
pub(super) fn lock(directory: &Path) -> Result<Lock, StoreError> {
    create(directory)?;
    let path = directory.join(LOCK);
    let mut lock = Lock { file: open_lock(&path).map_err(|error| failed("opening", &path, error))? };
    lock.take(directory)?;
    lock.write_pid().map_err(|error| failed("writing", &path, error))?;
    Ok(lock)
}

/// Locks an existing directory for reading. The directory may be read-only. If it is read-only and has no lock file, no
/// server can use it, and nothing needs to be locked.
pub(super) fn lock_to_read(directory: &Path) -> Result<Option<Lock>, StoreError> {
    let path = directory.join(LOCK);
    match open_lock(&path) {
        Ok(file) => {
            let mut lock = Lock { file };
            lock.take(directory)?;
            // On a full disk the process id cannot be written. Reading is allowed nevertheless.
            let _ = lock.write_pid();
            Ok(Some(lock))
        }
        Err(error) if matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied) => {
            match File::open(&path) {
                Ok(file) => {
                    let mut lock = Lock { file };
                    lock.take(directory)?;
                    Ok(Some(lock))
                }
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(failed("opening", &path, error)),
            }
        }
        Err(error) => Err(failed("opening", &path, error)),
    }
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

impl Lock {
    fn take(&mut self, directory: &Path) -> Result<(), StoreError> {
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                let mut owner = String::new();
                let _ = self.file.read_to_string(&mut owner);
                let owner = if owner.is_empty() { "unknown" } else { owner.trim() };
                Err(StoreError::Unusable(format!(
                    "data directory {} is in use by another limina process (pid {owner})",
                    directory.display()
                )))
            }
            Err(TryLockError::Error(error)) => Err(failed("locking", &directory.join(LOCK), error)),
        }
    }

    /// Writes the process id into the lock file, for the error message of another process.
    fn write_pid(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        write!(self.file, "{}", std::process::id())
    }
}

fn failed(action: &'static str, path: &Path, error: std::io::Error) -> StoreError {
    StoreError::io(action, path.display().to_string(), error)
}

/// A directory below the data directory, created if needed.
pub(super) fn subdirectory(directory: &Path, name: &str) -> Result<PathBuf, StoreError> {
    let path = directory.join(name);
    create(&path)?;
    sync(directory)?;
    Ok(path)
}

/// Only the server's user may enter a directory that is made: its files contain secrets of clients, such as the sessions of locks. A
/// directory that exists keeps its mode.
fn create(directory: &Path) -> Result<(), StoreError> {
    if directory.exists() && !directory.is_dir() {
        return Err(StoreError::Unusable(format!("{} is not a directory", directory.display())));
    }
    make(directory, 0o700).map_err(|error| StoreError::io("creating", directory.display().to_string(), error))
}

/// Makes a directory that does not exist, with its parents, and syncs each into its parent.
fn make(directory: &Path, mode: u32) -> std::io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make(parent, 0o777)?;
    DirBuilder::new().recursive(true).mode(mode).create(directory)?;
    File::open(parent)?.sync_all()
}

/// Syncs a directory, or a file.
pub(super) fn sync(directory: &Path) -> Result<(), StoreError> {
    let synced = File::open(directory).and_then(|file| file.sync_all());
    synced.map_err(|error| StoreError::io("syncing", directory.display().to_string(), error))
}

/// Marks an empty directory as incomplete, before an import loads it.
pub(super) fn mark_incomplete(directory: &Path) -> Result<(), StoreError> {
    check_empty(directory)?;
    let path = directory.join(INCOMPLETE_MARK);
    new_file(&path).map_err(|error| failed("creating", &path, error))?;
    sync(directory)
}

/// Removes the mark after the import.
pub(super) fn mark_complete(directory: &Path) -> Result<(), StoreError> {
    let path = directory.join(INCOMPLETE_MARK);
    std::fs::remove_file(&path).map_err(|error| failed("removing", &path, error))?;
    sync(directory)
}

/// Refuses a directory whose import was not finished.
pub(super) fn check_complete(directory: &Path) -> Result<(), StoreError> {
    match directory.join(INCOMPLETE_MARK).exists() {
        true => Err(StoreError::Unusable(format!(
            "data directory {} holds a part of an import that was not finished; remove it and import again",
            directory.display()
        ))),
        false => Ok(()),
    }
}

/// Refuses a directory that is not empty. A missing directory counts as empty.
pub(super) fn check_empty(directory: &Path) -> Result<(), StoreError> {
    check_complete(directory)?;
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| failed("reading", directory, error))?,
    };
    for entry in entries {
        let name = entry.map_err(|error| failed("reading", directory, error))?.file_name();
        if name != LOCK && name != LOST_AND_FOUND {
            return Err(StoreError::Unusable(format!(
                "the directory {} is not empty: it holds {}",
                directory.display(),
                name.display()
            )));
        }
    }
    Ok(())
}

/// The settings with which the directory was created. Their file is written last, so a directory without it is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) sharding: Sharding,
}

/// The metadata of the directory, or of the one to be created, which gets a new key.
pub(super) fn agree_on_meta(
    directory: &Path,
    known: Option<Meta>,
    asked: Option<u16>,
) -> Result<Meta, StoreError> {
    let place = format!("data directory {}", directory.display());
    let shards = sharding::agree_on_shards(&place, known.map(|meta| meta.sharding.shards), asked)?;
    match known {
        Some(meta) => Ok(meta),
        None => Ok(Meta { sharding: Sharding { shards, key: ShardingKey::draw()? } }),
    }
}

impl Meta {
    /// Returns `None` if the directory was never completely created.
    pub(super) fn read(directory: &Path) -> Result<Option<Meta>, StoreError> {
        let path = directory.join(META);
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::io("reading", path.display().to_string(), error)),
        };
        let damaged = || StoreError::Corrupt {
            path: path.display().to_string(),
            offset: 0,
            detail: "the file is damaged, or was changed after the data directory was created".to_string(),
        };
        let text = std::str::from_utf8(&bytes).map_err(|_| damaged())?;
        // In every format the first line names the format, and the last one is the checksum.
        let said = without_checksum(text).ok_or_else(damaged)?;
        let (first, said) = said.split_once('\n').ok_or_else(damaged)?;
        let format =
            first.strip_prefix("limina store, format ").and_then(|number| number.parse::<u32>().ok());
        match format.ok_or_else(damaged)? {
            FORMAT => Meta::parse(said).map(Some).ok_or_else(damaged),
            format => {
                let place = format!("data directory {} has format {format}", directory.display());
                Err(match format < FORMAT {
                    true if format == 1 => sharding::too_old(&place, sharding::HASH_WITHOUT_KEY),
                    true => sharding::too_old(&place, PARTS_WITHOUT_PROOF),
                    false => StoreError::Unusable(format!("{place}, and this program knows {FORMAT}")),
                })
            }
        }
    }

    /// Parses what is between the format and the checksum.
    fn parse(said: &str) -> Option<Meta> {
        let (shards, key) = said.strip_suffix('\n')?.split_once('\n')?;
        let shards = shards.strip_prefix("shards ")?.parse().ok()?;
        let key = ShardingKey::from_hex(key.strip_prefix("key ")?)?;
        Some(Meta { sharding: Sharding { shards, key } })
    }

    pub(super) fn write(self, directory: &Path) -> Result<(), StoreError> {
        replace_file(&directory.join(META), &self.text())
    }

    fn text(self) -> String {
        let Sharding { shards, key } = self.sharding;
        with_checksum(&format!("limina store, format {FORMAT}\nshards {shards}\nkey {}\n", key.to_hex()))
    }
}

/// The text with a last line that has its checksum.
pub(super) fn with_checksum(said: &str) -> String {
    format!("{said}crc32c {:08x}\n", crc32c::crc32c(said.as_bytes()))
}

/// The opposite of [`with_checksum`]. `None` if the text is damaged.
pub(super) fn without_checksum(text: &str) -> Option<&str> {
    let said = text.rfind("crc32c ").map(|end| &text[..end])?;
    (text == with_checksum(said)).then_some(said)
}

/// Replaces a file of the directory, or makes it: after a crash it is as before, or has all of this text.
pub(super) fn replace_file(path: &Path, text: &str) -> Result<(), StoreError> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    let written = new_file(Path::new(&draft))
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&draft, path));
    written.map_err(|error| failed("writing", path, error))?;
    sync(path.parent().unwrap_or(Path::new(".")))
}

/// Creates a file, or empties one. Only the server's user may read it.
fn new_file(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_open_file_does_not_keep_the_directory_locked() {
        let home = tempfile::tempdir().expect("a directory");
        let locked = lock(home.path()).expect("the lock");
        let copy = locked.file.try_clone().expect("a copy, as a new process has it for a moment");
        assert!(lock(home.path()).is_err(), "it is in use");
        drop(locked);
        lock(home.path()).expect("it is no longer in use");
        drop(copy);
    }
}
