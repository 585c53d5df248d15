//! Which shard a namespace is in.

use limina_store::{ShardId, Sharding};

/// The shard of a namespace: SipHash-2-4 of its name under the store's key, modulo the number of shards. Without the key,
/// nobody can choose names that are in the same shard as another namespace. This function must never change, because
/// existing data directories and databases are stored by it.
pub fn shard_of(namespace: &str, sharding: Sharding) -> ShardId {
    let hash = sip_hash(sharding.key.bytes(), namespace.as_bytes());
    ShardId((hash % u64::from(sharding.shards)) as u16)
}

/// SipHash-2-4 (Aumasson and Bernstein, 2012). The standard library has it too, but does not promise that the algorithm of
/// its hashers stays the same, and stored data depends on it.
fn sip_hash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let key = u128::from_le_bytes(*key);
    let (k0, k1) = (key as u64, (key >> 64) as u64);
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    // The last word has the remaining bytes, and the length in its highest byte.
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    for word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(*word);
        state[3] ^= word;
        sip_rounds(&mut state, 2);
        state[0] ^= word;
    }
    state[2] ^= 0xff;
    sip_rounds(&mut state, 4);
    state.iter().fold(0, |hash, word| hash ^ word)
}

fn sip_rounds([v0, v1, v2, v3]: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        *v0 = v0.wrapping_add(*v1);
        *v2 = v2.wrapping_add(*v3);
        *v1 = v1.rotate_left(13) ^ *v0;
        *v3 = v3.rotate_left(16) ^ *v2;
        *v0 = v0.rotate_left(32);
        *v2 = v2.wrapping_add(*v1);
        *v0 = v0.wrapping_add(*v3);
        *v1 = v1.rotate_left(17) ^ *v2;
        *v3 = v3.rotate_left(21) ^ *v0;
        *v2 = v2.rotate_left(32);
    }
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
