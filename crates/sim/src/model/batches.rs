//! Batches that the shard does in slices.
//!
//! The model runs each slice as a batch of its own. It remembers the results so far: of the batch that is under way in a
//! namespace, and of a batch that was cut and whose results are kept under its idempotency key.

use super::{
    Changed, Model,
    namespace::{Ended, Namespace},
    order::Branch,
    retention::DAY,
};
use limina_engine::{
    Command, Outcome, Request, Time, decisions,
    ledger::{self, Batch},
    limiter::{self, CheckBatch},
};
use std::ops::Range;

/// A batch of which some items are done.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unfinished {
    request: Request,
    begun: Begun,
}

/// What is known of the items that are done.
#[derive(Debug, Clone, PartialEq)]
struct Begun {
    /// `None` before the first item.
    results: Option<Outcome>,
    changed: Changed,
    /// When the first results were kept under the idempotency key.
    given: Option<u64>,
    /// How many of the results an earlier request had.
    restored: usize,
}

impl Begun {
    const NOTHING: Begun = Begun { results: None, changed: Changed::No, given: None, restored: 0 };

    fn len(&self) -> usize {
        self.results.as_ref().map_or(0, len)
    }
}

impl Model {
    /// Some items of a batch were decided, from the item `from` on, and the batch continues later.
    pub(super) fn slice(
        mut self,
        now: Time,
        request: &Request,
        from: usize,
        outcome: &Outcome,
    ) -> Result<Vec<(Model, bool)>, String> {
        self.expire(now)?;
        let name = &request.namespace;
        let was_there = self.namespaces.contains_key(name);
        let live = self.batches.remove(name);
        let namespace = self.take_namespace(name);
        let mut ways = Vec::new();
        let mut expected = String::new();
        for (begun, namespace) in begun(now, request, live, &namespace) {
            if begun.len() != from {
                expected.push_str(&format!("it continues at item {}", begun.len()));
                continue;
            }
            let part = part(request, from..from + len(outcome));
            let mut answered = Vec::new();
            match namespace.run_part(now, &part, Some(outcome), &mut answered) {
                Err(text) => expected.push_str(&text),
                Ok(ran) => ways.extend(ran.into_iter().map(|(way, _)| {
                    let mut model = self.clone();
                    model.owe(answered.clone());
                    let (is_relaxed, begun) = (way.is_relaxed, begun.clone().and(now, outcome, way.changed));
                    if was_there || way.changed != Changed::No {
                        let mut namespace = way.settle();
                        namespace.keep_progress(request, &begun);
                        model.namespaces.insert(name.clone(), namespace);
                    }
                    model.batches.insert(name.clone(), Unfinished { request: request.clone(), begun });
                    (model, is_relaxed)
                })),
            }
        }
        if ways.is_empty() { Err(expected) } else { Ok(ways) }
    }
}

