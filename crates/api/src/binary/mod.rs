//! The binary form of requests and replies: nodes send it to each other, and replies are kept in it. JSON is for everybody else.
//!
//! Fields and variants are written with their names, so that programs of different versions understand each other:
//!
//! - An older program passes over the fields that it does not know, even where it refuses JSON with such a field.
//! - A newer program reads a struct in which a field is missing, if serde's attributes of the field permit that.
//! - A field may become optional.
//! - A variant may be inserted anywhere. A program that does not know it cannot read the value.
//!
//! A name is written once in a message. After that, one byte stands for it, so a long batch takes hardly more bytes than without
//! names. Values describe themselves, so serde's untagged and flattened types can be read, with two limits: their unknown fields are
//! passed over only if they permit them, and nothing in them may look different in JSON, as [`Duration`](crate::Duration) does, because
//! serde reads them from a copy that claims to be JSON.
//!
//! `docs/storage-format.md` describes the bytes, under *Answers*.

mod read;
#[cfg(test)]
mod tests;
mod write;

use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize, de, ser};

/// The numbers that a byte may have, by kind of value.
mod head {
    pub(super) const MAX_SMALL: u8 = 0x7f;
    pub(super) const TEXT: u8 = 0x80;
    pub(super) const STRUCT: u8 = 0xc0;
    pub(super) const LIST: u8 = 0xd0;
    pub(super) const NONE: u8 = 0xe0;
    pub(super) const SOME: u8 = 0xe1;
    pub(super) const FALSE: u8 = 0xe2;
    pub(super) const TRUE: u8 = 0xe3;
    pub(super) const F32: u8 = 0xe4;
    pub(super) const F64: u8 = 0xe5;
    pub(super) const VARIANT: u8 = 0xe6;
    pub(super) const UNIT_VARIANT: u8 = 0xe7;
    pub(super) const NUMBER: u8 = 0xe8;
    pub(super) const NEGATIVE: u8 = 0xf0;
    pub(super) const LONG_TEXT: u8 = 0xf8;
    pub(super) const BYTES: u8 = 0xf9;
    pub(super) const LONG_LIST: u8 = 0xfa;
    pub(super) const LONG_STRUCT: u8 = 0xfb;
    pub(super) const MAP: u8 = 0xfc;
    /// Of a name that follows.
    pub(super) const NAME: u8 = 0xc0;
    pub(super) const LONG_NAME: u8 = 0xff;
}

/// The most names of a message that have a number.
const MAX_NAMES: usize = head::NAME as usize;

/// The bytes are not a value of the type, or the value cannot be written: its type uses something of serde that this form
/// does not have, such as integers of 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a value of this type in binary form")
    }
}

impl core::error::Error for Malformed {}

impl ser::Error for Malformed {
    fn custom<T: fmt::Display>(_: T) -> Malformed {
        Malformed
    }
}

impl de::Error for Malformed {
    fn custom<T: fmt::Display>(_: T) -> Malformed {
        Malformed
    }
}

/// Writes a value.
pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Malformed> {
    encode_after(Vec::with_capacity(256), value)
}

/// Writes a value behind these bytes.
pub fn encode_after<T: Serialize + ?Sized>(bytes: Vec<u8>, value: &T) -> Result<Vec<u8>, Malformed> {
    let mut writer = write::Writer::new(bytes);
    value.serialize(&mut writer)?;
    Ok(writer.into_bytes())
}

/// Reads a value, which must be all of the bytes.
pub fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Malformed> {
    let mut reader = read::Reader::new(bytes);
    let value = T::deserialize(&mut reader)?;
    reader.finish()?;
    Ok(value)
}
