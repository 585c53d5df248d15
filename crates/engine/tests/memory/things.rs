//! Makes many of each kind of thing that a namespace may have, and removes them again.

use limina_engine::{
    Applied, Command, Due, Engine, Fetched, Job, KeyValues, Millis, Name, Read, ReadResult, Request, Time,
    decisions::{self, Decide, DecideRequest, Parts},
    events::{self, StreamTerms, Submit},
    key_values::Value,
    ledger::{self, Change as Held, Hold, NewLimit, Transfer},
    limiter::{self, Change, CounterChange, Limit, NewLease, NewOverride, NewRule, RuleChange, Take, Window},
    locks::{self, Acquire, Lock, LockRequest, Mode},
    selection::{Selection, Test},
};
use std::ops::Range;

/// One kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thing {
    Rule,
    RuleWithCondition,
    Override,
    Window,
    SlidingWindow,
    Bucket,
    Counter,
    CounterWithGroup,
    Lease,
    LedgerLimit,
    HoldThatExpires,
    Stream,
    Event,
    Lock,
    LockWait,
    SlotWait,
    Decision,
    DecisionWait,
}

impl Thing {
    pub(crate) const ALL: [Thing; 18] = [
        Thing::Rule,
        Thing::RuleWithCondition,
        Thing::Override,
        Thing::Window,
        Thing::SlidingWindow,
        Thing::Bucket,
        Thing::Counter,
        Thing::CounterWithGroup,
        Thing::Lease,
        Thing::LedgerLimit,
        Thing::HoldThatExpires,
        Thing::Stream,
        Thing::Event,
        Thing::Lock,
        Thing::LockWait,
        Thing::SlotWait,
        Thing::Decision,
        Thing::DecisionWait,
    ];

    /// What a namespace must have before it can have the thing.
    fn conditions(self) -> Vec<Command> {
        let rule_with = |window| vec![change(Change::CreateRule(rule("rule", window)))];
        match self {
            Thing::Override | Thing::CounterWithGroup => rule_with(None),
            Thing::Window => rule_with(Some(Window::Fixed { per: PER })),
            Thing::SlidingWindow => rule_with(Some(Window::Sliding { per: PER })),
            Thing::Bucket => rule_with(Some(Window::Bucket { per: PER, burst: None })),
            Thing::HoldThatExpires => vec![ledger_limit("limit")],
            Thing::Event => vec![stream("stream")],
            Thing::LockWait | Thing::DecisionWait => vec![acquire("holder", "door", Millis(0))],
            Thing::SlotWait => {
                let one =
                    NewRule { group_by: vec!["queue".into()], limit: Limit::AtMost(1), ..rule("one", None) };
                vec![change(Change::CreateRule(one)), lease("holder", Millis(0))]
            }
            _ => Vec::new(),
        }
    }

