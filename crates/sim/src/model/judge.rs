//! Answers and losses, in the order in which the shard decided them.

use super::{Bounds, MOST_STATES, Model, is_batch};
use limina_engine::{Command, Name, Outcome, Request, Time, limiter};

/// Compares every answer with the model, and knows what a loss of memory may have removed.
///
/// What a client was told is durable, and so is everything that was decided before it. Two things are known earlier:
/// relaxed answers, and that a request began to wait. So the judge keeps the decisions since the last durable answer.
/// After a loss it starts again from there, with as many of these decisions as may have been persisted.
#[derive(Debug, Clone)]
pub struct Judge {
    live: Possible,
    /// The possible states before `loose`, if there is any loose decision.
    durable: Option<Possible>,
    loose: Vec<Decided>,
    /// Requests for locks and slots that began to wait and have no answer yet.
    waiting: Vec<Request>,
    /// After decisions that were lost, `live` would have too many states. Nothing is compared until the shard is opened again,
    /// which starts from `durable`.
    is_blind: bool,
    /// The number of answers that were not compared for this reason.
    unjudged: u64,
}

#[derive(Debug, Clone)]
struct Decided {
    at: Time,
    request: Request,
    /// Whether the request had to wait for this decision.
    has_waited: bool,
    fate: Fate,
}

/// What became of a decision.
#[derive(Debug, Clone)]
pub enum Fate {
    /// It was answered.
    Answered(Outcome),
    /// The request waits, and is decided later.
    Waits,
    /// Some items of a batch were decided, and the batch continues later.
    Slice {
        /// The number of items that were decided before.
        from: usize,
        /// The outcome of the items that were decided now.
        outcome: Outcome,
    },
    /// The request waited, and failed because of a planned stop.
    GivenUp,
    /// It was in an append of which it is not known whether it happened.
    InDoubt(LostAnswer),
    /// It was lost with the memory.
    NotDone(LostAnswer),
}

/// What is known of an answer that was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostAnswer {
    /// Possibly nothing was done, because a request with the same key was in progress, or a record could not be read.
    pub may_be_nothing: bool,
}

/// There are too many possible states for the model to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyStates;

/// Every state that may be the true one.
#[derive(Debug, Clone)]
struct Possible(Vec<Model>);

impl Decided {
    /// The possible states after this decision, each with whether its answer need not wait for the disk.
    fn ways(&self, model: Model) -> Result<Vec<(Model, bool)>, String> {
        let Decided { at, request, has_waited, fate } = self;
        let one = |model: Model| vec![(model, false)];
        match fate {
            Fate::Waits => model.wait(*at, request).map(one),
            Fate::Slice { from, outcome } => model.slice(*at, request, *from, outcome),
            Fate::GivenUp => model.give_up(request).map(one),
            Fate::Answered(outcome) if *has_waited => model.complete(*at, request, Some(outcome)).map(one),
            Fate::Answered(outcome) => model.step(*at, request, Some(outcome)),
            // It was done, and the answer is not known.
            Fate::InDoubt(_) | Fate::NotDone(_) if *has_waited => model.complete(*at, request, None).map(one),
            Fate::InDoubt(LostAnswer { may_be_nothing }) | Fate::NotDone(LostAnswer { may_be_nothing }) => {
                let nothing = may_be_nothing.then(|| (model.clone(), false));
                let something = model.step(*at, request, None);
                match nothing {
                    Some(nothing) => Ok(something.into_iter().flatten().chain([nothing]).collect()),
                    None => something,
                }
            }
        }
    }
}

impl Judge {
    /// Begins with an empty shard, whose namespaces have these quotas. In the namespace of decisions, only they and the
    /// commands that go with them are sent.
    pub fn new(bounds: Bounds, decided: Option<Name>) -> Judge {
        let live = Possible(vec![Model::new(bounds, decided)]);
        Judge { live, durable: None, loose: Vec::new(), waiting: Vec::new(), is_blind: false, unjudged: 0 }
    }

