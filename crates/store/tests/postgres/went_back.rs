//! A database that goes back to an older state while nodes use it: a standby that lacked appends was promoted, or a dump was restored.

use super::{
    database::{client, connect_as_owner, connect_with, new_database},
    eventually,
};
use bytes::Bytes;
use limina_pg_server::PgServer;
use limina_store::{
    Announcement, Answer, AppendError, ConfirmError, Epoch, FilterPart, Journal, LostAppends, NodeId, Read,
    Record, Records, Seq, ShardId, ShardStore, ShardStoreOptions, StoreError, Table, Tenure,
    postgres::Postgres,
};
use std::{sync::Arc, time::Duration};

const SHARD: ShardId = ShardId(2);

/// The tables with what nodes have written.
const TABLES: [&str; 5] = ["node", "shard", "journal", "record", "filter"];

/// Copies the database as it is now.
async fn save(url: &str) {
    let copies = TABLES.map(|table| format!("CREATE TABLE saved.{table} AS TABLE limina.{table};"));
    let statements = format!("CREATE SCHEMA saved; {}", copies.concat());
    client(url).await.batch_execute(&statements).await.expect("a copy");
}

/// Restores the state of the database that was copied.
async fn restore(url: &str) {
    let copies = TABLES
        .map(|table| format!("DELETE FROM limina.{table}; INSERT INTO limina.{table} TABLE saved.{table};"));
    client(url).await.batch_execute(&format!("BEGIN; {} COMMIT", copies.concat())).await.expect("restored");
}

fn records(text: &str) -> Vec<Record> {
    let record = |(key, value): (&str, &str)| Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Some(Bytes::copy_from_slice(value.as_bytes())),
    };
    text.split_whitespace().filter_map(|word| word.split_once('=')).map(record).collect()
}

type Store = ShardStore<Postgres, Postgres>;

async fn open(store: &Arc<Postgres>) -> Store {
    ShardStore::open(store.clone(), store.clone(), SHARD, ShardStoreOptions::default()).await.expect("open")
}

async fn append(store: &Store, text: &str) {
    store.append(store.seq().next(), records(text)).await.expect("append");
}

/// Everything that the shard has.
async fn content(store: &Store) -> String {
    let all = Read::Scan { from: Bytes::from_static(b" "), to: Bytes::from_static(b"~"), limit: 100 };
    let Some(Ok(Answer::Page(page))) = store.read(vec![all]).await.pop() else { panic!("the scan failed") };
    let text = |(key, value): &(Bytes, Bytes)| {
        format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
    };
    page.iter().map(text).collect::<Vec<_>>().join(" ")
}

fn lost(first: u64, last: u64) -> Option<LostAppends> {
    Some(LostAppends { first: Seq(first), last: Seq(last) })
}

/// The epoch may be the same as before, so it proves nothing.
#[tokio::test]
async fn nothing_is_confirmed_appended_or_checkpointed_under_the_same_epoch() {
    let url = new_database();
    let store = connect_as_owner(&url, 1).await.expect("connect");
    let epoch = store.take(SHARD).await.expect("take");
    let append = async |seq| store.append(SHARD, epoch, Seq(seq), Bytes::new()).await;
    append(1).await.expect("append");
    save(&url).await;
    append(2).await.expect("append");
    restore(&url).await;

    assert!(matches!(store.confirm(SHARD, epoch, Seq(2)).await, Err(ConfirmError::Fenced)));
    store.confirm(SHARD, epoch, Seq(1)).await.expect("so much is there");
    assert!(matches!(append(3).await, Err(AppendError::NotDone(_))));
    let tail = store.tail(SHARD, epoch, Seq(2)).await;
    assert!(matches!(tail, Err(StoreError::WentBack)), "{tail:?}");
    let late = Arc::new(Records::from_iter(records("late=1")));
    let written = store.checkpoint(SHARD, epoch, Seq(2), late).await;
    assert!(matches!(written, Err(StoreError::WentBack)), "{written:?}");
    let part = FilterPart { number: 0, bytes: Bytes::from_static(b"part") };
    let stored = store.store_filter(SHARD, epoch, Seq(2), vec![part], 1).await;
    assert!(matches!(stored, Err(StoreError::NotOwned)), "{stored:?}");
    let row = "SELECT seq, applied FROM limina.shard WHERE id = 2";
    let row = client(&url).await.query_one(row, &[]).await.expect("the shard");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1, 0));
    let found = store.get_many(SHARD, vec!["late".into()]).await.expect("a look-up");
    assert_eq!(found, [None]);
}

