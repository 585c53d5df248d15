//! Who should own which shard.
//!
//! Every node finds out by itself what it has to do, from what the store shows, by one rule: shards whose owner is gone
//! go to whoever has fewest; then whoever has two more than another gives one away. Where nodes have seen different
//! things, the store lets one of them win, and they look again.

use limina_store::{Epoch, Member, NodeId, ShardId, View};
use std::collections::BTreeMap;

/// Something that a node does about a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Take a shard that nobody serves.
    Claim {
        /// Which.
        shard: ShardId,
        /// The epoch at which it was seen so.
        seen: Epoch,
    },
    /// Give a shard away.
    Give {
        /// Which.
        shard: ShardId,
        /// To whom; to nobody if there is no other node.
        to: Option<NodeId>,
    },
}

/// What this node has to do.
pub fn plan(view: &View, me: NodeId) -> Vec<Move> {
    let mut shares = Shares::of(view);
    let mut moves = Vec::new();
    let mut is_settled = true;
    let is_live = |id: NodeId| view.members.iter().any(|member| member.id == id && member.is_live);
    for holding in &view.shards {
        let owner = holding.owner.filter(|owner| is_live(*owner));
        is_settled &= owner.is_some_and(|owner| shares.0.contains_key(&owner));
        match owner {
            None => {
                if shares.deal(holding.shard) == Some(me) {
                    moves.push(Move::Claim { shard: holding.shard, seen: holding.epoch });
                }
            }
            // Whoever leaves gives its shards away itself.
            Some(owner) if !shares.0.contains_key(&owner) => {
                let to = shares.deal(holding.shard);
                if owner == me {
                    moves.push(Move::Give { shard: holding.shard, to });
                }
            }
            Some(_) => {}
        }
    }
    // While some are still on their way, the shares change by themselves.
    if is_settled {
        moves.extend(shares.level(me).map(|(shard, to)| Move::Give { shard, to: Some(to) }));
    }
    moves
}

/// What each node that stays has.
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

    /// Who has fewest gets it.
    fn deal(&mut self, shard: ShardId) -> Option<NodeId> {
        let (id, share) = self.0.iter_mut().min_by_key(|(_, share)| share.len())?;
        share.push(shard);
        Some(*id)
    }

    /// What a node gives away, and to whom, until nobody has two more than another.
    fn level(&mut self, me: NodeId) -> impl Iterator<Item = (ShardId, NodeId)> {
        std::iter::from_fn(move || {
            loop {
                let (from, most) = self.0.iter().max_by_key(|(_, share)| share.len())?;
                let (_, fewest) = self.0.iter().min_by_key(|(_, share)| share.len())?;
                if most.len() < fewest.len() + 2 {
                    return None;
                }
                let from = *from;
                let shard = self.0.get_mut(&from)?.pop()?;
                let to = self.deal(shard)?;
                if from == me {
                    return Some((shard, to));
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_store::ShardRow;
    use std::time::Duration;

    /// Members as "a b- c!" (`-` is dead, `!` leaves), owners of the shards as "aab." (`.` is nobody).
    fn view(members: &str, owners: &str) -> View {
        let id = |word: &str| NodeId(u64::from(word.as_bytes()[0]));
        let members = members.split_whitespace().map(|word| Member {
            id: id(word),
            address: String::new(),
            host: String::new(),
            age: Duration::ZERO,
            is_live: !word.ends_with('-'),
            expires_in: Duration::ZERO,
            is_leaving: word.ends_with('!'),
        });
        let owner = |letter: char| (letter != '.').then(|| id(&letter.to_string()));
        let shards = owners.chars().enumerate().map(|(shard, letter)| ShardRow {
            shard: ShardId(shard as u16),
            epoch: Epoch(7),
            owner: owner(letter),
            handed: None,
        });
        View { members: members.collect(), shards: shards.collect() }
    }

    /// What all nodes do, as "a+3 b2>c": `a` takes 3, `b` gives 2 to `c`.
    #[track_caller]
    fn check(members: &str, owners: &str, expect: &str) {
        let view = view(members, owners);
        let letter = |id: NodeId| char::from(id.0 as u8);
        let mut moves = Vec::new();
        for me in view.members.iter().filter(|member| member.is_live).map(|member| member.id) {
            moves.extend(plan(&view, me).into_iter().map(|step| match step {
                Move::Claim { shard, .. } => format!("{}+{}", letter(me), shard.0),
                Move::Give { shard, to } => format!("{}{}>{}", letter(me), shard.0, to.map_or('.', letter)),
            }));
        }
        assert_eq!(moves.join(" "), expect, "{members} with {owners}");
    }

    #[test]
    fn shards_without_an_owner_go_to_whoever_has_fewest() {
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
    fn whoever_leaves_gives_everything_away() {
        check("a! b c", "aabc", "a0>b a1>c");
        check("a!", "aa", "a0>. a1>.");
        check("a! b", "aab", "a0>b a1>b");
    }

    #[test]
    fn nothing_is_levelled_while_shards_are_taken() {
        check("a b", "aaaa.", "b+4");
    }
}
