//! What waits for what: checkpoints, changes of owner, standbys.

use super::{
    database::{SHARDS, client, connect, connect_as_owner, new_database},
    eventually,
};
use bytes::Bytes;
use limina_pg_server::PgServer;
use limina_store::{AppendError, ConfirmError, Journal, Seq, ShardId, Tenure};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_postgres::Client;

const SHARD: ShardId = ShardId(1);
/// The maximum number of concurrent append statements.
const WRITERS: usize = 3;
const PAYLOAD: Bytes = Bytes::from_static(b"payload");

/// The number of the store's server processes that wait for this.
pub(crate) async fn waiting(client: &Client, event: &str) -> Vec<i32> {
    let waits =
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'limina' AND datname = current_database()
                 AND (wait_event_type = $1 OR wait_event = $1)";
    client.query(waits, &[&event]).await.expect("a look").iter().map(|row| row.get(0)).collect()
}

/// A running part of a checkpoint delays a node that takes the shard, but not appends.
#[tokio::test]
async fn a_take_waits_for_a_checkpoint_and_an_append_does_not() {
    let url = new_database();
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let epoch = store.take(SHARD).await.expect("take");
    let (checkpoint, observer) = (client(&url).await, client(&url).await);
    let hold = "BEGIN; SELECT FROM limina.shard WHERE id = 1 FOR KEY SHARE";
    checkpoint.batch_execute(hold).await.expect("a lock");
    store.append(SHARD, epoch, Seq(1), PAYLOAD).await.expect("append");
    let taking = tokio::spawn({
        let store = store.clone();
        async move { store.take(SHARD).await }
    });
    eventually(async || !waiting(&observer, "Lock").await.is_empty()).await;
    assert!(!taking.is_finished());
    checkpoint.batch_execute("COMMIT").await.expect("the lock is free");
    assert!(taking.await.expect("the task ends").expect("take") > epoch);
}

/// An append is not cancelled if its caller stops waiting.
#[tokio::test]
async fn an_append_goes_on_without_its_caller() {
    let url = new_database();
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let epoch = store.take(SHARD).await.expect("take");
    let (lock, observer) = (client(&url).await, client(&url).await);
    lock.batch_execute("BEGIN; SELECT FROM limina.shard WHERE id = 1 FOR UPDATE").await.expect("a lock");
    let appending = tokio::spawn({
        let store = store.clone();
        async move { store.append(SHARD, epoch, Seq(1), PAYLOAD).await }
    });
    eventually(async || !waiting(&observer, "Lock").await.is_empty()).await;
    appending.abort();
    assert!(appending.await.expect_err("it was aborted").is_cancelled());
    lock.batch_execute("COMMIT").await.expect("the lock is free");
    eventually(async || {
        let journal = observer.query("SELECT FROM limina.journal", &[]).await.expect("what is appended");
        journal.len() == 1
    })
    .await;
    let epoch = store.take(SHARD).await.expect("take");
    assert_eq!(store.tail(SHARD, epoch, Seq(0)).await.expect("tail"), [(Seq(1), PAYLOAD)]);
}

/// Waiting appends of several shards are sent in one statement.
#[tokio::test]
async fn appends_that_wait_share_a_statement() {
    let url = new_database();
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let mut epochs = Vec::new();
    for shard in (0..SHARDS).map(ShardId) {
        epochs.push((shard, store.take(shard).await.expect("take")));
    }
    let append = |(shard, epoch)| {
        let store = store.clone();
        async move { store.append(shard, epoch, Seq(1), PAYLOAD).await }
    };
    let (lock, observer) = (client(&url).await, client(&url).await);
    lock.batch_execute("BEGIN; SELECT FROM limina.shard FOR UPDATE").await.expect("a lock");
    // Each running statement has one append, until no connection is left to send another one.
    let (first, rest) = epochs.split_at(WRITERS);
    let mut appends = JoinSet::new();
    for (number, shard) in first.iter().enumerate() {
        appends.spawn(append(*shard));
        eventually(async || waiting(&observer, "Lock").await.len() > number).await;
    }
    for shard in rest {
        appends.spawn(append(*shard));
    }
    // All tasks run on this thread, so now each has reached the point where it waits.
    tokio::task::yield_now().await;
    lock.batch_execute("COMMIT").await.expect("the lock is free");
    for appended in appends.join_all().await {
        appended.expect("append");
    }
    let stats = store.stats();
    assert_eq!((stats.appends, stats.syncs), (u64::from(SHARDS), WRITERS as u64 + 1));
}

