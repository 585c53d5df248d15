//! The groups that the entries of a check touch: found before anything is taken, so that an answer which would be too
//! large is refused first.

use super::{
    check_request::{Check, Take},
    groups::{GroupKey, GroupOwner},
    rule::Rule,
    slot_queues::Slots,
    state::Limiter,
    terms::Limit,
    window::{Meter, MeterKind},
};
use crate::{
    ByteBuffer, Millis, Name, Time,
    answer_size::{self, AnswerBudget, TooLarge},
    key_values::KeyValues,
    slab::SlabIndex,
};
use alloc::vec::Vec;
use core::{hint::black_box, ops::Range};
use hashbrown::HashMap;

/// An upper bound of what an answer contains for each check without its limits: a whole problem document, if refused.
const DECISION_BYTES: usize = 512;
/// An upper bound of what an answer contains for each limit without its names and its group.
const LIMIT_BYTES: usize = 352;

/// A group that an entry of a check touches.
#[derive(Clone)]
pub(super) struct TouchedGroup {
    /// The number of the entry in the check.
    pub(super) entry: u32,
    /// `None` for a limit that comes with the request.
    pub(super) rule: Option<Name>,
    pub(super) override_name: Option<Name>,
    pub(super) owner: GroupOwner,
    pub(super) values: KeyValues,
    /// Set by the look-up in the check; `None` if the group does not exist (yet). Before that, it may be set to where the group
    /// probably is: see [`look_up`].
    pub(super) index: Option<SlabIndex>,
    /// The hash of the group's key, if [`look_up`] has computed it.
    hash: u32,
    pub(super) meter: Meter,
    /// Whether the group's limit applies. If overrides replace the limit of a rule, its group still counts.
    pub(super) is_limit: bool,
    pub(super) is_shadow: bool,
    pub(super) is_durable: bool,
    pub(super) exceeded: bool,
}

impl TouchedGroup {
    /// Whether the limit is about what is in use, and has no window.
    pub(super) fn is_count(&self) -> bool {
        matches!(self.meter.kind, MeterKind::Count)
    }

    /// Whether requests wait for this limit: it is enforced, and about what is in use.
    pub(super) fn is_slot(&self) -> bool {
        self.is_limit && self.is_count() && !self.is_shadow && self.meter.limit != Limit::Unlimited
    }

    /// Whether the limit refuses the entry, as far as it was asked. A shadow limit never does.
    pub(super) fn refuses(&self) -> bool {
        self.exceeded && !self.is_shadow
    }
}

/// The groups that all entries of a check touch, in the order of the entries.
pub(super) struct TouchedGroups {
    pub(super) groups: Vec<TouchedGroup>,
    /// About how much work it was to collect them: the rules and conditions that were looked at.
    pub(super) work: usize,
}

impl TouchedGroups {
    pub(super) fn collect(
        limiter: &Limiter,
        entries: &[Take],
        budget: &mut AnswerBudget,
    ) -> Result<TouchedGroups, TooLarge> {
        budget.spend(DECISION_BYTES)?;
        let mut groups = Vec::with_capacity(entries.len());
        let mut work = 0;
        for (number, entry) in entries.iter().enumerate() {
            match entry.limit {
                Some(given) => {
                    budget.spend(LIMIT_BYTES + budget.text(entry.key_values.as_bytes()))?;
                    let meter = Meter::of_request(Limit::AtMost(given.limit), given.per);
                    groups.push(request_group(number as u32, &entry.key_values, given.per, meter));
                }
                None => {
                    work += collect_by_rules(limiter, number as u32, &entry.key_values, &mut groups, budget)?;
                }
            }
            work += 1;
        }
        work += groups.len();
        limiter.charge(work);
        Ok(TouchedGroups { groups, work })
    }

