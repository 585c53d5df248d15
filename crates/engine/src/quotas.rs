//! Quotas: how much of each kind a namespace may have.
//!
//! A quota refuses growth and nothing else. A namespace that has more than its quota, because the quota was lowered, keeps
//! everything, and may always release, finish, extend and delete.

use crate::Name;
use alloc::{boxed::Box, collections::BTreeMap, string::String, vec::Vec};
use core::fmt;
use serde::{Deserialize, Serialize};

/// What a quota counts. If a command exceeds several quotas, the first one in this order is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Quota {
    /// Replies that are kept under idempotency keys, and waiting requests whose reply will be kept.
    KeptReplies,
    /// Rules of the limiter.
    Rules,
    /// Overrides of all rules together.
    Overrides,
    /// Groups of rules and overrides that are not in their initial state.
    Groups,
    /// Counters above zero.
    Counters,
    /// Leases of the limiter.
    Leases,
    /// Limits of the ledger.
    LedgerLimits,
    /// Streams of events.
    Streams,
    /// Grants of locks.
    LocksHeld,
    /// Requests that wait for locks.
    LocksWaiting,
    /// An estimate of the memory that the namespace takes, in bytes.
    ResidentBytes,
}

impl Quota {
    /// All quotas, in their order.
    pub const ALL: [Quota; 11] = [
        Quota::KeptReplies,
        Quota::Rules,
        Quota::Overrides,
        Quota::Groups,
        Quota::Counters,
        Quota::Leases,
        Quota::LedgerLimits,
        Quota::Streams,
        Quota::LocksHeld,
        Quota::LocksWaiting,
        Quota::ResidentBytes,
    ];

