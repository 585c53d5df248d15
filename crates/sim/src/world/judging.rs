//! Compares the answers with the model, in the order in which they were decided.

use super::{ShardDecision, World};
use crate::model::{self, Fate, is_batch};
use limina_engine::ledger::Reply as LedgerReply;
use limina_engine::{Outcome, Request, Time, decisions, ledger};
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
        let decided = self.undurable.remove(&order);
        match result {
            Ok(outcome) => {
                self.report.answered += 1;
                self.report.unreadable += u64::from(has_unreadable(&outcome));
                self.workload.note_answer(&outcome);
                self.last_answer = Some(outcome.clone());
                match (decided, decided_at) {
                    (Some(_), _) if order > self.persisted => {
                        Err(format!("{outcome:?} is told before it is durable"))
                    }
                    (Some(decided), _) if decided == outcome => Ok(()),
                    (Some(decided), _) => Err(format!("{decided:?} was decided, not {outcome:?}")),
                    (None, Some(at)) => self.decide(
                        order,
                        ShardDecision { at, request, fate: Fate::Answered(outcome), is_told: true },
                    ),
                    (None, None) => Err("an outcome that was not decided".into()),
                }
            }
            Err(Failure::Closing) => {
                let at = decided_at.ok_or("a wait that did not end")?;
                self.note(order, at, request, Fate::GivenUp)
            }
            Err(Failure::OutcomeUnknown) => {
                self.report.unknown += 1;
                let is_right = decided.is_some() || is_batch(&request);
                if is_right { Ok(()) } else { Err("an outcome that was not decided is unknown".into()) }
            }
            Err(failure @ (Failure::StorageFull | Failure::Unavailable)) => {
                if decided.is_none() {
                    self.say(|| format!("not decided: {request:?}"));
                    return Ok(());
                }
                // If another request is the same, that one may be the batch that has begun.
                if has_begun && !self.open_batches.contains(&request) {
                    return Err(format!("{failure:?}, but some items may be stored: {request:?}"));
                }
                if request.is_write() {
                    self.denied = Some(self.denied.map_or(order, |denied| denied.min(order)));
                }
                Ok(())
            }
        }
    }

    /// Judges the decisions of which the clients learn later.
    pub(super) fn note_undurable(&mut self) -> Result<(), String> {
        let answers =
            self.shard.undurable_answers().filter(|(_, _, order, _)| !self.undurable.contains_key(order));
        let new: Vec<(Request, Time, u64, Outcome)> = answers
            .map(|(request, at, order, outcome)| (request.clone(), at, order, outcome.clone()))
            .collect();
        for (request, at, order, outcome) in new {
            self.undurable.insert(order, outcome.clone());
            self.note(order, at, request, Fate::Answered(outcome))?;
        }
        Ok(())
    }

    /// An append begins, with everything that was decided.
    pub(super) fn note_sealed(&mut self) -> Result<(), String> {
        self.check_all_known()?;
        self.sealed = self.judged;
        self.judge.sealed();
        Ok(())
    }

    pub(super) fn check_all_known(&self) -> Result<(), String> {
        match self.early.first_key_value() {
            Some((order, _)) => Err(format!("of {order} decisions only {} were told of", self.judged)),
            None => Ok(()),
        }
    }

    /// The shard is opened again. What was said to be not done must not be stored.
    pub(super) fn check_denied(&mut self, has_happened: bool) -> Result<(), String> {
        let stored = if has_happened { self.sealed } else { self.persisted };
        (self.sealed, self.persisted) = (0, 0);
        match self.denied.take() {
            Some(order) if order <= stored => {
                Err(format!("decision {order} was said to be not done, but {stored} are stored"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn note(&mut self, order: u64, at: Time, request: Request, fate: Fate) -> Result<(), String> {
        self.decide(order, ShardDecision { at, request, fate, is_told: false })
    }

    fn decide(&mut self, order: u64, decided: ShardDecision) -> Result<(), String> {
        self.say(|| format!("{order}: {:?} -> {:?}", decided.request, decided.fate));
        if self.early.insert(order, decided).is_some() || order <= self.judged {
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
        while let Some(ShardDecision { at, request, fate, is_told }) = self.early.remove(&(self.judged + 1)) {
            self.judged += 1;
            let judged = self.judge.decided(at, &request, &fate);
            let is_relaxed = judged.map_err(|expected| difference(at, &request, &fate, &expected))?;
            if is_told && !is_relaxed {
                return Err(difference(at, &request, &fate, "the same, but not before it is durable"));
            }
        }
        Ok(())
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
