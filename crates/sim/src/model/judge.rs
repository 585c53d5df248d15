//! Decisions and losses, in the order in which the shard decided them.

use super::{Bounds, Model, stored::Ask};
use limina_engine::{Name, Outcome, Request, Time};

/// Compares every answer with the model, and knows what a loss of memory removes.
///
/// The shard tells every decision when it makes it, also those that no client is told because they are lost. So the model always
/// knows what the shard's memory has. When an append begins, the judge keeps a copy of the model: this is what the shard opens with
/// if the append was the last one that happened.
#[derive(Debug)]
pub struct Judge {
    live: Model,
    /// As of the last append that is durable.
    stored: Model,
    /// As of the append under way.
    in_flight: Option<Model>,
    /// There are decisions that are in no append.
    has_more: bool,
}

/// What became of a request.
#[derive(Debug, Clone)]
pub enum Fate {
    /// It was decided, and this is its answer.
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
}

impl Judge {
    /// Begins with an empty shard, whose namespaces have these quotas. In the namespace of decisions, only they and the
    /// commands that go with them are sent.
    pub fn new(bounds: Bounds, decided: Option<Name>) -> Judge {
        let live = Model::new(bounds, decided);
        Judge { stored: live.clone(), live, in_flight: None, has_more: false }
    }

    /// Records a decision. Decisions must come in the order in which they were made. Returns whether an answer need not wait for the
    /// disk. The error is the expected answer.
    pub fn decided(&mut self, at: Time, request: &Request, fate: &Fate) -> Result<bool, String> {
        self.has_more = true;
        match fate {
            Fate::Answered(outcome) => return self.live.answer(at, request, outcome),
            Fate::Waits => self.live.wait(at, request)?,
            Fate::Slice { from, outcome } => self.live.slice(at, request, *from, outcome)?,
            Fate::GivenUp => self.live.give_up(request)?,
        }
        Ok(false)
    }

    /// Everything that was due by then has been executed. The error names a request that should have been answered by it.
    pub fn nothing_is_due(&mut self, at: Time) -> Result<(), String> {
        self.live.expire(at)
    }

    /// An append begins, with everything that was decided so far.
    pub fn sealed(&mut self) {
        self.in_flight = Some(self.live.clone());
        self.has_more = false;
    }

    /// The append under way is durable.
    pub fn persisted(&mut self) {
        if let Some(sealed) = self.in_flight.take() {
            self.stored = sealed;
        }
    }

    /// The judge of the shard that was opened after this one lost its memory. `has_happened` says whether the append under way had
    /// happened, `persisted` is the last stored time, and `ready` the time of opening; none if the shard was handed over without a
    /// pause. `ask` asks the opened shard. The error says in what it differs from everything that may be stored.
    pub fn as_loaded(
        &self,
        has_happened: bool,
        persisted: Time,
        ready: Option<Time>,
        ask: &mut Ask<'_>,
    ) -> Result<Judge, String> {
        let last = self.in_flight.as_ref().filter(|_| has_happened).unwrap_or(&self.stored);
        let mut state = last.as_loaded(persisted, ask)?;
        if let Some(ready) = ready {
            state.extend_holders(ready);
        }
        Ok(Judge { stored: state.clone(), live: state, in_flight: None, has_more: false })
    }

    /// Whether everything that was decided is durable.
    pub fn is_settled(&self) -> bool {
        !self.has_more && self.in_flight.is_none()
    }

    /// Clients could not reach the shard until now, and nothing has fallen due meanwhile. Every lease and lock gets its full ttl.
    pub fn serving(&mut self, ready: Time) {
        self.live.extend_holders(ready);
        self.stored = self.live.clone();
    }

    /// The names of all namespaces.
    pub fn namespaces(&self) -> Vec<Name> {
        self.live.namespaces.keys().cloned().collect()
    }
}
