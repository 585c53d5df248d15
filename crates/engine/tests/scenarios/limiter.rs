//! The limiter's commands and answers as lines of text.

use crate::{lines, name, option_of};
use limina_engine::{
    Command, KeyValues, Millis, Page,
    key_values::{Value, ValueRef},
    limiter::{
        self, Change, Check, CounterChange, CounterInfo, Decision, Durability, Limit, LimitStatus, NewLease,
        NewOverride, NewRule, OverrideInfo, OverridePatch, Refusal, Reply, RuleChange, RuleInfo, RulePatch,
        RuleQuery, Take, Window,
    },
    selection::{Query, Selection, Test},
};

/// `verb [NAME…] [key=value…] [option[:value]…]`, if the verb is one of the limiter's.
pub(crate) fn parse(verb: &str, words: &[&str]) -> Option<Command> {
    let option = |key: &str| option_of(words, key);
    let number = |key: &str| option(key).map(|text| text.parse::<i64>().unwrap());
    let millis = |key: &str| number(key).map(|millis| Millis(millis as u64));
    let names: Vec<_> = words.iter().filter(|word| !word.contains(['=', ':'])).collect();
    let key_values = || key_values_of(words.iter().filter(|word| !word.contains(':')).copied());
    let limit = || number("limit").map(limit_of);
    let size = number("page").map_or(100, |limit| limit as usize);
    let window = || {
        let burst = number("burst").map(|burst| burst as u64);
        let fixed = millis("fixed").map(|per| Window::Fixed { per });
        let sliding = millis("sliding").map(|per| Window::Sliding { per });
        fixed.or(sliding).or(millis("bucket").map(|per| Window::Bucket { per, burst }))
    };
    let selection = || {
        option("where").map(|text| {
            let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
            let equals = |value| vec![Test::Eq(value_of(value).to_owned())];
            Selection::new(pairs.map(|(key, value)| (key.into(), equals(value))).collect()).unwrap()
        })
    };
    let durability = || match (option("durable"), option("relaxed")) {
        (Some(_), _) => Some(Durability::Durable),
        (_, Some(_)) => Some(Durability::Relaxed),
        _ => None,
    };
    let rule = || NewRule {
        name: name(names[0]),
        group_by: option("by").into_iter().flat_map(|by| by.split(',')).map(Into::into).collect(),
        selection: selection().unwrap_or_default(),
        limit: limit().unwrap(),
        window: window(),
        shadow: option("shadow").is_some(),
        durability: durability(),
        description: None,
    };
    let item = || NewOverride {
        name: name(names[1]),
        key_values: key_values(),
        limit: limit().unwrap(),
        burst: number("burst").map(|burst| burst as u64),
    };
    let hits = || number("hits").unwrap_or(1);
    let changed = |change| limiter::Command::Change(RuleChange::new(change).unwrap());
    let amount = |key: &str| CounterChange::new(key_values(), number(key).unwrap()).unwrap();
    let command = match verb {
        "rule" => changed(Change::CreateRule(rule())),
        "put-rule" => changed(Change::PutRule(rule())),
        "patch-rule" => changed(Change::PatchRule {
            name: name(names[0]),
            patch: RulePatch {
                limit: limit(),
                window: if option("in-use").is_some() { Some(None) } else { window().map(Some) },
                selection: selection(),
                shadow: None,
                durability: None,
                description: None,
            },
        }),
        "delete-rule" => changed(Change::DeleteRule(name(names[0]))),
        "get-rule" => limiter::Command::GetRule(name(names[0])),
        "rules" => limiter::Command::ListRules {
            query: RuleQuery::default(),
            page: Page::new(option("after").map(name), size).unwrap(),
        },
        "override" => changed(Change::CreateOverride { rule: name(names[0]), new: item() }),
        "put-override" => changed(Change::PutOverride { rule: name(names[0]), new: item() }),
        "patch-override" => changed(Change::PatchOverride {
            rule: name(names[0]),
            name: name(names[1]),
            patch: OverridePatch { limit: limit(), ..OverridePatch::default() },
        }),
        "delete-override" => changed(Change::DeleteOverride { rule: name(names[0]), name: name(names[1]) }),
        "overrides" => limiter::Command::ListOverrides {
            rule: name(names[0]),
            query: Query::default(),
            page: Page::new(option("after").map(name), size).unwrap(),
        },
        "match" => limiter::Command::Match(key_values()),
        // `back:key=value` is an entry before it that gives one back.
        "check" => {
            let back = option("back").map(|pair| Take::new(key_values_of([pair]), -1).unwrap());
            let entries = back.into_iter().chain([Take::new(key_values(), hits()).unwrap()]).collect();
            limiter::Command::Check(Check::new(entries).unwrap().with_dry_run(option("dry").is_some()))
        }
        "counter" => limiter::Command::MoveCounter(amount("by")),
        "set" => limiter::Command::SetCounter(amount("to")),
        "counters" => {
            limiter::Command::ListCounters { query: Query::default(), page: Page::new(None, size).unwrap() }
        }
        "lease" => {
            let (id, ttl) = (name(names[0]), millis("ttl").unwrap());
            let lease = NewLease::new(id, key_values(), hits() as u64, ttl).unwrap();
            limiter::Command::TakeLease(lease.with_owner(option("owner").map(name)))
        }
        "heartbeat" => limiter::Command::ExtendLease(name(names[0])),
        "release" => limiter::Command::ReleaseLease(name(names[0])),
        "leases" => limiter::Command::ListLeases(Page::new(None, size).unwrap()),
        _ => return None,
    };
    Some(Command::Limiter(command))
}

