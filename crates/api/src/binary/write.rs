//! Writes the binary form.

use super::{MAX_NAMES, Malformed, head};
use alloc::vec::Vec;
use serde::{Serialize, Serializer, ser};

pub(super) struct Writer {
    bytes: Vec<u8>,
    names: Names,
}

/// The names that were written, by number.
struct Names {
    by_number: Vec<&'static str>,
    /// The number of a name, in the first free place from its hash on. [`NO_NAME`] is a free place.
    by_hash: [u8; 256],
    /// The number after that of the last name. Structs of one type follow each other, so the next name often has it.
    expected: usize,
}

const NO_NAME: u8 = 0xff;

impl Names {
    /// The number of the name, if it has one. If not, the name gets the next number.
    fn find_or_add(&mut self, name: &'static str) -> Option<u8> {
        let number = match self.by_number.get(self.expected) {
            Some(expected) if core::ptr::eq(*expected, name) => Some(self.expected as u8),
            _ => self.search_or_add(name),
        };
        self.expected = number.map_or(self.by_number.len(), |number| usize::from(number) + 1);
        number
    }

    fn search_or_add(&mut self, name: &'static str) -> Option<u8> {
        let bytes = name.as_bytes();
        // The names of a message differ in these, with few exceptions.
        let (first, middle, last) = (bytes.first()?, bytes.get(bytes.len() / 2)?, bytes.last()?);
        let mut place =
            first.wrapping_mul(7) ^ middle.wrapping_mul(29) ^ last.wrapping_mul(113) ^ bytes.len() as u8;
        loop {
            match self.by_hash[usize::from(place)] {
                NO_NAME => break,
                number if self.by_number[usize::from(number)] == name => return Some(number),
                // There are more places than numbers, so this ends.
                _ => place = place.wrapping_add(1),
            }
        }
        if self.by_number.len() < MAX_NAMES {
            self.by_hash[usize::from(place)] = self.by_number.len() as u8;
            self.by_number.push(name);
        }
        None
    }
}

impl Writer {
    pub(super) fn new(bytes: Vec<u8>) -> Writer {
        let names = Names { by_number: Vec::with_capacity(32), by_hash: [NO_NAME; 256], expected: 0 };
        Writer { bytes, names }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn number(&mut self, number: u64) {
        if number <= head::MAX_SMALL.into() {
            self.bytes.push(number as u8);
        } else {
            self.long_number(head::NUMBER, number);
        }
    }

    fn long_number(&mut self, kind: u8, number: u64) {
        let length = (8 - number.leading_zeros() as usize / 8).max(1);
        self.bytes.push(kind + (length - 1) as u8);
        self.bytes.extend_from_slice(&number.to_le_bytes()[..length]);
    }

    /// The beginning of something that has a length.
    fn length(&mut self, short: u8, max_short: usize, long: u8, length: usize) {
        if length <= max_short {
            self.bytes.push(short + length as u8);
        } else {
            self.bytes.push(long);
            self.number(length as u64);
        }
    }

    fn name(&mut self, name: &'static str) {
        match self.names.find_or_add(name) {
            Some(number) => self.bytes.push(number),
            None => {
                let longest_short = usize::from(head::LONG_NAME - head::NAME) - 1;
                self.length(head::NAME, longest_short, head::LONG_NAME, name.len());
                self.bytes.extend_from_slice(name.as_bytes());
            }
        }
    }

    fn list(&mut self, length: usize) {
        self.length(head::LIST, 15, head::LONG_LIST, length);
    }

    fn fields(&mut self, length: usize) {
        self.length(head::STRUCT, 15, head::LONG_STRUCT, length);
    }

    fn variant(&mut self, name: &'static str) {
        self.bytes.push(head::VARIANT);
        self.name(name);
    }

    /// The entries of something whose length is known only at the end, or has been written.
    fn entries(&mut self, uncounted: Option<u8>) -> Entries<'_> {
        let count_at = uncounted.map(|kind| {
            self.bytes.extend_from_slice(&[kind, head::NUMBER + 3, 0, 0, 0, 0]);
            self.bytes.len() - 4
        });
        Entries { writer: self, count_at, count: 0 }
    }
}

