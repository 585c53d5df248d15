//! Which shard a namespace is in.

use limina_store::ShardId;

/// The shard of a namespace: FNV-1a over the bytes of the name, folded, modulo the number of shards. This function must never
/// change, because existing data directories and databases are stored by it.
pub fn shard_of(namespace: &str, shards: u16) -> ShardId {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let hash = namespace.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    // The low bits of FNV are weak for short names, so the high bits are folded in.
    ShardId(((hash ^ (hash >> 32)) % u64::from(shards)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this test fails, every existing data directory is unreadable.
    #[test]
    fn a_namespace_stays_in_its_shard() {
        #[track_caller]
        fn check(namespace: &str, shards: u16, expect: u16) {
            assert_eq!(shard_of(namespace, shards), ShardId(expect));
        }
        check("default", 64, 40);
        check("payments", 64, 14);
        check("default", 1, 0);
    }

    #[test]
    fn namespaces_spread() {
        let mut used = [0u32; 64];
        (0..6400).for_each(|i| used[usize::from(shard_of(&format!("tenant-{i}"), 64).0)] += 1);
        assert!(used.iter().all(|count| (50..200).contains(count)), "{used:?}");
    }
}