/// A claim waits for a running renewal of the owner, and the renewal counts.
#[tokio::test]
async fn a_claim_waits_for_a_renewal() {
    let url = new_database();
    let owner = connect_as_owner(&url, 1).await.expect("connect");
    let epoch = owner.take(SHARD).await.expect("take");
    let other = Arc::new(connect(&url, 2).await.expect("connect"));
    let (renewal, observer) = (client(&url).await, client(&url).await);
    observer.batch_execute("UPDATE limina.node SET expires_at = now() - interval '1 s'").await.expect("dead");
    let renew = "BEGIN; UPDATE limina.node SET expires_at = now() + interval '1 h' WHERE id = 1";
    renewal.batch_execute(renew).await.expect("a renewal");
    let claiming = tokio::spawn({
        let other = other.clone();
        async move { other.claim(vec![(SHARD, epoch)]).await }
    });
    eventually(async || !waiting(&observer, "Lock").await.is_empty()).await;
    renewal.batch_execute("COMMIT").await.expect("it is renewed");
    assert_eq!(claiming.await.expect("the task ends").expect("claim"), []);
    owner.append(SHARD, epoch, Seq(1), PAYLOAD).await.expect("append");
}

/// Appends that wait behind hung statements were certainly not sent, and can be withdrawn.
#[tokio::test]
async fn an_append_that_was_not_sent_can_be_withdrawn() {
    let url = new_database();
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let (lock, observer) = (client(&url).await, client(&url).await);
    let mut epochs = Vec::new();
    for shard in (0..=WRITERS as u16).map(ShardId) {
        epochs.push((shard, store.take(shard).await.expect("take")));
    }
    lock.batch_execute("BEGIN; SELECT FROM limina.shard FOR UPDATE").await.expect("a lock");
    let mut appends = JoinSet::new();
    for (number, (shard, epoch)) in epochs.iter().copied().enumerate() {
        let store = store.clone();
        appends.spawn(async move { (shard, store.append(shard, epoch, Seq(1), PAYLOAD).await.is_ok()) });
        eventually(async || waiting(&observer, "Lock").await.len() > number.min(WRITERS - 1)).await;
    }
    tokio::task::yield_now().await;
    let last = ShardId(WRITERS as u16);
    assert!(!store.withdraw(ShardId(0)), "it was sent");
    assert!(store.withdraw(last), "nobody could send it");
    assert!(!store.withdraw(last), "once");
    lock.batch_execute("COMMIT").await.expect("the lock is free");
    let mut appended = appends.join_all().await;
    appended.sort_unstable();
    assert!(appended.iter().all(|(shard, is_done)| *is_done == (*shard != last)), "{appended:?}");
    assert_eq!(store.tail(last, epochs[WRITERS].1, Seq(0)).await.expect("tail"), []);
}

/// A server that should have a synchronous standby, and has none, confirms nothing. If it is made to stop waiting, it
/// reports success together with a warning.
#[tokio::test]
async fn nothing_is_confirmed_without_the_standby() {
    let server = PgServer::start().expect("PostgreSQL starts");
    let url = server.url(&server.new_database().expect("a database"));
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let epoch = store.take(SHARD).await.expect("take");
    store.append(SHARD, epoch, Seq(1), PAYLOAD).await.expect("append");
    store.confirm(SHARD, epoch, Seq(0)).await.expect("confirm");
    let standby = async |name: &str| {
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'");
        client(&url).await.batch_execute(&set).await.expect("a setting");
        server.crash_and_restart().expect("restart");
        // All connections are made again; none of the old server is left.
        let observer = client(&url).await;
        let made =
            "SELECT FROM pg_stat_activity WHERE application_name = 'limina' AND datname = current_database()";
        eventually(async || observer.query(made, &[]).await.expect("a look").len() == 10).await;
    };
    standby("nobody").await;

    let appending = tokio::spawn({
        let store = store.clone();
        async move { store.append(SHARD, epoch, Seq(2), PAYLOAD).await }
    });
    let confirming = tokio::spawn({
        let store = store.clone();
        async move { store.confirm(SHARD, epoch, Seq(0)).await }
    });
    let observer = client(&url).await;
    eventually(async || waiting(&observer, "SyncRep").await.len() == 2).await;
    for process in waiting(&observer, "SyncRep").await {
        observer.query("SELECT pg_cancel_backend($1)", &[&process]).await.expect("cancel");
    }
    let appended = appending.await.expect("the task ends");
    assert!(matches!(appended, Err(AppendError::Unknown(_))), "{appended:?}");
    let confirmed = confirming.await.expect("the task ends");
    assert!(matches!(confirmed, Err(ConfirmError::Failed(_))), "{confirmed:?}");

    standby("").await;
    let epoch = store.take(SHARD).await.expect("take");
    assert_eq!(store.tail(SHARD, epoch, Seq(1)).await.expect("tail"), [(Seq(2), PAYLOAD)]);
    store.append(SHARD, epoch, Seq(3), PAYLOAD).await.expect("append");
    store.confirm(SHARD, epoch, Seq(0)).await.expect("confirm");
}
