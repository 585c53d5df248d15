//! Random commands about decisions with all kinds of parts, and commands of the families that meet these parts. There are few
//! limits, locks, slots and events, so that most decisions wait or are refused, and spans differ by only a few milliseconds.

use super::valid::{VALID, name, page, whole};
use crate::random::Random;
use limina_engine::{
    Command, KeyValues, Millis, Name, Page, Position,
    decisions::{self, Batch, BatchItem, Decide, DecideRequest, PartCheck, PartEvent, Parts, Settle},
    events::{self, ChangesAfter, StreamTerms, Submit},
    key_values::Value,
    ledger::{self, Finalization, Finish, OperationFilter, Transfer},
    limiter::{self, Change, Check, Durability, Limit, NewRule, RuleChange, RulePatch, Take, Window},
    locks::{self, Lock, Mode},
    selection::{Query, Selection},
};

/// Later commands refer to one of this many last requests.
const REMEMBERED: usize = 6;

/// The names to choose from, and the last requests.
#[derive(Debug, Clone)]
pub struct DecisionWorkload {
    limits: u64,
    locks: u64,
    streams: u64,
    /// Rules of all kinds, which exist from the beginning. Without rules there are no checks.
    rules: Vec<NewRule>,
    spans: Vec<u64>,
    asked: Vec<DecideRequest>,
    /// The positions of the last decisions that were made.
    made: Vec<u64>,
    count: u64,
}

impl DecisionWorkload {
    /// Chooses at random how many names there are, and so how often requests use the same ones.
    pub fn new(random: &mut Random) -> DecisionWorkload {
        let spans = *random.pick(&[&[100, 101, 104][..], &[120, 200, 1_000], &[100, 5_000], &[150, 60_000]]);
        let rules = if random.one_in(4) { 0 } else { 1 + random.below(4) };
        let rules = (0..rules).map(|number| rule(random, number)).collect();
        DecisionWorkload {
            limits: 1 + random.below(4),
            locks: 1 + random.below(4),
            streams: random.below(3),
            rules,
            spans: spans.to_vec(),
            asked: Vec::new(),
            made: Vec::new(),
            count: 0,
        }
    }

    /// The spans in use.
    pub fn spans(&self) -> &[u64] {
        &self.spans
    }

    /// The commands that must be done before all others, because the model does not know how long a new rule takes to count.
    pub fn setup(&self, random: &mut Random) -> Vec<Command> {
        let rules = self.rules.iter().cloned().map(Change::CreateRule).map(change);
        let streams = (0..self.streams).map(|stream| self.put(random, stream));
        rules.chain(streams).collect()
    }

    /// Whether there are rules, so that checks are decided about.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The names of all streams that may exist.
    pub fn streams(&self) -> impl Iterator<Item = Name> {
        (0..self.streams).map(stream_name)
    }

    /// A decision was made at this position. Later commands may release its parts.
    pub fn note_made(&mut self, position: Position) {
        self.made.push(position.0);
        self.made.drain(..self.made.len().saturating_sub(REMEMBERED));
    }

    /// The next random command.
    pub fn command(&mut self, random: &mut Random) -> Command {
        let of_family = random.one_in(6);
        if of_family && random.one_in(2) && self.has_rules() {
            return self.of_limiter(random);
        }
        if of_family {
            return self.of_others(random);
        }
        Command::Decisions(match random.below(100) {
            0..=41 => decisions::Command::Decide(self.fresh(random, true)),
            42..=49 => {
                let again = self.remembered(random);
                let again = self.with_wait(random, again);
                let wanted = Decide::clone(&again.wanted).with_dry_run(random.one_in(4));
                decisions::Command::Decide(DecideRequest { wanted: wanted.into(), ..again })
            }
            50..=66 => decisions::Command::Settle(self.settle(random)),
            67..=70 => {
                let items = (0..1 + random.below(4)).map(|_| match random.below(4) {
                    0 | 1 => BatchItem::Decide(self.fresh(random, false)),
                    2 => BatchItem::Settle(self.settle(random)),
                    _ => BatchItem::Rollback(self.id(random)),
                });
                decisions::Command::Batch(Batch::new(items.collect()).expect(VALID))
            }
            71..=77 => decisions::Command::Rollback(self.id(random)),
            78..=83 => decisions::Command::Heartbeat(self.id(random)),
            84..=88 => decisions::Command::Get(self.id(random)),
            89..=93 => {
                let gone = self.remembered(random);
                let waiter = gone.waiter.clone().unwrap_or_else(|| name("nobody"));
                decisions::Command::Abandon { operation_id: gone.wanted.operation_id().clone(), waiter }
            }
            _ => decisions::Command::List {
                owner: random.one_in(3).then(|| name("owner")),
                older_than: random.one_in(3).then(|| Millis(*random.pick(&self.spans))),
                page: page(random, |random| Position(random.below(2 * self.count + 2))),
            },
        })
    }

