//! The shard: the state machine that its driver feeds and polls.

use crate::{
    batch::{Batch, PendingReply},
    fair_queue::FairQueue,
    open::Open,
    output::{Failure, Loss, Opening, Output, Reply, undecided},
    requests::Requests,
    round::{Work, WriteScope, failure_of},
};
use limina_engine::{Engine, Fetched, Job, Millis, Outcome, Read, ReadResult, Request, Time};
use std::collections::{BTreeMap, VecDeque};

/// Limits of a shard.
#[derive(Debug, Clone)]
pub struct Options {
    /// The maximum number of requests and timers in one append.
    pub max_batch: usize,
    /// The approximate work of the engine for one append, in units of about a microsecond. A batch with more work is done
    /// in slices.
    pub max_batch_work: usize,
    /// The approximate maximum number of bytes in one append. A request that writes more gets its own append.
    pub max_batch_bytes: usize,
    /// The most due timers that one round executes. More than that are executed in slices.
    pub due_slice: usize,
    /// The most that shard time may lag while due timers are executed in slices, so that clients have their turn between
    /// slices. Beyond this lag, clients wait until the slices are done.
    pub max_lag: Millis,
    /// Whether each slice of a batch is reported as [`Output::Slice`]. For the simulator.
    pub reports_slices: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_batch: 8_192,
            max_batch_work: 16_384,
            max_batch_bytes: 64 << 20,
            due_slice: 1_024,
            max_lag: Millis(250),
            reports_slices: false,
        }
    }
}

/// One shard: its engine, and the batches on their way. `T` identifies the sender of a request (its *ticket*), and `Q` is where
/// the requests wait.
pub struct Shard<T, Q = FairQueue<(T, Job)>> {
    options: Options,
    requests: Q,
    open: Option<Open<T>>,
    has_space: bool,
    /// An append found no space at all, not even for due timers.
    is_out_of_space: bool,
    /// A planned stop has begun: no background work is started any more.
    is_closing: bool,
    /// Whether relaxed replies may be released at once.
    may_relax: bool,
    /// Clients cannot reach this shard, although it may be open.
    awaits_serving: bool,
    outputs: VecDeque<Output<T>>,
}

impl<T> Shard<T> {
    /// Creates a shard with a queue of its own. It is not open yet, and already accepts requests into its queue.
    pub fn new(options: Options) -> Shard<T> {
        Shard::with_requests(options, FairQueue::default())
    }

    /// Adds a request to the queue. The queue has no bounds: whether a request may wait is decided before.
    pub fn handle_request(&mut self, ticket: T, request: impl Into<Box<Request>>) {
        let job = Job::new(request);
        let namespace = job.request.namespace.clone();
        self.requests.push(&namespace, job.weight(), (ticket, job));
    }
}

impl<T, Q: Requests<T>> Shard<T, Q> {
    /// Creates a shard that takes these requests. It is not open yet.
    pub fn with_requests(options: Options, requests: Q) -> Shard<T, Q> {
        Shard {
            options,
            requests,
            open: None,
            has_space: true,
            is_out_of_space: false,
            is_closing: false,
            may_relax: true,
            awaits_serving: false,
            outputs: VecDeque::new(),
        }
    }

    /// Clients cannot reach this shard until [`Shard::handle_serving`]. Holders of leases and locks cannot send
    /// heartbeats until then. So shard time stops and nothing falls due, now or when the shard is opened after an interruption.
    pub fn wait_for_serving(&mut self, now: Time) {
        self.awaits_serving = true;
        if let Some(open) = &mut self.open {
            open.stopped_at.get_or_insert(now.max(open.engine.time()));
        }
    }

    /// Clients can reach this shard from now on. If shard time was stopped, it continues, and every lease and lock
    /// gets its full ttl.
    pub fn handle_serving(&mut self, now: Time) {
        self.awaits_serving = false;
        if let Some(open) = &mut self.open
            && open.stopped_at.take().is_some()
        {
            open.engine.apply_grace_period(now.max(open.engine.time()));
        }
    }

    /// The shard could not execute anything for a while, and nobody could send it a heartbeat. Every lease, lock and decision that was
    /// held before gets its full ttl, before anything falls due.
    pub fn handle_interruption(&mut self, now: Time) {
        // If shard time stands still, all of them get that when it continues.
        if let Some(open) = self.open.as_mut().filter(|open| open.stopped_at.is_none()) {
            open.engine.apply_grace_period(now.max(open.engine.time()));
        }
    }

