//! Random commands about decisions, locks, leases and holds, with reopenings: a part never exists without its decision, nor
//! an open decision without its parts; what is counted as it changes is what there is; and when all has ended, nothing is in
//! use.

use bytes::Bytes;
use limina_engine::{
    Applied, Command, Engine, Fetched, Job, KeyValues, Listed, Millis, Missing, Name, Options, Outcome, Page,
    Position, Read, ReadResult, Request, Time,
    decisions::{self, Decide, Decision, PartCheck, PartEvent, Parts, Settle, State},
    events::{self, Mode as Duplicates, StreamTerms, Submit},
    key_values::Value,
    ledger::{self, Change, NewLimit, OperationFilter},
    limiter::{self, Change as Rules, Check, Limit, NewRule, RuleChange, Take, Window},
    locks::{self, Acquire, Lock, LockRequest, Mode},
    record,
    selection::Query,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone)]
enum Step {
    /// The id, and which parts.
    Decide {
        id: u8,
        checks: Vec<(u8, u64, bool)>,
        holds: Vec<(u8, i64)>,
        locks: Vec<(u8, bool)>,
        event: Option<u8>,
    },
    Settle {
        id: u8,
        percent: i64,
        record: bool,
    },
    Rollback(u8),
    Heartbeat(u8),
    Force(u8),
    Lock {
        key: u8,
        wait: u64,
    },
    Check {
        key: u8,
        hits: i64,
    },
    Event(u8),
    Pass(u64),
    Reopen,
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let checks = prop::collection::vec((0_u8..4, 0_u64..6, any::<bool>()), 0..3);
    let holds = prop::collection::btree_map(0_u8..3, -20_i64..40, 0..3);
    let wanted = prop::collection::btree_map(0_u8..3, any::<bool>(), 0..3);
    let decide = (0_u8..8, checks, holds, wanted, prop::option::of(0_u8..3)).prop_map(
        |(id, checks, holds, locks, event)| Step::Decide {
            id,
            checks,
            holds: holds.into_iter().collect(),
            locks: locks.into_iter().collect(),
            event,
        },
    );
    let step = prop_oneof![
        6 => decide,
        4 => (0_u8..8, -10_i64..200, any::<bool>()).prop_map(|(id, percent, record)| Step::Settle { id, percent, record }),
        2 => (0_u8..8).prop_map(Step::Rollback),
        1 => (0_u8..8).prop_map(Step::Heartbeat),
        1 => (0_u8..8).prop_map(Step::Force),
        2 => (0_u8..3, 0_u64..2).prop_map(|(key, wait)| Step::Lock { key, wait: wait * 500 }),
        1 => (0_u8..4, 0_i64..4).prop_map(|(key, hits)| Step::Check { key, hits }),
        1 => (0_u8..3).prop_map(Step::Event),
        3 => (1_u64..700).prop_map(Step::Pass),
        1 => Just(Step::Reopen),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn parts_live_and_end_with_their_decision(steps in steps()) {
        let mut bench = Bench::new();
        for (number, step) in steps.iter().enumerate() {
            bench.play(number, step);
            bench.check();
        }
        bench.end_all();
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn one(key: &str, value: u8) -> KeyValues {
    KeyValues::new(vec![(key, Value::<&str>::Integer(value.into()))]).unwrap()
}

/// The kind of the rule that applies to a key.
fn rule_key(key: u8) -> KeyValues {
    one(["slot", "fixed", "sliding", "bucket"][usize::from(key)], 1)
}

struct Bench {
    engine: Engine,
    stored: BTreeMap<Bytes, Bytes>,
    now: Time,
    /// What each decision has committed in each limit.
    committed: BTreeMap<Name, i64>,
}

impl Bench {
    fn new() -> Bench {
        let engine = Engine::open(Options::default(), []).unwrap();
        let mut bench =
            Bench { engine, stored: BTreeMap::new(), now: Time(1_000_000), committed: BTreeMap::new() };
        let per = Millis(1_000);
        let windows = [
            ("slot", None),
            ("fixed", Some(Window::Fixed { per })),
            ("sliding", Some(Window::Sliding { per })),
            ("bucket", Some(Window::Bucket { per, burst: Some(12) })),
        ];
        for (key, window) in windows {
            let rule = NewRule {
                name: name(key),
                group_by: vec![key.into()],
                selection: Default::default(),
                limit: Limit::AtMost(10),
                window,
                shadow: false,
                durability: None,
                description: None,
            };
            let change = RuleChange::new(Rules::CreateRule(rule)).unwrap();
            bench.ask(Command::Limiter(limiter::Command::Change(change)));
        }
        for limit in ["l0", "l1", "l2"] {
            let (limit_id, context) = (None, Default::default());
            let new = NewLimit { limit_id, context, ceiling: Some(100), ..NewLimit::new(name(limit)) };
            bench.ask(Command::Ledger(ledger::Command::CreateLimit(new)));
        }
        for (stream, mode) in [("s0", Duplicates::OnlyOnce), ("s1", Duplicates::StrictlyOnce)] {
            let terms = StreamTerms::new(mode, Millis(400)).unwrap();
            bench.ask(Command::Events(events::Command::Put { name: name(stream), terms }));
        }
        bench
    }

    fn play(&mut self, number: usize, step: &Step) {
        let operation = |id: &u8| name(&format!("op{id}-{}", number / 16));
        let command = match step {
            Step::Decide { id, checks, holds, locks, event } => {
                let checks = checks.iter().enumerate().map(|(place, (key, hits, estimate))| PartCheck {
                    name: Some(name(&format!("c{place}"))),
                    estimate: *estimate,
                    ..PartCheck::new(rule_key(*key), *hits)
                });
                let holds =
                    holds.iter().map(|(limit, value)| Change::new(name(&format!("l{limit}")), *value));
                let mode = |shared| if shared { Mode::Shared } else { Mode::Exclusive };
                let locks = locks
                    .iter()
                    .map(|(key, shared)| Lock { key_values: one("lock", *key), mode: mode(*shared) });
                let event =
                    event.map(|event| PartEvent::new(name(&format!("s{}", event % 2)), &format!("e{event}")));
                let parts = Parts {
                    checks: checks.collect(),
                    holds: holds.collect(),
                    create_missing: false,
                    locks: locks.collect(),
                    event,
                };
                let Ok(decide) = Decide::new(operation(id), parts) else { return };
                decisions::Command::Decide(decide.with_ttl(Millis(600)).unwrap().into())
            }
            Step::Settle { id, percent, record } => {
                let Some(open) = self.decisions().into_iter().find(|open| open.operation_id == operation(id))
                else {
                    let late = Settle::new(operation(id)).with_record(*record);
                    return self.settle(late);
                };
                let info = self.operation(&open.operation_id);
                let holds = info.into_iter().flat_map(|info| info.holds);
                let holds = holds.map(|hold| (hold.limit_name, hold.held_value * percent / 100));
                let settle = Settle::new(operation(id)).with_holds(holds).unwrap();
                return self.settle(settle.with_record(*record));
            }
            Step::Rollback(id) => decisions::Command::Rollback(operation(id)),
            Step::Heartbeat(id) => decisions::Command::Heartbeat(operation(id)),
            Step::Force(id) => {
                let grants = self.grants();
                let Some(grant) = grants.iter().find(|grant| grant.operation_id == Some(operation(id)))
                else {
                    return;
                };
                let release = locks::Command::Release { id: grant.lock_id.clone(), session: None };
                self.ask(Command::Locks(release));
                return;
            }
            Step::Lock { key, wait } => {
                let lock = Lock { key_values: one("lock", *key), mode: Mode::Exclusive };
                let id = name(&format!("g{number}"));
                let wanted = Acquire::new(vec![lock], Millis(300)).unwrap().with_wait(Millis(*wait)).unwrap();
                let request = LockRequest { id: id.clone(), session: id, wanted };
                self.ask(Command::Locks(locks::Command::Acquire(request)));
                return;
            }
            Step::Check { key, hits } => {
                // What a check takes from slots would stay in use.
                let key = if *key == 0 { 1 } else { *key };
                let check = Check::new(vec![Take::new(rule_key(key), *hits).unwrap()]).unwrap();
                self.ask(Command::Limiter(limiter::Command::Check(check)));
                return;
            }
            Step::Event(event) => {
                let submit =
                    Submit::new(name(&format!("s{}", event % 2)), format!("e{event}").into()).unwrap();
                self.ask(Command::Events(events::Command::Submit(submit)));
                return;
            }
            Step::Pass(millis) => {
                self.now = self.now.after(Millis(*millis));
                return;
            }
            Step::Reopen | Step::Restart => {
                self.reopen();
                if matches!(step, Step::Restart) {
                    self.engine.apply_grace_period(self.now);
                }
                return;
            }
        };
        self.ask(Command::Decisions(command));
    }

    fn settle(&mut self, settle: Settle) {
        let id = settle.operation_id.clone();
        let settled = self.ask(Command::Decisions(decisions::Command::Settle(settle)));
        if let Some(Outcome::Decisions(Ok(decisions::Reply::Ended(decision)))) = settled {
            assert_eq!(decision.state, State::Committed);
            let info = self.operation(&id);
            let values =
                info.into_iter().flat_map(|info| info.holds).map(|hold| match hold.committed_value {
                    Some(value) => value,
                    None => panic!("{id} is committed, and its hold is {hold:?}"),
                });
            let sum = values.sum();
            self.committed.insert(id, sum);
        }
    }

    /// Every invariant that the lists can show.
    fn check(&mut self) {
        self.apply_due();
        let open = self.decisions();
        let ids: BTreeSet<Name> = open.iter().map(|decision| decision.operation_id.clone()).collect();
        let leased: BTreeMap<Name, usize> =
            self.leases().into_iter().fold(BTreeMap::new(), |mut sum, lease| {
                *sum.entry(lease).or_default() += 1;
                sum
            });
        assert!(leased.keys().all(|id| ids.contains(id)), "a lease without its decision");
        let locked: BTreeSet<Name> =
            self.grants().into_iter().filter_map(|grant| grant.operation_id).collect();
        let wanted = open.iter().filter(|decision| !decision.locks.is_empty());
        assert_eq!(locked, wanted.map(|decision| decision.operation_id.clone()).collect());
        let held: BTreeSet<Name> = self.held_operations().into_iter().collect();
        let holding = open.iter().filter(|decision| !decision.values.is_empty());
        assert_eq!(held, holding.map(|decision| decision.operation_id.clone()).collect());
        let namespace = name("default");
        assert_eq!(self.engine.usage(&namespace), self.engine.recount(&namespace));
        for limit in self.limits() {
            // A ceiling is judged at each positive hold, and `record` may pass it. No sum may overflow.
            limit.commit_value.checked_add(limit.hold_value).unwrap();
        }
    }

    /// Rolls everything back that is open: then nothing is in use, and the sums are those that were committed.
    fn end_all(&mut self) {
        for decision in self.decisions() {
            self.ask(Command::Decisions(decisions::Command::Rollback(decision.operation_id)));
        }
        // Whoever waits is granted its lock when the holder's has expired, and then its own expires.
        for _ in 0..8 {
            self.now = self.now.after(Millis(1_000));
            self.check();
        }
        assert!(self.decisions().is_empty() && self.leases().is_empty() && self.grants().is_empty());
        let usage = self.engine.usage(&name("default")).unwrap();
        assert_eq!((usage.limiter.counters, usage.decisions), (0, 0));
        let limits = self.limits();
        assert!(limits.iter().all(|limit| limit.hold_value == 0));
        let committed: i64 = limits.iter().map(|limit| limit.commit_value).sum();
        assert_eq!(committed, self.committed.values().sum::<i64>());
    }

    fn decisions(&mut self) -> Vec<Decision> {
        let page = Page::new(None, 1_000).unwrap();
        let list = decisions::Command::List { owner: None, older_than: None, page };
        match self.ask(Command::Decisions(list)) {
            Some(Outcome::Decisions(Ok(decisions::Reply::Decisions(list)))) => list.items,
            other => panic!("{other:?}"),
        }
    }

    /// The decision of each lease.
    fn leases(&mut self) -> Vec<Name> {
        let list = limiter::Command::ListLeases { owner: None, page: Page::new(None, 1_000).unwrap() };
        match self.ask(Command::Limiter(list)) {
            Some(Outcome::Limiter(Ok(limiter::Reply::Leases(list)))) => {
                list.items.into_iter().map(|lease| lease.operation_id.unwrap()).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn grants(&mut self) -> Vec<locks::GrantInfo> {
        let page = Page::<Position>::new(None, 1_000).unwrap();
        match self.ask(Command::Locks(locks::Command::List { query: Query::default(), page })) {
            Some(Outcome::Locks(Ok(locks::Reply::Grants(list)))) => list.items,
            other => panic!("{other:?}"),
        }
    }

    fn held_operations(&mut self) -> Vec<Name> {
        let page = Page::new(None, 100).unwrap();
        let list = ledger::Command::ListOperations { filter: OperationFilter::held(), page };
        match self.ask(Command::Ledger(list)) {
            Some(Outcome::Ledger(Ok(ledger::Reply::Operations(list)))) => {
                list.items.into_iter().map(|operation| operation.operation_id).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    fn operation(&mut self, id: &Name) -> Option<ledger::Operation> {
        match self.ask(Command::Ledger(ledger::Command::GetOperation(id.clone()))) {
            Some(Outcome::Ledger(Ok(ledger::Reply::Operation(info)))) => Some(info),
            _ => None,
        }
    }

    fn limits(&mut self) -> Vec<ledger::Limit> {
        match self.ask(Command::Ledger(ledger::Command::ListLimits(Page::new(None, 100).unwrap()))) {
            Some(Outcome::Ledger(Ok(ledger::Reply::Limits(Listed { items, .. })))) => items,
            other => panic!("{other:?}"),
        }
    }

    /// The outcome, unless the request waits.
    fn ask(&mut self, command: Command) -> Option<Outcome> {
        self.apply_due();
        let mut job = Job::new(Request::new(name("default"), command));
        let applied = self.with_fetching(|engine, now, fetched| engine.apply(now, &mut job, fetched));
        self.engine.take_completions();
        match applied {
            Applied::Done { outcome, .. } => Some(outcome),
            Applied::Waiting(_) => None,
            Applied::Unfinished => unreachable!("no batch is sent"),
        }
    }

    fn apply_due(&mut self) {
        while let Some(due) = self.engine.due(self.now, 1).pop() {
            self.with_fetching(|engine, now, fetched| engine.apply_due(now, due, fetched));
        }
    }

    fn with_fetching<R>(
        &mut self,
        mut run: impl FnMut(&mut Engine, Time, &Fetched) -> Result<R, Missing>,
    ) -> R {
        let mut fetched = Fetched::default();
        loop {
            match run(&mut self.engine, self.now, &fetched) {
                Ok(result) => return result,
                Err(Missing(reads)) => {
                    for read in reads {
                        let answer = self.answer(&read);
                        fetched.insert(read, answer);
                    }
                }
            }
        }
    }

    fn answer(&self, read: &Read) -> ReadResult {
        let copy = |(key, value): (&Bytes, &Bytes)| (key.clone(), value.clone());
        match read {
            Read::Get(key) => ReadResult::Value(self.stored.get(key).cloned()),
            Read::LastAtOrBefore { from, at } => {
                ReadResult::Last(self.stored.range(from.clone()..=at.clone()).next_back().map(copy))
            }
            Read::Scan { from, to, limit } => {
                ReadResult::Page(self.stored.range(from.clone()..to.clone()).take(*limit).map(copy).collect())
            }
        }
    }

    fn reopen(&mut self) {
        for write in self.engine.seal().writes.iter() {
            let key = Bytes::copy_from_slice(write.key);
            match write.value {
                Some(value) => self.stored.insert(key, Bytes::copy_from_slice(value)),
                None => self.stored.remove(&key),
            };
        }
        let residents: Vec<_> =
            self.stored.range(record::key::residents()).map(|(k, v)| (k.clone(), v.clone())).collect();
        self.engine = Engine::open(Options::default(), residents).unwrap();
    }
}