    /// Reads that show all open decisions and all their parts.
    pub fn looks(&self) -> Vec<Command> {
        let held = OperationFilter { only_held: true, ..OperationFilter::default() };
        let mut looks = vec![
            Command::Decisions(decisions::Command::List { owner: None, older_than: None, page: whole() }),
            Command::Locks(locks::Command::List { query: Query::default(), page: whole() }),
            Command::Limiter(limiter::Command::ListLeases { owner: None, page: whole() }),
            Command::Limiter(limiter::Command::ListCounters { query: Query::default(), page: whole() }),
            Command::Ledger(ledger::Command::ListOperations { filter: held, page: whole() }),
        ];
        looks.extend(self.streams().map(|stream| Command::Events(events::Command::Incubating(stream))));
        looks.extend(self.rules.iter().map(|rule| {
            let (rule, above, page) = (rule.name.clone(), None, whole());
            Command::Limiter(limiter::Command::ListGroups { rule, above, page })
        }));
        looks
    }

    /// Commands of the limiter: plain checks, limits that change, and releases of slots, which only an operator can do.
    fn of_limiter(&mut self, random: &mut Random) -> Command {
        match random.below(12) {
            0 => {
                let rule = random.pick(&self.rules).name.clone();
                let limit = Some(Limit::AtMost(1 + random.below(8)));
                change(Change::PatchRule { name: rule, patch: RulePatch { limit, ..RulePatch::default() } })
            }
            1..=4 => {
                let id = format!("operation-{}-{}", self.position(random), random.below(2));
                let session = random.one_in(4).then(|| name("session"));
                Command::Limiter(limiter::Command::ReleaseLease { id: name(&id), session })
            }
            5 => {
                let rule = random.pick(&self.rules).name.clone();
                Command::Limiter(limiter::Command::ListGroups { rule, above: None, page: whole() })
            }
            _ => {
                let take = Take::new(key_values(random), random.below(6) as i64 - 2).expect(VALID);
                let check = Check::new(vec![take]).expect(VALID).with_dry_run(random.one_in(6));
                Command::Limiter(limiter::Command::Check(check.with_report(random.one_in(4))))
            }
        }
    }

    /// Commands of the locks, the streams and the ledger.
    fn of_others(&mut self, random: &mut Random) -> Command {
        match random.below(12) {
            0..=2 => {
                let id = name(&format!("operation-{}", self.position(random)));
                let session = random.one_in(4).then(|| name("session"));
                Command::Locks(locks::Command::Release { id, session })
            }
            3..=8 if self.streams > 0 => Command::Events(match random.below(24) {
                0 => events::Command::Delete(self.stream(random)),
                1..=3 => {
                    let stream = random.below(self.streams);
                    return self.put(random, stream);
                }
                4..=15 => events::Command::Submit(self.event(random)),
                16..=19 => events::Command::Incubating(self.stream(random)),
                _ => {
                    let (after, limit) = (random.below(60), 1 + random.below(20) as usize);
                    events::Command::Changes(
                        ChangesAfter::new(self.stream(random), after, limit).expect(VALID),
                    )
                }
            }),
            9 => {
                let finish = if random.one_in(2) { Finish::Commit } else { Finish::Rollback };
                let transfer = Finalization::new(self.id(random), None).expect(VALID);
                Command::Ledger(ledger::Command::Transfer(Transfer::Finish(finish, transfer)))
            }
            10 => Command::Ledger(ledger::Command::GetOperation(self.id(random))),
            _ => Command::Ledger(ledger::Command::ListEntries {
                limit_name: name(&format!("limit{}", random.below(self.limits))),
                page: Page::new(None, 50).expect(VALID),
            }),
        }
    }

