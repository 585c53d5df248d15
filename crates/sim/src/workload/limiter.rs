//! Random commands of the limiter: few keys, few values and few rules, so that rules overlap a lot.

use super::{
    valid::{VALID, name, page, whole},
    vocabulary::Vocabulary,
};
use crate::random::Random;
use limina_engine::{
    KeyValues, Millis, Name, Page,
    key_values::{OwnedValue, Value},
    limiter::{
        Change, Check, CheckBatch, CheckSet, Command, CounterChange, CounterId, Durability, EntryMode,
        GroupId, Limit, MAX_COUNT, NewLease, NewOverride, NewRule, NewRuleSet, OverridePatch, RequestLimit,
        RuleChange, RulePatch, RuleQuery, RuleSetPlan, SetAuthor, SetEntry, SetOverrides, SetRule, Take,
        Usage, Window,
    },
    selection::Query,
};

/// More than any limit, and small enough that no sum of such numbers exceeds 64 bits, in any unit.
const VERY_MANY: i64 = 1 << 36;

/// The keys, values, rules and spans to choose from.
#[derive(Debug, Clone)]
pub struct LimiterWorkload {
    words: Vocabulary,
    rules: u64,
    overrides: u64,
    spans: Vec<u64>,
    windows: Vec<Kind>,
    most: u64,
    /// A third of the requests is about rules.
    has_busy_rules: bool,
    leases: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Fixed,
    Sliding,
    Bucket,
}

impl LimiterWorkload {
    /// Chooses at random how many names there are, and so how often requests use the same ones.
    pub fn new(random: &mut Random) -> LimiterWorkload {
        let spans =
            *random.pick(&[&[1, 7, 64][..], &[10, 100], &[1_000], &[50, 60_000], &[1_000, 3_600_000]]);
        LimiterWorkload::with_spans(random, spans)
    }

    /// The same, with windows of these lengths.
    pub fn with_spans(random: &mut Random, spans: &[u64]) -> LimiterWorkload {
        let kinds = [Kind::None, Kind::Fixed, Kind::Sliding, Kind::Bucket];
        let windows = match random.below(3) {
            0 => vec![*random.pick(&kinds)],
            _ => kinds.to_vec(),
        };
        LimiterWorkload {
            words: Vocabulary::new(random),
            rules: 1 + random.below(4),
            overrides: 1 + random.below(3),
            spans: spans.to_vec(),
            windows,
            most: *random.pick(&[2, 5, 12, 100]),
            has_busy_rules: random.one_in(3),
            leases: 0,
        }
    }

    /// One key, one value and high limits, so that all requests use one window, which gets many entries.
    pub fn crowded(random: &mut Random, spans: &[u64]) -> LimiterWorkload {
        LimiterWorkload {
            words: Vocabulary { keys: vec!["a"], values: vec![Value::Integer(1)] },
            rules: 1,
            overrides: 1,
            windows: vec![Kind::Sliding],
            most: 300,
            has_busy_rules: false,
            ..LimiterWorkload::with_spans(random, spans)
        }
    }

    /// The lengths of windows in use.
    pub fn spans(&self) -> &[u64] {
        &self.spans
    }

    /// The next random command.
    pub fn command(&mut self, random: &mut Random) -> Command {
        if self.has_busy_rules && random.one_in(4) {
            return changed(self.change(random));
        }
        match random.below(100) {
            0..=13 => changed(self.change(random)),
            14..=49 => match self.check(random) {
                check if random.one_in(10) => as_set(&check).unwrap_or(Command::Check(check)),
                check => Command::Check(check),
            },
            50..=54 => Command::CheckSet(self.set(random)),
            55..=57 => {
                let checks = (0..1 + random.below(6)).map(|_| self.check(random)).collect();
                Command::CheckBatch(CheckBatch::new(checks).expect(VALID))
            }
            58..=68 => {
                let key_values = self.words.key_values(random);
                Command::MoveCounter(CounterChange::new(key_values, self.hits(random)).expect(VALID))
            }
            69..=71 => {
                let key_values = self.words.key_values(random);
                Command::SetCounter(CounterChange::new(key_values, self.hits(random)).expect(VALID))
            }
            72..=78 => Command::TakeLease(self.lease(random)),
            79..=81 => {
                let id = self.lease_id(random);
                Command::ExtendLease { session: self.session_of(random, &id), id }
            }
            82..=84 => {
                let id = self.lease_id(random);
                let session = (!random.one_in(6)).then(|| self.session_of(random, &id));
                Command::ReleaseLease { id, session }
            }
            _ => self.read(random),
        }
    }

