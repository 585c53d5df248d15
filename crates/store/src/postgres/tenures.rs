//! How long the tenures of other nodes last, as this node has seen them.
//!
//! A tenure expires by the database's clock. If that clock is set back, the tenure of a node that has died meanwhile seems to last longer
//! by that much, and nobody may claim the node's shards. A node that lives renews, and is not concerned. So if a node's tenure expires
//! later than it ever did before, another node shortens it to the longest span that it has seen.

use super::{pool::Pool, row::from_node};
use crate::{Member, NodeId, StoreError};
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The longest tenure that a node may have.
const MAX_TENURE: Duration = Duration::from_secs(60);
/// So many renewals of a node must have been seen before the length of its tenure is known.
const RENEWALS: u32 = 3;

const SHORTEN: &str = "
    UPDATE limina.node SET expires_at = now() + $2 * interval '1 second'
    WHERE id = $1 AND expires_at > now() + $3 * interval '1 second'";

/// What was seen of the tenures of other nodes.
#[derive(Debug, Default)]
pub(super) struct Tenures(Mutex<BTreeMap<NodeId, Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The last and the longest time until the tenure expires.
    last: Duration,
    longest: Duration,
    renewals: u32,
}

/// A tenure that expires later than any renewal can have set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TooLong {
    node: NodeId,
    /// How long the tenure may last from now on.
    shortened: Duration,
    /// It is shortened only if it lasts longer than this.
    plausible: Duration,
}

impl Tenures {
    /// Shortens tenures that the database's clock has made too long by being set back.
    pub(super) async fn check(&self, pool: &Pool, me: NodeId, members: &[Member]) -> Result<(), StoreError> {
        for TooLong { node, shortened, plausible } in self.find(me, members) {
            let (span, plausible) = (shortened.as_secs_f64(), plausible.as_secs_f64());
            pool.query(SHORTEN, &[&from_node(node), &span, &plausible]).await?;
            tracing::warn!(
                %node,
                tenure_ms = shortened.as_millis() as u64,
                "the clock of the database was set back: the tenure of a node would last too long, and is shortened"
            );
        }
        Ok(())
    }

    fn find(&self, me: NodeId, members: &[Member]) -> Vec<TooLong> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|id, _| members.iter().any(|member| member.id == *id));
        let others = members.iter().filter(|member| member.id != me);
        others.filter_map(|member| seen.entry(member.id).or_default().see(member)).collect()
    }
}

impl Seen {
    fn see(&mut self, member: &Member) -> Option<TooLong> {
        let span = if self.renewals < RENEWALS { MAX_TENURE } else { self.longest };
        let plausible = span * 3 / 2;
        if member.expires_in > plausible {
            return Some(TooLong { node: member.id, shortened: span, plausible });
        }
        self.renewals += u32::from(member.expires_in > self.last);
        self.last = member.expires_in;
        self.longest = self.longest.max(member.expires_in);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);

    fn member(id: NodeId, expires_in_ms: u64) -> Member {
        Member {
            id,
            address: id.to_string(),
            host: String::new(),
            age: Duration::ZERO,
            is_live: expires_in_ms > 0,
            is_connected: true,
            expires_in: Duration::from_millis(expires_in_ms),
            is_leaving: false,
            certificate: None,
            prepared: Vec::new(),
        }
    }

    /// Shows the other node with these times until its tenure expires. Returns what the last one is shortened to.
    fn check(shown: &[u64], expect: Option<u64>) {
        let tenures = Tenures::default();
        let mut found = Vec::new();
        for expires_in in shown {
            found = tenures.find(ME, &[member(ME, 1_000_000), member(OTHER, *expires_in)]);
        }
        let found: Vec<_> =
            found.iter().map(|found| (found.node, found.shortened.as_millis() as u64)).collect();
        assert_eq!(found, expect.map(|span| (OTHER, span)).into_iter().collect::<Vec<_>>(), "{shown:?}");
    }

    #[test]
    fn a_tenure_is_too_long_if_it_never_was_so_long() {
        let alive = [4_900, 4_100, 4_950, 4_200, 4_990, 4_000];
        check(&alive, None);
        check(&[&alive[..], &[0, 5_000]].concat(), None);
        check(&[&alive[..], &[3_000, 123_000]].concat(), Some(4_990));
        // Until enough renewals were seen, the longest permitted tenure counts.
        check(&[1_000, 60_000], None);
        check(&[123_000], Some(60_000));
        check(&[1_000, 4_900], None);
    }
}
