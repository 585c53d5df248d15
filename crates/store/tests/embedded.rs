//! Tests that only apply to the embedded store: its directory, its lock, and its errors about damaged files.

use bytes::Bytes;
use limina_store::{
    Answer, BulkLoader, FreeSpace, Journal, Read, Record, Records, Seq, ShardId, ShardStore,
    ShardStoreOptions, StoreError, Table,
    embedded::{Embedded, EmbeddedLoader, EmbeddedOptions},
};
use std::{
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const SHARD: ShardId = ShardId(3);
const RECORDS: u32 = 3000;

fn options() -> EmbeddedOptions {
    EmbeddedOptions { segment_bytes: 256 << 10, reserve_bytes: Some(0), ..EmbeddedOptions::default() }
}

fn directory() -> TempDir {
    TempDir::new().expect("a temporary directory")
}

fn key(number: u32) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn value(number: u32) -> Bytes {
    Bytes::from(format!("value {number} ").repeat(4))
}

fn records(from: u32, to: u32) -> Vec<Record> {
    (from..to).map(|number| Record { key: key(number), value: Some(value(number)) }).collect()
}

async fn shard(store: &Arc<Embedded>) -> Result<ShardStore<Embedded, Embedded>, StoreError> {
    ShardStore::open(store.clone(), store.clone(), SHARD, ShardStoreOptions::default()).await
}

/// The bytes of all files in a directory.
fn table_bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry"));
    let bytes = entries.map(|entry| match entry.file_type().expect("a type").is_dir() {
        true => table_bytes(&entry.path()),
        false => entry.metadata().map_or(0, |metadata| metadata.len()),
    });
    bytes.sum()
}

/// A MiB that cannot be compressed.
fn noise(seed: u64) -> Bytes {
    let mut state = seed + 1;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..1 << 17).flat_map(|_| word().to_le_bytes()).collect()
}

