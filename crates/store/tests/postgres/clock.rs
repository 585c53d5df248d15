//! The database's clock, when it is set back.

use super::database::{connect, connect_as_owner, execute, new_database};
use limina_store::{Announcement, NodeId, Tenure, View, postgres::Postgres};
use std::time::Duration;

const TENURE: Duration = Duration::from_secs(60);

async fn renew(store: &Postgres) -> View {
    let (address, host) = (format!("node-{}", store.me()), String::new());
    let (certificate, prepared) = (None, Vec::new());
    let announcement =
        Announcement { address, host, is_leaving: false, tenure: TENURE, certificate, prepared };
    store.renew(announcement).await.expect("renew")
}

/// Moving the times in the rows forward has the same effect as setting the database's clock back.
#[tokio::test]
async fn the_tenure_of_a_dead_node_lasts_no_longer_if_the_clock_is_set_back() {
    let url = new_database();
    let dead = connect_as_owner(&url, 1).await.expect("connect");
    let store = connect(&url, 2).await.expect("connect");
    for _ in 0..4 {
        renew(&dead).await;
        renew(&store).await;
    }
    drop(dead);
    execute(&url, "UPDATE limina.node SET expires_at = expires_at + interval '10 minutes'", &[]).await;
    let expires_in = |view: View| {
        let member = view.members.into_iter().find(|member| member.id == NodeId(1));
        member.expect("it owns shards").expires_in
    };
    assert!(expires_in(renew(&store).await) > 9 * TENURE);
    assert!(expires_in(renew(&store).await) <= TENURE);
}
