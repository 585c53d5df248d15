//! The checks of a decision. What they take from limits without a window is held by a lease that the decision stores, extends
//! and ends together with its other parts. What they take from windows can be settled later, if it was an estimate.

use super::{
    check::{self, TakeKind, Undo},
    check_request::Take,
    groups::{GroupKey, GroupOwner, WriteWhen},
    lease::Lease,
    leases,
    reply::AppliedLimit,
    slot_queues::{LAST, Slots},
    state::Limiter,
    touched_groups::{TouchedGroup, TouchedGroups, range_of},
    window::RefundPlace,
};
use crate::{
    ByteBuffer, Millis, Name, Position, Quota, QuotaExceeded, Time, WaitId,
    answer_size::{AnswerBudget, TooLarge},
    key_values::KeyValues,
    resident::Heap,
    turn::Turn,
};
use alloc::{format, vec, vec::Vec};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// The number of leases that one explanation looks at.
pub(crate) const EXPLAINED: usize = 1_024;

/// The status of a limit that applies to a check of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitOfCheck {
    /// The name of the check. The place of a check without a name is the `entry` of the status.
    pub check: Option<Name>,
    /// The status of the limit.
    pub status: AppliedLimit,
    /// Whether the limit refuses the check. A shadow limit never does.
    pub refuses: bool,
    /// Some of those who hold what is in use, the longest holder first. Only of a limit without a window that refuses, and
    /// only if the request wants an explanation.
    pub held_by: Vec<HeldBy>,
}

impl LimitOfCheck {
    fn new(refuses: bool, status: AppliedLimit) -> LimitOfCheck {
        LimitOfCheck { check: None, refuses, status, held_by: Vec::new() }
    }
}

/// Who holds a part of a limit: an open decision, or a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBy {
    /// The decision. `None` for a lease by itself.
    pub operation_id: Option<Name>,
    /// The lease. `None` for a decision.
    pub lease_id: Option<Name>,
    /// The name that the holder gave itself.
    pub owner: Option<Name>,
    /// For how long it has been held.
    pub held: Millis,
    /// The time until it expires, unless there is a heartbeat.
    pub expires_in: Millis,
}

/// The groups that the checks of a decision touch.
pub(crate) struct Touched(TouchedGroups);

impl Touched {
    pub(crate) fn collect(
        limiter: &Limiter,
        entries: &[Take],
        budget: &mut AnswerBudget,
    ) -> Result<Touched, TooLarge> {
        Ok(Touched(TouchedGroups::collect(limiter, entries, budget)?))
    }

    fn groups_of(&self, entry: usize) -> &[TouchedGroup] {
        &self.0.groups[range_of(&self.0.groups, entry)]
    }

    /// The groups in which the entries wait. `None` if they would be refused even if nothing were in use.
    pub(crate) fn slots(&self, entries: &[Take]) -> Option<Slots> {
        self.0.slots(entries)
    }

    /// Whether a rule applies to the entry.
    pub(crate) fn is_matched(&self, entry: usize) -> bool {
        !self.groups_of(entry).is_empty()
    }

    /// Whether the entry takes from limits without a window.
    fn is_counted(&self, entries: &[Take], entry: usize) -> bool {
        entries[entry].hits > 0 && check::is_counted(TakeKind::Part, self.groups_of(entry))
    }

    /// The resident bytes of what is remembered for the settlement of an entry.
    pub(crate) fn settlement_bytes(&self, entry: usize) -> u64 {
        let windows = self.groups_of(entry).iter().filter(|group| !group.is_count());
        windows.map(|group| WindowRefund::BYTES + group.values.heap()).sum()
    }
}

/// What an entry has taken from a window, for its settlement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct WindowRefund {
    owner: GroupOwner,
    values: KeyValues,
    at: RefundPlace,
    /// Whether the window has decided. If an override has, the window of the rule's own group only counts what passes.
    is_limit: bool,
}

impl WindowRefund {
    const BYTES: u64 = size_of::<WindowRefund>() as u64;

    pub(crate) fn resident_bytes(&self) -> u64 {
        WindowRefund::BYTES + self.values.heap()
    }
}

/// What one entry has taken, as far as its refund needs it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RefundInfo {
    /// Whether a lease holds what was taken from limits without a window.
    pub(crate) is_counted: bool,
    /// What was taken from windows. Empty unless it will be settled.
    pub(crate) windows: Vec<WindowRefund>,
}

/// What the limiter says to all checks of a decision.
pub(crate) struct ChecksOutcome {
    pub(crate) is_refused: bool,
    pub(crate) limits: Vec<LimitOfCheck>,
    pub(crate) retry_after: Option<Millis>,
    /// For each entry. Empty if nothing was taken.
    pub(crate) taken: Vec<RefundInfo>,
}

