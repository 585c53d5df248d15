//! The segmented journal on a disk that loses power, fails, fills up and is damaged.

use bytes::Bytes;
use limina_store::{
    AppendError, Epoch, Seq, ShardId, StoreError,
    disk::{Disk, SimulatedDisk},
    segmented::{Append, Salts, SegmentedJournal, SegmentedOptions},
};
use std::sync::Arc;

const SHARDS: u16 = 3;

/// The expected content of the journal, kept in the simplest way.
struct World {
    disk: SimulatedDisk,
    random: Random,
    lives: u64,
    shards: Vec<Expected>,
}

#[derive(Default)]
struct Expected {
    /// Every append that was answered, or found when the shard was taken. The first is number 1.
    kept: Vec<Bytes>,
    /// Appends with an unknown outcome: either all of them are there, in order, or none.
    open: Vec<Bytes>,
    released: u64,
    epoch: Option<Epoch>,
}

type Live = SegmentedJournal<SimulatedDisk>;

impl World {
    fn new(seed: u64) -> Self {
        let shards = (0..SHARDS).map(|_| Expected::default()).collect();
        World { disk: SimulatedDisk::new(), random: Random(seed), lives: 0, shards }
    }

    fn open(&mut self) -> Result<Live, StoreError> {
        self.lives += 1;
        let options = SegmentedOptions {
            shards: SHARDS,
            segment_bytes: 40 << 10,
            must_exist: self.lives > 1,
            salts: Salts::Seeded(self.random.next()),
            ..SegmentedOptions::default()
        };
        let (mut journal, _) = SegmentedJournal::open(Arc::new(self.disk.clone()), options)?;
        for (shard, expected) in self.shards.iter_mut().enumerate() {
            expected.epoch = None;
            let shard = ShardId(shard as u16);
            journal.check_applied(shard, Seq(expected.released))?;
            journal.release(shard, Seq(expected.released));
        }
        Ok(journal)
    }

    /// Takes the shard, and compares its appends with the expected ones.
    fn take(&mut self, journal: &mut Live, shard: u16) -> Result<(), StoreError> {
        let epoch = journal.take(ShardId(shard))?;
        let expected = &mut self.shards[usize::from(shard)];
        let mut found = Vec::new();
        loop {
            let after = expected.released + found.len() as u64;
            let part = journal.tail(ShardId(shard), epoch, Seq(after))?;
            if part.is_empty() {
                break;
            }
            for (seq, payload) in part {
                assert_eq!(seq.0, expected.released + found.len() as u64 + 1, "the seqs of shard {shard}");
                found.push(payload);
            }
        }
        let answered = &expected.kept[expected.released as usize..];
        let more = found.strip_prefix(answered).unwrap_or_else(|| {
            panic!("shard {shard} lost some of {} answered appends: {} found", answered.len(), found.len())
        });
        assert!(more.is_empty() || more == expected.open, "shard {shard} has what was never asked for");
        expected.kept.extend_from_slice(more);
        expected.open.clear();
        expected.epoch = Some(epoch);
        Ok(())
    }

    /// Writes one random frame. Returns false if the journal cannot continue before it is opened again.
    fn append(&mut self, journal: &mut Live) -> bool {
        let mut appends: Vec<Append> = Vec::new();
        for shard in 0..SHARDS {
            let Some(epoch) = self.shards[usize::from(shard)].epoch else {
                if self.take(journal, shard).is_err() {
                    return false;
                }
                continue;
            };
            for step in 1..=self.random.below(3) {
                let seq = Seq(self.shards[usize::from(shard)].kept.len() as u64 + step);
                let length = match self.random.below(20) {
                    0 => 50_000,
                    1..5 => 5_000,
                    _ => self.random.below(300) as usize,
                };
                let payload = Bytes::from(vec![self.random.next() as u8; length]);
                appends.push(Append { shard: ShardId(shard), epoch, seq, payload });
            }
        }
        let answers = journal.append(&appends);
        for (append, answer) in appends.into_iter().zip(answers) {
            let expected = &mut self.shards[usize::from(append.shard.0)];
            match answer {
                Ok(()) => expected.kept.push(append.payload),
                Err(AppendError::Unknown(_)) => {
                    expected.open.push(append.payload);
                    expected.epoch = None;
                }
                Err(AppendError::NotDone(_) | AppendError::Full) => {}
                Err(AppendError::Fenced) => panic!("nobody else takes shards here"),
            }
        }
        true
    }

    fn live(&mut self, journal: &mut Live, steps: u64) {
        for _ in 0..steps {
            match self.random.below(10) {
                0..6 => {
                    if !self.append(journal) {
                        return;
                    }
                }
                6 => drop(journal.seal()),
                7 => drop(self.take(journal, self.random.0 as u16 % SHARDS)),
                _ => {
                    let shard = self.random.below(u64::from(SHARDS));
                    let expected = &mut self.shards[shard as usize];
                    let behind = expected.kept.len() as u64 - expected.released;
                    expected.released += self.random.below(behind + 1);
                    journal.release(ShardId(shard as u16), Seq(expected.released));
                }
            }
        }
    }

