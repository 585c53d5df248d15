//! Which node should own which shard.
//!
//! Every node computes its own moves from the view that the store shows, by the same rule. A shard whose owner is not alive
//! goes to the node with the fewest shards. After that, a node that has at least two shards more than another gives one
//! away. If nodes act on different views, the store lets only one of them succeed, and the others look again.

use limina_store::{Epoch, Member, NodeId, ShardId, View};
use std::collections::BTreeMap;

/// One change of ownership that a node makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Claim a shard whose owner is not alive.
    Claim {
        /// The shard to claim.
        shard: ShardId,
        /// The shard's epoch in the view. The claim fails if it has changed since.
        seen: Epoch,
    },
    /// Give a shard away.
    Give {
        /// The shard to give away.
        shard: ShardId,
        /// The next owner. None if there is no other node.
        to: Option<NodeId>,
    },
}

/// The moves of all nodes, each with the node that makes it. So a node also knows which shards other nodes will give it.
pub fn plan(view: &View) -> Vec<(NodeId, Move)> {
    let mut shares = Shares::of(view);
    let mut moves = Vec::new();
    let mut is_settled = true;
    let is_live = |id: NodeId| view.members.iter().any(|member| member.id == id && member.is_live);
    for holding in &view.shards {
        let owner = holding.owner.filter(|owner| is_live(*owner));
        is_settled &= owner.is_some_and(|owner| shares.0.contains_key(&owner));
        match owner {
            None => {
                let claim = Move::Claim { shard: holding.shard, seen: holding.epoch };
                moves.extend(shares.deal(holding.shard).map(|node| (node, claim)));
            }
            // A node that leaves gives its shards away itself.
            Some(owner) if !shares.0.contains_key(&owner) => {
                moves.push((owner, Move::Give { shard: holding.shard, to: shares.deal(holding.shard) }));
            }
            Some(_) => {}
        }
    }
    // While shards are still moving, the shares are about to change anyway.
    if is_settled {
        moves.extend(shares.level().map(|(from, shard, to)| (from, Move::Give { shard, to: Some(to) })));
    }
    moves
}

/// The shards of each node that is alive and does not leave.
struct Shares(BTreeMap<NodeId, Vec<ShardId>>);

impl Shares {
    fn of(view: &View) -> Shares {
        let stays = |member: &&Member| member.is_live && !member.is_leaving;
        let mut shares: BTreeMap<NodeId, Vec<ShardId>> =
            view.members.iter().filter(stays).map(|member| (member.id, Vec::new())).collect();
        for holding in &view.shards {
            if let Some(share) = holding.owner.and_then(|owner| shares.get_mut(&owner)) {
                share.push(holding.shard);
            }
        }
        Shares(shares)
    }

    /// Gives a shard to the node that has the fewest.
    fn deal(&mut self, shard: ShardId) -> Option<NodeId> {
        let (id, share) = self.0.iter_mut().min_by_key(|(_, share)| share.len())?;
        share.push(shard);
        Some(*id)
    }

    /// The shards that are given away, each with its owner and its next owner, until no node has two shards more than another.
    fn level(&mut self) -> impl Iterator<Item = (NodeId, ShardId, NodeId)> {
        std::iter::from_fn(move || {
            let (from, most) = self.0.iter().max_by_key(|(_, share)| share.len())?;
            let (_, fewest) = self.0.iter().min_by_key(|(_, share)| share.len())?;
            if most.len() < fewest.len() + 2 {
                return None;
            }
            let from = *from;
            let shard = self.0.get_mut(&from)?.pop()?;
            Some((from, shard, self.deal(shard)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_store::ShardRow;
    use std::time::Duration;

    /// Members as "a b- c!" (`-` is not alive, `!` leaves), owners of the shards as "aab." (`.` is no owner).
    fn view(members: &str, owners: &str) -> View {
        let id = |word: &str| NodeId(u64::from(word.as_bytes()[0]));
        let members = members.split_whitespace().map(|word| Member {
            id: id(word),
            address: String::new(),
            host: String::new(),
            age: Duration::ZERO,
            is_live: !word.ends_with('-'),
            is_connected: true,
            expires_in: Duration::ZERO,
            is_leaving: word.ends_with('!'),
            certificate: None,
            prepared: Vec::new(),
        });
        let owner = |letter: char| (letter != '.').then(|| id(&letter.to_string()));
        let shards = owners.chars().enumerate().map(|(shard, letter)| ShardRow {
            shard: ShardId(shard as u16),
            epoch: Epoch(7),
            owner: owner(letter),
            handed: None,
        });
        View { members: members.collect(), shards: shards.collect(), went_back: Vec::new() }
    }

    /// The moves of all nodes, as "a+3 b2>c": `a` claims shard 3, `b` gives shard 2 to `c`.
    #[track_caller]
    fn check(members: &str, owners: &str, expect: &str) {
        let view = view(members, owners);
        let letter = |id: NodeId| char::from(id.0 as u8);
        let mut moves = Vec::new();
        for me in view.members.iter().filter(|member| member.is_live).map(|member| member.id) {
            let mine = plan(&view).into_iter().filter(|(node, _)| *node == me);
            moves.extend(mine.map(|(_, step)| match step {
                Move::Claim { shard, .. } => format!("{}+{}", letter(me), shard.0),
                Move::Give { shard, to } => format!("{}{}>{}", letter(me), shard.0, to.map_or('.', letter)),
            }));
        }
        assert_eq!(moves.join(" "), expect, "{members} with {owners}");
    }

    #[test]
    fn shards_without_an_owner_go_to_the_node_with_the_fewest() {
        check("a", "...", "a+0 a+1 a+2");
        check("a b", "a...", "a+2 b+1 b+3");
        check("a b- c", "abbc", "a+1 c+2");
        check("a", "x", "a+0");
    }

    #[test]
    fn shares_are_levelled() {
        check("a b", "aaaa", "a3>b a2>b");
        check("a b c", "aaabbb", "a2>c b5>c");
        check("a b c", "aabbc", "");
        check("a b-", "aa", "");
    }

    #[test]
    fn a_node_that_leaves_gives_everything_away() {
        check("a! b c", "aabc", "a0>b a1>c");
        check("a!", "aa", "a0>. a1>.");
        check("a! b", "aab", "a0>b a1>b");
    }

    #[test]
    fn nothing_is_levelled_while_shards_are_taken() {
        check("a b", "aaaa.", "b+4");
        check("a b! c", "aaab", "b3>c");
    }
}
