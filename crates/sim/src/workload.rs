//! Random requests, chosen so that they meet: few names, many repetitions, extreme values now and then.

use crate::random::Random;
use limina_engine::{
    Command, Idempotency, Millis, Name, Page, Position, Request,
    ledger::{
        self, AsOf, Change, Context, Finalization, FinalizationChange, Finish, Hold, NewLimit, Patch,
        Transfer,
    },
};

/// Which names there are to choose from.
#[derive(Debug, Clone)]
pub struct Workload {
    namespaces: Vec<Name>,
    limits: Vec<Name>,
    operations: u64,
    keys: u64,
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

impl Workload {
    /// Chooses how crowded this run is.
    pub fn new(random: &mut Random) -> Workload {
        let names = |prefix: &str, count: u64| (0..count).map(|i| name(&format!("{prefix}{i}"))).collect();
        Workload {
            namespaces: names("n", 1 + random.below(3)),
            limits: names("limit", 1 + random.below(8)),
            operations: 4 + random.below(200),
            keys: 1 + random.below(30),
        }
    }

    /// The next request.
    pub fn request(&self, random: &mut Random) -> Request {
        let namespace = random.pick(&self.namespaces).clone();
        let command = match random.below(1000) {
            0 => Command::DeleteNamespace,
            1..=9 => Command::ListNamespaces(Page { after: None, limit: 1 + random.below(3) as usize }),
            _ => Command::Ledger(self.ledger(random)),
        };
        let idempotency = (command.is_write() && random.one_in(4)).then(|| Idempotency {
            key: name(&format!("key{}", random.below(self.keys))),
            fingerprint: [random.below(3) as u8; 16],
        });
        Request { namespace, idempotency, command }
    }

    fn ledger(&self, random: &mut Random) -> ledger::Command {
        use ledger::Command;
        match random.below(100) {
            0..=5 => Command::CreateLimit(NewLimit {
                name: self.limit(random),
                limit_id: random.one_in(2).then(|| name("id")),
                context: context(random),
                ceiling: random.one_in(2).then(|| value(random)),
            }),
            6..=8 => Command::PatchLimit {
                name: self.limit(random),
                ceiling: match random.below(3) {
                    0 => Patch::Keep,
                    1 => Patch::Remove,
                    _ => Patch::Set(value(random)),
                },
                context: if random.one_in(2) { Patch::Keep } else { Patch::Set(context(random)) },
            },
            9..=10 => Command::GetLimit(self.limit(random)),
            11..=12 => Command::ListLimits(self.page(random, Self::limit)),
            13..=69 => Command::Transfer(self.transfer(random)),
            70..=75 => Command::Batch((0..1 + random.below(12)).map(|_| self.transfer(random)).collect()),
            76..=85 => Command::Values {
                limit_names: self.some_limits(random),
                as_of: match random.below(4) {
                    0 => AsOf::Now,
                    1 => AsOf::Position(Position(random.below(2_000))),
                    _ => AsOf::Operation(self.operation(random)),
                },
            },
            86..=90 => Command::GetOperation(self.operation(random)),
            91..=94 => Command::ListOperations {
                only_held: random.one_in(2),
                page: self.page(random, Self::operation),
            },
            _ => Command::ListEntries {
                limit_name: self.limit(random),
                page: self.page(random, |_, random| Position(random.below(1_000))),
            },
        }
    }

    fn transfer(&self, random: &mut Random) -> Transfer {
        let operation_id = self.operation(random);
        if random.one_in(2) {
            return Transfer::Hold(Hold {
                operation_id,
                changes: self
                    .some_limits(random)
                    .into_iter()
                    .map(|limit_name| Change {
                        limit_name,
                        value: value(random),
                        limit_id: random.one_in(3).then(|| name("held")),
                        context: context(random),
                    })
                    .collect(),
                skip_existing_holds: random.one_in(2),
                create_missing: random.one_in(2),
                expires_after: random.one_in(3).then(|| Millis(1 + random.below(5_000))),
            });
        }
        let change = |random: &mut Random, limit_name| FinalizationChange {
            limit_name,
            value: random.one_in(2).then(|| value(random)),
        };
        let changes = random
            .one_in(2)
            .then(|| self.some_limits(random).into_iter().map(|limit| change(random, limit)).collect());
        let finish = if random.one_in(2) { Finish::Commit } else { Finish::Rollback };
        Transfer::Finish(Finalization { finish, operation_id, changes })
    }

    fn limit(&self, random: &mut Random) -> Name {
        random.pick(&self.limits).clone()
    }

    /// One or more, each once.
    fn some_limits(&self, random: &mut Random) -> Vec<Name> {
        let mut chosen: Vec<Name> = self.limits.iter().filter(|_| random.one_in(3)).cloned().collect();
        if chosen.is_empty() {
            chosen.push(self.limit(random));
        }
        chosen
    }

    fn operation(&self, random: &mut Random) -> Name {
        name(&format!("op{}", random.below(self.operations)))
    }

    fn page<C>(&self, random: &mut Random, cursor: impl Fn(&Self, &mut Random) -> C) -> Page<C> {
        Page { after: random.one_in(2).then(|| cursor(self, random)), limit: 1 + random.below(20) as usize }
    }
}

fn value(random: &mut Random) -> i64 {
    match random.below(20) {
        0 => 0,
        1 => i64::MAX - random.below(3) as i64,
        2 => i64::MIN + random.below(3) as i64,
        _ => random.below(41) as i64 - 20,
    }
}

fn context(random: &mut Random) -> Context {
    (0..random.below(3)).map(|i| (format!("k{i}").into(), format!("v{}", random.below(9)).into())).collect()
}
