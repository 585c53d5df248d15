//! Random commands of the ledger.

use super::valid::{VALID, name, page};
use crate::random::Random;
use limina_engine::{
    Millis, Name, Position,
    ledger::{
        AsOf, Batch, Change, Command, Context, Extend, Finalization, FinalizationChange, Finish, Hold,
        LimitPatch, NewLimit, OperationFilter, Patch, Transfer, Values,
    },
};

/// The limits and operations to choose from.
#[derive(Debug, Clone)]
pub(super) struct LedgerWorkload {
    limits: Vec<Name>,
    operations: u64,
    may_expire: bool,
}

impl LedgerWorkload {
    pub(super) fn new(random: &mut Random, may_expire: bool) -> LedgerWorkload {
        LedgerWorkload {
            limits: (0..1 + random.below(8)).map(|i| name(&format!("limit{i}"))).collect(),
            operations: 4 + random.below(200),
            may_expire,
        }
    }

    pub(super) fn command(&self, random: &mut Random) -> Command {
        match random.below(100) {
            0..=4 => {
                let new = NewLimit::new(self.limit(random));
                let limit_id = random.one_in(2).then(|| name("id"));
                let (context, ceiling) = (context(random), random.one_in(2).then(|| value(random)));
                Command::CreateLimit(NewLimit { limit_id, context, ceiling, ..new })
            }
            5..=7 => Command::PatchLimit {
                name: self.limit(random),
                patch: LimitPatch {
                    ceiling: match random.below(3) {
                        0 => Patch::Keep,
                        1 => Patch::Remove,
                        _ => Patch::Set(value(random)),
                    },
                    context: if random.one_in(2) { Patch::Keep } else { Patch::Set(context(random)) },
                },
            },
            8 => Command::GetLimit(self.limit(random)),
            9..=10 => Command::ListLimits(page(random, |random| self.limit(random))),
            11 => Command::ListLimitsByUse(page(random, |random| self.limit(random))),
            12..=14 => Command::DeleteLimit(self.limit(random)),
            15..=18 => {
                let expiry = self.may_expire && random.one_in(2);
                let expires_after = expiry.then(|| Millis(1 + random.below(5_000)));
                Command::Extend(Extend::new(self.operation(random), expires_after).expect(VALID))
            }
            19..=66 => Command::Transfer(self.transfer(random)),
            67..=75 => {
                let transfers = (0..1 + random.below(12)).map(|_| self.transfer(random)).collect();
                Command::Batch(Batch::new(transfers).expect(VALID))
            }
            76..=85 => {
                let limit_names = self.some_limits(random);
                let as_of = match random.below(4) {
                    0 => AsOf::Now,
                    1 => AsOf::Position(Position(random.below(2_000))),
                    _ => AsOf::Operation(self.operation(random)),
                };
                Command::Values(Values::new(limit_names, as_of).expect(VALID))
            }
            86..=90 => Command::GetOperation(self.operation(random)),
            91..=94 => Command::ListOperations {
                filter: OperationFilter {
                    only_held: random.one_in(2),
                    older_than: random.one_in(4).then(|| Millis(random.below(5_000))),
                    limit_name: random.one_in(4).then(|| self.limit(random)),
                },
                page: page(random, |random| self.operation(random)),
            },
            _ => Command::ListEntries {
                limit_name: self.limit(random),
                page: page(random, |random| Position(random.below(1_000))),
            },
        }
    }

    fn transfer(&self, random: &mut Random) -> Transfer {
        let operation_id = self.operation(random);
        if random.one_in(2) {
            let changes = self
                .some_limits(random)
                .into_iter()
                .map(|limit_name| Change {
                    limit_name,
                    value: value(random),
                    limit_id: random.one_in(3).then(|| name("held")),
                    context: context(random),
                    ceiling: random.one_in(3).then(|| value(random)),
                })
                .collect();
            let hold = Hold::new(operation_id, changes)
                .expect(VALID)
                .with_skip_existing_holds(random.one_in(2))
                .with_create_missing(random.one_in(2));
            let expiry = (self.may_expire && random.one_in(3)).then(|| Millis(1 + random.below(5_000)));
            return Transfer::Hold(hold.with_expires_after(expiry).expect(VALID));
        }
        let change = |random: &mut Random, limit_name| FinalizationChange {
            limit_name,
            value: random.one_in(2).then(|| value(random)),
        };
        let changes = random
            .one_in(2)
            .then(|| self.some_limits(random).into_iter().map(|limit| change(random, limit)).collect());
        let finish = if random.one_in(2) { Finish::Commit } else { Finish::Rollback };
        Transfer::Finish(finish, Finalization::new(operation_id, changes).expect(VALID))
    }

    fn limit(&self, random: &mut Random) -> Name {
        random.pick(&self.limits).clone()
    }

    /// One or more limits, each once.
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
    let texts = (0..random.below(3)).map(|i| (format!("k{i}"), format!("v{}", random.below(9))));
    Context::new(texts).expect(VALID)
}
