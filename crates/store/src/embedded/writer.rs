//! The thread that owns the journal.
//!
//! It takes everything that waits into one frame, writes and syncs it, and only then tells those who wait. Takings,
//! tails and releases go through the same queue, so they see the journal between two frames, in the order of asking.

use crate::{
    AppendError, Epoch, JournalStats, Room, Seq, ShardId, StoreError,
    disk::{Disk, OsDisk},
    segmented::{Append, Segmented, Spare},
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

/// How often the file system is asked for its space.
const SPACE_INTERVAL: Duration = Duration::from_millis(200);
/// How long the thread rests when the journal is out of order, before it tries again.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);
/// How many bytes of payloads go into one frame, unless a single one is longer.
const FRAME_BYTES: usize = 32 << 20;

pub(super) struct WriterOptions {
    pub(super) idle_seal: Duration,
    pub(super) reserve_bytes: u64,
}

/// The handle through which the rest of the store speaks to the thread.
pub(super) struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    epochs: Arc<[AtomicU64]>,
    scarce: AtomicBool,
    stats: Mutex<JournalStats>,
}

#[derive(Default)]
struct Queue {
    work: VecDeque<Work>,
    closed: bool,
}

enum Work {
    Append(Append, oneshot::Sender<Result<(), AppendError>>),
    Take(ShardId, oneshot::Sender<Result<Epoch, StoreError>>),
    Tail(ShardId, Epoch, Seq, oneshot::Sender<Result<Tail, StoreError>>),
    Release(ShardId, Seq),
    /// The last work: seal, and answer.
    Close(oneshot::Sender<Result<(), StoreError>>),
    /// The last work: end as if killed.
    Abandon,
}

type Tail = Vec<(Seq, Bytes)>;

impl Writer {
    pub(super) fn start(
        journal: Segmented<OsDisk>,
        disk: Arc<OsDisk>,
        options: WriterOptions,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            epochs: journal.epochs(),
            scarce: AtomicBool::new(false),
            stats: Mutex::new(journal.stats()),
        });
        let (made_spare, spares) = mpsc::channel();
        let mut run = Run {
            shared: shared.clone(),
            journal,
            disk,
            options,
            full: false,
            space_seen: None,
            made_spare,
            spares,
            making_spare: false,
        };
        run.look_at_space();
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
        outcome.await.unwrap_or_else(|_| Err(AppendError::Unknown(gone())))
    }

    pub(super) async fn take(&self, shard: ShardId) -> Result<Epoch, StoreError> {
        let (done, outcome) = oneshot::channel();
        self.shared.submit(Work::Take(shard, done))?;
        outcome.await.unwrap_or_else(|_| Err(gone()))
    }

    pub(super) async fn tail(&self, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Tail, StoreError> {
        let (done, outcome) = oneshot::channel();
        self.shared.submit(Work::Tail(shard, epoch, after, done))?;
        outcome.await.unwrap_or_else(|_| Err(gone()))
    }

    pub(super) fn release(&self, shard: ShardId, upto: Seq) {
        // A store that is closed has nothing to release; the next opening does it.
        let _ = self.shared.submit(Work::Release(shard, upto));
    }

    pub(super) fn epoch(&self, shard: ShardId) -> Epoch {
        let epoch = self.shared.epochs.get(usize::from(shard.0));
        Epoch(epoch.map_or(0, |epoch| epoch.load(Ordering::SeqCst)))
    }

    pub(super) fn room(&self) -> Room {
        match self.shared.scarce.load(Ordering::Relaxed) {
            true => Room::Reserve,
            false => Room::Plenty,
        }
    }

    pub(super) fn stats(&self) -> JournalStats {
        self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (done, outcome) = oneshot::channel();
        self.shared.submit(Work::Close(done))?;
        outcome.await.unwrap_or_else(|_| Err(gone()))
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
    fn submit(&self, work: Work) -> Result<(), StoreError> {
        let mut queue = self.lock();
        if queue.closed {
            return Err(gone());
        }
        queue.closed = matches!(work, Work::Close(_) | Work::Abandon);
        queue.work.push_back(work);
        drop(queue);
        self.wake.notify_one();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("it is closed".to_string())
}

/// However the thread ends, nobody waits for it afterwards: what is still queued is dropped, which its senders notice.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.closed = true;
        queue.work.clear();
    }
}

