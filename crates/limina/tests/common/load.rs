//! Many clients that use the ledger concurrently, the answers of each, and a check of all answers against each other.
//!
//! Every change of the limits comes from here, so the answers can be replayed in the order of their positions: each
//! must show exactly the changes up to its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::blocking::RequestBuilder;
use serde_json::{Value, json};

use crate::ledger::{Ledger, hold};
use crate::reply::{Reply, Values, values_of};
use crate::shape;
use crate::shape::State;

pub(crate) const LIMITS: [&str; 5] = ["north", "east", "south", "west", "tight"];

/// A random number generator. The same seed gives the same numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// What a client knows of a request that it sent.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// A reply, so the change is durable.
    Done { position: u64, values: Values, body: Value },
    /// A refusal: nothing was done.
    Not,
    /// No answer: either everything was done, or nothing.
    Unknown,
}

impl Outcome {
    fn of(answer: reqwest::Result<Reply>) -> Outcome {
        match answer {
            Ok(reply) if reply.status == 200 => {
                Outcome::Done { position: reply.position(), values: values_of(&reply.body), body: reply.body }
            }
            Ok(reply) if reply.code() == "OutcomeUnknown" => Outcome::Unknown,
            Ok(reply) => {
                let (status, code) = (reply.status, reply.code().to_owned());
                assert!(
                    matches!((status, code.as_str()), (503, _) | (409, "LimitExceeded")),
                    "the load does nothing that could be refused with {status} {}",
                    reply.text
                );
                reply.refused(status, &code);
                Outcome::Not
            }
            Err(_) => Outcome::Unknown,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Outcome::Done { .. })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Operation {
    id: String,
    changes: Vec<(&'static str, i64)>,
    key: Option<String>,
    hold: Outcome,
    end: Option<(End, Outcome)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Commit,
    /// Commit half of each held value.
    CommitHalf,
    Rollback,
}

impl Operation {
    fn hold_request(&self) -> Value {
        hold(&self.id, &self.changes)
    }

    fn end_request(&self, end: End) -> (&'static str, Value) {
        match end {
            End::Commit => ("/commit", json!({"operation_id": self.id})),
            End::Rollback => ("/rollback", json!({"operation_id": self.id})),
            End::CommitHalf => ("/commit", hold(&self.id, &self.halves())),
        }
    }

    fn halves(&self) -> Vec<(&'static str, i64)> {
        self.changes.iter().map(|&(limit, value)| (limit, value / 2)).collect()
    }

    fn state(&self) -> State {
        match &self.end {
            Some((End::Rollback, Outcome::Done { .. })) => State::RolledBack,
            Some((_, Outcome::Done { .. })) => State::Committed,
            _ => State::Held,
        }
    }

    fn limits(&self) -> Vec<&'static str> {
        self.changes.iter().map(|(limit, _)| *limit).collect()
    }
}

/// Creates the limits.
#[track_caller]
pub(crate) fn make_limits(ledger: &Ledger) {
    for name in LIMITS {
        let limit = match name {
            "tight" => json!({"name": name, "ceiling": 60}),
            _ => json!({"name": name}),
        };
        ledger.patient().post("/limits", limit).created();
    }
}

/// Stops the clients, and counts their requests.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) done: AtomicUsize,
    pub(crate) stop: AtomicBool,
    /// The pause of a client between two requests. Zero by default.
    pub(crate) pace: Duration,
}

/// Runs one client until it is stopped or the server is gone. Its operation ids begin with its name.
pub(crate) fn client(ledger: &Ledger, name: &str, seed: u64, progress: &Progress) -> Vec<Operation> {
    let mut random = Random::new(seed);
    let mut operations: Vec<Operation> = Vec::new();
    while !progress.stop.load(Ordering::Relaxed) {
        let open =
            operations.iter().position(|operation| operation.hold.is_done() && operation.end.is_none());
        let lost = match open {
            Some(n) if random.below(10) < 6 => end_one(ledger, &mut operations[n], &mut random),
            _ => {
                let id = format!("{name}-{}", operations.len());
                operations.push(hold_one(ledger, id, &mut random));
                matches!(operations.last(), Some(Operation { hold: Outcome::Unknown, .. }))
            }
        };
        if lost {
            break;
        }
        progress.done.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(progress.pace);
    }
    operations
}

fn hold_one(ledger: &Ledger, id: String, random: &mut Random) -> Operation {
    let mut limits = BTreeSet::new();
    for _ in 0..=random.below(3) {
        limits.insert(LIMITS[random.below(LIMITS.len() as u64) as usize]);
    }
    let changes = limits.into_iter().map(|limit| (limit, random.below(41) as i64 - 20)).collect();
    let key = (random.below(2) == 0).then(|| format!("key of {id}"));
    let mut operation = Operation { id, changes, key, hold: Outcome::Unknown, end: None };
    operation.hold = Outcome::of(Reply::try_to(hold_of(ledger, &operation)));
    operation
}

fn hold_of(ledger: &Ledger, operation: &Operation) -> RequestBuilder {
    let request = ledger.request("POST", "/hold").json(&operation.hold_request());
    match &operation.key {
        Some(key) => request.header("idempotency-key", key),
        None => request,
    }
}

/// Commits, in full or in half, or rolls back. Returns true if no answer came.
fn end_one(ledger: &Ledger, operation: &mut Operation, random: &mut Random) -> bool {
    let end = match random.below(3) {
        0 => End::Commit,
        1 => End::CommitHalf,
        _ => End::Rollback,
    };
    let (path, request) = operation.end_request(end);
    let outcome = Outcome::of(Reply::try_to(ledger.request("POST", path).json(&request)));
    let lost = matches!(outcome, Outcome::Unknown);
    if !matches!(outcome, Outcome::Not) {
        operation.end = Some((end, outcome));
    }
    lost
}

/// After a restart, checks that everything acknowledged is as it was answered, and that the rest is there completely or
/// not at all. Finds out the unknown outcomes.
#[track_caller]
pub(crate) fn verify(ledger: &Ledger, operations: &mut [Operation]) {
    let ledger = &ledger.patient();
    for operation in operations.iter_mut() {
        resolve_hold(ledger, operation);
        if operation.hold.is_done() {
            resolve_end(ledger, operation);
        }
    }
    for operation in operations.iter() {
        check_hold(ledger, operation);
    }
    replay(operations);
    check_sums(ledger, operations);
}

/// A hold without an answer is there completely, or not at all. If it had a key, it is sent again with that key.
#[track_caller]
fn resolve_hold(ledger: &Ledger, operation: &mut Operation) {
    let states = ledger.states(&operation.id);
    let limits: Vec<&str> = states.iter().map(|(limit, _)| limit.as_str()).collect();
    match operation.hold {
        Outcome::Done { .. } => assert_eq!(limits, operation.limits(), "acknowledged: {operation:?}"),
        Outcome::Not => assert!(limits.is_empty(), "refused, but there: {operation:?} {states:?}"),
        Outcome::Unknown => {
            assert!(
                limits.is_empty() || limits == operation.limits(),
                "half there: {operation:?} {states:?}"
            );
            operation.hold = if operation.key.is_some() {
                let answer = Outcome::of(Ok(ledger.send(hold_of(ledger, operation))));
                assert!(
                    !limits.is_empty() || !matches!(answer, Outcome::Unknown),
                    "no answer again: {operation:?}"
                );
                assert!(
                    limits.is_empty() || answer.is_done(),
                    "there, but refused with its key: {operation:?}"
                );
                answer
            } else if limits.is_empty() {
                Outcome::Not
            } else {
                Outcome::of(Ok(ledger.values_as_of(&operation.id, &operation.limits()).ok()))
            };
        }
    }
}

/// A commit or rollback without an answer was done in every limit, or in none. It is sent again, and is then done.
#[track_caller]
fn resolve_end(ledger: &Ledger, operation: &mut Operation) {
    let states: BTreeSet<State> = ledger.states(&operation.id).into_iter().map(|(_, state)| state).collect();
    let state = *states.first().expect("a held operation has states");
    assert_eq!(states.len(), 1, "half finished: {operation:?} {states:?}");
    let Some((end, outcome)) = operation.end.clone() else {
        assert_eq!(state, State::Held, "nobody finished {operation:?}");
        return;
    };
    let (path, request) = operation.end_request(end);
    let repeated = ledger.post(path, request).ok();
    match outcome {
        // A repeated commit or rollback returns its first position and values.
        Outcome::Done { position, values, .. } => {
            assert_eq!((repeated.position(), values_of(&repeated.body)), (position, values), "{operation:?}");
            assert_eq!(state, operation.state(), "{operation:?}");
        }
        Outcome::Unknown | Outcome::Not => {
            operation.end = Some((end, Outcome::of(Ok(repeated))));
            assert!(state == State::Held || state == operation.state(), "{state:?}: {operation:?}");
        }
    }
}

#[track_caller]
fn check_hold(ledger: &Ledger, operation: &Operation) {
    let Outcome::Done { position, values, body } = &operation.hold else { return };
    let view = ledger.values_as_of(&operation.id, &operation.limits()).ok();
    assert_eq!((view.position(), &values_of(&view.body)), (*position, values), "{operation:?}");
    if operation.key.is_some() {
        let again = ledger.send(hold_of(ledger, operation)).ok();
        assert_eq!(&again.body, body, "the first reply again: {operation:?}");
    }
}

/// Replays all changes in the order of their positions. Every reply must show the values at its position.
#[track_caller]
fn replay(operations: &[Operation]) {
    let mut steps: BTreeMap<u64, (&Operation, Option<End>, &Values)> = BTreeMap::new();
    for operation in operations {
        if let Outcome::Done { position, values, .. } = &operation.hold {
            let before = steps.insert(*position, (operation, None, values));
            assert!(before.is_none(), "position {position} twice: {operation:?} and {before:?}");
        }
        if let Some((end, Outcome::Done { position, values, .. })) = &operation.end {
            let before = steps.insert(*position, (operation, Some(*end), values));
            assert!(before.is_none(), "position {position} twice: {operation:?} and {before:?}");
        }
    }
    let mut now: BTreeMap<&str, (i64, i64)> = LIMITS.iter().map(|limit| (*limit, (0, 0))).collect();
    for (position, (operation, end, told)) in steps {
        for &(limit, value) in &operation.changes {
            let (commit, hold) = now.get_mut(limit).expect("one of the limits");
            match end {
                None => *hold += value,
                Some(end) => {
                    *hold -= value;
                    *commit += committed(end, value);
                }
            }
        }
        let expected: Vec<_> = operation
            .limits()
            .iter()
            .map(|limit| ((*limit).to_owned(), now[limit].0, now[limit].1))
            .collect();
        assert_eq!(told, &expected, "at position {position}, {end:?} of {operation:?}");
    }
}

fn committed(end: End, value: i64) -> i64 {
    match end {
        End::Commit => value,
        End::CommitHalf => value / 2,
        End::Rollback => 0,
    }
}

#[track_caller]
fn check_sums(ledger: &Ledger, operations: &[Operation]) {
    let now = ledger.values(&LIMITS).ok();
    for (limit, commit, hold) in values_of(&now.body) {
        let mut sum = (0, 0);
        for operation in operations.iter().filter(|operation| operation.hold.is_done()) {
            for (_, value) in operation.changes.iter().filter(|(name, _)| *name == limit) {
                match &operation.end {
                    Some((end, Outcome::Done { .. })) => sum.0 += committed(*end, *value),
                    _ => sum.1 += value,
                }
            }
        }
        assert_eq!((commit, hold), sum, "{limit} now, against the operations");
        assert_eq!(shape::sum(&ledger.entries(&limit)), sum, "{limit}'s entries");
    }
}