    /// The first of the entries that touches no group, because no rule applies to it.
    pub(super) fn first_unmatched<'e>(&self, entries: &'e [Take]) -> Option<&'e Take> {
        let is_unmatched = |(index, _): &(usize, &Take)| range_of(&self.groups, *index).is_empty();
        entries.iter().enumerate().find(is_unmatched).map(|(_, entry)| entry)
    }

    /// The groups in which the entries wait. `None` if they would be refused even if nothing were in use. Each entry then counts for
    /// those behind it, also in the group of a rule whose limit an override replaces.
    pub(super) fn slots(&self, entries: &[Take]) -> Option<Slots> {
        // For each group what the entries so far want from it, and whether it is among `slots`.
        let mut wanted: HashMap<(GroupOwner, &KeyValues), (u64, bool)> = HashMap::new();
        let mut slots = Vec::new();
        for group in &self.groups {
            let Ok(hits @ 1..) = u64::try_from(entries[group.entry as usize].hits) else { continue };
            let (sum, is_waited_for) = wanted.entry((group.owner, &group.values)).or_default();
            *sum = sum.saturating_add(hits);
            if !group.is_limit || group.is_shadow {
                continue;
            }
            if group.meter.exceeds(None, Time(0), *sum) {
                return None;
            }
            if group.is_slot() && !core::mem::replace(is_waited_for, true) {
                slots.push(GroupKey { owner: group.owner, values: group.values.clone() });
            }
        }
        Some(Slots(slots))
    }

    /// Whether the answer to these checks certainly fits, whichever rules and overrides apply. False if that takes a closer
    /// look.
    pub(super) fn answer_fits(limiter: &Limiter, checks: &[Check], max_answer: usize) -> bool {
        let Some(rules) = limiter.rules.few(FEW_RULES) else {
            return answer_of_candidates_fits(limiter, checks, max_answer);
        };
        // An entry that comes with its own limit has one limit, even if there are no rules.
        let (mut limits, mut limits_bytes) = (1, LIMIT_BYTES);
        for rule in rules {
            let overrides = rule.overrides.key_sets();
            limits += 1 + overrides;
            limits_bytes +=
                (1 + overrides) * (LIMIT_BYTES + 2 * answer_size::text(rule.head.name.as_bytes()));
            limits_bytes += overrides * 2 * longest_text(Name::MAX_BYTES);
        }
        let mut budget = AnswerBudget::new(max_answer);
        checks.iter().all(|check| {
            let entry_bytes =
                |entry: &Take| limits_bytes + limits * longest_text(entry.key_values.as_bytes().len());
            let bytes: usize = check.entries.iter().map(entry_bytes).sum();
            budget.spend(DECISION_BYTES + bytes).is_ok()
        })
    }
}

/// Where the groups of an entry are among the groups of a check, which are in the order of the entries.
pub(super) fn range_of(groups: &[TouchedGroup], entry: usize) -> Range<usize> {
    let begin = groups.partition_point(|group| (group.entry as usize) < entry);
    let own = &groups[begin..];
    begin..begin + own.partition_point(|group| group.entry as usize == entry)
}

/// With more rules than this, the answer is measured by the rules that may apply, or by those that do.
const FEW_RULES: usize = 64;
/// The most entries and rules that may apply to them which are looked at before a closer look, which goes in slices.
const MAX_CANDIDATES: usize = 8_192;

/// Whether the answer certainly fits, whichever of the rules that may apply do.
fn answer_of_candidates_fits(limiter: &Limiter, checks: &[Check], max_answer: usize) -> bool {
    let mut budget = AnswerBudget::new(max_answer);
    let mut looked_at = 0;
    for check in checks {
        let mut bytes = DECISION_BYTES;
        for entry in &check.entries {
            let group_bytes = longest_text(entry.key_values.as_bytes().len());
            // An entry that comes with its own limit has one limit.
            bytes += LIMIT_BYTES + group_bytes;
            looked_at += 1;
            limiter.rules.for_each_candidate(&entry.key_values, |rule| {
                let overrides = rule.overrides.key_sets();
                let name_bytes = 2 * longest_text(rule.head.name.as_bytes().len());
                bytes += (1 + overrides) * (LIMIT_BYTES + name_bytes + group_bytes);
                bytes += overrides * 2 * longest_text(Name::MAX_BYTES);
                looked_at += 1;
            });
        }
        if looked_at > MAX_CANDIDATES || budget.spend(bytes).is_err() {
            return false;
        }
    }
    true
}

/// Finds out where many groups probably are. With millions of groups, a look-up mostly waits for memory: first for the hash
/// index, and then for the group. Here each of these reads is done for all groups in a row. No read depends on the one before it,
/// so the processor does several at a time. The decision checks what was found, because earlier decisions may create or remove
/// groups.
pub(super) fn look_up(limiter: &Limiter, touched: &mut [TouchedGroups]) {
    /// So few groups are in the processor's cache, and looking them up twice would take longer. In debug builds it is done all
    /// the same, so that tests with few groups cover it.
    const FEW_GROUPS: usize = if cfg!(debug_assertions) { 1 } else { 1 << 14 };
    let known = &limiter.groups;
    if known.len() < FEW_GROUPS || touched.iter().map(|touched| touched.groups.len()).sum::<usize>() < 2 {
        return;
    }
    let mut loaded = 0;
    for group in touched.iter_mut().flat_map(|touched| &mut touched.groups) {
        group.hash = known.hash(group.owner, group.values.as_bytes());
        loaded ^= known.load_place(group.hash);
    }
    black_box(loaded);
    for group in touched.iter_mut().flat_map(|touched| &mut touched.groups) {
        group.index = known.probable_index(group.hash);
        loaded ^= group.index.map_or(0, |index| known.load_group(index));
    }
    black_box(loaded);
}

