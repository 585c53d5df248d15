//! What can be asked of the limiter.

use crate::{
    Millis, Name, Page,
    key_values::KeyValues,
    selection::{Query, Selection},
};
use alloc::{boxed::Box, vec::Vec};
use serde::{Deserialize, Serialize};

/// The largest count, limit or burst: what a JSON number carries exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// A command of the limiter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// Make, change or remove rules and overrides.
    Change(Change),
    /// Read a rule.
    GetRule(Name),
    /// A part of the rules, by name.
    ListRules {
        /// What to look for among the keys.
        query: Query,
        /// Which part.
        page: Page<Name>,
    },
    /// Read an override.
    GetOverride {
        /// Of which rule.
        rule: Name,
        /// Which.
        name: Name,
    },
    /// A part of a rule's overrides, by name.
    ListOverrides {
        /// Of which rule.
        rule: Name,
        /// What to look for among their key-values.
        query: Query,
        /// Which part.
        page: Page<Name>,
    },
    /// Which rules and overrides would apply.
    Match(KeyValues),
    /// Take from every limit that applies, or from none.
    Check(Check),
    /// Several checks of one entry, each on its own, in order.
    CheckBatch(Vec<Check>),
    /// Take (as a check, and always counted), or give back.
    MoveCounter {
        /// The exact counter.
        key_values: KeyValues,
        /// Positive to take, negative to give back, 0 to look.
        by: i64,
    },
    /// Set the exact counter's unleased part. No rule is asked.
    SetCounter {
        /// The exact counter.
        key_values: KeyValues,
        /// Its new value; none at 0 or below.
        to: i64,
    },
    /// A part of the counters, in an order that lasts.
    ListCounters {
        /// What to look for among their key-values.
        query: Query,
        /// Which part.
        page: Page<CounterId>,
    },
    /// Check, and hold what was taken for a while.
    TakeLease(NewLease),
    /// Hold it for its ttl from now on.
    ExtendLease(Name),
    /// Give back what it holds.
    ReleaseLease(Name),
    /// Read a lease.
    GetLease(Name),
    /// A part of the leases, by id.
    ListLeases(Page<Name>),
}

impl Command {
    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        match self {
            Command::Change(_)
            | Command::Check(_)
            | Command::CheckBatch(_)
            | Command::MoveCounter { .. }
            | Command::SetCounter { .. }
            | Command::TakeLease(_)
            | Command::ExtendLease(_)
            | Command::ReleaseLease(_) => true,
            Command::GetRule(_)
            | Command::ListRules { .. }
            | Command::GetOverride { .. }
            | Command::ListOverrides { .. }
            | Command::Match(_)
            | Command::ListCounters { .. }
            | Command::GetLease(_)
            | Command::ListLeases(_) => false,
        }
    }
}

/// A counter's place in the list of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CounterId(pub u32);

/// A change of rules or overrides. Where counters must be summed up for it, it is answered when that is done; others
/// wait behind it, and checks go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Make a rule.
    CreateRule(NewRule),
    /// Replace all of a rule but its name and its overrides, or make it.
    PutRule(NewRule),
    /// Change parts of a rule.
    PatchRule {
        /// Which.
        name: Name,
        /// What.
        patch: RulePatch,
    },
    /// Remove a rule with its overrides.
    DeleteRule(Name),
    /// Make an override.
    CreateOverride {
        /// Of which rule.
        rule: Name,
        /// What.
        new: NewOverride,
    },
    /// Replace all of an override but its name, or make it.
    PutOverride {
        /// Of which rule.
        rule: Name,
        /// What.
        new: NewOverride,
    },
    /// Change parts of an override.
    PatchOverride {
        /// Of which rule.
        rule: Name,
        /// Which.
        name: Name,
        /// What.
        patch: OverridePatch,
    },
    /// Remove an override.
    DeleteOverride {
        /// Of which rule.
        rule: Name,
        /// Which.
        name: Name,
    },
    /// Make the namespace's file-managed rules exactly these, with these overrides, or change nothing.
    ApplyFile(Vec<FileRule>),
}

