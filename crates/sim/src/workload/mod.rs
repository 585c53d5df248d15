//! Random requests that often concern the same things: few names, many repetitions, sometimes extreme values.

mod decisions;
mod events;
mod ledger;
mod limiter;
mod locks;
mod valid;
mod vocabulary;

pub use decisions::DecisionWorkload;
pub use events::EventWorkload;
pub use limiter::LimiterWorkload;
pub use locks::LockWorkload;

use crate::{model::is_batch, random::Random};
use limina_engine::{
    Command, Idempotency, Name, Outcome, Page, Request, decisions as engine_decisions, locks as engine_locks,
};
use std::collections::VecDeque;
use valid::{VALID, name};

/// The names to choose from.
#[derive(Debug, Clone)]
pub struct Workload {
    namespaces: Vec<(Name, Families)>,
    ledger: ledger::LedgerWorkload,
    limiter: LimiterWorkload,
    locks: LockWorkload,
    events: EventWorkload,
    decisions: DecisionWorkload,
    keys: u64,
    /// The last request for locks that had an idempotency key.
    keyed: Option<Request>,
    /// The last batches that had an idempotency key.
    batches: VecDeque<Request>,
}

/// The families that a namespace is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Families {
    Ledger,
    Limiter,
    Locks,
    Events,
    /// Decisions, and commands of all families that meet their parts.
    Decisions,
    LedgerAndLimiter,
}

/// The number of batches that may be repeated.
const BATCHES: usize = 3;

impl Workload {
    /// Chooses at random how many names there are. Ledger and limiter may share a namespace. Locks, events and decisions have
    /// namespaces of their own, because their positions are tokens and clocks.
    pub fn new(random: &mut Random) -> Workload {
        let is_mixed = random.one_in(6);
        let families = |i: u64| match i % 4 {
            0 => Families::Locks,
            1 => Families::Events,
            _ if is_mixed => Families::LedgerAndLimiter,
            2 => Families::Ledger,
            _ => Families::Limiter,
        };
        let first = random.below(4);
        let namespaces = (0..1 + random.below(3)).map(|i| (name(&format!("n{i}")), families(first + i)));
        let mut namespaces: Vec<(Name, Families)> = namespaces.collect();
        if random.one_in(2) {
            namespaces.push((name("decided"), Families::Decisions));
        }
        Workload {
            namespaces,
            ledger: ledger::LedgerWorkload::new(random, !is_mixed),
            limiter: LimiterWorkload::new(random),
            locks: LockWorkload::new(random),
            events: EventWorkload::new(random),
            decisions: DecisionWorkload::new(random),
            keys: 1 + random.below(30),
            keyed: None,
            batches: VecDeque::new(),
        }
    }

    /// The next random request.
    pub fn request(&mut self, random: &mut Random) -> Request {
        if random.one_in(12)
            && let Some(request) = self.keyed.clone()
            && let Command::Locks(locks) = &request.command
        {
            // A client that got no answer in time hangs up and repeats its request, in either order.
            return match self.locks.hang_up_or_retry(random, locks) {
                hang_up @ engine_locks::Command::Abandon(_) => {
                    Request { idempotency: None, command: Command::Locks(hang_up), ..request }
                }
                retry => Request { command: Command::Locks(retry), ..request },
            };
        }
        // A client that got no answer repeats its batch, which may have been cut.
        if random.one_in(12)
            && let Some(batch) = self.batches.get(random.below(BATCHES as u64) as usize)
        {
            return batch.clone();
        }
        let request = self.fresh_request(random);
        if is_batch(&request) && request.idempotency.is_some() {
            self.batches.truncate(BATCHES - 1);
            self.batches.push_front(request.clone());
        }
        if matches!(&request.command, Command::Locks(engine_locks::Command::Acquire(_)))
            && request.idempotency.is_some()
        {
            self.keyed = Some(request.clone());
        }
        request
    }

