//! Key-values: they identify what a limit or a lock applies to.

use crate::{
    Invalid, Reason,
    invalid::{check_bytes, check_items, key_path},
    object::too_many_keys,
    raw::Text,
    small_bytes::{ByteBuffer, SmallBytes},
};
use alloc::{borrow::Cow, vec::Vec};
use core::{borrow::Borrow, cmp::Ordering, fmt};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeSeed, MapAccess},
};

pub use crate::value::{OwnedValue, Value, ValueRef};

/// Checks how long a key is. The field is empty: the caller names it.
pub fn check_key(key: &str) -> Result<(), Invalid> {
    check_bytes("", key, 1..=KeyValues::MAX_KEY_BYTES)
}

/// A set of key-values, each key once, in the order of the keys. Cheap to clone, and equal exactly if the bytes are.
///
/// The bytes are the pairs one after another: the key's length (u16, little endian), the key, a byte for the type, and
/// the value: a text with its length before it (u16), a number as eight bytes, a boolean as one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyValues(SmallBytes);

const STRING: u8 = 0;
const INTEGER: u8 = 1;
const FLOAT: u8 = 2;
const BOOLEAN: u8 = 3;

impl KeyValues {
    /// The most keys.
    pub const MAX_KEYS: usize = 64;
    /// The longest key, in bytes. A key is not empty.
    pub const MAX_KEY_BYTES: usize = 256;
    /// The longest text of a value, in bytes.
    pub const MAX_STRING_BYTES: usize = 1_024;

    /// Takes the pairs in any order, each key once.
    pub fn new<K: AsRef<str>, S: AsRef<str>>(pairs: Vec<(K, Value<S>)>) -> Result<KeyValues, Invalid> {
        check_items("key_values", pairs.len(), 0..=KeyValues::MAX_KEYS)?;
        let mut sorted = SortedPairs::default();
        for (key, value) in &pairs {
            let (key, value) = (key.as_ref(), value.as_ref());
            let wrong = |invalid: Invalid| invalid.renamed(key_path("key_values", key));
            let place = sorted.place_of(key).map_err(wrong)?;
            value.validate().map_err(wrong)?;
            sorted.insert(place, key, value);
        }
        Ok(sorted.finish())
    }

    /// No keys.
    pub fn empty() -> KeyValues {
        KeyValues(SmallBytes::new(&[]))
    }

    /// The pairs, by key.
    pub fn iter(&self) -> Pairs<'_> {
        Pairs { bytes: self.as_bytes() }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<ValueRef<'_>> {
        let found = self.raw().find(|pair| pair.key >= key.as_bytes())?;
        (found.key == key.as_bytes()).then(|| found.value())
    }

    /// The pairs as bytes. Keys that are only compared need not be text.
    #[inline]
    pub fn raw(&self) -> RawPairs<'_> {
        RawPairs { bytes: self.as_bytes() }
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.raw().count()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// The number of bytes, if they are kept in an allocation with two reference counts.
    pub fn shared_bytes(&self) -> Option<usize> {
        self.0.shared_bytes()
    }

    /// The size of the key-values in memory, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        self.as_bytes().len()
    }

    /// All pairs as bytes. Equal key-values have equal bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Appends the bytes of the pairs with these keys, which are in order. False if one is missing.
    pub fn project<K: AsRef<str>>(&self, keys: &[K], out: &mut ByteBuffer) -> bool {
        let mut pairs = self.raw();
        keys.iter().all(|key| {
            let key = key.as_ref().as_bytes();
            let found = pairs.find(|pair| pair.key >= key).filter(|pair| pair.key == key);
            found.map(|pair| out.extend_from_slice(pair.bytes)).is_some()
        })
    }

    /// Takes bytes that [`KeyValues::project`] has made.
    pub fn from_projected(bytes: &[u8]) -> KeyValues {
        debug_assert!(KeyValues::is_well_formed(bytes), "the bytes were not made by `project`");
        KeyValues(SmallBytes::new(bytes))
    }

    /// Whether the bytes are what [`KeyValues::new`] makes. Bytes that were stored or sent may be damaged.
    fn is_well_formed(bytes: &[u8]) -> bool {
        let mut rest = bytes;
        // No key is empty, so that every one comes after this.
        let mut before = "";
        for _ in 0..KeyValues::MAX_KEYS {
            if rest.is_empty() {
                return true;
            }
            let Some((pair, after)) = split_pair(rest) else { return false };
            if pair.key <= before || pair.key.len() > KeyValues::MAX_KEY_BYTES || !pair.value.is_storable() {
                return false;
            }
            before = pair.key;
            rest = after;
        }
        rest.is_empty()
    }
}

/// One key with its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a str,
    /// Its value.
    pub value: ValueRef<'a>,
}

