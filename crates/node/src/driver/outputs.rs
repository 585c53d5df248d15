//! What the shard's loop asks for: look-ups and appends in the store, answers, effects.

use super::Driver;
use crate::service::{NotDecided, Ticket};
use bytes::Bytes;
use limina_engine::{Effect, Name, Read, ReadResult, Writes, record};
use limina_shard::{Loss, Output};
use limina_store::{
    self as store, AppendError, Batch, ConfirmError, Journal, LogLimit, RecordRef, ShardStore, StoreError,
    Table,
};
use std::{
    error::Error,
    future::Future,
    ops::Range,
    panic::resume_unwind,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::{task::JoinSet, time::Instant};

/// How long to wait before a shared store that could not be reached is read again.
const READ_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// An append of more records gets a task of its own: encoding it and adding it to the overlay then run on another core while
/// this one decides the next batch. For fewer records the switch costs more than it saves. The bound itself was not measured.
const LARGE_APPEND: usize = 512;

// The store stores records of histories in a special way, which relies on what the engine promises for these keys.
const _: () = assert!(record::key::HISTORY == store::HISTORY);

impl<J: Journal, T: Table> Driver<J, T> {
    pub(super) fn handle_output(&mut self, output: Output<Ticket>) {
        match output {
            Output::Fetch(reads) => self.fetch(reads),
            Output::Append { writes, requests } => {
                self.metrics.shards.append_requests.observe(requests as f64);
                self.metrics.shards.append_records.observe(writes.len() as f64);
                self.append(writes);
            }
            Output::Confirm => self.confirm(),
            Output::Reply(reply) => reply.ticket.answer(reply.result.map_err(NotDecided::Failed)),
            // Only the simulator needs to know when a request begins to wait.
            Output::Waits { .. } | Output::Slice { .. } | Output::Unfinished => {}
            Output::Effect(effect) => self.handle_effect(effect),
            Output::Discard(range) => self.discard(range),
        }
    }

    /// Lets the table drop the records of a deleted namespace. Sweeps wait for it: what they removed before might come back.
    fn discard(&mut self, range: Range<Bytes>) {
        self.shard.handle_scans(false);
        let (store, shard) = (self.store.clone(), self.id.0);
        self.discarding.push(tokio::spawn(async move {
            if let Err(error) = store.discard(range.start, range.end).await {
                let error = &error as &dyn Error;
                tracing::warn!(shard, error, "the records of a deleted namespace are removed one by one");
            }
        }));
    }

    fn fetch(&mut self, reads: Vec<Read>) {
        let (store, fetch_seconds) = (self.store.clone(), self.metrics.shards.fetch_seconds.clone());
        let is_shared = self.service.others().is_some();
        let mut fetching = Box::pin(async move {
            let begin = Instant::now();
            let answers = fetch(&store, reads, is_shared).await;
            fetch_seconds.observe(begin.elapsed().as_secs_f64());
            answers
        });
        // Most look-ups are answered from memory. Then the shard continues at once. Otherwise the driver's loop polls
        // this future again, with the waker of its task.
        match fetching.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answers) => self.shard.handle_fetched(answers),
            Poll::Pending => self.fetching = Some(fetching),
        }
    }

    fn append(&mut self, writes: Arc<Writes>) {
        let is_large = writes.len() > LARGE_APPEND;
        let (store, append_seconds) = (self.store.clone(), self.metrics.shards.append_seconds.clone());
        // Read before the append begins: if the shard is taken again while a task still encodes the append, the append is refused.
        let (epoch, seq) = (store.epoch(), store.seq().next());
        let append = async move {
            let begin = Instant::now();
            let result = store.append_under(epoch, seq, batch(&writes)).await;
            append_seconds.observe(begin.elapsed().as_secs_f64());
            result.map_err(|error| loss_of(&error))
        };
        self.persisting_since = Instant::now();
        self.persisting = Some(match is_large {
            true => {
                let mut append = JoinSet::from_iter([append]);
                Box::pin(async move {
                    match append.join_next().await {
                        Some(Ok(result)) => result,
                        // A panic of this append is a panic of the shard.
                        Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
                        Some(Err(_)) | None => Err(Loss::Unknown),
                    }
                })
            }
            false => Box::pin(append),
        });
    }

    fn confirm(&mut self) {
        let store = self.store.clone();
        self.persisting_since = Instant::now();
        self.persisting = Some(Box::pin(async move {
            static FAILURES: LogLimit = LogLimit::new();
            store.confirm().await.map_err(|error: ConfirmError| {
                if let Some(times) = FAILURES.times(&error) {
                    tracing::warn!(error = &error as &dyn Error, times, "ownership could not be confirmed");
                }
                Loss::NotDone
            })
        }));
    }

    fn handle_effect(&mut self, effect: Effect) {
        match effect {
            Effect::HoldExpired { namespace, operation_id, position } => {
                self.metrics.ledger.holds_expired.inc();
                tracing::debug!(%namespace, %operation_id, position = position.0, "a hold expired");
            }
            Effect::LeaseExpired { namespace, lease_id } => {
                self.metrics.limiter.leases_expired.inc();
                tracing::debug!(%namespace, %lease_id, "a lease expired");
            }
            Effect::LockExpired { namespace, lock_id, owner } => {
                self.metrics.locks.expired.inc();
                let owner = owner.as_ref().map(Name::as_str);
                tracing::debug!(%namespace, %lock_id, owner, "a lock expired");
            }
            Effect::OperationExpired { namespace, operation_id, position } => {
                self.metrics.decisions.expired.inc();
                tracing::debug!(%namespace, %operation_id, position = position.0, "a decision expired");
            }
            Effect::StreamChanged { namespace, stream, change } => {
                self.service.streams().changed(&namespace, &stream, change);
            }
            Effect::KeyFrame { namespace, stream, frame } => {
                self.service.streams().key_frame(&namespace, &stream, frame);
            }
            Effect::StreamDeleted { namespace, stream } => {
                self.service.streams().deleted(&namespace, &stream);
            }
            Effect::TimerPostponed { namespace } => {
                self.metrics.shards.due_postponed.inc();
                tracing::error!(%namespace, "due work is put off: a stored record could not be read");
            }
        }
    }
}

