//! Creating the schema, and opening databases with a valid or an invalid one.

use super::{
    database::{client, connect, execute, new_database},
    eventually,
};
use limina_pg_server::USER;
use limina_store::{
    NodeId, StoreError,
    postgres::{Postgres, PostgresLoader, PostgresOptions, PostgresSnapshot},
};
use std::time::Duration;

/// Opening with this number of shards must return that number, or fail with these words.
async fn check(url: &str, asked: Option<u16>, expected: Result<u16, &str>) {
    let patience = Duration::from_secs(60);
    let opened = Postgres::connect(url, PostgresOptions { node: NodeId(1), shards: asked, patience }).await;
    match (opened, expected) {
        (Ok(store), Ok(shards)) => assert_eq!(store.sharding().shards, shards),
        (Err(StoreError::Unusable(words)), Err(expected)) => {
            assert!(words.contains(expected), "{words:?} lacks {expected:?}");
        }
        (Ok(_), expected) => panic!("it opened, and {expected:?} was to come"),
        (Err(error), expected) => panic!("{error:?} came, and {expected:?} was to come"),
    }
}

#[tokio::test]
async fn the_number_of_shards_is_fixed_when_the_schema_is_made() {
    let url = new_database();
    check(&url, Some(0), Err("must be 1 to 65534")).await;
    check(&url, Some(5), Ok(5)).await;
    check(&url, None, Ok(5)).await;
    check(&url, Some(6), Err("was created with 5 shards and cannot be opened with 6")).await;
    check(&url, Some(5), Ok(5)).await;
    check(&new_database(), None, Ok(64)).await;
}

#[tokio::test]
async fn a_foreign_schema_is_refused() {
    let url = new_database();
    execute(&url, "CREATE SCHEMA limina", &[]).await;
    execute(&url, "CREATE TABLE limina.meta (version text)", &[]).await;
    check(&url, None, Err("was not made by this program")).await;
    execute(&url, "DROP TABLE limina.meta", &[]).await;
    check(&url, Some(3), Ok(3)).await;
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let url = new_database();
    check(&url, Some(3), Ok(3)).await;
    execute(&url, "UPDATE limina.meta SET version = 2000", &[]).await;
    check(&url, Some(3), Err("has version 2000, and this program knows up to 3")).await;
}

/// Nodes, imports and exports refuse an older schema, and it stays as it is.
#[tokio::test]
async fn an_older_schema_is_refused_with_instructions() {
    let url = new_database();
    check(&url, Some(3), Ok(3)).await;
    execute(&url, "UPDATE limina.meta SET version = 2", &[]).await;
    let expected = "has version 2: it was written by an older limina, whose nodes shared a secret and had no certificates. Export";
    check(&url, Some(3), Err(expected)).await;
    execute(&url, "ALTER TABLE limina.meta DROP COLUMN sharding_key", &[]).await;
    execute(&url, "UPDATE limina.meta SET version = 1", &[]).await;
    let expected =
        "has version 1: it was written by an older limina, whose shard hash had no key. Export it with";
    check(&url, Some(3), Err(expected)).await;
    let import = PostgresLoader::begin(&url, None).await.err();
    let export = PostgresSnapshot::take(&url).await.err();
    for refused in [import, export] {
        let Some(StoreError::Unusable(words)) = &refused else { panic!("{refused:?}") };
        assert!(words.contains(expected), "{words:?}");
    }
    let version = client(&url).await.query_one("SELECT version FROM limina.meta", &[]).await.expect("a row");
    assert_eq!(version.get::<_, i32>(0), 1);
}

#[tokio::test]
async fn nodes_that_start_at_once_make_one_schema() {
    let url = new_database();
    let opened = tokio::join!(
        connect(&url, 1),
        connect(&url, 2),
        connect(&url, 3),
        connect(&url, 4),
        connect(&url, 5),
        connect(&url, 6)
    );
    let opened = [opened.0, opened.1, opened.2, opened.3, opened.4, opened.5];
    let opened = opened.map(|opened| opened.expect("every node opens the store"));
    let sharding = opened[0].sharding();
    assert!(opened.iter().all(|store| store.sharding() == sharding));
    let another = connect(&new_database(), 1).await.expect("connect");
    assert_ne!(another.sharding().key, sharding.key);
}

#[tokio::test]
async fn no_error_shows_the_password() {
    let words = async |url: &str| {
        let opened = connect(url, 1).await;
        let error = opened.err().expect("nothing is there");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
        error
    };
    let down = words("postgres://somebody:s3cret@127.0.0.1:1/limina").await;
    assert!(matches!(&down, StoreError::Unavailable(words) if words.contains("127.0.0.1:1")), "{down:?}");
    for url in [
        "postgres://somebody:s3cret@127.0.0.1:many/limina",
        "postgres://somebody:s3cret@127.0.0.1/limina?s3cret=1",
        "host=127.0.0.1 password=a s3cret",
    ] {
        assert!(matches!(words(url).await, StoreError::Unusable(_)), "{url}");
    }
}

/// Permanent failures are distinguished from transient ones.
#[tokio::test]
async fn permanent_errors_make_a_database_unusable() {
    let url = new_database();
    let (server, database) = url.rsplit_once('/').expect("a database");
    check(&format!("{server}/missing"), None, Err("database \"missing\" does not exist")).await;
    let as_role = |role: &str| url.replace(&format!("{USER}@"), &format!("{role}@"));
    check(&as_role("nobody"), None, Err("role \"nobody\" does not exist")).await;
    check(&format!("{url}?sslmode=require"), None, Err("does not support TLS")).await;
    client(&url).await.batch_execute("CREATE ROLE powerless LOGIN").await.expect("a role");
    check(&as_role("powerless"), None, Err(&format!("permission denied for database {database}"))).await;
}

/// All connections are made at the start. If the server does not accept them, the error says why.
#[tokio::test]
async fn a_node_has_ten_connections_or_none() {
    let url = new_database();
    let observer = client(&url).await;
    let store = connect(&url, 1).await.expect("connect");
    let connections =
        "SELECT FROM pg_stat_activity WHERE application_name = 'limina' AND datname = current_database()";
    // The connection that created the schema closes on its own.
    eventually(async || observer.query(connections, &[]).await.expect("a look").len() == 10).await;
    store.close().await;
    drop(store);
    let limited = "CREATE ROLE few LOGIN CONNECTION LIMIT 4;
                   GRANT ALL ON SCHEMA limina TO few; GRANT ALL ON ALL TABLES IN SCHEMA limina TO few";
    observer.batch_execute(limited).await.expect("roles");
    let opened = connect(&url.replace(&format!("{USER}@"), "few@"), 1).await;
    let Err(StoreError::Unavailable(words)) = opened else { panic!("four connections are not enough") };
    assert!(words.contains("takes no more connections, and a node needs 10"), "{words:?}");
}
