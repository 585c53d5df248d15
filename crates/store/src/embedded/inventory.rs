//! The file `limina.tables`: what the table consisted of, written after the table itself has changed.
//!
//! For each keyspace it has the number and the checksum of the version file, and for each table file a digest of the file's end, which
//! says what is in the file, where, and when it was created, to the nanosecond. Opening compares all of this with what it finds. So a
//! keyspace that is older than the rest, and a file in the place of another one, are noticed without reading the data. The inventory
//! may be older than the table, because the table changes first. A table file that the inventory does not know is then read in full, and
//! compared with the checksum in its version file.

use super::{directory, fjall_files};
use crate::{ShardingKey, StoreError, segmented::JournalEnd, sip_hash};
use std::{
    collections::BTreeMap,
    fmt::Write,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

const FILE: &str = "limina.tables";
const FIRST_LINE: &str = "limina tables, format 1\n";

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    /// Identifies the data directory.
    directory: u64,
    /// The end of the journal, or an earlier one.
    pub(super) journal: JournalEnd,
    /// By the names of their directories.
    keyspaces: BTreeMap<String, Keyspace>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Keyspace {
    version: u64,
    checksum: u128,
    /// By their names.
    files: BTreeMap<String, TableFile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TableFile {
    /// The checksum of the whole file, from the version file.
    checksum: u128,
    /// The digest of its end.
    end: u128,
}

impl Inventory {
    /// Describes the table as its files are now. What `known` has need not be read again.
    pub(super) fn take(
        key: &ShardingKey,
        table: &Path,
        journal: JournalEnd,
        known: &Inventory,
    ) -> Result<Inventory, StoreError> {
        let mut keyspaces = BTreeMap::new();
        for path in fjall_files::keyspaces(table) {
            let Some(version) = fjall_files::current_version(&path)? else { continue };
            let name = name(&path);
            let known = known.keyspaces.get(&name);
            let mut files = BTreeMap::new();
            for live in &version.tables {
                let same = known.and_then(|known| known.file(live));
                let end = same.map_or_else(|| fjall_files::check_end(&live.path), |same| Ok(same.end))?;
                files.insert(self::name(&live.path), TableFile { checksum: live.checksum, end });
            }
            keyspaces.insert(name, Keyspace { version: version.number, checksum: version.checksum, files });
        }
        Ok(Inventory { directory: directory_id(key), journal, keyspaces })
    }

    /// Whether the versions of the keyspaces are still those that are described here.
    pub(super) fn is_current(&self, table: &Path) -> Result<bool, StoreError> {
        for (name, keyspace) in &self.keyspaces {
            let current = fjall_files::current(&table.join("keyspaces").join(name))?;
            if current != Some((keyspace.version, keyspace.checksum)) {
                return Ok(false);
            }
        }
        Ok(!self.keyspaces.is_empty())
    }

    /// Checks that the keyspaces are those that are described here, or what they became later.
    pub(super) fn check_versions(&self, key: &ShardingKey, table: &Path) -> Result<(), StoreError> {
        if self.directory != directory_id(key) {
            return Err(StoreError::Unusable(format!(
                "the file {FILE} next to {} belongs to another data directory",
                table.display()
            )));
        }
        for (name, keyspace) in &self.keyspaces {
            let path = table.join("keyspaces").join(name);
            match fjall_files::current(&path)? {
                Some(found) => keyspace.check_version(&path.join("current"), found)?,
                None => return Err(fjall_files::corrupt(&path, 0, "the keyspace is missing")),
            }
        }
        Ok(())
    }

    /// Checks that every table file is the one that the current version of its keyspace lists.
    pub(super) fn check_files(&self, table: &Path) -> Result<(), StoreError> {
        for path in fjall_files::keyspaces(table) {
            let Some(version) = fjall_files::current_version(&path)? else { continue };
            let known = self.keyspaces.get(&name(&path));
            for live in &version.tables {
                match known.and_then(|known| known.file(live)) {
                    Some(file) if fjall_files::check_end(&live.path)? == file.end => {}
                    Some(_) => {
                        let words = "the file is not the one that its keyspace's version file lists";
                        return Err(fjall_files::corrupt(&live.path, 0, words));
                    }
                    None => drop(fjall_files::check_table(live).map_err(fjall_files::first)?),
                }
            }
        }
        Ok(())
    }

    /// Reads the file of a directory that was completely created.
    pub(super) fn read(directory: &Path) -> Result<Inventory, StoreError> {
        let path = directory.join(FILE);
        let bytes = std::fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => fjall_files::corrupt(&path, 0, "the file is missing"),
            _ => StoreError::io("reading", path.display().to_string(), error),
        })?;
        let parsed = String::from_utf8(bytes).ok().and_then(|text| Inventory::parse(&text));
        parsed.ok_or_else(|| fjall_files::corrupt(&path, 0, "the file is damaged"))
    }

    /// Writes the file, durably.
    pub(super) fn write(&self, directory: &Path) -> Result<(), StoreError> {
        directory::replace_file(&directory.join(FILE), &self.text())
    }

    fn text(&self) -> String {
        let mut said = String::from(FIRST_LINE);
        let JournalEnd { segment, salt, frame } = self.journal;
        let _infallible = writeln!(said, "directory {:016x}", self.directory);
        let _infallible = writeln!(said, "journal {segment} {salt:016x} {frame}");
        for (name, Keyspace { version, checksum, files }) in &self.keyspaces {
            let _infallible = writeln!(said, "keyspace {name} {version} {checksum:032x}");
            for (name, TableFile { checksum, end }) in files {
                let _infallible = writeln!(said, "file {name} {checksum:032x} {end:032x}");
            }
        }
        directory::with_checksum(&said)
    }

    fn parse(text: &str) -> Option<Inventory> {
        let said = directory::without_checksum(text)?;
        let mut inventory = Inventory::default();
        let mut keyspace = None;
        for line in said.strip_prefix(FIRST_LINE)?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["directory", id] => inventory.directory = u64::from_str_radix(id, 16).ok()?,
                ["journal", segment, salt, frame] => {
                    inventory.journal = JournalEnd {
                        segment: segment.parse().ok()?,
                        salt: u64::from_str_radix(salt, 16).ok()?,
                        frame: frame.parse().ok()?,
                    }
                }
                ["keyspace", name, version, checksum] => {
                    keyspace = Some(name);
                    let (version, checksum) =
                        (version.parse().ok()?, u128::from_str_radix(checksum, 16).ok()?);
                    let described = Keyspace { version, checksum, files: BTreeMap::new() };
                    inventory.keyspaces.insert(name.to_string(), described);
                }
                ["file", name, checksum, end] => {
                    let file = TableFile {
                        checksum: u128::from_str_radix(checksum, 16).ok()?,
                        end: u128::from_str_radix(end, 16).ok()?,
                    };
                    inventory.keyspaces.get_mut(keyspace?)?.files.insert(name.to_string(), file);
                }
                _ => return None,
            }
        }
        Some(inventory)
    }
}

