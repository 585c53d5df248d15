//! Keys: key-values are read as they were written, whatever the order of their pairs, and stored keys are parsed without a
//! panic and sort as their parts do.

#![no_main]

use libfuzzer_sys::fuzz_target;
use limina_engine::{KeyValues, NamespaceId, key_values::Value, record::key};
use std::collections::BTreeMap;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else { return };
    match kind % 3 {
        0 => check_key_values(bytes),
        1 => check_order(bytes),
        _ => {
            let _parsed = key::parse_resident(bytes);
            if let Some((id, taken_out)) = key::split_namespace(bytes) {
                assert_eq!(key::with_namespace(id, &taken_out).as_deref(), Some(bytes));
            }
        }
    }
});

fn check_key_values(bytes: &[u8]) {
    // Pairs: the length of the key, the key, then a value of 9 bytes.
    let mut pairs: Vec<(String, Value<String>)> = Vec::new();
    let mut rest = bytes;
    while let Some((&length, after)) = rest.split_first() {
        let Some((text, after)) = after.split_at_checked(usize::from(length % 16)) else { break };
        let Some((value, after)) = after.split_first_chunk::<9>() else { break };
        let number: [u8; 8] = value[1..].try_into().expect("eight bytes");
        let value = match value[0] % 4 {
            0 => Value::String(String::from_utf8_lossy(&number).into_owned()),
            1 => Value::Integer(i64::from_le_bytes(number)),
            2 => Value::Float(f64::from_le_bytes(number)),
            _ => Value::Boolean(number[0] % 2 == 1),
        };
        pairs.push((String::from_utf8_lossy(text).into_owned(), value));
        rest = after;
    }
    let Ok(key_values) = KeyValues::new(pairs.clone()) else { return };
    let expected: BTreeMap<String, String> =
        pairs.iter().map(|(key, value)| (key.clone(), shown(value.as_ref().to_owned()))).collect();
    let found: Vec<(String, String)> =
        key_values.iter().map(|pair| (pair.key.to_owned(), shown(pair.value.to_owned()))).collect();
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.iter().cloned().collect::<BTreeMap<_, _>>(), expected);
    for (name, value) in &expected {
        assert_eq!(key_values.get(name).map(|value| shown(value.to_owned())).as_ref(), Some(value));
    }
    pairs.reverse();
    assert_eq!(KeyValues::new(pairs), Ok(key_values), "the order of pairs makes a difference");
}

/// −0.0 is 0.0.
fn shown(value: limina_engine::key_values::OwnedValue) -> String {
    match value {
        Value::Float(number) => format!("{:?}", number + 0.0),
        other => format!("{other:?}"),
    }
}

/// Keys of one kind sort by namespace, then by number.
fn check_order(bytes: &[u8]) {
    let numbers: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight bytes")))
        .collect();
    let [a, b, c, d, ..] = numbers[..] else { return };
    let stored = |id: u64, number: u64| key::history(NamespaceId(id as u32), 1).u64(number).into_bytes();
    let order = (a as u32, b).cmp(&(c as u32, d));
    assert_eq!(stored(a, b).cmp(&stored(c, d)), order);
}