/// Records of a deleted namespace are dropped with their files, and others stay.
#[tokio::test]
async fn discarded_records_give_their_space_back_at_once() {
    let directory = directory();
    let store = Arc::new(Embedded::open(directory.path(), options()).expect("open"));
    let shard = shard(&store).await.expect("shard");
    // A checkpoint begins a new file after 64 MiB. The last file also has the shard's points, so it stays.
    let records = (0..100).map(|number| Record { key: key(number), value: Some(noise(number.into())) });
    shard.append(Seq(1), records.collect::<Vec<_>>()).await.expect("append");
    shard.checkpoint().await.expect("checkpoint");
    let table = directory.path().join("table/keyspaces");
    let before = table_bytes(&table);
    shard.discard(key(0), key(90)).await.expect("discard");
    let scan = |from, to| store.scan(SHARD, key(from), key(to), 100_000);
    let left = scan(0, 90).await.expect("scan").len();
    assert!(left < 40, "{left}");
    assert_eq!(scan(90, 100).await.expect("scan").len(), 10);
    // fjall deletes the files a moment later.
    let begun = Instant::now();
    while table_bytes(&table) * 2 > before {
        assert!(begun.elapsed() < Duration::from_secs(60), "{before} bytes, and {} now", table_bytes(&table));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(shard);
    store.close().await.expect("close");
    drop(store);
    let store = Arc::new(Embedded::open(directory.path(), options()).expect("open"));
    assert_eq!(store.scan(SHARD, key(0), key(100), 100_000).await.expect("scan").len(), left + 10);
}

/// Many records that are removed one by one, as the sweep of a namespace does, give their space back with the checkpoint that has
/// the removals. Others stay.
#[tokio::test]
async fn removed_records_give_their_space_back_with_the_next_checkpoint() {
    const REMOVED: u32 = 120_000;
    let directory = directory();
    let store = Arc::new(Embedded::open(directory.path(), options()).expect("open"));
    let shard = shard(&store).await.expect("shard");
    let value = |number| Some(Bytes::from(format!("{number}").repeat(8)));
    let records = (0..REMOVED + 10).map(|number| Record { key: key(number), value: value(number) });
    shard.append(Seq(1), records.collect::<Vec<_>>()).await.expect("append");
    shard.checkpoint().await.expect("checkpoint");
    let table = directory.path().join("table/keyspaces");
    let before = table_bytes(&table);
    let removals = (0..REMOVED).map(|number| Record { key: key(number), value: None });
    shard.append(Seq(2), removals.collect::<Vec<_>>()).await.expect("append");
    shard.checkpoint().await.expect("checkpoint");
    // fjall deletes the files a moment later.
    let begun = Instant::now();
    while table_bytes(&table) * 4 > before {
        assert!(begun.elapsed() < Duration::from_secs(60), "{before} bytes, and {} now", table_bytes(&table));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(shard);
    store.close().await.expect("close");
    drop(store);
    let store = Arc::new(Embedded::open(directory.path(), options()).expect("open"));
    let left = store.scan(SHARD, key(0), key(u32::MAX), 100).await.expect("scan");
    assert_eq!(left.len(), 10);
}

/// A store with records in the table, from several ingestions, and some only in the journal.
async fn fill(directory: &Path, checkpoints: bool) {
    let store = Arc::new(Embedded::open(directory, options()).expect("open"));
    let shard = shard(&store).await.expect("shard");
    for batch in 0..10 {
        let from = batch * RECORDS / 10;
        shard.append(Seq(u64::from(batch) + 1), records(from, from + RECORDS / 10)).await.expect("append");
        if checkpoints && batch % 3 == 0 {
            shard.checkpoint().await.expect("checkpoint");
        }
    }
    drop(shard);
    store.close().await.expect("close");
}

/// Opens the store and reads everything. The result is an error or all records, never fewer.
async fn read_all(directory: &Path) -> Result<(), StoreError> {
    let store = Arc::new(Embedded::open(directory, options())?);
    let shard = shard(&store).await?;
    let mut reads: Vec<Read> = (0..RECORDS).map(|number| Read::Get(key(number))).collect();
    reads.push(Read::Scan { from: key(0), to: key(u32::MAX), limit: usize::MAX });
    for (number, answer) in (0..).zip(shard.read(reads).await) {
        let answer = answer.map_err(|error| StoreError::Table(error.to_string()))?;
        match answer {
            Answer::Value(found) => assert_eq!(found, Some(value(number)), "record {number}"),
            Answer::Page(page) => assert_eq!(page.len(), RECORDS as usize),
            Answer::Last(_) => unreachable!("nobody asked"),
        }
    }
    Ok(())
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[offset] ^= 0x10;
    std::fs::write(path, bytes).expect("write");
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("list").flatten() {
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    found
}

fn copy(from: &Path) -> TempDir {
    let to = directory();
    for file in files(from) {
        let target = to.path().join(file.strip_prefix(from).expect("below"));
        std::fs::create_dir_all(target.parent().expect("a parent")).expect("create");
        std::fs::copy(&file, &target).expect("copy");
    }
    to
}

#[tokio::test]
async fn a_second_instance_names_the_owner_of_the_directory() {
    let directory = directory();
    let first = Embedded::open(directory.path(), options()).expect("open");
    let Err(StoreError::Unusable(words)) = Embedded::open(directory.path(), options()) else {
        panic!("two stores in one directory")
    };
    let pid = std::process::id();
    let expected = format!(
        "data directory {} is in use by another limina process (pid {pid})",
        directory.path().display()
    );
    assert_eq!(words, expected);
    drop(first);
    Embedded::open(directory.path(), options()).expect("it is free again");
}

#[tokio::test]
async fn only_its_own_user_may_enter_a_directory_that_the_store_makes() {
    let mode = |path: &Path| std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777;
    let home = directory();
    let (made, existing) = (home.path().join("a/made"), home.path().join("existing"));
    std::fs::DirBuilder::new().mode(0o750).create(&existing).expect("a directory");
    for path in [&made, &existing] {
        drop(Embedded::open(path, options()).expect("open"));
    }
    assert_eq!((mode(&made), mode(&existing)), (0o700, 0o750));
    // The table's files are left out: fjall creates them with the umask of the process, which `limina serve` restricts.
    for file in files(&made).iter().filter(|file| !file.starts_with(made.join("table"))) {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
}

/// A new store would draw another sharding key, and look for the namespaces in other shards.
#[tokio::test]
async fn an_import_without_its_metadata_is_not_taken_for_a_new_store() {
    let home = directory();
    let mut import = EmbeddedLoader::begin(home.path(), options()).expect("begin");
    let record = Record { key: key(1), value: Some(value(1)) };
    import.put(SHARD, Records::from_iter([record])).await.expect("put");
    import.finish().await.expect("finish");
    std::fs::remove_file(home.path().join("limina.meta")).expect("it was there");
    let Err(StoreError::Unusable(words)) = Embedded::open(home.path(), options()) else {
        panic!("another store was made")
    };
    assert!(words.contains("limina.meta is missing"), "{words}");
}

#[tokio::test]
async fn a_file_in_place_of_the_directory_is_named() {
    let directory = directory();
    let file = directory.path().join("file");
    std::fs::write(&file, "").expect("write");
    let Err(StoreError::Unusable(words)) = Embedded::open(&file, options()) else { panic!("it is a file") };
    assert_eq!(words, format!("{} is not a directory", file.display()));
}

#[tokio::test]
async fn the_number_of_shards_is_fixed_at_creation() {
    let directory = directory();
    let with = |shards| EmbeddedOptions { shards, ..options() };
    assert_eq!(Embedded::open(directory.path(), with(Some(5))).expect("open").sharding().shards, 5);
    assert_eq!(Embedded::open(directory.path(), with(None)).expect("open").sharding().shards, 5);
    assert!(matches!(Embedded::open(directory.path(), with(Some(6))), Err(StoreError::Unusable(_))));
}

#[tokio::test]
async fn the_key_of_the_shard_hash_is_kept_and_no_two_directories_have_the_same() {
    let (one, other) = (directory(), directory());
    let key = |directory: &TempDir| Embedded::open(directory.path(), options()).expect("open").sharding().key;
    let drawn = key(&one);
    assert_eq!(key(&one), drawn);
    assert_ne!(key(&other), drawn);
}

#[tokio::test]
async fn a_directory_of_another_format_is_refused_with_instructions() {
    let directory = directory();
    drop(Embedded::open(directory.path(), options()).expect("open"));
    let meta = directory.path().join("limina.meta");
    let check = |said: &str, expect: &str| {
        let text = format!("{said}crc32c {:08x}\n", crc32c::crc32c(said.as_bytes()));
        std::fs::write(&meta, text).expect("write");
        let refused = Embedded::open(directory.path(), options()).err();
        let refused = refused.map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains(expect), "{refused:?} lacks {expect:?}");
    };
    let place = format!("data directory {} has format", directory.path().display());
    let old = "limina store, format 1\nshards 64\n";
    check(
        old,
        &format!("{place} 1: it was written by an older limina, whose shard hash had no key. Export it with"),
    );
    check(
        "limina store, format 2\nshards 64\nkey 00\n",
        &format!(
            "{place} 2: it was written by an older limina, whose parts do not prove that they belong together."
        ),
    );
    check("limina store, format 7\nshards 64\n", &format!("{place} 7, and this program knows 3"));
    check("limina store, format 3\nshards 64\n", "damaged data in");
    check("limina store, format 3\nshards 64\nkey 00\n", "damaged data in");
}

#[tokio::test]
async fn every_changed_byte_of_the_metadata_is_damage() {
    let directory = directory();
    drop(Embedded::open(directory.path(), options()).expect("open"));
    let meta = directory.path().join("limina.meta");
    let bytes = std::fs::read(&meta).expect("read");
    for index in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        std::fs::write(&meta, changed).expect("write");
        let refused = Embedded::open(directory.path(), options()).err();
        assert!(matches!(refused, Some(StoreError::Corrupt { .. })), "byte {index}: {refused:?}");
    }
}

#[tokio::test]
async fn a_damaged_byte_in_the_journal_is_named() {
    let directory = directory();
    fill(directory.path(), false).await;
    let file = directory.path().join("journal/journal-0000000001.seg");
    let offset = 3 * 4096;
    flip(&file, offset + 500);
    match read_all(directory.path()).await {
        Err(StoreError::Corrupt { path, offset: found, .. }) => {
            assert_eq!(path, file.display().to_string());
            assert!(found as usize <= offset && found > 0, "offset {found}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_missing_journal_is_noticed() {
    for remove in ["journal", "table"] {
        let directory = directory();
        fill(directory.path(), true).await;
        std::fs::remove_dir_all(directory.path().join(remove)).expect("remove");
        assert!(read_all(directory.path()).await.is_err(), "{remove} was not missed");
    }
}

/// Damages one byte after the other in every file of the table. The result is an error or all records: never fewer, and
/// never a panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_the_table_is_refused_or_harmless() {
    let factor: usize =
        std::env::var("LIMINA_SEEDS").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    let original = directory();
    fill(original.path(), true).await;
    read_all(original.path()).await.expect("it is whole");
    let mut refused = 0;
    let mut tried = 0;
    let mut named = 0;
    for file in files(&original.path().join("table")) {
        let length = std::fs::metadata(&file).expect("length").len() as usize;
        let stride = (length / (12 * factor)).max(1);
        for offset in (0..length).step_by(stride).take(12 * factor) {
            let damaged = copy(original.path());
            let target = damaged.path().join(file.strip_prefix(original.path()).expect("below"));
            flip(&target, offset);
            tried += 1;
            if let Err(error) = read_all(damaged.path()).await {
                refused += 1;
                named += usize::from(error.to_string().contains(&target.display().to_string()));
            }
        }
    }
    assert!(refused * 3 > tried, "only {refused} of {tried} damages were noticed");
    assert!(named * 2 > refused, "only {named} of {refused} damages were named");
}

#[tokio::test]
async fn free_space_is_that_of_the_file_system() {
    let directory = directory();
    let all = EmbeddedOptions { reserve_bytes: Some(u64::MAX), ..options() };
    let store = Embedded::open(directory.path(), all).expect("open");
    assert_eq!(store.free_space(), FreeSpace::Reserve);
    drop(store);
    let store = Embedded::open(directory.path(), options()).expect("open");
    assert_eq!(store.free_space(), FreeSpace::Ample);
}

#[tokio::test]
async fn an_idle_journal_is_sealed_and_a_closed_one_refuses() {
    let directory = directory();
    let store = Arc::new(Embedded::open(directory.path(), options()).expect("open"));
    let shard = shard(&store).await.expect("shard");
    shard.append(Seq(1), records(0, 1)).await.expect("append");
    let begun = Instant::now();
    while store.stats().frames < 2 {
        assert!(begun.elapsed() < Duration::from_secs(10), "the journal was not sealed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.close().await.expect("close");
    assert!(shard.append(Seq(2), records(1, 2)).await.is_err());
}
