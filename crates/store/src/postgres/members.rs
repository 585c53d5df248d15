//! Renewals and the view of all nodes, by the database's clock.

use super::{
    known::KnownShards,
    pool::Pool,
    presence::has_ended,
    row::{from_node, from_shard, to_node, to_shard, unsigned},
};
use crate::{Announcement, Epoch, Fingerprint, HandOver, Member, NodeId, Seq, ShardRow, StoreError, View};
use std::time::Duration;
use tokio_postgres::Row;

/// Renews this node's row, or takes over a row with the same address whose tenure has expired. The address is unique,
/// so of two live nodes with the same address only the first can renew. The row of a dead node stays while it owns
/// shards: a claim of its shards locks that row, and so excludes a renewal.
const RENEW: &str = "
    WITH known AS (
        SELECT FROM limina.node WHERE id = $1 AND is_leaving = $3 AND prepared = $7 AND expires_at > now()
    ), removed AS (
        DELETE FROM limina.node
        WHERE id <> $1 AND address <> $2 AND expires_at < now() - interval '1 minute'
            AND NOT EXISTS (SELECT FROM limina.shard WHERE owner = node.id)
    ), renewed AS (
        INSERT INTO limina.node
            (id, address, is_leaving, expires_at, host, started_at, certificate, prepared, session, server_started_at)
        VALUES ($1, $2, $3, now() + $4 * interval '1 second', $5, now(), $6, $7,
            CASE current_setting('limina.session', true) WHEN pg_backend_pid()::text THEN pg_backend_pid() END,
            pg_postmaster_start_time())
        ON CONFLICT (address) DO UPDATE SET
            id = excluded.id, is_leaving = excluded.is_leaving, expires_at = excluded.expires_at, host = excluded.host,
            certificate = excluded.certificate, prepared = excluded.prepared, session = excluded.session,
            server_started_at = excluded.server_started_at,
            started_at = CASE WHEN node.id = excluded.id THEN node.started_at ELSE excluded.started_at END
        WHERE node.id = excluded.id OR node.expires_at <= now()
        RETURNING id
    )
    SELECT (SELECT pg_notify('limina_changed', id::text) FROM renewed WHERE NOT EXISTS (SELECT FROM known))::text";

/// All nodes and shards as of one instant after the renewal. If a claim came before the renewal, the result shows it.
const VIEW: &str = concat!(
    "
    SELECT id AS node, address, host, extract(epoch FROM now() - started_at)::float8 AS age,
        greatest(extract(epoch FROM expires_at - now()), 0)::float8 AS expires_in, is_leaving, certificate,
        prepared, NOT ",
    has_ended!(),
    " AS is_connected,
        NULL::integer AS shard, NULL::bigint AS epoch, NULL::bigint AS seq, NULL::bigint AS owner,
        NULL::bigint AS handed_time, NULL::float8 AS handed_ago
    FROM limina.node
    WHERE expires_at >= now() - interval '1 minute' OR id = ANY (ARRAY(SELECT owner FROM limina.shard))
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, id, epoch, seq, owner,
        CASE WHEN is_handed THEN handed_time END, extract(epoch FROM now() - handed_at)::float8
    FROM limina.shard"
);

const LEAVE: &str = "
    WITH gone AS (
        DELETE FROM limina.node WHERE id = $1
    ), mine AS (
        SELECT id FROM limina.shard WHERE owner = $1 ORDER BY id FOR UPDATE
    ), freed AS (
        UPDATE limina.shard SET owner = NULL, epoch = epoch + 1, is_handed = false, handed_at = NULL, handed_time = NULL
        FROM mine WHERE shard.id = mine.id
    )
    SELECT pg_notify('limina_changed', $1::bigint::text)::text";

/// Compares the rows of all shards with what this node knew before it asked for them.
pub(super) async fn renew(
    pool: &Pool,
    me: NodeId,
    announcement: Announcement,
    known: &KnownShards,
) -> Result<View, StoreError> {
    let Announcement { address, host, is_leaving, tenure, certificate, prepared } = announcement;
    let tenure = tenure.as_secs_f64();
    let certificate = certificate.as_ref().map(|certificate| &certificate.0[..]);
    let prepared: Vec<i32> = prepared.into_iter().map(from_shard).collect();
    pool.query(RENEW, &[&from_node(me), &address, &is_leaving, &tenure, &host, &certificate, &prepared])
        .await?;
    let (mut view, before) = (View::default(), known.snapshot());
    for row in &pool.query(VIEW, &[]).await? {
        match row.get("node") {
            Some(id) => view.members.push(member(to_node(id), row)),
            None => {
                let (holding, seq) = (holding(row), Seq(unsigned(row.get("seq"))));
                let ShardRow { shard, epoch, owner, .. } = holding;
                if before.get(&shard).is_some_and(|known| known.is_newer_than(epoch, seq)) {
                    view.went_back.push(shard);
                }
                match owner.is_none_or(|owner| owner == me) {
                    true => known.observe(shard, epoch, seq),
                    false => known.observe_other(shard, epoch, seq),
                }
                view.shards.push(holding);
            }
        }
    }
    view.members.sort_by_key(|member| member.id);
    view.shards.sort_by_key(|holding| holding.shard);
    Ok(view)
}

fn member(id: NodeId, row: &Row) -> Member {
    let expires_in = span(row.get("expires_in"));
    let certificate: Option<&[u8]> = row.get("certificate");
    Member {
        id,
        address: row.get("address"),
        host: row.get("host"),
        age: span(row.get("age")),
        is_live: expires_in > Duration::ZERO,
        is_connected: row.get("is_connected"),
        expires_in,
        is_leaving: row.get("is_leaving"),
        certificate: certificate.and_then(|bytes| bytes.try_into().ok()).map(Fingerprint),
        prepared: row.get::<_, Vec<i32>>("prepared").into_iter().map(to_shard).collect(),
    }
}

fn holding(row: &Row) -> ShardRow {
    let time: Option<i64> = row.get("handed_time");
    let ago: Option<f64> = row.get("handed_ago");
    ShardRow {
        shard: to_shard(row.get("shard")),
        epoch: Epoch(unsigned(row.get("epoch"))),
        owner: row.get::<_, Option<i64>>("owner").map(to_node),
        handed: time.zip(ago).map(|(time, ago)| HandOver { shard_time_ms: unsigned(time), ago: span(ago) }),
    }
}

/// A negative span becomes zero, because the database's clock may have been set back.
fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

pub(super) async fn leave(pool: &Pool, me: NodeId) -> Result<(), StoreError> {
    pool.query(LEAVE, &[&from_node(me)]).await.map(|_| ())
}
