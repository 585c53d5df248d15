//! Rounds: which timers and requests are taken together, and how they are applied.

use crate::{
    fair_queue::{FairQueue, RoundSize},
    open::Open,
    output::{Failure, Output, undecided},
    requests::Requests,
    shard::Options,
};
use limina_engine::{Applied, Due, Job, Missing, Name, Read, Time, timers::TimerKey};
use std::collections::VecDeque;

/// A sweep gets a slice at least once in this many batches.
const BATCHES_A_SWEEP: usize = 16;

/// Timers and requests that are taken together at one instant of shard time. They are applied in this order.
pub(crate) struct Round<T> {
    pub(crate) now: Time,
    pub(crate) work: VecDeque<Work<T>>,
    pub(crate) is_fetching: bool,
    /// Whether the engine has been asked once which records the round needs.
    pub(crate) is_asked: bool,
    /// Whether all records that the engine could name beforehand have been fetched.
    pub(crate) is_ready: bool,
}

pub(crate) enum Work<T> {
    Request(T, Job),
    Due(Due),
}

/// Which writes the storage has space for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteScope {
    All,
    /// Only due timers, batches that have begun, and the few requests that are allowed when the storage is full.
    Reserve,
    Nothing,
}

/// The due timers of a round, and its time.
struct Slice {
    due: Vec<Due>,
    time: Time,
    /// Whether no other timer is due by `time`, so that clients may have their turn.
    is_whole: bool,
}

impl<T> Open<T> {
    /// Begins a round with due timers first, then waiting requests. Returns whether anything happened, including
    /// rejected requests.
    pub(crate) fn take_round(
        &mut self,
        now: Time,
        requests: &mut impl Requests<T>,
        options: &Options,
        scope: WriteScope,
        may_sweep: bool,
        outputs: &mut VecDeque<Output<T>>,
    ) -> bool {
        // Several rounds of one batch may read the clock, and shard time must never go back.
        let now = now.max(self.engine.time());
        if self.has_nothing_to_take(now, requests) {
            (self.is_behind, self.lags_at) = (false, None);
            return false;
        }
        let Slice { due, time, is_whole } =
            if scope == WriteScope::Nothing { self.slice_before_due(now) } else { self.slice(now, options) };
        self.is_behind = scope != WriteScope::Nothing && time < now;
        let is_far_behind = self.is_behind && now.0 - time.0 > options.max_lag.0;
        self.lags_at = (self.is_behind && !is_far_behind).then_some(time);
        let mut work: VecDeque<Work<T>> = due.into_iter().map(Work::Due).collect();
        let mut refused = false;
        if is_whole && !is_far_behind {
            // Some timers of this instant have fired and are stored, and there is no space for the others. Time cannot go back
            // to before all of them, so nothing can be read until there is space.
            let is_parted = scope == WriteScope::Nothing
                && self.engine.next_due().is_some_and(|due| due <= self.engine.time());
            refused = self.take_waiting(requests, options, scope, is_parted, &mut work, outputs);
            if scope != WriteScope::Nothing {
                self.take_background(may_sweep, &mut work);
            }
        }
        if work.is_empty() {
            return refused;
        }
        self.fetched.clear();
        self.round = Some(Round { now: time, work, is_fetching: false, is_asked: false, is_ready: false });
        true
    }

    /// Whether a round at this instant would be empty. A shard is polled several times for each request, mostly for nothing.
    fn has_nothing_to_take(&self, now: Time, requests: &impl Requests<T>) -> bool {
        !requests.may_be_taken()
            && self.engine.next_due().is_none_or(|due| due > now)
            && !self.engine.has_background()
    }

    /// If there is no space for due timers, shard time stops just before the first of them. So a read never sees a
    /// state in which a timer should have fired and has not.
    fn slice_before_due(&self, now: Time) -> Slice {
        let time = match self.engine.next_due() {
            Some(due) => now.min(just_before(due)).max(self.engine.time()),
            None => now,
        };
        Slice { due: Vec::new(), time, is_whole: true }
    }

    /// The timers that are due by `now`. If they are more than one slice, the slice ends between two instants, and
    /// shard time advances only to the end of the slice. So everything due by then is done, and clients need not wait
    /// for the rest.
    fn slice(&self, now: Time, options: &Options) -> Slice {
        let mut due = self.engine.due(now, options.due_slice + 1);
        let Some(&Due::Timer(TimerKey { due: next, .. })) = due.get(options.due_slice) else {
            return Slice { due, time: now, is_whole: true };
        };
        let time = just_before(next);
        let before = self.engine.due(time, options.due_slice);
        if before.is_empty() || time < self.engine.time() {
            // More than a slice is due at the same instant, or the timers are late because they were postponed before
            // the shard was opened.
            due.truncate(options.due_slice);
            return Slice { due, time: next.max(self.engine.time()), is_whole: false };
        }
        Slice { due: before, time, is_whole: true }
    }