    fn create(self, number: usize) -> Command {
        let text = format!("name-{number:07}");
        let user = KeyValues::new(vec![("user", Value::String(text.as_str()))]).expect("valid");
        match self {
            Thing::Rule => change(Change::CreateRule(rule(&text, Some(Window::Fixed { per: PER })))),
            Thing::RuleWithCondition => {
                let tests = vec![Test::Eq(Value::String(text.as_str().into()))];
                let selection = Selection::new(vec![("provider".into(), tests)]).expect("valid");
                change(Change::CreateRule(NewRule { selection, ..rule(&text, None) }))
            }
            Thing::Override => {
                let new =
                    NewOverride { name: name(&text), key_values: user, limit: Limit::AtMost(5), burst: None };
                change(Change::PutOverride { rule: name("rule"), new })
            }
            Thing::Window | Thing::SlidingWindow | Thing::Bucket => {
                let take = Take::new(user, 1).expect("valid");
                let check = limiter::Check::new(vec![take]).expect("valid");
                Command::Limiter(limiter::Command::Check(check))
            }
            Thing::Counter | Thing::CounterWithGroup => {
                let change = CounterChange::new(user, 1).expect("valid");
                Command::Limiter(limiter::Command::SetCounter(change))
            }
            Thing::Lease => lease(&text, Millis(0)),
            Thing::LedgerLimit => ledger_limit(&text),
            Thing::HoldThatExpires => {
                let hold = Hold::new(name(&text), vec![Held::new(name("limit"), 1)]).expect("valid");
                let hold = hold.with_expires_after(Some(PER)).expect("valid");
                Command::Ledger(ledger::Command::Transfer(Transfer::Hold(hold)))
            }
            Thing::Stream => stream(&text),
            Thing::Event => {
                let submit = Submit::new(name("stream"), text.as_str().into()).expect("valid");
                Command::Events(events::Command::Submit(submit))
            }
            Thing::Lock => acquire(&text, &text, Millis(0)),
            Thing::LockWait => acquire(&text, "door", WAIT),
            Thing::SlotWait => lease(&text, WAIT),
            Thing::Decision => decide(&text, &text),
            Thing::DecisionWait => {
                let Command::Decisions(decisions::Command::Decide(decide)) = decide(&text, "door") else {
                    unreachable!("it is a decision")
                };
                let wanted = Decide::clone(&decide.wanted).with_wait(WAIT).expect("valid").into();
                let request = DecideRequest { wanted, waiter: Some(name("waiter")) };
                Command::Decisions(decisions::Command::Decide(request))
            }
        }
    }

    /// Removes the thing, unless it ends by itself when its time has come.
    fn remove(self, number: usize) -> Option<Command> {
        let text = format!("name-{number:07}");
        let key_values = || KeyValues::new(vec![("user", Value::String(text.as_str()))]).expect("valid");
        Some(match self {
            Thing::Rule | Thing::RuleWithCondition => change(Change::DeleteRule(name(&text))),
            Thing::Override => change(Change::DeleteOverride { rule: name("rule"), name: name(&text) }),
            Thing::Counter | Thing::CounterWithGroup => {
                let zero = CounterChange::new(key_values(), 0).expect("valid");
                Command::Limiter(limiter::Command::SetCounter(zero))
            }
            Thing::LedgerLimit => Command::Ledger(ledger::Command::DeleteLimit(name(&text))),
            Thing::Stream => Command::Events(events::Command::Delete(name(&text))),
            _ => return None,
        })
    }
}

const PER: Millis = Millis(86_400_000);
const WAIT: Millis = Millis(300_000);

/// An engine and the records that it has written.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) store: std::collections::BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) now: Time,
    /// Whether the records are kept.
    pub(crate) is_stored: bool,
}

impl World {
    pub(crate) fn new() -> World {
        let engine = Engine::open(limina_engine::Options::default(), []).expect("nothing is damaged");
        World { engine, store: Default::default(), now: Time(1_000_000), is_stored: true }
    }

    pub(crate) fn prepare(&mut self, namespace: &str, thing: Thing) {
        for command in thing.conditions() {
            self.run(namespace, command);
        }
    }

    pub(crate) fn create(&mut self, namespace: &str, thing: Thing, numbers: Range<usize>) {
        for number in numbers {
            self.run(namespace, thing.create(number));
            if number % 500 == 499 {
                self.seal();
            }
        }
    }

    pub(crate) fn remove(&mut self, namespace: &str, thing: Thing, numbers: Range<usize>) {
        for number in numbers {
            if let Some(command) = thing.remove(number) {
                self.run(namespace, command);
            }
            if number % 500 == 499 {
                self.seal();
            }
        }
    }

    fn run(&mut self, namespace: &str, command: Command) {
        let mut job = Job::new(Request::new(name(namespace), command));
        let mut fetched = Fetched::default();
        loop {
            match self.engine.apply(self.now, &mut job, &fetched) {
                Ok(Applied::Done { outcome, .. }) => return assert!(outcome.is_done(), "{outcome:?}"),
                Ok(Applied::Waiting(_)) => return,
                Ok(Applied::Unfinished) => {}
                Err(missing) => fetch(&self.store, &mut fetched, missing.0),
            }
        }
    }

