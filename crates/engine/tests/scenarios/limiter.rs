//! The limiter's commands and answers as lines of text.

use super::{
    conditions::{self, query},
    lines, name, option_of, page, show_quota,
};
use limina_engine::{
    Command, Millis,
    limiter::{
        self, AppliedLimit, Change, Check, CheckBatch, CheckSet, Checked, ConflictCode, Counter,
        CounterChange, CounterId, Durability, EntryMode, Group, GroupId, Limit, NewLease, NewOverride,
        NewRule, NewRuleSet, OverridePatch, Refusal, Reply, RequestLimit, RuleChange, RuleField, RulePatch,
        RuleQuery, RuleSetChanges, RuleSetInfo, RuleSetPlan, SetAuthor, SetConflict, SetEntry, SetOverrides,
        SetRule, Take, Usage, Window, WindowType,
    },
};

/// `verb [NAME…] [key=value…] [option[:value]…]`, if the verb is one of the limiter's. A limit of -1 is no limit.
/// `where:` gives the conditions of a rule or of a query, see [`conditions`].
pub(crate) fn parse(verb: &str, words: &[&str]) -> Option<Command> {
    let option = |key: &str| option_of(words, key);
    let number = |key: &str| option(key).map(|text| text.parse::<i64>().unwrap());
    let millis = |key: &str| number(key).map(|millis| Millis(millis as u64));
    let names: Vec<_> = words.iter().filter(|word| !word.contains(['=', ':'])).collect();
    let key_values_of =
        |words: &[&str]| conditions::key_values(words.iter().filter(|word| !word.contains(':')).copied());
    let key_values = || key_values_of(words);
    let found = || query(option("where").unwrap_or_default());
    let limit = || number("limit").map(limit_of);
    let window = || {
        let burst = number("burst").map(|burst| burst as u64);
        let fixed = millis("fixed").map(|per| Window::Fixed { per });
        let sliding = millis("sliding").map(|per| Window::Sliding { per });
        fixed.or(sliding).or(millis("bucket").map(|per| Window::Bucket { per, burst }))
    };
    let selection = || option("where").map(|text| query(text).selection().clone());
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
        description: option("about").map(Into::into),
    };
    let item = || NewOverride {
        name: name(names[1]),
        key_values: key_values(),
        limit: limit().unwrap(),
        burst: number("burst").map(|burst| burst as u64),
    };
    let hits = || number("hits").unwrap_or(1);
    // A lease's session is its id and `-s`.
    let session = || name(option("session").unwrap_or(&format!("{}-s", names[0])));
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
                shadow: option("shadow").map(|text| text != "no"),
                durability: durability().map(Some),
                description: option("about").map(|text| (text != "none").then(|| text.into())),
            },
        }),
        "delete-rule" => changed(Change::DeleteRule(name(names[0]))),
        // `put-set SET [open] [server] / RULE … / RULE OVERRIDE …`: behind each slash is a rule as `rule` describes it, or
        // an override of the rule before it as `override` describes it. `plan-set` only says what would change.
        "put-set" => {
            let (set, new) = rule_set(words);
            changed(Change::PutRuleSet { set, new, author: author(words) })
        }
        "plan-set" => {
            let (set, new) = rule_set(words);
            limiter::Command::PlanRuleSet(RuleSetPlan::new(set, new).unwrap())
        }
        "delete-set" => limiter::Command::Change(RuleChange::delete_rule_set(name(names[0]), author(words))),
        "get-set" => limiter::Command::GetRuleSet(name(names[0])),
        "sets" => limiter::Command::ListRuleSets(page(words, name)),
        "get-rule" => limiter::Command::GetRule(name(names[0])),
        "rules" => {
            limiter::Command::ListRules { query: RuleQuery::new(found()).unwrap(), page: page(words, name) }
        }
        "override" => changed(Change::CreateOverride { rule: name(names[0]), new: item() }),
        "put-override" => changed(Change::PutOverride { rule: name(names[0]), new: item() }),
        "patch-override" => changed(Change::PatchOverride {
            rule: name(names[0]),
            name: name(names[1]),
            patch: OverridePatch {
                limit: limit(),
                key_values: words.iter().any(|word| word.contains('=')).then(key_values),
                burst: option("burst").map(|text| text.parse().ok()),
            },
        }),
        "delete-override" => changed(Change::DeleteOverride { rule: name(names[0]), name: name(names[1]) }),
        "overrides" => {
            limiter::Command::ListOverrides { rule: name(names[0]), query: found(), page: page(words, name) }
        }
        "get-override" => limiter::Command::GetOverride { rule: name(names[0]), name: name(names[1]) },
        "match" => limiter::Command::Match(key_values()),
        // `back:key=value` is an entry before it that gives one back.
        "check" => {
            let back = option("back").map(|pair| Take::new(conditions::key_values([pair]), -1).unwrap());
            let entries = back.into_iter().chain([Take::new(key_values(), hits()).unwrap()]).collect();
            let check = Check::new(entries).unwrap().with_dry_run(option("dry").is_some());
            let check = check.with_report(option("report").is_some());
            limiter::Command::Check(check.with_require_match(option("require").is_some()))
        }
        // Checks, separated by a slash.
        "check-batch" => {
            let checks = words.split(|word| *word == "/").map(|words| {
                let hits = option_of(words, "hits").map_or(1, |hits| hits.parse().unwrap());
                let take = Take::new(key_values_of(words), hits).unwrap();
                let check = Check::new(vec![take]).unwrap().with_dry_run(option_of(words, "dry").is_some());
                let check = check.with_report(option_of(words, "report").is_some());
                check.with_require_match(option_of(words, "require").is_some())
            });
            limiter::Command::CheckBatch(CheckBatch::new(checks.collect()).unwrap())
        }
        // Entries, separated by a slash: `look`, `report`, `or:NUMBER` for an alternative, `limit: per:` for a limit of the request.
        "check-set" => {
            let entries = words.split(|word| *word == "/").map(|words| {
                let option = |key: &str| option_of(words, key);
                let is = |word: &str| words.contains(&word);
                let number = |key: &str| option(key).map(|text| text.parse::<i64>().unwrap());
                let pairs = words.iter().filter(|word| word.contains('=') && !word.contains(':'));
                let hits = number("hits").unwrap_or(if is("look") { 0 } else { 1 });
                let given = number("limit").map(|limit| {
                    RequestLimit::new(limit as u64, Millis(number("per").unwrap() as u64)).unwrap()
                });
                let take = Take::new(conditions::key_values(pairs.copied()), hits).unwrap().with_limit(given);
                let mode = match (is("look"), is("report")) {
                    (true, _) => EntryMode::Look,
                    (_, true) => EntryMode::Report,
                    _ => EntryMode::Take,
                };
                SetEntry::new(take, mode).with_alternative(number("or").map(|number| number as u16))
            });
            limiter::Command::CheckSet(CheckSet::new(entries.collect()).unwrap())
        }
        "counter" => limiter::Command::MoveCounter(amount("by")),
        "set" => limiter::Command::SetCounter(amount("to")),
        "counters" => limiter::Command::ListCounters {
            query: found(),
            page: page(words, |text| CounterId(text.parse().unwrap())),
        },
        "lease" => {
            let (id, ttl) = (name(names[0]), millis("ttl").unwrap());
            let lease = NewLease::new(id, session(), key_values(), hits() as u64, ttl).unwrap();
            let lease = lease.with_owner(option("owner").map(name));
            let lease = lease.with_wait(millis("wait").unwrap_or(Millis(0))).unwrap();
            limiter::Command::TakeLease(lease.with_require_match(option("require").is_some()))
        }
        "heartbeat" => limiter::Command::ExtendLease { id: name(names[0]), session: session() },
        "release" => limiter::Command::ReleaseLease { id: name(names[0]), session: Some(session()) },
        "force-release" => limiter::Command::ReleaseLease { id: name(names[0]), session: None },
        "leave" => limiter::Command::AbandonLease(name(names[0])),
        "get-lease" => limiter::Command::GetLease(name(names[0])),
        "leases" => {
            limiter::Command::ListLeases { owner: option("owner").map(name), page: page(words, name) }
        }
        // `above:USED/LIMIT`: only groups that use more than this.
        "groups" => limiter::Command::ListGroups {
            rule: name(names[0]),
            above: option("above").map(|text| {
                let (used, limit) = text.split_once('/').unwrap();
                Usage { limit: limit_of(limit.parse().unwrap()), used: used.parse().unwrap() }
            }),
            page: page(words, |text| GroupId(text.parse().unwrap())),
        },
        _ => return None,
    };
    Some(Command::Limiter(command))
}

