//! Decides which shards a node opens, claims and gives away. No IO: the simulator runs this code too.
//!
//! [`OwnershipPlanner`] gets each view that the store shows, and returns the actions that [`crate::Node`] carries out.
//!
//! A planned move has three steps. All nodes plan by the same rule, so the next owner of a shard knows that it will get the shard:
//! it reads the shard while the owner serves it ([`OwnershipAction::Prepare`]), and announces that it has. Then the owner closes the
//! shard and gives it away. An owner does not wait for a next owner that makes no progress.

use crate::placement::{Move, plan};
use limina_store::{Epoch, HandOver, Member, NodeId, ShardId, ShardRow, View};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The most shards that are closed at a time. A closed shard is unavailable until its next owner serves it, and two next owners at
/// work at the same time would delay each other's shards. The others are served meanwhile.
const MAX_CLOSING: usize = 1;
/// The most shards that this node prepares, or has prepared, at a time. They take memory. Others follow when some of these are served.
const MAX_PREPARED: usize = 4;
/// How long a node waits for the next owner of a shard to prepare any shard. Then shards move unprepared.
const PREPARATION_PATIENCE: Duration = Duration::from_secs(5);
/// How long a node that leaves waits for all preparations together: a supervisor may kill a process that takes long to stop.
const LEAVING_PATIENCE: Duration = Duration::from_secs(15);

/// The decisions of one node about its shards.
#[derive(Debug)]
pub struct OwnershipPlanner {
    me: NodeId,
    tenure: Duration,
    is_leaving: bool,
    /// No shard is claimed before this time.
    claims_from: Duration,
    renewed_at: Option<Duration>,
    view: View,
    /// The shards that are being opened, served or closed here, and whether they are to be closed.
    running: BTreeMap<ShardId, bool>,
    /// The shards that failed here. This node never opens them again.
    failed: BTreeSet<ShardId>,
    /// The nodes whose addresses are being tried.
    probed: BTreeSet<NodeId>,
    /// The shards of other nodes that are being prepared here, or are prepared, each with its owner's epoch.
    prepared: BTreeMap<ShardId, Epoch>,
    /// For each node that is to get shards of this one, the shards that it had prepared, and since when these are the same.
    awaited: BTreeMap<NodeId, (Vec<ShardId>, Duration)>,
    /// The first view after this node began to leave.
    leaving_since: Option<Duration>,
}

/// A shard that no live node owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnownedShard {
    /// The shard.
    pub shard: ShardId,
    /// Its epoch in the view.
    pub seen: Epoch,
    /// The previous owner, if there is one.
    pub from: Option<NodeId>,
}

/// What the node must do. Actions must be carried out in the order in which they are returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnershipAction {
    /// Open a shard that this node owns, and serve it until [`OwnershipAction::Close`], or until another node turns out to own
    /// it. Then call [`OwnershipPlanner::ended`].
    Open {
        /// The shard to open.
        shard: ShardId,
        /// The last owner's shard time, if it handed the shard to this node. None if the shard was not served for a while.
        handed: Option<HandOver>,
    },
    /// Claim shards that no live node owns, in one call. Call [`OwnershipPlanner::claimed`] for each one that this node gets.
    Claim {
        /// The shards to claim.
        shards: Vec<UnownedShard>,
    },
    /// Find out whether a process listens at the address of a node whose session with the store has ended, and call
    /// [`OwnershipPlanner::handle_probe`].
    Probe {
        /// The node.
        node: NodeId,
    },
    /// End the tenure of a node that has died, so that its shards can be claimed at once.
    EndTenure {
        /// The node.
        node: NodeId,
    },
    /// Read a shard that its owner will give to this node, and announce when that is done. Until then, and until
    /// [`OwnershipAction::Open`], follow what the owner writes.
    Prepare {
        /// The shard to prepare.
        shard: ShardId,
        /// The owner's epoch.
        epoch: Epoch,
    },
    /// Drop what was read of a shard that this node will not get.
    Discard {
        /// The shard that was being prepared.
        shard: ShardId,
    },
    /// Find out whether this node still owns a shard that it serves.
    CheckOwnership {
        /// The shard to check.
        shard: ShardId,
    },
    /// Answer the accepted requests, give the shard away, wait until it is served there, and call [`OwnershipPlanner::ended`].
    Close {
        /// The shard to close.
        shard: ShardId,
        /// The next owner. None if there is no other node.
        to: Option<NodeId>,
    },
    /// Forward requests for a shard that another node owns to that node.
    Place {
        /// The shard.
        shard: ShardId,
        /// The owner, if it is alive. If there is none, requests wait.
        at: Option<NodeId>,
    },
}

