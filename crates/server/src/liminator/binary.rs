//! Thrift's binary protocol, strict and old, without frames.
//!
//! Nothing is allocated for a length that the bytes do not have: a text is a part of the input, and a list or a map is only
//! as long as its elements fit into the bytes that are left. Unknown values are skipped, up to a depth.

/// The types of values on the wire.
pub(crate) mod kind {
    pub(crate) const STOP: u8 = 0;
    pub(crate) const BOOL: u8 = 2;
    pub(crate) const BYTE: u8 = 3;
    pub(crate) const DOUBLE: u8 = 4;
    pub(crate) const I16: u8 = 6;
    pub(crate) const I32: u8 = 8;
    pub(crate) const I64: u8 = 10;
    pub(crate) const STRING: u8 = 11;
    pub(crate) const STRUCT: u8 = 12;
    pub(crate) const MAP: u8 = 13;
    pub(crate) const SET: u8 = 14;
    pub(crate) const LIST: u8 = 15;
}

/// The types of messages.
pub(crate) mod message_kind {
    pub(crate) const CALL: u8 = 1;
    pub(crate) const REPLY: u8 = 2;
}

/// The deepest nesting of a value that is skipped.
const MAX_DEPTH: u8 = 16;

/// The version of the strict protocol, in the upper half of the first word of a message.
const STRICT_VERSION: u32 = 0x8001_0000;

/// Why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("it ends in the middle of a value")]
    TooShort,
    #[error("a length is negative, or more than the bytes that follow")]
    Length,
    #[error("a text is not UTF-8")]
    NotUtf8,
    #[error("the type of a value is not known")]
    UnknownType,
    #[error("the version of the protocol is not known")]
    UnknownVersion,
    #[error("values are nested too deeply")]
    TooDeep,
    #[error("more bytes follow")]
    TooLong,
}

type Result<T> = std::result::Result<T, Malformed>;

/// The head of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) sequence: i32,
    /// Whether the message has the version of the protocol in front. An answer has the form of its call.
    pub(crate) is_strict: bool,
}

/// Reads values from bytes in memory.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn head(&mut self) -> Result<Head> {
        let first = self.i32()?;
        if let Ok(length) = u32::try_from(first) {
            // The old form begins with the length of the name.
            let name = self.text_of(length as usize)?.to_owned();
            let kind = self.byte()?;
            return Ok(Head { name, kind, sequence: self.i32()?, is_strict: false });
        }
        let word = first.cast_unsigned();
        if word & 0xffff_0000 != STRICT_VERSION {
            return Err(Malformed::UnknownVersion);
        }
        let kind = (word & 0xff) as u8;
        let name = self.text()?.to_owned();
        Ok(Head { name, kind, sequence: self.i32()?, is_strict: true })
    }

    /// The type and the id of the next field. `None` at the end of the struct.
    pub(crate) fn field(&mut self) -> Result<Option<(u8, i16)>> {
        match self.byte()? {
            kind::STOP => Ok(None),
            kind => Ok(Some((kind, i16::from_be_bytes(self.bytes()?)))),
        }
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        self.bytes().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        self.bytes().map(i64::from_be_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let length = usize::try_from(self.i32()?).map_err(|_| Malformed::Length)?;
        self.text_of(length)
    }

    /// The type and the number of the elements of a list or a set.
    pub(crate) fn list(&mut self) -> Result<(u8, usize)> {
        let kind = self.byte()?;
        let count = self.count(least_bytes(kind)?)?;
        Ok((kind, count))
    }

    /// The types of keys and values of a map, and the number of its entries.
    pub(crate) fn map(&mut self) -> Result<(u8, u8, usize)> {
        let (key, value) = (self.byte()?, self.byte()?);
        // An empty map may have no types.
        let least = if self.rest.starts_with(&[0; 4]) { 1 } else { least_bytes(key)? + least_bytes(value)? };
        let count = self.count(least)?;
        Ok((key, value, count))
    }

    pub(crate) fn skip(&mut self, kind: u8) -> Result<()> {
        self.skip_at(kind, MAX_DEPTH)
    }

    /// Fails unless all bytes are read.
    pub(crate) fn end(self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::TooLong) }
    }

    fn skip_at(&mut self, kind: u8, depth: u8) -> Result<()> {
        let depth = depth.checked_sub(1).ok_or(Malformed::TooDeep)?;
        match kind {
            kind::BOOL | kind::BYTE => self.bytes::<1>().map(drop),
            kind::I16 => self.bytes::<2>().map(drop),
            kind::I32 => self.bytes::<4>().map(drop),
            kind::I64 | kind::DOUBLE => self.bytes::<8>().map(drop),
            kind::STRING => {
                let length = usize::try_from(self.i32()?).map_err(|_| Malformed::Length)?;
                self.take(length).map(drop)
            }
            kind::STRUCT => {
                while let Some((kind, _)) = self.field()? {
                    self.skip_at(kind, depth)?;
                }
                Ok(())
            }
            kind::LIST | kind::SET => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.skip_at(kind, depth))
            }
            kind::MAP => {
                let (key, value, count) = self.map()?;
                (0..count).try_for_each(|_| {
                    self.skip_at(key, depth)?;
                    self.skip_at(value, depth)
                })
            }
            _ => Err(Malformed::UnknownType),
        }
    }

    /// The number of elements, each of at least so many bytes.
    fn count(&mut self, least_bytes: usize) -> Result<usize> {
        let count = usize::try_from(self.i32()?).map_err(|_| Malformed::Length)?;
        if count > self.rest.len() / least_bytes { Err(Malformed::Length) } else { Ok(count) }
    }

    fn text_of(&mut self, length: usize) -> Result<&'a str> {
        std::str::from_utf8(self.take(length)?).map_err(|_| Malformed::NotUtf8)
    }

    fn byte(&mut self) -> Result<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::TooShort)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed::Length)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// The fewest bytes of a value of this type. No type has none, so a count is never more than the bytes that are left.
fn least_bytes(kind: u8) -> Result<usize> {
    Ok(match kind {
        kind::BOOL | kind::BYTE | kind::STRUCT => 1,
        kind::I16 => 2,
        kind::I32 | kind::STRING => 4,
        kind::I64 | kind::DOUBLE => 8,
        kind::LIST | kind::SET => 5,
        kind::MAP => 6,
        _ => return Err(Malformed::UnknownType),
    })
}

/// Writes values.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn head(&mut self, head: &Head) {
        if head.is_strict {
            self.0.extend((STRICT_VERSION | u32::from(head.kind)).to_be_bytes());
            self.text(&head.name);
        } else {
            self.text(&head.name);
            self.0.push(head.kind);
        }
        self.0.extend(head.sequence.to_be_bytes());
    }

    pub(crate) fn field(&mut self, kind: u8, id: i16) {
        self.0.push(kind);
        self.0.extend(id.to_be_bytes());
    }

    /// Ends a struct.
    pub(crate) fn stop(&mut self) {
        self.0.push(kind::STOP);
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.0.extend(value.to_be_bytes());
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend(text.as_bytes());
    }

    pub(crate) fn list(&mut self, kind: u8, count: usize) {
        self.0.push(kind);
        self.length(count);
    }

    #[cfg(test)]
    pub(crate) fn map(&mut self, key: u8, value: u8, count: usize) {
        self.0.extend([key, value]);
        self.length(count);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Answers are bounded far below this type.
    fn length(&mut self, length: usize) {
        self.0.extend(i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes());
    }
}
