//! Reads configuration files, and refuses what envoyproxy/ratelimit refuses.
//!
//! The original looks at a file three times: every key must be one that it knows somewhere, wherever it stands; then the types
//! of the fields that are used must fit; then the descriptors must make sense. A key that is known but stands at a wrong place is
//! ignored there, and here too.

use crate::{
    domain::{Config, Descriptor, Domain, Level, NodeLimit, RateLimit, Unit},
    messages::Struct,
    metadata,
    rules::{self, Path},
    yaml::{self, Kind, Node, Value},
};
use limina_engine::{Name, limiter::NewRuleSet};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Every key that may stand anywhere in a file, except below `metadata`.
const KEYS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// Why a configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The file's name.
    pub file: String,
    /// The line, from 1. `None` if the reason is not on one line.
    pub line: Option<usize>,
    /// What is wrong there.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConfigError { file, line, reason } = self;
        match line {
            Some(line) => write!(f, "{file}: line {line}: {reason}"),
            None => write!(f, "{file}: {reason}"),
        }
    }
}

/// A setting that is accepted and has no effect here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// `detailed_metric`: rules have metrics of their own.
    DetailedMetric,
    /// `value_to_metric`: no label of a metric is a client's text.
    ValueToMetric,
}

impl Ignored {
    /// The key in the file.
    pub fn key(self) -> &'static str {
        match self {
            Ignored::DetailedMetric => "detailed_metric",
            Ignored::ValueToMetric => "value_to_metric",
        }
    }
}