    /// The word for the quota in the configuration, in problem documents and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Quota::Rules => "rules",
            Quota::Overrides => "overrides",
            Quota::Groups => "groups",
            Quota::Counters => "counters",
            Quota::Leases => "leases",
            Quota::LedgerLimits => "ledger_limits",
            Quota::Streams => "streams",
            Quota::LocksHeld => "locks_held",
            Quota::LocksWaiting => "locks_waiting",
            Quota::KeptReplies => "kept_replies",
            Quota::ResidentBytes => "resident_bytes",
        }
    }

    /// The quota with this name.
    pub fn from_name(name: &str) -> Option<Quota> {
        Quota::ALL.into_iter().find(|quota| quota.name() == name)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A command would have made a namespace larger than its quota. Nothing has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaExceeded {
    /// The quota.
    pub quota: Quota,
    /// The most that the namespace may have.
    pub limit: u64,
    /// What the namespace has. It may be less than the limit, if the command would have added several at once.
    pub used: u64,
}

/// The quotas of one namespace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas([Option<u64>; Quota::ALL.len()]);

impl Quotas {
    /// The most that the namespace may have. `None` if there is no bound.
    pub fn get(&self, quota: Quota) -> Option<u64> {
        self.0[quota as usize]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Fails if a namespace that has `used` must not get `more`. Nothing more is always allowed.
    pub(crate) fn check(&self, quota: Quota, used: u64, more: u64) -> Result<(), QuotaExceeded> {
        match self.get(quota) {
            Some(limit) if more > 0 && used.saturating_add(more) > limit => {
                Err(QuotaExceeded { quota, limit, used })
            }
            _ => Ok(()),
        }
    }
}

/// The quotas that one section of the configuration states. `None` lifts the quota that a less specific section states.
pub type QuotaSection = BTreeMap<Quota, Option<u64>>;

/// The quotas of all namespaces: some for every namespace, and some for those whose names match a pattern.
///
/// In a pattern, `*` matches any characters, also none. Each quota of a namespace is that of the most specific pattern that
/// matches its name and states this quota. A pattern without `*` is the most specific one; among the others, the one with the
/// most bytes besides `*`, then the one with the most bytes before its first `*`, then the first in the order of the texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaTable {
    /// The most specific section first.
    sections: Vec<(Box<str>, QuotaSection)>,
}

impl QuotaTable {
    /// Takes the quotas for every namespace, and those for the namespaces that match a pattern.
    pub fn new(all: QuotaSection, patterns: impl IntoIterator<Item = (String, QuotaSection)>) -> QuotaTable {
        let mut sections: Vec<(Box<str>, QuotaSection)> =
            patterns.into_iter().map(|(pattern, section)| (pattern.into(), section)).collect();
        sections.sort_by(|(a, _), (b, _)| specificity(b).cmp(&specificity(a)).then_with(|| a.cmp(b)));
        sections.push(("*".into(), all));
        QuotaTable { sections }
    }

    /// The quotas of the namespace.
    pub fn of(&self, namespace: &Name) -> Quotas {
        let mut quotas = Quotas::default();
        let mut is_stated = [false; Quota::ALL.len()];
        for (_, section) in self.sections.iter().filter(|(pattern, _)| matches(pattern, namespace.as_str())) {
            for (quota, limit) in section {
                let index = *quota as usize;
                if !core::mem::replace(&mut is_stated[index], true) {
                    quotas.0[index] = *limit;
                }
            }
        }
        quotas
    }
}

fn specificity(pattern: &str) -> (bool, usize, usize) {
    let stars = pattern.bytes().filter(|byte| *byte == b'*').count();
    (stars == 0, pattern.len() - stars, pattern.find('*').unwrap_or(pattern.len()))
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    // The earliest place of each part leaves the most for the parts behind it.
    for part in middle.split('*') {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_star_matches_any_characters() {
        #[track_caller]
        fn check(pattern: &str, matching: &[&str], others: &[&str]) {
            for text in matching {
                assert!(matches(pattern, text), "{pattern} does not match {text}");
            }
            for text in others {
                assert!(!matches(pattern, text), "{pattern} matches {text}");
            }
        }
        check("shop", &["shop"], &["shop-1", "a-shop", ""]);
        check("shop-*", &["shop-", "shop-1", "shop-*"], &["shop", "a-shop-1"]);
        check("*", &["", "a", "терминал"], &[]);
        check("*-eu", &["-eu", "a-eu", "-eu-eu"], &["eu", "-eu-"]);
        check("a*b*c", &["abc", "a-b-b-c", "abcbc"], &["ab", "acb", "a-c"]);
        check("a*a", &["aa", "aba"], &["a"]);
        check("a**b", &["ab", "a-b"], &["a"]);
    }

    #[test]
    fn the_most_specific_section_that_states_a_quota_decides() {
        let section = |stated: &[(Quota, Option<u64>)]| stated.iter().copied().collect::<QuotaSection>();
        let table = QuotaTable::new(
            section(&[(Quota::Rules, Some(1)), (Quota::Groups, Some(1)), (Quota::Leases, Some(1))]),
            [
                ("shop-*".to_string(), section(&[(Quota::Rules, Some(2)), (Quota::Groups, Some(2))])),
                ("shop-eu-*".to_string(), section(&[(Quota::Rules, Some(3)), (Quota::Leases, None)])),
                ("*-1".to_string(), section(&[(Quota::Rules, Some(4)), (Quota::Streams, Some(4))])),
                ("shop-eu-1".to_string(), section(&[(Quota::Rules, Some(5))])),
                ("a*c".to_string(), section(&[(Quota::Rules, Some(6))])),
                ("ab*".to_string(), section(&[(Quota::Rules, Some(7))])),
            ],
        );
        let check = |name: &str, expect: [Option<u64>; 4]| {
            let quotas = table.of(&Name::new(name).unwrap());
            let found =
                [Quota::Rules, Quota::Groups, Quota::Leases, Quota::Streams].map(|quota| quotas.get(quota));
            assert_eq!(found, expect, "{name}");
        };
        check("other", [Some(1), Some(1), Some(1), None]);
        check("shop-1", [Some(2), Some(2), Some(1), Some(4)]);
        check("shop-eu-2", [Some(3), Some(2), None, None]);
        check("shop-eu-1", [Some(5), Some(2), None, Some(4)]);
        check("abc", [Some(7), Some(1), Some(1), None]);
    }

    #[test]
    fn only_growth_is_refused() {
        let table = QuotaTable::new([(Quota::Streams, Some(2))].into(), []);
        let quotas = table.of(&Name::new("any").unwrap());
        assert_eq!(quotas.check(Quota::Streams, 1, 1), Ok(()));
        let refused = Err(QuotaExceeded { quota: Quota::Streams, limit: 2, used: 5 });
        assert_eq!(quotas.check(Quota::Streams, 5, 1), refused);
        assert_eq!(quotas.check(Quota::Streams, 5, 0), Ok(()));
        assert_eq!(quotas.check(Quota::Rules, 5, 1), Ok(()));
    }
}
