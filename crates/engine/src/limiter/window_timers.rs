//! Two timers per namespace look after windows: one writes the states that relaxed checks have changed, one drops the
//! windows that are back in their initial state.

use super::state::Limiter;
use crate::{
    Millis, Time,
    ids::NamespaceId,
    timers::{Timer, TimerKey, TimerSource, Timers},
    turn::Turn,
};

/// The longest time that a state changed by a relaxed check waits until it is written.
const WRITE_AFTER: Millis = Millis(100);
/// The number of such states that one run of the timer writes.
const WRITE_SLICE: usize = 4_096;
/// The pause until the next run, if more states wait than one run writes.
const WRITE_MORE_AFTER: Millis = Millis(10);

/// The pause between two scans of all windows for idle ones.
const DROP_IDLE_AFTER: Millis = Millis(10_000);
/// The number of slab indexes that one run of the timer looks at.
const DROP_IDLE_SLICE: usize = 4_096;
/// The pause until the next run within one scan.
const DROP_MORE_AFTER: Millis = Millis(80);

impl Limiter {
    /// Sets the timers that are needed and not set yet. To be called after windows have changed.
    pub(super) fn schedule_window_timers(&mut self, turn: &mut Turn<'_>) {
        if self.groups.has_to_write_soon() && !self.is_write_timer_set {
            self.is_write_timer_set = true;
            turn.timers.set(write_timer(turn, WRITE_AFTER), Timer::WriteWindows);
        }
        if self.groups.may_be_idle() && !self.is_idle_timer_set {
            self.is_idle_timer_set = true;
            turn.timers.set(idle_timer(turn, DROP_IDLE_AFTER), Timer::DropIdleWindows);
        }
    }

    /// Marks window states that relaxed checks have changed to be written with this batch.
    pub(crate) fn write_windows(&mut self, turn: &mut Turn<'_>) {
        self.groups.write_some_now(WRITE_SLICE);
        self.is_write_timer_set = self.groups.has_to_write_soon();
        if self.is_write_timer_set {
            turn.timers.set(write_timer(turn, WRITE_MORE_AFTER), Timer::WriteWindows);
        }
    }

    /// As [`Limiter::write_windows`], but more at once and without the timer: for a planned stop. Returns whether there was
    /// anything to write.
    pub(crate) fn flush_relaxed(&mut self) -> bool {
        let any = self.groups.has_to_write_soon();
        self.groups.write_some_now(4 * WRITE_SLICE);
        any
    }

    /// Scans some windows and drops those that are idle, or whose rule no longer exists.
    pub(crate) fn drop_idle_windows(&mut self, turn: &mut Turn<'_>) {
        let is_at_end = self.drop_idle(turn, DROP_IDLE_SLICE);
        self.is_idle_timer_set = self.groups.may_be_idle();
        if self.is_idle_timer_set {
            let after = if is_at_end { DROP_IDLE_AFTER } else { DROP_MORE_AFTER };
            turn.timers.set(idle_timer(turn, after), Timer::DropIdleWindows);
        }
    }

    /// Scans up to `limit` slab indexes, and drops groups that are idle or whose rule no longer exists. Returns whether the
    /// scan has reached the end.
    fn drop_idle(&mut self, turn: &mut Turn<'_>, limit: usize) -> bool {
        let Limiter { rules, groups, .. } = self;
        let now = turn.now;
        groups.drop_idle(limit, turn.namespace, turn.changes, |key, state| match rules.meter_of(key) {
            Some(meter) => meter.is_idle(state, now),
            None => true,
        })
    }

    /// Sets the timer that drops idle windows, if there are windows. For a limiter that was just loaded.
    pub(super) fn set_idle_timer(&mut self, now: Time, namespace: NamespaceId, timers: &mut Timers) {
        self.is_idle_timer_set = self.groups.may_be_idle();
        if self.is_idle_timer_set {
            let key = TimerKey { due: now.after(DROP_IDLE_AFTER), namespace, source: TimerSource::Windows };
            timers.set(key, Timer::DropIdleWindows);
        }
    }
}

fn write_timer(turn: &Turn<'_>, after: Millis) -> TimerKey {
    turn.timer_key(turn.now.after(after), TimerSource::UnwrittenWindows)
}

fn idle_timer(turn: &Turn<'_>, after: Millis) -> TimerKey {
    turn.timer_key(turn.now.after(after), TimerSource::Windows)
}
