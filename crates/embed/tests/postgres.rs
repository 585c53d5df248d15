//! Instances on a PostgreSQL database.

use limina_embed::{Limina, OpenError, ledger::NewLimit};
use limina_engine::{Outcome, Request};
use limina_node::{Feed, FeedRequest, PeerError, Peers, ShardId, peers::PeerFuture};
use limina_pg_server::PgServer;
use std::{sync::Arc, time::Duration};

/// A node of a cluster that reaches no other node.
struct NoPeers;

impl Peers for NoPeers {
    fn who<'a>(&'a self, _: &'a str) -> PeerFuture<'a, String> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn ask<'a>(&'a self, _: &'a str, _: ShardId, _: &'a Request) -> PeerFuture<'a, Outcome> {
        Box::pin(async { Err(PeerError::NotThere) })
    }

    fn follow<'a>(&'a self, _: &'a str, _: &'a FeedRequest) -> PeerFuture<'a, Box<dyn Feed>> {
        Box::pin(async { Err(PeerError::NotThere) })
    }
}

#[tokio::test]
async fn an_instance_has_the_database_for_itself() {
    let server = PgServer::start().unwrap();
    let url = server.url(&server.new_database().unwrap());
    // So long a tenure does not expire on a busy machine.
    let builder = || Limina::builder().shards(2).tenure(Duration::from_secs(60));

    let limina = builder().postgres(&url).await.unwrap();
    limina.namespace("shop").unwrap().ledger().create_limit(NewLimit::new("a")).await.unwrap();
    limina.close().await.unwrap();
    let limina = builder().postgres(&url).await.unwrap();
    limina.namespace("shop").unwrap().ledger().limit("a").await.unwrap();
    limina.close().await.unwrap();

    let node = builder().cluster("host:1", Arc::new(NoPeers) as Arc<dyn Peers>);
    let node = node.postgres(&url).await.unwrap();
    let error = builder().postgres(&url).await.unwrap_err();
    assert!(matches!(error, OpenError::DatabaseInUse(_)), "{error:?}");
    assert!(error.to_string().contains("host:1"), "{error}");
    node.close().await.unwrap();
    builder().postgres(&url).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn a_database_that_is_not_there_is_an_error() {
    let error = Limina::postgres("postgres://nobody@127.0.0.1:1/none").await.unwrap_err();
    assert!(matches!(error, OpenError::Store(_)), "{error:?}");
}
