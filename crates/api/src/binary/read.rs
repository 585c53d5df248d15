//! Reads the binary form. No bytes make it panic, take more memory than a small multiple of their length, or recurse
//! without a bound.

use super::{MAX_NAMES, Malformed, head};
use alloc::vec::Vec;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor,
        value::BorrowedStrDeserializer,
    },
    forward_to_deserialize_any,
};

/// The most values within each other. The deepest message between nodes has about 20.
const MAX_DEPTH: usize = 64;

pub(super) struct Reader<'de> {
    rest: &'de [u8],
    /// The names that were read, by number.
    names: Vec<Name<'de>>,
    depth: usize,
}

/// The names of the fields of a type, with their aliases.
type Known = &'static [&'static str];

#[derive(Clone, Copy)]
struct Name<'de> {
    text: &'de str,
    /// A type that is known to have a field of this name.
    known_to: Option<Known>,
}

impl<'de> Reader<'de> {
    pub(super) fn new(bytes: &'de [u8]) -> Reader<'de> {
        Reader { rest: bytes, names: Vec::with_capacity(32), depth: 0 }
    }

    /// There must be no more bytes.
    pub(super) fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    fn peek(&self) -> Result<u8, Malformed> {
        self.rest.first().copied().ok_or(Malformed)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(byte)
    }

    fn bytes(&mut self, length: usize) -> Result<&'de [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn text(&mut self, length: usize) -> Result<&'de str, Malformed> {
        core::str::from_utf8(self.bytes(length)?).map_err(|_| Malformed)
    }

    /// A number of so many bytes.
    fn number(&mut self, length: u8) -> Result<u64, Malformed> {
        let length = usize::from(length);
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(self.bytes(length)?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// How many bytes or values follow. Each value has at least one byte, so there cannot be more of them than bytes.
    fn count(&mut self) -> Result<usize, Malformed> {
        let count = match self.byte()? {
            small @ ..=head::MAX_SMALL => small.into(),
            long @ head::NUMBER..head::NEGATIVE => self.number(long - head::NUMBER + 1)?,
            _ => return Err(Malformed),
        };
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        if count <= self.rest.len() { Ok(count) } else { Err(Malformed) }
    }

    fn name(&mut self) -> Result<&'de str, Malformed> {
        let length = match self.byte()? {
            number @ ..head::NAME => {
                return self.names.get(usize::from(number)).map(|name| name.text).ok_or(Malformed);
            }
            head::LONG_NAME => self.count()?,
            short => (short - head::NAME).into(),
        };
        let name = self.text(length)?;
        // The writer gives no number to an empty name either, which no field has.
        if self.names.len() < MAX_NAMES && !name.is_empty() {
            self.names.push(Name { text: name, known_to: None });
        }
        Ok(name)
    }

    /// The name of a field, and whether the type knows it.
    fn field(&mut self, known: Option<Known>) -> Result<(&'de str, bool), Malformed> {
        let Some(known) = known else { return Ok((self.name()?, true)) };
        // In a list, the same type was often asked about the same name before.
        let number = self.rest.first().map_or(MAX_NAMES, |number| usize::from(*number));
        let Some(name) = self.names.get_mut(number) else {
            let name = self.name()?;
            return Ok((name, known.contains(&name)));
        };
        self.rest = &self.rest[1..];
        let is_known = name.known_to.is_some_and(|of| core::ptr::eq(of, known)) || known.contains(&name.text);
        if is_known {
            name.known_to = Some(known);
        }
        Ok((name.text, is_known))
    }

    /// Reads what is within a value.
    fn within<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Malformed>) -> Result<T, Malformed> {
        if self.depth == MAX_DEPTH {
            return Err(Malformed);
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Lets the visitor read all of a list, a struct or a map.
    fn entries<T>(
        &mut self,
        left: usize,
        keys: Keys,
        visit: impl FnOnce(&mut Entries<'_, 'de>) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        self.within(|reader| {
            let mut entries = Entries { reader, left, keys };
            let value = visit(&mut entries)?;
            if entries.left == 0 { Ok(value) } else { Err(Malformed) }
        })
    }

    /// The length of a struct that begins here, or None.
    fn struct_length(&mut self) -> Result<Option<usize>, Malformed> {
        match self.peek()? {
            short @ head::STRUCT..head::LIST => {
                self.rest = &self.rest[1..];
                Ok(Some((short - head::STRUCT).into()))
            }
            head::LONG_STRUCT => {
                self.rest = &self.rest[1..];
                self.count().map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Malformed;

    fn is_human_readable(&self) -> bool {
        false
    }

    /// Values describe themselves. A variant is what it is in JSON: its name, or a map from its name to its value.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        if let Some(length) = self.struct_length()? {
            return self.entries(length, Keys::Names(None), |fields| visitor.visit_map(fields));
        }
        match self.byte()? {
            small @ ..=head::MAX_SMALL => visitor.visit_u64(small.into()),
            short @ head::TEXT..head::STRUCT => {
                visitor.visit_borrowed_str(self.text((short - head::TEXT).into())?)
            }
            short @ head::LIST..head::NONE => {
                let length = (short - head::LIST).into();
                self.entries(length, Keys::Values, |list| visitor.visit_seq(list))
            }
            head::NONE => visitor.visit_unit(),
            head::SOME => self.within(|reader| visitor.visit_some(reader)),
            head::FALSE => visitor.visit_bool(false),
            head::TRUE => visitor.visit_bool(true),
            head::F32 => visitor.visit_f32(f32::from_le_bytes(self.array()?)),
            head::F64 => visitor.visit_f64(f64::from_le_bytes(self.array()?)),
            head::VARIANT => self.entries(1, Keys::Names(None), |variant| visitor.visit_map(variant)),
            head::UNIT_VARIANT => visitor.visit_borrowed_str(self.name()?),
            number @ head::NUMBER..head::NEGATIVE => {
                visitor.visit_u64(self.number(number - head::NUMBER + 1)?)
            }
            number @ head::NEGATIVE..head::LONG_TEXT => {
                let number = i64::try_from(self.number(number - head::NEGATIVE + 1)?);
                visitor.visit_i64(!number.map_err(|_| Malformed)?)
            }
            head::LONG_TEXT => {
                let length = self.count()?;
                visitor.visit_borrowed_str(self.text(length)?)
            }
            head::BYTES => {
                let length = self.count()?;
                visitor.visit_borrowed_bytes(self.bytes(length)?)
            }
            head::LONG_LIST => {
                let length = self.count()?;
                self.entries(length, Keys::Values, |list| visitor.visit_seq(list))
            }
            head::MAP => {
                let length = self.count()?;
                self.entries(length, Keys::Values, |map| visitor.visit_map(map))
            }
            _ => Err(Malformed),
        }
    }

    /// A value is written as it is if it is present, so a field may become optional, and be required again.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.peek()? {
            head::NONE => self.byte().and_then(|_| visitor.visit_none()),
            head::SOME => self.deserialize_any(visitor),
            _ => self.within(|reader| visitor.visit_some(reader)),
        }
    }

    // These are what most values are, without a look at what else they could be.

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.rest {
            [head @ head::TEXT..head::STRUCT, rest @ ..] => {
                self.rest = rest;
                visitor.visit_borrowed_str(self.text((head - head::TEXT).into())?)
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        match self.rest {
            [small @ ..=head::MAX_SMALL, rest @ ..] => {
                self.rest = rest;
                visitor.visit_u64((*small).into())
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Malformed> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &str, visitor: V) -> Result<V::Value, Malformed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        match self.struct_length()? {
            Some(length) => {
                self.entries(length, Keys::Names(Some(known)), |fields| visitor.visit_map(fields))
            }
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        match self.peek()? {
            head::VARIANT => {
                self.rest = &self.rest[1..];
                let name = self.name()?;
                self.within(|reader| visitor.visit_enum(Variant { name, value: Some(reader) }))
            }
            head::UNIT_VARIANT => {
                self.rest = &self.rest[1..];
                visitor.visit_enum(Variant { name: self.name()?, value: None })
            }
            // As JSON has them, for values that came from there.
            head::TEXT..head::STRUCT => {
                visitor.visit_enum(Variant { name: Deserialize::deserialize(self)?, value: None })
            }
            head::MAP => {
                self.rest = &self.rest[1..];
                match self.count()? {
                    1 => {
                        let name = Deserialize::deserialize(&mut *self)?;
                        self.within(|reader| visitor.visit_enum(Variant { name, value: Some(reader) }))
                    }
                    _ => Err(Malformed),
                }
            }
            _ => Err(Malformed),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 u8 u16 u32 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map
        identifier ignored_any
    }
}

/// The values of a list, the fields of a struct, or the entries of a map.
struct Entries<'r, 'de> {
    reader: &'r mut Reader<'de>,
    left: usize,
    keys: Keys,
}

/// The keys of entries.
#[derive(Clone, Copy)]
enum Keys {
    /// Names of fields. If the known ones are given, fields with other names are passed over.
    Names(Option<Known>),
    /// Values. A list has none.
    Values,
}

impl<'de> SeqAccess<'de> for Entries<'_, 'de> {
    type Error = Malformed;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Malformed> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Malformed;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Malformed> {
        while let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            let known = match self.keys {
                Keys::Names(known) => known,
                Keys::Values => return seed.deserialize(&mut *self.reader).map(Some),
            };
            let (name, is_known) = self.reader.field(known)?;
            if is_known {
                return seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some);
            }
            IgnoredAny::deserialize(&mut *self.reader)?;
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Malformed> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

struct Variant<'r, 'de> {
    name: &'de str,
    /// None if the variant has no value.
    value: Option<&'r mut Reader<'de>>,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Malformed;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Malformed> {
        Ok((seed.deserialize(BorrowedStrDeserializer::new(self.name))?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Malformed;

    fn unit_variant(self) -> Result<(), Malformed> {
        if self.value.is_none() { Ok(()) } else { Err(Malformed) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Malformed> {
        seed.deserialize(self.value.ok_or(Malformed)?)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Malformed> {
        self.value.ok_or(Malformed)?.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Malformed> {
        self.value.ok_or(Malformed)?.deserialize_struct("", known, visitor)
    }
}