    /// A command that creates the first rule.
    pub fn rule(&mut self, random: &mut Random) -> Command {
        changed(Change::PutRule(self.new_rule(random)))
    }

    /// Reads that show the whole state.
    pub fn looks(&self) -> Vec<Command> {
        let mut looks = vec![
            Command::ListRules { query: RuleQuery::default(), page: whole() },
            Command::ListRuleSets(whole()),
            Command::ListLeases { owner: None, page: whole() },
            Command::ListCounters { query: Query::default(), page: whole() },
        ];
        for i in 0..self.rules {
            let rule = name(&format!("rule{i}"));
            looks.push(Command::ListGroups { rule: rule.clone(), above: None, page: whole() });
            looks.push(Command::ListOverrides { rule, query: Query::default(), page: whole() });
        }
        let of_two = |a: Option<&OwnedValue>, b: Option<&OwnedValue>| {
            let pairs =
                self.words.keys.iter().zip([a, b]).filter_map(|(key, value)| Some((*key, value?.clone())));
            KeyValues::new(pairs.collect()).expect("few short pairs")
        };
        let maybe = || std::iter::once(None).chain(self.words.values.iter().map(Some));
        let all = maybe().flat_map(|a| maybe().map(move |b| (a, b)));
        let takes: Vec<KeyValues> = all.map(|(a, b)| of_two(a, b)).collect();
        looks.extend(takes.into_iter().map(|key_values| {
            let take = Take::new(key_values, 0).expect(VALID);
            Command::Check(Check::new(vec![take]).expect(VALID))
        }));
        looks
    }

    fn change(&mut self, random: &mut Random) -> Change {
        match random.below(20) {
            0..=4 => Change::CreateRule(self.new_rule(random)),
            5..=7 => Change::PutRule(self.new_rule(random)),
            8..=11 => Change::PatchRule { name: self.rule_name(random), patch: self.rule_patch(random) },
            12 => Change::DeleteRule(self.rule_name(random)),
            13..=15 => {
                Change::CreateOverride { rule: self.rule_name(random), new: self.new_override(random) }
            }
            16 => Change::PutOverride { rule: self.rule_name(random), new: self.new_override(random) },
            17 => Change::PatchOverride {
                rule: self.rule_name(random),
                name: self.override_name(random),
                patch: OverridePatch {
                    key_values: random.one_in(2).then(|| self.words.key_values(random)),
                    limit: random.one_in(2).then(|| self.limit(random)),
                    burst: random.one_in(4).then(|| random.one_in(2).then(|| 1 + random.below(self.most))),
                },
            },
            18 => Change::DeleteOverride { rule: self.rule_name(random), name: self.override_name(random) },
            _ => {
                let set = self.set_name(random);
                // Sometimes a client tries to change a set of the server.
                let is_client = if set.as_str() == "file" { random.one_in(8) } else { !random.one_in(8) };
                let author = if is_client { SetAuthor::Client } else { SetAuthor::Server };
                match random.one_in(8) {
                    true => Change::DeleteRuleSet { set, author },
                    false => Change::PutRuleSet { set, new: self.rule_set(random), author },
                }
            }
        }
    }

    fn new_rule(&self, random: &mut Random) -> NewRule {
        NewRule {
            name: self.rule_name(random),
            group_by: self.words.keys.iter().filter(|_| random.one_in(2)).map(|key| (*key).into()).collect(),
            selection: self.words.selection(random),
            limit: self.limit(random),
            window: self.window(random),
            shadow: random.one_in(6),
            durability: random.one_in(3).then(|| *random.pick(&[Durability::Durable, Durability::Relaxed])),
            description: random.one_in(5).then(|| "some words".into()),
        }
    }

