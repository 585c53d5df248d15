//! Wakes the requests that wait for limits without a window: there is more room, or the rules have changed.

use super::{
    check_request::Take,
    groups::GroupKey,
    slot_queues::SlotQueues,
    state::Limiter,
    touched_groups::{TouchedGroup, TouchedGroups},
};
use crate::{answer_size::AnswerBudget, key_values::KeyValues};

impl Limiter {
    /// Wakes the first requests that wait in the groups in which a counter with these key-values counts: there is more room.
    pub(super) fn wake_by_counter(&mut self, key_values: &KeyValues) {
        if self.slots.are_queues_empty() {
            return;
        }
        let entry = Take { key_values: key_values.clone(), hits: 0, limit: None };
        let mut budget = AnswerBudget::unlimited();
        let Ok(touched) = TouchedGroups::collect(self, core::slice::from_ref(&entry), &mut budget) else {
            return;
        };
        for TouchedGroup { owner, values, .. } in touched.groups {
            self.slots.wake_first(&GroupKey { owner, values });
        }
    }

    /// Finds the groups of all waiting requests anew, and wakes all of them: rules have changed. Each keeps its place.
    pub(super) fn requeue(&mut self) {
        if self.slots.is_empty() {
            return;
        }
        let slots = core::mem::take(&mut self.slots);
        let mut requeued = SlotQueues::default();
        for (place, entries, is_queued) in slots.into_requests() {
            let collected = TouchedGroups::collect(self, &entries, &mut AnswerBudget::unlimited());
            // A request that can never be granted is refused when it is asked again.
            let slots = collected.ok().and_then(|touched| touched.slots(&entries)).unwrap_or_default();
            requeued.join(place, entries, slots, is_queued);
            requeued.wake(place);
        }
        self.slots = requeued;
    }
}
