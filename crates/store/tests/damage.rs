//! Random damage to a directory that is not in use: one byte flipped, one page zeroed, or the end cut off.
//!
//! One of three things must happen: opening fails and says where the damage is; or everything that was acknowledged is
//! read back exactly; or the reads that meet the damage fail. There must never be a wrong answer, a missing record
//! without an error, or a panic. The check of a directory must find everything that opening or reading finds, and must
//! change nothing.

use bytes::Bytes;
use limina_store::{
    Answer, HISTORY, Read, Record, Seq, ShardId, ShardStore, ShardStoreOptions, StoreError,
    embedded::{Embedded, EmbeddedOptions, Finding, ReadOnlyStore},
};
use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};
use tempfile::TempDir;

const SHARDS: u16 = 4;
const SEGMENT: u64 = 128 << 10;
const PAGE: u64 = 4096;
const HISTORIES: u8 = 3;
/// The number of damages, multiplied by `LIMINA_SEEDS` if that is set.
const PLACES: u64 = 75;

type Model = BTreeMap<Bytes, Bytes>;

fn options() -> EmbeddedOptions {
    EmbeddedOptions {
        shards: Some(SHARDS),
        segment_bytes: SEGMENT,
        reserve_bytes: Some(0),
        idle_seal: Duration::from_millis(20),
        cache_bytes: 1 << 20,
        ..EmbeddedOptions::default()
    }
}

/// In memory if possible, because thousands of openings sync often.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
    made.expect("a temporary directory")
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// The files of a directory, and what was acknowledged.
struct Original {
    files: Vec<Kept>,
    models: Vec<Model>,
    seqs: Vec<u64>,
}

/// One file, without the zeros at its end, because fjall's log has many megabytes of them.
struct Kept {
    name: PathBuf,
    bytes: Vec<u8>,
    length: u64,
}

/// Appends, checkpoints, appends after them, an opening in between and one at the end, with removals and overwrites.
async fn build() -> Original {
    let home = directory();
    let mut random = Random(7);
    let mut models = vec![Model::new(); usize::from(SHARDS)];
    let mut seqs = vec![0; usize::from(SHARDS)];
    for session in 0..3 {
        let store = Arc::new(Embedded::open(home.path(), options()).expect("open"));
        let shards = open_shards(&store).await.expect("shards");
        for round in 0..12 {
            for (number, shard) in shards.iter().enumerate() {
                let records = some_records(&mut random, 40, &mut models[number]);
                seqs[number] += 1;
                shard.append(Seq(seqs[number]), records).await.expect("append");
            }
            // The last session ends with appends that are only in the journal, and so do some shards in the others.
            if (round % 4 == 3 && session < 2) || (session == 2 && round == 2) {
                for shard in shards.iter().skip(round / 4 % 2) {
                    shard.checkpoint().await.expect("checkpoint");
                }
            }
        }
        drop(shards);
        store.close().await.expect("close");
    }
    let files = files(home.path()).into_iter().map(|path| {
        let mut bytes = std::fs::read(&path).expect("read");
        let length = bytes.len() as u64;
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        Kept { name: path.strip_prefix(home.path()).expect("below").to_path_buf(), bytes, length }
    });
    Original { files: files.collect(), models, seqs }
}

