//! A disk in memory that loses power, fills up and fails. The same seed gives the same behaviour.
//!
//! The model does the worst that Linux may do. Data that was not synced survives sector by sector, in any of the
//! versions that were written since the last sync. A file's length and the entries of the directory are as uncertain
//! until they are synced. After a failed sync the data stays readable, but a later successful sync does not make it
//! durable.

use super::{Disk, DiskFile};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard},
};

const SECTOR: usize = 512;

/// A directory in memory. A clone is the same directory.
#[derive(Debug, Clone, Default)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Content>,
    next_file: u64,
    names: BTreeMap<String, u64>,
    /// The directory's entries as of the last sync, and what was done to them since.
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    /// The number of crashes so far. File handles from before a crash no longer work.
    crashes: u64,
    space: Option<u64>,
    writes: Fault,
    syncs: Fault,
}

#[derive(Debug, Clone)]
enum NameChange {
    Set(String, u64),
    Rename(String, String),
    Remove(String),
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    durable_length: usize,
    /// For each sector, the versions since the last sync that a crash may leave instead of the present one.
    unsynced: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    /// Sectors whose sync failed. The operating system considers them clean, so no later sync writes them.
    forgotten: BTreeSet<usize>,
    length_forgotten: bool,
}

/// Lets some calls pass, then fails some.
#[derive(Debug, Default)]
struct Fault {
    pass: u64,
    fail: u64,
}

impl Fault {
    fn strikes(&mut self) -> bool {
        if self.fail == 0 {
            return false;
        }
        if self.pass > 0 {
            self.pass -= 1;
            return false;
        }
        self.fail -= 1;
        true
    }
}

impl SimulatedDisk {
    /// An empty directory with unlimited space.
    pub fn new() -> Self {
        Self::default()
    }

    /// Simulates a loss of power. The seed decides which unsynced data survives. Open files no longer work afterwards.
    pub fn crash(&self, seed: u64) {
        let mut state = self.lock();
        let mut random = Random::new(seed);
        let state = &mut *state;
        state.crashes += 1;
        let mut names = std::mem::take(&mut state.durable_names);
        for change in std::mem::take(&mut state.unsynced_names) {
            if random.coin() {
                change.apply(&mut names);
            }
        }
        state.names = names.clone();
        state.durable_names = names;
        state.forget_unnamed();
        for content in state.files.values_mut() {
            content.lose_power(&mut random);
        }
        state.writes = Fault::default();
        state.syncs = Fault::default();
    }

    /// After `pass` more writes, the next `fail` writes fail. A failing write still writes a part of its data.
    pub fn fail_writes(&self, pass: u64, fail: u64) {
        self.lock().writes = Fault { pass, fail };
    }

    /// After `pass` more syncs of files or of the directory, the next `fail` syncs fail.
    pub fn fail_syncs(&self, pass: u64, fail: u64) {
        self.lock().syncs = Fault { pass, fail };
    }

    /// Limits the total size of all files, in bytes. `None` means no limit.
    pub fn limit_space(&self, bytes: Option<u64>) {
        self.lock().space = bytes;
    }

    /// The total size of all files, in bytes.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// Damages one stored byte by flipping the bits of `mask`. Returns false if there is no such byte.
    pub fn flip(&self, name: &str, offset: u64, mask: u8) -> bool {
        let mut state = self.lock();
        let state = &mut *state;
        let byte = state
            .names
            .get(name)
            .and_then(|id| state.files.get_mut(id))
            .and_then(|content| content.bytes.get_mut(usize::try_from(offset).ok()?));
        match byte {
            Some(byte) => {
                *byte ^= mask;
                true
            }
            None => false,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn used(&self) -> u64 {
        self.files.values().map(|content| content.bytes.len() as u64).sum()
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
        self.forget_unnamed();
    }

    /// Drops file contents that have no name now, and could not get one back by a crash.
    fn forget_unnamed(&mut self) {
        let mut alive: BTreeSet<u64> =
            self.names.values().chain(self.durable_names.values()).copied().collect();
        for change in &self.unsynced_names {
            if let NameChange::Set(_, id) = change {
                alive.insert(*id);
            }
        }
        self.files.retain(|id, _| alive.contains(id));
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            NameChange::Set(name, id) => {
                names.insert(name.clone(), *id);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = names.remove(from) {
                    names.insert(to.clone(), id);
                }
            }
            NameChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Content {
    fn write(&mut self, bytes: &[u8], offset: usize) {
        let end = offset + bytes.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        for sector in offset / SECTOR..end.div_ceil(SECTOR) {
            let before = self.sector(sector);
            self.unsynced.entry(sector).or_default().push(before);
            self.forgotten.remove(&sector);
        }
        self.bytes[offset..end].copy_from_slice(bytes);
    }

    fn sector(&self, sector: usize) -> [u8; SECTOR] {
        let mut copy = [0; SECTOR];
        let start = sector * SECTOR;
        let end = self.bytes.len().min(start + SECTOR);
        if start < end {
            copy[..end - start].copy_from_slice(&self.bytes[start..end]);
        }
        copy
    }

    fn sync(&mut self) {
        let forgotten = &self.forgotten;
        self.unsynced.retain(|sector, _| forgotten.contains(sector));
        if !self.length_forgotten {
            self.durable_length = self.bytes.len();
        }
    }

    fn fail_sync(&mut self) {
        self.forgotten = self.unsynced.keys().copied().collect();
        self.length_forgotten = self.durable_length != self.bytes.len();
    }

    fn lose_power(&mut self, random: &mut Random) {
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            let chosen = random.below(versions.len() as u64 + 1) as usize;
            if let Some(version) = versions.get(chosen) {
                let start = sector * SECTOR;
                let end = self.bytes.len().min(start + SECTOR);
                if start < end {
                    self.bytes[start..end].copy_from_slice(&version[..end - start]);
                }
            }
        }
        if random.coin() {
            self.bytes.truncate(self.durable_length);
        }
        self.durable_length = self.bytes.len();
        self.forgotten.clear();
        self.length_forgotten = false;
    }
}

/// An open file of a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    id: u64,
    crashes: u64,
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let mut state = self.lock();
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, Content::default());
        state.change(NameChange::Set(name.to_string(), id));
        Ok(SimulatedFile { disk: self.clone(), id, crashes: state.crashes })
    }