/// A rule to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRule {
    /// Its name within the namespace.
    pub name: Name,
    /// Each distinct combination of these keys' values has a limit of its own. In the client's order, each once.
    pub group_by: Vec<Box<str>>,
    /// What it applies to, besides having the keys.
    pub selection: Selection,
    /// How much.
    pub limit: Limit,
    /// Within what; without, what is in use counts.
    pub window: Option<Window>,
    /// Count and report, but never refuse.
    pub shadow: bool,
    /// Whether a check waits for the disk, if that is not left to the default.
    pub durability: Option<Durability>,
    /// The client's words about it.
    pub description: Option<Box<str>>,
}

impl NewRule {
    /// Whether a check waits for the disk: by default with a window it does not, and without one it does.
    pub fn durability(&self) -> Durability {
        self.durability.unwrap_or(match self.window {
            Some(_) => Durability::Relaxed,
            None => Durability::Durable,
        })
    }
}

/// How much may be in use, or happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Any amount; it is counted all the same.
    Unlimited,
    /// At most this, which is at most [`MAX_COUNT`].
    AtMost(u64),
}

/// The span within which a limit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Window {
    /// Spans one after another, aligned to the epoch.
    Fixed {
        /// How long one is.
        per: Millis,
    },
    /// Any span of this length.
    Sliding {
        /// How long.
        per: Millis,
    },
    /// The limit is refilled evenly.
    Bucket {
        /// The time in which a whole limit is refilled.
        per: Millis,
        /// How much it holds; without, the limit.
        burst: Option<u64>,
    },
}

impl Window {
    /// Its length.
    pub fn per(self) -> Millis {
        match self {
            Window::Fixed { per } | Window::Sliding { per } | Window::Bucket { per, .. } => per,
        }
    }
}

/// Whether a reply waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Durability {
    /// What was answered is never forgotten.
    Durable,
    /// After a crash the last instants before it may be forgotten.
    Relaxed,
}

/// The fields of a rule to be changed; nothing means left alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RulePatch {
    /// A new limit.
    pub limit: Option<Limit>,
    /// Another window, or none.
    pub window: Option<Option<Window>>,
    /// Another selection.
    pub selection: Option<Selection>,
    /// Refuse or only report.
    pub shadow: Option<bool>,
    /// Wait for the disk or not; the inner nothing is the default of the window.
    pub durability: Option<Option<Durability>>,
    /// Other words, or none.
    pub description: Option<Option<Box<str>>>,
}

/// An override to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewOverride {
    /// Its name within the rule.
    pub name: Name,
    /// What it applies to: every key by which the rule groups, and more if wished.
    pub key_values: KeyValues,
    /// The limit in place of the rule's.
    pub limit: Limit,
    /// The burst in place of the rule's, for a bucket; without, its own limit.
    pub burst: Option<u64>,
}

/// The fields of an override to be changed; nothing means left alone.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct OverridePatch {
    /// Other key-values.
    pub key_values: Option<KeyValues>,
    /// A new limit.
    pub limit: Option<Limit>,
    /// A new burst, or none.
    pub burst: Option<Option<u64>>,
}

/// A rule as a file has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileRule {
    /// The rule.
    pub rule: NewRule,
    /// All its overrides.
    pub overrides: Vec<NewOverride>,
}

/// Take from every limit that applies to any of the entries, or from none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is taken from what. HTTP sends one, others several.
    pub entries: Vec<Take>,
    /// Decide, and take nothing.
    pub dry_run: bool,
}

/// One entry of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Take {
    /// From the limits that apply to these.
    pub key_values: KeyValues,
    /// How much; 0 only looks, and a negative amount gives back and is never refused. At most [`MAX_COUNT`] in size.
    pub hits: i64,
    /// A limit that comes with the request and stands in place of the rules.
    pub limit: Option<RequestLimit>,
}

/// A limit that comes with a request. It has a group of its own for the exact key-values and its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLimit {
    /// How much.
    pub limit: u64,
    /// In fixed windows of this length.
    pub per: Millis,
}

/// A lease to be taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewLease {
    /// Drawn by whoever submits it.
    pub id: Name,
    /// From the limits that apply to these.
    pub key_values: KeyValues,
    /// How much; at least 1.
    pub hits: u64,
    /// How long, unless it is extended.
    pub ttl: Millis,
    /// The client's word for itself.
    pub owner: Option<Name>,
}
