//! `ShardStore` when journal or table fail.

use bytes::Bytes;
use limina_store::{
    Answer, AppendError, Batch, ConfirmError, Epoch, FreeSpace, Journal, JournalStats, Read, Record,
    RecordRef, Seq, ShardId, ShardStore, ShardStoreOptions, StoreError,
    memory::{AppendFault, Memory, MemoryOptions},
};
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Waker},
};
use tokio::sync::Notify;

const SHARD: ShardId = ShardId(0);

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Parses `"a=1 b"`: `a` is 1, `b` is removed.
fn records(text: &str) -> Vec<Record> {
    let record = |word: &str| match word.split_once('=') {
        Some((key, value)) => Record { key: bytes(key), value: Some(bytes(value)) },
        None => Record { key: bytes(word), value: None },
    };
    text.split_whitespace().map(record).collect()
}

async fn open(memory: &Arc<Memory>, options: ShardStoreOptions) -> ShardStore<Memory, Memory> {
    ShardStore::open(memory.clone(), memory.clone(), SHARD, options).await.expect("open")
}

async fn new() -> (Arc<Memory>, ShardStore<Memory, Memory>) {
    let memory = Arc::new(Memory::new(&MemoryOptions::default()).expect("memory"));
    let shard = open(&memory, ShardStoreOptions::default()).await;
    (memory, shard)
}

/// Checks the whole content of the shard.
async fn check(shard: &ShardStore<Memory, Memory>, expected: &str) {
    let all = Read::Scan { from: bytes(""), to: bytes("~"), limit: 100 };
    let Some(Ok(Answer::Page(page))) = shard.read(vec![all]).await.pop() else { panic!("the scan failed") };
    let text = |(key, value): &(Bytes, Bytes)| {
        format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
    };
    assert_eq!(page.iter().map(text).collect::<Vec<_>>().join(" "), expected);
    let (mut scan, mut found) = (shard.begin_full_scan(bytes("")..bytes("~")), Vec::new());
    while let page @ [_, ..] = &*shard.next_page(&mut scan, 1).await.expect("page") {
        found.extend(page.iter().map(text));
    }
    assert_eq!(found.join(" "), expected);
}

#[tokio::test]
async fn an_append_of_unknown_outcome_is_found_out_by_taking_again() {
    for (fault, expected) in
        [(AppendFault::UnknownButHappened, "a=1 b=2"), (AppendFault::UnknownAndDidNotHappen, "a=1")]
    {
        let (memory, shard) = new().await;
        shard.append(Seq(1), records("a=1")).await.expect("append");
        memory.fail_append(fault);
        let unknown = shard.append(Seq(2), records("b=2")).await;
        assert!(matches!(unknown, Err(AppendError::Unknown(_))));
        check(&shard, "a=1").await;
        assert!(matches!(shard.confirm().await, Err(ConfirmError::Fenced)));
        let refused = shard.append(Seq(2), records("b=2")).await;
        assert!(matches!(refused, Err(AppendError::NotDone(_))), "{refused:?}");
        shard.retake().await.expect("retake");
        check(&shard, expected).await;
        shard.append(shard.seq().next(), records("c=3")).await.expect("append");
        check(&shard, &format!("{expected} c=3")).await;
    }
}

/// An append of many records is encoded in a task of its own, which may still run when the shard was given up and taken again.
#[tokio::test]
async fn an_append_from_before_the_shard_was_taken_again_is_refused() {
    let (_memory, shard) = new().await;
    shard.append(Seq(1), records("a=1")).await.expect("append");
    let (epoch, seq) = (shard.epoch(), shard.seq().next());
    shard.retake().await.expect("retake");
    let late = shard.append_under(epoch, seq, records("b=2")).await;
    assert!(matches!(late, Err(AppendError::NotDone(_))), "{late:?}");
    check(&shard, "a=1").await;
    shard.append(seq, records("c=3")).await.expect("append");
}

/// A journal whose answer to the next append arrives late, although the append is durable.
struct LateJournal {
    memory: Arc<Memory>,
    is_late: AtomicBool,
    arrives: Notify,
}

