//! What a node does about its share of the shards, decided without IO, so that the simulator drives the very same code.
//!
//! [`OwnershipPlanner`] is shown what the store shows, and says what is to be done: [`crate::Node`] does it.

use crate::placement::{Move, plan};
use limina_store::{Epoch, Handed, Holding, NodeId, ShardId, View};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// So many shards are closed at a time: each is on its way to its next owner for as long as that takes to load it, and the
/// others are served meanwhile.
const CLOSED_AT_ONCE: usize = 4;

/// One node's part.
#[derive(Debug)]
pub struct OwnershipPlanner {
    me: NodeId,
    tenure: Duration,
    is_leaving: bool,
    /// Until when nothing is claimed.
    patient_until: Duration,
    renewed_at: Option<Duration>,
    view: View,
    /// The shards that are being opened, served or closed here, and whether they are to be closed.
    running: BTreeMap<ShardId, bool>,
    /// The shards that failed here. This node never opens them again.
    failed: BTreeSet<ShardId>,
}

/// What is to be done. The order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnershipAction {
    /// Open a shard that is ours and serve it, until [`OwnershipAction::Close`] or it turns out to be another's; then call
    /// [`OwnershipPlanner::ended`].
    Open {
        /// Which.
        shard: ShardId,
        /// What its last owner left, if it gave the shard to this node. Otherwise nobody served it for a while.
        handed: Option<Handed>,
    },
    /// Claim a shard that nobody serves, together with all others of which this is said at the same time; if that succeeds,
    /// call [`OwnershipPlanner::claimed`].
    Claim {
        /// Which.
        shard: ShardId,
        /// The epoch at which it was seen so.
        seen: Epoch,
        /// Whose it was.
        from: Option<NodeId>,
    },
    /// Find out whether a shard that is served here is still ours.
    CheckOwnership {
        /// Which.
        shard: ShardId,
    },
    /// Answer what was taken, give the shard away, and when it is served there, call [`OwnershipPlanner::ended`].
    Close {
        /// Which.
        shard: ShardId,
        /// To whom.
        to: Option<NodeId>,
    },
    /// Requests for a shard that is not here go to this node from now on, or wait.
    Place {
        /// Which.
        shard: ShardId,
        /// Where it is.
        at: Option<NodeId>,
    },
}

