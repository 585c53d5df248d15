//! Batches that the shard does in slices.
//!
//! The model runs each slice as a batch of its own. It remembers the results so far: of the batch that is under way in a
//! namespace, and of a batch that was cut and whose results are kept under its idempotency key.

use super::{Done, Model, expect, namespace::Namespace};
use limina_engine::{
    Command, Outcome, Request, Time, decisions,
    ledger::{self, Batch},
    limiter::{self, CheckBatch},
};
use std::ops::Range;

/// A batch of which some items are done.
#[derive(Debug, Clone)]
pub(super) struct Unfinished {
    request: Request,
    /// `None` before the first item.
    results: Option<Outcome>,
    done: Done,
    /// When the first results were kept under the idempotency key.
    given: Option<Time>,
    /// How many of the results an earlier request had.
    restored: usize,
}

impl Unfinished {
    pub(super) fn is_of(&self, request: &Request) -> bool {
        self.request == *request
    }

    fn len(&self) -> usize {
        self.results.as_ref().map_or(0, len)
    }

    /// Adds the results of some items.
    fn add(&mut self, now: Time, results: &Outcome, done: Done) {
        self.done.is_change |= done.is_change;
        self.done.is_relaxed &= done.is_relaxed;
        self.results = Some(join(self.results.as_ref(), results));
        self.given = self.given.or(self.done.is_change.then_some(now));
    }
}

impl Model {
    /// Some items of a batch were decided, from the item `from` on, and the batch continues later.
    pub(super) fn slice(
        &mut self,
        now: Time,
        request: &Request,
        from: usize,
        outcome: &Outcome,
    ) -> Result<(), String> {
        self.expire(now)?;
        let name = &request.namespace;
        let live = self.batches.remove(name).filter(|batch| batch.is_of(request));
        let mut namespace = self.take_namespace(name);
        let mut batch = namespace.begun(now, request, live);
        expect(batch.len() == from, || format!("it continues at item {}", batch.len()))?;
        let mut answered = Vec::new();
        let part = part(request, from..from + len(outcome));
        let done = namespace.run(now, &part, outcome, &mut answered)?;
        batch.add(now, outcome, done);
        if let (Some(given), Some(results)) = (batch.given, &batch.results) {
            namespace.keep_reply(given, request, results, false);
        }
        self.batches.insert(name.clone(), batch);
        self.put_namespace(name, namespace);
        self.owe(answered);
        Ok(())
    }
}

impl Namespace {
    /// Runs the rest of a batch. `live` is the batch that is under way in the namespace. Returns what the whole batch has done, and
    /// since when its results are kept.
    pub(super) fn run_batch(
        &mut self,
        now: Time,
        request: &Request,
        live: Option<Unfinished>,
        answer: &Outcome,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<(Done, Time), String> {
        let items = match &request.command {
            Command::Ledger(ledger::Command::Batch(transfers)) => transfers.len(),
            Command::Limiter(limiter::Command::CheckBatch(checks)) => checks.len(),
            Command::Decisions(decisions::Command::Batch(items)) => items.len(),
            _ => return Err("a batch".into()),
        };
        let is_whole = is_batch_reply(answer) && len(answer) == items;
        expect(is_whole, || "a batch with one result for each item".into())?;
        let mut batch = self.begun(now, request, live);
        let done = batch.len();
        if let Some(results) = batch.results.take() {
            let shown = self.repeated(now, results, batch.restored);
            expect(shown == results_of(answer, 0..done), || format!("it begins with {shown:?}"))?;
        }
        if done < items {
            let rest = results_of(answer, done..items);
            let done = self.run(now, &part(request, done..items), &rest, answered)?;
            batch.add(now, &rest, done);
        }
        Ok((batch.done, batch.given.unwrap_or(now)))
    }

    /// How far the batch has come: in this shard, or in an earlier one that was cut.
    fn begun(&self, now: Time, request: &Request, live: Option<Unfinished>) -> Unfinished {
        if let Some(batch) = live {
            return batch;
        }
        let key = request.idempotency.as_ref().map(|key| key.fingerprint);
        let kept = self.kept(now, request).filter(|kept| Some(kept.fingerprint) == key && !kept.is_whole);
        Unfinished {
            request: request.clone(),
            results: kept.map(|kept| kept.outcome.clone()),
            done: Done { is_change: kept.is_some(), is_relaxed: kept.is_none() },
            given: kept.map(|kept| Time(kept.given)),
            restored: kept.map_or(0, |kept| len(&kept.outcome)),
        }
    }
}

/// Whether the request is a batch.
pub fn is_batch(request: &Request) -> bool {
    matches!(
        &request.command,
        Command::Ledger(ledger::Command::Batch(_))
            | Command::Limiter(limiter::Command::CheckBatch(_))
            | Command::Decisions(decisions::Command::Batch(_))
    )
}

fn is_batch_reply(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Ledger(Ok(ledger::Reply::Batch(_)))
            | Outcome::Limiter(Ok(limiter::Reply::Batch(_)))
            | Outcome::Decisions(Ok(decisions::Reply::Batch(_)))
    )
}