fn some_records(random: &mut Random, count: usize, model: &mut Model) -> Vec<Record> {
    let mut records = BTreeMap::new();
    for _ in 0..count {
        let key = Bytes::from(format!("key {:06}", random.below(4000)));
        let value = (random.below(10) > 0).then(|| some_value(random));
        records.insert(key, value);
    }
    for history in 0..HISTORIES {
        let last = model.range(history_key(history, 0)..history_key(history + 1, 0)).next_back();
        let next =
            last.map_or(0, |(key, _)| 1 + key[2..].try_into().map(u64::from_be_bytes).expect("a number"));
        for number in next..next + random.below(count as u64 / 4) {
            records.insert(history_key(history, number), Some(some_value(random)));
        }
    }
    for (key, value) in &records {
        match value {
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
    records.into_iter().map(|(key, value)| Record { key, value }).collect()
}

fn some_value(random: &mut Random) -> Bytes {
    let length = 20 + random.below(200) as usize;
    let half: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    [half, vec![b'.'; length]].concat().into()
}

fn history_key(history: u8, number: u64) -> Bytes {
    [&[HISTORY, history][..], &number.to_be_bytes()].concat().into()
}

/// A key that may be in the model.
fn some_key(random: &mut Random) -> Bytes {
    match random.below(3) {
        0 => history_key(random.below(u64::from(HISTORIES)) as u8, random.below(200)),
        _ => Bytes::from(format!("key {:06}", random.below(4000))),
    }
}

type Shards<S> = Vec<ShardStore<S, S>>;

async fn open_shards<S: limina_store::Journal + limina_store::Table>(
    store: &Arc<S>,
) -> Result<Shards<S>, StoreError> {
    let mut shards = Vec::new();
    for shard in (0..SHARDS).map(ShardId) {
        let options = ShardStoreOptions::default();
        shards.push(ShardStore::open(store.clone(), store.clone(), shard, options).await?);
    }
    Ok(shards)
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

/// What is done to a file.
#[derive(Clone, Copy)]
enum Damage {
    Flip { offset: u64, mask: u8 },
    Zero { offset: u64 },
    Cut { length: u64 },
}

struct Place<'a> {
    file: &'a Kept,
    damage: Damage,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, length) = (self.file.name.display(), self.file.length);
        match self.damage {
            Damage::Flip { offset, mask } => {
                write!(f, "byte {offset} of {length} in {name} flipped by {mask:02x}")
            }
            Damage::Zero { offset } => write!(f, "page at {offset} of {length} in {name} zeroed"),
            Damage::Cut { length: left } => write!(f, "{name} cut from {length} to {left}"),
        }
    }
}

