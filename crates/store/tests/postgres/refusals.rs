//! Errors of the server, and configurations of the database that the store must override.

use super::{
    database::{client, connect_as_owner, new_database},
    eventually,
};
use bytes::Bytes;
use limina_store::{AppendError, FreeSpace, Journal, Seq, ShardId};
use std::sync::Arc;

const SHARD: ShardId = ShardId(1);
const PAYLOAD: Bytes = Bytes::from_static(b"payload");

/// From now on this many inserts into the journal fail with this code.
async fn fail_inserts(url: &str, code: &str, times: u32) {
    let sql = format!(
        "DROP SEQUENCE IF EXISTS failures;
         CREATE SEQUENCE failures;
         CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
             IF nextval('failures') <= {times} THEN RAISE EXCEPTION 'on purpose' USING ERRCODE = '{code}'; END IF;
             RETURN NEW;
         END $$;
         CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON limina.journal FOR EACH ROW EXECUTE FUNCTION fail();"
    );
    client(url).await.batch_execute(&sql).await.expect("a trigger");
}

#[tokio::test]
async fn appends_that_the_server_refuses_did_not_happen() {
    let url = new_database();
    let store = connect_as_owner(&url, 1).await.expect("connect");
    let epoch = store.take(SHARD).await.expect("take");
    let append = async |seq| store.append(SHARD, epoch, Seq(seq), PAYLOAD).await;

    fail_inserts(&url, "53100", 1).await;
    assert!(matches!(append(1).await, Err(AppendError::Full)));
    assert_eq!(store.free_space(), FreeSpace::Reserve);
    append(1).await.expect("there is space again");
    assert_eq!(store.free_space(), FreeSpace::Ample);

    fail_inserts(&url, "58030", 1).await;
    assert!(matches!(append(2).await, Err(AppendError::NotDone(_))));
    assert_eq!(store.free_space(), FreeSpace::Ample);
    append(2).await.expect("append");

    fail_inserts(&url, "40001", 3).await;
    append(3).await.expect("it is tried again");
    fail_inserts(&url, "40P01", 1000).await;
    assert!(matches!(append(4).await, Err(AppendError::NotDone(_))), "but not for ever");
    assert_eq!(store.tail(SHARD, epoch, Seq(0)).await.expect("tail").len(), 3);
}

#[tokio::test]
async fn settings_of_the_database_are_overridden() {
    let url = new_database();
    let own = client(&url).await;
    for setting in [
        "statement_timeout = '10ms'",
        "lock_timeout = '10ms'",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "client_min_messages = error",
        "synchronous_commit = off",
        "search_path = ''",
    ] {
        let database: String =
            own.query_one("SELECT current_database()", &[]).await.expect("its name").get(0);
        own.batch_execute(&format!("ALTER DATABASE {database} SET {setting}")).await.expect(setting);
    }
    let store = Arc::new(connect_as_owner(&url, 1).await.expect("connect"));
    let epoch = store.take(SHARD).await.expect("take");
    own.batch_execute("BEGIN; SELECT FROM limina.shard WHERE id = 1 FOR UPDATE").await.expect("a lock");
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.append(SHARD, epoch, Seq(1), PAYLOAD).await }
    });
    let observer = client(&url).await;
    observer.batch_execute("SET statement_timeout = 0").await.expect("time to look");
    eventually(async || {
        let waits =
            "SELECT FROM pg_stat_activity WHERE application_name = 'limina' AND wait_event_type = 'Lock'
                     AND datname = current_database() AND now() - query_start > interval '30ms'";
        !observer.query(waits, &[]).await.expect("a look").is_empty()
    })
    .await;
    own.batch_execute("COMMIT").await.expect("the lock is free");
    waiting
        .await
        .expect("the task ends")
        .expect("the append waited longer than the database's settings allow");
}