    fn rule_patch(&self, random: &mut Random) -> RulePatch {
        let durability = *random.pick(&[None, Some(Durability::Durable), Some(Durability::Relaxed)]);
        RulePatch {
            limit: random.one_in(2).then(|| self.limit(random)),
            window: random.one_in(4).then(|| self.window(random)),
            selection: random.one_in(4).then(|| self.words.selection(random)),
            shadow: random.one_in(4).then(|| random.one_in(3)),
            durability: random.one_in(6).then_some(durability),
            description: random.one_in(8).then(|| random.one_in(2).then(|| "other words".into())),
        }
    }

    fn new_override(&self, random: &mut Random) -> NewOverride {
        NewOverride {
            name: self.override_name(random),
            key_values: self.words.key_values(random),
            limit: self.limit(random),
            burst: random.one_in(6).then(|| 1 + random.below(self.most)),
        }
    }

    fn set_name(&self, random: &mut Random) -> Name {
        name(random.pick::<&str>(&["set0", "set1", "file"]))
    }

    /// A set of rules: each name once, and each override consistent with its rule.
    fn rule_set(&self, random: &mut Random) -> NewRuleSet {
        let mut rules: Vec<SetRule> = Vec::new();
        for i in 0..random.below(3) {
            let mut rule = self.new_rule(random);
            // Sometimes use the name of a rule that clients create.
            if !random.one_in(8) {
                rule.name = name(&format!("managed{i}"));
            }
            if rules.iter().any(|other| other.rule.name == rule.name) {
                continue;
            }
            let mut overrides: Vec<NewOverride> = Vec::new();
            for _ in 0..random.below(3) {
                let mut new = self.new_override(random);
                if !matches!(rule.window, Some(Window::Bucket { .. })) {
                    new.burst = None;
                }
                let has = |key: &str| new.key_values.iter().any(|pair| pair.key == key);
                let is_complete = rule.group_by.iter().all(|key| has(key));
                let is_new = overrides
                    .iter()
                    .all(|other| other.name != new.name && other.key_values != new.key_values);
                if is_complete && is_new {
                    overrides.push(new);
                }
            }
            rules.push(SetRule { rule, overrides });
        }
        let overrides = *random.pick(&[SetOverrides::Closed, SetOverrides::Open]);
        NewRuleSet { rules, overrides }
    }

    fn window(&self, random: &mut Random) -> Option<Window> {
        let per = Millis(*random.pick(&self.spans));
        match random.pick(&self.windows) {
            Kind::None => None,
            Kind::Fixed => Some(Window::Fixed { per }),
            Kind::Sliding => Some(Window::Sliding { per }),
            Kind::Bucket => {
                Some(Window::Bucket { per, burst: random.one_in(2).then(|| 1 + random.below(self.most)) })
            }
        }
    }

    fn limit(&self, random: &mut Random) -> Limit {
        match random.below(20) {
            0 | 1 => Limit::Unlimited,
            2 => Limit::AtMost(0),
            3 => Limit::AtMost(MAX_COUNT),
            _ => Limit::AtMost(1 + random.below(self.most)),
        }
    }

    fn take(&self, random: &mut Random, hits: i64) -> Take {
        let key_values = self.words.key_values(random);
        let limit = random.one_in(12).then(|| {
            let limit = random.below(self.most + 1);
            RequestLimit::new(limit, Millis(*random.pick(&self.spans))).expect(VALID)
        });
        Take::new(key_values, hits).expect(VALID).with_limit(limit)
    }

    /// A set with entries of every mode, of which some are alternatives.
    fn set(&self, random: &mut Random) -> CheckSet {
        let entry = |random: &mut Random| {
            let hits = if random.one_in(2) { 1 } else { self.hits(random) };
            let (mode, hits) = match random.below(5) {
                0 | 1 => (EntryMode::Take, hits.max(1)),
                2 => (EntryMode::Look, 0),
                _ => (EntryMode::Report, hits),
            };
            let alternative = random.one_in(2).then(|| random.below(3) as u16);
            SetEntry::new(self.take(random, hits), mode).with_alternative(alternative)
        };
        let entries = (0..1 + random.below(4)).map(|_| entry(random)).collect();
        CheckSet::new(entries).expect(VALID)
    }

    fn check(&self, random: &mut Random) -> Check {
        let entries = if random.one_in(8) { 2 + random.below(2) } else { 1 };
        let take = |random: &mut Random| {
            let hits = if random.one_in(2) { 1 } else { self.hits(random) };
            self.take(random, hits)
        };
        let entries = (0..entries).map(|_| take(random)).collect();
        let check = Check::new(entries).expect(VALID).with_dry_run(random.one_in(10));
        check.with_require_match(random.one_in(8)).with_report(random.one_in(12))
    }