    /// Lets time pass, and does everything that is due then, and all work in the background.
    pub(crate) fn pass(&mut self, by: Millis) {
        let until = self.now.after(by);
        while let Some(at) = self.engine.next_due().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            for due in self.engine.due(self.now, 512) {
                self.apply_due(due);
            }
            self.seal();
        }
        self.now = until;
        while let Some(due) =
            self.engine.next_backfill().or(self.engine.next_free()).or(self.engine.next_sweep())
        {
            self.apply_due(due);
            self.seal();
        }
    }

    fn apply_due(&mut self, due: Due) {
        let mut fetched = Fetched::default();
        while let Err(missing) = self.engine.apply_due(self.now, due, &fetched) {
            fetch(&self.store, &mut fetched, missing.0);
        }
        self.engine.take_completions();
    }

    /// Stores what was written since the last time.
    pub(crate) fn seal(&mut self) {
        let sealed = self.engine.seal();
        for write in sealed.writes.iter().filter(|_| self.is_stored) {
            match write.value {
                Some(value) => self.store.insert(write.key.to_vec(), value.to_vec()),
                None => self.store.remove(write.key),
            };
        }
    }
}

fn fetch(store: &std::collections::BTreeMap<Vec<u8>, Vec<u8>>, fetched: &mut Fetched, reads: Vec<Read>) {
    for read in reads {
        let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone().into(), value.clone().into());
        let result = match &read {
            Read::Get(key) => ReadResult::Value(store.get(&key[..]).map(|value| value.clone().into())),
            Read::LastAtOrBefore { from, at } => {
                ReadResult::Last(store.range(from.to_vec()..=at.to_vec()).next_back().map(pair))
            }
            Read::Scan { from, to, limit } => {
                ReadResult::Page(store.range(from.to_vec()..to.to_vec()).take(*limit).map(pair).collect())
            }
        };
        fetched.insert(read, result);
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

fn rule(text: &str, window: Option<Window>) -> NewRule {
    NewRule {
        name: name(text),
        group_by: vec!["user".into()],
        selection: Selection::default(),
        limit: Limit::AtMost(1_000_000),
        window,
        shadow: false,
        durability: None,
        description: None,
    }
}

fn change(change: Change) -> Command {
    Command::Limiter(limiter::Command::Change(RuleChange::new(change).expect("a valid change")))
}

fn ledger_limit(text: &str) -> Command {
    let new = NewLimit::new(name(text));
    Command::Ledger(ledger::Command::CreateLimit(new))
}

fn lease(text: &str, wait: Millis) -> Command {
    let slot = KeyValues::new(vec![("queue", Value::String("mail"))]).expect("valid");
    let lease = NewLease::new(name(text), name(text), slot, 1, PER).expect("valid");
    Command::Limiter(limiter::Command::TakeLease(lease.with_wait(wait).expect("valid")))
}

fn stream(text: &str) -> Command {
    let terms = StreamTerms::new(events::Mode::OnlyOnce, PER).expect("valid");
    let terms = terms.with_max_events(1_000_000).expect("valid");
    Command::Events(events::Command::Put { name: name(text), terms })
}

fn locks(door: &str) -> Vec<Lock> {
    let key_values = KeyValues::new(vec![("door", Value::String(door))]).expect("valid");
    vec![Lock { key_values, mode: Mode::Exclusive }]
}

fn acquire(id: &str, door: &str, wait: Millis) -> Command {
    let wanted = Acquire::new(locks(door), PER).and_then(|wanted| wanted.with_wait(wait)).expect("valid");
    let session = name(&format!("{id}-session"));
    Command::Locks(locks::Command::Acquire(LockRequest { id: name(id), session, wanted }))
}

fn decide(id: &str, door: &str) -> Command {
    let parts = Parts { locks: locks(door), ..Parts::default() };
    let decide = Decide::new(name(id), parts).and_then(|decide| decide.with_ttl(PER)).expect("valid");
    Command::Decisions(decisions::Command::Decide(decide.into()))
}
