//! Conversions of numbers to and from columns.

use crate::{NodeId, ShardId};

pub(super) fn from_shard(shard: ShardId) -> i32 {
    i32::from(shard.0)
}

pub(super) fn to_shard(id: i32) -> ShardId {
    ShardId(u16::try_from(id).expect("the schema was made with fewer shards"))
}

/// A seq or an epoch. In practice all fit; one that does not becomes a number that matches no row.
pub(super) fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).expect("it was counted up from 0")
}

/// Ids of nodes use all 64 bits.
pub(super) fn from_node(node: NodeId) -> i64 {
    node.0.cast_signed()
}

pub(super) fn to_node(id: i64) -> NodeId {
    NodeId(id.cast_unsigned())
}
