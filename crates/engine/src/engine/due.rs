//! Work that no request asks for: timers, sweeps of removed ranges, backfills of rules, freeing memory.

use super::{Engine, namespace::Families};
use crate::{
    Effect, Fetched, Millis, Missing, Read, Time, audit, decisions, events, idempotency,
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

/// The delay until a timer fires again if a record that it needs could not be read.
const POSTPONE_BY: Millis = Millis(1000);

/// The work of a timer.
const TIMER_WORK: usize = 8;
/// The work of a slice of a sweep, of a backfill, or of memory to free.
const SLICE_WORK: usize = 512;

/// A piece of work that no request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// A timer that is due. The caller must apply it before any request at the same time.
    Timer(TimerKey),
    /// A slice of a sweep. There is no hurry.
    Sweep(u64),
    /// A slice of a backfill, or of grants to requests that wait. Clients wait for it.
    Backfill(NamespaceId),
    /// A slice of memory to free. There is no hurry.
    Free,
}

impl Engine {
    /// The time at which the next timer is due.
    pub fn next_due(&self) -> Option<Time> {
        self.context.timers.next_due()
    }

    /// The timers that are due by `now`, in order, at most `limit`.
    pub fn due(&self, now: Time, limit: usize) -> Vec<Due> {
        self.context.timers.due(now, limit).into_iter().map(Due::Timer).collect()
    }

    /// The next slice of a sweep, if there is one.
    pub fn next_sweep(&self) -> Option<Due> {
        self.sweeps.keys().next().map(|id| Due::Sweep(*id))
    }

    /// The next slice of a backfill or of grants, if there is one. While a batch is unfinished, the rules of its namespace do not
    /// change.
    pub fn next_backfill(&self) -> Option<Due> {
        let mut waiting = self.context.granting.iter().chain(&self.context.backfilling);
        waiting.find(|id| !self.context.unfinished.contains(*id)).map(|id| Due::Backfill(*id))
    }

    /// The next slice of memory to free, if there is one.
    pub fn next_free(&self) -> Option<Due> {
        (!self.context.garbage.is_empty()).then_some(Due::Free)
    }

    /// Whether there may be work besides requests and timers.
    pub fn has_background(&self) -> bool {
        let context = &self.context;
        !(self.sweeps.is_empty()
            && context.granting.is_empty()
            && context.backfilling.is_empty()
            && context.garbage.is_empty())
    }

