//! Words of the API within a record, in the API's binary form (`#[serde(with = "record::answer")]`).
//!
//! The other fields of records are written without their names, so they cannot change. The API can: an answer that an earlier program
//! has stored is read although a field was added to it since.

use core::{fmt, marker::PhantomData};
use limina_api::binary;
use serde::{
    Deserializer, Serialize, Serializer,
    de::{self, DeserializeOwned, Visitor},
    ser,
};

pub(crate) fn serialize<T: Serialize, S: Serializer>(answer: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(&binary::encode(answer).map_err(ser::Error::custom)?)
}

pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    struct AnswerVisitor<T>(PhantomData<T>);

    impl<T: DeserializeOwned> Visitor<'_> for AnswerVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an answer in binary form")
        }

        fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<T, E> {
            binary::decode(bytes).map_err(E::custom)
        }
    }
    deserializer.deserialize_bytes(AnswerVisitor(PhantomData))
}
