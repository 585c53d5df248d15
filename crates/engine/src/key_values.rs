//! Key-values: what limits and locks are about.

use crate::{
    Invalid, Reason,
    small_bytes::{ByteBuffer, SmallBytes},
};
use alloc::{boxed::Box, vec::Vec};
use core::{borrow::Borrow, cmp::Ordering, fmt};
use limina_api::invalid::{check_bytes, check_items, key_path};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A value with its type, which is part of it: `1`, `1.5`, `"1"` and `true` are four different values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Value<S> {
    /// A text.
    String(S),
    /// A whole number.
    Integer(i64),
    /// A number that is neither infinite nor NaN nor −0.0.
    Float(#[serde(deserialize_with = "float")] f64),
    /// Yes or no.
    Boolean(bool),
}

/// A value that owns its text.
pub type OwnedValue = Value<Box<str>>;

/// A value within [`KeyValues`].
pub type ValueRef<'a> = Value<&'a str>;

fn float<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    match number.is_finite() {
        true => Ok(number + 0.0),
        false => Err(de::Error::custom("not a finite number")),
    }
}

impl<S: AsRef<str>> Value<S> {
    /// The same without owning anything.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::String(text) => Value::String(text.as_ref()),
            Value::Integer(number) => Value::Integer(*number),
            Value::Float(number) => Value::Float(*number),
            Value::Boolean(flag) => Value::Boolean(*flag),
        }
    }
}

/// Checks a key. The caller names the field.
pub(crate) fn check_key(key: &str) -> Result<(), Invalid> {
    check_bytes("", key, 1..=KeyValues::MAX_KEY_BYTES)
}

impl ValueRef<'_> {
    /// Checks a value that has no key, such as one in a condition. The field is empty: the caller names it.
    pub fn validate(self) -> Result<(), Invalid> {
        match self {
            Value::String(text) => check_bytes("", text, 0..=KeyValues::MAX_STRING_BYTES),
            Value::Float(number) if !number.is_finite() => Err(Invalid::new("", Reason::NotFinite)),
            Value::Float(_) | Value::Integer(_) | Value::Boolean(_) => Ok(()),
        }
    }

    /// Numbers compare as numbers, whatever their type, and texts by their bytes. Nothing else has an order.
    pub fn order(self, other: ValueRef<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::String(a), Value::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Value::Integer(a), Value::Integer(b)) => Some(a.cmp(&b)),
            (Value::Float(a), Value::Float(b)) => a.partial_cmp(&b),
            (Value::Integer(a), Value::Float(b)) => Some(order_exactly(a, b)),
            (Value::Float(a), Value::Integer(b)) => Some(order_exactly(b, a).reverse()),
            _ => None,
        }
    }

    /// An order of all values: first by type, then within the type. Values are equal in this order exactly if `==` says so.
    pub(crate) fn total_order(self, other: ValueRef<'_>) -> Ordering {
        let tag = |value: ValueRef<'_>| match value {
            Value::String(_) => STRING,
            Value::Integer(_) => INTEGER,
            Value::Float(_) => FLOAT,
            Value::Boolean(_) => BOOLEAN,
        };
        match (self, other) {
            (Value::String(a), Value::String(b)) => a.cmp(b),
            (Value::Integer(a), Value::Integer(b)) => a.cmp(&b),
            // Adding 0.0 turns −0.0 into 0.0.
            (Value::Float(a), Value::Float(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
            (Value::Boolean(a), Value::Boolean(b)) => a.cmp(&b),
            _ => tag(self).cmp(&tag(other)),
        }
    }

    /// Whether [`KeyValues::new`] writes it, and just so.
    fn is_storable(self) -> bool {
        match self {
            Value::String(text) => text.len() <= KeyValues::MAX_STRING_BYTES,
            Value::Float(number) => number.is_finite() && (number != 0.0 || number.is_sign_positive()),
            Value::Integer(_) | Value::Boolean(_) => true,
        }
    }

    /// The same with a text of its own.
    pub fn to_owned(self) -> OwnedValue {
        match self {
            Value::String(text) => Value::String(text.into()),
            Value::Integer(number) => Value::Integer(number),
            Value::Float(number) => Value::Float(number),
            Value::Boolean(flag) => Value::Boolean(flag),
        }
    }
}

