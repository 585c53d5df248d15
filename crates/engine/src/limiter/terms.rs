//! Rules and overrides as clients describe them, and the limits within which a command may carry them.
//!
//! These are plain data: the engine also stores them and returns them. Only
//! [`RuleChange::new`](super::command::RuleChange::new) makes a command of them, and that checks all of it.

use crate::{
    Invalid, Millis, Name, Reason,
    key_values::{KeyValues, check_key},
    selection::Selection,
};
use alloc::{boxed::Box, format, vec::Vec};
pub use limina_api::limiter::{Durability, Limit, MAX_COUNT, SetOverrides};
use limina_api::{
    invalid::{check_bytes, check_distinct, check_duration, check_items, key_path},
    limiter::{self as api, WindowType},
};
use serde::{Deserialize, Serialize};

/// The largest amount that one command takes or gives back.
pub(super) const MAX_AMOUNT: i64 = MAX_COUNT as i64;

/// A rule to be created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRule {
    /// The rule's name within the namespace.
    pub name: Name,
    /// Each distinct combination of these keys' values has a limit of its own. In the client's order, each key once, at
    /// most [`NewRule::MAX_GROUP_BY`].
    pub group_by: Vec<Box<str>>,
    /// The rule applies to key-values that have all keys of `group_by` and are selected here.
    pub selection: Selection,
    /// How much may be in use, or happen in a window.
    pub limit: Limit,
    /// The window of the limit. None means that the limit is about what is in use.
    pub window: Option<Window>,
    /// Whether the rule counts and reports, but never refuses.
    pub shadow: bool,
    /// Whether a check waits for the disk. None means the default: see [`NewRule::durability`].
    pub durability: Option<Durability>,
    /// The client's words about the rule, at most [`NewRule::MAX_DESCRIPTION_BYTES`].
    pub description: Option<Box<str>>,
}

impl NewRule {
    /// The most keys that a rule groups by.
    pub const MAX_GROUP_BY: usize = 16;
    /// The longest description, in bytes.
    pub const MAX_DESCRIPTION_BYTES: usize = 1024;

    /// Whether a check waits for the disk. By default it does not with a window, and does without one.
    pub fn durability(&self) -> Durability {
        self.durability.unwrap_or(self.default_durability())
    }

    fn default_durability(&self) -> Durability {
        match self.window {
            Some(_) => Durability::Relaxed,
            None => Durability::Durable,
        }
    }

    /// These terms as they replace `before`. What a rule does by default is shown by a read, and may be sent back: then it stays the
    /// default, also if the window changes later.
    pub fn replacing(mut self, before: &NewRule) -> NewRule {
        if before.durability.is_none() && self.durability == Some(self.default_durability()) {
            self.durability = None;
        }
        self
    }

    /// Checks the limits of a rule that is not part of a command yet, such as one rule of a file.
    pub fn validate(&self) -> Result<(), Invalid> {
        let NewRule { name: _, group_by, selection, limit, window, shadow: _, durability: _, description } =
            self;
        check_items("group_by", group_by.len(), 0..=NewRule::MAX_GROUP_BY)?;
        for (index, key) in group_by.iter().enumerate() {
            check_key(key).map_err(|invalid| invalid.within_item("group_by", index))?;
        }
        check_distinct(group_by.iter(), |index| format!("group_by[{index}]"))?;
        selection.validate()?;
        limit.validate()?;
        window.map_or(Ok(()), Window::validate)?;
        description.as_deref().map_or(Ok(()), check_description)
    }
}

fn check_description(text: &str) -> Result<(), Invalid> {
    check_bytes("description", text, 0..=NewRule::MAX_DESCRIPTION_BYTES)
}

fn check_burst(field: &str, burst: u64) -> Result<(), Invalid> {
    match burst {
        1..=MAX_COUNT => Ok(()),
        _ => Err(Invalid::new(field, Reason::Number { min: 1, max: MAX_COUNT as i64 })),
    }
}

/// The span within which a limit applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Window {
    /// One span after another, aligned to the epoch.
    Fixed {
        /// The length of a span.
        per: Millis,
    },
    /// Any span of this length.
    Sliding {
        /// The length of the span.
        per: Millis,
    },
    /// A bucket that is refilled evenly.
    Bucket {
        /// The time in which a whole limit is refilled.
        per: Millis,
        /// How much the bucket holds, from 1 to [`MAX_COUNT`]. None means the limit.
        burst: Option<u64>,
    },
}

impl Window {
    /// The shortest window.
    pub const MIN_PER: Millis = Millis(1);
    /// The longest window.
    pub const MAX_PER: Millis = Millis(366 * Millis::DAY.0);

    /// The window's length.
    pub fn per(self) -> Millis {
        match self {
            Window::Fixed { per } | Window::Sliding { per } | Window::Bucket { per, .. } => per,
        }
    }

    /// Checks the limits of a window that is not part of a command yet.
    pub fn validate(self) -> Result<(), Invalid> {
        check_per("window.per", self.per())?;
        match self {
            Window::Bucket { per: _, burst: Some(burst) } => check_burst("window.burst", burst),
            Window::Bucket { per: _, burst: None } | Window::Fixed { .. } | Window::Sliding { .. } => Ok(()),
        }
    }
}

impl From<Window> for api::Window {
    fn from(window: Window) -> api::Window {
        let (kind, per_ms, burst) = match window {
            Window::Fixed { per } => (WindowType::Fixed, per, None),
            Window::Sliding { per } => (WindowType::Sliding, per, None),
            Window::Bucket { per, burst } => (WindowType::Bucket, per, burst),
        };
        api::Window { kind, per_ms, burst }
    }
}

