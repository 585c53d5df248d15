//! The naive model: computes the expected answers by summing up the whole history every time.
//!
//! It follows one state, because it is told every decision of the shard in order. Two things it cannot know, and asks the opened
//! shard (`stored.rs`): which of the timers that were due at the end are stored, and how many of the last relaxed answers.
//!
//! Read in this order: `judge.rs` (decisions and losses, in order), this file (namespaces and waiting requests), `namespace.rs`
//! (repeats), then a family.

mod batches;
mod decisions;
mod events;
mod judge;
mod ledger;
mod limiter;
mod locks;
mod namespace;
mod order;
mod pages;
mod quotas;
mod retention;
mod select;
mod stored;

pub use batches::is_batch;
pub use judge::{Fate, Judge};
pub use quotas::Bounds;
pub use stored::Ask;

use batches::Unfinished;
use events::Events;
use ledger::Ledger;
use limina_engine::{
    Command, Name, Outcome, Page, Position, Request, Time, ledger as engine_ledger, outcome::NamespaceInfo,
};
use namespace::Namespace;
use order::{CreationPosition, Done, Order, expect};
use std::collections::{BTreeMap, VecDeque};

/// The state of a shard.
#[derive(Debug, Clone)]
struct Model {
    namespaces: BTreeMap<Name, Namespace>,
    /// The batch that is under way in a namespace.
    batches: BTreeMap<Name, Unfinished>,
    floor: Order,
    /// Requests that wait for an answer, in the order in which they began to wait.
    waiting: Vec<Request>,
    /// Waiting requests that must be answered before anything else is decided, in this order. `None` means that they
    /// fail.
    owed: VecDeque<(Request, Option<Outcome>)>,
    bounds: Bounds,
    /// The namespace of decisions.
    decided: Option<Name>,
}

impl Model {
    fn new(bounds: Bounds, decided: Option<Name>) -> Model {
        Model {
            namespaces: BTreeMap::new(),
            batches: BTreeMap::new(),
            floor: Order { position: 0, is_exact: true },
            waiting: Vec::new(),
            owed: VecDeque::new(),
            bounds,
            decided,
        }
    }

    /// A request is answered. Returns whether the answer need not wait for the disk. The error is the expected answer.
    fn answer(&mut self, now: Time, request: &Request, answer: &Outcome) -> Result<bool, String> {
        let is_in_use = *answer == Outcome::IdempotencyKeyInUse;
        let place = self.waiting.iter().position(|waiting| waiting == request && !is_in_use);
        let has_waited = place.map(|place| self.waiting.remove(place)).is_some();
        if has_waited && (waits_in_a_queue(request) || !self.owed.is_empty()) {
            self.complete(now, request, answer)?;
            return Ok(false);
        }
        self.expire(now)?;
        // Then nothing was done.
        if is_unreadable(answer) {
            return Ok(false);
        }
        match &request.command {
            Command::ListNamespaces(page) => self.list(page, answer)?,
            // No workload asks for the audit.
            Command::ListAudit(_) | Command::ListShardAudit(_) => {}
            Command::DeleteNamespace => self.delete(&request.namespace, answer)?,
            _ if is_in_use || self.is_key_waiting(request) => {
                let is_right = is_in_use && self.is_key_waiting(request);
                expect(is_right, || {
                    format!("a key is in use only while one of these waits: {:?}", self.waiting)
                })?;
            }
            Command::Ledger(_)
            | Command::Limiter(_)
            | Command::Locks(_)
            | Command::Events(_)
            | Command::Decisions(_) => {
                let name = &request.namespace;
                let mut namespace = self.take_namespace(name);
                // A change of rules may be answered between two slices of a batch.
                let live = if is_batch(request) { self.batches.remove(name) } else { None };
                let live = live.filter(|batch| batch.is_of(request));
                let mut answered = Vec::new();
                let is_relaxed = namespace.answer(now, request, live, has_waited, answer, &mut answered)?;
                self.put_namespace(name, namespace);
                self.owe(answered);
                return Ok(is_relaxed);
            }
        }
        Ok(false)
    }

    /// Removes the namespace, which is empty if it does not exist.
    fn take_namespace(&mut self, name: &Name) -> Namespace {
        let is_decided = self.decided.as_ref() == Some(name);
        let empty = || Namespace::new(self.floor, &self.bounds, is_decided);
        self.namespaces.remove(name).unwrap_or_else(empty)
    }

    fn put_namespace(&mut self, name: &Name, namespace: Namespace) {
        if namespace.exists {
            self.namespaces.insert(name.clone(), namespace);
        }
    }

    fn list(&mut self, page: &Page<Name>, answer: &Outcome) -> Result<(), String> {
        let Outcome::Namespaces(items) = answer else { return Err("a list of namespaces".into()) };
        let there = self.namespaces.iter_mut();
        let there = there.filter(|(name, _)| page.after.as_ref().is_none_or(|after| *name > after));
        let expected: Vec<NamespaceInfo> = there
            .take(page.limit())
            .map(|(name, namespace)| {
                if let Some(item) = items.iter().find(|item| item.name == *name)
                    && !namespace.order.is_exact
                {
                    namespace.order.learn(item.position);
                }
                NamespaceInfo { name: name.clone(), position: Position(namespace.order.position) }
            })
            .collect();
        expect(*items == expected, || format!("{:?}", Outcome::Namespaces(expected)))
    }

