//! What the engine does on its own: timers that run out, sweeps of removed ranges, changes of rules that must count,
//! and freeing memory.

use super::{Engine, namespace::Families};
use crate::{
    Effect, Fetched, Millis, Missing, Read, Time, events, idempotency,
    ids::NamespaceId,
    ledger, limiter, locks,
    reads::{self, Reader},
    record::{self, key},
    sweep::{self, Sweeping},
    timers::{Timer, TimerKey},
    turn::{CannotRun, Turn},
};
use alloc::vec::Vec;
use bytes::Bytes;
use core::ops::Range;

/// How long something that was due waits if a record that it needs could not be read.
const POSTPONED: Millis = Millis(1000);

/// Something that the engine does without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// A timer that has run out. These come before any request at the same time.
    Timer(TimerKey),
    /// A slice of a sweep. These come between other work, whenever.
    Sweep(u64),
    /// A slice of a change of rules.
    Backfill(NamespaceId),
    /// Freeing some memory.
    Free,
}

impl Engine {
    /// When the next timer runs out.
    pub fn next_due(&self) -> Option<Time> {
        self.context.timers.next_due()
    }

    /// What has run out by `now`, in order, at most `limit`.
    pub fn due(&self, now: Time, limit: usize) -> Vec<Due> {
        self.context.timers.due(now, limit).into_iter().map(Due::Timer).collect()
    }

    /// A slice of work that can be done whenever there is time for it.
    pub fn next_sweep(&self) -> Option<Due> {
        self.sweeps.keys().next().map(|id| Due::Sweep(*id))
    }

    /// A slice of a change of rules, for which somebody waits.
    pub fn next_backfill(&self) -> Option<Due> {
        self.context.backfilling.first().map(|namespace| Due::Backfill(*namespace))
    }

    /// A slice of memory to be freed.
    pub fn next_free(&self) -> Option<Due> {
        (!self.context.garbage.is_empty()).then_some(Due::Free)
    }

    /// What must be fetched before what is due can be done, as far as that can be told now.
    pub fn missing_for_due(&self, due: Due, fetched: &Fetched) -> Vec<Read> {
        let reader = Reader::new(&self.context.changes.writes, &self.context.sealed, fetched);
        match due {
            Due::Timer(key) => {
                if let Some(Timer::HoldExpiry { operation_id, .. }) = self.context.timers.get(key) {
                    reader.want(ledger::keys::operation(key.namespace, operation_id));
                }
            }
            Due::Sweep(id) => {
                if let Some(sweeping) = self.sweeps.get(&id) {
                    let _noted = reader.scan(sweeping.from.clone(), sweeping.to.clone(), sweep::SLICE);
                }
            }
            Due::Backfill(_) | Due::Free => {}
        }
        reader.into_missing().0
    }

    /// Does what is due, or says what must be fetched first. What is no longer there is no longer due.
    pub fn apply_due(&mut self, now: Time, due: Due, fetched: &Fetched) -> Result<(), Missing> {
        self.advance_time(now);
        match due {
            Due::Timer(key) => self.apply_timer(now, key, fetched),
            Due::Sweep(id) => self.apply_sweep(id, fetched),
            Due::Backfill(id) => {
                self.apply_backfill(now, id, fetched);
                Ok(())
            }
            Due::Free => {
                self.context.free_some();
                Ok(())
            }
        }
    }

    /// A slice of a change of rules, and the answers to what it completes.
    fn apply_backfill(&mut self, now: Time, id: NamespaceId, fetched: &Fetched) {
        // It may have been deleted since this was found to be due.
        let Some(namespace) = self.names.get(&id).and_then(|name| self.namespaces.get_mut(name)) else {
            return;
        };
        let slice = self.options.backfill_slice;
        self.context.step(namespace, now, fetched, |families, turn| {
            limiter::continue_backfill(&mut families.limiter, turn, slice);
        });
        self.begin_sweeps();
    }