pub(super) fn batch(writes: &Writes) -> Batch {
    Batch::new(writes.iter().map(|write| RecordRef {
        key: write.key,
        value: write.value,
        is_first: write.is_first,
    }))
}

/// Reads records. If a shared store cannot be reached, the read is repeated, because that says nothing about the records.
/// When the store counts as away, the driver rejects the waiting requests and drops this future.
async fn fetch<J: Journal, T: Table>(
    store: &ShardStore<J, T>,
    reads: Vec<Read>,
    is_shared: bool,
) -> Vec<(Read, ReadResult)> {
    let store_reads = reads.iter().map(|read| match read.clone() {
        Read::Get(key) => store::Read::Get(key),
        Read::LastAtOrBefore { from, at } => store::Read::LastAtOrBefore { from, at },
        Read::Scan { from, to, limit } => store::Read::Scan { from, to, limit },
    });
    let store_reads: Vec<store::Read> = store_reads.collect();
    let answers = loop {
        let answers = store.read(store_reads.clone()).await;
        let unreachable = answers
            .iter()
            .filter_map(|answer| answer.as_ref().err())
            .find(|error| is_shared && matches!(&***error, StoreError::Unavailable(_)));
        let Some(error) = unreachable else { break answers };
        static FAILURES: LogLimit = LogLimit::new();
        if let Some(times) = FAILURES.times(&**error) {
            let error = &**error as &dyn Error;
            tracing::warn!(error, times, "the store could not be reached for a read; trying again");
        }
        tokio::time::sleep(READ_RETRY_PAUSE).await;
    };
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(store::Answer::Value(value)) => ReadResult::Value(value),
        Ok(store::Answer::Last(last)) => ReadResult::Last(last),
        Ok(store::Answer::Page(page)) => ReadResult::Page(page),
        Err(error) => {
            static FAILURES: LogLimit = LogLimit::new();
            if let Some(times) = FAILURES.times(&*error) {
                tracing::error!(error = &*error as &dyn Error, times, "a stored record could not be read");
            }
            ReadResult::Unreadable
        }
    });
    reads.into_iter().zip(answers).collect()
}

fn loss_of(error: &AppendError) -> Loss {
    static FAILURES: LogLimit = LogLimit::new();
    if let Some(times) = FAILURES.times(error) {
        tracing::warn!(error = error as &dyn Error, times, "an append failed");
    }
    match error {
        AppendError::Fenced | AppendError::NotDone(_) => Loss::NotDone,
        AppendError::Full => Loss::Full,
        AppendError::Unknown(_) => Loss::Unknown,
    }
}