impl Journal for LateJournal {
    async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        self.memory.take(shard).await
    }

    async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<(Seq, Bytes)>, StoreError> {
        self.memory.tail(shard, epoch, after).await
    }

    async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        let outcome = self.memory.append(shard, epoch, seq, payload).await;
        if self.is_late.swap(false, Ordering::Relaxed) {
            self.arrives.notified().await;
        }
        outcome
    }

    async fn confirm(&self, shard: ShardId, epoch: Epoch, seq: Seq) -> Result<(), ConfirmError> {
        self.memory.confirm(shard, epoch, seq).await
    }

    fn release(&self, shard: ShardId, upto: Seq) {
        self.memory.release(shard, upto);
    }

    fn free_space(&self) -> FreeSpace {
        self.memory.free_space()
    }

    fn stats(&self) -> JournalStats {
        self.memory.stats()
    }
}

/// The task of an append was aborted while it was being polled. So it goes on, although the shard has been taken again, and has appended
/// more.
#[tokio::test]
async fn an_append_that_is_answered_after_the_shard_was_taken_again_changes_nothing() {
    let memory = Arc::new(Memory::new(&MemoryOptions::default()).expect("memory"));
    let (is_late, arrives) = (AtomicBool::new(true), Notify::new());
    let journal = Arc::new(LateJournal { memory: memory.clone(), is_late, arrives });
    let options = ShardStoreOptions::default();
    let shard = ShardStore::open(journal.clone(), memory, SHARD, options).await.expect("open");
    let mut late = pin!(shard.append(Seq(1), records("a=1")));
    let mut context = Context::from_waker(Waker::noop());
    assert!(late.as_mut().poll(&mut context).is_pending());
    shard.retake().await.expect("retake");
    shard.append(Seq(2), records("a=2")).await.expect("append");
    journal.arrives.notify_one();
    let late = late.await;
    assert!(matches!(late, Err(AppendError::Unknown(_))), "{late:?}");
    assert_eq!(shard.seq(), Seq(2));
    shard.append(Seq(3), records("b=3")).await.expect("append");
    let found = shard.read(vec![Read::Get(bytes("a"))]).await;
    assert!(matches!(&found[..], [Ok(Answer::Value(Some(value)))] if *value == bytes("2")), "{found:?}");
}

#[tokio::test]
async fn appends_that_did_not_happen_can_be_retried() {
    let (memory, shard) = new().await;
    memory.fail_append(AppendFault::NotDone);
    assert!(matches!(shard.append(Seq(1), records("a=1")).await, Err(AppendError::NotDone(_))));
    shard.append(Seq(1), records("a=1")).await.expect("append");
    memory.fence(SHARD);
    assert!(matches!(shard.append(Seq(2), records("b=2")).await, Err(AppendError::Fenced)));
    assert!(matches!(shard.confirm().await, Err(ConfirmError::Fenced)));
    check(&shard, "a=1").await;
}

#[tokio::test]
async fn a_full_disk_refuses_and_recovers() {
    let (memory, shard) = new().await;
    memory.limit_space(memory.disk().map(|disk| disk.used()));
    assert_eq!(shard.free_space(), FreeSpace::Reserve);
    let value = "x".repeat(3000);
    let mut seq = Seq(1);
    while shard.append(seq, records(&format!("a={value}"))).await.is_ok() {
        seq = seq.next();
    }
    assert!(matches!(shard.append(seq, records("b=1")).await, Err(AppendError::Full)));
    check(&shard, &format!("a={value}")).await;
    memory.limit_space(None);
    assert_eq!(shard.free_space(), FreeSpace::Ample);
    shard.append(seq, records("b=1")).await.expect("append");
}