    /// Takes waiting requests, as many as fit into the batch. If the present instant `is_parted`, all are rejected. Returns
    /// whether any was rejected.
    fn take_waiting(
        &mut self,
        requests: &mut impl Requests<T>,
        options: &Options,
        scope: WriteScope,
        is_parted: bool,
        work: &mut VecDeque<Work<T>>,
        outputs: &mut VecDeque<Output<T>>,
    ) -> bool {
        // Relaxed answers are work, but a batch with nothing else to seal never ends. It can still take as much as any.
        let work_so_far = if self.building.is_empty { 0 } else { self.building.work };
        let size = RoundSize {
            requests: options.max_batch.saturating_sub(self.building.count),
            work: options.max_batch_work.saturating_sub(work_so_far),
        };
        let mut refused = false;
        for (ticket, job) in requests.take_round(size) {
            let may_write = match scope {
                WriteScope::All => true,
                WriteScope::Reserve => job.request.is_allowed_when_full() || job.may_be_partly_done(),
                WriteScope::Nothing => false,
            };
            if is_parted || (job.request.is_write() && !may_write) {
                refused = true;
                outputs.push_back(undecided(ticket, failure_of(&job, Failure::StorageFull)));
                self.engine.give_up(&job);
            } else {
                work.push_back(Work::Request(ticket, job));
            }
        }
        refused
    }

    /// Adds background work. Work that requests wait for gets a slice in every batch. Sweeps, which free space, get one
    /// if the shard is otherwise idle, and once in a number of batches if it is not.
    fn take_background(&mut self, may_sweep: bool, work: &mut VecDeque<Work<T>>) {
        if self.building.has_background {
            return;
        }
        let is_quiet = self.in_flight.is_none() && self.building.is_empty && work.is_empty();
        let is_sweep_due = is_quiet || self.batches_since_sweep >= BATCHES_A_SWEEP;
        let sweep =
            || if is_sweep_due && may_sweep && self.may_scan { self.engine.next_sweep() } else { None };
        let free = || if may_sweep { self.engine.next_free() } else { None };
        let background = self.engine.next_backfill().or_else(free).or_else(sweep);
        self.building.has_background = background.is_some();
        if let Some(Due::Sweep(_)) = background {
            self.batches_since_sweep = 0;
        }
        work.extend(background.map(Work::Due));
    }

    /// Applies the round in order. If the engine needs more records, the round stops there and fetches them. If the
    /// batch has enough, the round ends, and the requests that were not begun go back to the queue.
    pub(crate) fn run_round(
        &mut self,
        may_relax: bool,
        options: &Options,
        requests: &mut impl Requests<T>,
        outputs: &mut VecDeque<Output<T>>,
    ) -> Option<Output<T>> {
        let mut round = self.round.take()?;
        // Records that the engine can name beforehand are fetched for the whole round together, before anything is
        // applied.
        let mut reads = if round.is_ready { Vec::new() } else { self.missing(&round) };
        round.is_ready = reads.is_empty();
        round.is_asked = true;
        while reads.is_empty()
            && let Some(mut work) = round.work.pop_front()
        {
            let (done_before, weight_before) = (work.done(), work.weight());
            let may_be_partly_stored = work.may_be_partly_done();
            let applied = match self.apply(round.now, &mut work) {
                Ok(applied) => applied,
                Err(Missing(more)) => {
                    reads = more;
                    round.work.push_front(work);
                    continue;
                }
            };
            let spent = self.engine.take_work();
            self.building.work += spent;
            let is_long = spent > self.engine.slice_work() || matches!(applied, Some(Applied::Unfinished));
            let ends_turn_of = work.namespace().filter(|_| is_long).cloned();
            let mut unfinished = None;
            match (work, applied) {
                (Work::Request(ticket, job), Some(Applied::Unfinished)) => {
                    self.building.is_empty = false;
                    self.report_slice(round.now, &job, done_before, options, outputs);
                    unfinished = Some((ticket, job));
                    // A slice of decisions may have ended what others wait for.
                    self.record_completions(round.now);
                }
                (work, mut applied) => {
                    if let Some(Applied::Done { is_relaxed, .. }) = &mut applied {
                        *is_relaxed &= may_relax;
                    }
                    self.record_decision(round.now, work, may_be_partly_stored, applied, outputs);
                }
            }
            if let Some(namespace) = ends_turn_of {
                // Nothing of the namespace comes between two slices of a batch, so what the round has taken goes back behind it.
                requests.with_queue(|queue| {
                    put_back(&mut round, |other| *other == namespace, queue);
                    if let Some((ticket, job)) = unfinished {
                        queue.put_back_unfinished(&namespace, job.weight(), (ticket, job));
                    }
                    queue.settle(&namespace, weight_before, spent);
                });
                outputs.push_back(Output::Unfinished);
            }
            if self.is_over(&round, options) {
                requests.with_queue(|queue| put_back(&mut round, |_| true, queue));
                round.work.clear();
            }
        }
        if reads.is_empty() {
            return None;
        }
        round.is_fetching = true;
        self.round = Some(round);
        Some(Output::Fetch(reads))
    }