/// Checks the length of a window.
pub(super) fn check_per(field: &str, per: Millis) -> Result<(), Invalid> {
    check_duration(field, per, Window::MIN_PER..=Window::MAX_PER)
}

/// The fields of a rule to be changed. None keeps a field as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RulePatch {
    /// A new limit.
    pub limit: Option<Limit>,
    /// Another window. `Some(None)` removes the window.
    pub window: Option<Option<Window>>,
    /// Another selection.
    pub selection: Option<Selection>,
    /// Whether the rule never refuses.
    pub shadow: Option<bool>,
    /// Whether a check waits for the disk. `Some(None)` restores the default.
    pub durability: Option<Option<Durability>>,
    /// Other words. `Some(None)` removes them.
    pub description: Option<Option<Box<str>>>,
}

impl RulePatch {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let RulePatch { limit, window, selection, shadow: _, durability: _, description } = self;
        limit.map_or(Ok(()), Limit::validate)?;
        window.flatten().map_or(Ok(()), Window::validate)?;
        selection.as_ref().map_or(Ok(()), Selection::validate)?;
        description.as_ref().and_then(Option::as_deref).map_or(Ok(()), check_description)
    }
}

/// An override to be created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewOverride {
    /// The override's name within the rule.
    pub name: Name,
    /// The override applies to key-values that contain all of these. They contain every key that the rule groups by, and
    /// may contain more.
    pub key_values: KeyValues,
    /// The limit that replaces the rule's limit.
    pub limit: Limit,
    /// The burst that replaces the rule's burst, if the rule has a bucket. None means the override's own limit.
    pub burst: Option<u64>,
}

impl NewOverride {
    /// Checks the limits of an override that is not part of a command yet, such as one override of a file.
    pub fn validate(&self) -> Result<(), Invalid> {
        let NewOverride { name: _, key_values: _, limit, burst } = self;
        limit.validate()?;
        burst.map_or(Ok(()), |burst| check_burst("burst", burst))
    }

    /// Checks that the override fits the rule: it has every key by which the rule groups, and a burst only if the rule is
    /// a bucket.
    pub fn validate_for(&self, rule: &NewRule) -> Result<(), Invalid> {
        if let Some(key) = rule.group_by.iter().find(|key| self.key_values.get(key).is_none()) {
            return Err(Invalid::new(key_path("key_values", key), Reason::GroupKeyMissing));
        }
        match (self.burst, rule.window) {
            (Some(_), None | Some(Window::Fixed { .. } | Window::Sliding { .. })) => {
                Err(Invalid::new("burst", Reason::BurstWithoutBucket))
            }
            (None, _) | (Some(_), Some(Window::Bucket { .. })) => Ok(()),
        }
    }
}

/// The fields of an override to be changed. None keeps a field as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OverridePatch {
    /// Other key-values.
    pub key_values: Option<KeyValues>,
    /// A new limit.
    pub limit: Option<Limit>,
    /// A new burst. `Some(None)` removes the burst.
    pub burst: Option<Option<u64>>,
}

impl OverridePatch {
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let OverridePatch { key_values: _, limit, burst } = self;
        limit.map_or(Ok(()), Limit::validate)?;
        burst.flatten().map_or(Ok(()), |burst| check_burst("burst", burst))
    }
}

/// A rule of a set, with those of its overrides that belong to the set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SetRule {
    /// The rule.
    pub rule: NewRule,
    /// The overrides that belong to the set, each name and each key-values once.
    pub overrides: Vec<NewOverride>,
}

impl SetRule {
    fn validate(&self) -> Result<(), Invalid> {
        let SetRule { rule, overrides } = self;
        rule.validate()?;
        for (index, new) in overrides.iter().enumerate() {
            let checked = new.validate().and_then(|()| new.validate_for(rule));
            checked.map_err(|invalid| invalid.within_item("overrides", index))?;
        }
        let field = |index: usize, field: &str| format!("overrides[{index}].{field}");
        check_distinct(overrides.iter().map(|new| &new.name), |index| field(index, "name"))?;
        check_distinct(overrides.iter().map(|new| &new.key_values), |index| field(index, "key_values"))
    }
}

/// What a rule set is to be: exactly these rules, with these overrides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRuleSet {
    /// The rules, each name once, at most [`NewRuleSet::MAX_RULES`].
    pub rules: Vec<SetRule>,
    /// Whether clients may make overrides of the rules.
    pub overrides: SetOverrides,
}

impl NewRuleSet {
    /// The most rules of a set.
    pub const MAX_RULES: usize = 10_000;

    pub(super) fn validate(&self) -> Result<(), Invalid> {
        check_items("rules", self.rules.len(), 0..=NewRuleSet::MAX_RULES)?;
        for (index, rule) in self.rules.iter().enumerate() {
            rule.validate().map_err(|invalid| invalid.within_item("rules", index))?;
        }
        let names = self.rules.iter().map(|rule| &rule.rule.name);
        check_distinct(names, |index| format!("rules[{index}].name"))
    }

    /// The number of rules and overrides.
    pub(crate) fn len(&self) -> usize {
        self.rules.iter().map(|rule| 1 + rule.overrides.len()).sum()
    }
}

/// Who changes a rule set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetAuthor {
    /// A client, who cannot change [the server's own sets](SERVERS_OWN_SETS).
    Client,
    /// The server itself, from its configuration.
    Server,
}

/// The sets that the server makes from its configuration: `file` from its rules file, and `envoy` from Envoy's
/// configuration. Clients cannot put or delete them.
pub const SERVERS_OWN_SETS: [&str; 2] = ["file", "envoy"];
