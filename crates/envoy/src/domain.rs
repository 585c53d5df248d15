//! The tree of a domain: which limit a descriptor has.

use crate::{
    config::{Domains, Ignored},
    messages::{Entry, Struct, UnitCode},
    pattern::Pattern,
    rules,
};
use limina_engine::{KeyValues, Millis, Name, limiter::NewRule};
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// What all files together say. A clone shares the domains.
#[derive(Debug, Clone, Default)]
pub struct Config {
    pub(crate) domains: Domains,
    pub(crate) ignored: BTreeSet<Ignored>,
}

impl Config {
    /// A domain by its name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name).map(Arc::as_ref)
    }

    /// All domains, by name.
    pub fn domains(&self) -> impl ExactSizeIterator<Item = &Domain> {
        self.domains.values().map(Arc::as_ref)
    }

    /// Makes the domains of these names what they are in `other`, and removes those that are not there.
    pub fn take_domains<'n>(&mut self, names: impl IntoIterator<Item = &'n Name>, other: &Config) {
        for name in names {
            match other.domains.get(name.as_str()) {
                Some(domain) => self.domains.insert(name.as_str().into(), domain.clone()),
                None => self.domains.remove(name.as_str()),
            };
        }
    }

    /// Settings that are used somewhere and have no effect here.
    pub fn ignored(&self) -> impl Iterator<Item = Ignored> + '_ {
        self.ignored.iter().copied()
    }
}

/// Which hits count although the request is over a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CountRefused {
    /// Those of descriptors that say how much they take. Envoy sends them when the work is done already.
    #[default]
    Explicit,
    /// All, as in envoyproxy/ratelimit: a refused request uses up every other limit.
    Always,
    /// None.
    Never,
}

/// One domain of the configuration: a namespace.
#[derive(Debug)]
pub struct Domain {
    name: Name,
    level: Level,
    rules: Vec<NewRule>,
}

impl Domain {
    pub(crate) fn new(name: Name, level: Level, rules: Vec<NewRule>) -> Domain {
        Domain { name, level, rules }
    }

    /// The domain's name, which is that of its namespace.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The rules of the rule set `envoy`: one for each limit that is not unlimited, in the order of the file.
    pub fn rules(&self) -> &[NewRule] {
        &self.rules
    }

    /// The limit of a descriptor. On each level the exact value comes first, then wildcards in the order of the file, then the
    /// key alone; a choice is never taken back. A limit applies only to descriptors that end where it stands.
    pub(crate) fn resolve(&self, entries: &[Entry]) -> Option<Resolved<'_>> {
        let (last, above) = entries.split_last()?;
        let mut level = &self.level;
        let mut values = Vec::new();
        for (place, entry) in above.iter().enumerate() {
            let descriptor = level.find(entry)?;
            values.extend(descriptor.value_of(place, entry));
            level = &descriptor.below;
        }
        let descriptor = level.find(last)?;
        values.extend(descriptor.value_of(above.len(), last));
        let NodeLimit { terms, rule } = descriptor.limit.as_ref()?;
        Some(Resolved { terms, rule: rule.as_ref(), values })
    }
}

/// The limit of a descriptor.
pub(crate) struct Resolved<'d> {
    pub(crate) terms: &'d RateLimit,
    /// `None` if there is no limit to ask.
    rule: Option<&'d Name>,
    /// The keys and values of the entries that have counts of their own.
    values: Vec<(String, String)>,
}

impl<'d> Resolved<'d> {
    /// The rule, and the key-values of its check. `None` if the limit is unlimited.
    pub(crate) fn rule(&self) -> Option<(&'d Name, KeyValues)> {
        let rule = self.rule?;
        Some((rule, rules::key_values(rule, &self.values)))
    }
}

/// The descriptors of one list.
#[derive(Debug, Default)]
pub(crate) struct Level {
    descriptors: Vec<Descriptor>,
    /// The descriptors by their [`Descriptor::composite`].
    by_composite: HashMap<Box<str>, usize>,
    /// The descriptors with a `*`, in the order of the file.
    wildcards: Vec<(Pattern, usize)>,
}

impl Level {
    /// Returns false if there is one with the same key and value.
    pub(crate) fn add(&mut self, descriptor: Descriptor) -> bool {
        let place = self.descriptors.len();
        if self.by_composite.insert(descriptor.composite.clone(), place).is_some() {
            return false;
        }
        self.wildcards.extend(Pattern::new(&descriptor.composite).map(|pattern| (pattern, place)));
        self.descriptors.push(descriptor);
        true
    }

