//! Appends: all that wait, of all shards, are sent in one statement.
//!
//! A few tasks take turns, each with its own connection. An append that was taken from the queue continues even if its
//! caller is gone, and is never cancelled: if the server waits for a synchronous standby, a cancelled statement would
//! be reported as successful.

use super::{
    connections::APPEND_CONNECTIONS,
    errors::{ATTEMPTS, is_conflict, warning_received},
    known::KnownShards,
    pool::{Pool, closed},
    queue::Queue,
    row::{from_node, from_shard, number, to_shard, unsigned},
    session::Session,
    unreleased::Unreleased,
};
use crate::{
    AppendError, Epoch, FreeSpace, NodeId, Seq, ShardId, StoreError, journal::MAX_PAYLOAD_BYTES,
    segmented::Append,
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_postgres::{
    Error,
    error::{Severity, SqlState},
};

/// The maximum size of the payloads in one statement, unless a single payload is longer.
const STATEMENT_BYTES: usize = 16 << 20;
/// After an append failed for lack of space, writes are rejected for this long before another one is tried.
const FULL_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Advances the shards that this node still owns and that have no gap, and inserts the appends of these shards.
const APPEND: &str = "
    WITH moved AS (
        UPDATE limina.shard SET seq = asked.seq
        FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bytea[]) AS asked (shard, epoch, seq, payload)
        WHERE shard.id = asked.shard AND shard.epoch = asked.epoch AND shard.owner = $5
            AND shard.seq = asked.seq - 1
        RETURNING shard.id, asked.seq, asked.payload
    )
    INSERT INTO limina.journal (shard, seq, payload) SELECT id, seq, payload FROM moved RETURNING shard";

const STATE: &str = "SELECT id, epoch, seq, owner FROM limina.shard WHERE id = ANY ($1::integer[])";

/// The queue of waiting appends.
pub(super) struct Appends {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Queue<PendingAppend>,
    pool: Pool,
    me: NodeId,
    /// If an append is not answered within this time, its connection counts as hung.
    answer: Duration,
    full_since: Mutex<Option<Instant>>,
    unreleased: Arc<Mutex<Unreleased>>,
    known: Arc<KnownShards>,
}

struct PendingAppend {
    append: Append,
    done: oneshot::Sender<Result<(), AppendError>>,
}

impl Appends {
    /// Starts the tasks on a pool of [`APPEND_CONNECTIONS`] connections.
    pub(super) fn start(
        pool: Pool,
        answer: Duration,
        me: NodeId,
        unreleased: &Arc<Mutex<Unreleased>>,
        known: &Arc<KnownShards>,
    ) -> (Appends, Vec<JoinHandle<()>>) {
        let shared = Arc::new(Shared {
            queue: Queue::default(),
            pool,
            me,
            answer,
            full_since: Mutex::default(),
            unreleased: unreleased.clone(),
            known: known.clone(),
        });
        let writers = (0..APPEND_CONNECTIONS).map(|_| tokio::spawn(shared.clone().write())).collect();
        (Appends { shared }, writers)
    }

    pub(super) async fn append(&self, append: Append) -> Result<(), AppendError> {
        let length = append.payload.len();
        if length > MAX_PAYLOAD_BYTES {
            let detail = format!("a payload of {length} bytes is longer than {MAX_PAYLOAD_BYTES}");
            return Err(AppendError::NotDone(StoreError::Unusable(detail)));
        }
        let (done, outcome) = oneshot::channel();
        let pushed = self.shared.queue.push(PendingAppend { append, done });
        pushed.map_err(|_| AppendError::NotDone(closed()))?;
        outcome.await.unwrap_or_else(|_| Err(AppendError::Unknown(closed())))
    }

    /// Removes the shard's appends that were not sent yet. Returns true if there were any: they did not happen and will
    /// not happen.
    pub(super) fn withdraw(&self, shard: ShardId) -> bool {
        self.shared.queue.remove(|waiting| waiting.append.shard == shard)
    }