/// What to do if no entry is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Take.
    Take,
    /// Take nothing, and show what would be used.
    DryRun,
    /// Take nothing, because another part of the decision refuses.
    Look,
}

/// Asks all entries, as a request at this place in the queues. Each sees what earlier ones would take. `is_estimate` says which
/// entries will be settled. An entry that only limits without a window refuses counts for the windows of later entries:
/// the request may wait for what is in use, and must not wait if a window would refuse it then.
pub(crate) fn decide(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    entries: &[Take],
    touched: Touched,
    mode: Mode,
    place: WaitId,
    is_estimate: impl Fn(usize) -> bool,
) -> Result<ChecksOutcome, QuotaExceeded> {
    let (is_taking, is_dry_run) = (mode == Mode::Take, mode == Mode::DryRun);
    let now = turn.now;
    let counted: Vec<bool> = (0..entries.len()).map(|entry| touched.is_counted(entries, entry)).collect();
    let Touched(TouchedGroups { mut groups, .. }) = touched;
    let (mut is_refused, mut is_window_changed) = (false, false);
    let mut exceeded = None;
    let mut undo: Vec<Undo> = Vec::new();
    // For each entry, where its steps of `undo` end.
    let mut undo_ends = Vec::with_capacity(entries.len());
    for (index, entry) in entries.iter().enumerate() {
        let range = range_of(&groups, index);
        let own = &mut groups[range];
        let is_entry_refused = check::is_refused_by(limiter, now, entry, own, place);
        is_refused |= is_entry_refused;
        if !is_entry_refused && entry.hits > 0 {
            if is_taking && !is_refused && exceeded.is_none() {
                exceeded = check::check_quotas(limiter, turn, entry, own, TakeKind::Part).err();
            }
            is_window_changed |= own.iter().any(|group| !group.is_count());
            // Until all entries have passed, everything may be undone. So the windows are marked to be written only then.
            check::take(limiter, turn, entry, own, TakeKind::Part, WriteWhen::Never, Some(&mut undo));
        } else if is_entry_refused && !own.iter().any(|group| group.refuses() && !group.is_count()) {
            check::take_windows(limiter, turn, entry, own, TakeKind::Part, WriteWhen::Never, Some(&mut undo));
        }
        undo_ends.push(undo.len());
    }
    let leases = counted.iter().filter(|is_counted| **is_counted).count();
    if exceeded.is_none() {
        exceeded = turn.check_quota(Quota::Leases, limiter.leases.len(), leases).err();
    }
    let mut taken = Vec::new();
    // A dry run shows what would be used.
    let would_be = match is_dry_run && !is_refused {
        true => Some(check::statuses(limiter, now, groups.clone(), true, place)),
        false => None,
    };
    if is_refused || !is_taking || exceeded.is_some() {
        check::undo_all(limiter, turn, undo);
    } else {
        limiter.last_taken_at = Some(now);
        check::write_all(limiter, turn, &undo);
        let mut windows = window_refunds(limiter, turn, &undo, &undo_ends, &is_estimate);
        add_estimates_of_nothing(&mut windows, entries, &groups, now, is_estimate);
        taken = counted
            .into_iter()
            .zip(windows)
            .map(|(is_counted, windows)| RefundInfo { is_counted, windows })
            .collect();
        if is_window_changed {
            limiter.schedule_window_timers(turn);
        }
    }
    if let (false, true, Some(exceeded)) = (is_refused, is_taking, exceeded) {
        return Err(exceeded);
    }
    let retry_after = if is_refused { check::retry_after(limiter, now, entries, &groups) } else { None };
    let limits = would_be.unwrap_or_else(|| check::statuses(limiter, now, groups, true, place)).into_iter();
    let limits = limits.map(|status| LimitOfCheck::new(status.refuses(), status));
    Ok(ChecksOutcome { is_refused, limits: limits.collect(), retry_after, taken })
}

