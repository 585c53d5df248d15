//! Batches. A batch is its items one after another, each executed like a request of its own.
//!
//! The shard does a long batch in slices. With an idempotency key, the results so far are kept under it, so that a batch which was
//! cut continues behind them.

use super::{Done, Model, expect, namespace::Namespace};
use limina_engine::{
    Command, Outcome, Request, Time, decisions, ledger,
    limiter::{self, Refusal, Reply},
};

/// A batch of which some items are done.
#[derive(Debug, Clone)]
pub(super) struct Unfinished {
    request: Request,
    results: Vec<Outcome>,
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
        expect(batch.results.len() == from, || format!("it continues behind {:?}", batch.results))?;
        let mut answered = Vec::new();
        namespace.run_items(now, &mut batch, results(outcome)?, &mut answered)?;
        if let Some(given) = batch.given {
            namespace.keep_parts(given, request, batch.results.clone());
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
        let told = results(answer)?;
        expect(told.len() == items(request).len(), || "one result for each item".into())?;
        let mut batch = self.begun(now, request, live);
        let rest = told[batch.results.len()..].to_vec();
        self.run_items(now, &mut batch, rest, answered)?;
        let restored = batch.restored;
        for outcome in batch.results.iter_mut().take(restored) {
            if let Outcome::Decisions(result) = outcome {
                *result = self.repeated(now, result.clone());
            }
        }
        expect(told == batch.results, || format!("{:?}", batch.results))?;
        Ok((batch.done, batch.given.unwrap_or(now)))
    }

    /// Runs the next items of a batch, which have these results.
    fn run_items(
        &mut self,
        now: Time,
        batch: &mut Unfinished,
        results: Vec<Outcome>,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<(), String> {
        let items = items(&batch.request);
        for result in results {
            let place = batch.results.len();
            let command = items.get(place).cloned().ok_or("no more results than items")?;
            // If a record could not be read, the item was not done.
            if !is_unreadable(&result) {
                let item = Request { command, ..batch.request.clone() };
                let done = self.run(now, &item, &result, answered);
                let done = done.map_err(|text| format!("of item {place}: {text}"))?;
                batch.done.is_change |= done.is_change;
                batch.done.is_relaxed &= done.is_relaxed;
            }
            batch.results.push(result);
        }
        batch.given = batch.given.or(batch.done.is_change.then_some(now));
        Ok(())
    }

    /// How far the batch has come: in this shard, or in an earlier one that was cut.
    fn begun(&self, now: Time, request: &Request, live: Option<Unfinished>) -> Unfinished {
        if let Some(batch) = live {
            return batch;
        }
        let key = request.idempotency.as_ref().map(|key| key.fingerprint);
        let kept = self.kept(now, request).filter(|kept| Some(kept.fingerprint) == key);
        let kept = kept.filter(|kept| kept.outcome.is_none());
        let results = kept.map(|kept| kept.parts.clone()).unwrap_or_default();
        Unfinished {
            request: request.clone(),
            restored: results.len(),
            results,
            done: Done { is_change: kept.is_some(), is_relaxed: kept.is_none() },
            given: kept.map(|kept| Time(kept.given)),
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

/// The items of a batch as commands of their own.
fn items(request: &Request) -> Vec<Command> {
    match &request.command {
        Command::Ledger(ledger::Command::Batch(transfers)) => {
            transfers.iter().cloned().map(ledger::Command::Transfer).map(Command::Ledger).collect()
        }
        Command::Limiter(limiter::Command::CheckBatch(checks)) => {
            checks.iter().cloned().map(limiter::Command::Check).map(Command::Limiter).collect()
        }
        Command::Decisions(decisions::Command::Batch(items)) => {
            let command = |item: &decisions::BatchItem| match item.clone() {
                decisions::BatchItem::Decide(decide) => decisions::Command::Decide(decide),
                decisions::BatchItem::Settle(settle) => decisions::Command::Settle(settle),
                decisions::BatchItem::Rollback(id) => decisions::Command::Rollback(id),
            };
            items.iter().map(command).map(Command::Decisions).collect()
        }
        _ => Vec::new(),
    }
}

/// The results of a batch as outcomes of their own.
fn results(outcome: &Outcome) -> Result<Vec<Outcome>, String> {
    Ok(match outcome.clone() {
        Outcome::Ledger(Ok(ledger::Reply::Batch(results))) => {
            results.into_iter().map(Outcome::Ledger).collect()
        }
        Outcome::Decisions(Ok(decisions::Reply::Batch(results))) => {
            results.into_iter().map(Outcome::Decisions).collect()
        }
        Outcome::Limiter(Ok(Reply::Batch(results))) => {
            let answer = |result: Result<limiter::Checked, Refusal>| match result? {
                decision if decision.is_refused() => Err(Refusal::LimitReached(decision)),
                decision => Ok(Reply::Allowed(decision)),
            };
            results.into_iter().map(answer).map(Outcome::Limiter).collect()
        }
        _ => return Err("the results of a batch".into()),
    })
}

fn is_unreadable(result: &Outcome) -> bool {
    matches!(
        result,
        Outcome::Ledger(Err(ledger::Refusal::Unreadable))
            | Outcome::Decisions(Err(decisions::Refusal::Unreadable))
    )
}
