//! Which shard a namespace is in.

use limina_store::{ShardId, Sharding, sip_hash};

/// The shard of a namespace: SipHash-2-4 of its name under the store's key, modulo the number of shards. Without the key,
/// nobody can choose names that are in the same shard as another namespace. This function must never change, because
/// existing data directories and databases are stored by it.
pub fn shard_of(namespace: &str, sharding: Sharding) -> ShardId {
    let hash = sip_hash(sharding.key.bytes(), namespace.as_bytes());
    ShardId((hash % u64::from(sharding.shards)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_store::ShardingKey;
    use std::hash::Hasher;

    /// The key of the test vectors of SipHash's authors: 00 01 02 … 0f.
    const KEY: [u8; 16] = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100_u128.to_le_bytes();

    fn sharding(shards: u16, key: [u8; 16]) -> Sharding {
        Sharding { shards, key: ShardingKey::new(key) }
    }

    /// If this test fails, every existing data directory is unreadable.
    #[test]
    fn a_namespace_stays_in_its_shard() {
        #[track_caller]
        fn check(namespace: &str, shards: u16, expect: u16) {
            assert_eq!(shard_of(namespace, sharding(shards, KEY)), ShardId(expect));
        }
        check("default", 64, 39);
        check("payments", 64, 36);
        check("default", 1, 0);
        check("a", 5, 4);
    }

    /// Compared with the example of the paper's appendix A, and with the deprecated hasher of the standard library.
    #[test]
    fn the_hash_is_sip_hash_2_4() {
        let bytes: Vec<u8> = (0..64).collect();
        assert_eq!(sip_hash(&KEY, &bytes[..15]), 0xa129_ca61_49be_45e5);
        for length in 0..bytes.len() {
            #[expect(deprecated, reason = "the only SipHash-2-4 of the standard library")]
            let mut hasher =
                std::hash::SipHasher::new_with_keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
            hasher.write(&bytes[..length]);
            assert_eq!(sip_hash(&KEY, &bytes[..length]), hasher.finish(), "{length} bytes");
        }
    }

    #[test]
    fn namespaces_are_spread_evenly_and_differently_under_each_key() {
        let names: Vec<String> = (0..6400).map(|i| format!("tenant-{i}")).collect();
        let shards = |key| names.iter().map(move |name| shard_of(name, sharding(64, key)));
        for key in [KEY, [0; 16], [0xff; 16]] {
            let mut used = [0; 64];
            shards(key).for_each(|shard| used[usize::from(shard.0)] += 1);
            assert!(used.iter().all(|count| (60..=140).contains(count)), "{used:?}");
        }
        // Under two keys, a namespace is in the same shard by chance only: one in 64.
        let same = shards(KEY).zip(shards([0; 16])).filter(|(one, other)| one == other).count();
        assert!((60..=140).contains(&same), "{same}");
    }
}
