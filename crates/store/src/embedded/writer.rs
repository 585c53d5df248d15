//! The thread that owns the journal.
//!
//! It writes all waiting appends as one frame, syncs it, and only then answers the callers. While many shards append, it first waits a
//! moment for as many appends as were in the last frames ([`FrameSizes`]). Takes, tails and releases
//! go through the same queue, so they see the journal between two frames, in the order of the calls.

use super::gathering::FrameSizes;
use crate::{
    AppendError, Epoch, FreeSpace, JournalStats, LogLimit, Seq, ShardId, StoreError,
    disk::{Disk, OsDisk},
    segmented::{Append, JournalEnd, SegmentedJournal, Spare},
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// How often the file system is asked for its available space.
const SPACE_INTERVAL: Duration = Duration::from_millis(200);
/// Pause before the next attempt while the journal cannot begin a new segment.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// The maximum size of the payloads in one frame, unless a single payload is longer.
const FRAME_BYTES: usize = 32 << 20;
/// The longest that an append waits for others to share a frame with.
const GATHERING_TIME: Duration = Duration::from_micros(500);

pub(super) struct WriterOptions {
    pub(super) idle_seal: Duration,
    pub(super) reserve_bytes: u64,
}

/// The handle through which the rest of the store uses the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    epochs: Arc<[AtomicU64]>,
    is_low: AtomicBool,
    stats: Mutex<JournalStats>,
    end: Mutex<JournalEnd>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    /// Whether there is other work than appends, so that the thread must not wait for more appends.
    is_urgent: bool,
    /// How much work the thread waits for. `None` while it does not wait.
    wanted: Option<usize>,
    closed: bool,
}

impl Queue {
    /// Whether the thread need not wait any longer for this much work.
    fn has(&self, wanted: usize) -> bool {
        self.is_urgent || self.work.len() >= wanted
    }
}

enum Work {
    Append(Append, oneshot::Sender<Result<(), AppendError>>),
    Take(ShardId, oneshot::Sender<Result<Epoch, StoreError>>),
    Tail(ShardId, Epoch, Seq, oneshot::Sender<Result<Tail, StoreError>>),
    Release(ShardId, Seq),
    Digest(ShardId, Seq, oneshot::Sender<Option<u64>>),
    /// The last work: seals the journal and answers.
    Close(oneshot::Sender<Result<(), StoreError>>),
    /// The last work: ends the thread as if the process had been killed.
    Abandon,
}

type Tail = Vec<(Seq, Bytes)>;

