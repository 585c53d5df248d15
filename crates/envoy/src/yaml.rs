//! YAML as a tree with line numbers, with scalars resolved as Go's yaml.v2 resolves them.
//!
//! envoyproxy/ratelimit reads its files with yaml.v2, which follows YAML 1.1: `yes` and `on` are booleans, `0777` is an
//! integer and `08` is a float. Which files it refuses depends on these types, so they are reproduced here. A parser for serde
//! would hide the text of a number, which a descriptor's value keeps.

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use std::{borrow::Cow, collections::HashMap};

/// The deepest nesting of lists and maps. Deeper files are refused, because nobody writes them by hand.
const MAX_DEPTH: usize = 64;
/// The most nodes of a file, with every use of an alias counted.
const MAX_NODES: usize = 1_000_000;

/// A part of the file.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The line on which it begins, from 1.
    pub(crate) line: usize,
    pub(crate) value: Value,
}

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Scalar {
        text: String,
        kind: Kind,
    },
    List(Vec<Node>),
    /// The pairs in the order of the file. Of several equal keys the last one counts.
    Map(Vec<(Node, Node)>),
}

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    Null,
    Boolean(bool),
    Integer(i64),
    /// A float, or an integer that does not fit into 64 bits with a sign.
    Number(f64),
    Text,
}

/// Why a text is not YAML, and on which line.
pub(crate) struct YamlError {
    pub(crate) line: usize,
    pub(crate) reason: String,
}

impl Node {
    /// The value of a key of a map.
    pub(crate) fn get(&self, wanted: &str) -> Option<&Node> {
        let Value::Map(pairs) = &self.value else { return None };
        let is_wanted = |key: &Node| matches!(&key.value, Value::Scalar { text, .. } if text == wanted);
        pairs.iter().rev().find(|(key, _)| is_wanted(key)).map(|(_, value)| value)
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar { kind: Kind::Null, .. })
    }
}

/// Parses the first document of the text. `None` if it is empty.
pub(crate) fn parse(text: &str) -> Result<Option<Node>, YamlError> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| YamlError {
            line: error.marker().line().max(1),
            reason: format!("this is not YAML: {}", error.info()),
        })?;
        if matches!(event, Event::DocumentEnd) {
            break;
        }
        builder.add(event, span.start.line().max(1))?;
    }
    Ok(builder.root)
}

/// Builds the tree from the parser's events.
#[derive(Default)]
struct Builder {
    root: Option<Node>,
    /// The lists and maps that are not complete yet, each with its anchor.
    open: Vec<(Node, usize)>,
    /// Complete nodes by their anchor.
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
}

#[derive(Clone)]
struct Anchored {
    node: Node,
    /// The number of nodes, this one included.
    nodes: usize,
    /// The number of levels of lists and maps.
    height: usize,
}