    fn fresh_request(&mut self, random: &mut Random) -> Request {
        let (namespace, families) = random.pick(&self.namespaces).clone();
        let family = match families {
            Families::LedgerAndLimiter if random.one_in(2) => Families::Ledger,
            Families::LedgerAndLimiter => Families::Limiter,
            one => one,
        };
        let command = match (random.below(1000), family) {
            (0..=1, _) if self.may_delete(families) => Command::DeleteNamespace,
            (0..=9, _) => {
                Command::ListNamespaces(Page::new(None, 1 + random.below(3) as usize).expect(VALID))
            }
            (_, Families::Ledger) => Command::Ledger(self.ledger.command(random)),
            (_, Families::Locks) => Command::Locks(self.locks.command(random)),
            (_, Families::Events) => Command::Events(self.events.command(random)),
            (_, Families::Decisions) => self.decisions.command(random),
            (_, Families::Limiter | Families::LedgerAndLimiter) => {
                Command::Limiter(self.limiter.command(random))
            }
        };
        let idempotency = (command.is_write() && random.one_in(4)).then(|| self.idempotency(random));
        let mut request = Request { idempotency, ..Request::new(namespace, command) };
        // A batch continues where an earlier request under its key was cut, so that must have been the same batch.
        if is_batch(&request)
            && let Some(idempotency) = &mut request.idempotency
        {
            let digest = crc32c::crc32c(format!("{:?}", request.command).as_bytes());
            idempotency.fingerprint[..4].copy_from_slice(&digest.to_be_bytes());
        }
        request
    }

    /// A namespace that is created again continues the position of the deleted one. With the limiter that position is
    /// not known, but tokens, clocks and the positions of the ledger must be.
    fn may_delete(&self, families: Families) -> bool {
        let is_exact = |families: Families| {
            use Families::{Decisions, Events, Ledger, Locks};
            matches!(families, Ledger | Locks | Events | Decisions)
        };
        // Rules are made only at the beginning.
        let is_fixed = families == Families::Decisions && self.decisions.has_rules();
        !is_fixed && (is_exact(families) || !self.namespaces.iter().any(|(_, families)| is_exact(*families)))
    }

    fn idempotency(&self, random: &mut Random) -> Idempotency {
        let key = name(&format!("key{}", random.below(self.keys)));
        // Half of the different bodies belong to a token, so that one key has two owners.
        let body = random.below(4) as u8;
        let owner = (body % 2 == 1).then(|| name("token"));
        Idempotency { owner, key, fingerprint: [body; 16] }
    }

    /// The namespace of decisions.
    pub fn decided(&self) -> Option<&Name> {
        self.namespaces.iter().find(|(_, families)| *families == Families::Decisions).map(|(name, _)| name)
    }

    /// Whether decisions have checks, in a namespace in which a quota of the limiter would not be exact.
    pub fn decides_checks(&self) -> bool {
        self.decided().is_some() && self.decisions.has_rules()
    }

    /// The requests that must be done before all others.
    pub fn setup(&self, random: &mut Random) -> Vec<Request> {
        let Some(namespace) = self.decided() else { return Vec::new() };
        let commands = self.decisions.setup(random).into_iter();
        commands.map(|command| Request::new(namespace.clone(), command)).collect()
    }

    /// A client was told this. Later requests may refer to it.
    pub fn note_answer(&mut self, outcome: &Outcome) {
        if let Outcome::Decisions(Ok(engine_decisions::Reply::Decided(decision))) = outcome
            && let Some(position) = decision.position
        {
            self.decisions.note_made(position);
        }
    }

    /// The streams of the namespace of decisions.
    pub fn decided_streams(&self) -> impl Iterator<Item = Name> {
        self.decisions.streams()
    }

    /// All streams that may exist, each with its namespace.
    pub fn streams(&self) -> Vec<(Name, Name)> {
        let of_one = |(namespace, families): &(Name, Families)| -> Vec<(Name, Name)> {
            let streams: Vec<Name> = match families {
                Families::Events => self.events.streams().collect(),
                Families::Decisions => self.decisions.streams().collect(),
                _ => Vec::new(),
            };
            streams.into_iter().map(|stream| (namespace.clone(), stream)).collect()
        };
        self.namespaces.iter().flat_map(of_one).collect()
    }

    /// Reads that show the state of a namespace's locks, limiter and decisions. Those that show the most come first.
    pub fn looks(&self, namespace: &Name) -> Vec<Command> {
        if self.decided() == Some(namespace) {
            return self.decisions.looks();
        }
        let limiter = self.limiter.looks().into_iter().map(Command::Limiter);
        [Command::Locks(self.locks.look())].into_iter().chain(limiter).collect()
    }
}