impl OwnershipPlanner {
    /// A node without shards. Each renewal of its tenure lasts for `tenure`.
    pub fn new(me: NodeId, tenure: Duration) -> OwnershipPlanner {
        OwnershipPlanner {
            me,
            tenure,
            is_leaving: false,
            claims_from: Duration::ZERO,
            renewed_at: None,
            view: View::default(),
            running: BTreeMap::new(),
            failed: BTreeSet::new(),
            probed: BTreeSet::new(),
            prepared: BTreeMap::new(),
            awaited: BTreeMap::new(),
            leaving_since: None,
        }
    }

    /// The last view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The node leaves: from now on it gives all of its shards away.
    pub fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Whether [`OwnershipPlanner::leave`] was called.
    pub fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Whether the node leaves and serves no shard any more.
    pub fn has_left(&self) -> bool {
        self.is_leaving && self.running.is_empty()
    }

    /// Decides what to do about a view of the store. `now` is the time of a monotonic clock. `is_open` tells which shards this
    /// node serves.
    pub fn handle_view(
        &mut self,
        now: Duration,
        view: View,
        is_open: impl Fn(ShardId) -> bool,
    ) -> Vec<OwnershipAction> {
        // If this node could not reach the store for longer than a tenure, the other nodes probably could not either.
        // Their expired tenures prove nothing yet, so claim no shard for one more tenure.
        if self.renewed_at.is_some_and(|at| now.saturating_sub(at) > self.tenure) {
            self.claims_from = now + self.tenure;
        }
        self.renewed_at = Some(now);
        self.view = view;
        let mut acts = Vec::new();
        let is_cut_off = |member: &&Member| member.is_live && !member.is_connected && member.id != self.me;
        for node in self.view.members.iter().filter(is_cut_off).map(|member| member.id) {
            if self.probed.insert(node) {
                acts.push(OwnershipAction::Probe { node });
            }
        }
        for holding in self.view.shards.clone() {
            let shard = holding.shard;
            match (self.running.get(&shard), holding.owner == Some(self.me)) {
                (Some(false), true) if self.view.went_back.contains(&shard) => {
                    acts.push(OwnershipAction::CheckOwnership { shard });
                }
                (Some(_), true) | (Some(true), false) => {}
                // Another node may have claimed it while this node's tenure had expired. The store knows.
                (Some(false), false) => acts.push(OwnershipAction::CheckOwnership { shard }),
                // When this node has left, another node claims it.
                (None, true) if self.failed.contains(&shard) => {}
                (None, true) => {
                    acts.push(self.open(shard, holding.handed));
                }
                (None, false) => acts.push(OwnershipAction::Place { shard, at: self.live(holding.owner) }),
            }
        }
        let moves = plan(&self.view);
        self.await_preparations(now, &moves);
        self.prepare(&moves, &mut acts);
        let mut claims = Vec::new();
        for step in moves.into_iter().filter(|(node, _)| *node == self.me).map(|(_, step)| step) {
            match step {
                Move::Claim { shard, .. } if now < self.claims_from || self.failed.contains(&shard) => {}
                Move::Claim { shard, seen } => {
                    let from = self.view.shards.iter().find(|holding| holding.shard == shard);
                    claims.push(UnownedShard { shard, seen, from: from.and_then(|holding| holding.owner) });
                }
                // A shard that is being opened is given away only after that, unless the node leaves. Shards beyond the bound
                // follow with a later view, and so do shards that are not prepared yet.
                Move::Give { shard, to } => {
                    let closing = self.running.values().filter(|is_closing| **is_closing).count();
                    if closing < MAX_CLOSING
                        && (self.is_leaving || is_open(shard))
                        && to.is_none_or(|to| self.may_give(now, shard, to))
                        && let Some(is_closing) = self.running.get_mut(&shard)
                        && !std::mem::replace(is_closing, true)
                    {
                        acts.push(OwnershipAction::Close { shard, to });
                    }
                }
            }
        }
        if !claims.is_empty() {
            acts.push(OwnershipAction::Claim { shards: claims });
        }
        acts
    }