impl Original {
    /// Half of the damages choose a file first, so that small files get their share, and half choose by length. The
    /// content always changes.
    fn place(&self, random: &mut Random) -> Place<'_> {
        loop {
            let candidates: Vec<&Kept> =
                self.files.iter().filter(|file| file.length > 0 && file.name != Path::new("LOCK")).collect();
            let file = match random.below(2) {
                0 => candidates[random.below(candidates.len() as u64) as usize],
                _ => {
                    let mut at = random.below(candidates.iter().map(|file| file.bytes.len() as u64).sum());
                    let hit = candidates.iter().find(|file| match at.checked_sub(file.bytes.len() as u64) {
                        Some(rest) => {
                            at = rest;
                            false
                        }
                        None => true,
                    });
                    hit.expect("a file")
                }
            };
            // Mostly where the file is not zero.
            let used = if random.below(10) > 0 {
                (file.bytes.len() as u64 + 1).min(file.length)
            } else {
                file.length
            };
            let damage = match random.below(4) {
                0 | 1 => Damage::Flip { offset: random.below(used), mask: 1 + random.below(255) as u8 },
                2 => Damage::Zero { offset: random.below(used) / PAGE * PAGE },
                _ => Damage::Cut { length: random.below(used) },
            };
            let changes = match damage {
                Damage::Zero { offset } => {
                    let end = (offset + PAGE).min(file.bytes.len() as u64);
                    (offset..end).any(|at| file.bytes[at as usize] != 0)
                }
                _ => true,
            };
            if changes {
                return Place { file, damage };
            }
        }
    }

    /// A separate copy, so that what opening writes does not affect other cases.
    fn copy(&self, place: Option<&Place<'_>>) -> TempDir {
        let copy = directory();
        for original in &self.files {
            let path = copy.path().join(&original.name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("create");
            let file = File::create_new(&path).expect("create");
            file.write_all_at(&original.bytes, 0).expect("write");
            file.set_len(original.length).expect("length");
        }
        if let Some(place) = place {
            let path = copy.path().join(&place.file.name);
            let file = File::options().read(true).write(true).open(path).expect("open");
            match place.damage {
                Damage::Flip { offset, mask } => {
                    let byte = place.file.bytes.get(offset as usize).copied().unwrap_or(0);
                    file.write_all_at(&[byte ^ mask], offset).expect("write");
                }
                Damage::Zero { offset } => {
                    let length = PAGE.min(place.file.length - offset) as usize;
                    file.write_all_at(&vec![0; length], offset).expect("write");
                }
                Damage::Cut { length } => file.set_len(length).expect("cut"),
            }
        }
        copy
    }

    /// Opens the copy, and reads everything in all ways of reading.
    async fn outcome(&self, home: &Path, random: &mut Random) -> Outcome {
        let store = match Embedded::open(home, EmbeddedOptions { shards: None, ..options() }) {
            Ok(store) => Arc::new(store),
            Err(error) => return Outcome::Refused(error.to_string()),
        };
        let shards = match open_shards(&store).await {
            Ok(shards) => shards,
            Err(error) => return Outcome::Refused(error.to_string()),
        };
        let failed = self.read(&shards, random).await;
        if failed.is_none() && random.below(4) == 0 {
            return self.go_on(home, store, shards, random).await;
        }
        failed.map_or(Outcome::Whole, Outcome::ReadFailed)
    }

    /// Every answer must be what was acknowledged, or an error. Returns the last error.
    async fn read<S>(&self, shards: &Shards<S>, random: &mut Random) -> Option<String>
    where
        S: limina_store::Journal + limina_store::Table,
    {
        let mut failed = None;
        let end = Bytes::from_static(b"l");
        for (number, (shard, model)) in shards.iter().zip(&self.models).enumerate() {
            let mut reads = vec![Read::Scan { from: Bytes::new(), to: end.clone(), limit: usize::MAX }];
            let keys: Vec<Bytes> = (0..100).map(|_| some_key(random)).collect();
            reads.extend(keys.iter().cloned().map(Read::Get));
            reads.extend(keys.iter().map(|key| Read::LastAtOrBefore { from: Bytes::new(), at: key.clone() }));
            let mut answers = shard.read(reads).await.into_iter();
            let own = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
            match answers.next().expect("an answer") {
                Ok(Answer::Page(page)) => {
                    assert!(page.iter().cloned().eq(model.iter().map(own)), "shard {number}: a wrong page")
                }
                Ok(other) => panic!("shard {number}: {other:?}"),
                Err(error) => failed = Some(error.to_string()),
            }
            for (index, answer) in answers.enumerate() {
                let key = &keys[index % keys.len()];
                match answer {
                    Ok(Answer::Value(value)) => assert_eq!(value.as_ref(), model.get(key), "shard {number}"),
                    Ok(Answer::Last(last)) => {
                        assert_eq!(last, model.range(..=key.clone()).next_back().map(own), "shard {number}")
                    }
                    Ok(other) => panic!("shard {number}: {other:?}"),
                    Err(error) => failed = Some(error.to_string()),
                }
            }
        }
        failed
    }

    /// A directory that looked intact must stay so: one more append and checkpoint, and another opening.
    async fn go_on(
        &self,
        home: &Path,
        store: Arc<Embedded>,
        shards: Shards<Embedded>,
        random: &mut Random,
    ) -> Outcome {
        let mut models = self.models.clone();
        for (number, shard) in shards.iter().enumerate() {
            let records = some_records(random, 10, &mut models[number]);
            if let Err(error) = shard.append(Seq(self.seqs[number] + 1), records).await {
                return Outcome::ReadFailed(format!("append: {error}"));
            }
            if let Err(error) = shard.checkpoint().await {
                return Outcome::ReadFailed(format!("checkpoint: {error}"));
            }
        }
        drop(shards);
        if let Err(error) = store.close().await {
            return Outcome::ReadFailed(format!("close: {error}"));
        }
        drop(store);
        let store = Arc::new(Embedded::open(home, options()).expect("it was opened before"));
        let shards = open_shards(&store).await.expect("they were opened before");
        let after = Original { files: Vec::new(), models, seqs: Vec::new() };
        after.read(&shards, random).await.map_or(Outcome::Whole, Outcome::ReadFailed)
    }
}