    /// Records a decision. Decisions must come in the order in which they were made. The error is the expected answer.
    pub fn decided(&mut self, at: Time, request: &Request, fate: Fate) -> Result<(), String> {
        match &fate {
            // Other waits have no place in a queue. They count as if the request had come when it is answered.
            Fate::Waits if !waits_in_a_queue(request) => return Ok(()),
            // A lost read has no effect.
            Fate::InDoubt(_) | Fate::NotDone(_) if !request.command.is_write() => return Ok(()),
            _ => {}
        }
        let place = self.waiting.iter().position(|waiting| waiting == request);
        if let Some(place) = place {
            self.waiting.remove(place);
        }
        let decided = Decided { at, request: request.clone(), has_waited: place.is_some(), fate };
        let is_answered = matches!(decided.fate, Fate::Answered(_));
        if self.is_blind {
            self.unjudged += u64::from(is_answered);
            if let Fate::Waits = decided.fate {
                self.waiting.push(request.clone());
            }
            self.loose.push(decided);
            return Ok(());
        }
        let may_be_loose = !is_answered || may_be_relaxed(request);
        let before = (self.durable.is_none() && may_be_loose).then(|| self.live.clone());
        // A lost decision of the ledger is visible in no answer, because everything that the ledger decided after it is
        // lost too: that includes slices of a batch.
        let is_after_lost = || self.loose.iter().any(|decided| matches!(decided.fate, Fate::NotDone(_)));
        let is_lost = match (&decided.fate, &request.command) {
            (Fate::NotDone(_), Command::Ledger(_)) => true,
            (Fate::Slice { .. }, Command::Ledger(_)) => is_after_lost(),
            _ => false,
        };
        let is_relaxed = !is_lost && self.live.follow(&decided)?;
        if let Fate::Waits = decided.fate {
            self.waiting.push(request.clone());
        }
        if may_be_loose && (is_relaxed || !is_answered) {
            let is_in_doubt = matches!(decided.fate, Fate::InDoubt(_) | Fate::NotDone(_));
            self.is_blind = is_in_doubt && self.live.0.len() > MOST_STATES;
            self.durable = self.durable.take().or(before);
            self.loose.push(decided);
        } else {
            self.persisted();
        }
        Ok(())
    }

    /// Everything that was due by then has been executed. The error names a request that should have been answered by
    /// it.
    pub fn nothing_is_due(&mut self, at: Time) -> Result<(), String> {
        let mut untold = String::new();
        self.live.0.retain_mut(|model| match model.expire(at) {
            Ok(()) => true,
            Err(text) => {
                untold = text;
                false
            }
        });
        if self.live.0.is_empty() { Err(untold) } else { Ok(()) }
    }

    /// Everything decided so far is durable, except for what windows keep of relaxed answers.
    pub fn persisted(&mut self) {
        self.durable = None;
        self.loose.clear();
    }

    /// The shard lost its memory and was opened again. `doubt_happened` says whether the append in doubt had happened,
    /// `persisted` is the last stored time, and `ready` the time of opening; none if the shard was handed over without a pause.
    pub fn reopened(
        &mut self,
        doubt_happened: bool,
        persisted: Time,
        ready: Option<Time>,
    ) -> Result<(), TooManyStates> {
        let mut state = self.durable.take().unwrap_or_else(|| self.live.clone());
        self.waiting.clear();
        self.is_blind = false;
        // States that may be stored instead of `state`, if less was persisted.
        let mut earlier: Vec<Model> = Vec::new();
        for decided in std::mem::take(&mut self.loose) {
            // Time is persisted with everything else.
            if decided.at > persisted {
                break;
            }
            let before = state.clone();
            match &decided.fate {
                Fate::Answered(_) | Fate::Waits | Fate::GivenUp => {
                    state.follow(&decided).map_err(|_| TooManyStates)?;
                    let differs = |model: &Model| before.0.iter().any(|before| model.differs_solidly(before));
                    if state.0.iter().any(differs) {
                        earlier.extend(before.on_the_way(decided.at));
                    }
                }
                Fate::Slice { .. } => {
                    state.follow(&decided).map_err(|_| TooManyStates)?;
                    earlier.extend(before.on_the_way(decided.at));
                }
                // The answer to a batch is in doubt even if its last items were in no append yet, because earlier appends may
                // contain the first ones. So the last items may be stored or not.
                Fate::InDoubt(_) if doubt_happened && is_batch(&decided.request) => {
                    state.follow(&decided).map_err(|_| TooManyStates)?;
                    earlier.extend(before.on_the_way(decided.at));
                }
                Fate::InDoubt(_) if doubt_happened => {
                    state.follow(&decided).map_err(|_| TooManyStates)?;
                    earlier.clear();
                }
                // Nothing that was decided after it can have been persisted.
                Fate::InDoubt(_) | Fate::NotDone(_) => break,
            }
            if state.0.len() > MOST_STATES {
                return Err(TooManyStates);
            }
        }
        // Answers to waiting requests were stored together with the step that caused them, or the step was not done.
        state.0.retain(|model| model.owed.is_empty());
        // Due timers may or may not have fired, as long as they fired in order.
        state.0 = state.on_the_way(persisted);
        state.0.extend(earlier);
        for model in &mut state.0 {
            model.forget(persisted);
            if let Some(ready) = ready {
                model.reopen(ready);
            }
        }
        state.unify();
        self.live = state;
        if self.live.0.len() > MOST_STATES { Err(TooManyStates) } else { Ok(()) }
    }

