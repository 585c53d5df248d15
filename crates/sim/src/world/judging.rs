//! Compares the answers with the model, in the order in which they were decided.

use super::{World, key_of_change};
use crate::model;
use crate::model::{Fate, LostAnswer, is_batch};
use limina_engine::ledger::Reply as LedgerReply;
use limina_engine::{Command, Outcome, Request, Time, decisions, events, ledger};
use limina_shard::{Failure, Reply};
use std::fmt::Write as _;

impl World {
    pub(super) fn check_reply(&mut self, reply: Reply<Request>) -> Result<(), String> {
        let Reply { ticket: request, decided_at, order, result } = reply;
        self.waiting -= 1;
        let has_begun = self.begun.contains(&request);
        self.begun.retain(|other| *other != request);
        if let Some(place) = self.open_batches.iter().position(|other| *other == request) {
            self.open_batches.swap_remove(place);
        }
        self.tell_followers(&request, &result)?;
        if let Some(key) = key_of_change(&request)
            && let Some(place) = self.keys_in_use.iter().position(|other| *other == key)
        {
            self.keys_in_use.swap_remove(place);
        }
        let may_be_key_in_use = request.idempotency.as_ref().is_some_and(|idempotency| {
            self.keys_in_use.contains(&(request.namespace.clone(), idempotency.owned_key()))
        });
        // The model knows which requests wait for locks and slots, and under which keys.
        let is_known = matches!(request.command, Command::Locks(_))
            || self.workload.decided() == Some(&request.namespace);
        if result == Ok(Outcome::IdempotencyKeyInUse) && !may_be_key_in_use && !is_known {
            return Err(format!("nothing is under way under the key of {request:?}"));
        }
        let lost =
            LostAnswer { may_be_nothing: may_be_key_in_use || (self.read_faults && may_read(&request)) };
        let fate = match result {
            Ok(outcome) => {
                self.report.answered += 1;
                self.report.unreadable += u64::from(has_unreadable(&outcome));
                self.workload.note_answer(&outcome);
                self.last_answer = Some(outcome.clone());
                Fate::Answered(outcome)
            }
            Err(Failure::OutcomeUnknown) => {
                self.report.unknown += 1;
                Fate::InDoubt(lost)
            }
            Err(Failure::Closing) => Fate::GivenUp,
            Err(failure @ (Failure::StorageFull | Failure::Unavailable)) => {
                // If another request has the same key, or is the same, that one may be the batch that has begun.
                let is_another = may_be_key_in_use || self.open_batches.contains(&request);
                if has_begun && decided_at.is_some() && !is_another {
                    return Err(format!("{failure:?}, but some items may be stored: {request:?}"));
                }
                Fate::NotDone(lost)
            }
        };
        match (decided_at, &fate) {
            // A batch that was cut: the slices that it has done were reported one by one.
            (None, Fate::InDoubt(_)) if is_batch(&request) => Ok(()),
            (Some(at), _) => self.note(order, at, request, fate),
            (None, Fate::NotDone(_)) => {
                self.say(|| format!("not decided: {request:?}"));
                Ok(())
            }
            (None, _) => Err("an outcome that was not decided".into()),
        }
    }

    pub(super) fn note(&mut self, order: u64, at: Time, request: Request, fate: Fate) -> Result<(), String> {
        self.say(|| format!("{order}: {request:?} -> {fate:?}"));
        if self.early.insert(order, (at, request, fate)).is_some() || order <= self.judged {
            return Err(format!("two decisions have the place {order}"));
        }
        self.judge_in_order()
    }

    /// Counts a batch that continues behind items that were done before the shard was opened.
    pub(super) fn note_slice(&mut self, request: &Request, from: usize) {
        self.report.slices += 1;
        if !self.begun.contains(request) {
            self.report.continued += u64::from(from > 0);
            self.begun.push(request.clone());
        }
    }

    /// A relaxed answer is known at once. It is judged when everything that was decided before it is known.
    pub(super) fn judge_in_order(&mut self) -> Result<(), String> {
        while let Some((at, request, fate)) = self.early.remove(&(self.judged + 1)) {
            self.judged += 1;
            let decided = self.judge.decided(at, &request, fate.clone());
            self.report.states = self.report.states.max(self.judge.states() as u64);
            decided.map_err(|expected| difference(at, &request, &fate, &expected))?;
        }
        Ok(())
    }
}

/// Whether the request may need a stored record, which may be unreadable.
fn may_read(request: &Request) -> bool {
    request.idempotency.is_some()
        || match &request.command {
            Command::Ledger(_) | Command::Decisions(_) => true,
            Command::Events(command) => matches!(command, events::Command::Changes(_)),
            Command::Limiter(_)
            | Command::Locks(_)
            | Command::DeleteNamespace
            | Command::ListNamespaces(_)
            | Command::ListAudit(_)
            | Command::ListShardAudit(_) => false,
        }
}

/// Whether a record could not be read, so that something was not done.
fn has_unreadable(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Ledger(Ok(LedgerReply::Batch(results))) => {
            results.contains(&Err(ledger::Refusal::Unreadable))
        }
        Outcome::Decisions(Ok(decisions::Reply::Batch(results))) => {
            results.contains(&Err(decisions::Refusal::Unreadable))
        }
        _ => model::is_unreadable(outcome),
    }
}

fn difference(at: Time, request: &Request, fate: &Fate, expected: &str) -> String {
    let mut text = format!("at {} the answer differs from the model's\n", at.0);
    let _ = write!(text, "request:  {request:?}\nanswer:   {fate:?}\nexpected: {expected}");
    text
}