fn author(words: &[&str]) -> SetAuthor {
    if words.contains(&"server") { SetAuthor::Server } else { SetAuthor::Client }
}

fn rule_set(words: &[&str]) -> (limina_engine::Name, NewRuleSet) {
    let mut parts = words.split(|word| *word == "/");
    let head = parts.next().unwrap();
    let mut rules: Vec<SetRule> = Vec::new();
    for part in parts {
        let has_key_values = part.iter().any(|word| word.contains('=') && !word.contains(':'));
        let verb = if has_key_values { "override" } else { "rule" };
        let Some(Command::Limiter(limiter::Command::Change(change))) = parse(verb, part) else {
            panic!("{part:?}")
        };
        match &*change {
            Change::CreateRule(rule) => rules.push(SetRule { rule: rule.clone(), overrides: Vec::new() }),
            Change::CreateOverride { new, .. } => rules.last_mut().unwrap().overrides.push(new.clone()),
            other => panic!("{other:?}"),
        }
    }
    let overrides = if head.contains(&"open") { SetOverrides::Open } else { SetOverrides::Closed };
    (name(head[0]), NewRuleSet { rules, overrides })
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
            let overrides: Vec<_> = found.matching_overrides.iter().map(|item| item.name.as_str()).collect();
            format!("{} {:?} {overrides:?}", found.rule.name, found.group)
        })),
        Reply::Allowed(decision) | Reply::Set(decision) => show_decision(decision),
        Reply::Moved { counter, decision } => {
            format!("{}\n{}", show_counter(counter), show_decision(decision))
        }
        Reply::Counter(counter) => show_counter(counter),
        Reply::Counters(counters) => lines(counters.items.iter().map(show_counter)),
        Reply::LeaseTaken { lease, session, decision } => {
            format!("session {session} {}\n{}", show_lease(lease), show_decision(decision))
        }
        Reply::Lease(lease) => show_lease(lease),
        Reply::LeaseReleased => "released".into(),
        Reply::LeaseAbandoned => "abandoned".into(),
        Reply::Leases(leases) => lines(leases.items.iter().map(show_lease)),
        Reply::Groups(groups) => lines(groups.items.iter().map(show_group)),
        Reply::Batch(decisions) => lines(decisions.iter().map(|decision| match decision {
            Ok(decision) => show_decision(decision),
            Err(refusal) => show_refusal(refusal),
        })),
        Reply::RuleSetPut { is_new: true, changes } => format!("created\n{}", show_changes(changes)),
        Reply::RuleSetPut { is_new: false, changes } => format!("put\n{}", show_changes(changes)),
        Reply::RuleSetPlanned(changes) => show_changes(changes),
        Reply::RuleSetDeleted(changes) => format!("deleted\n{}", show_changes(changes)),
        Reply::RuleSet(set) => {
            let limiter::RuleSet { name, rules, overrides, created_position } = set.clone();
            let info = RuleSetInfo { name, rules: rules.len() as u64, overrides, created_position };
            lines(std::iter::once(show_set(&info)).chain(rules.iter().flat_map(|of_set| {
                let overrides = of_set.overrides.iter().map(show_override);
                std::iter::once(show_rule(&rule_of_set(of_set))).chain(overrides)
            })))
        }
        Reply::RuleSets(sets) => lines(sets.items.iter().map(show_set)),
    }
}