    pub(super) fn is_available(&self) -> bool {
        self.shared.pool.is_available()
    }

    pub(super) fn free_space(&self) -> FreeSpace {
        match self.shared.full_since().is_some_and(|since| since.elapsed() < FULL_RETRY_INTERVAL) {
            true => FreeSpace::Reserve,
            false => FreeSpace::Ample,
        }
    }

    /// Accepts no more appends. Those in the queue are still sent.
    pub(super) fn close(&self) {
        self.shared.queue.close();
    }
}

impl Shared {
    async fn write(self: Arc<Self>) {
        while let Some((group, turn)) = self.queue.group(bounded()).await {
            let outcomes = turn.run(self.append_all(&group)).await;
            self.note(&group, &outcomes);
            for (waiting, outcome) in group.into_iter().zip(outcomes) {
                // The caller may be gone.
                let _ = waiting.done.send(outcome);
            }
        }
    }

    async fn append_all(&self, group: &[PendingAppend]) -> Vec<Result<(), AppendError>> {
        let mut pooled = match self.pool.acquire().await {
            Ok(pooled) => pooled,
            Err(error) => return all(group, &AppendError::NotDone(error)),
        };
        let is_sent = AtomicBool::new(false);
        let session = pooled.begin();
        let error = tokio::select! {
            outcomes = append_on(session, self.me, group, &is_sent) => {
                // If an outcome is unknown, the connection was lost, even if its session has not noticed yet.
                match outcomes.iter().any(|outcome| matches!(outcome, Err(AppendError::Unknown(_)))) {
                    true => drop(pooled.abandon()),
                    false => pooled.end(),
                }
                return outcomes;
            }
            // The old server may still execute the statement without effect, or the new server already has it.
            () = session.superseded() => pooled.abandon(),
            // The server may only be waiting for a standby. Then the statement continues.
            () = tokio::time::sleep(self.answer) => pooled.retire(false),
        };
        let error = match is_sent.load(Ordering::Relaxed) {
            true => AppendError::Unknown(error),
            false => AppendError::NotDone(error),
        };
        all(group, &error)
    }

    fn full_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.full_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the statistics with the outcomes.
    fn note(&self, group: &[PendingAppend], outcomes: &[Result<(), AppendError>]) {
        let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        if done > 0 {
            *self.full_since() = None;
        } else if outcomes.iter().any(|outcome| matches!(outcome, Err(AppendError::Full))) {
            *self.full_since() = Some(Instant::now());
        }
        let mut unreleased = self.unreleased.lock().unwrap_or_else(PoisonError::into_inner);
        unreleased.count(done);
        for (PendingAppend { append, .. }, outcome) in group.iter().zip(outcomes) {
            match outcome {
                Ok(()) => {
                    unreleased.add(append.shard, append.seq, append.payload.len());
                    self.known.appended(append.shard, append.epoch, append.seq);
                }
                Err(AppendError::Fenced) => unreleased.forget(append.shard),
                Err(_) => {}
            }
        }
    }
}

/// Accepts as much as fits into one statement, and at most one append of each shard.
fn bounded() -> impl FnMut(&PendingAppend) -> bool {
    let mut shards = BTreeSet::new();
    let mut bytes = 0;
    move |waiting| {
        let append = &waiting.append;
        let fits = shards.is_empty() || bytes + append.payload.len() <= STATEMENT_BYTES;
        if !fits || !shards.insert(append.shard) {
            return false;
        }
        bytes += append.payload.len();
        true
    }
}

async fn append_on(
    session: &Session,
    me: NodeId,
    group: &[PendingAppend],
    is_sent: &AtomicBool,
) -> Vec<Result<(), AppendError>> {
    match send(session, me, group, is_sent).await {
        Ok(appended) => resolve_outcomes(session, me, group, &appended).await,
        Err(error) => all(group, &error),
    }
}

fn all(group: &[PendingAppend], error: &AppendError) -> Vec<Result<(), AppendError>> {
    group.iter().map(|_| Err(error.again())).collect()
}