    /// Notes which of the nodes that are to get shards make progress.
    fn await_preparations(&mut self, now: Duration, moves: &[(NodeId, Move)]) {
        if self.is_leaving {
            self.leaving_since.get_or_insert(now);
        }
        let next_owners: BTreeSet<NodeId> = moves
            .iter()
            .filter_map(|(node, step)| match step {
                Move::Give { to, .. } if *node == self.me => *to,
                Move::Give { .. } | Move::Claim { .. } => None,
            })
            .collect();
        self.awaited.retain(|node, _| next_owners.contains(node));
        for node in next_owners {
            let prepared = prepared_by(&self.view, node);
            let (known, since) = self.awaited.entry(node).or_insert_with(|| (prepared.to_vec(), now));
            if known != prepared {
                (*known, *since) = (prepared.to_vec(), now);
            }
        }
    }

    /// Whether the next owner has prepared a shard, or need not be waited for.
    fn may_give(&self, now: Duration, shard: ShardId, to: NodeId) -> bool {
        let is_over = |since: Duration, patience| now.saturating_sub(since) >= patience;
        prepared_by(&self.view, to).contains(&shard)
            || self.leaving_since.is_some_and(|since| is_over(since, LEAVING_PATIENCE))
            || self.awaited.get(&to).is_some_and(|(_, since)| is_over(*since, PREPARATION_PATIENCE))
    }

    /// Begins to prepare shards that this node will get, and drops the others. If the epoch of a shard has changed, what was read of it
    /// may be outdated.
    fn prepare(&mut self, moves: &[(NodeId, Move)], acts: &mut Vec<OwnershipAction>) {
        let is_given = |shard: ShardId| {
            let give = Move::Give { shard, to: Some(self.me) };
            moves.iter().any(|(node, step)| *node != self.me && *step == give)
        };
        let may_run = |shard| !self.failed.contains(&shard) && !self.running.contains_key(&shard);
        let wanted = self.view.shards.iter().filter(|row| may_run(row.shard) && is_given(row.shard));
        let wanted: BTreeMap<ShardId, Epoch> = wanted.map(|row| (row.shard, row.epoch)).collect();
        self.prepared.retain(|shard, epoch| {
            let is_wanted = wanted.get(shard) == Some(epoch);
            if !is_wanted {
                acts.push(OwnershipAction::Discard { shard: *shard });
            }
            is_wanted
        });
        for (shard, epoch) in wanted {
            if self.prepared.len() < MAX_PREPARED && self.prepared.insert(shard, epoch).is_none() {
                acts.push(OwnershipAction::Prepare { shard, epoch });
            }
        }
    }

    /// A node's address was tried. `is_refused` means that its machine answers, and that no process listens there. If the store
    /// also knows that the node's session has ended, the node's process has ended. Otherwise a later view leads to another try,
    /// or the tenure expires.
    pub fn handle_probe(&mut self, node: NodeId, is_refused: bool) -> Option<OwnershipAction> {
        self.probed.remove(&node);
        is_refused.then_some(OwnershipAction::EndTenure { node })
    }

    /// A claim succeeded. Returns whether the shard is to be opened now. If a view has shown the claim before, that was ordered already.
    pub fn claimed(&mut self, shard: ShardId) -> bool {
        let is_new = !self.running.contains_key(&shard);
        if is_new {
            self.open(shard, None);
        }
        is_new
    }

    /// This node no longer serves the shard.
    pub fn ended(&mut self, shard: ShardId) {
        self.running.remove(&shard);
    }

    /// The task of a shard has failed. This node does not open the shard again, even if another node gives it back.
    pub fn failed(&mut self, shard: ShardId) {
        self.running.remove(&shard);
        self.failed.insert(shard);
    }

    fn open(&mut self, shard: ShardId, handed: Option<HandOver>) -> OwnershipAction {
        self.running.insert(shard, false);
        self.prepared.remove(&shard);
        OwnershipAction::Open { shard, handed }
    }

    /// Returns `node` if it is alive and not this node.
    fn live(&self, node: Option<NodeId>) -> Option<NodeId> {
        let is_live = |id: NodeId| self.view.members.iter().any(|member| member.id == id && member.is_live);
        node.filter(|node| *node != self.me && is_live(*node))
    }
}

/// The shards that a node has announced to be prepared.
fn prepared_by(view: &View, node: NodeId) -> &[ShardId] {
    let member = view.members.iter().find(|member| member.id == node);
    member.map_or(&[], |member| &member.prepared)
}