impl Writer {
    pub(super) fn start(
        journal: SegmentedJournal<OsDisk>,
        disk: Arc<OsDisk>,
        options: WriterOptions,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            epochs: journal.epochs(),
            is_low: AtomicBool::new(false),
            stats: Mutex::new(journal.stats()),
            end: Mutex::new(journal.end()),
        });
        let (made_spare, spares) = mpsc::channel();
        let mut run = JournalThread {
            shared: shared.clone(),
            journal,
            disk,
            options,
            is_full: false,
            space_checked_at: None,
            made_spare,
            spares,
            making_spare: false,
            frame_sizes: FrameSizes::default(),
        };
        run.check_free_space();
        let thread = std::thread::Builder::new().name("limina-journal".to_string()).spawn(move || run.run());
        let thread = thread.map_err(|error| StoreError::io("starting", "the journal's thread", error))?;
        Ok(Writer { shared, thread: Some(thread) })
    }

    pub(super) async fn append(
        &self,
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        payload: Bytes,
    ) -> Result<(), AppendError> {
        let (done, outcome) = oneshot::channel();
        let append = Append { shard, epoch, seq, payload };
        self.shared.submit(Work::Append(append, done)).map_err(AppendError::NotDone)?;
        outcome.await.unwrap_or_else(|_| Err(AppendError::Unknown(closed())))
    }

    pub(super) async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        let (done, outcome) = oneshot::channel();
        self.shared.submit(Work::Take(shard, done))?;
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(super) async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Tail, StoreError> {
        let (done, outcome) = oneshot::channel();
        self.shared.submit(Work::Tail(shard, epoch, after, done))?;
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }

    pub(super) fn release(&self, shard: ShardId, upto: Seq) {
        // If the store is closed, nothing has to be released: the next opening does it.
        let _ = self.shared.submit(Work::Release(shard, upto));
    }

    /// The digest of the shard's history up to `seq`, which the journal must still know.
    pub(super) async fn digest(&self, shard: ShardId, seq: Seq) -> Result<u64, StoreError> {
        let (done, outcome) = oneshot::channel();
        self.shared.submit(Work::Digest(shard, seq, done))?;
        let digest = outcome.await.map_err(|_| closed())?;
        digest.ok_or_else(|| {
            StoreError::Unusable(format!("the journal has no append {} of shard {}", seq.0, shard.0))
        })
    }

    /// Returns where the journal ended after the last work.
    pub(super) fn end_reader(&self) -> impl Fn() -> JournalEnd + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || *shared.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn epoch(&self, shard: ShardId) -> Epoch {
        let epoch = self.shared.epochs.get(usize::from(shard.0));
        Epoch(epoch.map_or(0, |epoch| epoch.load(Ordering::SeqCst)))
    }

    pub(super) fn free_space(&self) -> FreeSpace {
        match self.shared.is_low.load(Ordering::Relaxed) {
            true => FreeSpace::Reserve,
            false => FreeSpace::Ample,
        }
    }

    pub(super) fn stats(&self) -> JournalStats {
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (done, outcome) = oneshot::channel();
        self.shared.submit(Work::Close(done))?;
        outcome.await.unwrap_or_else(|_| Err(closed()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.shared.submit(Work::Abandon);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn set_end(&self, end: JournalEnd) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    fn submit(&self, work: Work) -> Result<(), StoreError> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(closed());
        }
        queue.closed = matches!(work, Work::Close(_) | Work::Abandon);
        queue.is_urgent |= !matches!(work, Work::Append(..));
        queue.work.push_back(work);
        // Waking the thread is a system call, so it is woken only if it has what it waits for.
        let wakes = queue.wanted.is_some_and(|wanted| queue.has(wanted));
        if wakes {
            queue.wanted = None;
        }
        drop(queue);
        if wakes {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Waits until there are `wanted` pieces of work, or urgent work, or the time is over.
    fn wait_for<'a>(
        &'a self,
        mut queue: MutexGuard<'a, Queue>,
        wanted: usize,
        timeout: Duration,
    ) -> MutexGuard<'a, Queue> {
        if queue.has(wanted) {
            return queue;
        }
        queue.wanted = Some(wanted);
        let waited = self.wake.wait_timeout_while(queue, timeout, |queue| !queue.has(wanted));
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.wanted = None;
        queue
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("it is closed".to_string())
}

/// However the thread ends, no caller waits for it afterwards: queued work is dropped, and its senders notice.
struct CloseQueueOnDrop(Arc<Shared>);

impl Drop for CloseQueueOnDrop {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        queue.work.clear();
    }
}

/// The state of the thread.
struct JournalThread {
    shared: Arc<Shared>,
    journal: SegmentedJournal<OsDisk>,
    disk: Arc<OsDisk>,
    options: WriterOptions,
    /// The last attempt to begin a segment found no space.
    is_full: bool,
    space_checked_at: Option<Instant>,
    made_spare: mpsc::Sender<Result<Spare, StoreError>>,
    spares: mpsc::Receiver<Result<Spare, StoreError>>,
    making_spare: bool,
    frame_sizes: FrameSizes,
}

