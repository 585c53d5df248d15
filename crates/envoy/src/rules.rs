//! The rules that the limits of a configuration become, and the key-values by which a check finds them.
//!
//! A rule has the name of its node's path, and selects `rls` = that name, so a check touches exactly one rule. It groups by the
//! entries that have counts of their own.

use crate::domain::{Descriptor, RateLimit, Unit};
use limina_engine::{
    KeyValues, Name,
    key_values::Value,
    limiter::{Limit, NewRule, Window},
    selection::{Selection, Test},
};
use sha2::{Digest, Sha256};

/// The key that names the node of a check.
const NODE: &str = "rls";
/// How many bytes of a text's hash stand for it if it is too long.
const HASH_BYTES: usize = 16;

/// The way to a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Path {
    /// `key=value/key/…`: the name of the rule.
    name: String,
    /// As the original writes it in its statistics: `key_value.key`.
    original: String,
    group_by: Vec<Box<str>>,
    depth: usize,
}

impl Path {
    /// The way to a descriptor below this one.
    pub(crate) fn child(&self, descriptor: &Descriptor, key: &str, value: &str) -> Path {
        let mut path = self.clone();
        if path.depth > 0 {
            path.name.push('/');
            path.original.push('.');
        }
        escape(key, &mut path.name);
        if !value.is_empty() {
            path.name.push('=');
            escape(value, &mut path.name);
        }
        path.original.push_str(&descriptor.composite);
        let counted = descriptor.counted_key.as_ref();
        path.group_by.extend(counted.map(|key| key.name(self.depth).into_boxed_str()));
        path.depth += 1;
        path
    }
}

/// Two different paths never have the same name.
fn escape(text: &str, into: &mut String) {
    for character in text.chars() {
        match character {
            '/' => into.push_str("%2F"),
            '=' => into.push_str("%3D"),
            '%' => into.push_str("%25"),
            control if control.is_control() => {
                let mut bytes = [0; 4];
                for byte in control.encode_utf8(&mut bytes).bytes() {
                    into.push_str(&format!("%{byte:02X}"));
                }
            }
            other => into.push(other),
        }
    }
}

/// The rule of a limit.
pub(crate) fn rule(domain: &Name, path: &Path, terms: &RateLimit, unit: Unit) -> NewRule {
    let name = shorten(path.name.clone(), Name::MAX_BYTES - 2);
    // Neither `.` nor `..` can be a name.
    let name = if name.chars().all(|character| character == '.') { format!("{name}/") } else { name };
    let name = Name::new(&name).expect("it is not empty, short enough, without control characters");
    let mut description = format!("{domain}.{}", path.original);
    while description.len() > NewRule::MAX_DESCRIPTION_BYTES {
        description.pop();
    }
    let is_node = Test::Eq(Value::String(name.as_str().into()));
    let selection = Selection::new(vec![(NODE.into(), vec![is_node])]);
    NewRule {
        group_by: path.group_by.clone(),
        selection: selection.expect("one condition, on a short text"),
        limit: Limit::AtMost(terms.requests_per_unit.into()),
        window: Some(Window::Fixed { per: unit.per() }),
        shadow: terms.shadow,
        durability: None,
        description: Some(description.into()),
        name,
    }
}

/// The key-values of a check that touches the rule. The keys and values are short enough.
pub(crate) fn key_values(rule: &Name, values: &[(String, String)]) -> KeyValues {
    let node = (NODE, Value::String(rule.as_str()));
    let values = values.iter().map(|(key, value)| (key.as_str(), Value::String(value.as_str())));
    let pairs = std::iter::once(node).chain(values).collect();
    // A rule groups by at most 16 keys, and the places make them different.
    KeyValues::new(pairs).expect("few keys, each once, with short values")
}

/// A text of at most so many bytes. A longer one is replaced by its beginning and a hash of the whole.
pub(crate) fn shorten(mut text: String, max: usize) -> String {
    if text.len() <= max {
        return text;
    }
    let hash = Sha256::digest(text.as_bytes());
    let mut end = max - 1 - 2 * HASH_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text.push('~');
    for byte in &hash[..HASH_BYTES] {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}