impl<'w> Serializer for &'w mut Writer {
    type Ok = ();
    type Error = Malformed;
    type SerializeSeq = Entries<'w>;
    type SerializeTuple = Entries<'w>;
    type SerializeTupleStruct = Entries<'w>;
    type SerializeTupleVariant = Entries<'w>;
    type SerializeMap = Entries<'w>;
    type SerializeStruct = Entries<'w>;
    type SerializeStructVariant = Entries<'w>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, flag: bool) -> Result<(), Malformed> {
        self.bytes.push(if flag { head::TRUE } else { head::FALSE });
        Ok(())
    }

    fn serialize_i8(self, number: i8) -> Result<(), Malformed> {
        self.serialize_i64(number.into())
    }

    fn serialize_i16(self, number: i16) -> Result<(), Malformed> {
        self.serialize_i64(number.into())
    }

    fn serialize_i32(self, number: i32) -> Result<(), Malformed> {
        self.serialize_i64(number.into())
    }

    fn serialize_i64(self, number: i64) -> Result<(), Malformed> {
        match u64::try_from(number) {
            Ok(number) => self.number(number),
            Err(_) => self.long_number(head::NEGATIVE, !number as u64),
        }
        Ok(())
    }

    fn serialize_u8(self, number: u8) -> Result<(), Malformed> {
        self.serialize_u64(number.into())
    }

    fn serialize_u16(self, number: u16) -> Result<(), Malformed> {
        self.serialize_u64(number.into())
    }

    fn serialize_u32(self, number: u32) -> Result<(), Malformed> {
        self.serialize_u64(number.into())
    }

    fn serialize_u64(self, number: u64) -> Result<(), Malformed> {
        self.number(number);
        Ok(())
    }

    fn serialize_f32(self, number: f32) -> Result<(), Malformed> {
        self.bytes.push(head::F32);
        self.bytes.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    fn serialize_f64(self, number: f64) -> Result<(), Malformed> {
        self.bytes.push(head::F64);
        self.bytes.extend_from_slice(&number.to_le_bytes());
        Ok(())
    }

    fn serialize_char(self, character: char) -> Result<(), Malformed> {
        self.serialize_str(character.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, text: &str) -> Result<(), Malformed> {
        self.length(head::TEXT, 63, head::LONG_TEXT, text.len());
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Malformed> {
        self.bytes.push(head::BYTES);
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Malformed> {
        self.bytes.push(head::NONE);
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Malformed> {
        let begin = self.bytes.len();
        value.serialize(&mut *self)?;
        // Only what would be read as `None`, or as one `Some` fewer, has the mark.
        if matches!(self.bytes[begin..], [head::NONE | head::SOME, ..]) {
            self.bytes.insert(begin, head::SOME);
        }
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Malformed> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Malformed> {
        self.serialize_none()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, name: &'static str) -> Result<(), Malformed> {
        self.bytes.push(head::UNIT_VARIANT);
        self.name(name);
        Ok(())
    }

    fn serialize_newtype_struct<T>(self, _: &'static str, value: &T) -> Result<(), Malformed>
    where
        T: Serialize + ?Sized,
    {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T>(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        value: &T,
    ) -> Result<(), Malformed>
    where
        T: Serialize + ?Sized,
    {
        self.variant(name);
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Entries<'w>, Malformed> {
        Ok(match length {
            Some(length) => {
                self.list(length);
                self.entries(None)
            }
            None => self.entries(Some(head::LONG_LIST)),
        })
    }

    fn serialize_tuple(self, length: usize) -> Result<Entries<'w>, Malformed> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_struct(self, _: &'static str, length: usize) -> Result<Entries<'w>, Malformed> {
        self.serialize_seq(Some(length))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Entries<'w>, Malformed> {
        self.variant(name);
        self.serialize_seq(Some(length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Entries<'w>, Malformed> {
        Ok(match length {
            Some(length) => {
                self.bytes.push(head::MAP);
                self.number(length as u64);
                self.entries(None)
            }
            None => self.entries(Some(head::MAP)),
        })
    }

    fn serialize_struct(self, _: &'static str, length: usize) -> Result<Entries<'w>, Malformed> {
        self.fields(length);
        Ok(self.entries(None))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        name: &'static str,
        length: usize,
    ) -> Result<Entries<'w>, Malformed> {
        self.variant(name);
        self.fields(length);
        Ok(self.entries(None))
    }
}

/// Writes the values of a list, the fields of a struct or the entries of a map.
pub(super) struct Entries<'w> {
    writer: &'w mut Writer,
    /// Where their number goes, if it was not known before.
    count_at: Option<usize>,
    count: u32,
}

impl Entries<'_> {
    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Malformed> {
        self.count += 1;
        value.serialize(&mut *self.writer)
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Malformed> {
        self.writer.name(name);
        value.serialize(&mut *self.writer)
    }

    fn finish(self) {
        if let Some(place) = self.count_at {
            self.writer.bytes[place..place + 4].copy_from_slice(&self.count.to_le_bytes());
        }
    }
}

/// All lists and tuples are the same.
macro_rules! list {
    ($($interface:ident: $method:ident),*) => {$(
        impl ser::$interface for Entries<'_> {
            type Ok = ();
            type Error = Malformed;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Malformed> {
                self.value(value)
            }

            fn end(self) -> Result<(), Malformed> {
                self.finish();
                Ok(())
            }
        }
    )*};
}

list!(
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
);

/// A variant with fields has the fields of a struct.
macro_rules! fields {
    ($($interface:ident),*) => {$(
        impl ser::$interface for Entries<'_> {
            type Ok = ();
            type Error = Malformed;

            fn serialize_field<T>(&mut self, name: &'static str, value: &T) -> Result<(), Malformed>
            where
                T: Serialize + ?Sized,
            {
                self.field(name, value)
            }

            fn end(self) -> Result<(), Malformed> {
                Ok(())
            }
        }
    )*};
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Entries<'_> {
    type Ok = ();
    type Error = Malformed;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Malformed> {
        key.serialize(&mut *self.writer)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Malformed> {
        self.value(value)
    }

    fn end(self) -> Result<(), Malformed> {
        self.finish();
        Ok(())
    }
}
