//! Who is there, by the database's clock.

use super::{
    connection::{Connector, Pauses},
    pool::Pool,
    row::{from_node, to_node, to_shard, unsigned},
};
use crate::{Announcement, Epoch, Holding, Member, NodeId, StoreError, View};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Row};

/// One statement, and so one instant. What it reads is as it was before, so what it changes is said once more: this node,
/// and that others with its address are not alive.
const RENEW: &str = "
    WITH known AS (
        SELECT FROM limina.node WHERE id = $1 AND address = $2 AND is_leaving = $3 AND expires_at > now()
    ), removed AS (
        DELETE FROM limina.node WHERE id <> $1 AND expires_at < now() - interval '1 minute'
    ), ended AS (
        UPDATE limina.node SET expires_at = now() WHERE id <> $1 AND address = $2 AND expires_at > now()
    ), renewed AS (
        INSERT INTO limina.node (id, address, is_leaving, expires_at)
        VALUES ($1, $2, $3, now() + $4 * interval '1 second')
        ON CONFLICT (id) DO UPDATE
        SET address = excluded.address, is_leaving = excluded.is_leaving, expires_at = excluded.expires_at
    ), told AS (
        SELECT pg_notify('limina_changed', $1::bigint::text) WHERE NOT EXISTS (SELECT FROM known)
    )
    SELECT $1 AS node, $2 AS address, true AS is_live, $3 AS is_leaving,
        NULL::integer AS shard, NULL::bigint AS epoch, NULL::bigint AS owner, NULL::boolean AS is_handed
    FROM (SELECT count(*) FROM told) AS told
    UNION ALL
    SELECT id, address, expires_at > now() AND address <> $2, is_leaving, NULL, NULL, NULL, NULL
    FROM limina.node WHERE id <> $1 AND expires_at >= now() - interval '1 minute'
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, id, epoch, owner, is_handed FROM limina.shard";

const LEAVE: &str = "
    WITH gone AS (
        DELETE FROM limina.node WHERE id = $1
    ), mine AS (
        SELECT id FROM limina.shard WHERE owner = $1 ORDER BY id FOR UPDATE
    ), freed AS (
        UPDATE limina.shard SET owner = NULL, epoch = epoch + 1, is_handed = false FROM mine WHERE shard.id = mine.id
    )
    SELECT pg_notify('limina_changed', $1::bigint::text)::text";

pub(super) async fn renew(pool: &Pool, me: NodeId, announcement: Announcement) -> Result<View, StoreError> {
    let Announcement { address, is_leaving, tenure } = announcement;
    let rows = pool.query(RENEW, &[&from_node(me), &address, &is_leaving, &tenure.as_secs_f64()]).await?;
    let mut view = View::default();
    for row in &rows {
        match row.get("node") {
            Some(id) => view.members.push(member(to_node(id), row)),
            None => view.shards.push(holding(row)),
        }
    }
    view.members.sort_by_key(|member| member.id);
    view.shards.sort_by_key(|holding| holding.shard);
    Ok(view)
}

fn member(id: NodeId, row: &Row) -> Member {
    let (address, is_live, is_leaving) = (row.get("address"), row.get("is_live"), row.get("is_leaving"));
    Member { id, address, is_live, is_leaving }
}

fn holding(row: &Row) -> Holding {
    Holding {
        shard: to_shard(row.get("shard")),
        epoch: Epoch(unsigned(row.get("epoch"))),
        owner: row.get::<_, Option<i64>>("owner").map(to_node),
        is_handed: row.get("is_handed"),
    }
}

pub(super) async fn leave(pool: &Pool, me: NodeId) -> Result<(), StoreError> {
    pool.query(LEAVE, &[&from_node(me)]).await.map(|_| ())
}

/// Hears of what other nodes do, for as long as it is let. Whenever it may have missed something, it says so.
pub(super) async fn listen(connector: Arc<Connector>, me: NodeId, changed: Arc<Notify>) {
    let own = from_node(me).to_string();
    let mut pauses = Pauses::default();
    loop {
        let (own, told) = (own.clone(), changed.clone());
        let hear = move |message| match message {
            AsyncMessage::Notification(notification) if notification.payload() != own => told.notify_one(),
            _ => {}
        };
        if let Ok(session) = connector.connect_and_hear(hear).await
            && session.execute("LISTEN limina_changed").await.is_ok()
        {
            pauses = Pauses::default();
            changed.notify_one();
            session.ended().await;
        }
        changed.notify_one();
        pauses.pause().await;
    }
}