    /// The engine has been loaded from everything that is durable. The shard serves requests from now on.
    pub fn handle_opened(&mut self, mut engine: Engine, now: Time, opening: Opening) {
        let now = now.max(engine.time());
        let is_stopped = opening == Opening::Interrupted && self.awaits_serving;
        match opening {
            Opening::Interrupted => engine.apply_grace_period(now),
            Opening::HandedOver => engine.continue_grace_period(),
        }
        assert!(self.open.is_none(), "a shard is opened once, until it is lost");
        // After a restore, loading has changed the positions. That is stored at once, unless the storage is full: then with the next write.
        let is_empty = self.is_out_of_space || engine.jumped().is_none();
        let building = Batch { is_empty, ..Batch::default() };
        self.open = Some(Open {
            engine,
            round: None,
            building,
            in_flight: None,
            waiting: BTreeMap::new(),
            stopped_at: is_stopped.then_some(now),
            decisions: 0,
            batches_since_sweep: 0,
            may_scan: true,
            is_behind: false,
            lags_at: None,
            fetched: Fetched::default(),
        });
    }

    /// The requests that wait.
    pub fn requests(&mut self) -> &mut Q {
        &mut self.requests
    }

    /// Whether the next poll may begin a round with requests that wait.
    pub fn wants_requests(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.round.is_none() && !open.is_full(&self.options))
    }

    /// The answers to an [`Output::Fetch`].
    pub fn handle_fetched(&mut self, answers: impl IntoIterator<Item = (Read, ReadResult)>) {
        let Some(open) = &mut self.open else { return };
        for (read, answer) in answers {
            open.fetched.insert(read, answer);
        }
        if let Some(round) = &mut open.round {
            round.is_fetching = false;
        }
    }

    /// The append in flight is durable, or ownership has been confirmed.
    pub fn handle_persisted(&mut self) {
        let open = self.open.as_mut().expect("only an open shard appends");
        let batch = open.in_flight.take().expect("something was in flight");
        self.outputs.extend(batch.effects.into_iter().map(Output::Effect));
        self.outputs.extend(batch.discards.into_iter().map(Output::Discard));
        let replies = batch.replies.into_iter();
        self.outputs.extend(replies.map(|PendingReply { ticket, decided_at, order, outcome, .. }| {
            Output::Reply(Reply { ticket, decided_at: Some(decided_at), order, result: Ok(outcome) })
        }));
    }

    /// The append or confirm in flight failed. The shard drops its memory, which is ahead of what is stored, fails the
    /// requests that it had decided, and must be opened again. Requests that were not decided stay in the queue. Returns that
    /// memory, because freeing much of it takes long, and the caller may do that elsewhere.
    pub fn handle_lost(&mut self, loss: Loss) -> Option<Engine> {
        let open = self.open.take()?;
        self.is_out_of_space = loss == Loss::Full;
        self.outputs.retain(|output| {
            matches!(
                output,
                Output::Reply(..)
                    | Output::Waits { .. }
                    | Output::Slice { .. }
                    | Output::Unfinished
                    | Output::Effect(_)
            )
        });
        let in_flight = open.in_flight.into_iter().flat_map(|batch| batch.replies).map(|waiting| {
            let failure = match (loss, waiting.is_write) {
                (Loss::NotDone, _) | (_, false) => Failure::Unavailable,
                (Loss::Full, true) => Failure::StorageFull,
                (Loss::Unknown, true) => Failure::OutcomeUnknown,
            };
            waiting.fail(failure)
        });
        self.outputs.extend(in_flight);
        let decided = open.building.replies.into_iter();
        self.outputs.extend(decided.map(|waiting| waiting.fail(Failure::Unavailable)));
        // Requests that were to be answered later have changed nothing yet.
        let waiting = open.waiting.into_values();
        self.outputs.extend(waiting.map(|ticket| undecided(ticket, Failure::Unavailable)));
        // Requests that were taken and not decided go to the head of the queue, those of the current round first. Of a batch, the
        // first items may be stored. With an idempotency key it continues behind them. Without one it cannot be known which they are.
        let round = open.round.into_iter().flat_map(|round| round.work);
        let taken = round.filter_map(|work| match work {
            Work::Request(ticket, job) => Some((ticket, job)),
            Work::Due(_) => None,
        });
        self.requests.with_queue(|queue| {
            let taken: Vec<(T, Job)> = taken.chain(queue.remove_taken()).collect();
            for (ticket, job) in taken.into_iter().rev() {
                if job.is_partly_done() && job.request.idempotency.is_none() {
                    self.outputs.push_back(undecided(ticket, Failure::OutcomeUnknown));
                } else {
                    let job = job.restart();
                    let namespace = job.request.namespace.clone();
                    queue.put_back_unfinished(&namespace, job.weight(), (ticket, job));
                }
            }
        });
        Some(open.engine)
    }

    /// Whether there is space for clients' writes. If not, they are rejected before anything is decided. Due timers and batches
    /// that have begun still use the store's reserve. If the reserve is used up too, reads continue and due timers wait.
    pub fn handle_space(&mut self, has_space: bool) {
        self.has_space = has_space;
        self.is_out_of_space &= !has_space;
    }

    /// Whether a sweep waits for its turn. Its next slice scans the store.
    pub fn has_sweeps(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.engine.next_sweep().is_some())
    }

    /// Whether the store answers scans quickly. If not, sweeps wait: clients would wait with them. Until it is called, scans are
    /// quick.
    pub fn handle_scans(&mut self, are_quick: bool) {
        if let Some(open) = &mut self.open {
            open.may_scan = are_quick;
        }
    }

    /// Whether relaxed replies may be released before they are durable. If it is not certain that this node still owns
    /// the shard, they wait like all others.
    pub fn handle_tenure(&mut self, is_sure: bool) {
        self.may_relax = is_sure;
    }

    /// Whether due timers wait for space. Then [`Shard::handle_space`] should be called regularly.
    pub fn is_out_of_space(&self) -> bool {
        self.is_out_of_space
    }

    /// Fails all undecided requests, if the shard cannot be opened or is being closed.
    pub fn reject_waiting(&mut self, failure: Failure) {
        for (ticket, job) in self.requests.with_queue(FairQueue::drain) {
            if let Some(open) = &mut self.open {
                open.engine.give_up(&job);
            }
            self.outputs.push_back(undecided(ticket, failure_of(&job, failure)));
        }
    }

    /// Begins a planned stop. Accepted requests are answered, requests that wait for locks fail, and background work is
    /// left to the next opening.
    pub fn handle_closing(&mut self) {
        self.is_closing = true;
    }

    /// Before a planned stop: appends the changes that no reply waited for. Returns whether there are any.
    ///
    /// If the last append found no space at all, this is not tried again: the next append would fail too, and the stop
    /// would never end. Then these changes are lost, as in a crash.
    pub fn flush_relaxed(&mut self) -> bool {
        let Some(open) = self.open.as_mut().filter(|_| !self.is_out_of_space) else { return false };
        let any = open.engine.flush_relaxed();
        open.building.is_empty &= !any;
        any
    }

    /// Whether nothing waits to be decided or persisted, or is in flight.
    pub fn is_idle(&mut self) -> bool {
        self.outputs.is_empty()
            && self.open.as_ref().is_none_or(Open::is_stored)
            && self.requests.with_queue(|queue| queue.is_empty())
    }

    /// Whether the shard is open, its memory agrees with what is stored, and no request waits for an answer that comes later. There
    /// may be requests that are not decided.
    pub fn is_at_rest(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.is_stored() && open.waiting.is_empty())
    }

    /// The engine, while the shard is open.
    pub fn engine(&self) -> Option<&Engine> {
        self.open.as_ref().map(|open| &open.engine)
    }

    /// The answers that are decided and wait for the disk, in the order of their decisions: each with its ticket, shard time of the
    /// decision, and [`Reply::order`]. For the simulator, which follows every decision. They must not be shown to clients.
    pub fn undurable_answers(&self) -> impl Iterator<Item = (&T, Time, u64, &Outcome)> {
        let batches = self.open.iter().flat_map(|open| open.in_flight.iter().chain([&open.building]));
        let replies = batches.flat_map(|batch| &batch.replies);
        replies.map(|reply| (&reply.ticket, reply.decided_at, reply.order, &reply.outcome))
    }

    /// Shard time, if it lags because more timers were due than one round could execute. Each lag is returned once. The
    /// driver should let its clock continue from there, so that the time that has not passed for clients does not pass
    /// all at once.
    pub fn take_lag(&mut self) -> Option<Time> {
        self.open.as_mut()?.lags_at.take()
    }

    /// When [`Shard::poll`] should be called again even if there is no new input.
    pub fn next_wakeup(&self) -> Option<Time> {
        let open = self.open.as_ref()?;
        if self.is_out_of_space
            || open.stopped_at.is_some()
            || open.round.is_some()
            || open.is_full(&self.options)
        {
            return None;
        }
        open.engine.next_due()
    }

    /// The next output. `None` until there is new input, or until [`Shard::next_wakeup`].
    pub fn poll(&mut self, now: Time) -> Option<Output<T>> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let open = self.open.as_mut()?;
            if self.is_closing && open.end_lock_waits(&mut self.outputs) {
                continue;
            }
            if let Some(round) = &open.round {
                if round.is_fetching {
                    return None;
                }
                let fetch =
                    open.run_round(self.may_relax, &self.options, &mut self.requests, &mut self.outputs);
                self.outputs.extend(fetch);
                continue;
            }
            let scope = match (self.has_space, self.is_out_of_space) {
                (_, true) => WriteScope::Nothing,
                (false, false) => WriteScope::Reserve,
                (true, false) => WriteScope::All,
            };
            let now = open.stopped_at.unwrap_or(now);
            if !open.is_full(&self.options) {
                let may_sweep = !self.is_closing;
                let (requests, outputs) = (&mut self.requests, &mut self.outputs);
                if open.take_round(now, requests, &self.options, scope, may_sweep, outputs) {
                    continue;
                }
            }
            if open.in_flight.is_some() || open.building.is_empty {
                return None;
            }
            let append = open.seal();
            return Some(append);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_engine::{Command, Name, Options as EngineOptions, engine::Stats, record};

    fn open_with_a_sweep() -> Shard<()> {
        let mut bytes = Vec::new();
        record::encode_into(&record::Sweep { from: vec![2], to: vec![3] }, &mut bytes);
        let residents = [(record::key::sweep(0), bytes.into())];
        let engine = Engine::open(EngineOptions::default(), residents).expect("a sound record");
        assert_eq!(engine.stats(), Stats { sweeps: 1, ..Stats::default() });
        let mut shard = Shard::new(Options::default());
        shard.handle_opened(engine, Time(1), Opening::Interrupted);
        shard
    }

    #[test]
    fn pending_sweeps_do_not_delay_a_stop() {
        let mut shard = open_with_a_sweep();
        assert!(matches!(shard.poll(Time(1)), Some(Output::Fetch(_))), "it sweeps while there is time");

        let mut shard = open_with_a_sweep();
        shard.handle_closing();
        assert!(shard.poll(Time(1)).is_none());
        assert!(shard.is_idle());
    }

    /// If the last append before a stop found no space, another attempt would find none either, and the stop would
    /// never end.
    #[test]
    fn a_stop_on_a_full_disk_flushes_once() {
        let open = |shard: &mut Shard<()>| {
            let engine = Engine::open(EngineOptions::default(), []).expect("nothing to load");
            shard.handle_opened(engine, Time(1), Opening::Interrupted);
        };
        // A read leaves nothing to append except the time that the client saw.
        let read = |shard: &mut Shard<()>| {
            let command = limina_engine::locks::Command::Get(Name::new("a").expect("a valid name"));
            let namespace = Name::new("n").expect("a valid name");
            let request = Request::new(namespace, Command::Locks(command));
            shard.handle_request((), request);
            assert!(matches!(shard.poll(Time(1)), Some(Output::Confirm)));
            shard.handle_persisted();
            while shard.poll(Time(1)).is_some() {}
        };
        let mut shard = Shard::new(Options::default());
        open(&mut shard);
        read(&mut shard);
        shard.handle_closing();
        assert!(shard.flush_relaxed());
        assert!(matches!(shard.poll(Time(1)), Some(Output::Append { .. })));
        shard.handle_lost(Loss::Full);
        open(&mut shard);
        read(&mut shard);
        assert!(!shard.flush_relaxed(), "there is no room to flush into");
        assert!(shard.is_idle());
    }
}