/// One key with its value, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct RawPair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The key and the value, as [`KeyValues`] has them.
    pub bytes: &'a [u8],
}

impl<'a> RawPair<'a> {
    /// The value.
    pub fn value(&self) -> ValueRef<'a> {
        split_pair(self.bytes).expect("it is well-formed").0.value
    }
}

/// The pairs of [`KeyValues`], as bytes.
#[derive(Debug, Clone)]
pub struct RawPairs<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for RawPairs<'a> {
    type Item = RawPair<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawPair<'a>> {
        let mut rest = self.bytes;
        let key = take_bytes(&mut rest)?;
        let (tag, after) = rest.split_first()?;
        rest = after;
        let length = match *tag {
            STRING => usize::from(u16::from_le_bytes(take(&mut rest)?)),
            INTEGER | FLOAT => 8,
            _ => 1,
        };
        rest = rest.get(length..)?;
        let (bytes, rest) = self.bytes.split_at(self.bytes.len() - rest.len());
        self.bytes = rest;
        Some(RawPair { key, bytes })
    }
}

/// The pairs of [`KeyValues`].
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for Pairs<'a> {
    type Item = Pair<'a>;

    fn next(&mut self) -> Option<Pair<'a>> {
        let (pair, rest) = split_pair(self.bytes)?;
        self.bytes = rest;
        Some(pair)
    }
}

/// Pairs in the order of their keys, to which more are added.
#[derive(Default)]
struct SortedPairs {
    bytes: ByteBuffer,
    keys: usize,
}

impl SortedPairs {
    /// Where a pair with this key belongs. The key must be valid and new.
    fn place_of(&self, key: &str) -> Result<usize, Invalid> {
        check_key(key)?;
        let mut place = 0;
        for pair in (RawPairs { bytes: self.bytes.as_slice() }) {
            match pair.key.cmp(key.as_bytes()) {
                Ordering::Less => place += pair.bytes.len(),
                Ordering::Equal => return Err(Invalid::new("", Reason::Repeated)),
                Ordering::Greater => break,
            }
        }
        Ok(place)
    }

    /// Adds a valid pair at the place that [`SortedPairs::place_of`] has returned.
    fn insert(&mut self, place: usize, key: &str, value: ValueRef<'_>) {
        let end = self.bytes.as_slice().len();
        push_pair(&mut self.bytes, key, value);
        let added = self.bytes.as_slice().len() - end;
        if place < end {
            self.bytes.as_mut_slice()[place..].rotate_right(added);
        }
        self.keys += 1;
    }

    fn finish(self) -> KeyValues {
        KeyValues(SmallBytes::new(self.bytes.as_slice()))
    }
}

fn push_pair(bytes: &mut ByteBuffer, key: &str, value: ValueRef<'_>) {
    bytes.extend_from_slice(&length(key));
    bytes.extend_from_slice(key.as_bytes());
    let number = |tag: u8, [a, b, c, d, e, f, g, h]: [u8; 8]| [tag, a, b, c, d, e, f, g, h];
    match value {
        Value::String(text) => {
            let [low, high] = length(text);
            bytes.extend_from_slice(&[STRING, low, high]);
            bytes.extend_from_slice(text.as_bytes());
        }
        Value::Integer(integer) => bytes.extend_from_slice(&number(INTEGER, integer.to_le_bytes())),
        // −0.0 is 0.0.
        Value::Float(float) => bytes.extend_from_slice(&number(FLOAT, (float + 0.0).to_bits().to_le_bytes())),
        Value::Boolean(flag) => bytes.extend_from_slice(&[BOOLEAN, flag.into()]),
    }
}

fn length(text: &str) -> [u8; 2] {
    u16::try_from(text.len()).expect("texts are short").to_le_bytes()
}

fn split_pair(bytes: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let mut rest = bytes;
    let key = take_text(&mut rest)?;
    let (tag, after) = rest.split_first()?;
    rest = after;
    let value = match *tag {
        STRING => Value::String(take_text(&mut rest)?),
        INTEGER => Value::Integer(i64::from_le_bytes(take(&mut rest)?)),
        FLOAT => Value::Float(f64::from_bits(u64::from_le_bytes(take(&mut rest)?))),
        BOOLEAN => match take(&mut rest)? {
            [flag @ (0 | 1)] => Value::Boolean(flag != 0),
            _ => return None,
        },
        _ => return None,
    };
    Some((Pair { key, value }, rest))
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    core::str::from_utf8(take_bytes(rest)?).ok()
}

#[inline]
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

#[inline]
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*head)
}