    fn lease(&mut self, random: &mut Random) -> NewLease {
        self.leases += 1;
        let id = name(&format!("lease{}", self.leases));
        let key_values = self.words.key_values(random);
        let hits = self.hits(random).unsigned_abs().max(1);
        let ttl = Millis(*random.pick(&[100, 120, 200, 1_000, 5_000]));
        let owner = random.one_in(3).then(|| name("owner"));
        let lease = NewLease::new(id.clone(), session(&id), key_values, hits, ttl).expect(VALID);
        lease.with_owner(owner).with_require_match(random.one_in(8))
    }

    fn read(&self, random: &mut Random) -> Command {
        match random.below(15) {
            0 => Command::GetRule(self.rule_name(random)),
            1 => Command::ListRules {
                query: RuleQuery::default(),
                page: page(random, |random| self.rule_name(random)),
            },
            2 => Command::ListRules {
                query: RuleQuery::new(self.words.key_query(random)).expect(VALID),
                page: page(random, |random| self.rule_name(random)),
            },
            3 => Command::GetOverride { rule: self.rule_name(random), name: self.override_name(random) },
            4 => Command::ListOverrides {
                rule: self.rule_name(random),
                query: self.words.query(random),
                page: page(random, |random| self.override_name(random)),
            },
            5 | 6 => Command::Match(self.words.key_values(random)),
            7 => {
                Command::ListCounters { query: Query::default(), page: Page::new(None, 1_000).expect(VALID) }
            }
            8 => Command::ListCounters {
                query: self.words.query(random),
                page: page(random, |random| CounterId(random.below(8) as u32)),
            },
            9 => Command::GetLease(self.lease_id(random)),
            10 => Command::ListGroups {
                rule: self.rule_name(random),
                above: random.one_in(2).then(|| Usage { limit: self.limit(random), used: random.below(5) }),
                page: page(random, |random| GroupId(random.below(8) as u32)),
            },
            11 => {
                let (set, new) = (self.set_name(random), self.rule_set(random));
                Command::PlanRuleSet(RuleSetPlan::new(set, new).expect(VALID))
            }
            12 => Command::GetRuleSet(self.set_name(random)),
            13 => Command::ListRuleSets(page(random, |random| self.set_name(random))),
            _ => Command::ListLeases {
                owner: random.one_in(3).then(|| name("owner")),
                page: page(random, |random| self.lease_id(random)),
            },
        }
    }

    fn rule_name(&self, random: &mut Random) -> Name {
        match random.below(12) {
            0 => name("managed0"),
            _ => name(&format!("rule{}", random.below(self.rules))),
        }
    }

    fn override_name(&self, random: &mut Random) -> Name {
        name(&format!("override{}", random.below(self.overrides)))
    }

    /// The id of one of the last leases.
    fn lease_id(&self, random: &mut Random) -> Name {
        name(&format!("lease{}", self.leases.saturating_sub(random.below(6)).max(1)))
    }

    /// The session of the lease, or sometimes another one.
    fn session_of(&self, random: &mut Random, id: &Name) -> Name {
        if random.one_in(8) { name("another session") } else { session(id) }
    }

    fn hits(&self, random: &mut Random) -> i64 {
        match random.below(40) {
            0..=3 => 0,
            4..=9 => -1 - random.below(4) as i64,
            10 => VERY_MANY,
            11 => -VERY_MANY,
            12..=15 => random.below(self.most + 2) as i64,
            _ => 1 + random.below(3) as i64,
        }
    }
}

/// The same as a set whose entries all take. `None` if one of them takes nothing.
fn as_set(check: &Check) -> Option<Command> {
    let takes_all = check.entries().iter().all(|take| take.hits() > 0);
    let entries = check.entries().iter().map(|take| SetEntry::new(take.clone(), EntryMode::Take));
    takes_all.then(|| Command::CheckSet(CheckSet::new(entries.collect()).expect(VALID)))
}

fn session(id: &Name) -> Name {
    name(&format!("session of {id}"))
}

fn changed(change: Change) -> Command {
    Command::Change(RuleChange::new(change).expect(VALID))
}
