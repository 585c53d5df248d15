//! Random commands about decisions over holds and locks. There are few limits and locks, so that many decisions are refused,
//! and spans differ by only a few milliseconds.

use super::{VALID, name, page};
use crate::random::Random;
use limina_engine::{
    KeyValues, Millis, Name, Position,
    decisions::{Batch, BatchItem, Command, Decide, Parts, Settle},
    key_values::Value,
    ledger::Change,
    locks::{Lock, Mode},
};

/// Later commands refer to one of this many last requests.
const REMEMBERED: usize = 6;

/// The limits and locks to choose from, and the last requests.
#[derive(Debug, Clone)]
pub struct DecisionWorkload {
    limits: u64,
    locks: u64,
    spans: Vec<u64>,
    asked: Vec<Decide>,
    count: u64,
}

impl DecisionWorkload {
    /// Chooses at random how many names there are, and so how often requests use the same ones.
    pub fn new(random: &mut Random) -> DecisionWorkload {
        let spans = *random.pick(&[&[100, 101, 104][..], &[120, 200, 1_000], &[100, 5_000], &[150, 60_000]]);
        DecisionWorkload {
            limits: 1 + random.below(4),
            locks: 1 + random.below(4),
            spans: spans.to_vec(),
            asked: Vec::new(),
            count: 0,
        }
    }

    /// The next random command.
    pub fn command(&mut self, random: &mut Random) -> Command {
        match random.below(100) {
            0..=39 => Command::Decide(self.fresh(random)),
            40..=49 => {
                let again = self.remembered(random);
                Command::Decide(again.with_dry_run(random.one_in(4)))
            }
            50..=69 => Command::Settle(self.settle(random)),
            70..=73 => {
                let items = (0..1 + random.below(4)).map(|_| match random.below(4) {
                    0 | 1 => BatchItem::Decide(self.fresh(random)),
                    2 => BatchItem::Settle(self.settle(random)),
                    _ => BatchItem::Rollback(self.id(random)),
                });
                Command::Batch(Batch::new(items.collect()).expect(VALID))
            }
            74..=77 => Command::Rollback(self.id(random)),
            78..=85 => Command::Heartbeat(self.id(random)),
            86..=92 => Command::Get(self.id(random)),
            _ => Command::List {
                owner: random.one_in(3).then(|| name("owner")),
                older_than: random.one_in(3).then(|| Millis(*random.pick(&self.spans))),
                page: page(random, |random| Position(random.below(2 * self.count + 2))),
            },
        }
    }

    /// A read that shows everything that is open.
    pub fn look(&self) -> Command {
        Command::List { owner: None, older_than: None, page: super::whole() }
    }

    fn fresh(&mut self, random: &mut Random) -> Decide {
        self.count += 1;
        let limits = (0..self.limits).filter(|_| random.one_in(2)).collect::<Vec<_>>();
        let holds = limits.into_iter().map(|limit| {
            let value = random.below(60) as i64 - 15;
            let ceiling = (!random.one_in(3)).then_some(100);
            Change { ceiling, ..Change::new(name(&format!("limit{limit}")), value) }
        });
        let holds: Vec<Change> = holds.collect();
        let locks = (0..self.locks).filter(|_| random.one_in(3)).collect::<Vec<_>>();
        let lock = |lock: u64| Lock {
            key_values: KeyValues::new(vec![("lock", Value::<&str>::Integer(lock as i64))]).expect(VALID),
            mode: if random.one_in(2) { Mode::Exclusive } else { Mode::Shared },
        };
        let mut locks: Vec<Lock> = locks.into_iter().map(lock).collect();
        if holds.is_empty() && locks.is_empty() {
            let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(0))]).expect(VALID);
            locks.push(Lock { key_values, mode: Mode::Shared });
        }
        let parts = Parts { holds, create_missing: !random.one_in(4), locks, ..Parts::default() };
        // Sometimes another request under an id that is in use.
        let id = if random.one_in(8) { self.id(random) } else { name(&format!("op{}", self.count)) };
        let decide = Decide::new(id, parts).expect(VALID);
        let decide = decide.with_ttl(Millis(*random.pick(&self.spans))).expect(VALID);
        let decide =
            decide.with_owner(random.one_in(3).then(|| name("owner"))).with_dry_run(random.one_in(10));
        self.asked.push(decide.clone());
        if self.asked.len() > REMEMBERED {
            self.asked.remove(0);
        }
        decide
    }

    fn settle(&mut self, random: &mut Random) -> Settle {
        let decide = self.remembered(random);
        let mut holds = Vec::new();
        for change in &decide.parts().holds {
            if random.one_in(2) {
                let value = match random.below(4) {
                    0 => 0,
                    1 => change.value / 2,
                    2 => change.value,
                    _ => change.value * 2 + 1,
                };
                holds.push((change.limit_name.clone(), value));
            }
        }
        let settle = Settle::new(decide.operation_id().clone()).with_holds(holds).expect(VALID);
        settle.with_record(random.one_in(3))
    }

    fn id(&mut self, random: &mut Random) -> Name {
        match self.asked.is_empty() {
            true => name("nobody"),
            false => random.pick(&self.asked).operation_id().clone(),
        }
    }

    fn remembered(&mut self, random: &mut Random) -> Decide {
        if self.asked.is_empty() {
            return self.fresh(random);
        }
        random.pick(&self.asked).clone()
    }
}