/// What the thread itself holds.
struct Run {
    shared: Arc<Shared>,
    journal: Segmented<OsDisk>,
    disk: Arc<OsDisk>,
    options: WriterOptions,
    /// The last attempt to get a new segment found no space.
    full: bool,
    space_seen: Option<Instant>,
    made_spare: mpsc::Sender<Result<Spare, StoreError>>,
    spares: mpsc::Receiver<Result<Spare, StoreError>>,
    making_spare: bool,
}

impl Run {
    fn run(mut self) {
        let _ended = Ended(self.shared.clone());
        loop {
            let work = self.wait();
            if work.is_empty()
                && let Err(error) = self.journal.seal()
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "sealing the journal");
            }
            let ended = self.work_off(work);
            self.look_at_space();
            self.tend_spares();
            *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner) = self.journal.stats();
            if ended {
                return;
            }
            if self.journal.is_unsettled() {
                std::thread::sleep(FAILURE_PAUSE);
            }
        }
    }

    /// All that waits; nothing if there was nothing for a while.
    fn wait(&self) -> VecDeque<Work> {
        let patience = if self.journal.is_unsealed() { self.options.idle_seal } else { SPACE_INTERVAL };
        let queue = self.shared.lock();
        let waited = self.shared.wake.wait_timeout_while(queue, patience, |queue| queue.work.is_empty());
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut queue.work)
    }

    /// Says whether that was the end.
    fn work_off(&mut self, work: VecDeque<Work>) -> bool {
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
                Work::Close(done) => {
                    let _ = done.send(self.journal.seal());
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
        let answers = self.journal.append(&frame.appends);
        if answers.iter().any(|answer| matches!(answer, Err(AppendError::Full))) {
            self.full = true;
            self.shared.scarce.store(true, Ordering::Relaxed);
        }
        for (done, answer) in frame.waiting.into_iter().zip(answers) {
            let _ = done.send(answer);
        }
    }

    /// Sees whether there is room. After a refusal for want of space only a new segment that could be made counts: what
    /// the file system says may not be what it gives.
    fn look_at_space(&mut self) {
        if self.space_seen.is_some_and(|seen| seen.elapsed() < SPACE_INTERVAL) {
            return;
        }
        self.space_seen = Some(Instant::now());
        let available = match self.disk.available() {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "asking for the available space");
                return;
            }
        };
        if self.full && self.journal.ensure_spare().is_ok() {
            self.full = false;
        }
        let scarce = self.full || available < self.options.reserve_bytes;
        if self.shared.scarce.swap(scarce, Ordering::Relaxed) != scarce {
            match scarce {
                true => tracing::warn!(available, "the storage is full: clients' writes are refused"),
                false => tracing::info!(available, "there is room again"),
            }
        }
    }

    /// Has the next segment's file written by another thread, before it is needed.
    fn tend_spares(&mut self) {
        while let Ok(made) = self.spares.try_recv() {
            self.making_spare = false;
            match made {
                Ok(spare) => self.journal.add_spare(spare),
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "preparing a segment"),
            }
        }
        if self.making_spare || self.shared.scarce.load(Ordering::Relaxed) {
            return;
        }
        if let Some(job) = self.journal.wanted_spare() {
            let made = self.made_spare.clone();
            let spawned = std::thread::Builder::new()
                .name("limina-segment".to_string())
                .spawn(move || drop(made.send(job.run())));
            self.making_spare = spawned.is_ok();
        }
    }
}

/// Appends that will share one sync.
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