/// What the entries that will be settled have taken from windows. The steps that would undo it say how the windows were before.
fn window_refunds(
    limiter: &mut Limiter,
    turn: &Turn<'_>,
    undo: &[Undo],
    undo_ends: &[usize],
    is_settled: impl Fn(usize) -> bool,
) -> Vec<Vec<WindowRefund>> {
    // For each step, the next one at the same window.
    let mut nexts = vec![None; undo.len()];
    let mut following: HashMap<(GroupOwner, &KeyValues), usize> = HashMap::new();
    let has_settled = (0..undo_ends.len()).any(&is_settled);
    for (index, step) in undo.iter().enumerate().rev().filter(|_| has_settled) {
        if let Undo::Window { owner, values, .. } = step {
            nexts[index] = following.insert((*owner, values), index);
        }
    }
    let mut begin = 0;
    let mut taken = Vec::with_capacity(undo_ends.len());
    for (entry, end) in undo_ends.iter().enumerate() {
        let mut own = Vec::new();
        for index in (begin..*end).filter(|_| is_settled(entry)) {
            let Undo::Window { owner, values, before, is_limit } = &undo[index] else { continue };
            // The state after this step is the one before the next step at the same window.
            let next = nexts[index].and_then(|next| match &undo[next] {
                Undo::Window { before, .. } => Some(before.as_ref()),
                Undo::Counter(..) => None,
            });
            let Some(group) = limiter.groups.find(*owner, values.as_bytes()) else { continue };
            let after = next.unwrap_or_else(|| limiter.groups.state_at(Some(group))).cloned();
            let key = GroupKey { owner: *owner, values: values.clone() };
            if let (Some(after), Some(meter)) = (after, limiter.rules.meter_of(&key)) {
                let mut at = RefundPlace::Window(turn.now);
                limiter.groups.change(group, WriteWhen::Now, |state| {
                    at = meter.taken(before.as_ref(), &after, state, turn.now, turn.head.position);
                });
                own.push(WindowRefund { owner: *owner, values: values.clone(), at, is_limit: *is_limit });
            }
        }
        begin = *end;
        taken.push(own);
    }
    taken
}

/// Adds the windows of entries that have taken nothing, but will be settled too.
fn add_estimates_of_nothing(
    windows: &mut [Vec<WindowRefund>],
    entries: &[Take],
    groups: &[TouchedGroup],
    now: Time,
    is_estimate: impl Fn(usize) -> bool,
) {
    for (entry, own) in windows.iter_mut().enumerate() {
        if entries[entry].hits == 0 && is_estimate(entry) {
            let touched = groups[range_of(groups, entry)].iter().filter(|group| !group.is_count());
            own.extend(touched.map(|group| WindowRefund {
                owner: group.owner,
                values: group.values.clone(),
                at: RefundPlace::Window(now),
                is_limit: group.is_limit,
            }));
        }
    }
}

/// Settles what an entry took from windows: refunds what was taken beyond `actual` as far as it still counts, or counts what
/// is beyond `taken` past the limits. Windows of deleted rules, and those that were restarted, are passed over.
///
/// An expiry has the time at which it was due. If its timer is late, a request that waited may have been granted after that
/// time. What a bucket has refilled until that grant may have been taken by it, so it must not be refunded either.
pub(crate) fn settle(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    windows: &[WindowRefund],
    taken: u64,
    actual: u64,
) {
    let at = limiter.last_taken_at.map_or(turn.now, |last| last.max(turn.now));
    for window in windows.iter().filter(|_| taken != actual) {
        let key = GroupKey { owner: window.owner, values: window.values.clone() };
        let Some(meter) = limiter.rules.meter_of(&key) else { continue };
        let is_shadow = match key.owner {
            GroupOwner::Rule(generation) => {
                limiter.rules.by_generation(generation).is_some_and(|rule| rule.head.is_shadow)
            }
            GroupOwner::Override { .. } | GroupOwner::Request(_) => false,
        };
        let index = match limiter.groups.find(key.owner, key.values.as_bytes()) {
            Some(index) => index,
            None if actual < taken => continue,
            None => limiter.groups.insert(key.owner, &key.values, meter.initial()),
        };
        turn.changes.will_write(check::WINDOW_BYTES + key.values.as_bytes().len());
        limiter.groups.change(index, WriteWhen::Now, |state| match actual.checked_sub(taken) {
            Some(more) if window.is_limit => meter.take_past_limit(state, at, more),
            Some(more) => meter.take(state, at, more, is_shadow),
            None => meter.refund(state, at, window.at, taken, actual),
        });
    }
    limiter.schedule_window_timers(turn);
}

/// The decision waits, and stands in the queues of its groups now or later.
pub(crate) fn join(limiter: &mut Limiter, place: WaitId, entries: Vec<Take>, slots: Slots, is_queued: bool) {
    limiter.slots.join(place, entries, slots, is_queued);
}

/// The waiting decision stands in the queues of its groups from now on.
pub(crate) fn enter(limiter: &mut Limiter, place: WaitId) {
    limiter.slots.enter(place);
}

/// The decision no longer waits.
pub(crate) fn leave(limiter: &mut Limiter, place: WaitId) {
    limiter.slots.leave(place);
}