#[tokio::test]
async fn a_failed_checkpoint_loses_nothing_and_is_repeated() {
    for crashes in [false, true] {
        let (memory, mut shard) = new().await;
        shard.append(Seq(1), records("a=1 b=1 c=1")).await.expect("append");
        shard.checkpoint().await.expect("checkpoint");
        shard.append(Seq(2), records("a b=2 d=2")).await.expect("append");
        memory.fail_checkpoint(1);
        shard.checkpoint().await.expect_err("is to fail");
        shard.append(Seq(3), records("d=3")).await.expect("append");
        check(&shard, "b=2 c=1 d=3").await;
        if crashes {
            let options = MemoryOptions { seed: 9, ..MemoryOptions::default() };
            let reopened = Arc::new(Memory::open(memory.crash(4), &options).expect("open"));
            shard = open(&reopened, ShardStoreOptions::default()).await;
            check(&shard, "b=2 c=1 d=3").await;
            assert_eq!(shard.checkpoint().await.expect("checkpoint"), Some(Seq(3)));
        } else {
            assert!(shard.backlog().due);
            assert_eq!(shard.checkpoint().await.expect("checkpoint"), Some(Seq(2)));
            check(&shard, "b=2 c=1 d=3").await;
            assert_eq!(shard.checkpoint().await.expect("checkpoint"), Some(Seq(3)));
        }
        check(&shard, "b=2 c=1 d=3").await;
        assert_eq!(shard.checkpoint().await.expect("checkpoint"), None);
    }
}

/// A record that is removed soon after it was created normally never reaches the table, but here the table has it.
#[tokio::test]
async fn records_of_an_interrupted_checkpoint_can_be_removed() {
    let (memory, shard) = new().await;
    let mark = RecordRef { key: b"mark", value: Some(b"1"), is_first: true };
    shard.append(Seq(1), Batch::new([mark].into_iter())).await.expect("append");
    memory.fail_checkpoint(1);
    shard.checkpoint().await.expect_err("is to fail");
    let options = MemoryOptions { seed: 9, ..MemoryOptions::default() };
    let reopened = Arc::new(Memory::open(memory.kill(), &options).expect("open"));
    let shard = open(&reopened, ShardStoreOptions::default()).await;
    shard.append(Seq(2), records("mark")).await.expect("append");
    check(&shard, "").await;
    shard.checkpoint().await.expect("checkpoint");
    check(&shard, "").await;
}