    fn delete(&mut self, name: &Name, answer: &Outcome) -> Result<(), String> {
        let Some(mut namespace) = self.namespaces.remove(name) else {
            let expected = Outcome::NamespaceNotFound;
            return expect(*answer == expected, || format!("{expected:?}"));
        };
        let of_rules =
            self.waiting.iter().filter(|request| request.namespace == *name && !waits_in_a_queue(request));
        let waiting: Vec<Request> = of_rules.cloned().chain(namespace.give_up()).collect();
        self.owe(waiting.into_iter().map(|request| (request, Outcome::NamespaceNotFound)).collect());
        self.floor = Order {
            position: self.floor.position.max(namespace.order.position),
            is_exact: self.floor.is_exact && namespace.order.is_exact,
        };
        expect(*answer == Outcome::NamespaceDeleted, || format!("{:?}", Outcome::NamespaceDeleted))
    }

    /// A request begins to wait.
    fn wait(&mut self, now: Time, request: &Request) -> Result<(), String> {
        self.expire(now)?;
        expect(!self.is_key_waiting(request), || format!("{:?}", Outcome::IdempotencyKeyInUse))?;
        self.waiting.push(request.clone());
        // A change of rules takes effect when it is answered.
        if !waits_in_a_queue(request) {
            return Ok(());
        }
        let namespace = self.namespaces.get_mut(&request.namespace).ok_or("nobody is there to wait for")?;
        expect(namespace.repeat(now, request).is_none(), || "a kept reply".into())?;
        let (answer, answered) = match &request.command {
            Command::Locks(command) if !namespace.is_decided => {
                let ran = namespace.at_locks(now, |locks, turn| {
                    let expected = locks.run(turn, request, command, None);
                    locks.grant_what_is_free(turn);
                    expected
                });
                (ran.0.map(Outcome::Locks), ran.1)
            }
            _ => {
                let ran = namespace.at_decisions(now, |decisions, turn| decisions.run(turn, request, None));
                (ran.0.0, ran.1)
            }
        };
        self.owe(answered);
        expect(answer.is_none(), || format!("{answer:?}"))
    }

    /// A waiting request is answered: because of the previous step, or because a holder or waiter has expired.
    fn complete(&mut self, now: Time, request: &Request, answer: &Outcome) -> Result<(), String> {
        if self.owed.is_empty()
            && let Some(namespace) = self.namespaces.get_mut(&request.namespace)
        {
            let answered = namespace.expire(now);
            self.owe(answered);
        }
        match self.owed.pop_front() {
            Some((to, Some(expected))) if to == *request && *answer == expected => Ok(()),
            Some((to, expected)) => Err(format!("{to:?} -> {expected:?}")),
            None => Err("it still has to wait".into()),
        }
    }

    /// A waiting request fails, like all that wait, because of a planned stop.
    fn give_up(&mut self, request: &Request) -> Result<(), String> {
        if self.owed.is_empty() {
            let all = self.namespaces.values_mut().flat_map(Namespace::give_up);
            self.owed = all.map(|request| (request, None)).collect();
        }
        if let Some(place) = self.waiting.iter().position(|waiting| waiting == request) {
            self.waiting.remove(place);
        }
        match self.owed.pop_front() {
            Some((to, None)) if to == *request => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    fn owe(&mut self, answered: Vec<(Request, Outcome)>) {
        self.owed.extend(answered.into_iter().map(|(request, outcome)| (request, Some(outcome))));
    }

    /// Whether a request waits under the same idempotency key.
    fn is_key_waiting(&self, request: &Request) -> bool {
        let Some(key) = &request.idempotency else { return false };
        self.waiting.iter().any(|waiting| {
            let used = waiting.idempotency.as_ref();
            waiting.namespace == request.namespace
                && used.is_some_and(|used| used.owned_key() == key.owned_key())
        })
    }

    /// Executes everything that is due by `now`, in due order. Waiting requests that this answers must have been
    /// answered before.
    fn expire(&mut self, now: Time) -> Result<(), String> {
        if let Some(owed) = self.owed.front() {
            return Err(format!("first {owed:?}"));
        }
        for namespace in self.namespaces.values_mut() {
            let answered = namespace.expire(now);
            expect(answered.is_empty(), || format!("first {answered:?}"))?;
        }
        Ok(())
    }

    /// Extends every lease, lock and decision to its full ttl from now on.
    fn extend_holders(&mut self, ready: Time) {
        for namespace in self.namespaces.values_mut() {
            namespace.limiter.reopen(ready.0);
            namespace.locks.reopen(ready.0);
            namespace.decisions.reopen(&mut namespace.ledger, ready.0);
        }
    }
}

/// Whether the request waits for locks or slots, if it waits.
pub fn waits_in_a_queue(request: &Request) -> bool {
    matches!(request.command, Command::Locks(_) | Command::Decisions(_))
}

/// Whether the answer says that a stored record could not be read. Then nothing was done.
pub fn is_unreadable(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Unreadable | Outcome::Ledger(Err(engine_ledger::Refusal::LimitsValuesReadingException))
    )
}
