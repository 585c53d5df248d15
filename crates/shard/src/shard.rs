//! The loop itself.

use limina_engine::{
    Applied, Due, Effect, Engine, Fetched, Job, Millis, Missing, Outcome, Read, ReadResult, Request, Time,
    WaitId, Writes, timers::TimerKey,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// Bounds of the loop.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many requests may wait. One more is refused at once.
    pub max_queue: usize,
    /// About how many changes one append covers. A request that has more of them has an append of its own.
    pub max_batch: usize,
    /// About how many bytes one append has. A request that writes more has an append of its own.
    pub max_batch_bytes: usize,
    /// The most due timers that one round executes. More than that are executed in slices.
    pub due_slice: usize,
    /// The most that shard time may lag while due timers are executed in slices, so that clients have their turn between
    /// slices. Beyond this lag, clients wait until the slices are done.
    pub max_lag: Millis,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_queue: 16_384,
            max_batch: 8_192,
            max_batch_bytes: 64 << 20,
            due_slice: 1_024,
            max_lag: Millis(250),
        }
    }
}

/// A sweep has a slice at least every so many batches.
const BATCHES_A_SWEEP: usize = 16;
/// What a change of rules weighs: it may count a slice of counters at once.
const CHANGE_WEIGHT: usize = 512;

/// One shard: queue, engine, and what is on its way. `T` is what a reply is sent with.
pub struct Shard<T> {
    options: Options,
    /// Requests that wait, and how many operations they are.
    queue: VecDeque<(T, Job)>,
    open: Option<Open<T>>,
    has_room: bool,
    /// An append found no room at all, not even for what is due.
    is_starved: bool,
    /// Only what somebody waits for is still done.
    is_closing: bool,
    /// Relaxed answers need not wait.
    may_relax: bool,
    /// Clients cannot reach the shard yet, though it may be open.
    is_held_back: bool,
    outputs: VecDeque<Output<T>>,
}

/// What exists only while the shard is open.
struct Open<T> {
    engine: Engine,
    round: Option<Round<T>>,
    building: Batch<T>,
    in_flight: Option<Batch<T>>,
    /// Who waits for an answer that the engine gives later.
    waiting: BTreeMap<WaitId, T>,
    /// The time of the opening, at which time stands still until clients are served.
    stands_still_at: Option<Time>,
    /// How many requests were decided.
    decisions: u64,
    batches_since_sweep: usize,
    /// More was due than the last round took.
    is_behind: bool,
    /// The time of the last round, if it lags and nobody was told.
    lags_at: Option<Time>,
    fetched: Fetched,
}

/// What a round does of what is due, and when.
struct Slice {
    due: Vec<Due>,
    time: Time,
    /// Whether nothing is left that is due by `time`, so that clients have their turn.
    is_whole: bool,
}

/// Requests whose records are being fetched. They are applied in this order.
struct Round<T> {
    now: Time,
    work: VecDeque<Work<T>>,
    is_fetching: bool,
    /// Whether all of it was asked what it needs.
    is_asked: bool,
    /// Whether everything that can be told beforehand is at hand.
    is_ready: bool,
}

enum Work<T> {
    Request(T, Job),
    Due(Due),
}

/// What was decided and waits for durability.
struct Batch<T> {
    replies: Vec<PendingReply<T>>,
    effects: Vec<Effect>,
    /// How many changes it stands for.
    weight: usize,
    is_empty: bool,
    /// Whether it has its slice of background work.
    has_background: bool,
}

struct PendingReply<T> {
    ticket: T,
    decided_at: Time,
    order: u64,
    outcome: Outcome,
    is_write: bool,
}

/// For what there is room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Clients,
    Due,
    Nothing,
}

impl<T> PendingReply<T> {
    fn fail(self, failure: Failure) -> Output<T> {
        let PendingReply { ticket, decided_at, order, .. } = self;
        Output::Reply(Reply { ticket, decided_at: Some(decided_at), order, result: Err(failure) })
    }
}

impl<T> Default for Batch<T> {
    fn default() -> Batch<T> {
        Batch { replies: Vec::new(), effects: Vec::new(), weight: 0, is_empty: true, has_background: false }
    }
}

