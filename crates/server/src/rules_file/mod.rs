//! Reads a TOML file of rules. Everything in it means what it means over HTTP.
//!
//! Each rule and each override is converted to JSON and then read like the body of a request, so that names, units, aliases
//! and limits are the same by construction. Errors that only the engine finds in a request are found here too, as far as
//! the file alone shows them.

mod json;
mod lines;

use crate::http::{
    extract::{parse as parse_json, shortened},
    from_wire::limiter as from_wire,
    problem::Failure,
};
use limina_engine::{
    Name,
    limiter::{NewOverride, NewRule, SetRule},
};
use lines::Lines;
use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    fmt,
    hash::Hash,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The rules of a file, by namespace. A namespace with an empty list loses the rules that it had from the file.
pub type Rules = BTreeMap<Name, Vec<SetRule>>;

/// An error in a rules file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The path of the invalid part, such as `namespaces.shop.rules[3].window.per`; `None` if the file is not TOML.
    pub place: Option<String>,
    /// What is wrong with it.
    pub detail: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.detail)
    }
}

/// Reads a whole file, or returns its errors: the first one of each rule and each override.
pub fn parse(text: &str) -> Result<Rules, Vec<Problem>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { lines: Lines::of(text), problems: Vec::new() };
    for error in errors {
        let at = error.span().map_or(text.len(), |span| span.start);
        let detail = format!("this is not TOML: {}", error.message().replace('\n', " "));
        reader.problems.push(Problem { line: reader.lines.line_at(at), place: None, detail });
    }
    if reader.problems.is_empty() {
        let rules = reader.file(document.get_ref());
        if reader.problems.is_empty() {
            return Ok(rules);
        }
    }
    reader.problems.sort_by_key(|problem| problem.line);
    Err(reader.problems)
}

/// A value of the document, its path for messages, and the byte offset at which it begins.
struct Node<'d> {
    path: String,
    at: usize,
    value: &'d DeValue<'d>,
}

impl<'d> Node<'d> {
    fn of_key(
        path: &str,
        key: &'d Spanned<std::borrow::Cow<'d, str>>,
        value: &'d Spanned<DeValue<'d>>,
    ) -> Node<'d> {
        let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = key.get_ref();
        let word = if !name.is_empty() && name.chars().all(is_bare) {
            name.to_string()
        } else {
            format!("{:?}", shortened(name))
        };
        let path = if path.is_empty() { word } else { format!("{path}.{word}") };
        Node { path, at: key.span().start, value: value.get_ref() }
    }

    fn item(path: &str, index: usize, value: &'d Spanned<DeValue<'d>>) -> Node<'d> {
        Node { path: format!("{path}[{index}]"), at: value.span().start, value: value.get_ref() }
    }
}

/// Collects errors and reads on after each.
struct Reader {
    lines: Lines,
    problems: Vec<Problem>,
}

impl Reader {
    fn file(&mut self, table: &DeTable<'_>) -> Rules {
        self.only_key("", "namespaces", table);
        let Some((key, value)) = table.get_key_value("namespaces") else {
            // An empty file may be about to be written. It must not count as a file without rules, which would delete them all.
            self.problem(
                0,
                "namespaces",
                "is required; in a file without rules, write an empty table [namespaces]",
            );
            return Rules::new();
        };
        let node = Node::of_key("", key, value);
        let Some(namespaces) = self.table(&node) else { return Rules::new() };
        let mut rules = Rules::new();
        for (key, value) in namespaces {
            let node = Node::of_key(&node.path, key, value);
            let read = self.namespace(&node);
            match Name::new(key.get_ref()) {
                Ok(name) => drop(rules.insert(name, read)),
                Err(error) => self.problem(node.at, &node.path, error.to_string()),
            }
        }
        rules
    }

    fn namespace(&mut self, node: &Node<'_>) -> Vec<SetRule> {
        let Some(table) = self.table(node) else { return Vec::new() };
        self.only_key(&node.path, "rules", table);
        let Some((key, value)) = table.get_key_value("rules") else {
            self.problem(
                node.at,
                &format!("{}.rules", node.path),
                "is required; for a namespace without rules, write rules = []",
            );
            return Vec::new();
        };
        let rules = self.items(&Node::of_key(&node.path, key, value), Reader::rule);
        self.distinct(
            &rules,
            "name",
            |(_, read): &(_, SetRule)| read.rule.name.clone(),
            |name| format!("must be unique: {name:?} is used twice"),
        );
        rules.into_iter().map(|(_, rule)| rule).collect()
    }