    fn fresh(&mut self, random: &mut Random, may_wait: bool) -> DecideRequest {
        self.count += 1;
        let parts = self.parts(random);
        // Sometimes another request under an id that is in use.
        let id = if random.one_in(8) { self.id(random) } else { name(&format!("op{}", self.count)) };
        let decide = Decide::new(id, parts).expect(VALID);
        let decide = decide.with_ttl(Millis(*random.pick(&self.spans))).expect(VALID);
        let decide = decide.with_owner(random.one_in(3).then(|| name("owner")));
        let decide = decide.with_dry_run(random.one_in(10)).with_explain(random.one_in(6));
        let decide = DecideRequest::from(decide);
        let decide = if may_wait { self.with_wait(random, decide) } else { decide };
        self.asked.push(decide.clone());
        self.asked.drain(..self.asked.len().saturating_sub(REMEMBERED));
        decide
    }

    fn parts(&self, random: &mut Random) -> Parts {
        let checks = if self.has_rules() { random.below(3) } else { 0 };
        let check = |random: &mut Random, number: u64| {
            let estimate = random.one_in(2);
            PartCheck {
                name: (estimate || random.one_in(4)).then(|| name(&format!("check{number}"))),
                require_match: random.one_in(8),
                estimate,
                ..PartCheck::new(key_values(random), random.below(4))
            }
        };
        let checks: Vec<PartCheck> = (0..checks).map(|number| check(random, number)).collect();
        let limits: Vec<u64> = (0..self.limits).filter(|_| random.one_in(4)).collect();
        let holds = limits.into_iter().map(|limit| {
            let value = random.below(60) as i64 - 15;
            let ceiling = (!random.one_in(3)).then_some(100);
            ledger::Change { ceiling, ..ledger::Change::new(name(&format!("limit{limit}")), value) }
        });
        let holds: Vec<ledger::Change> = holds.collect();
        let locks: Vec<u64> = (0..self.locks).filter(|_| random.one_in(4)).collect();
        let lock = |number: u64, mode| Lock {
            key_values: KeyValues::new(vec![("lock", Value::<&str>::Integer(number as i64))]).expect(VALID),
            mode,
        };
        let locks = locks
            .into_iter()
            .map(|number| lock(number, if random.one_in(2) { Mode::Exclusive } else { Mode::Shared }));
        let mut locks: Vec<Lock> = locks.collect();
        let event = (self.streams > 0 && random.one_in(3)).then(|| {
            let submit = self.event(random);
            PartEvent::new(submit.stream().clone(), submit.event())
        });
        if checks.is_empty() && holds.is_empty() && event.is_none() && locks.is_empty() {
            locks.push(lock(0, Mode::Shared));
        }
        Parts { checks, holds, create_missing: !random.one_in(4), locks, event }
    }

    /// The same request as it is sent now: with another wait, and on another connection.
    fn with_wait(&mut self, random: &mut Random, asked: DecideRequest) -> DecideRequest {
        self.count += 1;
        let wait = if random.one_in(3) { 0 } else { *random.pick(&[1, 20, 100, 101, 400, 5_000]) };
        let wanted = Decide::clone(&asked.wanted).with_wait(Millis(wait)).expect(VALID);
        let waiter = (wait > 0).then(|| name(&format!("waiter{}", self.count)));
        DecideRequest { wanted: wanted.into(), waiter }
    }

