//! Random requests, chosen so that they meet: few names, many repetitions, extreme values now and then.

mod ledger;
mod limiter;

pub use limiter::Limits;

use crate::random::Random;
use limina_engine::{Command, Idempotency, Name, Page, Request};

/// Which names there are to choose from.
#[derive(Debug, Clone)]
pub struct Workload {
    namespaces: Vec<(Name, Families)>,
    ledger: ledger::Accounts,
    limiter: Limits,
    keys: u64,
}

/// What a namespace is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Families {
    Ledger,
    Limiter,
    Both,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

impl Workload {
    /// Chooses how crowded this run is. Families meet in one namespace only if `may_mix`: where outcomes can be unknown,
    /// the model could not tell at which positions the ledger is.
    pub fn new(random: &mut Random, may_mix: bool) -> Workload {
        let is_mixed = may_mix && random.one_in(2);
        let families = |i: u64| match i % 2 {
            _ if is_mixed => Families::Both,
            0 => Families::Ledger,
            _ => Families::Limiter,
        };
        let first = random.below(2);
        let namespaces = (0..1 + random.below(3)).map(|i| (name(&format!("n{i}")), families(first + i)));
        Workload {
            namespaces: namespaces.collect(),
            ledger: ledger::Accounts::new(random, !is_mixed),
            limiter: Limits::new(random),
            keys: 1 + random.below(30),
        }
    }

    /// The next request.
    pub fn request(&mut self, random: &mut Random) -> Request {
        let (namespace, families) = random.pick(&self.namespaces).clone();
        let is_ledger = match families {
            Families::Ledger => true,
            Families::Limiter => false,
            Families::Both => random.one_in(2),
        };
        let command = match random.below(1000) {
            0 => Command::DeleteNamespace,
            1..=9 => Command::ListNamespaces(Page { after: None, limit: 1 + random.below(3) as usize }),
            _ if is_ledger => Command::Ledger(self.ledger.command(random)),
            _ => Command::Limiter(self.limiter.command(random)),
        };
        let idempotency = (command.is_write() && random.one_in(4)).then(|| self.idempotency(random));
        Request { namespace, idempotency, command }
    }

    fn idempotency(&self, random: &mut Random) -> Idempotency {
        Idempotency {
            key: name(&format!("key{}", random.below(self.keys))),
            fingerprint: [random.below(3) as u8; 16],
        }
    }

    /// What to look at to learn what a namespace's limiter holds.
    pub fn looks(&self) -> Vec<Command> {
        self.limiter.looks().into_iter().map(Command::Limiter).collect()
    }
}

fn page<C>(random: &mut Random, cursor: impl FnOnce(&mut Random) -> C) -> Page<C> {
    Page { after: random.one_in(2).then(|| cursor(random)), limit: 1 + random.below(20) as usize }
}
