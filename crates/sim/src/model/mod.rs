//! The naive model: what the answers must be, found by adding up everything every time.
//!
//! Some things the model cannot know: how an unknown outcome ended, what a crash has taken of what relaxed answers had
//! counted, by how much a position grew, what of all that was due had been done before a crash. So it keeps every state
//! that is possible, and each answer leaves those that fit. An answer that fits none is wrong.
//!
//! Read in this order: `judge.rs` (answers and losses, in order), this file (namespaces and repeats), then a family.

mod events;
mod judge;
mod ledger;
mod limiter;
mod locks;
mod select;

pub use judge::{CannotTell, Fate, Judge, Unheard};

use events::Events;
use ledger::Ledger;
use limina_engine::{
    Command, Idempotency, Name, Outcome, Page, Position, Request, Time, events as engine_events,
    ledger as engine_ledger, limiter as engine_limiter, locks as engine_locks, outcome::NamespaceInfo,
};
use limiter::Limiter;
use locks::Locks;
use std::collections::{BTreeMap, VecDeque};

const DAY: u64 = 24 * 60 * 60 * 1000;
/// With more possible states than this, the model gives up.
const MOST_STATES: usize = 256;

/// What one shard should answer, if one knew everything.
#[derive(Debug, Clone, PartialEq)]
struct Model {
    namespaces: BTreeMap<Name, Namespace>,
    floor: Order,
    /// Who had to wait and must be answered before anything else is decided, in this order. Without an outcome they are
    /// given up.
    owed: VecDeque<(Request, Option<Outcome>)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Namespace {
    order: Order,
    existence: Existence,
    ledger: Ledger,
    limiter: Limiter,
    locks: Locks,
    events: Events,
    replies: BTreeMap<Name, Kept>,
}

/// What is known of a namespace's position. How many of them a command of the limiter takes, and when, is nobody's
/// business, so from the first one on it is only known to be at least this.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Order {
    position: u64,
    is_exact: bool,
}

/// Whether a namespace is there after a crash.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Existence {
    Durable,
    /// It is there, but only by what relaxed answers did.
    Relaxed,
    /// Nobody knows.
    Maybe,
}

/// A reply kept under an idempotency key.
#[derive(Debug, Clone, PartialEq)]
struct Kept {
    given: u64,
    fingerprint: [u8; 16],
    /// Nothing where nobody has seen it yet.
    outcome: Option<Outcome>,
    grant: Option<Granted>,
    /// Not, where it is open whether the command had changed anything.
    is_certain: bool,
}

/// What a kept reply had granted. It is given again while that lives.
#[derive(Debug, Clone, PartialEq)]
enum Granted {
    Lease(Name),
    Lock(Name),
}

/// The position at which something was made: known once it was seen.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Mark {
    after: u64,
    known: Option<u64>,
}

/// Whether a command changed something, as far as can be told: taking nothing from an unlimited bucket, say, may
/// count as a change or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    No,
    Unclear,
    Yes,
}

/// One way in which a command can have gone.
struct Way<S> {
    state: S,
    order: Order,
    changed: Changed,
    /// Its answer need not wait for the disk.
    is_relaxed: bool,
}

impl Default for Model {
    fn default() -> Model {
        let floor = Order { position: 0, is_exact: true };
        Model { namespaces: BTreeMap::new(), floor, owed: VecDeque::new() }
    }
}

impl Order {
    /// The next position, for the ledger and the locks, which take them one by one.
    fn advance(&mut self) -> u64 {
        self.position += 1;
        self.position
    }

    /// It grew by one or more, or not at all if `at_least` is 0.
    fn grow(&mut self, at_least: u64) {
        self.position += at_least;
        self.is_exact = false;
    }

    /// It was seen.
    fn learn(&mut self, position: Position) {
        if position.0 > self.position {
            *self = Order { position: position.0, is_exact: false };
        }
    }
}

impl Mark {
    /// Of something that is made now.
    fn after(order: Order) -> Mark {
        Mark { after: order.position, known: None }
    }

    /// What an answer must show, if it shows this.
    fn expect(&self, shown: Position) -> Position {
        Position(self.known.unwrap_or(shown.0.max(self.after + 1)))
    }
}

