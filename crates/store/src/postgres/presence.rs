//! How PostgreSQL knows at once that a node's process has died.
//!
//! The session that renews a node's tenure holds an advisory lock, under the number of the server process that serves it, and
//! each renewal writes that number into the node's row. When the node's process dies, its connections are closed, the session
//! ends, and the lock is free. Other nodes try the lock of every node several times a second.
//!
//! A free lock alone does not prove that the node is dead: its connection may have been reset. So a node ends the tenure of
//! another one only if it also knows that no process listens at that node's address.

use super::{pool::Pool, row::from_node};
use crate::{NodeId, StoreError};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// How often a node looks for other nodes whose sessions have ended.
const CHECK_EVERY: Duration = Duration::from_millis(200);

/// Takes the lock of this session, and remembers in the session that it did.
///
/// If the network loses this session's packets, the server must not end the session before the node's tenure (60 s at most)
/// has expired: a node that is cut off may still give relaxed answers until then.
pub(super) const ANNOUNCE: &str = "
    SELECT set_config(name, CASE name WHEN 'tcp_user_timeout' THEN '120000' ELSE '60' END, false) FROM pg_settings
    WHERE name IN ('tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_user_timeout');
    SELECT set_config('limina.session', pg_backend_pid()::text, false)
    WHERE pg_try_advisory_lock(1818848617, pg_backend_pid())";

/// Whether the session in a row of `limina.node` has ended since the last renewal. False if the server was started since: it
/// does not know the sessions of its predecessor. False for the caller's own session, which would get its own lock.
///
/// The lock's first number is "limi" in ASCII, and the lock is free again when the statement ends.
macro_rules! has_ended {
    () => {
        "(CASE WHEN expires_at <= now() OR session IS NULL OR session = pg_backend_pid()
            OR server_started_at <> pg_postmaster_start_time() THEN false
            ELSE pg_try_advisory_xact_lock_shared(1818848617, session) END)"
    };
}
pub(super) use has_ended;

const ENDED: &str = concat!("SELECT id FROM limina.node WHERE id <> $1 AND ", has_ended!());

/// A renewal that runs at the same time changes the row first, and with it the session that is looked at, or comes after this.
const END_TENURE: &str = concat!(
    "
    WITH ended AS (
        UPDATE limina.node SET expires_at = now() WHERE id = $1 AND ",
    has_ended!(),
    " RETURNING id
    )
    SELECT pg_notify('limina_changed', $2::bigint::text)::text FROM ended"
);

/// Ends the tenure of another node, if its session has ended.
pub(super) async fn end_tenure(pool: &Pool, me: NodeId, node: NodeId) -> Result<bool, StoreError> {
    let rows = pool.query(END_TENURE, &[&from_node(node), &from_node(me)]).await?;
    Ok(!rows.is_empty())
}

/// Reports a change whenever the session of another node has ended. Runs until it is dropped.
pub(super) async fn watch(pool: Arc<Pool>, me: NodeId, changed: Arc<Notify>) {
    let mut known = BTreeSet::new();
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        // While the server does not answer, nothing is known. The renewal reports that.
        let Ok(rows) = pool.query(ENDED, &[&from_node(me)]).await else { continue };
        let ended: BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        if !ended.is_subset(&known) {
            changed.notify_one();
        }
        known = ended;
    }
}