/// Without rounding the integer, as a conversion to a float would.
fn order_exactly(integer: i64, float: f64) -> Ordering {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if float >= LIMIT {
        return Ordering::Less;
    }
    if float < -LIMIT {
        return Ordering::Greater;
    }
    // Within these bounds the cast cuts off the fraction and does nothing else.
    let whole = float as i64;
    let fraction = float - whole as f64;
    let by_fraction = if fraction > 0.0 {
        Ordering::Less
    } else if fraction < 0.0 {
        Ordering::Greater
    } else {
        Ordering::Equal
    };
    integer.cmp(&whole).then(by_fraction)
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
    pub fn new<K: AsRef<str>, S: AsRef<str>>(mut pairs: Vec<(K, Value<S>)>) -> Result<KeyValues, Invalid> {
        check_items("key_values", pairs.len(), 0..=KeyValues::MAX_KEYS)?;
        pairs.sort_unstable_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));
        let mut bytes = Vec::with_capacity(pairs.len() * 32);
        for (place, (key, value)) in pairs.iter().enumerate() {
            let key = key.as_ref();
            let wrong = |invalid: Invalid| invalid.renamed(key_path("key_values", key));
            check_key(key).map_err(wrong)?;
            if place > 0 && pairs[place - 1].0.as_ref() == key {
                return Err(Invalid::new(key_path("key_values", key), Reason::Repeated));
            }
            let value = value.as_ref();
            value.validate().map_err(wrong)?;
            push_pair(&mut bytes, key, value);
        }
        Ok(KeyValues(SmallBytes::new(&bytes)))
    }

    /// None at all.
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

    /// The pairs as bytes: what is only compared need not be text.
    pub(crate) fn raw(&self) -> RawPairs<'_> {
        RawPairs { bytes: self.as_bytes() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.raw().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// The memory that the key-values take besides this value.
    pub(crate) fn heap(&self) -> u64 {
        self.0.heap()
    }

    /// The bytes that make it what it is.
    /// The size of the key-values in memory, in bytes.
    pub fn encoded_bytes(&self) -> usize {
        self.as_bytes().len()
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Appends the bytes of the pairs with these keys, which are in order. False if one is missing.
    pub(crate) fn project<K: AsRef<str>>(&self, keys: &[K], out: &mut ByteBuffer) -> bool {
        let mut pairs = self.raw();
        keys.iter().all(|key| {
            let key = key.as_ref().as_bytes();
            let found = pairs.find(|pair| pair.key >= key).filter(|pair| pair.key == key);
            found.map(|pair| out.extend_from_slice(pair.bytes)).is_some()
        })
    }

    /// Takes bytes made by [`KeyValues::project`].
    pub(crate) fn from_projected(bytes: &[u8]) -> KeyValues {
        KeyValues(SmallBytes::new(bytes))
    }

    /// Whether the bytes are what [`KeyValues::new`] makes; what was stored or sent may be damaged.
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
pub(crate) struct RawPair<'a> {
    pub(crate) key: &'a [u8],
    /// Both, as they stand in [`KeyValues`].
    pub(crate) bytes: &'a [u8],
}

impl<'a> RawPair<'a> {
    pub(crate) fn value(&self) -> ValueRef<'a> {
        split_pair(self.bytes).expect("it is well-formed").0.value
    }
}

/// The pairs of [`KeyValues`], as bytes.
#[derive(Debug, Clone)]
pub(crate) struct RawPairs<'a> {
    bytes: &'a [u8],
}

impl<'a> Iterator for RawPairs<'a> {
    type Item = RawPair<'a>;

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

fn push_pair(bytes: &mut Vec<u8>, key: &str, value: ValueRef<'_>) {
    push_text(bytes, key);
    match value {
        Value::String(text) => {
            bytes.push(STRING);
            push_text(bytes, text);
        }
        Value::Integer(number) => {
            bytes.push(INTEGER);
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        Value::Float(number) => {
            bytes.push(FLOAT);
            // −0.0 is 0.0.
            bytes.extend_from_slice(&(number + 0.0).to_bits().to_le_bytes());
        }
        Value::Boolean(flag) => bytes.extend_from_slice(&[BOOLEAN, flag.into()]),
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).expect("texts are short");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
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

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::from(u16::from_le_bytes(take(rest)?));
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}

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
        serializer.serialize_bytes(self.as_bytes())
    }
}

impl<'de> Deserialize<'de> for KeyValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KeyValues, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = KeyValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("key-values")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<KeyValues, E> {
                match KeyValues::is_well_formed(bytes) {
                    true => Ok(KeyValues(SmallBytes::new(bytes))),
                    false => Err(E::custom("not key-values")),
                }
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}