impl Borrow<[u8]> for KeyValues {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for KeyValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for pair in self.iter() {
            map.key(&pair.key);
            match pair.value {
                Value::String(text) => map.value(&text),
                Value::Integer(number) => map.value(&number),
                Value::Float(number) => map.value(&number),
                Value::Boolean(flag) => map.value(&flag),
            };
        }
        map.finish()
    }
}

impl Serialize for KeyValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serializer.is_human_readable() {
            true => serializer.collect_map(self.iter().map(|pair| (pair.key, pair.value))),
            false => serializer.serialize_bytes(self.as_bytes()),
        }
    }
}

impl<'de> Deserialize<'de> for KeyValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyValues, D::Error> {
        struct KeyValuesVisitor;

        impl<'de> de::Visitor<'de> for KeyValuesVisitor {
            type Value = KeyValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of key-values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeyValues, A::Error> {
                let mut sorted = SortedPairs::default();
                while let Some((place, key)) = map.next_key_seed(NewKey(&sorted))? {
                    if sorted.keys == KeyValues::MAX_KEYS {
                        return Err(too_many_keys(KeyValues::MAX_KEYS));
                    }
                    let ValidValue(value) = map.next_value()?;
                    sorted.insert(place, &key, value.as_ref());
                }
                Ok(sorted.finish())
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<KeyValues, E> {
                match KeyValues::is_well_formed(bytes) {
                    true => Ok(KeyValues(SmallBytes::new(bytes))),
                    false => Err(E::custom("not key-values")),
                }
            }
        }
        match deserializer.is_human_readable() {
            true => deserializer.deserialize_map(KeyValuesVisitor),
            false => deserializer.deserialize_bytes(KeyValuesVisitor),
        }
    }
}

/// Reads a key that these pairs do not have yet, and its place among them. An error is raised while the key is read, so that the
/// path of the error contains the key.
struct NewKey<'a>(&'a SortedPairs);

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = (usize, Cow<'de, str>);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let Text(key) = Text::deserialize(deserializer)?;
        let place = self.0.place_of(&key).map_err(de::Error::custom)?;
        Ok((place, key))
    }
}

/// A value whose length is checked. An error is raised while the value is read, so that the path of the error contains its key.
struct ValidValue<'a>(Value<Cow<'a, str>>);

impl<'de> Deserialize<'de> for ValidValue<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ValidValue<'de>, D::Error> {
        let value = Value::deserialize(deserializer)?;
        value.as_ref().validate().map_err(de::Error::custom)?;
        Ok(ValidValue(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_in_any_order_makes_the_same_key_values() {
        let read = |json: &str| serde_json::from_str::<KeyValues>(json).unwrap();
        let long = "v".repeat(100);
        let sorted = alloc::format!(r#"{{"a":1,"b":"{long}","c":true,"d":-1.5}}"#);
        let mixed = alloc::format!(r#"{{"c": true, "a": 1, "d": -1.5, "\u0062": "{long}"}}"#);
        assert_eq!(read(&sorted), read(&mixed));
        assert_eq!(serde_json::to_string(&read(&mixed)).unwrap(), sorted);
        assert_eq!(read(r#"{"k": -0.0}"#).as_bytes(), read(r#"{"k": 0.0}"#).as_bytes());
        assert!(KeyValues::is_well_formed(read(&mixed).as_bytes()));
    }

    /// What serde keeps for later, as it does for a flattened struct, is read too.
    #[test]
    fn values_are_read_from_other_places_than_text() {
        let json = r#"{"a":"x\n","b":-1,"c":1.0,"d":true}"#;
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let found: KeyValues = serde_json::from_value(value).unwrap();
        assert_eq!(serde_json::to_string(&found).unwrap(), json);
    }

    #[test]
    fn what_is_not_key_values_is_refused() {
        #[track_caller]
        fn check(json: &str, expect: &str) {
            let error = serde_json::from_str::<KeyValues>(json).expect_err(json).to_string();
            assert!(error.starts_with(expect), "{error}");
        }
        check(r#"{"b": 1, "a": 2, "b": 3}"#, "repeats an earlier one");
        check(r#"{"a": 1, "\u0061": 1}"#, "repeats an earlier one");
        check(r#"{"": 1}"#, "must have from 1 to 256 bytes");
        check(&alloc::format!(r#"{{"{}": 1}}"#, "k".repeat(257)), "must have from 1 to 256 bytes");
        check(&alloc::format!(r#"{{"k": "{}"}}"#, "v".repeat(1025)), "must not have more than 1024 bytes");
        check("[]", "invalid type: sequence, expected an object of key-values");
        let many: Vec<_> = (0..65).map(|key| alloc::format!(r#""{key}": 1"#)).collect();
        check(&alloc::format!("{{{}}}", many.join(",")), "must not have more than 64 keys");
    }
}