impl Builder {
    fn add(&mut self, event: Event<'_>, line: usize) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let kind = resolve(&text, style, tag.as_deref())
                    .ok_or_else(|| YamlError { line, reason: format!("the tag does not fit to `{text}`") })?;
                let value = Value::Scalar { text: text.into_owned(), kind };
                self.complete(Node { line, value }, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                self.begin(Node { line, value: Value::List(Vec::new()) }, anchor)
            }
            Event::MappingStart(anchor, _) => {
                self.begin(Node { line, value: Value::Map(Vec::new()) }, anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let (mut node, anchor) = self.open.pop().expect("the parser closes only what it has opened");
                if let Value::Map(pairs) = &mut node.value {
                    merge(pairs)?;
                }
                self.complete(node, anchor)
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(Anchored { node, nodes, height }) => {
                    self.count(nodes, line)?;
                    self.check_depth(height, line)?;
                    self.complete(node, 0)
                }
                None => {
                    Err(YamlError { line, reason: "an anchor contains itself, or is not defined".to_owned() })
                }
            },
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn begin(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.check_depth(1, node.line)?;
        self.open.push((node, anchor));
        Ok(())
    }

    /// Whether so many more levels are allowed here.
    fn check_depth(&self, levels: usize, line: usize) -> Result<(), YamlError> {
        if self.open.len() + levels > MAX_DEPTH {
            let reason = format!("lists and maps are nested more than {MAX_DEPTH} levels deep");
            return Err(YamlError { line, reason });
        }
        Ok(())
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.count(1, node.line)?;
        if anchor > 0 {
            let (nodes, height) = (size(&node), height(&node));
            self.anchors.insert(anchor, Anchored { node: node.clone(), nodes, height });
        }
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some((Node { value: Value::List(items), .. }, _)) => items.push(node),
            Some((Node { value: Value::Map(pairs), .. }, _)) => match pairs.last_mut() {
                Some((_, value)) if is_placeholder(value) => *value = node,
                _ => {
                    let value = Value::List(Vec::new());
                    pairs.push((node, Node { line: 0, value }));
                }
            },
            Some((Node { value: Value::Scalar { .. }, .. }, _)) => {
                unreachable!("only lists and maps are open")
            }
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, line: usize) -> Result<(), YamlError> {
        self.nodes += nodes;
        match self.nodes <= MAX_NODES {
            true => Ok(()),
            false => Err(YamlError { line, reason: format!("the file has more than {MAX_NODES} values") }),
        }
    }
}

/// Whether a key of a map has no value yet. Lines begin at 1, so no node of a file is one.
fn is_placeholder(node: &Node) -> bool {
    node.line == 0
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::Scalar { .. } => 0,
        Value::List(items) => items.iter().map(size).sum(),
        Value::Map(pairs) => pairs.iter().map(|(key, value)| size(key) + size(value)).sum(),
    }
}

fn height(node: &Node) -> usize {
    match &node.value {
        Value::Scalar { .. } => 0,
        Value::List(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Value::Map(pairs) => {
            1 + pairs.iter().flat_map(|(key, value)| [height(key), height(value)]).max().unwrap_or(0)
        }
    }
}

/// Replaces each merge key `<<` by the pairs of its map or maps.
fn merge(pairs: &mut Vec<(Node, Node)>) -> Result<(), YamlError> {
    let is_merge = |key: &Node| matches!(&key.value, Value::Scalar { text, .. } if text == "<<");
    if !pairs.iter().any(|(key, _)| is_merge(key)) {
        return Ok(());
    }
    let mut merged = Vec::with_capacity(pairs.len());
    for (key, value) in pairs.drain(..) {
        if !is_merge(&key) {
            merged.push((key, value));
            continue;
        }
        let refused = YamlError {
            line: key.line,
            reason: "`<<` merges a map or a list of maps, nothing else".to_owned(),
        };
        match value.value {
            Value::Map(inner) => merged.extend(inner),
            Value::List(maps) => {
                // Of several maps, the first one that has a key counts.
                for map in maps.into_iter().rev() {
                    let Value::Map(inner) = map.value else { return Err(refused) };
                    merged.extend(inner);
                }
            }
            Value::Scalar { .. } => return Err(refused),
        }
    }
    *pairs = merged;
    Ok(())
}

/// The type of a scalar. `None` if an explicit tag contradicts the text.
fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Option<Kind> {
    let is_plain = style == ScalarStyle::Plain;
    let Some(tag) = tag else { return Some(if is_plain { resolve_plain(text) } else { Kind::Text }) };
    if !tag.is_yaml_core_schema() {
        return Some(Kind::Text);
    }
    let kind = resolve_plain(text);
    match (tag.suffix.as_str(), kind) {
        ("null", Kind::Null) | ("bool", Kind::Boolean(_)) | ("int", Kind::Integer(_)) => Some(kind),
        ("float", Kind::Number(_)) => Some(kind),
        ("float", Kind::Integer(number)) => Some(Kind::Number(number as f64)),
        ("null" | "bool" | "int" | "float", _) => None,
        _ => Some(Kind::Text),
    }
}

fn resolve_plain(text: &str) -> Kind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Kind::Boolean(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Kind::Boolean(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Kind::Number(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Kind::Number(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Kind::Number(f64::NEG_INFINITY),
        _ => {}
    }
    let plain: Cow<'_, str> = match text.as_bytes()[0] {
        b'.' => Cow::Borrowed(text),
        b'+' | b'-' | b'0'..=b'9' => Cow::Owned(text.replace('_', "")),
        _ => return Kind::Text,
    };
    if let Some(integer) = integer(&plain) {
        return i64::try_from(integer).map_or(Kind::Number(integer as f64), Kind::Integer);
    }
    match is_float(&plain) {
        true => plain.parse().map_or(Kind::Text, Kind::Number),
        false => Kind::Text,
    }
}

/// An integer as Go's `strconv.ParseInt` reads it with base 0: a sign, and `0x`, `0b`, `0o` or `0` before the digits. What
/// fits neither into 64 bits with a sign nor into 64 bits without one is none.
fn integer(text: &str) -> Option<i128> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (base, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_alphanumeric()) {
        return None;
    }
    let number = sign * i128::from_str_radix(digits, base).ok()?;
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&number).then_some(number)
}

/// Digits with an optional sign, point and exponent. At least one digit is before or behind the point.
fn is_float(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let whole = digits(rest);
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let length = digits(fraction);
        if whole + length == 0 {
            return false;
        }
        rest = &fraction[length..];
    } else if whole == 0 {
        return false;
    }
    match rest.strip_prefix(['e', 'E']) {
        None => rest.is_empty(),
        Some(exponent) => {
            let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent) == exponent.len()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_have_the_types_of_yaml_v2() {
        #[track_caller]
        fn check(text: &str, expect: Kind) {
            let found = resolve(text, ScalarStyle::Plain, None);
            assert_eq!(found, Some(expect), "{text}");
            assert_eq!(resolve(text, ScalarStyle::DoubleQuoted, None), Some(Kind::Text));
        }
        check("", Kind::Null);
        check("~", Kind::Null);
        check("yes", Kind::Boolean(true));
        check("off", Kind::Boolean(false));
        check("yess", Kind::Text);
        check("5", Kind::Integer(5));
        check("-5", Kind::Integer(-5));
        check("1_000", Kind::Integer(1_000));
        check("0x1F", Kind::Integer(31));
        check("0b101", Kind::Integer(5));
        check("0o17", Kind::Integer(15));
        check("017", Kind::Integer(15));
        check("0", Kind::Integer(0));
        check("08", Kind::Number(8.0));
        check("1.5", Kind::Number(1.5));
        check(".5", Kind::Number(0.5));
        check("1e3", Kind::Number(1_000.0));
        check("18446744073709551615", Kind::Number(18_446_744_073_709_551_615.0));
        check("9223372036854775807", Kind::Integer(i64::MAX));
        check(".inf", Kind::Number(f64::INFINITY));
        check("-", Kind::Text);
        check("+", Kind::Text);
        check(".", Kind::Text);
        check("1.2.3.4", Kind::Text);
        check("2020-01-01", Kind::Text);
        check("10.0.0.0/8", Kind::Text);
        check("0x", Kind::Text);
        check("file*", Kind::Text);
    }
}