    fn settle(&mut self, random: &mut Random) -> Settle {
        let decide = self.remembered(random).wanted;
        let mut holds = Vec::new();
        for change in &decide.parts().holds {
            if random.one_in(2) {
                continue;
            }
            let value = match random.below(4) {
                0 => 0,
                1 => change.value / 2,
                2 => change.value,
                _ => change.value * 2 + 1,
            };
            holds.push((change.limit_name.clone(), value));
        }
        let mut checks = Vec::new();
        for check in &decide.parts().checks {
            // Now and then it is no estimate.
            let is_settled = random.one_in(if check.estimate { 2 } else { 8 });
            if let Some(name) = check.name.clone().filter(|_| is_settled) {
                checks.push((name, random.below(check.hits + 3)));
            }
        }
        let settle = Settle::new(decide.operation_id().clone()).with_holds(holds).expect(VALID);
        settle.with_checks(checks).expect(VALID).with_record(random.one_in(3))
    }

    fn put(&self, random: &mut Random, stream: u64) -> Command {
        let mode = *random.pick(&[events::Mode::OnlyOnce, events::Mode::StrictlyOnce]);
        let duration = Millis(*random.pick(&[10, 100, 101, 1_000, 60_000]));
        let terms = StreamTerms::new(mode, duration).expect(VALID);
        let terms = terms.with_max_events(1 + random.below(6) as u32).expect(VALID);
        Command::Events(events::Command::Put { name: stream_name(stream), terms })
    }

    fn event(&self, random: &mut Random) -> Submit {
        let event = format!("e{}", random.below(6));
        Submit::new(self.stream(random), event.into()).expect(VALID)
    }

    fn stream(&self, random: &mut Random) -> Name {
        stream_name(random.below(self.streams))
    }

    /// Probably the position of a decision.
    fn position(&self, random: &mut Random) -> u64 {
        match self.made.is_empty() {
            true => random.below(self.count + 8),
            false => *random.pick(&self.made),
        }
    }

    fn id(&mut self, random: &mut Random) -> Name {
        match self.asked.is_empty() {
            true => name("nobody"),
            false => random.pick(&self.asked).wanted.operation_id().clone(),
        }
    }

    fn remembered(&mut self, random: &mut Random) -> DecideRequest {
        if self.asked.is_empty() {
            return self.fresh(random, true);
        }
        random.pick(&self.asked).clone()
    }
}

/// A durable rule, for which the model needs no uncertainty. A sliding window is short, and refuses: it must not get more
/// entries than it counts exactly.
fn rule(random: &mut Random, number: u64) -> NewRule {
    let keys = *random.pick(&[&[][..], &["q"], &["u"], &["q", "u"]]);
    let burst = random.one_in(2).then(|| 1 + random.below(8));
    let window = match random.below(5) {
        0 | 1 => None,
        2 => Some(Window::Fixed { per: Millis(*random.pick(&[50, 200, 1_000, 5_000])) }),
        3 => Some(Window::Sliding { per: Millis(*random.pick(&[50, 200, 1_000])) }),
        _ => Some(Window::Bucket { per: Millis(*random.pick(&[50, 200, 1_000, 60_000])), burst }),
    };
    let may_shadow = !matches!(window, Some(Window::Sliding { .. }));
    NewRule {
        name: name(&format!("rule{number}")),
        group_by: keys.iter().map(|key| (*key).into()).collect(),
        selection: Selection::default(),
        limit: Limit::AtMost(if random.one_in(12) { 0 } else { 1 + random.below(8) }),
        window,
        shadow: may_shadow && random.one_in(8),
        durability: Some(Durability::Durable),
        description: None,
    }
}

/// One or both keys, with few values.
fn key_values(random: &mut Random) -> KeyValues {
    let keys = *random.pick(&[&["q"][..], &["u"], &["q", "u"], &["q", "u"]]);
    let pairs = keys.iter().map(|key| (*key, Value::<&str>::Integer(random.below(2) as i64)));
    KeyValues::new(pairs.collect()).expect(VALID)
}

fn change(change: Change) -> Command {
    Command::Limiter(limiter::Command::Change(RuleChange::new(change).expect(VALID)))
}

fn stream_name(number: u64) -> Name {
    name(&format!("s{number}"))
}
