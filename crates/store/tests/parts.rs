//! Data directories whose parts do not belong together: of different ages, of different histories, or of another directory.
//!
//! The store must refuse such a directory, or everything that was acknowledged is there. The check of a directory must find a problem
//! wherever the store refuses.

use bytes::Bytes;
use limina_store::{
    Answer, Journal, Read, Record, Seq, ShardId, ShardStore, ShardStoreOptions,
    embedded::{Embedded, EmbeddedOptions, Finding, ReadOnlyStore},
};
use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};
use tempfile::TempDir;

const SHARDS: u16 = 3;
const BATCH: u64 = 40;
/// The unit in which zeros are left out of copies.
const PAGE: usize = 4096;

type Model = BTreeMap<(u16, Bytes), Bytes>;

fn options() -> EmbeddedOptions {
    EmbeddedOptions {
        shards: Some(SHARDS),
        segment_bytes: 64 << 10,
        reserve_bytes: Some(0),
        cache_bytes: 1 << 20,
        ..EmbeddedOptions::default()
    }
}

/// In memory if possible, because many openings sync often.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    made.expect("a temporary directory")
}

/// A directory that is written to, and what it must contain.
struct Directory {
    home: TempDir,
    model: Model,
    rounds: u64,
    name: &'static str,
}

impl Directory {
    fn new(name: &'static str) -> Directory {
        Directory { home: directory(), model: Model::new(), rounds: 0, name }
    }

    /// Opens the directory, appends some batches to each shard, and stops. Every second batch is checkpointed, and the last one if so
    /// wanted. The copy is made while the store is open, or after it was closed.
    async fn go_on(&mut self, batches: u64, to_the_end: bool, copy_live: bool) -> Copy {
        let store = Arc::new(Embedded::open(self.home.path(), options()).expect("open"));
        let mut live = None;
        for shard in (0..SHARDS).map(ShardId) {
            let stored = ShardStore::open(store.clone(), store.clone(), shard, ShardStoreOptions::default());
            let stored = stored.await.expect("shard");
            for batch in 0..batches {
                let seq = stored.seq().next();
                stored.append(seq, self.records(shard, seq)).await.expect("append");
                if batch % 2 == 0 || (batch + 1 == batches && to_the_end) {
                    stored.checkpoint().await.expect("checkpoint");
                }
            }
        }
        self.rounds += 1;
        if copy_live {
            live = Some(self.copy());
        }
        store.close().await.expect("close");
        drop(store);
        live.unwrap_or_else(|| self.copy())
    }

    /// Half of the records replace those of the append before.
    fn records(&mut self, shard: ShardId, seq: Seq) -> Vec<Record> {
        let first = seq.0 * BATCH / 2;
        let record = |number: u64| {
            let key = Bytes::from(format!("key {number:08}"));
            let text = format!("{} {} {} {number} ", self.name, self.rounds, seq.0).repeat(8);
            Record { key, value: Some(Bytes::from(text)) }
        };
        let records: Vec<Record> = (first..first + BATCH).map(record).collect();
        for Record { key, value } in &records {
            self.model.insert((shard.0, key.clone()), value.clone().expect("a value"));
        }
        records
    }

    fn copy(&self) -> Copy {
        let home = directory();
        copy_all(self.home.path(), home.path());
        Copy { home, model: self.model.clone() }
    }

    /// A directory with the same content, which is used on its own from now on.
    fn fork(&self, name: &'static str) -> Directory {
        let Copy { home, model } = self.copy();
        Directory { home, model, rounds: self.rounds, name }
    }
}

/// A copy of a directory at some moment.
struct Copy {
    home: TempDir,
    model: Model,
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("create");
    for entry in std::fs::read_dir(from).expect("list").flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_all(&entry.path(), &target),
            // fjall's log has many megabytes of zeros at its end. They need not be written.
            false => {
                let bytes = std::fs::read(entry.path()).expect("read");
                let used = bytes.chunks(PAGE).rposition(|page| *page != [0; PAGE][..page.len()]);
                let used = used.map_or(0, |last| (last + 1) * PAGE).min(bytes.len());
                let mut file = std::fs::File::create(target).expect("create");
                file.write_all(&bytes[..used]).expect("write");
                file.set_len(bytes.len() as u64).expect("length");
            }
        }
    }
}