    /// Whether everything that was decided is durable.
    pub fn is_settled(&self) -> bool {
        self.durable.is_none()
    }

    /// Clients could not reach the shard until now, and nothing has fallen due meanwhile. Every lease and lock gets its full ttl.
    pub fn serving(&mut self, ready: Time) {
        self.live.0.iter_mut().for_each(|model| model.reopen(ready));
    }

    /// The names of all namespaces that may exist.
    pub fn namespaces(&self) -> Vec<Name> {
        let mut names: Vec<Name> =
            self.live.0.iter().flat_map(|model| model.namespaces.keys().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The number of answers that were not compared with the model: they came after lost decisions, of which too many ends were
    /// possible. All of them were relaxed, because nothing else is answered between a lost decision and the next opening.
    pub fn unjudged(&self) -> u64 {
        self.unjudged
    }

    /// The number of possible states.
    pub fn states(&self) -> usize {
        self.live.0.len()
    }
}

impl Possible {
    /// Keeps the states that agree with the decision. Returns whether its answer may not have waited for the disk.
    fn follow(&mut self, decided: &Decided) -> Result<bool, String> {
        let mut next = Vec::new();
        let mut expected: Vec<String> = Vec::new();
        let mut may_be_relaxed = false;
        for model in std::mem::take(&mut self.0) {
            match decided.ways(model) {
                Ok(ways) => {
                    may_be_relaxed |= ways.iter().any(|(_, is_relaxed)| *is_relaxed);
                    next.extend(ways.into_iter().map(|(model, _)| model));
                }
                Err(text) if expected.contains(&text) => {}
                Err(text) => expected.push(text),
            }
        }
        if next.is_empty() {
            return Err(expected.join("\n   or:    "));
        }
        self.0 = next;
        self.unify();
        Ok(may_be_relaxed)
    }

    /// These states, and all that follow while timers fire that are due by then and answer no request.
    fn on_the_way(&self, by: Time) -> Vec<Model> {
        let mut all = Vec::new();
        let mut next = self.0.clone();
        while let Some(model) = next.pop() {
            next.extend(model.after_next_due(by));
            all.push(model);
        }
        all
    }

    fn unify(&mut self) {
        let mut unlike: Vec<Model> = Vec::new();
        for model in std::mem::take(&mut self.0) {
            if !unlike.contains(&model) {
                unlike.push(model);
            }
        }
        self.0 = unlike;
    }
}

/// Whether the request waits for locks or slots, if it waits.
pub fn waits_in_a_queue(request: &Request) -> bool {
    matches!(request.command, Command::Locks(_) | Command::Decisions(_))
}

/// Whether the answer to the request need not wait for the disk.
fn may_be_relaxed(request: &Request) -> bool {
    let command = match &request.command {
        Command::Limiter(command) => command,
        Command::Ledger(_)
        | Command::Locks(_)
        | Command::Events(_)
        | Command::Decisions(_)
        | Command::DeleteNamespace
        | Command::ListNamespaces(_)
        | Command::ListAudit(_)
        | Command::ListShardAudit(_) => {
            return false;
        }
    };
    use limiter::Command::{Check, CheckBatch, CheckSet};
    matches!(command, Check(_) | CheckBatch(_) | CheckSet(_)) && request.idempotency.is_none()
}