impl Keyspace {
    fn file(&self, live: &fjall_files::LiveTable) -> Option<&TableFile> {
        self.files.get(&name(&live.path)).filter(|file| file.checksum == live.checksum)
    }

    fn check_version(&self, current: &Path, (number, checksum): (u64, u128)) -> Result<(), StoreError> {
        if number < self.version {
            return Err(StoreError::Unusable(format!(
                "the parts of the table have different ages: {} names version {number} of its keyspace, but version {} was \
                 in use",
                current.display(),
                self.version
            )));
        }
        if number == self.version && checksum != self.checksum {
            return Err(StoreError::Unusable(format!(
                "the parts of the table do not belong together: {} names another version {number} than the one that was in \
                 use",
                current.display()
            )));
        }
        Ok(())
    }
}

/// Writes the inventory when the table has changed.
pub(super) struct Keeper {
    directory: PathBuf,
    key: ShardingKey,
    journal: JournalEndReader,
    written: Mutex<Inventory>,
}

/// Returns the present end of the journal.
type JournalEndReader = Box<dyn Fn() -> JournalEnd + Send + Sync>;

impl Keeper {
    /// `known` is the inventory at opening; empty for a new directory.
    pub(super) fn new(
        directory: &Path,
        key: ShardingKey,
        known: Inventory,
        journal: JournalEndReader,
    ) -> Keeper {
        Keeper { directory: directory.to_path_buf(), key, journal, written: Mutex::new(known) }
    }

    /// Writes the inventory if the table has changed since the last time. `is_sound` must return false if a write of the table has
    /// failed: then the files may not be on disk as they seem to be.
    pub(super) fn refresh(&self, is_sound: impl Fn() -> bool) -> Result<(), StoreError> {
        let is_current = self.lock().is_current(&self.directory.join("table"))?;
        if is_current { Ok(()) } else { self.write(is_sound) }
    }

    /// Writes the inventory, also if only the journal has changed.
    pub(super) fn write(&self, is_sound: impl Fn() -> bool) -> Result<(), StoreError> {
        let mut written = self.lock();
        let table = self.directory.join("table");
        let take = || Inventory::take(&self.key, &table, (self.journal)(), &written);
        // fjall may replace a version while its files are read.
        let inventory = take().or_else(|_| take()).or_else(|_| take())?;
        // The inventory must not be on disk before what it describes.
        fjall_files::sync_names(&table)?;
        if is_sound() {
            inventory.write(&self.directory)?;
            *written = inventory;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inventory> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identifies a data directory without telling its key.
pub(super) fn directory_id(key: &ShardingKey) -> u64 {
    sip_hash(key.bytes(), FILE.as_bytes())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
