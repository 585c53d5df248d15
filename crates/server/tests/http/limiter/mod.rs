//! The limiter's calls.

use super::*;
use limina_engine::{
    KeyValues, Listed,
    key_values::Value as KeyValue,
    limiter::{
        AppliedLimit, Change, ChangedRule, Check, Checked, Command as LimiterCommand, ConflictCode, Counter,
        CounterChange, CounterId, Durability, Group, GroupId, Lease, Limit, LimitStatus, ManagedRule,
        NewOverride, NewRule, NewRuleSet, Override, OverridePatch, Refusal as Refused, Reply as LimiterReply,
        Rule, RuleChange, RuleField, RuleMatch, RuleOfSet, RulePatch, RuleSet, RuleSetChanges, RuleSetInfo,
        RuleSetPlan, RuleWindow, SetAuthor, SetConflict, SetOverrides, SetRule, Take, Window, WindowType,
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
                LimiterReply::RuleSetPut { is_new: true, changes: RuleSetChanges::default() }
            }
            self::Change::DeleteRuleSet { .. } => LimiterReply::RuleSetDeleted(RuleSetChanges::default()),
        },
        GetRule(_) => LimiterReply::Rule(rule("r")),
        ListRules { .. } => LimiterReply::Rules(Listed { items: vec![rule("r")], next: None }),
        GetOverride { .. } => LimiterReply::Override(an_override("o")),
        ListOverrides { .. } => LimiterReply::Overrides(Listed { items: vec![an_override("o")], next: None }),
        PlanRuleSet(_) => LimiterReply::RuleSetPlanned(RuleSetChanges::default()),
        GetRuleSet(_) => LimiterReply::RuleSet(rule_set()),
        ListRuleSets(_) => LimiterReply::RuleSets(Listed { items: vec![rule_set_info()], next: None }),
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

fn rule(text: &str) -> Rule {
    Rule {
        name: name(text),
        group_by: Vec::new(),
        selection: Selection::default(),
        limit: Limit::AtMost(5),
        window: None,
        shadow: false,
        durability: Durability::Durable,
        description: None,
        overrides: 2,
        managed_by: None,
        created_position: Position(7),
    }
}

fn rule_set() -> RuleSet {
    let Rule { name: of, group_by, selection, limit, window, shadow, durability, description, .. } =
        rule("r");
    let rule = RuleOfSet {
        name: of,
        group_by,
        selection,
        limit,
        window,
        shadow,
        durability,
        description,
        overrides: vec![an_override("o")],
        managed_by: name("s"),
        created_position: Position(7),
    };
    RuleSet {
        name: name("s"),
        rules: vec![rule],
        overrides: SetOverrides::Open,
        created_position: Position(8),
    }
}

fn rule_set_info() -> RuleSetInfo {
    let RuleSet { name, rules, overrides, created_position } = rule_set();
    RuleSetInfo { name, rules: rules.len() as u64, overrides, created_position }
}

fn an_override(text: &str) -> Override {
    Override {
        rule: name("r"),
        name: name(text),
        key_values: one("k"),
        limit: Limit::Unlimited,
        burst: Some(9),
        created_position: Position(8),
    }
}

pub(super) fn decision(limits: Vec<AppliedLimit>) -> Checked {
    Checked { allowed: true, reported: false, limits, retry_after: None }
}

pub(super) fn limit_status(rule: &str) -> AppliedLimit {
    let status = LimitStatus {
        rule: Some(name(rule)),
        override_name: None,
        group: one("k"),
        limit: Limit::AtMost(10),
        used: 4,
        remaining: Some(6),
        reset_ms: Some(Millis(1500)),
        shadow: false,
        exceeded: false,
        waiting: 0,
    };
    AppliedLimit { entry: 0, status, per: Some(Millis(60_000)), refill: None }
}

/// The limit with another status.
pub(super) fn with(change: impl FnOnce(&mut LimitStatus), mut limit: AppliedLimit) -> AppliedLimit {
    change(&mut limit.status);
    limit
}

fn counter(counters: u64, leased: u64) -> Counter {
    Counter { key_values: one("k"), counters, leased }
}

fn group(used: u64) -> Group {
    Group {
        group: one("k"),
        override_name: None,
        limit: Limit::AtMost(10),
        used,
        remaining: Some(10 - used),
        reset_ms: Some(Millis(1_500)),
        waiting: 0,
    }
}

fn lease_taken(decision: Checked) -> LimiterReply {
    LimiterReply::LeaseTaken { lease: Box::new(lease("l")), session: name("s"), decision }
}

pub(super) fn lease(id: &str) -> Lease {
    Lease {
        lease_id: name(id),
        key_values: one("k"),
        hits: 2,
        owner: Some(name("me")),
        ttl_ms: Millis(10_000),
        held_ms: Millis(5_000),
        expires_in_ms: Millis(7_000),
        fencing_token: Position(41),
        operation_id: None,
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