fn remove(path: &Path) {
    match path.is_dir() {
        true => std::fs::remove_dir_all(path).expect("remove"),
        false if path.exists() => std::fs::remove_file(path).expect("remove"),
        false => {}
    }
}

/// All parts that an operator might copy separately.
fn parts(home: &Path) -> Vec<PathBuf> {
    fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).expect("list").flatten() {
            found.push(entry.path());
            if entry.path().is_dir() && entry.file_name() != "journal" {
                walk(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    walk(home, &mut found);
    found.retain(|path| !path.ends_with("LOCK") && !path.ends_with("lock"));
    found.sort();
    found.into_iter().map(|path| path.strip_prefix(home).expect("below").to_path_buf()).collect()
}

/// What a store has, or why it does not open.
async fn read(home: &Path) -> Result<Model, String> {
    let store = Arc::new(Embedded::open(home, options()).map_err(|error| error.to_string())?);
    let mut found = Model::new();
    for shard in (0..SHARDS).map(ShardId) {
        let stored = ShardStore::open(store.clone(), store.clone(), shard, ShardStoreOptions::default());
        let stored = stored.await.map_err(|error| error.to_string())?;
        let all = Read::Scan { from: Bytes::new(), to: Bytes::from_static(b"z"), limit: usize::MAX };
        match stored.read(vec![all]).await.pop().expect("an answer").map_err(|error| error.to_string())? {
            Answer::Page(page) => {
                found.extend(page.into_iter().map(|(key, value)| ((shard.0, key), value)));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(store.stats().segments > 0);
    Ok(found)
}

fn problems(home: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let checked = ReadOnlyStore::check(home, &mut |finding| {
        if let Finding::Problem(error) = finding {
            found.push(error.to_string());
        }
    });
    found.extend(checked.err().map(|error| error.to_string()));
    found
}

/// Puts a part of one copy into another. The result must be refused, or have exactly what one of the two had. Returns whether it was
/// refused.
async fn mix(part: &Path, of: &Copy, into: &Copy, allowed: &[&Copy]) -> Option<String> {
    let mixed = directory();
    copy_all(into.home.path(), mixed.path());
    let target = mixed.path().join(part);
    remove(&target);
    let source = of.home.path().join(part);
    match source.is_dir() {
        true => copy_all(&source, &target),
        false => drop(std::fs::copy(source, &target).expect("copy")),
    }
    let found = problems(mixed.path());
    match read(mixed.path()).await {
        Ok(model) => {
            let is_whole = allowed.iter().any(|copy| copy.model == model);
            assert!(is_whole, "{} of another copy: {} records are there", part.display(), model.len());
            None
        }
        Err(error) => {
            assert!(!found.is_empty(), "the check finds nothing wrong with {}: {error}", part.display());
            Some(error)
        }
    }
}

/// Every part of every older copy in place of that of a newer one, and the other way round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_different_ages_are_refused_or_nothing_is_lost() {
    let mut world = Directory::new("one");
    let copies = [
        world.go_on(3, true, false).await,
        world.go_on(4, false, true).await,
        world.go_on(9, true, true).await,
        world.go_on(1, false, false).await,
        world.go_on(12, true, false).await,
    ];
    let (mut refused, mut whole) = (0, 0);
    for (old, new) in [(0, 1), (1, 2), (2, 3), (1, 4), (3, 4)].map(|(old, new)| (&copies[old], &copies[new]))
    {
        for part in parts(old.home.path()) {
            match mix(&part, old, new, &[new]).await {
                Some(_) => refused += 1,
                None => whole += 1,
            }
        }
        // A newer journal has everything that was written since, unless it was released.
        for part in parts(new.home.path()) {
            match mix(&part, new, old, &[old, new]).await {
                Some(_) => refused += 1,
                None => whole += 1,
            }
        }
    }
    assert!(refused > 50 && whole > 50, "{refused} refused, {whole} whole");
    // The parts that say how old the table is.
    let [.., old, _, new] = &copies;
    for part in ["table", "table/keyspaces", "table/keyspaces/1", "table/keyspaces/1/current", "journal"] {
        let error = mix(Path::new(part), old, new, &[]).await.expect("it is refused");
        assert!(error.contains(part.trim_start_matches("table/")), "{part}: {error}");
    }
}

/// Two copies of one directory were both used. Their parts do not belong together any more, though all numbers may agree.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_two_histories_are_refused_or_nothing_is_mixed() {
    let mut one = Directory::new("one");
    one.go_on(3, true, false).await;
    let mut other = one.fork("other");
    let mut copies = Vec::new();
    for to_the_end in [false, true] {
        copies.push([one.go_on(5, to_the_end, false).await, other.go_on(5, to_the_end, false).await]);
    }
    let mut refused = 0;
    for [one, other] in &copies {
        for (from, into) in [(one, other), (other, one)] {
            for part in parts(from.home.path()) {
                refused += u64::from(mix(&part, from, into, &[from, into]).await.is_some());
            }
        }
    }
    assert!(refused > 30, "only {refused} were refused");
    let [.., [one, other]] = &copies[..] else { panic!("there are copies") };
    for part in ["table", "table/keyspaces/1", "journal", "limina.tables"] {
        assert!(mix(Path::new(part), one, other, &[]).await.is_some(), "{part} was not refused");
    }
}

/// A part of another directory must never be accepted as a part of this one, even if both are new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_another_directory_are_refused() {
    for batches in [0, 5] {
        let one = Directory::new("one").go_on(batches, true, false).await;
        let other = Directory::new("other").go_on(batches, true, false).await;
        for part in ["table", "table/keyspaces/1", "journal", "limina.tables", "limina.meta"] {
            let refused = mix(Path::new(part), &other, &one, &[]).await;
            let is_empty = batches == 0 && part == "journal";
            assert!(refused.is_some() || is_empty, "{part} was not refused after {batches}");
        }
    }
}

/// A file under the name of a table file is accepted only if it is that table file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_file_in_the_place_of_another_is_refused_and_named() {
    let mut world = Directory::new("one");
    let mut foreign = Directory::new("other");
    let (copy, foreign) = (world.go_on(9, true, false).await, foreign.go_on(9, true, false).await);
    let is_file = |path: &PathBuf| path.starts_with("table/keyspaces/1/tables") && !path.ends_with("tables");
    let files: Vec<PathBuf> = parts(copy.home.path()).into_iter().filter(is_file).collect();
    // How many there are depends on how far the compaction has come.
    assert!(files.len() >= 2, "{files:?}");
    let check = async |file: &Path, bytes_of: &Path| {
        let wrong = directory();
        copy_all(copy.home.path(), wrong.path());
        let target = wrong.path().join(file);
        std::fs::copy(bytes_of, &target).expect("copy");
        assert!(!problems(wrong.path()).is_empty(), "the check finds nothing wrong with {}", file.display());
        let error = read(wrong.path()).await.expect_err("another file is in its place");
        assert!(error.contains(&target.display().to_string()), "{} is not named: {error}", target.display());
    };
    for one in &files {
        for other in files.iter().filter(|other| *other != one) {
            check(one, &copy.home.path().join(other)).await;
        }
        let same_name = foreign.home.path().join(one);
        if same_name.exists() {
            check(one, &same_name).await;
        }
    }
    // Two files that are exchanged.
    let exchanged = directory();
    copy_all(copy.home.path(), exchanged.path());
    for (one, other) in [(0, 1), (1, 0)] {
        std::fs::copy(copy.home.path().join(&files[one]), exchanged.path().join(&files[other]))
            .expect("copy");
    }
    assert!(read(exchanged.path()).await.is_err());
    assert_eq!(read(copy.home.path()).await.expect("nothing is wrong"), copy.model);
}
