//! The naive model: computes the expected answers by summing up the whole history every time.
//!
//! Some things the model cannot know: how an unknown outcome ended, how much of the relaxed answers a crash has taken,
//! by how much a position grew, and which of the due timers fired before a crash. So it keeps every possible state, and
//! each answer removes those that do not fit. An answer that fits no state is wrong.
//!
//! Read in this order: `judge.rs` (answers and losses, in order), this file (namespaces and repeats), then a family.

mod batches;
mod decisions;
mod events;
mod judge;
mod ledger;
mod limiter;
mod locks;
mod namespace;
mod order;
mod quotas;
mod retention;
mod select;

pub use batches::is_batch;
pub use judge::{Fate, Judge, LostAnswer, TooManyStates, waits_in_a_queue};
pub use quotas::Bounds;

use batches::Unfinished;
use events::Events;
use ledger::Ledger;
use limina_engine::{
    Command, Name, Outcome, Page, Position, Request, Time, ledger as engine_ledger,
    limiter as engine_limiter, outcome::NamespaceInfo,
};
use locks::Locks;
use namespace::{Existence, Namespace};
use order::{Branch, Changed, Mark, Order};
use std::collections::{BTreeMap, VecDeque};

/// With more possible states than this, the model stops following the run.
const MOST_STATES: usize = 256;

