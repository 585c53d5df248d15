//! Answers and losses, in the order in which the shard decided them.

use super::{MOST_STATES, Model};
use limina_engine::{Command, Name, Outcome, Request, Time, limiter};

/// Holds every answer against the model, and knows what a lost memory may have taken along.
///
/// What a client was told is durable, and so is all that was decided before it; but a relaxed answer may be told
/// before. So the judge keeps what was decided since the last durable answer, and begins again from there, with as much
/// of it as may have been persisted.
#[derive(Debug, Clone, Default)]
pub struct Judge {
    live: Possible,
    /// The state before `loose`, if there is any.
    durable: Option<Possible>,
    loose: Vec<Decided>,
}

#[derive(Debug, Clone)]
struct Decided {
    at: Time,
    request: Request,
    fate: Fate,
}

/// What became of a decision.
#[derive(Debug, Clone)]
pub enum Fate {
    /// It was answered, so far as it was durable.
    Answered(Outcome),
    /// It was in an append of which it is not known whether it happened.
    InDoubt(Unheard),
    /// It was lost with the memory.
    NotDone(Unheard),
}

/// What can be said of an answer that nobody heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unheard {
    /// It may have been that nothing was done: something was under way under the same key, or could not be read.
    pub may_be_nothing: bool,
}

/// Too much is possible for the model to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CannotTell;

/// Every state that may be the true one.
#[derive(Debug, Clone)]
struct Possible(Vec<Model>);

impl Default for Possible {
    fn default() -> Possible {
        Possible(vec![Model::default()])
    }
}

impl Judge {
    /// Takes note of a decision; these must come in the order in which they were made. The error says what should have
    /// been answered.
    pub fn decided(&mut self, at: Time, request: &Request, fate: Fate) -> Result<(), String> {
        let is_durable = match &fate {
            Fate::Answered(outcome) => {
                let before = (self.durable.is_none() && may_be_relaxed(request)).then(|| self.live.clone());
                let is_relaxed = self.live.answer(at, request, outcome)? && may_be_relaxed(request);
                if is_relaxed && self.durable.is_none() {
                    self.durable = before;
                }
                !is_relaxed
            }
            // A read that was lost leaves nothing behind.
            Fate::InDoubt(_) | Fate::NotDone(_) if !request.command.is_write() => return Ok(()),
            Fate::InDoubt(unheard) | Fate::NotDone(unheard) => {
                self.durable.get_or_insert_with(|| self.live.clone());
                self.live.suppose(at, request, *unheard);
                false
            }
        };
        if is_durable {
            self.persisted();
        } else {
            self.loose.push(Decided { at, request: request.clone(), fate });
        }
        Ok(())
    }

    /// Everything decided so far is durable, but for what windows keep of relaxed answers.
    pub fn persisted(&mut self) {
        self.durable = None;
        self.loose.clear();
    }

    /// The shard lost its memory and was opened again: what was in doubt had happened or not, the last time that is
    /// persisted, and the time at which it was ready.
    pub fn reopened(&mut self, doubt_happened: bool, persisted: Time, ready: Time) -> Result<(), CannotTell> {
        let mut state = self.durable.take().unwrap_or_else(|| self.live.clone());
        // What may be stored in place of `state`, if less was persisted.
        let mut earlier: Vec<Model> = Vec::new();
        for Decided { at, request, fate } in std::mem::take(&mut self.loose) {
            // Time is persisted with everything else.
            if at > persisted {
                break;
            }
            let before = state.0.clone();
            match fate {
                Fate::Answered(outcome) => {
                    state.answer(at, &request, &outcome).map_err(|_| CannotTell)?;
                    let has_moved =
                        state.0.iter().any(|model| before.iter().any(|before| model.differs_solidly(before)));
                    if has_moved {
                        earlier.extend(before);
                    }
                }
                Fate::InDoubt(unheard) if doubt_happened => {
                    state.suppose(at, &request, unheard);
                    earlier.clear();
                }
                // Nothing that was decided after it can have been persisted.
                Fate::InDoubt(_) | Fate::NotDone(_) => break,
            }
        }
        // What was due may have been done or not, as long as it was done in order.
        while let Some(due) = state.next_expiry().filter(|due| *due <= persisted) {
            earlier.extend(state.0.iter().cloned());
            state.0.iter_mut().for_each(|model| model.expire(due));
        }
        state.0.extend(earlier);
        for model in &mut state.0 {
            model.forget(persisted);
            model.reopen(ready);
        }
        state.unify();
        self.live = state;
        if self.live.0.len() > MOST_STATES { Err(CannotTell) } else { Ok(()) }
    }

    /// The names of all namespaces that may be there.
    pub fn namespaces(&self) -> Vec<Name> {
        let mut names: Vec<Name> =
            self.live.0.iter().flat_map(|model| model.namespaces.keys().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// How many states are possible.
    pub fn states(&self) -> usize {
        self.live.0.len()
    }
}

impl Possible {
    /// Leaves the states that agree with the answer. Says whether the answer may be one that did not wait for the disk.
    fn answer(&mut self, at: Time, request: &Request, outcome: &Outcome) -> Result<bool, String> {
        let mut next = Vec::new();
        let mut expected: Vec<String> = Vec::new();
        let mut may_be_relaxed = false;
        for model in std::mem::take(&mut self.0) {
            match model.step(at, request, Some(outcome)) {
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

    /// It was done, and nobody knows what was answered.
    fn suppose(&mut self, at: Time, request: &Request, unheard: Unheard) {
        for model in std::mem::take(&mut self.0) {
            if unheard.may_be_nothing {
                self.0.push(model.clone());
            }
            let ways = model.step(at, request, None).expect("without an answer none is wrong");
            self.0.extend(ways.into_iter().map(|(model, _)| model));
        }
        self.unify();
    }

    fn next_expiry(&self) -> Option<Time> {
        let all = self.0.iter().flat_map(|model| model.namespaces.values());
        all.filter_map(|namespace| namespace.limiter.next_expiry()).min().map(Time)
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

/// Whether it is a request whose answer need not wait for the disk.
fn may_be_relaxed(request: &Request) -> bool {
    let command = match &request.command {
        Command::Limiter(command) => command,
        Command::Ledger(_)
        | Command::Locks(_)
        | Command::Events(_)
        | Command::DeleteNamespace
        | Command::ListNamespaces(_) => {
            return false;
        }
    };
    matches!(command, limiter::Command::Check(_) | limiter::Command::CheckBatch(_))
        && request.idempotency.is_none()
}