impl OwnershipPlanner {
    /// A node that has nothing yet, and renews for `tenure` each time.
    pub fn new(me: NodeId, tenure: Duration) -> OwnershipPlanner {
        OwnershipPlanner {
            me,
            tenure,
            is_leaving: false,
            patient_until: Duration::ZERO,
            renewed_at: None,
            view: View::default(),
            running: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// What was last seen.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// From now on everything is given away.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Whether that was said.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether this node has left: it has nothing any more.
    pub fn has_left(&self) -> bool {
        self.is_leaving && self.running.is_empty()
    }

    /// What the store shows, at `now` by a clock that never goes back. `is_open` tells which shards are served here.
    pub fn handle_view(
        &mut self,
        now: Duration,
        view: View,
        is_open: impl Fn(ShardId) -> bool,
    ) -> Vec<OwnershipAction> {
        // If this node could not reach the store for longer than a tenure, the other nodes probably could not either.
        // Their expired tenures prove nothing yet, so claim no shard for one more tenure.
        if self.renewed_at.is_some_and(|at| now.saturating_sub(at) > self.tenure) {
            self.patient_until = now + self.tenure;
        }
        self.renewed_at = Some(now);
        self.view = view;
        let mut acts = Vec::new();
        for holding in self.view.shards.clone() {
            let shard = holding.shard;
            match (self.running.get(&shard), holding.owner == Some(self.me)) {
                (Some(_), true) | (Some(true), false) => {}
                // It may have been taken away while this node was thought dead. The store tells.
                (Some(false), false) => acts.push(OwnershipAction::CheckOwnership { shard }),
                // When this node leaves, another node may claim it.
                (None, true) if self.failed.contains(&shard) => {}
                (None, true) => {
                    acts.push(self.open(shard, holding.handed));
                }
                (None, false) => acts.push(OwnershipAction::Place { shard, at: self.live(holding.owner) }),
            }
        }
        for step in plan(&self.view, self.me) {
            match step {
                Move::Claim { shard, .. } if now < self.patient_until || self.failed.contains(&shard) => {}
                Move::Claim { shard, seen } => {
                    let from = self.view.shards.iter().find(|holding| holding.shard == shard);
                    acts.push(OwnershipAction::Claim {
                        shard,
                        seen,
                        from: from.and_then(|holding| holding.owner),
                    });
                }
                // One that is still being opened stays until it is, unless everything goes. The rest has its turn later.
                Move::Give { shard, to } => {
                    let closing = self.running.values().filter(|is_closing| **is_closing).count();
                    if closing < CLOSED_AT_ONCE
                        && (self.is_leaving || is_open(shard))
                        && let Some(is_closing) = self.running.get_mut(&shard)
                        && !std::mem::replace(is_closing, true)
                    {
                        acts.push(OwnershipAction::Close { shard, to });
                    }
                }
            }
        }
        acts
    }

    /// A claim succeeded. If the store has shown it before, there is nothing more to do.
    pub fn claimed(&mut self, shard: ShardId) -> Option<OwnershipAction> {
        (!self.running.contains_key(&shard)).then(|| self.open(shard, None))
    }

    /// A shard is served here no longer.
    pub fn ended(&mut self, shard: ShardId) {
        self.running.remove(&shard);
    }

    /// A shard that was served here has failed. It is not opened here again, also if it is given to this node.
    pub fn failed(&mut self, shard: ShardId) {
        self.running.remove(&shard);
        self.failed.insert(shard);
    }

    fn open(&mut self, shard: ShardId, handed: Option<Handed>) -> OwnershipAction {
        self.running.insert(shard, false);
        OwnershipAction::Open { shard, handed }
    }

    /// A node, if it is alive and not this one.
    fn live(&self, node: Option<NodeId>) -> Option<NodeId> {
        let is_live = |id: NodeId| self.view.members.iter().any(|member| member.id == id && member.is_live);
        node.filter(|node| *node != self.me && is_live(*node))
    }
}

/// Whether a renewal that shows this view counts: nobody else had one of the shards that `me` serves, each under its epoch. A
/// node that was thought dead may still have some in memory that were taken from it, and must not answer from there.
pub fn is_current(view: &View, me: NodeId, serving: impl IntoIterator<Item = (ShardId, Epoch)>) -> bool {
    let is_known = view.members.iter().any(|member| member.id == me && member.is_live);
    is_known
        && serving.into_iter().all(|(shard, epoch)| {
            let is_it = |holding: &&Holding| holding.shard == shard && holding.epoch == epoch;
            view.shards.iter().find(is_it).is_some_and(|holding| holding.owner == Some(me))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_store::Member;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const SHARD: ShardId = ShardId(0);
    const NOW: Duration = Duration::from_secs(100);
    const HANDED: Handed = Handed { shard_time_ms: 7, ago: Duration::ZERO };

    fn view(owner: Option<NodeId>, is_handed: bool, is_leaving: bool) -> View {
        let member = |id: NodeId, is_leaving| Member {
            id,
            address: id.to_string(),
            host: String::new(),
            age: NOW,
            is_live: true,
            expires_in: NOW,
            is_leaving,
        };
        View {
            members: vec![member(ME, is_leaving), member(OTHER, false)],
            shards: vec![Holding {
                shard: SHARD,
                epoch: Epoch(3),
                owner,
                handed: is_handed.then_some(HANDED),
            }],
        }
    }

    #[test]
    fn a_shard_comes_and_goes() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        let closed = |_| false;
        let open = |_| true;
        let claim = OwnershipAction::Claim { shard: SHARD, seen: Epoch(3), from: None };
        let place = |at| OwnershipAction::Place { shard: SHARD, at };
        assert_eq!(planner.handle_view(NOW, view(None, false, false), closed), [place(None), claim]);
        assert_eq!(planner.claimed(SHARD), Some(OwnershipAction::Open { shard: SHARD, handed: None }));
        assert_eq!(planner.claimed(SHARD), None, "once");
        assert_eq!(planner.handle_view(NOW, view(Some(ME), false, false), closed), [], "it is being opened");

        // Another node has it, says the store: whoever serves it looks.
        assert_eq!(
            planner.handle_view(NOW, view(Some(OTHER), false, false), open),
            [OwnershipAction::CheckOwnership { shard: SHARD }]
        );
        planner.ended(SHARD);
        assert_eq!(planner.handle_view(NOW, view(Some(OTHER), false, false), closed), [place(Some(OTHER))]);

        // It is handed back.
        let handed = OwnershipAction::Open { shard: SHARD, handed: Some(HANDED) };
        assert_eq!(planner.handle_view(NOW, view(Some(ME), true, false), closed), [handed]);
        planner.leave();
        let close = OwnershipAction::Close { shard: SHARD, to: Some(OTHER) };
        assert_eq!(planner.handle_view(NOW, view(Some(ME), true, true), open), [close]);
        assert_eq!(planner.handle_view(NOW, view(Some(ME), true, true), open), [], "once");
        assert!(!planner.has_left());
        planner.ended(SHARD);
        assert!(planner.has_left());
    }

    #[test]
    fn a_shard_that_failed_here_is_never_opened_here_again() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        let closed = |_| false;
        let opened = planner.handle_view(NOW, view(Some(ME), false, false), closed);
        assert_eq!(opened, [OwnershipAction::Open { shard: SHARD, handed: None }]);
        planner.failed(SHARD);
        let place = |at| OwnershipAction::Place { shard: SHARD, at };
        assert_eq!(planner.handle_view(NOW, view(Some(ME), false, false), closed), []);
        assert_eq!(planner.handle_view(NOW, view(None, false, false), closed), [place(None)], "no claim");
        assert_eq!(planner.handle_view(NOW, view(Some(OTHER), false, false), closed), [place(Some(OTHER))]);
        assert_eq!(planner.handle_view(NOW, view(Some(ME), true, false), closed), [], "it was given back");
        planner.leave();
        assert!(planner.has_left(), "it does not hold up the stop");
    }

    #[test]
    fn after_an_outage_the_others_have_time_to_come_back() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        let mut claims = |seconds: u64| {
            let acts = planner.handle_view(Duration::from_secs(seconds), view(None, false, false), |_| false);
            acts.iter().any(|act| matches!(act, OwnershipAction::Claim { .. }))
        };
        assert!(claims(100), "a node that comes takes what nobody has");
        assert!(claims(105));
        assert!(!claims(111), "it was away itself");
        assert!(!claims(115));
        assert!(claims(116));
    }

    #[test]
    fn a_renewal_counts_only_if_it_shows_what_is_served() {
        #[track_caller]
        fn check(view: &View, serving: &[u64], expect: bool) {
            let serving = serving.iter().map(|epoch| (SHARD, Epoch(*epoch)));
            assert_eq!(is_current(view, ME, serving), expect);
        }
        let mine = view(Some(ME), false, false);
        check(&mine, &[], true);
        check(&mine, &[3], true);
        check(&mine, &[4], false);
        check(&view(Some(OTHER), false, false), &[3], false);
        check(&view(None, false, false), &[], true);
        // Another node has this one's address: nothing was renewed.
        let mut other = view(Some(ME), false, false);
        other.members.remove(0);
        check(&other, &[3], false);
    }
}