pub(crate) fn show_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::LimitReached(decision) => format!("LimitReached {}", show_decision(decision)),
        Refusal::QuotaExceeded(exceeded) => show_quota(exceeded),
        other => format!("{other:?}"),
    }
}

fn show_set(info: &RuleSetInfo) -> String {
    format!("{} {:?} {} rules made @{}", info.name, info.overrides, info.rules, info.created_position.0)
}

fn show_changes(changes: &RuleSetChanges) -> String {
    let mut shown: Vec<String> = changes.created.iter().map(|name| format!("+ {name}")).collect();
    shown.extend(changes.changed.iter().map(|changed| {
        let fields: Vec<_> = changed.fields.iter().map(|field| field_word(*field)).collect();
        let empty = if changed.starts_empty { " starts empty" } else { "" };
        format!("~ {} {}{empty}", changed.rule, fields.join(" "))
    }));
    shown.extend(changes.deleted.iter().map(|name| format!("- {name}")));
    shown.extend(changes.conflicts.iter().map(
        |SetConflict { rule, code, managed_by, override_name }| match (code, managed_by, override_name) {
            (ConflictCode::RuleManagedBySet, Some(set), None) => format!("! {rule} is of {set}"),
            (code, None, Some(name)) => format!("! {code:?} {{ rule: {rule:?}, name: {name:?} }}"),
            other => panic!("no conflict: {other:?}"),
        },
    ));
    if shown.is_empty() { "no change".into() } else { shown.join("\n") }
}

fn field_word(field: RuleField) -> &'static str {
    match field {
        RuleField::GroupBy => "group_by",
        RuleField::Selection => "selection",
        RuleField::Limit => "limit",
        RuleField::Window => "window",
        RuleField::Shadow => "shadow",
        RuleField::Durability => "durability",
        RuleField::Description => "description",
        RuleField::Overrides => "overrides",
        RuleField::ManagedBy => "managed_by",
    }
}