/// Sends the statement and returns the shards that appended. `is_sent` is set before the server can receive it.
async fn send(
    session: &Session,
    me: NodeId,
    group: &[PendingAppend],
    is_sent: &AtomicBool,
) -> Result<BTreeSet<ShardId>, AppendError> {
    let appends = || group.iter().map(|waiting| &waiting.append);
    let shards: Vec<i32> = appends().map(|append| from_shard(append.shard)).collect();
    let epochs: Vec<i64> = appends().map(|append| number(append.epoch.0)).collect();
    let seqs: Vec<i64> = appends().map(|append| number(append.seq.0)).collect();
    let payloads: Vec<&[u8]> = appends().map(|append| &append.payload[..]).collect();
    let prepared = session.prepare(APPEND).await;
    let statement = prepared.map_err(|error| AppendError::NotDone(error.into()))?;
    let mut attempts = 1;
    is_sent.store(true, Ordering::Relaxed);
    loop {
        let warnings = session.warnings();
        match session.run(&statement, &[&shards, &epochs, &seqs, &payloads, &from_node(me)]).await {
            Ok(rows) if session.warnings() == warnings => {
                return Ok(rows.iter().map(|row| to_shard(row.get(0))).collect());
            }
            Ok(_) => return Err(AppendError::Unknown(warning_received())),
            Err(error) if is_conflict(&error) && attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(failure(error)),
        }
    }
}

/// If the server returned an error, the append did not happen. After any other failure its outcome is unknown.
fn failure(error: Error) -> AppendError {
    let is_refusal = |said: &tokio_postgres::error::DbError| said.parsed_severity() == Some(Severity::Error);
    match error.as_db_error() {
        Some(said) if is_refusal(said) && *said.code() == SqlState::DISK_FULL => AppendError::Full,
        Some(said) if is_refusal(said) => AppendError::NotDone(error.into()),
        _ => AppendError::Unknown(error.into()),
    }
}

/// The outcome of each append. For the shards that did not append, it reads why: another node owns them, or the append
/// is out of order.
async fn resolve_outcomes(
    session: &Session,
    me: NodeId,
    group: &[PendingAppend],
    appended: &BTreeSet<ShardId>,
) -> Vec<Result<(), AppendError>> {
    if group.len() == appended.len() {
        return group.iter().map(|_| Ok(())).collect();
    }
    let shards: Vec<i32> = group.iter().map(|waiting| from_shard(waiting.append.shard)).collect();
    let states = session.query(STATE, &[&shards]).await;
    let refusal = |append: &Append| match &states {
        Ok(rows) => {
            let row = rows.iter().find(|row| to_shard(row.get(0)) == append.shard);
            let state = row.map(|row| ShardState {
                epoch: Epoch(unsigned(row.get(1))),
                last: Seq(unsigned(row.get(2))),
                is_mine: row.get::<_, Option<i64>>(3) == Some(from_node(me)),
            });
            refusal(append, state)
        }
        Err(_) => not_done("the append was rejected, and the reason could not be read".to_string()),
    };
    let outcome = |waiting: &PendingAppend| match appended.contains(&waiting.append.shard) {
        true => Ok(()),
        false => Err(refusal(&waiting.append)),
    };
    group.iter().map(outcome).collect()
}

/// The row of a shard.
struct ShardState {
    epoch: Epoch,
    last: Seq,
    is_mine: bool,
}

fn refusal(append: &Append, state: Option<ShardState>) -> AppendError {
    let (shard, seq) = (append.shard.0, append.seq.0);
    match state {
        None => not_done(format!("there is no shard {shard}")),
        Some(ShardState { epoch, is_mine, .. }) if epoch != append.epoch || !is_mine => AppendError::Fenced,
        Some(ShardState { last, .. }) => {
            not_done(format!("append {seq} of shard {shard} does not follow {}", last.0))
        }
    }
}

fn not_done(detail: String) -> AppendError {
    AppendError::NotDone(StoreError::Unusable(detail))
}