/// Epochs that the database has forgotten are given to another node. Then they identify two ownerships.
#[tokio::test]
async fn an_equal_epoch_of_another_owner_is_fenced() {
    let url = new_database();
    let store = connect_as_owner(&url, 1).await.expect("connect");
    save(&url).await;
    let epoch = store.take(SHARD).await.expect("take");
    store.append(SHARD, epoch, Seq(1), Bytes::from_static(b"first")).await.expect("append");
    restore(&url).await;
    let steal = "UPDATE limina.shard SET owner = 7, epoch = $1, seq = 1 WHERE id = 2";
    client(&url).await.execute(steal, &[&(epoch.0 as i64)]).await.expect("another node has the shard");

    assert!(matches!(store.confirm(SHARD, epoch, Seq(1)).await, Err(ConfirmError::Fenced)));
    let appended = store.append(SHARD, epoch, Seq(2), Bytes::new()).await;
    assert!(matches!(appended, Err(AppendError::Fenced)), "{appended:?}");
    let written = store.checkpoint(SHARD, epoch, Seq(1), Arc::default()).await;
    assert!(matches!(written, Err(StoreError::NotOwned)), "{written:?}");
}

/// A shard that is taken again has what the database has. What was lost is known until the next append.
#[tokio::test]
async fn a_shard_that_is_taken_again_has_the_older_state() {
    let url = new_database();
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let shard = open(&store).await;
    append(&shard, "a=1 b=1").await;
    shard.checkpoint().await.expect("checkpoint");
    append(&shard, "b=2").await;
    save(&url).await;
    append(&shard, "b=3 c=3").await;
    shard.checkpoint().await.expect("checkpoint");
    append(&shard, "d=4").await;
    let before = shard.epoch();
    restore(&url).await;

    let refused = shard.append(shard.seq().next(), records("e=5")).await;
    assert!(matches!(refused, Err(AppendError::NotDone(_))), "{refused:?}");
    shard.checkpoint().await.expect_err("the journal does not have this");
    for _ in 0..2 {
        shard.retake().await.expect("retake");
        assert_eq!((shard.lost(), shard.seq()), (lost(3, 4), Seq(2)));
        assert_eq!(content(&shard).await, "a=1 b=2");
    }
    assert!(shard.epoch() > before, "epochs are not used again");
    append(&shard, "e=5").await;
    assert_eq!(shard.lost(), None);
    shard.confirm().await.expect("confirm");
    assert_eq!(shard.checkpoint().await.expect("checkpoint"), Some(Seq(3)));
    assert_eq!(content(&shard).await, "a=1 b=2 e=5");
    drop(shard);
    assert_eq!(content(&open(&store).await).await, "a=1 b=2 e=5");
}

/// Another node has seen the shard only in the views, and gets it after its owner has died.
#[tokio::test]
async fn the_next_owner_knows_what_was_lost() {
    let url = new_database();
    let first = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let second = Arc::new(super::database::connect(&url, 2).await.expect("connect"));
    let renew = async || {
        let (address, host, tenure) = ("second".to_owned(), String::new(), Duration::from_secs(60));
        let (certificate, prepared) = (None, Vec::new());
        let announcement = Announcement { address, host, is_leaving: false, tenure, certificate, prepared };
        second.renew(announcement).await.expect("renew")
    };
    let shard = open(&first).await;
    append(&shard, "a=1").await;
    save(&url).await;
    append(&shard, "a=2").await;
    append(&shard, "a=3").await;
    assert_eq!(renew().await.went_back, []);
    restore(&url).await;
    assert_eq!(renew().await.went_back, [SHARD]);
    drop((shard, first));

    client(&url).await.batch_execute("UPDATE limina.node SET expires_at = now() WHERE id = 1").await.unwrap();
    let row = renew().await.shards[usize::from(SHARD.0)];
    assert_eq!(row.owner, Some(NodeId(1)));
    assert_eq!(second.claim(vec![(SHARD, row.epoch)]).await.expect("claim"), [SHARD]);
    let shard = open(&second).await;
    assert_eq!((shard.lost(), shard.seq()), (lost(2, 3), Seq(1)));
    assert_eq!(content(&shard).await, "a=1");
    append(&shard, "a=4").await;
    assert_eq!((shard.lost(), renew().await.went_back), (None, Vec::new()));
}

/// Another server has taken the place of the one that the node began with.
#[tokio::test]
async fn another_database_is_not_used() {
    let server = PgServer::start().expect("PostgreSQL starts");
    let (port, name) = (server.port(), server.new_database().expect("a database"));
    let url = server.url(&name);
    let store = connect_with(&url, 1, Duration::from_secs(2)).await.expect("connect");
    store.confirm(SHARD, Epoch(0), Seq(0)).await.expect_err("this node owns nothing yet");
    assert!(!store.stats().is_other_database);
    server.kill().expect("kill");
    let other = PgServer::start_at(port).expect("another PostgreSQL starts");
    assert_eq!(other.new_database().expect("a database"), name);
    let _used_by_others = connect_as_owner(&url, 2).await.expect("it is as good as any");
    eventually(async || store.stats().is_other_database).await;
    let taken = store.take(SHARD).await;
    assert!(matches!(taken, Err(StoreError::Unavailable(_))), "{taken:?}");
    assert!(!store.is_available());
}