    /// Whether the batch has enough, so that the rest of the round is left to the next one.
    ///
    /// Shard time has reached this round's instant, and nothing due by then may be left when a client of the round is answered. So the
    /// round ends before its timers are done only if they have written as much as a batch may have: then the rest of them comes
    /// before the requests of the next round too. The engine offers timers and background work again.
    fn is_over(&self, round: &Round<T>, options: &Options) -> bool {
        match round.work.front() {
            Some(Work::Request(..)) => self.has_enough(options),
            Some(Work::Due(_)) => self.has_enough_bytes(options),
            None => false,
        }
    }

    /// Reports what a slice of a batch has decided, if anything.
    fn report_slice(
        &mut self,
        at: Time,
        job: &Job,
        done_before: usize,
        options: &Options,
        outputs: &mut VecDeque<Output<T>>,
    ) {
        let from = done_before.max(job.restored());
        if options.reports_slices && job.done() > from {
            self.decisions += 1;
            let (order, outcome) = (self.decisions, job.results_from(from));
            outputs.push_back(Output::Slice { request: job.request.clone(), at, order, from, outcome });
        }
    }

    /// Records that the round needs and that were not fetched yet. The engine knows at once what a write needs, so it
    /// is asked only the first time. A read may need more after each answer.
    fn missing(&self, round: &Round<T>) -> Vec<Read> {
        let mut reads = Vec::new();
        for work in &round.work {
            match work {
                Work::Request(_, job) if round.is_asked && job.request.is_write() => {}
                Work::Request(_, job) => {
                    reads.append(&mut self.engine.missing(round.now, job, &self.fetched))
                }
                Work::Due(due) => reads.append(&mut self.engine.missing_for_due(*due, &self.fetched)),
            }
        }
        reads
    }

    fn apply(&mut self, now: Time, work: &mut Work<T>) -> Result<Option<Applied>, Missing> {
        match work {
            Work::Request(_, job) => self.engine.apply(now, job, &self.fetched).map(Some),
            Work::Due(due) => self.engine.apply_due(now, *due, &self.fetched).map(|()| None),
        }
    }
}

/// Puts the requests of these namespaces that the round has not begun back into the queue.
fn put_back<T>(round: &mut Round<T>, is_of: impl Fn(&Name) -> bool, queue: &mut FairQueue<(T, Job)>) {
    for work in std::mem::take(&mut round.work).into_iter().rev() {
        match work {
            Work::Request(ticket, job) if is_of(&job.request.namespace) => {
                let namespace = job.request.namespace.clone();
                queue.put_back(&namespace, job.weight(), (ticket, job));
            }
            work => round.work.push_front(work),
        }
    }
}

impl<T> Work<T> {
    /// The namespace of a request.
    fn namespace(&self) -> Option<&Name> {
        match self {
            Work::Request(_, job) => Some(&job.request.namespace),
            Work::Due(_) => None,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Work::Request(_, job) => job.weight(),
            Work::Due(_) => 0,
        }
    }

    /// The number of a batch's items that are decided.
    fn done(&self) -> usize {
        match self {
            Work::Request(_, job) => job.done(),
            Work::Due(_) => 0,
        }
    }

    fn may_be_partly_done(&self) -> bool {
        matches!(self, Work::Request(_, job) if job.may_be_partly_done())
    }
}

/// Why a request has no outcome that cannot be done, or not to the end. If some of its items may have been done, this is not
/// known.
pub(crate) fn failure_of(job: &Job, failure: Failure) -> Failure {
    if job.may_be_partly_done() { Failure::OutcomeUnknown } else { failure }
}

fn just_before(time: Time) -> Time {
    Time(time.0.saturating_sub(1))
}