    fn rule(&mut self, node: &Node<'_>) -> Option<SetRule> {
        let table = self.table(node)?;
        let rule: Option<NewRule> =
            self.read(node, table, "overrides", |json| from_wire::file_rule(parse_json(json)?));
        let overrides = match table.get_key_value("overrides") {
            Some((key, value)) => self.items(&Node::of_key(&node.path, key, value), Reader::new_override),
            None => Vec::new(),
        };
        self.distinct(
            &overrides,
            "name",
            |(_, new): &(_, NewOverride)| new.name.clone(),
            |name| format!("must be unique: {name:?} is used twice"),
        );
        self.distinct(
            &overrides,
            "key_values",
            |(_, new)| new.key_values.clone(),
            |_| "must be unique: another override of the rule has the same key-values".to_owned(),
        );
        let rule = rule?;
        for (node, new) in &overrides {
            if let Err(invalid) = new.validate_for(&rule) {
                self.failure(node, invalid.into());
            }
        }
        Some(SetRule { rule, overrides: overrides.into_iter().map(|(_, new)| new).collect() })
    }

    fn new_override(&mut self, node: &Node<'_>) -> Option<NewOverride> {
        let table = self.table(node)?;
        self.read(node, table, "", |json| from_wire::file_override(parse_json(json)?))
    }

    /// Reads a table like the body of a request, without the key `except`.
    fn read<T>(
        &mut self,
        node: &Node<'_>,
        table: &DeTable<'_>,
        except: &str,
        convert: impl FnOnce(&[u8]) -> Result<T, Failure>,
    ) -> Option<T> {
        let written = json::of_table(table, except);
        let read = written.map_err(|wrong| Failure::invalid(wrong.field, wrong.detail));
        match read.and_then(|json| convert(json.as_bytes())) {
            Ok(read) => Some(read),
            Err(failure) => {
                self.failure(node, failure);
                None
            }
        }
    }

    /// The items of a list that can be read, each with its node.
    fn items<'d, T>(
        &mut self,
        node: &Node<'d>,
        read: impl Fn(&mut Reader, &Node<'d>) -> Option<T>,
    ) -> Vec<(Node<'d>, T)> {
        let Some(items) = node.value.as_array() else {
            self.problem(node.at, &node.path, format!("must be a list of tables, not {}", kind(node.value)));
            return Vec::new();
        };
        let nodes = items.iter().enumerate().map(|(index, item)| Node::item(&node.path, index, item));
        nodes.filter_map(|node| read(self, &node).map(|item| (node, item))).collect()
    }

    fn table<'d>(&mut self, node: &Node<'d>) -> Option<&'d DeTable<'d>> {
        let table = node.value.as_table();
        if table.is_none() {
            self.problem(node.at, &node.path, format!("must be a table, not {}", kind(node.value)));
        }
        table
    }

    fn only_key(&mut self, path: &str, known: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter().filter(|(key, _)| key.get_ref() != known) {
            let node = Node::of_key(path, key, value);
            self.problem(node.at, &node.path, format!("is not a known key; the only key here is `{known}`"));
        }
    }

    fn distinct<'i, 'd: 'i, T: 'i, K: Eq + Hash>(
        &mut self,
        items: &'i [(Node<'d>, T)],
        field: &str,
        key: impl Fn(&(Node<'d>, T)) -> K,
        detail: impl Fn(&K) -> String,
    ) {
        let mut seen: HashMap<K, usize> = HashMap::new();
        for item in items {
            let (node, _) = item;
            match seen.entry(key(item)) {
                Entry::Vacant(entry) => drop(entry.insert(self.lines.line_at(node.at))),
                Entry::Occupied(entry) => {
                    let detail = format!("{} (line {})", detail(entry.key()), entry.get());
                    self.failure(node, Failure::invalid(field, detail));
                }
            }
        }
    }

    /// Adds a problem at the field that the failure names, within the node.
    fn failure(&mut self, node: &Node<'_>, failure: Failure) {
        // The hint of a failure lists the fields of a request, which are not all fields of a file.
        let detail = failure.reason();
        match failure.field() {
            None | Some("body") => self.problem(node.at, &node.path, detail),
            Some(field) => {
                let at = lines::of_field(node.value, field).unwrap_or(node.at);
                self.problem(at, &format!("{}.{field}", node.path), detail);
            }
        }
    }

    fn problem(&mut self, at: usize, place: &str, detail: impl Into<String>) {
        let (line, place) = (self.lines.line_at(at), Some(place.to_owned()));
        self.problems.push(Problem { line, place, detail: detail.into() });
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests;
