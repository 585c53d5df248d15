//! A synchronous standby is promoted: the store continues there, and ignores the old server.

use super::{
    database::{client, connect_as_owner},
    eventually,
    losses::Load,
    waits::waiting,
};
use bytes::Bytes;
use limina_pg_server::{PgServer, USER};
use limina_store::{AppendError, Journal, Record, Records, Seq, ShardId, StoreError, Table};
use std::{net::TcpListener, sync::Arc};

const SHARD: ShardId = ShardId(1);

/// A server and its standby, with a database.
struct Pair {
    primary: PgServer,
    standby: PgServer,
    database: String,
    /// The URL that names both servers.
    url: String,
}

impl Pair {
    fn start() -> Pair {
        let primary = PgServer::start().expect("PostgreSQL starts");
        let database = primary.new_database().expect("a database");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let standby = primary.start_standby(port).expect("a standby starts");
        let url = format!("postgres://{USER}@127.0.0.1:{},127.0.0.1:{port}/{database}", primary.port());
        Pair { primary, standby, database, url }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_lost_has_lost_nothing() {
    let Pair { primary, standby, url, .. } = Pair::start();
    let load = Load::start(&url).await;
    load.go_on().await;
    primary.kill().expect("kill");
    standby.promote().expect("promote");
    load.go_on().await;
    load.stop().await;
}

/// Its connections stay open, because the operating system answers for it, but it sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_not_waited_for_once_it_has_a_successor() {
    let Pair { primary, standby, url, .. } = Pair::start();
    let load = Load::start(&url).await;
    load.go_on().await;
    primary.freeze().expect("freeze");
    standby.promote().expect("promote");
    load.go_on().await;
    primary.thaw().expect("thaw");
    load.go_on().await;
    load.stop().await;
}

/// The old server runs and accepts connections; from its view only its standby is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replaced_server_is_left_even_if_it_does_not_know() {
    let Pair { primary: _lives, standby, url, .. } = Pair::start();
    let load = Load::start(&url).await;
    load.go_on().await;
    standby.promote().expect("promote");
    load.go_on().await;
    load.stop().await;
}

/// The old server would answer look-ups at once, without what was stored since.
#[tokio::test]
async fn look_ups_are_answered_where_records_are_stored() {
    let Pair { primary: _lives, standby, url, .. } = Pair::start();
    let store = connect_as_owner(&url, 1).await.expect("connect");
    let key = Bytes::from_static(b"key");
    let look_up = async || store.get_many(SHARD, vec![key.clone()]).await;
    // On every connection for look-ups.
    let found = tokio::join!(look_up(), look_up());
    for found in [found.0, found.1] {
        assert_eq!(found.expect("a look-up"), [None]);
    }
    let epoch = store.take(SHARD).await.expect("take");
    store.append(SHARD, epoch, Seq(1), Bytes::new()).await.expect("append");
    standby.promote().expect("promote");
    eventually(async || match store.take(SHARD).await {
        Ok(epoch) => {
            let record = Record { key: key.clone(), value: Some(Bytes::from_static(b"new")) };
            let records = Arc::new(Records::from_iter([record]));
            store.checkpoint(SHARD, epoch, Seq(1), records).await.expect("checkpoint");
            true
        }
        Err(StoreError::Unavailable(_)) => false,
        Err(other) => panic!("{other:?}"),
    })
    .await;
    let found = tokio::join!(look_up(), look_up());
    for found in [found.0, found.1] {
        assert_eq!(found.expect("a look-up"), [Some(Bytes::from_static(b"new"))]);
    }
}

/// Statements that wait for the standby are neither executed nor cancelled, and continue when it returns.
#[tokio::test]
async fn without_the_standby_appends_wait() {
    let Pair { primary, standby, database, url } = Pair::start();
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let epoch = store.take(SHARD).await.expect("take");
    store.append(SHARD, epoch, Seq(1), Bytes::new()).await.expect("append");
    let port = standby.port();
    standby.kill().expect("kill");
    let appending = tokio::spawn({
        let store = store.clone();
        async move { store.append(SHARD, epoch, Seq(2), Bytes::new()).await }
    });
    let observer = client(&primary.url(&database)).await;
    eventually(async || waiting(&observer, "SyncRep").await.len() == 1).await;
    assert!(!appending.is_finished());
    let _standby = primary.start_standby(port).expect("another standby starts");
    let appended: Result<(), AppendError> = appending.await.expect("the task ends");
    appended.expect("append");
    store.confirm(SHARD, epoch, Seq(2)).await.expect("confirm");
}