/// Whether a renewal that shows this view extends the tenure: node `me` is alive in it, and owns every shard that it serves,
/// each under the epoch in `serving`, and the store has lost nothing of them. A node whose tenure had expired may still have shards in memory that others have
/// claimed, and must not answer from them.
pub fn is_current(view: &View, me: NodeId, serving: impl IntoIterator<Item = (ShardId, Epoch)>) -> bool {
    let is_known = view.members.iter().any(|member| member.id == me && member.is_live);
    is_known
        && serving.into_iter().all(|(shard, epoch)| {
            let is_same = |holding: &&ShardRow| holding.shard == shard && holding.epoch == epoch;
            !view.went_back.contains(&shard)
                && view.shards.iter().find(is_same).is_some_and(|holding| holding.owner == Some(me))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const SHARD: ShardId = ShardId(0);
    const NOW: Duration = Duration::from_secs(100);
    const HANDED: HandOver = HandOver { shard_time_ms: 7, ago: Duration::ZERO };

    fn view(owner: Option<NodeId>, is_handed: bool, is_leaving: bool) -> View {
        let member = |id: NodeId, is_leaving| Member {
            id,
            address: id.to_string(),
            host: String::new(),
            age: NOW,
            is_live: true,
            is_connected: true,
            expires_in: NOW,
            is_leaving,
            certificate: None,
            prepared: vec![SHARD],
        };
        View {
            members: vec![member(ME, is_leaving), member(OTHER, false)],
            shards: vec![ShardRow {
                shard: SHARD,
                epoch: Epoch(3),
                owner,
                handed: is_handed.then_some(HANDED),
            }],
            went_back: Vec::new(),
        }
    }

    #[test]
    fn a_shard_is_claimed_lost_handed_back_and_given_away() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        let closed = |_| false;
        let open = |_| true;
        let unowned = UnownedShard { shard: SHARD, seen: Epoch(3), from: None };
        let claim = OwnershipAction::Claim { shards: vec![unowned] };
        let place = |at| OwnershipAction::Place { shard: SHARD, at };
        assert_eq!(planner.handle_view(NOW, view(None, false, false), closed), [place(None), claim]);
        assert!(planner.claimed(SHARD));
        assert!(!planner.claimed(SHARD), "once");
        assert_eq!(planner.handle_view(NOW, view(Some(ME), false, false), closed), [], "it is being opened");

        // The store shows another owner: the shard's task must check.
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

    /// Its epoch may be the same as before.
    #[test]
    fn a_shard_of_which_the_store_has_lost_something_is_checked() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        planner.handle_view(NOW, view(Some(ME), false, false), |_| false);
        let back = View { went_back: vec![SHARD], ..view(Some(ME), false, false) };
        let check = OwnershipAction::CheckOwnership { shard: SHARD };
        assert_eq!(planner.handle_view(NOW, back, |_| true), [check]);
        assert_eq!(planner.handle_view(NOW, view(Some(ME), false, false), |_| true), []);
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

    /// A view in which this node owns two shards more than the other one, which has prepared these.
    fn uneven(owner: NodeId, prepared: &[u16], epoch: u64) -> View {
        let mut view = view(Some(owner), false, false);
        let other = view.members.iter_mut().find(|member| member.id != owner).expect("there are two");
        other.prepared = prepared.iter().copied().map(ShardId).collect();
        let row =
            |shard| ShardRow { shard: ShardId(shard), epoch: Epoch(epoch), owner: Some(owner), handed: None };
        view.shards = (0..2).map(row).collect();
        view
    }

    #[test]
    fn a_shard_is_given_away_when_its_next_owner_has_prepared_it() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        planner.handle_view(NOW, uneven(ME, &[], 3), |_| false);
        let close = OwnershipAction::Close { shard: ShardId(1), to: Some(OTHER) };
        assert_eq!(planner.handle_view(NOW, uneven(ME, &[], 3), |_| true), []);
        assert_eq!(planner.handle_view(NOW, uneven(ME, &[0], 3), |_| true), [], "that one stays");
        assert_eq!(planner.handle_view(NOW, uneven(ME, &[0, 1], 3), |_| true), [close]);
    }

    #[test]
    fn a_next_owner_that_makes_no_progress_gets_its_shards_unprepared() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        planner.handle_view(NOW, uneven(ME, &[], 3), |_| false);
        let mut gives = |after: Duration, prepared: &[u16]| {
            !planner.handle_view(NOW + after, uneven(ME, prepared, 3), |_| true).is_empty()
        };
        let nearly = PREPARATION_PATIENCE - Duration::from_millis(1);
        assert!(!gives(nearly, &[]));
        assert!(!gives(nearly, &[0]), "it has prepared another one");
        assert!(!gives(PREPARATION_PATIENCE + nearly / 2, &[0]));
        assert!(gives(nearly + PREPARATION_PATIENCE, &[0]));
    }

    #[test]
    fn a_node_that_leaves_does_not_wait_for_ever() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(60));
        planner.handle_view(NOW, uneven(ME, &[], 3), |_| false);
        planner.leave();
        let mut closed = 0;
        for half_seconds in 0..=2 * LEAVING_PATIENCE.as_secs() {
            // The other node seems to make progress all the time, but with shards that it does not get.
            let mut view = uneven(ME, &[20 + half_seconds as u16], 3);
            view.members[0].is_leaving = true;
            let now = NOW + Duration::from_millis(500 * half_seconds);
            assert_eq!(closed, 0, "after {half_seconds} half seconds");
            closed += planner.handle_view(now, view, |_| true).len();
        }
        assert_eq!(closed, 1);
    }

    #[test]
    fn a_node_prepares_the_shards_that_it_will_get() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        let place = |shard| OwnershipAction::Place { shard: ShardId(shard), at: Some(OTHER) };
        let shard = ShardId(1);
        let prepare = |epoch| OwnershipAction::Prepare { shard, epoch: Epoch(epoch) };
        let discard = || OwnershipAction::Discard { shard };
        let mut acts = |view| planner.handle_view(NOW, view, |_| false);
        assert_eq!(acts(uneven(OTHER, &[], 3)), [place(0), place(1), prepare(3)]);
        assert_eq!(acts(uneven(OTHER, &[1], 3)), [place(0), place(1)], "once");
        assert_eq!(
            acts(uneven(OTHER, &[1], 4)),
            [place(0), place(1), discard(), prepare(4)],
            "it was taken again"
        );
        let mut given = uneven(OTHER, &[1], 5);
        given.shards[1].owner = Some(ME);
        assert_eq!(acts(given), [place(0), OwnershipAction::Open { shard, handed: None }]);
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        planner.handle_view(NOW, uneven(OTHER, &[], 3), |_| false);
        let mut alone = uneven(OTHER, &[], 3);
        alone.members.retain(|member| member.id == OTHER);
        assert_eq!(planner.handle_view(NOW, alone, |_| false), [place(0), place(1), discard()]);
    }

    /// A lost session alone proves nothing: the node may have lost its connection.
    #[test]
    fn the_tenure_of_a_node_that_has_died_is_ended() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        let probes = |planner: &mut OwnershipPlanner, is_live, is_connected| {
            let mut view = view(Some(OTHER), false, false);
            (view.members[1].is_live, view.members[1].is_connected) = (is_live, is_connected);
            let acts = planner.handle_view(NOW, view, |_| false);
            acts.contains(&OwnershipAction::Probe { node: OTHER })
        };
        assert!(!probes(&mut planner, true, true));
        assert!(!probes(&mut planner, false, true), "its tenure has expired");
        assert!(probes(&mut planner, true, false));
        assert!(!probes(&mut planner, true, false), "it is being probed");
        assert_eq!(planner.handle_probe(OTHER, false), None, "it listens");
        assert!(probes(&mut planner, true, false), "it may have died since");
        assert_eq!(planner.handle_probe(OTHER, true), Some(OwnershipAction::EndTenure { node: OTHER }));
    }

    #[test]
    fn after_an_outage_the_others_have_time_to_come_back() {
        let mut planner = OwnershipPlanner::new(ME, Duration::from_secs(5));
        let mut claims = |seconds: u64| {
            let acts = planner.handle_view(Duration::from_secs(seconds), view(None, false, false), |_| false);
            acts.iter().any(|act| matches!(act, OwnershipAction::Claim { .. }))
        };
        assert!(claims(100), "a new node claims shards without an owner");
        assert!(claims(105));
        assert!(!claims(111), "this node itself could not reach the store");
        assert!(!claims(115));
        assert!(claims(116));
    }

    #[test]
    fn a_renewal_counts_only_if_it_shows_all_served_shards() {
        #[track_caller]
        fn check(view: &View, serving: &[u64], expect: bool) {
            let serving = serving.iter().map(|epoch| (SHARD, Epoch(*epoch)));
            assert_eq!(is_current(view, ME, serving), expect);
        }
        let mine = view(Some(ME), false, false);
        check(&mine, &[], true);
        check(&mine, &[3], true);
        check(&mine, &[4], false);
        check(&View { went_back: vec![SHARD], ..mine.clone() }, &[3], false);
        check(&view(Some(OTHER), false, false), &[3], false);
        check(&view(None, false, false), &[], true);
        // Another node has this one's address: nothing was renewed.
        let mut other = view(Some(ME), false, false);
        other.members.remove(0);
        check(&other, &[3], false);
    }
}