    fn apply_timer(&mut self, now: Time, key: TimerKey, fetched: &Fetched) -> Result<(), Missing> {
        let Some(timer) = self.context.timers.get(key).cloned() else { return Ok(()) };
        let name = self.names.get(&key.namespace).expect("a timer belongs to a namespace");
        let namespace = self.namespaces.get_mut(name).expect("a named namespace exists");
        let done = self
            .context
            .step(namespace, now, fetched, |families, turn| fire_timer(families, turn, key, timer));
        self.begin_sweeps();
        done
    }

    fn apply_sweep(&mut self, id: u64, fetched: &Fetched) -> Result<(), Missing> {
        let Some(sweeping) = self.sweeps.get_mut(&id) else { return Ok(()) };
        let reader = Reader::new(&self.context.changes.writes, &self.context.sealed, fetched);
        let scanned = match reader.scan(sweeping.from.clone(), sweeping.to.clone(), sweep::SLICE) {
            Ok(scanned) => scanned,
            Err(reads::ReadError::NotFetched) => return Err(reader.into_missing()),
            // It stays pending; a later opening tries again.
            Err(reads::ReadError::Unreadable) => {
                self.sweeps.remove(&id);
                return Ok(());
            }
        };
        for (key, _) in scanned.records {
            self.context.changes.remove(&key);
        }
        match scanned.more_after {
            Some(last) => sweeping.from = reads::successor(&last),
            None => {
                self.sweeps.remove(&id);
                self.context.changes.remove(key::sweep(id));
            }
        }
        Ok(())
    }

    pub(super) fn begin_sweeps(&mut self) {
        for range in core::mem::take(&mut self.context.changes.sweeps) {
            self.begin_sweep(range);
        }
    }

    pub(super) fn begin_sweep(&mut self, range: Range<Bytes>) {
        let id = self.meta.next_sweep;
        self.meta.next_sweep += 1;
        let sweep = record::Sweep { from: range.start.to_vec(), to: range.end.to_vec() };
        self.context.changes.put(&key::sweep(id), &sweep);
        self.sweeps.insert(id, Sweeping { from: range.start, to: range.end });
    }
}

/// A timer's turn at its namespace. It stays set if it must be run again with more at hand.
fn fire_timer(
    families: &mut Families,
    turn: &mut Turn<'_>,
    key: TimerKey,
    timer: Timer,
) -> Result<(), Missing> {
    let now = turn.now;
    match timer {
        Timer::HoldExpiry { operation_id, held_at, due } => {
            // It counts as done when it was due. Nothing later was decided in between, unless it was put off.
            turn.now = if key.due == due { due } else { now };
            match ledger::expire(&mut families.ledger, turn, &operation_id, due, held_at) {
                Ok(()) => {}
                Err(CannotRun::Missing(missing)) => return Err(missing),
                Err(CannotRun::Unreadable | CannotRun::TooLarge) => {
                    turn.timers.postpone(key, now.after(POSTPONED));
                    turn.effect(Effect::TimerPostponed { namespace: turn.head.name.clone() });
                    return Ok(());
                }
            }
        }
        Timer::LeaseExpiry { id } => {
            turn.now = key.due;
            limiter::expire_lease(&mut families.limiter, turn, &id);
        }
        Timer::WriteWindows => families.limiter.write_windows(turn),
        Timer::DropIdleWindows => families.limiter.drop_idle_windows(turn),
        Timer::DropReplies => idempotency::drop_oldest(turn),
        // What is granted in its place is granted now, however late that is.
        Timer::LockExpiry { token } => locks::expire(&mut families.locks, turn, token),
        Timer::EventKey { stream, key } => events::expire_key(&mut families.events, turn, stream, key),
        Timer::LockWait { wait } => locks::end_wait(&mut families.locks, turn, wait),
    }
    turn.timers.cancel(key);
    Ok(())
}