impl Namespace {
    /// Runs the rest of a batch. `live` is the batch that is under way in the namespace.
    pub(super) fn run_batch(
        &self,
        now: Time,
        request: &Request,
        live: Option<Unfinished>,
        answer: Option<&Outcome>,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<Vec<Branch<Namespace>>, String> {
        let items = match &request.command {
            Command::Ledger(ledger::Command::Batch(transfers)) => transfers.len(),
            Command::Limiter(limiter::Command::CheckBatch(checks)) => checks.len(),
            Command::Decisions(decisions::Command::Batch(items)) => items.len(),
            _ => return Err("a batch".into()),
        };
        if answer.is_some_and(|answer| !is_batch_reply(answer) || len(answer) != items) {
            return Err("a batch with one result for each item".into());
        }
        let mut ways = Vec::new();
        let mut expected = String::new();
        for (begun, namespace) in begun(now, request, live, self) {
            let done = begun.len();
            let told = answer.map(|answer| (results(answer, 0..done), results(answer, done..items)));
            let shown = begun.results.clone().map(|results| namespace.repeated(now, results, begun.restored));
            if let (Some((first, _)), Some(shown)) = (&told, &shown)
                && first != shown
            {
                expected.push_str(&format!("it begins with {shown:?}"));
                continue;
            }
            let rest = told.as_ref().map(|(_, rest)| rest);
            match namespace.run_part(now, &part(request, done..items), rest, answered) {
                Err(text) => expected.push_str(&text),
                Ok(ran) => ways.extend(ran.into_iter().map(|(way, rest)| {
                    let whole = answer.cloned().or_else(|| join(begun.results.as_ref(), rest.as_ref()));
                    let changed = way.changed.max(begun.changed);
                    let mut way = Branch { changed, ..way }.keep(now, request, whole);
                    way.state.keep_since(request, begun.given);
                    way
                })),
            }
        }
        if ways.is_empty() { Err(expected) } else { Ok(ways) }
    }

    fn run_part(
        &self,
        now: Time,
        part: &Request,
        answer: Option<&Outcome>,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<Vec<Ended>, String> {
        match (&part.command, answer) {
            (Command::Ledger(command), None) => Ok(vec![self.run_ledger(now, command, None)?]),
            (Command::Ledger(command), Some(Outcome::Ledger(answer))) => {
                Ok(vec![self.run_ledger(now, command, Some(answer))?])
            }
            (Command::Limiter(command), None) => self.run_limiter(now, part, command, None),
            (Command::Limiter(command), Some(Outcome::Limiter(answer))) => {
                self.run_limiter(now, part, command, Some(answer))
            }
            (Command::Decisions(_), answer) => Ok(vec![self.run_decided(now, part, answer, answered)?]),
            _ => Err("an answer of the family that was asked".into()),
        }
    }

    /// Keeps the results so far under the request's key, if anything may have changed.
    fn keep_progress(&mut self, request: &Request, begun: &Begun) {
        if let (Some(key), Some(given)) = (&request.idempotency, begun.given) {
            self.keep_reply(Time(given), request, None, begun.changed == Changed::Yes);
            if let Some(kept) = self.replies.get_mut(&key.owned_key()) {
                kept.progress = begun.results.clone();
            }
        }
    }

    /// The reply of a batch counts as given when its first results were kept.
    fn keep_since(&mut self, request: &Request, given: Option<u64>) {
        if let (Some(key), Some(given)) = (&request.idempotency, given)
            && let Some(kept) = self.replies.get_mut(&key.owned_key())
        {
            kept.given = given;
        }
    }
}

impl Begun {
    fn and(self, now: Time, outcome: &Outcome, changed: Changed) -> Begun {
        let changed = self.changed.max(changed);
        let given = self.given.or_else(|| (changed != Changed::No).then_some(now.0));
        Begun { results: join(self.results.as_ref(), Some(outcome)), changed, given, ..self }
    }
}

/// Where the batch may have come to, each with the namespace in that case.
fn begun(
    now: Time,
    request: &Request,
    live: Option<Unfinished>,
    namespace: &Namespace,
) -> Vec<(Begun, Namespace)> {
    if let Some(Unfinished { request: other, begun }) = live
        && other == *request
    {
        return vec![(begun, namespace.clone())];
    }
    let key = request.idempotency.as_ref();
    let kept = key.and_then(|key| {
        let kept = namespace.replies.get(&key.owned_key())?;
        (kept.fingerprint == key.fingerprint && now.0 < kept.given + DAY && kept.progress.is_some())
            .then_some(kept)
    });
    let (Some(kept), Some(key)) = (kept, key) else {
        return vec![(Begun::NOTHING, namespace.clone())];
    };
    let begun = Begun {
        results: kept.progress.clone(),
        changed: if kept.is_certain { Changed::Yes } else { Changed::Unclear },
        given: Some(kept.given),
        restored: kept.progress.as_ref().map_or(0, len),
    };
    let mut ways = vec![(begun, namespace.clone())];
    if !kept.is_certain {
        let mut without = namespace.clone();
        without.replies.remove(&key.owned_key());
        ways.push((Begun::NOTHING, without));
    }
    ways
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
fn results(outcome: &Outcome, range: Range<usize>) -> Outcome {
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

/// The results of both. `None` if those of the second one are not known.
fn join(first: Option<&Outcome>, second: Option<&Outcome>) -> Option<Outcome> {
    let second = second?;
    Some(match (first, second) {
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
    })
}