/// Reads the files of a configuration, each with its name and its text, in this order. Fails with the first problem of each
/// file.
pub fn load<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Config, Vec<ConfigError>> {
    let mut config = Config::default();
    let mut problems = Vec::new();
    for (file, text) in files {
        let named = |Problem { line, reason }| ConfigError { file: file.to_owned(), line, reason };
        match load_file(text, &mut config) {
            Ok((domain, line)) if config.domains.contains_key(domain.name().as_str()) => {
                let reason = format!("another file has the domain `{}` already", domain.name());
                problems.push(ConfigError { file: file.to_owned(), line: Some(line), reason });
            }
            Ok((domain, _)) => {
                config.domains.insert(domain.name().as_str().into(), Arc::new(domain));
            }
            Err(problem) => problems.push(named(problem)),
        }
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// What is wrong with one file.
struct Problem {
    line: Option<usize>,
    reason: String,
}

impl Problem {
    fn at(node: &Node, reason: impl Into<String>) -> Problem {
        Problem { line: Some(node.line), reason: reason.into() }
    }
}

/// The domain of a file, and the line that names it.
fn load_file(text: &str, config: &mut Config) -> Result<(Domain, usize), Problem> {
    let root = yaml::parse(text)
        .map_err(|error| Problem { line: Some(error.line), reason: error.reason })?
        .filter(|root| !root.is_null());
    let no_domain = || "the file has no domain, or an empty one".to_owned();
    let Some(root) = root else { return Err(Problem { line: None, reason: no_domain() }) };
    if !matches!(root.value, Value::Map(_)) {
        return Err(Problem::at(&root, "the file must be a map, with `domain` and `descriptors`"));
    }
    check_keys(&root)?;
    let name = match root.get("domain") {
        Some(node) => text_of(node, "domain")?,
        None => "",
    };
    let domain = root.get("domain").unwrap_or(&root);
    if name.is_empty() {
        return Err(Problem::at(domain, no_domain()));
    }
    // Refused here, and not by the original: a name that no namespace has.
    let name = Name::new(name)
        .map_err(|invalid| Problem::at(domain, format!("the domain cannot be a namespace: {invalid}")))?;
    let mut loading = Loading { domain: &name, rules: Vec::new(), config };
    let level = loading.level(root.get("descriptors"), &Path::default())?;
    let rules = loading.rules;
    if rules.len() > NewRuleSet::MAX_RULES {
        let reason = format!("the domain has more than {} limits", NewRuleSet::MAX_RULES);
        return Err(Problem::at(domain, reason));
    }
    Ok((Domain::new(name, level, rules), domain.line))
}

/// Refuses keys that stand nowhere in a configuration, and values of types that no field has.
fn check_keys(node: &Node) -> Result<(), Problem> {
    let Value::Map(pairs) = &node.value else { return Ok(()) };
    for (key, value) in pairs {
        let name = match &key.value {
            Value::Scalar { text, kind: Kind::Text } => text.as_str(),
            Value::Scalar { text, .. } => {
                return Err(Problem::at(key, format!("the key `{text}` is not a text")));
            }
            Value::List(_) | Value::Map(_) => return Err(Problem::at(key, "a key must be a text")),
        };
        if !KEYS.contains(&name) {
            return Err(Problem::at(key, format!("the key `{name}` is unknown")));
        }
        if name == "metadata" {
            continue;
        }
        match &value.value {
            Value::Map(_) => check_keys(value)?,
            Value::List(items) => {
                for item in items {
                    if !matches!(item.value, Value::Map(_)) {
                        return Err(Problem::at(item, format!("every item of `{name}` must be a map")));
                    }
                    check_keys(item)?;
                }
            }
            Value::Scalar { text, kind: Kind::Number(_) } => {
                let reason =
                    format!("`{name}` is the number {text}: whole numbers of 63 bits and texts can be used");
                return Err(Problem::at(value, reason));
            }
            Value::Scalar { .. } => {}
        }
    }
    Ok(())
}

/// What is read so far of one file.
struct Loading<'a> {
    domain: &'a Name,
    rules: Vec<limina_engine::limiter::NewRule>,
    config: &'a mut Config,
}

impl Loading<'_> {
    /// A list of descriptors. No node, or null, is an empty list.
    fn level(&mut self, node: Option<&Node>, above: &Path) -> Result<Level, Problem> {
        let mut level = Level::default();
        let Some(node) = node.filter(|node| !node.is_null()) else { return Ok(level) };
        let Value::List(items) = &node.value else {
            return Err(Problem::at(node, "`descriptors` must be a list"));
        };
        for item in items {
            let descriptor = self.descriptor(item, above)?;
            let composite = descriptor.composite.clone();
            if !level.add(descriptor) {
                let reason =
                    format!("the descriptor `{composite}` is here twice: key and value are the same");
                return Err(Problem::at(item, reason));
            }
        }
        Ok(level)
    }

    fn descriptor(&mut self, node: &Node, above: &Path) -> Result<Descriptor, Problem> {
        let text = |field| node.get(field).map_or(Ok(""), |node| text_of(node, field));
        let flag = |field| node.get(field).map_or(Ok(false), |node| flag_of(node, field));
        let (key, value) = (text("key")?, text("value")?);
        if key.is_empty() {
            return Err(Problem::at(node, "the descriptor has no key, or an empty one"));
        }
        let shares = flag("share_threshold")?;
        let (shadow, quota) = (flag("shadow_mode")?, flag("quota_mode")?);
        for (field, ignored) in
            [("detailed_metric", Ignored::DetailedMetric), ("value_to_metric", Ignored::ValueToMetric)]
        {
            if flag(field)? {
                self.config.ignored.insert(ignored);
            }
        }
        let mut descriptor = Descriptor::new(key, value, shares);
        if shares && !descriptor.composite.contains('*') {
            let reason =
                "`share_threshold` needs a value with a `*`: it makes all values that match share one count";
            return Err(Problem::at(node, reason));
        }
        let path = above.child(&descriptor, key, value);
        let metadata = metadata_of(node)?;
        if let Some(limit) = node.get("rate_limit").filter(|limit| !limit.is_null()) {
            let terms = RateLimit { shadow, quota, metadata, ..rate_limit(limit)? };
            descriptor.limit = Some(self.limit(limit, terms, &path)?);
        }
        descriptor.below = self.level(node.get("descriptors"), &path)?;
        Ok(descriptor)
    }

    /// The limit of a node, with the rule that it becomes.
    fn limit(&mut self, node: &Node, terms: RateLimit, path: &Path) -> Result<NodeLimit, Problem> {
        let Some(unit) = terms.unit else { return Ok(NodeLimit { terms, rule: None }) };
        let rule = rules::rule(self.domain, path, &terms, unit);
        // Refused here, and not by the original: more than 16 entries with counts of their own.
        rule.validate().map_err(|invalid| {
            Problem::at(
                node,
                format!("the limit cannot be a rule: {}: {}", invalid.field(), invalid.reason()),
            )
        })?;
        let name = rule.name.clone();
        self.rules.push(rule);
        Ok(NodeLimit { terms, rule: Some(name) })
    }
}