enum Outcome {
    Refused(String),
    ReadFailed(String),
    Whole,
}

/// The problems that a check of the directory reports.
fn problems(home: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut tell = |finding: Finding| match finding {
        Finding::Problem(error) => found.push(error.to_string()),
        Finding::Checked(_) | Finding::Note(_) | Finding::Progress(_) => {}
    };
    match ReadOnlyStore::check(home, &mut tell) {
        Ok(_) => {}
        Err(error) => found.push(error.to_string()),
    }
    found
}

/// Everything in a directory except the lock file, which contains the process id of the last user.
fn snapshot(home: &Path) -> BTreeMap<PathBuf, (u64, Vec<u8>)> {
    let all = files(home).into_iter().filter(|path| path != &home.join("LOCK"));
    all.map(|path| {
        let mut bytes = std::fs::read(&path).expect("read");
        let length = bytes.len() as u64;
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        (path, (length, bytes))
    })
    .collect()
}

#[derive(Default, Debug)]
struct Counts {
    refused: u64,
    read_failed: u64,
    whole: u64,
    /// How many of the noticed damages have a message that names the damaged file.
    named: u64,
    /// Intact to the store, but not to the check.
    only_at_rest: u64,
    whole_in: BTreeMap<PathBuf, u64>,
    unnamed: BTreeMap<String, u64>,
    missed: Vec<String>,
}

#[tokio::test]
async fn a_sound_directory_has_no_problems_and_is_not_changed() {
    let original = build().await;
    let home = original.copy(None);
    let before = snapshot(home.path());
    assert_eq!(problems(home.path()), Vec::<String>::new());
    assert!(snapshot(home.path()) == before, "a check changed something");

    let read_only = ReadOnlyStore::check(home.path(), &mut |_| {}).expect("check").expect("it is whole");
    assert_eq!(read_only.shards(), SHARDS);
    let shards = open_shards(&Arc::new(read_only)).await.expect("shards");
    assert_eq!(original.read(&shards, &mut Random(1)).await, None);
    assert!(
        shards[0].append(Seq(original.seqs[0] + 1), Vec::new()).await.is_err(),
        "the store is open for reading only"
    );
    drop(shards);
    assert!(snapshot(home.path()) == before, "reading changed something");
}

/// Opening stops at the first damage; the check continues.
#[tokio::test]
async fn all_damaged_files_are_named_at_once() {
    let original = build().await;
    let home = original.copy(None);
    let segments: Vec<&Kept> = original
        .files
        .iter()
        .filter(|kept| kept.name.starts_with("journal/") && kept.bytes.len() > 20_000)
        .collect();
    let tables: Vec<&Kept> =
        original.files.iter().filter(|kept| kept.name.iter().any(|part| part == "tables")).collect();
    assert!(segments.len() > 1 && tables.len() > 1, "{} segments, {} tables", segments.len(), tables.len());
    let damaged = || segments.iter().chain(&tables);
    for kept in damaged() {
        let file = File::options().write(true).open(home.path().join(&kept.name)).expect("open");
        let offset = if kept.name.starts_with("journal/") { 3 * PAGE + 50 } else { 40 };
        file.write_all_at(&[!kept.bytes[offset as usize]], offset).expect("write");
    }
    let found = problems(home.path());
    for kept in damaged() {
        let path = home.path().join(&kept.name).display().to_string();
        let times = found.iter().filter(|words| words.contains(&format!("{path} at offset"))).count();
        assert_eq!(times, 1, "{path} in {found:#?}");
    }
    assert_eq!(found.len(), damaged().count(), "{found:#?}");
}

