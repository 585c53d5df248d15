//! Which shard a namespace lives in.

use limina_store::ShardId;

/// The shard of a namespace. It must never change for a data directory or cluster once made: FNV-1a over the name's
/// bytes, modulo the number of shards.
pub fn shard_of(namespace: &str, shards: u16) -> ShardId {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = namespace.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The low bits of FNV are weak for short names; the high ones take part too.
    ShardId(((hash ^ (hash >> 32)) % u64::from(shards)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_stays_where_it_is() {
        // These values are stored data: if this test fails, every existing directory is unreadable.
        assert_eq!(shard_of("default", 64), ShardId(40));
        assert_eq!(shard_of("payments", 64), ShardId(14));
        assert_eq!(shard_of("default", 1), ShardId(0));
    }

    #[test]
    fn namespaces_spread() {
        let mut used = [0u32; 64];
        (0..6400).for_each(|i| used[usize::from(shard_of(&format!("tenant-{i}"), 64).0)] += 1);
        assert!(used.iter().all(|count| (50..200).contains(count)), "{used:?}");
    }
}