/// What is to be done outside. The order counts.
#[derive(Debug)]
pub enum Output<T> {
    /// Look these up and give all answers to [`Shard::handle_fetched`]. The look-ups must see every append that is
    /// durable by now.
    Fetch(Vec<Read>),
    /// Make these writes durable as one append, then call [`Shard::handle_persisted`], or [`Shard::handle_lost`].
    Append {
        /// After-images, each key once.
        writes: Arc<Writes>,
        /// For how many requests.
        requests: usize,
    },
    /// Make sure that the shard is still ours, then call [`Shard::handle_persisted`], or [`Shard::handle_lost`].
    Confirm,
    /// Send a reply.
    Reply(Reply<T>),
    /// A request waits for others, and is answered later. Only who follows every decision need know: nobody is to be told
    /// before it is durable.
    Waits {
        /// Which.
        request: Request,
        /// Since when.
        since: Time,
        /// Where in the order of decisions it began to wait.
        order: u64,
    },
    /// Tell what happened.
    Effect(Effect),
}

/// What is to be told to whoever asked.
#[derive(Debug)]
pub struct Reply<T> {
    /// Whom.
    pub ticket: T,
    /// The time at which it was decided, if it was.
    pub decided_at: Option<Time>,
    /// Its place among everything decided since the shard was opened, from 1 on: a relaxed answer is told before others
    /// that were decided earlier. To let somebody wait, and to give up who waits, are decisions too. 0 if it was not
    /// decided.
    pub order: u64,
    /// What.
    pub result: Result<Outcome, Failure>,
}

/// Why there is no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There is no room for more writes. Nothing was done.
    StorageFull,
    /// The shard's memory was lost before this became durable. Nothing was done.
    Unavailable,
    /// The shard is being closed, and this would have had to wait. Nothing was done.
    Closing,
    /// It may or may not have been done.
    OutcomeUnknown,
}

/// What was before a shard was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Nobody served it for a while: whoever holds something has its full time again.
    Interrupted,
    /// Its last owner handed it over, and it goes on as if nothing had happened.
    HandedOver,
}

/// How an append or confirm failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It surely did not happen.
    NotDone,
    /// It surely did not happen, because there is no room.
    Full,
    /// It may have happened.
    Unknown,
}

impl<T> Shard<T> {
    /// A shard that is not open yet. Requests may wait already.
    pub fn new(options: Options) -> Shard<T> {
        Shard {
            options,
            queue: VecDeque::new(),
            open: None,
            has_room: true,
            is_starved: false,
            is_closing: false,
            may_relax: true,
            is_held_back: false,
            outputs: VecDeque::new(),
        }
    }

    /// Clients cannot reach this process until [`Shard::handle_serving`]. Whoever holds something cannot send a heartbeat
    /// meanwhile, so the time of a shard that is opened after an interruption stands still, and nothing falls due.
    pub fn hold_back(&mut self) {
        self.is_held_back = true;
    }

    /// Clients are served from now on. If time stood still, it goes on, and whoever holds something has its full time.
    pub fn handle_serving(&mut self, now: Time) {
        self.is_held_back = false;
        if let Some(open) = &mut self.open
            && open.stands_still_at.take().is_some()
        {
            open.engine.apply_grace_period(now.max(open.engine.time()));
        }
    }

    /// The engine has been loaded from everything durable, and serves from now on.
    pub fn handle_opened(&mut self, mut engine: Engine, now: Time, opening: Opening) {
        let now = now.max(engine.time());
        let stands_still = opening == Opening::Interrupted && self.is_held_back;
        if opening == Opening::Interrupted {
            engine.apply_grace_period(now);
        }
        assert!(self.open.is_none(), "a shard is opened once, until it is lost");
        self.open = Some(Open {
            engine,
            round: None,
            building: Batch::default(),
            in_flight: None,
            waiting: BTreeMap::new(),
            stands_still_at: stands_still.then_some(now),
            decisions: 0,
            batches_since_sweep: 0,
            is_behind: false,
            lags_at: None,
            fetched: Fetched::default(),
        });
    }

