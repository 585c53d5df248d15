//! How a store distributes namespaces over its shards: their number, and the key of the hash that chooses one.

use crate::StoreError;
use std::fmt;

/// The number of shards of a new store if the caller did not ask for another number.
const DEFAULT_SHARDS: u16 = 64;

/// How namespaces are distributed over shards. It is decided when a store is created, and stored in it: with another
/// number or another key, requests would look for a namespace in the wrong shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharding {
    /// The number of shards.
    pub shards: u16,
    /// The key of the hash that chooses a namespace's shard.
    pub key: ShardingKey,
}

/// Random bytes, for a secret.
pub(crate) fn random_bytes() -> Result<[u8; 16], StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        StoreError::Unavailable(format!("the system returned no random numbers: {error}"))
    })?;
    Ok(bytes)
}

/// The key of the hash that chooses a namespace's shard: 128 random bits. It is secret, because a client that knows it
/// can choose names that are in the shard of another client's namespace. So `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ShardingKey([u8; ShardingKey::BYTES]);

impl ShardingKey {
    /// The length of a key.
    pub const BYTES: usize = 16;

    /// The key of these bytes.
    pub const fn new(bytes: [u8; ShardingKey::BYTES]) -> ShardingKey {
        ShardingKey(bytes)
    }

    /// A new key, for a new store. Fails if the operating system returns no random numbers.
    pub fn draw() -> Result<ShardingKey, StoreError> {
        random_bytes().map(ShardingKey)
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8; ShardingKey::BYTES] {
        &self.0
    }

    /// The key as 32 hexadecimal digits.
    pub(crate) fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The opposite of [`ShardingKey::to_hex`].
    pub(crate) fn from_hex(digits: &str) -> Option<ShardingKey> {
        let number = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2 * ShardingKey::BYTES);
        let key = ShardingKey(number?.to_be_bytes());
        (key.to_hex() == digits).then_some(key)
    }
}

impl fmt::Debug for ShardingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShardingKey(..)")
    }
}

/// Decides the number of shards: `known` if the store exists, otherwise what the caller `asked` for, otherwise the
/// default. `place` names the store in error messages.
pub(crate) fn agree_on_shards(
    place: &str,
    known: Option<u16>,
    asked: Option<u16>,
) -> Result<u16, StoreError> {
    match (known, asked) {
        (_, Some(0 | u16::MAX)) => {
            Err(StoreError::Unusable("the number of shards must be 1 to 65534".to_string()))
        }
        (Some(known), Some(asked)) if known != asked => Err(StoreError::Unusable(format!(
            "{place} was created with {known} shards and cannot be opened with {asked}"
        ))),
        (known, asked) => Ok(known.or(asked).unwrap_or(DEFAULT_SHARDS)),
    }
}

/// The difference of versions that had no [`ShardingKey`], for [`too_old`]. Their namespaces cannot stay in their shards under
/// a key.
pub(crate) const HASH_WITHOUT_KEY: &str = "whose shard hash had no key";

/// The error for a store of a version that only an export and an import can move. `place` says which store has which version,
/// and `difference` what is different there.
pub(crate) fn too_old(place: &str, difference: &str) -> StoreError {
    StoreError::Unusable(format!(
        "{place}: it was written by an older limina, {difference}. Export it with that limina, and import the file into a new \
         store with this one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_lower_case_digits() {
        #[track_caller]
        fn check(digits: &str, expect: Option<[u8; 16]>) {
            assert_eq!(ShardingKey::from_hex(digits), expect.map(ShardingKey));
        }
        let key = ShardingKey::new(std::array::from_fn(|index| index as u8 * 16 + 1));
        assert_eq!(key.to_hex(), "01112131415161718191a1b1c1d1e1f1");
        check("01112131415161718191a1b1c1d1e1f1", Some(key.0));
        check(&"0".repeat(32), Some([0; 16]));
        check("01112131415161718191A1B1C1D1E1F1", None);
        check("+1112131415161718191a1b1c1d1e1f1", None);
        check("1112131415161718191a1b1c1d1e1f1", None);
        check(&"0".repeat(33), None);
        check("", None);
    }

    #[test]
    fn keys_are_random_and_not_printed() {
        let (one, other) = (ShardingKey::draw().unwrap(), ShardingKey::draw().unwrap());
        assert_ne!(one, other);
        assert_eq!(
            format!("{:?}", Sharding { shards: 3, key: one }),
            "Sharding { shards: 3, key: ShardingKey(..) }"
        );
    }
}