/// The block `rate_limit`, without what stands beside it. `unit` is `None` for an unlimited one.
fn rate_limit(node: &Node) -> Result<RateLimit, Problem> {
    if !matches!(node.value, Value::Map(_)) {
        return Err(Problem::at(node, "`rate_limit` must be a map"));
    }
    let text = |field| node.get(field).map_or(Ok(""), |node| text_of(node, field));
    let unlimited = node.get("unlimited").map_or(Ok(false), |node| flag_of(node, "unlimited"))?;
    let word = text("unit")?;
    let at_unit = node.get("unit").unwrap_or(node);
    let unit = match (unlimited, Unit::from_word(word)) {
        (true, None) => None,
        (true, Some(_)) => return Err(Problem::at(at_unit, "an unlimited rate limit has no unit")),
        (false, Some(unit)) => Some(unit),
        (false, None) => {
            let reason =
                format!("the unit `{word}` is not one of second, minute, hour, day, week, month and year");
            return Err(Problem::at(at_unit, reason));
        }
    };
    let requests_per_unit = node.get("requests_per_unit").map_or(Ok(0), number_of)?;
    let name = text("name")?;
    let replaces = replaces_of(node, name)?;
    Ok(RateLimit {
        requests_per_unit,
        unit,
        name: name.into(),
        replaces,
        shadow: false,
        quota: false,
        metadata: None,
    })
}

/// The names of the limits that this one, named `own`, replaces.
fn replaces_of(node: &Node, own: &str) -> Result<Vec<Box<str>>, Problem> {
    let Some(list) = node.get("replaces").filter(|list| !list.is_null()) else { return Ok(Vec::new()) };
    let Value::List(items) = &list.value else {
        return Err(Problem::at(list, "`replaces` must be a list"));
    };
    let mut replaces = Vec::with_capacity(items.len());
    for item in items {
        let name = item.get("name").map_or(Ok(""), |node| text_of(node, "name"))?;
        if name.is_empty() {
            return Err(Problem::at(item, "an item of `replaces` has no name, or an empty one"));
        }
        if name == own {
            return Err(Problem::at(item, format!("the rate limit `{name}` replaces itself")));
        }
        replaces.push(name.into());
    }
    Ok(replaces)
}

fn metadata_of(node: &Node) -> Result<Option<Struct>, Problem> {
    let Some(node) = node.get("metadata").filter(|node| !node.is_null()) else { return Ok(None) };
    match &node.value {
        Value::Map(pairs) if pairs.is_empty() => Ok(None),
        Value::Map(pairs) => Ok(Some(metadata::from_yaml(pairs))),
        Value::Scalar { .. } | Value::List(_) => Err(Problem::at(node, "`metadata` must be a map")),
    }
}

/// A field that is a text. A number or a boolean is the text that the file has for it, and null is an empty text.
fn text_of<'n>(node: &'n Node, field: &str) -> Result<&'n str, Problem> {
    match &node.value {
        Value::Scalar { kind: Kind::Null, .. } => Ok(""),
        Value::Scalar { text, .. } => Ok(text),
        Value::List(_) | Value::Map(_) => Err(Problem::at(node, format!("`{field}` must be a text"))),
    }
}

fn flag_of(node: &Node, field: &str) -> Result<bool, Problem> {
    match node.value {
        Value::Scalar { kind: Kind::Null, .. } => Ok(false),
        Value::Scalar { kind: Kind::Boolean(flag), .. } => Ok(flag),
        _ => Err(Problem::at(node, format!("`{field}` must be true or false"))),
    }
}

fn number_of(node: &Node) -> Result<u32, Problem> {
    let number = match node.value {
        Value::Scalar { kind: Kind::Null, .. } => Some(0),
        Value::Scalar { kind: Kind::Integer(number), .. } => u32::try_from(number).ok(),
        _ => None,
    };
    number.ok_or_else(|| Problem::at(node, "`requests_per_unit` must be a whole number from 0 to 4294967295"))
}

/// The configuration by domain.
pub(crate) type Domains = BTreeMap<Box<str>, Arc<Domain>>;
