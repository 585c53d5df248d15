//! Appends: whatever waits, of all shards, goes into one statement.
//!
//! A few tasks take turns, each with a connection of its own. An append that was taken goes on, whether or not somebody
//! still waits for it, and nothing ever cancels it: where a standby is waited for, the server would answer as if all were
//! well.

use super::{
    connection::{ATTEMPTS, Session, is_conflict, warned},
    pool::{Pool, closed},
    queue::Queue,
    row::{from_shard, number, to_shard, unsigned},
    unreleased::Unreleased,
};
use crate::{
    AppendError, Epoch, Room, Seq, ShardId, StoreError, journal::MAX_PAYLOAD_BYTES, segmented::Append,
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

/// How many statements are under way at once, each on a connection of its own.
pub(super) const WRITERS: usize = 3;
/// How many bytes of payloads go into one statement, unless a single one is longer.
const STATEMENT_BYTES: usize = 16 << 20;
/// Who was told that there is no space may try again after this time.
const FULL: Duration = Duration::from_secs(5);

/// Moves the shards that are still ours and have no gap, and appends for these.
const APPEND: &str = "
    WITH moved AS (
        UPDATE limina.shard SET seq = asked.seq
        FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bytea[]) AS asked (shard, epoch, seq, payload)
        WHERE shard.id = asked.shard AND shard.epoch = asked.epoch AND shard.seq = asked.seq - 1
        RETURNING shard.id, asked.seq, asked.payload
    )
    INSERT INTO limina.journal (shard, seq, payload) SELECT id, seq, payload FROM moved RETURNING shard";

const STATE: &str = "SELECT id, epoch, seq FROM limina.shard WHERE id = ANY ($1::integer[])";

/// Where appends are left to be done.
pub(super) struct Appends {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Queue<PendingAppend>,
    pool: Pool,
    /// An append that is not answered in this time has met a connection that hangs.
    answer: Duration,
    full_since: Mutex<Option<Instant>>,
    unreleased: Arc<Mutex<Unreleased>>,
}

struct PendingAppend {
    append: Append,
    done: oneshot::Sender<Result<(), AppendError>>,
}

impl Appends {
    /// Over a pool of [`WRITERS`] connections.
    pub(super) fn start(
        pool: Pool,
        answer: Duration,
        unreleased: &Arc<Mutex<Unreleased>>,
    ) -> (Appends, Vec<JoinHandle<()>>) {
        let shared = Arc::new(Shared {
            queue: Queue::default(),
            pool,
            answer,
            full_since: Mutex::default(),
            unreleased: unreleased.clone(),
        });
        let writers = (0..WRITERS).map(|_| tokio::spawn(shared.clone().write())).collect();
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

    /// Takes back what waits to be sent for this shard. Says whether there was anything: that is surely not done.
    pub(super) fn withdraw(&self, shard: ShardId) -> bool {
        self.shared.queue.remove(|waiting| waiting.append.shard == shard)
    }

    pub(super) fn is_able(&self) -> bool {
        self.shared.pool.is_able()
    }

    pub(super) fn room(&self) -> Room {
        match self.shared.full_since().is_some_and(|since| since.elapsed() < FULL) {
            true => Room::Reserve,
            false => Room::Plenty,
        }
    }

    /// What was left is still done.
    pub(super) fn close(&self) {
        self.shared.queue.close();
    }
}

impl Shared {
    async fn write(self: Arc<Self>) {
        while let Some(group) = self.queue.group(bounded()).await {
            let outcomes = self.append_all(&group).await;
            self.note(&group, &outcomes);
            for (waiting, outcome) in group.into_iter().zip(outcomes) {
                // Nobody may wait any more.
                let _ = waiting.done.send(outcome);
            }
        }
    }

    async fn append_all(&self, group: &[PendingAppend]) -> Vec<Result<(), AppendError>> {
        let mut lease = match self.pool.lease().await {
            Ok(lease) => lease,
            Err(error) => return all(group, &AppendError::NotDone(error)),
        };
        let is_sent = AtomicBool::new(false);
        let session = lease.begin();
        let error = tokio::select! {
            outcomes = append_on(session, group, &is_sent) => {
                // Where the outcome is not known, the connection was lost, though its session may not know it yet.
                match outcomes.iter().any(|outcome| matches!(outcome, Err(AppendError::Unknown(_)))) {
                    true => drop(lease.abandon()),
                    false => lease.end(),
                }
                return outcomes;
            }
            // The old server may still do it, and nobody will see that. Or the new one has it.
            () = session.superseded() => lease.abandon(),
            // The server may only wait for a standby: then it goes on waiting.
            () = tokio::time::sleep(self.answer) => lease.retire(false),
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

    /// Remembers how it went.
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
                Ok(()) => unreleased.add(append.shard, append.seq, append.payload.len()),
                Err(AppendError::Fenced) => unreleased.forget(append.shard),
                Err(_) => {}
            }
        }
    }
}

/// Takes as much as goes into one statement, and one append of each shard at most.
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
    group: &[PendingAppend],
    is_sent: &AtomicBool,
) -> Vec<Result<(), AppendError>> {
    match send(session, group, is_sent).await {
        Ok(appended) => judge(session, group, &appended).await,
        Err(error) => all(group, &error),
    }
}

fn all(group: &[PendingAppend], error: &AppendError) -> Vec<Result<(), AppendError>> {
    group.iter().map(|_| Err(error.again())).collect()
}

/// Sends the statement, and says which shards appended. `is_sent` is set before the server can know of it.
async fn send(
    session: &Session,
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
        match session.run(&statement, &[&shards, &epochs, &seqs, &payloads]).await {
            Ok(rows) if session.warnings() == warnings => {
                return Ok(rows.iter().map(|row| to_shard(row.get(0))).collect());
            }
            Ok(_) => return Err(AppendError::Unknown(warned())),
            Err(error) if is_conflict(&error) && attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(failure(error)),
        }
    }
}

/// What the server refuses as an error was surely not done. Whatever else ends a statement leaves that open.
fn failure(error: Error) -> AppendError {
    let is_refusal = |said: &tokio_postgres::error::DbError| said.parsed_severity() == Some(Severity::Error);
    match error.as_db_error() {
        Some(said) if is_refusal(said) && *said.code() == SqlState::DISK_FULL => AppendError::Full,
        Some(said) if is_refusal(said) => AppendError::NotDone(error.into()),
        _ => AppendError::Unknown(error.into()),
    }
}

/// The outcome of each append. Those that were left out are looked at: another node's, or out of order.
async fn judge(
    session: &Session,
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
            refusal(append, row.map(|row| (Epoch(unsigned(row.get(1))), Seq(unsigned(row.get(2))))))
        }
        Err(_) => not_done("it was left out, and it could not be found out why".to_string()),
    };
    let outcome = |waiting: &PendingAppend| match appended.contains(&waiting.append.shard) {
        true => Ok(()),
        false => Err(refusal(&waiting.append)),
    };
    group.iter().map(outcome).collect()
}

fn refusal(append: &Append, state: Option<(Epoch, Seq)>) -> AppendError {
    let (shard, seq) = (append.shard.0, append.seq.0);
    match state {
        None => not_done(format!("there is no shard {shard}")),
        Some((epoch, _)) if epoch != append.epoch => AppendError::Fenced,
        Some((_, last)) => not_done(format!("append {seq} of shard {shard} does not follow {}", last.0)),
    }
}

fn not_done(detail: String) -> AppendError {
    AppendError::NotDone(StoreError::Unusable(detail))
}