    /// Kills the process, or loses power as well.
    fn end(&mut self) {
        self.disk.fail_writes(0, 0);
        self.disk.fail_syncs(0, 0);
        let seed = self.random.next();
        if !seed.is_multiple_of(3) {
            self.disk.crash(seed);
        }
    }

    fn check_all(&mut self) {
        let mut journal = self.open().unwrap_or_else(|error| panic!("opening: {error}"));
        for shard in 0..SHARDS {
            self.take(&mut journal, shard).expect("take");
        }
    }
}

/// Opens, uses and stops a journal several times. `trouble` may set faults of the disk before each opening.
fn check_lives(seed: u64, trouble: impl Fn(&SimulatedDisk, &mut Random)) {
    let mut world = World::new(seed);
    for _ in 0..6 {
        let early = world.lives > 0 && world.random.below(4) == 0;
        if early {
            trouble(&world.disk, &mut world.random);
        }
        let mut journal = match world.open() {
            Ok(journal) => journal,
            // The disk failed while the journal was being opened, which is a valid end of a process.
            Err(StoreError::Io { .. }) if early => {
                world.end();
                continue;
            }
            Err(error) => panic!("opening life {}: {error}", world.lives),
        };
        trouble(&world.disk, &mut world.random);
        let steps = world.random.below(25);
        world.live(&mut journal, steps);
        drop(journal);
        world.end();
    }
    world.end();
    world.check_all();
}