/// An upper bound of [`answer_size::text`] for texts of this many bytes.
fn longest_text(bytes: usize) -> usize {
    2 + 6 * bytes
}

/// The group of a limit that comes with the request.
fn request_group(entry: u32, key_values: &KeyValues, per: Millis, meter: Meter) -> TouchedGroup {
    TouchedGroup {
        entry,
        rule: None,
        override_name: None,
        owner: GroupOwner::Request(per),
        values: key_values.clone(),
        index: None,
        hash: 0,
        meter,
        is_limit: true,
        is_shadow: false,
        is_durable: false,
        exceeded: false,
    }
}

/// The groups of all active rules and overrides that apply to the key-values. Stops at the first limit that exceeds the
/// budget. Returns about how much work it was.
fn collect_by_rules(
    limiter: &Limiter,
    entry: u32,
    key_values: &KeyValues,
    groups: &mut Vec<TouchedGroup>,
    budget: &mut AnswerBudget,
) -> Result<usize, TooLarge> {
    // Often only one rule applies, so the first one needs no list.
    let mut first: Option<(&Rule, KeyValues)> = None;
    let mut others: Vec<(&Rule, KeyValues)> = Vec::new();
    let work = limiter.rules.for_each_match(key_values, |rule, group| {
        if rule.is_active {
            match &first {
                None => first = Some((rule, group.clone())),
                Some(_) => others.push((rule, group.clone())),
            }
        }
    });
    let Some((rule, group)) = first else { return Ok(work) };
    if others.is_empty() {
        collect_rule(rule, entry, key_values, group, groups, budget)?;
        return Ok(work);
    }
    // Limits are reported in the order of their rules' names.
    others.push((rule, group));
    others.sort_unstable_by(|(a, _), (b, _)| a.head.name.cmp(&b.head.name));
    groups.reserve(others.len());
    for (rule, group) in others {
        collect_rule(rule, entry, key_values, group, groups, budget)?;
    }
    Ok(work)
}

fn collect_rule(
    rule: &Rule,
    entry: u32,
    key_values: &KeyValues,
    group: KeyValues,
    groups: &mut Vec<TouchedGroup>,
    budget: &mut AnswerBudget,
) -> Result<(), TooLarge> {
    // The names are in the answer twice if the limit refuses.
    let rule_bytes = LIMIT_BYTES + 2 * budget.text(rule.head.name.as_bytes());
    let generation = rule.head.generation;
    let own = TouchedGroup {
        entry,
        rule: Some(rule.head.name.clone()),
        override_name: None,
        owner: GroupOwner::Rule(generation),
        values: group,
        index: None,
        hash: 0,
        meter: rule.meter(),
        is_limit: true,
        is_shadow: rule.head.is_shadow,
        is_durable: rule.head.is_durable,
        exceeded: false,
    };
    if rule.overrides.is_empty() {
        groups.push(own);
        let own = groups.last().expect("it was just pushed");
        return budget.spend(rule_bytes + budget.text(own.values.as_bytes()));
    }
    let mut is_overridden = false;
    let mut is_own_group_touched = false;
    let first = groups.len();
    let mut scratch = ByteBuffer::new();
    for item in rule.overrides.applying(key_values, &mut scratch).filter(|item| item.is_active) {
        is_overridden = true;
        let terms = &item.stored.terms;
        let override_bytes = 2 * budget.text(terms.name.as_bytes());
        budget.spend(rule_bytes + override_bytes + budget.text(terms.key_values.as_bytes()))?;
        let is_exact = rule.is_exact(&terms.key_values);
        is_own_group_touched |= is_exact;
        groups.push(TouchedGroup {
            entry,
            rule: own.rule.clone(),
            override_name: Some(terms.name.clone()),
            owner: match is_exact {
                true => GroupOwner::Rule(generation),
                false => GroupOwner::Override { generation, id: item.stored.id },
            },
            values: terms.key_values.clone(),
            meter: rule.override_meter(item),
            ..own.clone()
        });
    }
    if !is_own_group_touched {
        if !is_overridden {
            budget.spend(rule_bytes + budget.text(own.values.as_bytes()))?;
        }
        groups.push(TouchedGroup { is_limit: !is_overridden, ..own });
    }
    // Limits of one rule are reported in the order of the overrides' names.
    groups[first..].sort_unstable_by(|a, b| a.override_name.cmp(&b.override_name));
    Ok(())
}