    /// The records that this piece of work will need. [`Engine::apply_due`] may still return more.
    pub fn missing_for_due(&self, due: Due, fetched: &Fetched) -> Vec<Read> {
        let reader = Reader::new(&self.context.changes.writes, &self.context.sealed, fetched);
        match due {
            Due::Timer(key) => {
                if let Some(Timer::HoldExpiry { operation_id, .. }) = self.context.timers.get(key)
                    && self.names.contains_key(&key.namespace)
                {
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

    /// Does a piece of work, or returns the records that must be fetched first. If an earlier step has made the work
    /// unnecessary, nothing happens.
    pub fn apply_due(&mut self, now: Time, due: Due, fetched: &Fetched) -> Result<(), Missing> {
        self.advance_time(now);
        self.context.work += match due {
            Due::Timer(_) => TIMER_WORK,
            Due::Sweep(_) | Due::Backfill(_) | Due::Free => SLICE_WORK,
        };
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

    fn apply_backfill(&mut self, now: Time, id: NamespaceId, fetched: &Fetched) {
        // The namespace may have been deleted since the work was found.
        let Some(namespace) = self.names.get(&id).and_then(|name| self.namespaces.get_mut(name)) else {
            return;
        };
        let slice = self.options.backfill_slice;
        // The step itself continues with the grants.
        self.context.step(namespace, now, fetched, |families, turn| {
            if families.limiter.is_backfilling() {
                limiter::continue_backfill(&mut families.limiter, turn, slice);
            }
        });
        self.begin_sweeps();
    }

    fn apply_timer(&mut self, now: Time, key: TimerKey, fetched: &Fetched) -> Result<(), Missing> {
        let Some(timer) = self.context.timers.get(key).cloned() else { return Ok(()) };
        let Some(name) = self.names.get(&key.namespace) else {
            // The namespace was deleted, and its timers have not been swept yet.
            self.context.timers.cancel(key);
            return Ok(());
        };
        let namespace = self.namespaces.get_mut(name).expect("a named namespace exists");
        let max_answer = self.options.max_answer;
        let done = self.context.step(namespace, now, fetched, |families, turn| {
            fire_timer(families, turn, key, timer, max_answer)
        });
        self.begin_sweeps();
        done
    }

    fn apply_sweep(&mut self, id: u64, fetched: &Fetched) -> Result<(), Missing> {
        let Some(sweeping) = self.sweeps.get_mut(&id) else { return Ok(()) };
        let reader = Reader::new(&self.context.changes.writes, &self.context.sealed, fetched);
        let scanned = match reader.scan(sweeping.from.clone(), sweeping.to.clone(), sweep::SLICE) {
            Ok(scanned) => scanned,
            Err(reads::ReadError::NotFetched) => return Err(reader.into_missing()),
            // The sweep's record stays. The sweep is tried again when the shard opens the next time.
            Err(reads::ReadError::Unreadable) => {
                self.sweeps.remove(&id);
                return Ok(());
            }
        };
        for (key, _) in scanned.records {
            if let Some(twin) = audit::twin(&key) {
                self.context.changes.remove(twin);
            }
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

    /// Begins the sweeps that a turn has asked for, and remembers whether it has written to the audit.
    pub(super) fn begin_sweeps(&mut self) {
        if core::mem::take(&mut self.context.changes.has_audited) {
            self.meta.first_audit.get_or_insert(self.meta.time);
        }
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

/// Does what the timer is for. The timer stays set if records must be fetched first.
fn fire_timer(
    families: &mut Families,
    turn: &mut Turn<'_>,
    key: TimerKey,
    timer: Timer,
    max_answer: usize,
) -> Result<(), Missing> {
    let now = turn.now;
    match timer {
        Timer::HoldExpiry { ref operation_id, held_at, due } => {
            // The rollback has the time at which it was due: timers run before later requests. Only a postponed timer
            // runs after requests with later times, so then the time is now.
            turn.now = if key.due == due { due } else { now };
            match ledger::expire(&mut families.ledger, turn, operation_id, due, held_at) {
                Ok(()) => {}
                Err(CannotRun::Missing(missing)) => return Err(missing),
                Err(CannotRun::Unreadable | CannotRun::TooLarge) => {
                    turn.timers.postpone(key, now.after(POSTPONE_BY));
                    turn.effect(Effect::TimerPostponed { namespace: turn.head.name.clone() });
                    return Ok(());
                }
            }
            if turn.timers.get(key).is_some() {
                families.ledger.end_expiry(operation_id);
            }
        }
        Timer::LeaseExpiry { id } => {
            turn.now = key.due;
            limiter::expire_lease(&mut families.limiter, turn, &id);
        }
        Timer::WriteWindows => families.limiter.write_windows(turn),
        Timer::DropIdleWindows => families.limiter.drop_idle_windows(turn),
        Timer::DropReplies => idempotency::drop_oldest(turn),
        // The time stays `now`: the grants of the next waiters begin now, even if the timer is late.
        Timer::LockExpiry { token } => locks::expire(&mut families.locks, turn, token),
        Timer::EventKey { stream, key } => events::expire_key(&mut families.events, turn, stream, key),
        Timer::LockWait { wait } => locks::end_wait(&mut families.locks, turn, wait),
        Timer::LeaseWait { wait } => limiter::end_wait(&mut families.limiter, turn, wait, max_answer),
        Timer::DecisionWait { place } => {
            let (decisions, mut families) = families.split();
            decisions::end_wait(decisions, &mut families, turn, place, max_answer);
        }
        Timer::OperationExpiry { position } => {
            let (decisions, mut families) = families.split();
            decisions::expire(decisions, &mut families, turn, position, key.due, max_answer);
        }
        Timer::DropEndedOperations => decisions::drop_ended(&mut families.decisions, turn),
    }
    turn.timers.cancel(key);
    Ok(())
}