/// A table of contents that claims billions of sections must not lead to an allocation for them, which would abort the
/// process without an error.
#[tokio::test]
async fn damaged_contents_are_refused_before_they_are_believed() {
    let original = build().await;
    let tables = original.files.iter().filter(|kept| kept.name.iter().any(|part| part == "tables"));
    for kept in tables {
        let contents = kept.bytes.windows(4).rposition(|bytes| bytes == b"TOC!").expect("contents") as u64;
        for offset in contents..contents + 8 {
            let place = Place { file: kept, damage: Damage::Flip { offset, mask: 0xff } };
            let home = original.copy(Some(&place));
            let path = home.path().join(&kept.name).display().to_string();
            match original.outcome(home.path(), &mut Random(offset)).await {
                Outcome::Refused(words) => assert!(words.contains(&path), "{place}: {words}"),
                _ => panic!("{place} was not noticed at opening"),
            }
        }
    }
}

#[test]
fn damage_is_refused_or_reported_or_harmless() {
    let factor = std::env::var("LIMINA_SEEDS").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let original = runtime().block_on(build());
    let counts = Mutex::new(Counts::default());
    let panics: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new({
        let panics = panics.clone();
        move |info| {
            let place = info.location().map_or(String::new(), ToString::to_string);
            // Panics of fjall are caught, and become errors.
            if place.contains("fjall-") || place.contains("lsm-tree-") || place.contains("sfa-") {
                *panics.lock().expect("a lock").entry(place).or_default() += 1;
            } else {
                hook(info);
            }
        }
    }));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (original, counts) = (&original, &counts);
            scope.spawn(move || {
                let runtime = runtime();
                for seed in (worker..PLACES * factor).step_by(2) {
                    let mut random = Random(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
                    let place = original.place(&mut random);
                    runtime.block_on(try_place(original, &place, &mut random, counts));
                }
            });
        }
    });
    drop(std::panic::take_hook());
    let counts = counts.into_inner().expect("no worker panicked");
    println!("{counts:#?}\npanics in fjall, caught: {:#?}", panics.lock().expect("a lock"));
    assert!(counts.missed.is_empty(), "a check at rest missed: {:#?}", counts.missed);
    let noticed = counts.refused + counts.read_failed;
    assert!(noticed * 2 > counts.whole, "only {noticed} damages were noticed, {} were not", counts.whole);
    assert!(counts.named * 100 >= noticed * 99, "only {} of {noticed} damages were named", counts.named);
}

async fn try_place(original: &Original, place: &Place<'_>, random: &mut Random, counts: &Mutex<Counts>) {
    /// A failed assertion must say where the damage was.
    struct Said(String);
    impl Drop for Said {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the damage was: {}", self.0);
            }
        }
    }
    let _said = Said(place.to_string());
    let home = original.copy(Some(place));
    let before = (random.below(16) == 0).then(|| snapshot(home.path()));
    let found = problems(home.path());
    if let Some(before) = before {
        assert!(snapshot(home.path()) == before, "a check changed something");
    }
    let outcome = original.outcome(home.path(), random).await;

    let mut counts = counts.lock().expect("no worker panicked");
    match outcome {
        Outcome::Refused(words) | Outcome::ReadFailed(words) if found.is_empty() => {
            counts.missed.push(format!("{place}: {words}"))
        }
        Outcome::Whole => {
            counts.whole += 1;
            *counts.whole_in.entry(place.file.name.clone()).or_default() += 1;
            counts.only_at_rest += u64::from(!found.is_empty());
        }
        ref noticed @ (Outcome::Refused(ref words) | Outcome::ReadFailed(ref words)) => {
            match noticed {
                Outcome::Refused(_) => counts.refused += 1,
                _ => counts.read_failed += 1,
            }
            if words.contains(&home.path().join(&place.file.name).display().to_string()) {
                counts.named += 1;
            } else {
                let words = words.replace(&home.path().display().to_string(), "…");
                *counts.unnamed.entry(format!("{}: {words}", place.file.name.display())).or_default() += 1;
            }
        }
    }
}