impl JournalThread {
    fn run(mut self) {
        let _ended = CloseQueueOnDrop(self.shared.clone());
        loop {
            static NOT_SEALED: LogLimit = LogLimit::new();
            let work = self.wait();
            if work.is_empty()
                && let Err(error) = self.journal.seal()
                && let Some(times) = NOT_SEALED.times(&error)
            {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, times, "the journal could not be sealed");
            }
            let ended = self.process(work);
            self.check_free_space();
            self.prepare_spare();
            *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.journal.stats();
            self.shared.set_end(self.journal.end());
            if ended {
                return;
            }
            if self.journal.needs_new_segment() {
                std::thread::sleep(FAILURE_PAUSE);
            }
        }
    }

    /// Returns all waiting work; empty if there was none for a while.
    fn wait(&self) -> VecDeque<Work> {
        let timeout = if self.journal.is_unsealed() { self.options.idle_seal } else { SPACE_INTERVAL };
        let mut queue = self.shared.wait_for(self.shared.lock(), 1, timeout);
        if !queue.work.is_empty() {
            queue = self.shared.wait_for(queue, self.frame_sizes.wanted(), GATHERING_TIME);
        }
        queue.is_urgent = false;
        std::mem::take(&mut queue.work)
    }

    /// Does the work. Returns true if the thread must end.
    fn process(&mut self, work: VecDeque<Work>) -> bool {
        let mut frame = Frame::default();
        for work in work {
            if !matches!(&work, Work::Append(append, _) if frame.takes(append)) {
                self.write(std::mem::take(&mut frame));
            }
            match work {
                Work::Append(append, done) => frame.push(append, done),
                Work::Take(shard, done) => drop(done.send(self.journal.take(shard))),
                Work::Tail(shard, epoch, after, done) => {
                    drop(done.send(self.journal.tail(shard, epoch, after)))
                }
                Work::Release(shard, upto) => self.journal.release(shard, upto),
                Work::Digest(shard, seq, done) => drop(done.send(self.journal.digest_at(shard, seq))),
                Work::Close(done) => {
                    let sealed = self.journal.seal();
                    self.shared.set_end(self.journal.end());
                    let _ = done.send(sealed);
                    return true;
                }
                Work::Abandon => return true,
            }
        }
        self.write(frame);
        false
    }

    fn write(&mut self, frame: Frame) {
        if frame.appends.is_empty() {
            return;
        }
        self.frame_sizes.written(frame.appends.len());
        let answers = self.journal.append(&frame.appends);
        if answers.iter().any(|answer| matches!(answer, Err(AppendError::Full))) {
            self.is_full = true;
            self.shared.is_low.store(true, Ordering::Relaxed);
        }
        for (done, answer) in frame.waiting.into_iter().zip(answers) {
            let _ = done.send(answer);
        }
    }

    /// Checks the available space. After an append failed for lack of space, what the file system reports is not
    /// enough: there is space again only when a new segment could be created.
    fn check_free_space(&mut self) {
        if self.space_checked_at.is_some_and(|seen| seen.elapsed() < SPACE_INTERVAL) {
            return;
        }
        self.space_checked_at = Some(Instant::now());
        let available = match self.disk.available() {
            Ok(bytes) => bytes,
            Err(error) => {
                static FAILURES: LogLimit = LogLimit::new();
                if let Some(times) = FAILURES.times(&error) {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, times, "the available disk space could not be read");
                }
                return;
            }
        };
        if self.is_full && self.journal.ensure_spare().is_ok() {
            self.is_full = false;
        }
        let is_low = self.is_full || available < self.options.reserve_bytes;
        if self.shared.is_low.swap(is_low, Ordering::Relaxed) != is_low {
            match is_low {
                true => tracing::warn!(available, "the storage is full: clients' writes are refused"),
                false => tracing::info!(available, "there is room again"),
            }
        }
    }

    /// Lets another thread write the next segment's file before it is needed.
    fn prepare_spare(&mut self) {
        while let Ok(made) = self.spares.try_recv() {
            self.making_spare = false;
            match made {
                Ok(spare) => self.journal.add_spare(spare),
                Err(error) => {
                    static FAILURES: LogLimit = LogLimit::new();
                    if let Some(times) = FAILURES.times(&error) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, times, "a spare segment could not be created");
                    }
                }
            }
        }
        if self.making_spare || self.shared.is_low.load(Ordering::Relaxed) {
            return;
        }
        if let Some(job) = self.journal.next_spare_job() {
            let made = self.made_spare.clone();
            let spawned = std::thread::Builder::new()
                .name("limina-segment".to_string())
                .spawn(move || drop(made.send(job.run())));
            self.making_spare = spawned.is_ok();
        }
    }
}

/// Appends that share one sync.
#[derive(Default)]
struct Frame {
    appends: Vec<Append>,
    waiting: Vec<oneshot::Sender<Result<(), AppendError>>>,
    bytes: usize,
}

impl Frame {
    fn takes(&self, append: &Append) -> bool {
        self.appends.is_empty() || self.bytes + append.payload.len() <= FRAME_BYTES
    }

    fn push(&mut self, append: Append, done: oneshot::Sender<Result<(), AppendError>>) {
        self.bytes += append.payload.len();
        self.appends.push(append);
        self.waiting.push(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So long that a wake-up that is missing makes the test fail, and does not only make it slow.
    const LONG: Duration = Duration::from_secs(60);

    fn append(shard: u16) -> Work {
        let append = Append { shard: ShardId(shard), epoch: Epoch(1), seq: Seq(1), payload: Bytes::new() };
        Work::Append(append, oneshot::channel().0)
    }

    /// What the thread has when it stops waiting for three pieces of work.
    #[track_caller]
    fn check(submitted: Vec<Work>, expect: usize) {
        let shared = Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            epochs: Arc::new([]),
            is_low: AtomicBool::new(false),
            stats: Mutex::default(),
            end: Mutex::default(),
        };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| shared.wait_for(shared.lock(), 3, LONG).work.len());
            while shared.lock().wanted.is_none() {
                std::thread::yield_now();
            }
            submitted.into_iter().for_each(|work| shared.submit(work).expect("it is open"));
            assert_eq!(waiting.join().expect("it does not panic"), expect);
        });
        assert!(begun.elapsed() < LONG, "nobody woke the thread");
    }

    #[test]
    fn the_thread_wakes_when_it_has_as_many_appends_as_it_waits_for() {
        check(vec![append(0), append(1), append(2)], 3);
    }

    #[test]
    fn the_thread_wakes_for_other_work_than_appends() {
        check(vec![append(0), Work::Release(ShardId(0), Seq(1))], 2);
    }
}