fn key_values_of<'a>(words: impl IntoIterator<Item = &'a str>) -> KeyValues {
    let pairs = words.into_iter().filter_map(|word| word.split_once('='));
    KeyValues::new(pairs.map(|(key, value)| (key, value_of(value))).collect()).unwrap()
}

fn value_of(text: &str) -> ValueRef<'_> {
    let whole = text.parse().map(Value::Integer).ok();
    let float = || text.parse().map(Value::Float).ok();
    let flag = || text.parse().map(Value::Boolean).ok();
    whole.or_else(float).or_else(flag).unwrap_or(Value::String(text))
}

fn limit_of(number: i64) -> Limit {
    u64::try_from(number).map_or(Limit::Unlimited, Limit::AtMost)
}

pub(crate) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Rule(rule) => show_rule(rule),
        Reply::RuleCreated(rule) => format!("created {}", show_rule(rule)),
        Reply::RuleDeleted | Reply::OverrideDeleted => "deleted".into(),
        Reply::Rules(rules) => lines(rules.items.iter().map(show_rule)),
        Reply::Override(item) => show_override(item),
        Reply::OverrideCreated(item) => format!("created {}", show_override(item)),
        Reply::Overrides(overrides) => lines(overrides.items.iter().map(show_override)),
        Reply::Matches(matches) => lines(matches.iter().map(|found| {
            let overrides: Vec<_> = found.overrides.iter().map(|item| item.item.name.as_str()).collect();
            format!("{} {:?} {overrides:?}", found.rule.rule.name, found.group)
        })),
        Reply::Allowed(decision) => show_decision(decision),
        Reply::Moved { counter, decision } => {
            format!("{}\n{}", show_counter(counter), show_decision(decision))
        }
        Reply::Counter(counter) => show_counter(counter),
        Reply::Counters(counters) => lines(counters.items.iter().map(show_counter)),
        Reply::LeaseTaken { lease, decision } => {
            format!("{}\n{}", show_lease(lease), show_decision(decision))
        }
        Reply::Lease(lease) => show_lease(lease),
        Reply::LeaseReleased => "released".into(),
        Reply::Leases(leases) => lines(leases.items.iter().map(show_lease)),
        Reply::Batch(_) | Reply::FileApplied(_) => format!("{reply:?}"),
    }
}

pub(crate) fn show_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::LimitReached(decision) => format!("LimitReached {}", show_decision(decision)),
        other => format!("{other:?}"),
    }
}

fn show_rule(info: &RuleInfo) -> String {
    let NewRule { name, group_by, limit, window, shadow, .. } = &info.rule;
    let window = window.map_or(String::new(), |window| format!(" {window:?}"));
    let shadow = if *shadow { " shadow" } else { "" };
    let overrides = if info.overrides > 0 { format!(" overrides {}", info.overrides) } else { String::new() };
    format!(
        "{name} by {group_by:?} limit {}{window}{shadow}{overrides} made @{}",
        show_limit(*limit),
        info.created_at.0
    )
}

fn show_override(info: &OverrideInfo) -> String {
    format!(
        "{}/{} {:?} limit {}",
        info.rule,
        info.item.name,
        info.item.key_values,
        show_limit(info.item.limit)
    )
}

fn show_limit(limit: Limit) -> String {
    match limit {
        Limit::Unlimited => "none".into(),
        Limit::AtMost(limit) => limit.to_string(),
    }
}

/// One limit a line: `rule/override{group} used/limit`, `!` where it refuses, and when it is all given back.
fn show_decision(decision: &Decision) -> String {
    let status = |limit: &LimitStatus| {
        let rule = limit.rule.as_ref().map_or("", |rule| rule.as_str());
        let item = limit.override_name.as_ref().map_or(String::new(), |name| format!("/{name}"));
        let reset = limit.reset.map_or(String::new(), |reset| format!(" reset {}", reset.0));
        let mark = if limit.exceeded { " !" } else { "" };
        let shadow = if limit.shadow { " shadow" } else { "" };
        let (used, of) = (limit.used, show_limit(limit.limit));
        format!("\n{rule}{item}{:?} {used}/{of}{reset}{shadow}{mark}", limit.group)
    };
    let allowed = if decision.allowed { "allowed" } else { "refused" };
    let retry = decision.retry_after.map_or(String::new(), |retry| format!(" retry {}", retry.0));
    format!("{allowed}{retry}{}", decision.limits.iter().map(status).collect::<String>())
}

fn show_counter(counter: &CounterInfo) -> String {
    let leased = if counter.leased > 0 { format!(" leased {}", counter.leased) } else { String::new() };
    format!("{:?} = {}{leased}", counter.key_values, counter.total)
}

fn show_lease(lease: &limiter::LeaseInfo) -> String {
    let owner = lease.owner.as_ref().map_or(String::new(), |owner| format!(" of {owner}"));
    let (held, left) = (lease.now.0 - lease.taken_at.0, lease.expires_at.0 - lease.now.0);
    format!(
        "lease {}{owner} {:?} x{} token {} held {held} left {left}",
        lease.id, lease.key_values, lease.hits, lease.fencing_token.0
    )
}