/// The number of results.
fn len(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Ledger(Ok(ledger::Reply::Batch(results))) => results.len(),
        Outcome::Limiter(Ok(limiter::Reply::Batch(results))) => results.len(),
        Outcome::Decisions(Ok(decisions::Reply::Batch(results))) => results.len(),
        _ => 0,
    }
}

/// A batch of some of the items.
fn part(request: &Request, range: Range<usize>) -> Request {
    const VALID: &str = "a part of a batch is a batch";
    let command = match &request.command {
        Command::Ledger(ledger::Command::Batch(transfers)) => {
            let part = Batch::new(transfers[range].to_vec());
            Command::Ledger(ledger::Command::Batch(part.expect(VALID)))
        }
        Command::Limiter(limiter::Command::CheckBatch(checks)) => {
            let part = CheckBatch::new(checks[range].to_vec());
            Command::Limiter(limiter::Command::CheckBatch(part.expect(VALID)))
        }
        Command::Decisions(decisions::Command::Batch(items)) => {
            let part = decisions::Batch::new(items[range].to_vec());
            Command::Decisions(decisions::Command::Batch(part.expect(VALID)))
        }
        other => other.clone(),
    };
    Request { command, ..request.clone() }
}

/// Some of the results.
fn results_of(outcome: &Outcome, range: Range<usize>) -> Outcome {
    match outcome {
        Outcome::Ledger(Ok(ledger::Reply::Batch(results))) => {
            Outcome::Ledger(Ok(ledger::Reply::Batch(results[range].to_vec())))
        }
        Outcome::Limiter(Ok(limiter::Reply::Batch(results))) => {
            Outcome::Limiter(Ok(limiter::Reply::Batch(results[range].to_vec())))
        }
        Outcome::Decisions(Ok(decisions::Reply::Batch(results))) => {
            Outcome::Decisions(Ok(decisions::Reply::Batch(results[range].to_vec())))
        }
        other => other.clone(),
    }
}

/// The results of both.
fn join(first: Option<&Outcome>, second: &Outcome) -> Outcome {
    match (first, second) {
        (
            Some(Outcome::Ledger(Ok(ledger::Reply::Batch(a)))),
            Outcome::Ledger(Ok(ledger::Reply::Batch(b))),
        ) => Outcome::Ledger(Ok(ledger::Reply::Batch(a.iter().chain(b).cloned().collect()))),
        (
            Some(Outcome::Limiter(Ok(limiter::Reply::Batch(a)))),
            Outcome::Limiter(Ok(limiter::Reply::Batch(b))),
        ) => Outcome::Limiter(Ok(limiter::Reply::Batch(a.iter().chain(b).cloned().collect()))),
        (
            Some(Outcome::Decisions(Ok(decisions::Reply::Batch(a)))),
            Outcome::Decisions(Ok(decisions::Reply::Batch(b))),
        ) => Outcome::Decisions(Ok(decisions::Reply::Batch(a.iter().chain(b).cloned().collect()))),
        _ => second.clone(),
    }
}
