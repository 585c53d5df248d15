//! Connections and servers that are lost while appends are in flight.

use super::{
    database::{client, connect_as_owner, connect_with, new_database},
    eventually,
};
use bytes::Bytes;
use limina_pg_server::PgServer;
use limina_store::{
    Announcement, AppendError, ConfirmError, Epoch, Journal, Seq, ShardId, StoreError, Table, Tenure,
    postgres::Postgres,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

const SHARDS: u16 = 4;
/// The number of appends before, between and after the events of a test.
const SOME: u64 = 200;

/// Appends that continue until the load is stopped, whatever happens to the server.
pub(crate) struct Load {
    store: Arc<Postgres>,
    done: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    shards: JoinSet<u64>,
}

impl Load {
    pub(crate) async fn start(url: &str) -> Load {
        let store = Arc::new(connect_as_owner(url, 1).await.expect("connect"));
        let mut load = Load { store, done: Arc::default(), is_over: Arc::default(), shards: JoinSet::new() };
        for shard in (0..SHARDS).map(ShardId) {
            let (store, done, is_over) = (load.store.clone(), load.done.clone(), load.is_over.clone());
            load.shards.spawn(async move { Appender { store, shard }.run(&done, &is_over).await });
        }
        load
    }

    /// Waits until some more appends were acknowledged.
    pub(crate) async fn go_on(&self) {
        let target = self.done.load(Ordering::SeqCst) + SOME;
        eventually(async || self.done.load(Ordering::SeqCst) >= target).await;
    }

    /// Stops the load. Returns the number of appends whose outcome was unknown at first.
    pub(crate) async fn stop(self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        self.shards.join_all().await.iter().sum()
    }
}

/// The load of one shard.
struct Appender {
    store: Arc<Postgres>,
    shard: ShardId,
}

impl Appender {
    async fn run(self, done: &AtomicU64, is_over: &AtomicBool) -> u64 {
        let (mut epoch, mut last, mut unknown, mut attempt) = (self.take().await, 0, 0, 0u64);
        let mut expected: Vec<Bytes> = Vec::new();
        while !is_over.load(Ordering::SeqCst) {
            attempt += 1;
            let payload = Bytes::from(format!("attempt {attempt} of shard {}", self.shard.0));
            match self.store.append(self.shard, epoch, Seq(last + 1), payload.clone()).await {
                Ok(()) => {
                    done.fetch_add(1, Ordering::SeqCst);
                    expected.push(payload);
                    last += 1;
                }
                Err(AppendError::NotDone(_)) => pause().await,
                Err(AppendError::Unknown(_)) => {
                    unknown += 1;
                    epoch = self.take().await;
                    match &self.tail(epoch, last).await[..] {
                        [] => {}
                        [(seq, found)] => {
                            assert_eq!((*seq, found), (Seq(last + 1), &payload));
                            expected.push(payload);
                            last += 1;
                        }
                        more => panic!("{} appends were made of one", more.len()),
                    }
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        let tail = self.tail(epoch, 0).await;
        assert!(tail.iter().map(|(_, payload)| payload).eq(&expected), "shard {}", self.shard.0);
        unknown
    }

    async fn take(&self) -> Epoch {
        loop {
            match self.store.take(self.shard).await {
                Ok(epoch) => return epoch,
                Err(StoreError::Unavailable(_)) => pause().await,
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    async fn tail(&self, epoch: Epoch, after: u64) -> Vec<(Seq, Bytes)> {
        loop {
            match self.store.tail(self.shard, epoch, Seq(after)).await {
                Ok(tail) => return tail,
                Err(StoreError::Unavailable(_)) => pause().await,
                Err(other) => panic!("{other:?}"),
            }
        }
    }
}

/// While there is no server, every call fails at once.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_lose_and_double_nothing() {
    let url = new_database();
    let load = Load::start(&url).await;
    let killer = client(&url).await;
    for _ in 0..20 {
        load.go_on().await;
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                    WHERE application_name = 'limina' AND datname = current_database()";
        killer.query(kill, &[]).await.expect("kill");
    }
    load.go_on().await;
    let unknown = load.stop().await;
    assert!(unknown > 0, "no append was under way when its connection was lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_crashes_loses_and_doubles_nothing() {
    let server = PgServer::start().expect("PostgreSQL starts");
    let load = Load::start(&server.url(&server.new_database().expect("a database"))).await;
    for _ in 0..3 {
        load.go_on().await;
        server.crash_and_restart().expect("restart");
    }
    load.go_on().await;
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_waited_for() {
    let server = PgServer::start().expect("PostgreSQL starts");
    let load = Load::start(&server.url(&server.new_database().expect("a database"))).await;
    load.go_on().await;
    server.freeze().expect("freeze");
    let store = load.store.clone();
    let confirming = store.confirm(ShardId(SHARDS), Epoch(1), Seq(0));
    let mut confirming = std::pin::pin!(confirming);
    let hung = tokio::time::timeout(Duration::from_secs(1), &mut confirming).await;
    assert!(hung.is_err(), "it answered while it was halted: {hung:?}");
    server.thaw().expect("thaw");
    confirming.await.expect("confirm");
    load.go_on().await;
    assert_eq!(load.stop().await, 0, "a pause is no failure");
}

/// If a connection ends while its append waits, the outcome of the append is unknown.
#[tokio::test]
async fn an_append_whose_connection_is_killed_is_of_unknown_outcome() {
    let url = new_database();
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let (shard, payload) = (ShardId(0), Bytes::from_static(b"payload"));
    let epoch = store.take(shard).await.expect("take");
    let (lock, killer) = (client(&url).await, client(&url).await);
    lock.batch_execute("BEGIN; SELECT FROM limina.shard WHERE id = 0 FOR UPDATE").await.expect("a lock");
    let appending = tokio::spawn({
        let (store, payload) = (store.clone(), payload.clone());
        async move { store.append(shard, epoch, Seq(1), payload).await }
    });
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE application_name = 'limina' AND datname = current_database() AND wait_event_type = 'Lock'";
    eventually(async || !killer.query(kill, &[]).await.expect("kill").is_empty()).await;
    let outcome = appending.await.expect("the task ends");
    assert!(matches!(outcome, Err(AppendError::Unknown(_))), "{outcome:?}");
    lock.batch_execute("COMMIT").await.expect("the lock is free");
    let epoch = store.take(shard).await.expect("take");
    assert_eq!(store.tail(shard, epoch, Seq(0)).await.expect("tail"), []);
    store.append(shard, epoch, Seq(1), payload).await.expect("append");
}

#[tokio::test]
async fn without_a_server_calls_fail_after_a_while() {
    let server = PgServer::start().expect("PostgreSQL starts");
    let store = connect_as_owner(&server.url(&server.new_database().expect("a database")), 1).await;
    let store = store.expect("connect");
    let shard = ShardId(0);
    let epoch = store.take(shard).await.expect("take");
    store.append(shard, epoch, Seq(1), Bytes::new()).await.expect("append");
    server.stop().expect("stop");
    let (appended, confirmed, found) = tokio::join!(
        store.append(shard, epoch, Seq(2), Bytes::new()),
        store.confirm(shard, epoch, Seq(1)),
        store.get_many(shard, vec![Bytes::new()])
    );
    assert!(matches!(appended, Err(AppendError::NotDone(_) | AppendError::Unknown(_))), "{appended:?}");
    assert!(matches!(confirmed, Err(ConfirmError::Failed(_))), "{confirmed:?}");
    assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
    let again = store.append(shard, epoch, Seq(2), Bytes::new()).await;
    assert!(matches!(again, Err(AppendError::NotDone(_))), "nothing can be sent: {again:?}");
    store.close().await;
    let closed = store.append(shard, epoch, Seq(2), Bytes::new()).await;
    assert!(matches!(closed, Err(AppendError::NotDone(_))), "{closed:?}");
}

/// One connection hangs while its server continues. It is replaced, whether or not a caller waited for its answer.
#[tokio::test]
async fn a_connection_that_hangs_is_not_handed_out_again() {
    let server = PgServer::start().expect("PostgreSQL starts");
    let url = server.url(&server.new_database().expect("a database"));
    // Half of it is more than any other look-up takes, even on a busy machine.
    let patience = Duration::from_secs(10);
    let store = connect_with(&url, 1, patience).await.expect("connect");
    // Look-ups by key share a statement, and scans do not.
    let look_up = || store.scan(ShardId(0), Bytes::new(), Bytes::from_static(b"key"), 1);
    // Each connection for look-ups has run one.
    let (first, second) = tokio::join!(look_up(), look_up());
    first.and(second).expect("look-ups");
    let observer = client(&url).await;
    let readers =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'limina' AND query LIKE '%limina.record%'
                   AND pid <> pg_backend_pid()";
    let readers: Vec<i32> =
        observer.query(readers, &[]).await.expect("a look").iter().map(|row| row.get(0)).collect();
    assert_eq!(readers.len(), 2);

    let _halted = Halted::new(readers[0]);
    let mut failures = 0;
    for _ in 0..20 {
        // Two at once, so that both connections are used. A caller that stops waiting too early must not leave a hung
        // connection to the next caller.
        let [first, second] = [(); 2].map(|()| tokio::time::timeout(patience / 2, look_up()));
        let (first, second) = tokio::join!(first, second);
        failures += [first, second].iter().filter(|found| !matches!(found, Ok(Ok(_)))).count();
    }
    assert_eq!(failures, 1, "so many of 40 met the connection that hangs");
}

/// The connection that renews the tenure hangs. Another one renews it in time.
#[tokio::test]
async fn a_tenure_is_renewed_although_its_connection_hangs() {
    let url = new_database();
    let tenure = Duration::from_secs(4);
    let store = connect_with(&url, 1, tenure).await.expect("connect");
    let renew = || {
        let (address, host) = ("here".to_owned(), String::new());
        let (certificate, prepared) = (None, Vec::new());
        store.renew(Announcement { address, host, is_leaving: false, tenure, certificate, prepared })
    };
    renew().await.expect("renew");
    let holders = "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)
                   WHERE locktype = 'advisory' AND granted AND datname = current_database()";
    let holders = client(&url).await.query(holders, &[]).await.expect("a look");
    assert_eq!(holders.len(), 1);

    let _halted = Halted::new(holders[0].get(0));
    let begun = Instant::now();
    while renew().await.is_err() {}
    assert!(begun.elapsed() < tenure, "{:?}", begun.elapsed());
}

/// A server process that is stopped until this is dropped.
struct Halted(i32);

impl Halted {
    fn new(process: i32) -> Halted {
        Halted::signal("-STOP", process);
        Halted(process)
    }

    fn signal(signal: &str, process: i32) {
        let done = std::process::Command::new("kill").args([signal, &process.to_string()]).status();
        assert!(done.is_ok_and(|status| status.success()), "{signal}");
    }
}

impl Drop for Halted {
    fn drop(&mut self) {
        Halted::signal("-CONT", self.0);
    }
}