    fn open(&self, name: &str) -> io::Result<SimulatedFile> {
        let state = self.lock();
        let id = *state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(SimulatedFile { disk: self.clone(), id, crashes: state.crashes })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        if !state.names.contains_key(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(NameChange::Rename(from.to_string(), to.to_string()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        if !state.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.change(NameChange::Remove(name.to_string()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.syncs.strikes() {
            return Err(io::Error::other("simulated failure of a sync"));
        }
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        state.forget_unnamed();
        Ok(())
    }

    fn available(&self) -> io::Result<u64> {
        let state = self.lock();
        Ok(state.space.map_or(u64::MAX / 2, |space| space.saturating_sub(state.used())))
    }

    fn path(&self, name: &str) -> String {
        name.to_string()
    }
}

impl SimulatedFile {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock();
        if state.crashes != self.crashes || !state.files.contains_key(&self.id) {
            return Err(io::Error::other("the file was open when the power was lost, or is gone"));
        }
        act(&mut state)
    }
}

impl DiskFile for SimulatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|state| {
            let bytes = &state.files[&self.id].bytes;
            let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            let length = buffer.len().min(bytes.len() - start);
            buffer[..length].copy_from_slice(&bytes[start..start + length]);
            Ok(length)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|state| {
            let offset = offset as usize;
            let used = state.used();
            let grows = (offset + bytes.len()).saturating_sub(state.files[&self.id].bytes.len()) as u64;
            if grows > 0 && state.space.is_some_and(|space| used + grows > space) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let fails = state.writes.strikes();
            let content = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
            if fails {
                // Write every other sector, so that the content is neither the old nor the new one.
                for (index, part) in bytes.chunks(SECTOR).enumerate().step_by(2) {
                    content.write(part, offset + index * SECTOR);
                }
                return Err(io::Error::other("simulated failure of a write"));
            }
            content.write(bytes, offset);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| {
            let fails = state.syncs.strikes();
            let content = state.files.get_mut(&self.id).ok_or(io::ErrorKind::NotFound)?;
            if fails {
                content.fail_sync();
                return Err(io::Error::other("simulated failure of a sync"));
            }
            content.sync();
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.files[&self.id].bytes.len() as u64))
    }
}

/// A small random number generator (splitmix64). Its sequence for a seed must never change.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &SimulatedDisk, name: &str) -> Option<Vec<u8>> {
        let file = disk.open(name).ok()?;
        let mut bytes = vec![0; file.len().ok()? as usize];
        file.read_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    /// Runs `act` and crashes, under many seeds, and returns the distinct contents that were found afterwards.
    fn outcomes(act: impl Fn(&SimulatedDisk)) -> BTreeSet<Option<Vec<u8>>> {
        (0..64)
            .map(|seed| {
                let disk = SimulatedDisk::new();
                act(&disk);
                disk.crash(seed);
                read(&disk, "f").map(|bytes| bytes.chunks(SECTOR).map(|sector| sector[0]).collect())
            })
            .collect()
    }

    #[test]
    fn synced_data_survives_and_other_data_may() {
        let synced = |disk: &SimulatedDisk| {
            let file = disk.create("f").expect("create");
            file.write_at(&[1; 2 * SECTOR], 0).expect("write");
            file.sync().expect("sync");
            disk.sync_dir().expect("sync");
        };
        assert_eq!(outcomes(synced), BTreeSet::from([Some(vec![1, 1])]));
        let overwritten = |disk: &SimulatedDisk| {
            synced(disk);
            disk.open("f").expect("open").write_at(&[2; 2 * SECTOR], 0).expect("write");
        };
        let expected = [[1, 1], [1, 2], [2, 1], [2, 2]].map(|bytes| Some(bytes.to_vec()));
        assert_eq!(outcomes(overwritten), BTreeSet::from(expected));
    }

    #[test]
    fn names_are_as_uncertain_as_content() {
        let unnamed = |disk: &SimulatedDisk| {
            let file = disk.create("f").expect("create");
            file.write_at(&[1; SECTOR], 0).expect("write");
            file.sync().expect("sync");
        };
        assert_eq!(outcomes(unnamed), BTreeSet::from([None, Some(vec![1])]));
    }

    #[test]
    fn a_later_sync_does_not_repair_a_failed_one() {
        let lost = |disk: &SimulatedDisk| {
            let file = disk.create("f").expect("create");
            file.write_at(&[1; SECTOR], 0).expect("write");
            file.sync().expect("sync");
            disk.sync_dir().expect("sync");
            file.write_at(&[2; SECTOR], 0).expect("write");
            disk.fail_syncs(0, 1);
            file.sync().expect_err("is to fail");
            file.sync().expect("succeeds, and lies");
            assert_eq!(read(disk, "f").map(|bytes| bytes[0]), Some(2));
        };
        assert_eq!(outcomes(lost), BTreeSet::from([Some(vec![1]), Some(vec![2])]));
    }
}