    /// Takes a request, or gives the ticket back if too many wait. What only takes back an earlier request is always
    /// taken: there cannot be more of these than there were of those.
    pub fn handle_request(&mut self, ticket: T, request: Request) -> Result<(), T> {
        if self.queue.len() >= self.options.max_queue && !request.is_cancellation() {
            return Err(ticket);
        }
        self.queue.push_back((ticket, Job::new(request)));
        Ok(())
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

    /// The append in flight is durable, or ownership is confirmed.
    pub fn handle_persisted(&mut self) {
        let open = self.open.as_mut().expect("only an open shard appends");
        let batch = open.in_flight.take().expect("something was in flight");
        self.outputs.extend(batch.effects.into_iter().map(Output::Effect));
        let replies = batch.replies.into_iter();
        self.outputs.extend(replies.map(|PendingReply { ticket, decided_at, order, outcome, .. }| {
            Output::Reply(Reply { ticket, decided_at: Some(decided_at), order, result: Ok(outcome) })
        }));
    }

    /// The append or confirm in flight failed. The shard drops its memory, which is ahead of what is stored, answers
    /// what it had decided, and must be opened again. Requests that it had not decided stay.
    pub fn handle_lost(&mut self, loss: Loss) {
        let Some(open) = self.open.take() else { return };
        self.is_starved = loss == Loss::Full;
        self.outputs
            .retain(|output| matches!(output, Output::Reply(..) | Output::Waits { .. } | Output::Effect(_)));
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
        // What would have been answered later has changed nothing yet.
        let waiting = open.waiting.into_values();
        self.outputs.extend(waiting.map(|ticket| undecided(ticket, Failure::Unavailable)));
        // What was only being looked up has changed nothing (a batch that was begun has changed only memory), so it
        // goes back to the head of the queue, as it came.
        for work in open.round.into_iter().flat_map(|round| round.work).rev() {
            if let Work::Request(ticket, job) = work {
                self.queue.push_front((ticket, Job::new(job.request)));
            }
        }
    }

    /// Whether there is room for clients' writes. Without, they are refused before anything is decided; what is due
    /// is still done from the store's reserve. Where even that was used up, reads go on and what is due waits.
    pub fn handle_room(&mut self, has_room: bool) {
        self.has_room = has_room;
        self.is_starved &= !has_room;
    }

    /// Whether relaxed answers may go out before anything is durable. Where it is not sure that the shard is still ours,
    /// they wait like all others.
    pub fn handle_tenure(&mut self, is_sure: bool) {
        self.may_relax = is_sure;
    }

    /// Whether what is due waits for room. Then [`Shard::handle_room`] should be called now and again.
    pub fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Gives back everything that waits undecided, for a shard that cannot be opened or is being closed.
    pub fn reject_waiting(&mut self, failure: Failure) {
        self.outputs.extend(self.queue.drain(..).map(|(ticket, _)| undecided(ticket, failure)));
    }

    /// A planned stop: what was taken is answered, what would wait for others to let go of something is given up, and
    /// what nobody waits for is left to the next opening.
    pub fn handle_closing(&mut self) {
        self.is_closing = true;
    }

    /// Sees to it that what no answer waited for is appended too, before a planned stop. Says whether there is any.
    pub fn flush_relaxed(&mut self) -> bool {
        let Some(open) = &mut self.open else { return false };
        let any = open.engine.flush_relaxed();
        open.building.is_empty &= !any;
        any
    }

    /// How many requests wait.
    pub fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing is waiting, decided or on its way.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.outputs.is_empty()
            && self
                .open
                .as_ref()
                .is_none_or(|open| open.round.is_none() && open.building.is_empty && open.in_flight.is_none())
    }

    /// Whether a request waits for an answer that comes later.
    pub fn has_waiters(&self) -> bool {
        self.open.as_ref().is_some_and(|open| !open.waiting.is_empty())
    }

    /// The engine, while the shard is open.
    pub fn engine(&self) -> Option<&Engine> {
        self.open.as_ref().map(|open| &open.engine)
    }

    /// How far time has come, if it lags because more was due than could be done; said once. Whoever tells the time should
    /// go on from there: what has not passed for clients should not pass all at once.
    pub fn take_lag(&mut self) -> Option<Time> {
        self.open.as_mut()?.lags_at.take()
    }

