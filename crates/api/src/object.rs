//! Reading JSON objects strictly.
//!
//! The code that serde derives for a struct also accepts an array of its fields, and a map silently keeps the last of two
//! equal keys. The HTTP contract allows neither, so the functions here refuse both.

use alloc::vec::Vec;
use core::{fmt, marker::PhantomData};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

/// A `T` that must be a JSON object, not an array of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object<T>, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// A list of at most `MAX` items. Reading stops at the first item beyond that, so a list that is too long costs no more memory
/// than one of the permitted length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtMost<const MAX: usize, T>(pub Vec<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Deserialize<'de> for AtMost<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<AtMost<MAX, T>, D::Error> {
        struct ListVisitor<const MAX: usize, T>(PhantomData<T>);

        impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for ListVisitor<MAX, T> {
            type Value = AtMost<MAX, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<AtMost<MAX, T>, A::Error> {
                let mut items = Vec::new();
                while items.len() < MAX {
                    match list.next_element()? {
                        Some(item) => items.push(item),
                        None => return Ok(AtMost(items)),
                    }
                }
                match list.next_element::<IgnoredAny>()? {
                    None => Ok(AtMost(items)),
                    Some(_) => Err(de::Error::custom(format_args!("must not have more than {MAX} items"))),
                }
            }
        }
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

impl<const MAX: usize, T> AtMost<MAX, Object<T>> {
    fn into_objects(self) -> Vec<T> {
        self.0.into_iter().map(|Object(object)| object).collect()
    }
}

/// A list of at most `MAX` objects.
pub(crate) fn list<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    match deserializer.is_human_readable() {
        true => AtMost::<MAX, Object<T>>::deserialize(deserializer).map(AtMost::into_objects),
        false => Vec::deserialize(deserializer),
    }
}

/// A list of at most `MAX` objects, or `null`.
pub(crate) fn optional_list<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    match deserializer.is_human_readable() {
        true => Ok(Option::<AtMost<MAX, Object<T>>>::deserialize(deserializer)?.map(AtMost::into_objects)),
        false => Option::deserialize(deserializer),
    }
}

/// A list of at most `MAX` values.
pub(crate) fn values<'de, const MAX: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    AtMost::<MAX, T>::deserialize(deserializer).map(|AtMost(values)| values)
}

/// The error of an object with more than `max` keys.
pub(crate) fn too_many_keys<E: de::Error>(max: usize) -> E {
    E::custom(format_args!("must not have more than {max} keys"))
}

/// A value, or `null` for its default.
pub(crate) fn nullable<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    match deserializer.is_human_readable() {
        true => Ok(Option::deserialize(deserializer)?.unwrap_or_default()),
        false => T::deserialize(deserializer),
    }
}

/// A field of a PATCH that is present, with a value or `null`. serde does not call this for an absent field.
pub(crate) fn patch<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// An optional field that must not be `null`. serde does not call this for an absent field.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// An object, or `null`.
pub(crate) fn optional<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|Object(object)| object))
}

/// A field of a PATCH that is present, with an object or `null`. serde does not call this for an absent field.
pub(crate) fn patch_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    optional(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        static READ: Cell<usize> = const { Cell::new(0) };
    }

    /// An item whose parsing is counted in `READ`.
    struct Item;

    impl<'de> Deserialize<'de> for Item {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
            READ.set(READ.get() + 1);
            IgnoredAny::deserialize(deserializer).map(|_| Item)
        }
    }

    #[test]
    fn a_list_is_read_up_to_its_bound() {
        let check = |items: usize, expect: Result<usize, &str>, read: usize| {
            READ.set(0);
            let list = serde_json::to_string(&vec![1; items]).unwrap();
            let found = serde_json::from_str::<AtMost<3, Item>>(&list);
            let found = found.map(|AtMost(items)| items.len()).map_err(|error| error.to_string());
            match (&found, expect) {
                (Ok(found), Ok(expect)) => assert_eq!(*found, expect, "{list}"),
                (Err(found), Err(expect)) => assert!(found.starts_with(expect), "{found}"),
                _ => panic!("{found:?} of {list}"),
            }
            assert_eq!(READ.get(), read, "items that were read of {list}");
        };
        check(0, Ok(0), 0);
        check(2, Ok(2), 2);
        check(3, Ok(3), 3);
        check(4, Err("must not have more than 3 items"), 3);
        check(1_000, Err("must not have more than 3 items"), 3);
    }
}