impl Model {
    /// Every way to go on with which the answer agrees; all of them if it is not known. The error is what should have
    /// been answered.
    fn step(
        mut self,
        now: Time,
        request: &Request,
        answer: Option<&Outcome>,
    ) -> Result<Vec<(Model, bool)>, String> {
        self.expire(now)?;
        let is_change = matches!(request.command, Command::Limiter(engine_limiter::Command::Change(_)));
        let is_about_locks = matches!(request.command, Command::Locks(_));
        match answer {
            Some(answer) if is_unreadable(answer) => return Ok(vec![(self, true)]),
            // Whether a change of rules is under way, whoever sends requests knows.
            Some(Outcome::IdempotencyKeyInUse) if request.idempotency.is_some() && !is_about_locks => {
                return Ok(vec![(self, false)]);
            }
            // The namespace was deleted while a change waited.
            Some(Outcome::NamespaceNotFound) if is_change && self.may_lack(&request.namespace) => {
                return Ok(vec![(self, false)]);
            }
            _ => {}
        }
        match &request.command {
            Command::ListNamespaces(page) => self.list(page, answer).map(|model| vec![(model, false)]),
            Command::DeleteNamespace => {
                self.delete(&request.namespace, answer).map(|model| vec![(model, false)])
            }
            Command::Locks(_) if self.is_key_waiting(request) => match answer {
                Some(answer) if *answer != Outcome::IdempotencyKeyInUse => {
                    Err(format!("{:?}", Outcome::IdempotencyKeyInUse))
                }
                _ => Ok(vec![(self, false)]),
            },
            Command::Ledger(_) | Command::Limiter(_) | Command::Locks(_) | Command::Events(_) => {
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
        let namespace = self.namespaces.remove(name).unwrap_or_else(|| Namespace::unborn(self.floor));
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
            let mut told = Vec::new();
            match namespace.run(now, request, answer, &mut told) {
                Ok(ran) => {
                    for way in ran {
                        let mut model = self.clone();
                        model.owe(told.clone());
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
            let waiting = namespace.locks.give_up().into_iter();
            self.owe(waiting.map(|request| (request, Outcome::NamespaceNotFound)).collect());
            self.floor = Order {
                position: self.floor.position.max(namespace.order.position),
                is_exact: self.floor.is_exact && namespace.order.is_exact,
            };
        }
        Ok(self)
    }

    /// Whether the namespace may not be there.
    fn may_lack(&self, name: &Name) -> bool {
        self.namespaces.get(name).is_none_or(|there| there.existence == Existence::Maybe)
    }

    /// A request for locks begins to wait.
    fn wait(mut self, now: Time, request: &Request) -> Result<Model, String> {
        let Command::Locks(command) = &request.command else {
            return Err("only locks are waited for".into());
        };
        self.expire(now)?;
        if self.is_key_waiting(request) {
            return Err(format!("{:?}", Outcome::IdempotencyKeyInUse));
        }
        let namespace = self.namespaces.get_mut(&request.namespace).ok_or("nobody is there to wait for")?;
        if namespace.repeat(now, request, None).is_some() {
            return Err("a kept reply".into());
        }
        let (answer, told) = namespace.at_locks(now, |locks, turn| locks.run(turn, request, command, None));
        match answer {
            Some(answer) => Err(format!("{answer:?}")),
            None => {
                self.owe(told);
                Ok(self)
            }
        }
    }

    /// A request that had to wait is answered: because of the step before, or because somebody's time has run out.
    fn complete(mut self, now: Time, request: &Request, answer: Option<&Outcome>) -> Result<Model, String> {
        if self.owed.is_empty()
            && let Some(namespace) = self.namespaces.get_mut(&request.namespace)
        {
            let mut told = Vec::new();
            while told.is_empty() && namespace.locks.next_due().is_some_and(|due| due <= now.0) {
                ((), told) = namespace.at_locks(now, Locks::expire_next);
            }
            self.owe(told);
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

    /// A request that had to wait is given up, like all that wait.
    fn give_up(mut self, request: &Request) -> Result<Model, String> {
        if self.owed.is_empty() {
            let all = self.namespaces.values_mut().flat_map(|namespace| namespace.locks.give_up());
            self.owed = all.map(|request| (request, None)).collect();
        }
        match self.owed.pop_front() {
            Some((to, None)) if to == *request => Ok(self),
            other => Err(format!("{other:?}")),
        }
    }

    fn owe(&mut self, told: Vec<(Request, Outcome)>) {
        self.owed.extend(told.into_iter().map(|(request, outcome)| (request, Some(outcome))));
    }

    /// Whether the request's idempotency key is that of one who waits for locks.
    fn is_key_waiting(&self, request: &Request) -> bool {
        let namespace = self.namespaces.get(&request.namespace);
        let key = request.idempotency.as_ref();
        namespace.zip(key).is_some_and(|(namespace, key)| namespace.locks.uses_key(&key.key))
    }

    /// Ends everything due by `now`, in due order. Whoever is to be told of it must have been told before.
    fn expire(&mut self, now: Time) -> Result<(), String> {
        if let Some(owed) = self.owed.front() {
            return Err(format!("first {owed:?}"));
        }
        for namespace in self.namespaces.values_mut() {
            namespace.ledger.expire(&mut namespace.order, now.0);
            namespace.events.expire(&mut namespace.order, now.0);
            if namespace.limiter.expire(now.0) {
                namespace.order.grow(0);
            }
            while namespace.locks.next_due().is_some_and(|due| due <= now.0) {
                let ((), told) = namespace.at_locks(now, Locks::expire_next);
                if !told.is_empty() {
                    return Err(format!("first {told:?}"));
                }
            }
        }
        Ok(())
    }

    /// The states after the next thing that is due by `now` and tells nobody; several where it is open what comes first.
    fn after_next_due(&self, now: Time) -> Vec<Model> {
        let due = |namespace: &Namespace| {
            let families =
                [namespace.limiter.next_expiry(), namespace.locks.next_due(), namespace.events.next_due()];
            families.into_iter().flatten().min()
        };
        let Some(first) = self.namespaces.values().filter_map(due).min().filter(|first| *first <= now.0)
        else {
            return Vec::new();
        };
        let ready = self.namespaces.iter().filter(|(_, namespace)| due(namespace) == Some(first));
        let next = ready.filter_map(|(name, namespace)| {
            let mut namespace = namespace.clone();
            if namespace.events.next_due() == Some(first) {
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

    /// The memory was lost: windows may be back at what they were before relaxed answers, and nobody waits any more.
    fn forget(&mut self, persisted: Time) {
        for namespace in self.namespaces.values_mut() {
            namespace.limiter.forget(persisted.0);
            namespace.locks.give_up();
            if namespace.existence == Existence::Relaxed {
                namespace.existence = Existence::Maybe;
            }
        }
    }

    /// Whoever holds something has a full span from now on.
    fn reopen(&mut self, ready: Time) {
        for namespace in self.namespaces.values_mut() {
            namespace.limiter.reopen(ready.0);
            namespace.locks.reopen(ready.0);
        }
    }

    /// Whether the two differ in more than windows, and the replies and positions that go with them.
    fn differs_solidly(&self, other: &Model) -> bool {
        self.namespaces.len() != other.namespaces.len()
            || self.namespaces.iter().any(|(name, namespace)| {
                let other = other.namespaces.get(name);
                other.is_none_or(|other| {
                    namespace.limiter.differs_solidly(&other.limiter)
                        || namespace.locks != other.locks
                        || namespace.events != other.events
                })
            })
    }
}

/// What a request under a known key must be answered.
struct Repeat {
    /// The namespace, with what the answer showed; or what should have been answered.
    result: Result<Namespace, String>,
    /// It cannot be that the request was run afresh.
    is_certain: bool,
}

/// One way in which a request can have ended, with its outcome if that is known.
type Ended = (Way<Namespace>, Option<Outcome>);

impl Namespace {
    fn unborn(floor: Order) -> Namespace {
        Namespace {
            order: floor,
            existence: Existence::Maybe,
            ledger: Ledger::default(),
            limiter: Limiter::default(),
            locks: Locks::default(),
            events: Events::default(),
            replies: BTreeMap::new(),
        }
    }

    fn repeat(&self, now: Time, request: &Request, answer: Option<&Outcome>) -> Option<Repeat> {
        let key = request.idempotency.as_ref()?;
        let kept = self.replies.get(&key.key).filter(|kept| now.0 < kept.given + DAY)?;
        let is_lease_gone = matches!(&kept.grant, Some(Granted::Lease(id)) if !self.limiter.has_lease(id));
        let is_lock_gone =
            matches!(&kept.grant, Some(Granted::Lock(id)) if self.locks.grant_info(now.0, id).is_none());
        let is_same = kept.fingerprint == key.fingerprint;
        if is_same && (is_lease_gone || is_lock_gone) {
            return None;
        }
        // A lease that is gone leaves it open whether its key is still known.
        let is_certain = kept.is_certain && !is_lease_gone;
        let mut next = self.clone();
        if let (Some(Granted::Lock(id)), true) = (&kept.grant, is_same) {
            // From now on the hang-up of the request that made the grant does not end it.
            next.locks.tell(id, locks::name_of(request));
        }
        let Some(answer) = answer else { return Some(Repeat { result: Ok(next), is_certain }) };
        let expected =
            if is_same { next.kept_outcome(now, key, answer) } else { Some(Outcome::IdempotencyKeyReused) };
        let result = match expected {
            Some(expected) if expected != *answer => Err(format!("kept: {expected:?}")),
            None if !matches!(answer, Outcome::Limiter(Ok(_)) | Outcome::Ledger(Ok(_))) => {
                Err("a kept reply, which nobody has seen yet".into())
            }
            _ => Ok(next),
        };
        Some(Repeat { result, is_certain })
    }

    /// The kept reply as it is shown now; nothing if nobody has seen it before.
    fn kept_outcome(&mut self, now: Time, key: &Idempotency, answer: &Outcome) -> Option<Outcome> {
        let kept = self.replies.get_mut(&key.key)?;
        kept.is_certain = true;
        let known = kept.outcome.is_some();
        let mut outcome = kept.outcome.get_or_insert_with(|| answer.clone()).clone();
        match (&kept.grant, &mut outcome) {
            (
                Some(Granted::Lease(id)),
                Outcome::Limiter(Ok(engine_limiter::Reply::LeaseTaken { lease, .. })),
            ) => {
                let shown = lease.fencing_token;
                *lease = self.limiter.lease_info(now.0, id, shown)?;
                if !known && outcome == *answer {
                    self.limiter.learn_token(id, shown);
                }
                return Some(outcome);
            }
            (Some(Granted::Lock(id)), Outcome::Locks(Ok(engine_locks::Reply::Granted { grant, .. }))) => {
                *grant = self.locks.grant_info(now.0, id)?;
            }
            _ => {}
        }
        known.then_some(outcome)
    }

    fn run(
        &self,
        now: Time,
        request: &Request,
        answer: Option<&Outcome>,
        told: &mut Vec<(Request, Outcome)>,
    ) -> Result<Vec<Way<Namespace>>, String> {
        let ways = match (&request.command, answer) {
            (Command::Locks(command), None) => vec![self.run_locks(now, request, command, None, told)?],
            (Command::Locks(command), Some(Outcome::Locks(answer))) => {
                vec![self.run_locks(now, request, command, Some(answer), told)?]
            }
            (Command::Events(command), None) => vec![self.run_events(now, command, None)?],
            (Command::Events(command), Some(Outcome::Events(answer))) => {
                vec![self.run_events(now, command, Some(answer))?]
            }
            (Command::Ledger(command), None) => vec![self.run_ledger(now, command, None)?],
            (Command::Ledger(command), Some(Outcome::Ledger(answer))) => {
                vec![self.run_ledger(now, command, Some(answer))?]
            }
            (Command::Limiter(command), None) => self.run_limiter(now, request, command, None)?,
            (Command::Limiter(command), Some(Outcome::Limiter(answer))) => {
                self.run_limiter(now, request, command, Some(answer))?
            }
            _ => return Err("an answer of the family that was asked".into()),
        };
        Ok(ways.into_iter().map(|(way, outcome)| way.keep(now, request, outcome)).collect())
    }

    fn run_locks(
        &self,
        now: Time,
        request: &Request,
        command: &engine_locks::Command,
        answer: Option<&Result<engine_locks::Reply, engine_locks::Refusal>>,
        told: &mut Vec<(Request, Outcome)>,
    ) -> Result<Ended, String> {
        let mut next = self.clone();
        let ran = next.at_locks(now, |locks, turn| locks.run(turn, request, command, answer));
        let expected = ran.0.ok_or("it has to wait")?;
        if answer.is_some_and(|answer| *answer != expected) {
            return Err(format!("{expected:?}"));
        }
        *told = ran.1;
        let changed = if next.order == self.order { Changed::No } else { Changed::Yes };
        let order = next.order;
        Ok((Way { state: next, order, changed, is_relaxed: false }, Some(Outcome::Locks(expected))))
    }

    fn run_events(
        &self,
        now: Time,
        command: &engine_events::Command,
        answer: Option<&Result<engine_events::Reply, engine_events::Refusal>>,
    ) -> Result<Ended, String> {
        let mut next = self.clone();
        let expected = next.events.run(now.0, &mut next.order, command, answer);
        if answer.is_some_and(|answer| *answer != expected) {
            return Err(format!("{expected:?}"));
        }
        let changed = if next.order == self.order { Changed::No } else { Changed::Yes };
        let order = next.order;
        Ok((Way { state: next, order, changed, is_relaxed: false }, Some(Outcome::Events(expected))))
    }

    /// One step of the locks. Says who had to wait and must be told of it, and keeps the replies for those with a key.
    fn at_locks<R>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut Locks, &mut locks::Turn) -> R,
    ) -> (R, Vec<(Request, Outcome)>) {
        let mut turn = locks::Turn { now: now.0, order: self.order, told: Vec::new() };
        let result = act(&mut self.locks, &mut turn);
        self.order = turn.order;
        for (request, outcome) in &turn.told {
            if outcome.is_done() {
                self.keep_reply(now, request, Some(outcome.clone()), true);
            }
        }
        (result, turn.told)
    }

    fn keep_reply(&mut self, now: Time, request: &Request, outcome: Option<Outcome>, is_certain: bool) {
        let Some(Idempotency { key, fingerprint }) = request.idempotency.clone() else { return };
        let grant = match (&request.command, &outcome) {
            (Command::Limiter(engine_limiter::Command::TakeLease(new)), _) => {
                Some(Granted::Lease(new.id().clone()))
            }
            (_, Some(Outcome::Locks(Ok(engine_locks::Reply::Granted { grant, .. })))) => {
                Some(Granted::Lock(grant.id.clone()))
            }
            _ => None,
        };
        self.replies.insert(key, Kept { given: now.0, fingerprint, outcome, grant, is_certain });
    }

    fn run_limiter(
        &self,
        now: Time,
        request: &Request,
        command: &engine_limiter::Command,
        answer: Option<&Result<engine_limiter::Reply, engine_limiter::Refusal>>,
    ) -> Result<Vec<Ended>, String> {
        let is_keyed = request.idempotency.is_some();
        let ways = self.limiter.run(now.0, self.order, command, is_keyed, answer)?;
        let outcome = answer.map(|answer| Outcome::Limiter(answer.clone()));
        let in_namespace = |Way { state, order, changed, is_relaxed }: Way<Limiter>| {
            let state = Namespace { limiter: state, ..self.clone() };
            (Way { state, order, changed, is_relaxed }, outcome.clone())
        };
        Ok(ways.into_iter().map(in_namespace).collect())
    }

    /// The ledger is exact, but for where in the namespace's order the limiter's commands have left it.
    fn run_ledger(
        &self,
        now: Time,
        command: &engine_ledger::Command,
        answer: Option<&Result<engine_ledger::Reply, engine_ledger::Refusal>>,
    ) -> Result<(Way<Namespace>, Option<Outcome>), String> {
        let run = |start: Order| {
            let mut next = Namespace { order: start, ..self.clone() };
            let expected = next.ledger.answer(&mut next.order, now.0, command, answer);
            (next, expected)
        };
        let mut start = self.order;
        let (mut next, mut expected) = run(start);
        let readable = answer.map(ledger::readable);
        if let Some(readable) = &readable
            && *readable != expected
            && !self.order.is_exact
        {
            for shift in ledger::shifts(self.order, &expected, readable) {
                start = Order { position: self.order.position + shift, is_exact: false };
                (next, expected) = run(start);
                if expected == *readable {
                    break;
                }
            }
        }
        if let Some(readable) = readable
            && readable != expected
        {
            return Err(format!("{:?}", Outcome::Ledger(expected)));
        }
        let changed = if next.order.position == start.position { Changed::No } else { Changed::Yes };
        let outcome = match answer {
            Some(answer) => Some(Outcome::Ledger(answer.clone())),
            None => next.order.is_exact.then_some(Outcome::Ledger(expected)),
        };
        let order = next.order;
        Ok((Way { state: next, order, changed, is_relaxed: false }, outcome))
    }
}

impl Way<Namespace> {
    /// Takes note of what the command leaves behind in its namespace.
    fn keep(mut self, now: Time, request: &Request, outcome: Option<Outcome>) -> Way<Namespace> {
        self.state.order = self.order;
        self.state.existence = match (self.changed, self.is_relaxed, self.state.existence) {
            (Changed::Yes, false, _) => Existence::Durable,
            (Changed::Yes, true, Existence::Maybe) => Existence::Relaxed,
            (_, _, existence) => existence,
        };
        if self.changed != Changed::No {
            self.state.keep_reply(now, request, outcome, self.changed == Changed::Yes);
        }
        self
    }
}

/// Whether the answer says that a stored record could not be read. Then nothing was done.
pub fn is_unreadable(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Unreadable | Outcome::Ledger(Err(engine_ledger::Refusal::LimitsValuesReadingException))
    )
}