    /// When [`Shard::poll`] should be called again even if nothing comes in.
    pub fn next_wakeup(&self) -> Option<Time> {
        let open = self.open.as_ref()?;
        if self.is_starved
            || open.stands_still_at.is_some()
            || open.round.is_some()
            || open.is_full(&self.options)
        {
            return None;
        }
        open.engine.next_due()
    }

    /// The next thing to be done outside; nothing until more comes in, or until [`Shard::next_wakeup`].
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
                let fetch = open.run_round(self.may_relax, &self.options, &mut self.queue, &mut self.outputs);
                self.outputs.extend(fetch);
                continue;
            }
            let room = match (self.has_room, self.is_starved) {
                (_, true) => Room::Nothing,
                (false, false) => Room::Due,
                (true, false) => Room::Clients,
            };
            let now = open.stands_still_at.unwrap_or(now);
            if !open.is_full(&self.options) {
                let has_leisure = !self.is_closing;
                if open.take_round(now, &mut self.queue, &self.options, room, has_leisure, &mut self.outputs)
                {
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

impl<T> Open<T> {
    /// Whether the batch takes no more. While more is due, a slice is enough: whoever is answered with it should not wait
    /// for the next ones.
    fn is_full(&self, options: &Options) -> bool {
        let most = if self.is_behind { options.due_slice.min(options.max_batch) } else { options.max_batch };
        self.building.weight >= most || self.has_enough_bytes(options)
    }

    /// The engine announces bytes that it may not write in the end. A batch with nothing to seal is never full, or no seal
    /// would ever come to empty it.
    fn has_enough_bytes(&self, options: &Options) -> bool {
        !self.building.is_empty && self.engine.unsealed_bytes() >= options.max_batch_bytes
    }

    /// Takes what is due, then what waits. Says whether there was anything.
    fn take_round(
        &mut self,
        now: Time,
        queue: &mut VecDeque<(T, Job)>,
        options: &Options,
        room: Room,
        has_leisure: bool,
        outputs: &mut VecDeque<Output<T>>,
    ) -> bool {
        // Time may be asked for by several rounds of one batch, and never goes back.
        let now = now.max(self.engine.time());
        let Slice { due, time, is_whole } =
            if room == Room::Nothing { self.standstill(now) } else { self.slice(now, options) };
        self.is_behind = room != Room::Nothing && time < now;
        let is_far_behind = self.is_behind && now.0 - time.0 > options.max_lag.0;
        self.lags_at = (self.is_behind && !is_far_behind).then_some(time);
        let mut work: VecDeque<Work<T>> = due.into_iter().map(Work::Due).collect();
        let mut refused = false;
        if is_whole && !is_far_behind {
            refused = self.take_waiting(queue, options.max_batch, room, &mut work, outputs);
            if room != Room::Nothing {
                self.take_background(has_leisure, &mut work);
            }
        }
        if work.is_empty() {
            return refused;
        }
        self.fetched.clear();
        self.round = Some(Round { now: time, work, is_fetching: false, is_asked: false, is_ready: false });
        true
    }

    /// Without room for what is due, time stands still just before it: reads never see a state in which it should have
    /// happened and has not.
    fn standstill(&self, now: Time) -> Slice {
        let time = match self.engine.next_due() {
            Some(due) => now.min(just_before(due)).max(self.engine.time()),
            None => now,
        };
        Slice { due: Vec::new(), time, is_whole: true }
    }

    /// What is due by `now`. Where that is more than a slice, it ends between two instants, and time comes only to the end
    /// of the first: so all that is due by then is done, and clients need not wait for the rest.
    fn slice(&self, now: Time, options: &Options) -> Slice {
        let mut due = self.engine.due(now, options.due_slice + 1);
        let Some(&Due::Timer(TimerKey { due: next, .. })) = due.get(options.due_slice) else {
            return Slice { due, time: now, is_whole: true };
        };
        let time = just_before(next);
        let before = self.engine.due(time, options.due_slice);
        if before.is_empty() || time < self.engine.time() {
            // More than a slice is due at one instant; or it is late, as what was put off before the shard was opened.
            due.truncate(options.due_slice);
            return Slice { due, time: next.max(self.engine.time()), is_whole: false };
        }
        Slice { due: before, time, is_whole: true }
    }

    /// Takes what waits, as much as the batch has room for. Says whether anything was refused.
    fn take_waiting(
        &self,
        queue: &mut VecDeque<(T, Job)>,
        max_batch: usize,
        room: Room,
        work: &mut VecDeque<Work<T>>,
        outputs: &mut VecDeque<Output<T>>,
    ) -> bool {
        let mut refused = false;
        let mut weight = self.building.weight;
        while let Some((_, job)) = queue.front()
            && (weight == 0 || weight + weight_of(&job.request) <= max_batch)
            && let Some((ticket, job)) = queue.pop_front()
        {
            let may_write =
                room == Room::Clients || (room == Room::Due && job.request.is_allowed_when_full());
            if job.request.is_write() && !may_write {
                outputs.push_back(undecided(ticket, Failure::StorageFull));
                refused = true;
                continue;
            }
            weight += weight_of(&job.request);
            work.push_back(Work::Request(ticket, job));
        }
        refused
    }

    /// What others wait for has a slice in every batch. Sweeps, which make room, have one where nothing else is to be done,
    /// and otherwise now and then.
    fn take_background(&mut self, has_leisure: bool, work: &mut VecDeque<Work<T>>) {
        if self.building.has_background {
            return;
        }
        let is_quiet = self.in_flight.is_none() && self.building.is_empty && work.is_empty();
        let is_sweep_due = is_quiet || self.batches_since_sweep >= BATCHES_A_SWEEP;
        let sweep = || if is_sweep_due && has_leisure { self.engine.next_sweep() } else { None };
        let free = || if has_leisure { self.engine.next_free() } else { None };
        let background = self.engine.next_backfill().or_else(free).or_else(sweep);
        self.building.has_background = background.is_some();
        if let Some(Due::Sweep(_)) = background {
            self.batches_since_sweep = 0;
        }
        work.extend(background.map(Work::Due));
    }

    /// Applies the round in order. Where something more must be fetched, asks for it and stops there. Where the batch has
    /// enough bytes, the round ends: the requests that it has not begun go back to the queue.
    fn run_round(
        &mut self,
        may_relax: bool,
        options: &Options,
        queue: &mut VecDeque<(T, Job)>,
        outputs: &mut VecDeque<Output<T>>,
    ) -> Option<Output<T>> {
        let mut round = self.round.take()?;
        // What can be told beforehand is fetched for all at once, before the first is applied.
        let mut reads = if round.is_ready { Vec::new() } else { self.missing(&round) };
        round.is_ready = reads.is_empty();
        round.is_asked = true;
        while reads.is_empty()
            && let Some(work) = round.work.front_mut()
        {
            match self.apply(round.now, work) {
                Ok(mut applied) => {
                    if let Some(Applied::Done { is_relaxed, .. }) = &mut applied {
                        *is_relaxed &= may_relax;
                    }
                    let work = round.work.pop_front().expect("it was just there");
                    self.decided(round.now, work, applied, outputs);
                    // What is due is done to its end: time has come to this round's instant, and nothing due by then may be
                    // left when anybody is answered. It comes first, so behind a request there is only background work, which
                    // is found again.
                    if self.has_enough_bytes(options)
                        && let Some(Work::Request(..)) = round.work.front()
                    {
                        for work in round.work.drain(..).rev() {
                            if let Work::Request(ticket, job) = work {
                                queue.push_front((ticket, job));
                            }
                        }
                    }
                }
                Err(Missing(more)) => reads = more,
            }
        }
        if reads.is_empty() {
            return None;
        }
        round.is_fetching = true;
        self.round = Some(round);
        Some(Output::Fetch(reads))
    }

    /// What was decided waits for durability, unless it need not, or it is answered later.
    fn decided(
        &mut self,
        now: Time,
        work: Work<T>,
        applied: Option<Applied>,
        outputs: &mut VecDeque<Output<T>>,
    ) {
        match (work, applied) {
            (Work::Request(ticket, job), Some(Applied::Done { outcome, is_relaxed: false })) => {
                self.decisions += 1;
                let order = self.decisions;
                self.building.is_empty = false;
                self.building.weight += weight_of(&job.request);
                let is_write = job.request.is_write();
                self.building.replies.push(PendingReply {
                    ticket,
                    decided_at: now,
                    order,
                    outcome,
                    is_write,
                });
            }
            (Work::Request(ticket, _), Some(Applied::Done { outcome, is_relaxed: true })) => {
                // No answer waits for what it changed, but that is to be appended all the same.
                self.building.is_empty &= !self.engine.has_changes();
                self.decisions += 1;
                outputs.push_back(Output::Reply(Reply {
                    ticket,
                    decided_at: Some(now),
                    order: self.decisions,
                    result: Ok(outcome),
                }));
            }
            (Work::Request(ticket, job), Some(Applied::Waiting(id))) => {
                self.building.is_empty = false;
                self.waiting.insert(id, ticket);
                self.decisions += 1;
                let order = self.decisions;
                outputs.push_back(Output::Waits { request: job.request, since: now, order });
            }
            _ => {
                self.building.is_empty = false;
                self.building.weight += 1;
            }
        }
        for (id, outcome) in self.engine.take_completions() {
            if let Some(ticket) = self.waiting.remove(&id) {
                self.decisions += 1;
                let order = self.decisions;
                self.building.replies.push(PendingReply {
                    ticket,
                    decided_at: now,
                    order,
                    outcome,
                    is_write: true,
                });
            }
        }
    }

    fn apply(&mut self, now: Time, work: &mut Work<T>) -> Result<Option<Applied>, Missing> {
        match work {
            Work::Request(_, job) => self.engine.apply(now, job, &self.fetched).map(Some),
            Work::Due(due) => self.engine.apply_due(now, *due, &self.fetched).map(|()| None),
        }
    }

    /// What the round needs and has not been fetched. What a write needs can be told at once, so it is asked only the
    /// first time; a read may need more after each answer.
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

    /// Nobody waits any more for others to let go of something. Says whether anybody did.
    fn end_lock_waits(&mut self, outputs: &mut VecDeque<Output<T>>) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let ended = self.engine.end_lock_waits();
        let any = !ended.is_empty();
        for ticket in ended.into_iter().filter_map(|wait| self.waiting.remove(&wait)) {
            self.decisions += 1;
            let (decided_at, order) = (Some(self.engine.time()), self.decisions);
            outputs.push_back(Output::Reply(Reply {
                ticket,
                decided_at,
                order,
                result: Err(Failure::Closing),
            }));
        }
        any
    }

    fn seal(&mut self) -> Output<T> {
        self.batches_since_sweep += 1;
        let sealed = self.engine.seal();
        let mut batch = std::mem::take(&mut self.building);
        batch.effects = sealed.effects;
        let requests = batch.replies.len();
        self.in_flight = Some(batch);
        if sealed.writes.is_empty() {
            Output::Confirm
        } else {
            Output::Append { writes: sealed.writes, requests }
        }
    }
}

fn undecided<T>(ticket: T, failure: Failure) -> Output<T> {
    Output::Reply(Reply { ticket, decided_at: None, order: 0, result: Err(failure) })
}

fn just_before(time: Time) -> Time {
    Time(time.0.saturating_sub(1))
}

fn weight_of(request: &Request) -> usize {
    use limina_engine::{Command, ledger, limiter};
    let weight_of = |transfer: &ledger::Transfer| match transfer {
        ledger::Transfer::Hold(hold) => hold.changes.len(),
        ledger::Transfer::Finish(finalization) => finalization.changes.as_ref().map_or(1, Vec::len),
    };
    match &request.command {
        Command::Ledger(ledger::Command::Batch(transfers)) => transfers.iter().map(weight_of).sum(),
        Command::Ledger(ledger::Command::Transfer(transfer)) => weight_of(transfer),
        Command::Limiter(limiter::Command::CheckBatch(checks)) => checks.len(),
        Command::Limiter(limiter::Command::Change(_)) => CHANGE_WEIGHT,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use limina_engine::{Options as EngineOptions, engine::Stats, record};

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
    fn what_is_left_to_sweep_does_not_hold_up_a_stop() {
        let mut shard = open_with_a_sweep();
        assert!(matches!(shard.poll(Time(1)), Some(Output::Fetch(_))), "it sweeps while there is time");

        let mut shard = open_with_a_sweep();
        shard.handle_closing();
        assert!(shard.poll(Time(1)).is_none());
        assert!(shard.is_idle());
    }
}
