//! The limiter's calls.

use super::*;
use limina_engine::{
    KeyValues, Listed,
    key_values::Value as KeyValue,
    limiter::{
        Change, ChangedRule, Check, Checked, Command as LimiterCommand, CounterChange, CounterId,
        CounterInfo, Durability, GroupId, GroupInfo, LeaseInfo, Limit, LimitStatus, ManagedRule, NewOverride,
        NewRule, NewRuleSet, OverrideInfo, OverridePatch, Refusal as Refused, Reply as LimiterReply,
        RuleChange, RuleField, RuleInfo, RuleMatch, RuleOfSet, RulePatch, RuleSet, RuleSetInfo, RuleSetPlan,
        SetAuthor, SetChanges, SetConflict, SetOverrides, SetRule, Take, Window,
    },
    selection::{Query, Selection, Test},
};

mod bodies;
mod lists;
mod paths;
mod replies;

/// What the engine could answer, where a case does not care.
pub(crate) fn plausible(command: &LimiterCommand) -> LimiterReply {
    use LimiterCommand::*;
    match command {
        Change(change) => match &**change {
            self::Change::CreateRule(_) => LimiterReply::RuleCreated(rule("r")),
            self::Change::PutRule(_) | self::Change::PatchRule { .. } => LimiterReply::Rule(rule("r")),
            self::Change::DeleteRule(_) => LimiterReply::RuleDeleted,
            self::Change::CreateOverride { .. } => LimiterReply::OverrideCreated(an_override("o")),
            self::Change::PutOverride { .. } | self::Change::PatchOverride { .. } => {
                LimiterReply::Override(an_override("o"))
            }
            self::Change::DeleteOverride { .. } => LimiterReply::OverrideDeleted,
            self::Change::PutRuleSet { .. } => {
                LimiterReply::RuleSetPut { is_new: true, changes: SetChanges::default() }
            }
            self::Change::DeleteRuleSet { .. } => LimiterReply::RuleSetDeleted(SetChanges::default()),
        },
        GetRule(_) => LimiterReply::Rule(rule("r")),
        ListRules { .. } => LimiterReply::Rules(Listed { items: vec![rule("r")], next: None }),
        GetOverride { .. } => LimiterReply::Override(an_override("o")),
        ListOverrides { .. } => LimiterReply::Overrides(Listed { items: vec![an_override("o")], next: None }),
        PlanRuleSet(_) => LimiterReply::RuleSetPlanned(SetChanges::default()),
        GetRuleSet(_) => LimiterReply::RuleSet(rule_set()),
        ListRuleSets(_) => LimiterReply::RuleSets(Listed { items: vec![rule_set().info], next: None }),
        Match(_) => LimiterReply::Matches(Vec::new()),
        Check(_) => LimiterReply::Allowed(decision(Vec::new())),
        CheckSet(_) => LimiterReply::Set(decision(Vec::new())),
        CheckBatch(checks) => LimiterReply::Batch(checks.iter().map(|_| Ok(decision(Vec::new()))).collect()),
        MoveCounter(_) => LimiterReply::Moved { counter: counter(3, 1), decision: decision(Vec::new()) },
        SetCounter(_) => LimiterReply::Counter(counter(3, 1)),
        ListCounters { .. } => LimiterReply::Counters(Listed { items: vec![counter(3, 1)], next: None }),
        TakeLease(_) => lease_taken(decision(Vec::new())),
        ExtendLease { .. } | GetLease(_) => LimiterReply::Lease(lease("l")),
        ReleaseLease { .. } => LimiterReply::LeaseReleased,
        AbandonLease(_) => LimiterReply::LeaseAbandoned,
        ListLeases { .. } => LimiterReply::Leases(Listed { items: vec![lease("l")], next: None }),
        ListGroups { .. } => LimiterReply::Groups(Listed { items: vec![group(3)], next: None }),
    }
}

fn key_values(pairs: &[(&str, KeyValue<&str>)]) -> KeyValues {
    KeyValues::new(pairs.to_vec()).unwrap()
}

fn one(key: &str) -> KeyValues {
    key_values(&[(key, KeyValue::Integer(1))])
}

fn changed(change: Change) -> LimiterCommand {
    LimiterCommand::Change(RuleChange::new(change).unwrap())
}

fn new_rule(text: &str) -> NewRule {
    NewRule {
        name: name(text),
        group_by: Vec::new(),
        selection: Selection::default(),
        limit: Limit::AtMost(5),
        window: None,
        shadow: false,
        durability: None,
        description: None,
    }
}

fn rule(text: &str) -> RuleInfo {
    RuleInfo { rule: new_rule(text), overrides: 2, managed_by: None, created_at: Position(7) }
}

fn rule_set() -> RuleSet {
    let rule = RuleInfo { managed_by: Some(name("s")), ..rule("r") };
    RuleSet {
        info: RuleSetInfo {
            name: name("s"),
            rules: 1,
            overrides: SetOverrides::Open,
            created_at: Position(8),
        },
        rules: vec![RuleOfSet { rule, overrides: vec![an_override("o")] }],
    }
}

fn an_override(text: &str) -> OverrideInfo {
    let item =
        NewOverride { name: name(text), key_values: one("k"), limit: Limit::Unlimited, burst: Some(9) };
    OverrideInfo { rule: name("r"), item, created_at: Position(8) }
}

pub(super) fn decision(limits: Vec<LimitStatus>) -> Checked {
    Checked { allowed: true, reported: false, limits, retry_after: None }
}

pub(super) fn limit_status(rule: &str) -> LimitStatus {
    LimitStatus {
        entry: 0,
        rule: Some(name(rule)),
        override_name: None,
        group: one("k"),
        limit: Limit::AtMost(10),
        used: 4,
        reset: Some(Millis(1500)),
        per: Some(Millis(60_000)),
        refill: None,
        shadow: false,
        exceeded: false,
        waiting: 0,
    }
}

fn counter(total: u64, leased: u64) -> CounterInfo {
    CounterInfo { key_values: one("k"), total, leased }
}

fn group(used: u64) -> GroupInfo {
    let (limit, reset) = (Limit::AtMost(10), Some(Millis(1_500)));
    GroupInfo { override_name: None, group: one("k"), limit, used, reset, waiting: 0 }
}

fn lease_taken(decision: Checked) -> LimiterReply {
    LimiterReply::LeaseTaken { lease: Box::new(lease("l")), session: name("s"), decision }
}

pub(super) fn lease(id: &str) -> LeaseInfo {
    LeaseInfo {
        id: name(id),
        key_values: one("k"),
        hits: 2,
        owner: Some(name("me")),
        ttl: Millis(10_000),
        taken_at: Time(1_000_000),
        expires_at: Time(1_012_000),
        fencing_token: Position(41),
        operation_id: None,
        now: Time(1_005_000),
    }
}

fn done(reply: LimiterReply) -> Result<Outcome, Unavailable> {
    Ok(Outcome::Limiter(Ok(reply)))
}

impl Server {
    fn last_limiter_command(&self) -> LimiterCommand {
        let Command::Limiter(command) = self.last_asked().command else {
            panic!("not the limiter was asked")
        };
        command
    }
}