/// The rule as a read of it alone shows it.
fn rule_of_set(of_set: &limiter::RuleOfSet) -> limiter::Rule {
    let of_set = of_set.clone();
    limiter::Rule {
        name: of_set.name,
        group_by: of_set.group_by,
        selection: of_set.selection,
        limit: of_set.limit,
        window: of_set.window,
        shadow: of_set.shadow,
        durability: of_set.durability,
        description: of_set.description,
        overrides: of_set.overrides.len() as u64,
        managed_by: Some(of_set.managed_by),
        created_position: of_set.created_position,
    }
}

fn show_rule(info: &limiter::Rule) -> String {
    let limiter::Rule { name, group_by, limit, window, shadow, description, .. } = info;
    let window = window.map_or(String::new(), |window| {
        let kind = match window.kind {
            WindowType::Fixed => "fixed",
            WindowType::Sliding => "sliding",
            WindowType::Bucket => "bucket",
        };
        let burst = window.burst.map_or(String::new(), |burst| format!(" burst {burst}"));
        format!(" {kind} {}{burst}", window.per_ms.0)
    });
    let durability = match info.durability {
        Durability::Durable => "durable",
        Durability::Relaxed => "relaxed",
    };
    let shadow = if *shadow { " shadow" } else { "" };
    let about = description.as_ref().map_or(String::new(), |text| format!(" about {text}"));
    let overrides = if info.overrides > 0 { format!(" overrides {}", info.overrides) } else { String::new() };
    let set = info.managed_by.as_ref().map_or(String::new(), |set| format!(" of {set}"));
    format!(
        "{name} by {group_by:?} limit {}{window} {durability}{shadow}{about}{overrides}{set} made @{}",
        show_number(*limit),
        info.created_position.0
    )
}

fn show_override(info: &limiter::Override) -> String {
    let limiter::Override { rule, name, key_values, limit, burst, created_position } = info;
    let burst = burst.map_or(String::new(), |burst| format!(" burst {burst}"));
    let limit = show_number(*limit);
    format!("{rule}/{name} {key_values:?} limit {limit}{burst} made @{}", created_position.0)
}

fn show_number(limit: Limit) -> String {
    match limit {
        Limit::Unlimited => "none".into(),
        Limit::AtMost(limit) => limit.to_string(),
    }
}

/// One limit a line: `rule/override{group} used/limit`, `!` where it refuses, and when it is all given back.
pub(crate) fn show_limit(limit: &AppliedLimit) -> String {
    let rule = limit.rule.as_ref().map_or("", |rule| rule.as_str());
    let item = limit.override_name.as_ref().map_or(String::new(), |name| format!("/{name}"));
    let reset = limit.reset_ms.map_or(String::new(), |reset| format!(" reset {}", reset.0));
    let mark = if limit.exceeded { " !" } else { "" };
    let shadow = if limit.shadow { " shadow" } else { "" };
    let waiting = if limit.waiting > 0 { format!(" waiting {}", limit.waiting) } else { String::new() };
    let (used, of) = (limit.used, show_number(limit.limit));
    format!("{rule}{item}{:?} {used}/{of}{reset}{shadow}{waiting}{mark}", limit.group)
}

fn show_decision(decision: &Checked) -> String {
    let status = |limit| format!("\n{}", show_limit(limit));
    let allowed = match (decision.allowed, decision.reported) {
        (true, false) => "allowed",
        (false, false) => "refused",
        (true, true) => "reported",
        (false, true) => "reported, exceeded",
    };
    let retry = decision.retry_after.map_or(String::new(), |retry| format!(" retry {}", retry.0));
    format!("{allowed}{retry}{}", decision.limits.iter().map(status).collect::<String>())
}

fn show_counter(counter: &Counter) -> String {
    let leased = if counter.leased > 0 { format!(" leased {}", counter.leased) } else { String::new() };
    format!("{:?} = {}{leased}", counter.key_values, counter.counters)
}

/// `[/override]{group} used/limit`, and when it is all given back.
fn show_group(group: &Group) -> String {
    let item = group.override_name.as_ref().map_or(String::new(), |name| format!("/{name}"));
    let reset = group.reset_ms.map_or(String::new(), |reset| format!(" reset {}", reset.0));
    let waiting = if group.waiting > 0 { format!(" waiting {}", group.waiting) } else { String::new() };
    format!("{item}{:?} {}/{}{reset}{waiting}", group.group, group.used, show_number(group.limit))
}

fn show_lease(lease: &limiter::Lease) -> String {
    let owner = lease.owner.as_ref().map_or(String::new(), |owner| format!(" of {owner}"));
    let operation = lease.operation_id.as_ref().map_or(String::new(), |id| format!(" in {id}"));
    let (held, left) = (lease.held_ms.0, lease.expires_in_ms.0);
    format!(
        "lease {}{operation}{owner} {:?} x{} token {} held {held} left {left}",
        lease.lease_id, lease.key_values, lease.hits, lease.fencing_token.0
    )
}