#[tokio::test]
async fn a_failed_look_up_is_an_error_only_where_the_table_is_needed() {
    let (memory, shard) = new().await;
    shard.append(Seq(1), records("a=1")).await.expect("append");
    shard.checkpoint().await.expect("checkpoint");
    shard.append(Seq(2), records("b=2 c")).await.expect("append");
    let reads = || ["a", "b", "c"].map(|key| Read::Get(bytes(key))).to_vec();
    memory.fail_table_reads(1);
    let found = shard.read(reads()).await;
    assert!(found[0].is_err());
    assert!(matches!(&found[1], Ok(Answer::Value(Some(value))) if *value == bytes("2")));
    assert!(matches!(&found[2], Ok(Answer::Value(None))));
    let now = shard.read_now(&reads());
    assert_eq!(now, [None, Some(Answer::Value(Some(bytes("2")))), Some(Answer::Value(None))]);
    assert!(shard.read(reads()).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn appends_wait_while_memory_is_above_its_bound() {
    let memory = Arc::new(Memory::new(&MemoryOptions::default()).expect("memory"));
    let options = ShardStoreOptions { soft_bytes: 500, hard_bytes: 1000 };
    let shard = Arc::new(open(&memory, options).await);
    shard.append(Seq(1), records(&format!("a={}", "x".repeat(2000)))).await.expect("append");
    assert!(shard.backlog().due);
    let waiting = tokio::spawn({
        let shard = shard.clone();
        async move { shard.append(Seq(2), records("b=2")).await }
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished(), "the append did not wait");
    assert_eq!(shard.checkpoint().await.expect("checkpoint"), Some(Seq(1)));
    waiting.await.expect("the task ends").expect("append");
}

/// If checkpoints fail again and again, an append that waits for one would never be answered.
#[tokio::test]
async fn appends_are_refused_while_checkpoints_fail_and_memory_is_above_its_bound() {
    let memory = Arc::new(Memory::new(&MemoryOptions::default()).expect("memory"));
    let options = ShardStoreOptions { soft_bytes: 500, hard_bytes: 1000 };
    let shard = Arc::new(open(&memory, options).await);
    shard.append(Seq(1), records(&format!("a={}", "x".repeat(400)))).await.expect("append");
    memory.fail_checkpoint(0);
    shard.checkpoint().await.expect_err("is to fail");
    assert_eq!(shard.free_space(), FreeSpace::Ample, "there is room in memory");

    // From half of the bound on, only the reserve is left.
    shard.append(Seq(2), records(&format!("b={}", "x".repeat(400)))).await.expect("append");
    assert_eq!(shard.free_space(), FreeSpace::Reserve);
    shard.append(Seq(3), records(&format!("c={}", "x".repeat(400)))).await.expect("append");

    // Above the bound nothing is accepted, neither new appends nor those that already waited.
    let refused = shard.append(Seq(4), records("d=1")).await;
    assert!(matches!(refused, Err(AppendError::Full)), "{refused:?}");
    shard.checkpoint().await.expect("the first part");
    shard.append(Seq(4), records(&format!("d={}", "x".repeat(2000)))).await.expect("append");
    let waiting = tokio::spawn({
        let shard = shard.clone();
        async move { shard.append(Seq(5), records("e=1")).await }
    });
    tokio::task::yield_now().await;
    memory.fail_checkpoint(0);
    shard.checkpoint().await.expect_err("is to fail");
    let refused = waiting.await.expect("the task ends");
    assert!(matches!(refused, Err(AppendError::Full)), "{refused:?}");

    shard.checkpoint().await.expect("checkpoint");
    assert_eq!(shard.free_space(), FreeSpace::Ample);
    shard.append(Seq(5), records("e=1")).await.expect("append");
}

/// Many batches of the same few records must not take more memory than a few records.
#[tokio::test]
async fn records_coalesce() {
    let (_, shard) = new().await;
    for seq in 1..=10_000 {
        shard.append(Seq(seq), records(&format!("counter={seq}"))).await.expect("append");
    }
    let backlog = shard.backlog();
    assert_eq!((backlog.records, backlog.since), (1, Some(Seq(1))));
    assert!(backlog.bytes < 20_000, "{backlog:?}");
}

#[tokio::test]
async fn the_end_of_a_large_sweep_makes_a_checkpoint_due() {
    let (_, shard) = new().await;
    let removed = |from: u32, number: u32| -> Vec<Record> {
        let key = |number: u32| Bytes::from(format!("{number:0100}"));
        (from..from + number).map(|number| Record { key: key(number), value: None }).collect()
    };
    shard.append(Seq(1), removed(0, 10)).await.expect("append");
    shard.handle_swept();
    assert!(!shard.backlog().due, "a few removals wait for the next checkpoint");
    shard.append(Seq(2), removed(10, 20_000)).await.expect("append");
    assert!(!shard.backlog().due);
    shard.handle_swept();
    assert!(shard.backlog().due);
    shard.checkpoint().await.expect("checkpoint");
    assert!(!shard.backlog().due);
}

#[tokio::test]
async fn a_scan_in_the_background_waits_until_the_overlay_is_sorted() {
    let (_, shard) = new().await;
    let many = |from: u32| -> Vec<Record> {
        let key = |number: u32| Bytes::copy_from_slice(&number.to_be_bytes());
        (from..from + 10_000).map(|number| Record { key: key(number), value: Some(bytes("1")) }).collect()
    };
    assert!(shard.prepare_scan(), "there is nothing to sort");
    shard.append(Seq(1), many(0)).await.expect("append");
    assert!(!shard.backlog().due);
    assert!(!shard.prepare_scan(), "10,000 records are not sorted");
    assert!(shard.backlog().due, "a checkpoint is due");
    shard.checkpoint().await.expect("checkpoint");
    assert!(!shard.backlog().due);
    shard.append(Seq(2), many(10_000)).await.expect("append");
    assert!(shard.prepare_scan(), "these records were sorted when they came");
}
