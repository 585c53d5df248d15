//! The holds of decisions, which are kept in the same log as all others.

use super::{Event, ExceededLimit, Ledger, available};
use crate::model::Order;
use limina_engine::{
    Name, Quota, QuotaExceeded,
    ledger::{Change, EntryType, LimitValue, RefusedHold},
};

impl Ledger {
    /// Why the limit of a change refuses it. A limit that does not exist would be created.
    pub(in crate::model) fn refused(&self, change: &Change) -> Option<RefusedHold> {
        let (commit, up, down) = self.sums(&change.limit_name);
        let value = i128::from(change.value);
        let (up, down) = (up + value.max(0), down + value.min(0));
        let limit_name = change.limit_name.clone();
        let ceiling = self.limit(&limit_name).map_or(change.ceiling, |limit| limit.terms.ceiling);
        let range = i128::from(i64::MIN)..=i128::from(i64::MAX);
        if let Some(ceiling) = ceiling.filter(|ceiling| value > 0 && commit + up > i128::from(*ceiling)) {
            return Some(RefusedHold::LimitExceeded(ExceededLimit {
                limit_name,
                ceiling,
                commit_value: commit.try_into().unwrap(),
                hold_value: (up - value + down).try_into().unwrap(),
                available: available(ceiling, commit, up - value),
            }));
        }
        let overflows = [up, down, commit + up, commit + down].iter().any(|sum| !range.contains(sum));
        overflows.then(|| RefusedHold::ValueOverflow {
            limit_name,
            ceiling,
            commit_value: commit.try_into().unwrap(),
            hold_value: (up + down - value).try_into().unwrap(),
            available: available(ceiling.unwrap_or(i64::MAX), commit, up - value.max(0)),
        })
    }

    /// The limits of these changes that do not exist.
    pub(in crate::model) fn missing(&self, changes: &[Change]) -> Vec<Name> {
        let names = changes.iter().map(|change| &change.limit_name);
        names.filter(|name| self.limit(name).is_none()).cloned().collect()
    }

    /// The refusal, if the namespace must not have so many more limits.
    pub(in crate::model) fn exceeded(&self, more: usize) -> Option<QuotaExceeded> {
        let used = self.limits.iter().filter(|limit| !limit.is_deleted).count();
        self.bounds.refuses(Quota::LedgerLimits, used, more)
    }

    /// Holds for a decision, which expires as a whole.
    pub(in crate::model) fn hold_part(&mut self, order: &mut Order, now: u64, id: &Name, changes: &[Change]) {
        self.hold_all(order, now, id, changes, None);
    }

    /// Ends the holds of a decision at the next position: commits these values, one for each hold, or rolls back.
    pub(in crate::model) fn end_part(
        &mut self,
        order: &mut Order,
        at: u64,
        id: &Name,
        committed: Option<&[i64]>,
        kind: EntryType,
    ) {
        let holds = self.holds(id).into_iter().enumerate();
        let value = |place: usize| committed.map_or(0, |values| values[place]);
        let ends: Vec<_> = holds.map(|(place, hold)| (hold.limit, value(place))).collect();
        self.end(order, at, id, &ends, kind);
    }

    /// Commits values of a decision whose holds were rolled back.
    pub(in crate::model) fn book_late(&mut self, order: &mut Order, now: u64, id: &Name, values: &[i64]) {
        order.advance();
        for (value, hold) in values.iter().zip(self.holds(id)) {
            self.log.push(Event {
                position: order.position,
                time: now,
                kind: EntryType::Overage,
                value: *value,
                held: 0,
                committed: i128::from(*value),
                ..hold
            });
        }
    }

    /// The values of the limits in which the operation holds or held.
    pub(in crate::model) fn values_of(&self, id: &Name) -> Vec<LimitValue> {
        self.holds(id).into_iter().map(|hold| self.value(hold.limit, u64::MAX)).collect()
    }

    /// The values of the limits as they would be with these holds.
    pub(in crate::model) fn values_with(&self, changes: &[Change]) -> Vec<LimitValue> {
        let value = |change: &Change| {
            let nothing = LimitValue {
                limit_name: change.limit_name.clone(),
                limit_id: change.limit_id.clone(),
                commit_value: 0,
                hold_value: 0,
                total_value: 0,
            };
            let now = self.id(&change.limit_name).map_or(nothing, |limit| self.value(limit, u64::MAX));
            LimitValue {
                hold_value: now.hold_value + change.value,
                total_value: now.total_value + change.value,
                ..now
            }
        };
        changes.iter().map(value).collect()
    }

    /// Says which ids belong to decisions, and when each of them expires.
    pub(in crate::model) fn reserve(&mut self, reserved: impl Iterator<Item = (Name, u64)>) {
        self.reserved = reserved.collect();
    }
}

/// Whether a commit of this value commits only a part of what is held.
pub(in crate::model) fn is_within(value: i64, held: i64) -> bool {
    value == 0 || (value.signum() == held.signum() && value.unsigned_abs() <= held.unsigned_abs())
}
