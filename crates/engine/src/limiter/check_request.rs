//! Checks as clients describe them: entries, single checks, batches and sets.

use super::terms::{MAX_AMOUNT, MAX_COUNT, check_per};
use crate::{Invalid, Millis, Reason, key_values::KeyValues};
use alloc::vec::Vec;
use core::ops::Deref;
use limina_api::invalid::{check_items, check_number};
use serde::{Deserialize, Serialize};

/// Take from every limit that applies to any of the entries, or from none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    pub(super) entries: Vec<Take>,
    pub(super) mode: CheckMode,
    pub(super) require_match: bool,
}

/// What a check does with what its entries take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum CheckMode {
    /// Take all of it, or nothing if a limit refuses.
    Take,
    /// Take nothing.
    DryRun,
    /// Take all of it, whatever the limits say: it has happened already.
    Report,
}

impl Check {
    /// The most entries of one check. The sum of their hits stays within 64 bits.
    pub const MAX_ENTRIES: usize = 64;

    /// Takes what the entries say, at least one. HTTP sends one entry.
    pub fn new(entries: Vec<Take>) -> Result<Check, Invalid> {
        check_items("entries", entries.len(), 1..=Check::MAX_ENTRIES)?;
        Ok(Check { entries, mode: CheckMode::Take, require_match: false })
    }

    /// Whether the check only decides, and takes nothing. A dry run reports nothing: see [`Check::with_report`].
    #[must_use]
    pub fn with_dry_run(self, dry_run: bool) -> Check {
        self.with_mode(CheckMode::DryRun, dry_run)
    }

    /// Whether the check says that it has happened already: it is counted whatever the limits say, and a bucket goes into debt.
    /// The decision says whether it was within all limits. An entry with negative hits is a refund: it gives back what still
    /// counts now. That is what was counted in the present span of a fixed window, the newest entries of a sliding window, and
    /// what is missing in a bucket. A report is no dry run: see [`Check::with_dry_run`].
    #[must_use]
    pub fn with_report(self, report: bool) -> Check {
        self.with_mode(CheckMode::Report, report)
    }

    /// Turns a mode on, or turns it off if it is on.
    fn with_mode(self, mode: CheckMode, is_on: bool) -> Check {
        match is_on {
            true => Check { mode, ..self },
            false if self.mode == mode => Check { mode: CheckMode::Take, ..self },
            false => self,
        }
    }

    /// Whether the check is refused with [`Refusal::NoRuleApplies`](super::reply::Refusal::NoRuleApplies) if no rule applies
    /// to one of its entries. Otherwise such an entry is allowed.
    #[must_use]
    pub fn with_require_match(self, require_match: bool) -> Check {
        Check { require_match, ..self }
    }

    /// What is taken from which limits, in order: a later entry sees what an earlier one takes.
    pub fn entries(&self) -> &[Take] {
        &self.entries
    }

    /// Whether the check only decides, and takes nothing.
    pub fn dry_run(&self) -> bool {
        self.mode == CheckMode::DryRun
    }

    /// Whether the check is counted whatever the limits say.
    pub fn report(&self) -> bool {
        self.mode == CheckMode::Report
    }

    /// Whether a rule must apply to every entry.
    pub fn require_match(&self) -> bool {
        self.require_match
    }

    pub(super) fn validate(&self) -> Result<(), Invalid> {
        check_items("entries", self.entries.len(), 1..=Check::MAX_ENTRIES)?;
        let mut entries = self.entries.iter().enumerate();
        entries.try_for_each(|(index, entry)| {
            entry.validate().map_err(|invalid| invalid.within_item("entries", index))
        })
    }
}

/// Several checks in one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckBatch(Vec<Check>);

impl CheckBatch {
    /// The most checks. A batch has at least one.
    pub const MAX_CHECKS: usize = 8_192;

    /// Takes the checks in the order in which they are to be decided.
    pub fn new(checks: Vec<Check>) -> Result<CheckBatch, Invalid> {
        check_items("checks", checks.len(), 1..=CheckBatch::MAX_CHECKS)?;
        Ok(CheckBatch(checks))
    }

    pub(super) fn validate(&self) -> Result<(), Invalid> {
        check_items("checks", self.0.len(), 1..=CheckBatch::MAX_CHECKS)?;
        let mut checks = self.0.iter().enumerate();
        checks.try_for_each(|(index, check)| {
            check.validate().map_err(|invalid| invalid.within_item("checks", index))
        })
    }
}

impl Deref for CheckBatch {
    type Target = [Check];

    fn deref(&self) -> &[Check] {
        &self.0
    }
}

/// One entry of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Take {
    pub(super) key_values: KeyValues,
    pub(super) hits: i64,
    pub(super) limit: Option<RequestLimit>,
}

impl Take {
    /// Takes `hits` from the limits that apply to the key-values. 0 only reads. A negative number gives back and is never
    /// refused. At most [`MAX_COUNT`] either way.
    pub fn new(key_values: KeyValues, hits: i64) -> Result<Take, Invalid> {
        check_hits(hits)?;
        Ok(Take { key_values, hits, limit: None })
    }