/// Runs this many seeds, multiplied by `LIMINA_SEEDS` if that is set.
fn seeds(number: u64, check: impl Fn(u64)) {
    let factor: u64 = std::env::var("LIMINA_SEEDS").ok().and_then(|factor| factor.parse().ok()).unwrap_or(1);
    for seed in 0..number * factor {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(seed)));
        if let Err(panic) = result {
            eprintln!("seed {seed} failed");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn power_is_lost_between_steps() {
    seeds(100, |seed| check_lives(seed, |_, _| {}));
}

/// From some write or sync on everything fails until power is lost: a loss of power in the middle of an operation.
#[test]
fn power_is_lost_within_a_step() {
    seeds(120, |seed| {
        check_lives(seed, |disk, random| {
            let (writes, syncs) = (random.below(60), random.below(60));
            disk.fail_writes(writes, u64::MAX);
            disk.fail_syncs(syncs, u64::MAX);
        });
    });
}

#[test]
fn single_writes_and_syncs_fail() {
    seeds(120, |seed| {
        check_lives(seed, |disk, random| {
            disk.fail_writes(random.below(40), random.below(3));
            disk.fail_syncs(random.below(40), random.below(3));
        });
    });
}

#[test]
fn space_runs_out_and_comes_back() {
    seeds(80, |seed| {
        let mut world = World::new(seed);
        let mut journal = world.open().expect("open");
        world.disk.limit_space(Some(world.disk.used() + 100_000));
        world.live(&mut journal, 60);
        world.disk.limit_space(None);
        let before: usize = world.shards.iter().map(|shard| shard.kept.len()).sum();
        for _ in 0..10 {
            assert!(world.append(&mut journal));
        }
        let after: usize = world.shards.iter().map(|shard| shard.kept.len()).sum();
        assert!(after > before, "nothing could be appended though there is space again");
        world.disk.crash(seed);
        world.check_all();
    });
}

#[test]
fn a_full_disk_is_reported_and_nothing_is_lost() {
    let mut world = World::new(1);
    let mut journal = world.open().expect("open");
    world.disk.limit_space(Some(world.disk.used()));
    let epoch = journal.take(ShardId(0)).expect("take");
    let append =
        |seq| Append { shard: ShardId(0), epoch, seq: Seq(seq), payload: Bytes::from(vec![1; 4000]) };
    let mut seq = 1;
    while journal.append(&[append(seq)])[0].is_ok() {
        seq += 1;
    }
    assert!(seq > 3, "the first segment has room for some");
    assert!(matches!(journal.append(&[append(seq)])[0], Err(AppendError::Full)));
    assert_eq!(journal.epoch(ShardId(0)), epoch, "a full disk fences nobody");
    assert_eq!(journal.tail(ShardId(0), epoch, Seq(0)).expect("tail").len() as u64, seq - 1);
    world.disk.limit_space(None);
    assert!(journal.append(&[append(seq)])[0].is_ok());
}

#[test]
fn a_failed_sync_has_unknown_outcomes_and_its_frame_is_superseded() {
    seeds(80, |seed| {
        let mut world = World::new(seed);
        let mut journal = world.open().expect("open");
        let (a, b) = (ShardId(0), ShardId(1));
        let (epoch, bystander) = (journal.take(a).expect("take"), journal.take(b).expect("take"));
        let append = |shard, epoch, seq, fill| {
            vec![Append { shard, epoch, seq: Seq(seq), payload: Bytes::from(vec![fill; 6000]) }]
        };
        assert!(journal.append(&append(a, epoch, 1, 1))[0].is_ok());
        world.disk.fail_syncs(0, 1);
        assert!(matches!(journal.append(&append(a, epoch, 2, 2))[0], Err(AppendError::Unknown(_))));
        assert!(matches!(journal.append(&append(a, epoch, 2, 2))[0], Err(AppendError::Fenced)));
        assert!(journal.append(&append(b, bystander, 1, 9))[0].is_ok());
        let epoch = journal.take(a).expect("take");
        assert_eq!(journal.tail(a, epoch, Seq(1)).expect("tail"), vec![]);
        if seed % 2 == 0 {
            assert!(journal.append(&append(a, epoch, 2, 3))[0].is_ok());
            world.shards[0].kept.push(Bytes::from(vec![3; 6000]));
        }
        world.shards[0].kept.insert(0, Bytes::from(vec![1; 6000]));
        world.shards[1].kept.push(Bytes::from(vec![9; 6000]));
        world.disk.crash(seed);
        world.check_all();
    });
}

/// A sealed journal that is not in use, with several segments.
fn quiescent(seed: u64) -> World {
    let mut world = World::new(seed);
    for life in 0..2 {
        let mut journal = world.open().expect("open");
        let steps = 5 + world.random.below(20);
        world.live(&mut journal, steps);
        journal.seal().expect("seal");
        if life == 0 {
            world.disk.crash(seed);
        }
    }
    world
}

fn segments(disk: &SimulatedDisk) -> Vec<String> {
    disk.list().expect("list").into_iter().filter(|name| name.starts_with("journal-")).collect()
}

fn length(disk: &SimulatedDisk, name: &str) -> u64 {
    use limina_store::disk::DiskFile;
    disk.open(name).and_then(|file| file.len()).expect("length")
}

#[test]
fn one_damaged_byte_is_refused_or_harmless() {
    let refused = std::cell::Cell::new(0);
    seeds(200, |seed| {
        let mut world = quiescent(seed);
        let names = segments(&world.disk);
        let name = names[world.random.below(names.len() as u64) as usize].clone();
        let length = length(&world.disk, &name);
        // Half of the damage is where it matters most: in the headers of segments and frames.
        let offset = match world.random.below(2) {
            0 => world.random.below(length / 4096) * 4096 + world.random.below(64),
            _ => world.random.below(length),
        };
        let mask = 1 << world.random.below(8);
        assert!(world.disk.flip(&name, offset, mask));
        match world.open() {
            Ok(mut journal) => {
                for shard in 0..SHARDS {
                    world.take(&mut journal, shard).expect("take");
                }
            }
            Err(StoreError::Corrupt { path, .. }) => {
                assert_eq!(path, name, "offset {offset}");
                refused.set(refused.get() + 1);
            }
            Err(other) => panic!("{name} at {offset}: {other:?}"),
        }
    });
    assert!(refused.get() > 60, "only {} of the damages were noticed", refused.get());
}

#[test]
fn a_missing_segment_is_refused() {
    seeds(120, |seed| {
        let mut world = quiescent(seed);
        for shard in 0..SHARDS {
            // No more was released than the journal itself dropped.
            assert!(
                world.shards[usize::from(shard)].released
                    <= world.shards[usize::from(shard)].kept.len() as u64
            );
        }
        let names = segments(&world.disk);
        let index = world.random.below(names.len() as u64) as usize;
        world.disk.remove(&names[index]).expect("remove");
        match world.open() {
            Err(StoreError::Corrupt { .. } | StoreError::Unusable(_)) => {}
            Err(other) => panic!("{other:?}"),
            // The first segment may be removed if nothing in it was needed: the crash came before it was released.
            Ok(mut journal) => {
                assert_eq!(index, 0, "the loss of {} went unnoticed", names[index]);
                for shard in 0..SHARDS {
                    world.take(&mut journal, shard).expect("take");
                }
            }
        }
    });
}

#[test]
fn segments_are_recycled() {
    let mut world = World::new(5);
    let mut journal = world.open().expect("open");
    let epoch = journal.take(ShardId(0)).expect("take");
    for seq in 1..=500 {
        let payload = Bytes::from(vec![seq as u8; 3000]);
        assert!(journal.append(&[Append { shard: ShardId(0), epoch, seq: Seq(seq), payload }])[0].is_ok());
        if seq % 20 == 0 {
            assert!(journal.pinning_shards().iter().all(|(shard, _)| *shard == ShardId(0)));
            journal.release(ShardId(0), Seq(seq));
        }
    }
    let stats = journal.stats();
    assert!(stats.segments <= 2 && stats.spares <= 2, "{stats:?}");
    assert_eq!((stats.frames, stats.appends), (500, 500));
    assert!(world.disk.used() <= 6 * (40 << 10), "{} bytes used", world.disk.used());
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
        self.next() % bound
    }
}