/// One possible state of a shard.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    namespaces: BTreeMap<Name, Namespace>,
    /// The batch that is under way in a namespace.
    batches: BTreeMap<Name, Unfinished>,
    floor: Order,
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
            owed: VecDeque::new(),
            bounds,
            decided,
        }
    }

    /// Removes the namespace, which is empty if it does not exist.
    fn take_namespace(&mut self, name: &Name) -> Namespace {
        let is_decided = self.decided.as_ref() == Some(name);
        let empty = || Namespace::new(self.floor, &self.bounds, is_decided);
        self.namespaces.remove(name).unwrap_or_else(empty)
    }

    /// All possible states after the request that agree with the answer; all of them if the answer is not known. The
    /// error is the expected answer.
    fn step(
        mut self,
        now: Time,
        request: &Request,
        answer: Option<&Outcome>,
    ) -> Result<Vec<(Model, bool)>, String> {
        self.expire(now)?;
        let is_change = matches!(request.command, Command::Limiter(engine_limiter::Command::Change(_)));
        let is_exact = matches!(request.command, Command::Locks(_))
            || self.decided.as_ref() == Some(&request.namespace) && !is_change;
        match answer {
            Some(answer) if is_unreadable(answer) => return Ok(vec![(self, true)]),
            // The sender of requests knows whether a rule change is in progress.
            Some(Outcome::IdempotencyKeyInUse) if request.idempotency.is_some() && !is_exact => {
                return Ok(vec![(self, false)]);
            }
            // The namespace was deleted while a rule change waited.
            Some(Outcome::NamespaceNotFound) if is_change && self.may_lack(&request.namespace) => {
                return Ok(vec![(self, false)]);
            }
            _ => {}
        }
        match &request.command {
            Command::ListNamespaces(page) => self.list(page, answer).map(|model| vec![(model, false)]),
            // No workload asks for the audit.
            Command::ListAudit(_) | Command::ListShardAudit(_) => Ok(vec![(self, false)]),
            Command::DeleteNamespace => {
                self.delete(&request.namespace, answer).map(|model| vec![(model, false)])
            }
            _ if is_exact && self.is_key_waiting(request) => match answer {
                Some(answer) if *answer != Outcome::IdempotencyKeyInUse => {
                    Err(format!("{:?}", Outcome::IdempotencyKeyInUse))
                }
                _ => Ok(vec![(self, false)]),
            },
            Command::Ledger(_)
            | Command::Limiter(_)
            | Command::Locks(_)
            | Command::Events(_)
            | Command::Decisions(_) => {
                let undone = (answer.is_none() && is_change && self.may_lack(&request.namespace))
                    .then(|| self.clone());
                let mut ways = self.in_namespace(now, request, answer)?;
                ways.extend(undone.map(|model| (model, false)));
                Ok(ways)
            }
        }
    }

    fn in_namespace(
        mut self,
        now: Time,
        request: &Request,
        answer: Option<&Outcome>,
    ) -> Result<Vec<(Model, bool)>, String> {
        let name = &request.namespace;
        let was_there = self.namespaces.contains_key(name);
        let live = if is_batch(request) { self.batches.remove(name) } else { None };
        let namespace = self.take_namespace(name);
        let mut ways = Vec::new();
        let mut expected = String::new();
        let repeat = namespace.repeat(now, request, answer);
        if let Some(repeat) = &repeat {
            match &repeat.result {
                Ok(namespace) => {
                    let mut model = self.clone();
                    model.namespaces.insert(name.clone(), namespace.clone());
                    ways.push((model, false));
                }
                Err(text) => expected.push_str(text),
            }
        }
        if repeat.is_none_or(|repeat| !repeat.is_certain) {
            let mut answered = Vec::new();
            let ran = match is_batch(request) {
                true => namespace.run_batch(now, request, live, answer, &mut answered),
                false => namespace.run(now, request, answer, &mut answered),
            };
            match ran {
                Ok(ran) => {
                    for way in ran {
                        let mut model = self.clone();
                        model.owe(answered.clone());
                        if was_there || way.changed != Changed::No {
                            model.namespaces.insert(name.clone(), way.state);
                        }
                        ways.push((model, way.is_relaxed));
                    }
                }
                Err(text) => expected.push_str(&text),
            }
        }
        if ways.is_empty() { Err(expected) } else { Ok(ways) }
    }

    fn list(mut self, page: &Page<Name>, answer: Option<&Outcome>) -> Result<Model, String> {
        let Some(answer) = answer else { return Ok(self) };
        let Outcome::Namespaces(items) = answer else { return Err("a list of namespaces".into()) };
        let is_cut = items.len() >= page.limit();
        let is_covered = |name: &Name| {
            page.after.as_ref().is_none_or(|after| name > after)
                && (!is_cut || items.last().is_some_and(|last| *name <= last.name))
        };
        self.namespaces.retain(|name, namespace| {
            let is_gone = namespace.existence == Existence::Maybe
                && is_covered(name)
                && !items.iter().any(|item| item.name == *name);
            !is_gone
        });
        let there = self.namespaces.iter_mut().filter(|(name, _)| is_covered(name));
        let expected: Vec<NamespaceInfo> = there
            .map(|(name, namespace)| {
                namespace.existence = Existence::Durable;
                let shown = items.iter().find(|item| item.name == *name).map(|item| item.position.0);
                if !namespace.order.is_exact
                    && let Some(shown) = shown.filter(|shown| *shown >= namespace.order.position)
                {
                    namespace.order.position = shown;
                }
                NamespaceInfo { name: name.clone(), position: Position(namespace.order.position) }
            })
            .collect();
        if *items == expected && items.len() <= page.limit() {
            Ok(self)
        } else {
            Err(format!("{:?}", Outcome::Namespaces(expected)))
        }
    }

    fn delete(mut self, name: &Name, answer: Option<&Outcome>) -> Result<Model, String> {
        let may_be_gone = self.may_lack(name);
        let there = self.namespaces.remove(name);
        match answer {
            Some(Outcome::NamespaceDeleted) if there.is_some() => {}
            Some(Outcome::NamespaceNotFound) if may_be_gone => return Ok(self),
            None => {}
            _ if may_be_gone => return Err(format!("{:?}", Outcome::NamespaceNotFound)),
            _ => return Err(format!("{:?}", Outcome::NamespaceDeleted)),
        }
        if let Some(mut namespace) = there {
            let waiting = namespace.give_up();
            self.owe(waiting.into_iter().map(|request| (request, Outcome::NamespaceNotFound)).collect());
            self.floor = Order {
                position: self.floor.position.max(namespace.order.position),
                is_exact: self.floor.is_exact && namespace.order.is_exact,
            };
        }
        Ok(self)
    }

    /// Whether the namespace may be missing.
    fn may_lack(&self, name: &Name) -> bool {
        self.namespaces.get(name).is_none_or(|there| there.existence == Existence::Maybe)
    }

    /// A request for locks or slots begins to wait.
    fn wait(mut self, now: Time, request: &Request) -> Result<Model, String> {
        self.expire(now)?;
        if self.is_key_waiting(request) {
            return Err(format!("{:?}", Outcome::IdempotencyKeyInUse));
        }
        let namespace = self.namespaces.get_mut(&request.namespace).ok_or("nobody is there to wait for")?;
        if namespace.repeat(now, request, None).is_some() {
            return Err("a kept reply".into());
        }
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
        match answer {
            Some(answer) => Err(format!("{answer:?}")),
            None => {
                self.owe(answered);
                Ok(self)
            }
        }
    }

    /// A waiting request is answered: because of the previous step, or because a holder or waiter has expired.
    fn complete(mut self, now: Time, request: &Request, answer: Option<&Outcome>) -> Result<Model, String> {
        if self.owed.is_empty()
            && let Some(namespace) = self.namespaces.get_mut(&request.namespace)
        {
            let mut answered = Vec::new();
            while answered.is_empty() && namespace.locks.next_due().is_some_and(|due| due <= now.0) {
                ((), answered) = namespace.at_locks(now, Locks::expire_next);
            }
            while answered.is_empty() && namespace.next_decided_due().is_some_and(|due| due <= now.0) {
                answered = namespace.expire_decided(now);
            }
            self.owe(answered);
        }
        match self.owed.pop_front() {
            Some((to, Some(expected)))
                if to == *request && answer.is_none_or(|answer| *answer == expected) =>
            {
                Ok(self)
            }
            Some((to, expected)) => Err(format!("{to:?} -> {expected:?}")),
            None => Err("it still has to wait".into()),
        }
    }

    /// A waiting request fails, like all that wait, because of a planned stop.
    fn give_up(mut self, request: &Request) -> Result<Model, String> {
        if self.owed.is_empty() {
            let all = self.namespaces.values_mut().flat_map(Namespace::give_up);
            self.owed = all.map(|request| (request, None)).collect();
        }
        match self.owed.pop_front() {
            Some((to, None)) if to == *request => Ok(self),
            other => Err(format!("{other:?}")),
        }
    }

    fn owe(&mut self, answered: Vec<(Request, Outcome)>) {
        self.owed.extend(answered.into_iter().map(|(request, outcome)| (request, Some(outcome))));
    }

    /// Whether a request waits under the same idempotency key.
    fn is_key_waiting(&self, request: &Request) -> bool {
        let namespace = self.namespaces.get(&request.namespace);
        let key = request.idempotency.as_ref();
        namespace.zip(key).is_some_and(|(namespace, key)| {
            let key = key.owned_key();
            namespace.locks.uses_key(&key) || namespace.decisions.uses_key(&key)
        })
    }

    /// Executes everything that is due by `now`, in due order. Waiting requests that this answers must have been
    /// answered before.
    fn expire(&mut self, now: Time) -> Result<(), String> {
        if let Some(owed) = self.owed.front() {
            return Err(format!("first {owed:?}"));
        }
        for namespace in self.namespaces.values_mut() {
            namespace.ledger.expire(&mut namespace.order, now.0);
            if !namespace.is_decided {
                namespace.events.expire(&mut namespace.order, now.0);
            }
            while namespace.next_decided_due().is_some_and(|due| due <= now.0) {
                let answered = namespace.expire_decided(now);
                if !answered.is_empty() {
                    return Err(format!("first {answered:?}"));
                }
            }
            if namespace.limiter.expire(now.0) {
                namespace.order.grow(0);
            }
            while namespace.locks.next_due().is_some_and(|due| due <= now.0) {
                let ((), answered) = namespace.at_locks(now, Locks::expire_next);
                if !answered.is_empty() {
                    return Err(format!("first {answered:?}"));
                }
            }
        }
        Ok(())
    }

    /// The states after the next due timer that answers no request; several if the order is not known.
    fn after_next_due(&self, now: Time) -> Vec<Model> {
        let due = |namespace: &Namespace| {
            let families = [
                namespace.limiter.next_expiry(),
                namespace.locks.next_due(),
                namespace.events.next_due().map(|(due, _)| due),
                namespace.decisions.next_due().map(|(due, ..)| due),
            ];
            families.into_iter().flatten().min()
        };
        let Some(first) = self.namespaces.values().filter_map(due).min().filter(|first| *first <= now.0)
        else {
            return Vec::new();
        };
        let ready = self.namespaces.iter().filter(|(_, namespace)| due(namespace) == Some(first));
        let next = ready.filter_map(|(name, namespace)| {
            let mut namespace = namespace.clone();
            if namespace.is_decided {
                if !namespace.expire_decided(now).is_empty() {
                    return None;
                }
            } else if namespace.events.next_due().is_some_and(|(due, _)| due == first) {
                namespace.events.expire_next(&mut namespace.order);
            } else if namespace.limiter.next_expiry() == Some(first) {
                namespace.limiter.expire_next();
                namespace.order.grow(0);
            } else if !namespace.at_locks(now, Locks::expire_next).1.is_empty() {
                return None;
            }
            let mut model = self.clone();
            model.namespaces.insert(name.clone(), namespace);
            Some(model)
        });
        next.collect()
    }

    /// The shard lost its memory: windows may have lost relaxed answers, and no request waits any more.
    fn forget(&mut self, persisted: Time) {
        self.batches.clear();
        for namespace in self.namespaces.values_mut() {
            namespace.limiter.forget(persisted.0);
            namespace.give_up();
            if namespace.existence == Existence::Relaxed {
                namespace.existence = Existence::Maybe;
            }
        }
    }

    /// Extends every lease, lock and decision to its full ttl from now on.
    fn reopen(&mut self, ready: Time) {
        for namespace in self.namespaces.values_mut() {
            namespace.limiter.reopen(ready.0);
            namespace.locks.reopen(ready.0);
            namespace.decisions.reopen(&mut namespace.ledger, ready.0);
        }
    }

    /// Whether the two differ in more than windows, and the replies and positions that depend on windows.
    fn differs_solidly(&self, other: &Model) -> bool {
        self.namespaces.len() != other.namespaces.len()
            || self.namespaces.iter().any(|(name, namespace)| {
                let other = other.namespaces.get(name);
                other.is_none_or(|other| {
                    namespace.limiter.differs_solidly(&other.limiter)
                        || namespace.locks != other.locks
                        || namespace.events != other.events
                        || namespace.decisions != other.decisions
                        || (namespace.is_decided && namespace.ledger != other.ledger)
                })
            })
    }
}

/// Whether the answer says that a stored record could not be read. Then nothing was done.
pub fn is_unreadable(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Unreadable | Outcome::Ledger(Err(engine_ledger::Refusal::LimitsValuesReadingException))
    )
}