    fn find(&self, entry: &Entry) -> Option<&Descriptor> {
        let composite = format!("{}_{}", entry.key, entry.value);
        let exact = || self.by_composite.get(composite.as_str()).copied();
        let wildcard = || self.wildcards.iter().find(|(pattern, _)| pattern.matches(&composite));
        let key_alone = || self.by_composite.get(entry.key.as_str()).copied();
        let place = exact().or_else(|| wildcard().map(|(_, place)| *place)).or_else(key_alone)?;
        Some(&self.descriptors[place])
    }
}

/// A descriptor of the configuration.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// The key, or key and value with a `_` between them. The original compares nothing else, so `a_b` is also the key `a` with
    /// the value `b`.
    pub(crate) composite: Box<str>,
    /// How the entry is called in the key-values of a check. `None` if all entries that end here share a count: the value is
    /// fixed, or `share_threshold` puts the pattern in its place.
    pub(crate) counted_key: Option<CountedKey>,
    pub(crate) limit: Option<NodeLimit>,
    pub(crate) below: Level,
}

#[derive(Debug)]
pub(crate) enum CountedKey {
    /// A count for each value of this key.
    Key(Box<str>),
    /// A count for each key and value: the key is a pattern too.
    Composite(Box<str>),
}

impl CountedKey {
    /// The name of the entry at this place in the key-values of a check.
    pub(crate) fn name(&self, place: usize) -> String {
        let (CountedKey::Key(key) | CountedKey::Composite(key)) = self;
        rules::shorten(format!("{place}:{key}"), KeyValues::MAX_KEY_BYTES)
    }
}

impl Descriptor {
    pub(crate) fn new(key: &str, value: &str, shares: bool) -> Descriptor {
        let composite = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
        let counted_key = match (shares, key.contains('*'), value.is_empty() || value.contains('*')) {
            (true, _, _) | (_, false, false) => None,
            (_, true, _) => Some(CountedKey::Composite(key.into())),
            (_, _, true) => Some(CountedKey::Key(key.into())),
        };
        Descriptor { composite: composite.into(), counted_key, limit: None, below: Level::default() }
    }

    /// The pair of the entry in the key-values of a check.
    fn value_of(&self, place: usize, entry: &Entry) -> Option<(String, String)> {
        let key = self.counted_key.as_ref()?;
        let value = match key {
            CountedKey::Key(_) => entry.value.clone(),
            CountedKey::Composite(_) => format!("{}_{}", entry.key, entry.value),
        };
        Some((key.name(place), rules::shorten(value, KeyValues::MAX_STRING_BYTES)))
    }
}

/// A limit of the configuration, with the rule that it has become.
#[derive(Debug)]
pub(crate) struct NodeLimit {
    pub(crate) terms: RateLimit,
    /// `None` if the limit is unlimited.
    pub(crate) rule: Option<Name>,
}

/// A limit as the file describes it.
#[derive(Debug)]
pub(crate) struct RateLimit {
    pub(crate) requests_per_unit: u32,
    /// `None` if the limit is unlimited.
    pub(crate) unit: Option<Unit>,
    /// Empty if it has none.
    pub(crate) name: Box<str>,
    /// The names of limits that do not apply to a request to which this one applies.
    pub(crate) replaces: Vec<Box<str>>,
    pub(crate) shadow: bool,
    pub(crate) quota: bool,
    pub(crate) metadata: Option<Struct>,
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit(UnitCode);

impl Unit {
    /// A unit by its word, in letters of any case.
    pub(crate) fn from_word(word: &str) -> Option<Unit> {
        Unit::from_code(UnitCode::from_word(&word.to_uppercase())?)
    }

    pub(crate) fn from_code(code: UnitCode) -> Option<Unit> {
        (code != UnitCode::Unknown).then_some(Unit(code))
    }

    pub(crate) fn code(self) -> UnitCode {
        self.0
    }

    pub(crate) fn per(self) -> Millis {
        let seconds = match self.0 {
            UnitCode::Unknown | UnitCode::Second => 1,
            UnitCode::Minute => 60,
            UnitCode::Hour => 3_600,
            UnitCode::Day => 86_400,
            UnitCode::Week => 7 * 86_400,
            UnitCode::Month => 30 * 86_400,
            UnitCode::Year => 365 * 86_400,
        };
        Millis(seconds * 1_000)
    }
}