/// The statuses of all limits that apply to the entries now.
pub(crate) fn look(
    limiter: &Limiter,
    now: Time,
    entries: &[Take],
    budget: &mut AnswerBudget,
) -> Result<Vec<LimitOfCheck>, TooLarge> {
    let touched = TouchedGroups::collect(limiter, entries, budget)?;
    let limits = check::statuses(limiter, now, touched.groups, true, LAST).into_iter();
    Ok(limits.map(|status| LimitOfCheck::new(false, status)).collect())
}

/// A new lease for a check of a decision. It begins now.
pub(crate) struct NewPart<'a> {
    pub(crate) operation_id: &'a Name,
    pub(crate) owner: Option<&'a Name>,
    pub(crate) key_values: &'a KeyValues,
    pub(crate) hits: u64,
    /// The place of the check in its decision.
    pub(crate) place: usize,
    pub(crate) ttl: Millis,
    pub(crate) taken_at: Time,
    pub(crate) expires_at: Time,
    pub(crate) token: Position,
}

/// The resident bytes of the lease.
pub(crate) fn bytes_of(limiter: &Limiter, new: &NewPart<'_>) -> u64 {
    lease(limiter, new).resident_bytes()
}

/// Holds what [`decide`] has taken from limits without a window. Returns the id of the lease.
pub(crate) fn hold(limiter: &mut Limiter, new: &NewPart<'_>) -> Name {
    let lease = lease(limiter, new);
    let id = lease.id.clone();
    limiter.leases.insert(lease);
    id
}

/// Holds what a stored decision has. All counters must be loaded before.
pub(crate) fn load(limiter: &mut Limiter, new: &NewPart<'_>) -> Name {
    limiter.counters.load_lease(new.key_values, new.hits);
    hold(limiter, new)
}

fn lease(limiter: &Limiter, new: &NewPart<'_>) -> Lease {
    // The caller of an embedded engine draws the ids of its leases, so it could have drawn this one too.
    let mut text = format!("operation-{}-{}", new.token.0, new.place);
    let id = loop {
        let id = Name::new(&text).expect("it is short and has no control characters");
        if limiter.leases.get(&id).is_none() {
            break id;
        }
        text.push('+');
    };
    Lease {
        id,
        session: new.operation_id.clone(),
        key_values: new.key_values.clone(),
        hits: new.hits,
        owner: new.owner.cloned(),
        ttl: new.ttl,
        taken_at: new.taken_at,
        expires_at: new.expires_at,
        token: new.token,
        operation_id: Some(new.operation_id.clone()),
        ends_with_client: false,
    }
}

/// The decision that the lease is a part of.
pub(crate) fn operation_of<'l>(limiter: &'l Limiter, lease_id: &Name) -> Option<&'l Name> {
    limiter.leases.get(lease_id)?.operation_id.as_ref()
}

/// Says when the lease of a decision expires from now on.
pub(crate) fn extend(limiter: &mut Limiter, lease_id: &Name, expires_at: Time) {
    if let Some(lease) = limiter.leases.get_mut(lease_id) {
        lease.expires_at = expires_at;
    }
}

/// Gives back what the lease of a decision holds.
pub(crate) fn end(limiter: &mut Limiter, turn: &mut Turn<'_>, lease_id: &Name) {
    if let Some(lease) = limiter.leases.remove(lease_id) {
        leases::give_back(limiter, turn, &lease);
    }
}

/// The leases that hold most of the time a part of what is in use in the group of a limit, the longest holder first: at most
/// `shown` of those that were looked at.
pub(crate) fn held_by(limiter: &Limiter, now: Time, limit: &AppliedLimit, shown: usize) -> Vec<HeldBy> {
    let Some(rule) = limit.rule.as_ref().and_then(|name| limiter.rule(name)) else { return Vec::new() };
    let (mut group, mut scratch) = (ByteBuffer::new(), ByteBuffer::new());
    let mut is_counted = |lease: &Lease| {
        rule.applies(&lease.key_values, &mut group)
            && match &limit.override_name {
                None => group.as_slice() == limit.group.as_bytes(),
                Some(name) => {
                    let mut applying = rule.overrides.applying(&lease.key_values, &mut scratch);
                    applying.any(|item| item.stored.terms.name == *name)
                }
            }
    };
    let looked_at = limiter.leases.iter().take(EXPLAINED);
    let mut holders: Vec<&Lease> = looked_at.filter(|lease| is_counted(lease)).collect();
    holders.sort_by_key(|lease| lease.token);
    let held_by = |lease: &&Lease| HeldBy {
        operation_id: lease.operation_id.clone(),
        lease_id: lease.operation_id.is_none().then(|| lease.id.clone()),
        owner: lease.owner.clone(),
        held: Millis(now.0.saturating_sub(lease.taken_at.0)),
        expires_in: Millis(lease.expires_at.0.saturating_sub(now.0)),
    };
    holders.iter().take(shown).map(held_by).collect()
}