    /// A limit that comes with the request, and replaces the rules.
    #[must_use]
    pub fn with_limit(self, limit: Option<RequestLimit>) -> Take {
        Take { limit, ..self }
    }

    /// The key-values that select the limits.
    pub fn key_values(&self) -> &KeyValues {
        &self.key_values
    }

    /// How much is taken. A negative number gives back.
    pub fn hits(&self) -> i64 {
        self.hits
    }

    /// The limit that replaces the rules.
    pub fn limit(&self) -> Option<RequestLimit> {
        self.limit
    }

    pub(super) fn validate(&self) -> Result<(), Invalid> {
        check_hits(self.hits)?;
        self.limit.map_or(Ok(()), |limit| limit.validate())
    }
}

fn check_hits(hits: i64) -> Result<(), Invalid> {
    check_number("hits", hits, -MAX_AMOUNT..=MAX_AMOUNT)
}

/// A limit that comes with a request. It counts for the exact key-values and its window length alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLimit {
    pub(super) limit: u64,
    pub(super) per: Millis,
}

impl RequestLimit {
    /// Allows `limit` hits, at most [`MAX_COUNT`], in each fixed window of the length `per`.
    pub fn new(limit: u64, per: Millis) -> Result<RequestLimit, Invalid> {
        let limit = RequestLimit { limit, per };
        limit.validate()?;
        Ok(limit)
    }

    /// The most hits in one window.
    pub fn limit(self) -> u64 {
        self.limit
    }

    /// The length of a window.
    pub fn per(self) -> Millis {
        self.per
    }

    fn validate(self) -> Result<(), Invalid> {
        if self.limit > MAX_COUNT {
            return Err(Invalid::new("limit.limit", Reason::Number { min: 0, max: MAX_AMOUNT }));
        }
        check_per("limit.per", self.per)
    }
}

/// Several checks that are decided at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckSet {
    pub(super) entries: Vec<Take>,
    /// One for each entry.
    pub(super) ways: Vec<Way>,
}

/// How an entry takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Way {
    pub(super) mode: EntryMode,
    pub(super) alternative: Option<u16>,
}

/// One entry of a [`CheckSet`].
#[derive(Debug, Clone, PartialEq)]
pub struct SetEntry {
    take: Take,
    way: Way,
}

/// What an entry of a [`CheckSet`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryMode {
    /// Takes if the set is allowed. Refuses if it asks for more than is left.
    Take,
    /// Takes nothing. Refuses if more is used than the limit allows: only a report can bring that about.
    Look,
    /// Says what has happened already. It counts even if the set is refused. Refuses as `Take` does. With negative hits it gives
    /// back, and never refuses.
    Report,
}

impl SetEntry {
    /// Takes part in this way.
    pub fn new(take: Take, mode: EntryMode) -> SetEntry {
        SetEntry { take, way: Way { mode, alternative: None } }
    }

    /// Makes the entry a part of an alternative. Entries with the same number belong together: one that refuses exhausts the
    /// alternative. The set is refused by its alternatives only if all of them are exhausted. What an exhausted alternative
    /// takes does not count.
    #[must_use]
    pub fn with_alternative(self, alternative: Option<u16>) -> SetEntry {
        SetEntry { way: Way { alternative, ..self.way }, ..self }
    }
}

impl CheckSet {
    /// The most entries.
    pub const MAX_ENTRIES: usize = Check::MAX_ENTRIES;

    /// Takes at least one entry. Only a report has negative hits, and only a look has none.
    pub fn new(entries: Vec<SetEntry>) -> Result<CheckSet, Invalid> {
        let (entries, ways) = entries.into_iter().map(|entry| (entry.take, entry.way)).unzip();
        let set = CheckSet { entries, ways };
        set.validate()?;
        Ok(set)
    }

    /// What the entries are about, in order.
    pub fn entries(&self) -> &[Take] {
        &self.entries
    }

    /// What the entry of this number does.
    pub fn mode(&self, entry: usize) -> EntryMode {
        self.ways[entry].mode
    }

    /// The alternative that the entry of this number belongs to.
    pub fn alternative(&self, entry: usize) -> Option<u16> {
        self.ways[entry].alternative
    }

    pub(super) fn validate(&self) -> Result<(), Invalid> {
        check_items("entries", self.entries.len(), 1..=CheckSet::MAX_ENTRIES)?;
        check_items("ways", self.ways.len(), self.entries.len()..=self.entries.len())?;
        for (index, (entry, way)) in self.entries.iter().zip(&self.ways).enumerate() {
            let checked = entry.validate().and_then(|()| {
                let range = match way.mode {
                    EntryMode::Take => 1..=MAX_AMOUNT,
                    EntryMode::Look => 0..=0,
                    EntryMode::Report => -(MAX_AMOUNT)..=MAX_AMOUNT,
                };
                match range.contains(&entry.hits) {
                    true => Ok(()),
                    false => {
                        Err(Invalid::new("hits", Reason::Number { min: *range.start(), max: *range.end() }))
                    }
                }
            });
            checked.map_err(|invalid| invalid.within_item("entries", index))?;
        }
        Ok(())
    }
}
