//! Commands and answers about decisions as lines of text.

use super::{conditions, limiter, lines, locks, name, option_of, page, show_quota};
use limina_engine::{
    Command, Millis, Position,
    decisions::{
        self, Batch, BatchItem, Decide, DecideRequest, Decision, PartCheck, PartEvent, Parts, Refusal,
        Refused, Reply, Settle,
    },
    events::{EventPart, RefusedEvent},
    ledger::{Change, RefusedHold},
    limiter::{HeldBy, LimitOfCheck},
};

/// `decide ID [option:value…] / PART / PART…`, where a part is `check key=value… [hits:n] [name:n] [estimate] [match]`,
/// `hold limit=value… [ceiling:n] [create]`, `lock a b/shared`, or `event STREAM EVENT`. `settle ID [check:name=n…]
/// [hold:limit=n…] [record]` is a commit, `abort` a rollback, `renew` a heartbeat, `gone ID WAITER` a hang-up, and `all` a batch
/// of decisions, commits and rollbacks, separated by `//`.
pub(crate) fn parse(verb: &str, words: &[&str]) -> Option<Command> {
    let millis = |key: &str| option_of(words, key).map(|text| Millis(text.parse().unwrap()));
    let id = || name(words[0]);
    let command = match verb {
        "decide" => decisions::Command::Decide(decide(words)),
        "settle" => decisions::Command::Settle(settle(words)),
        "all" => {
            let items = words.split(|word| *word == "//").map(|words| item(words[0], &words[1..]));
            decisions::Command::Batch(Batch::new(items.collect()).unwrap())
        }
        "gone" => decisions::Command::Abandon { operation_id: id(), waiter: name(words[1]) },
        "abort" => decisions::Command::Rollback(id()),
        "renew" => decisions::Command::Heartbeat(id()),
        "decision" => decisions::Command::Get(id()),
        "decisions" => decisions::Command::List {
            owner: option_of(words, "owner").map(name),
            older_than: millis("older"),
            page: page(words, |text| Position(text.parse().unwrap())),
        },
        _ => return None,
    };
    Some(Command::Decisions(command))
}

fn item(verb: &str, words: &[&str]) -> BatchItem {
    match verb {
        "decide" => BatchItem::Decide(decide(words)),
        "settle" => BatchItem::Settle(settle(words)),
        "abort" => BatchItem::Rollback(name(words[0])),
        other => panic!("unknown item {other}"),
    }
}

fn decide(words: &[&str]) -> DecideRequest {
    let mut sections = words.split(|word| *word == "/");
    let options = sections.next().unwrap();
    let millis = |key: &str| option_of(options, key).map(|text| Millis(text.parse().unwrap()));
    let mut parts = Parts::default();
    sections.for_each(|section| part(&mut parts, section[0], &section[1..]));
    let decide = Decide::new(name(words[0]), parts).unwrap();
    let decide = decide.with_ttl(millis("ttl").unwrap_or(Millis(1_000))).unwrap();
    let wait = millis("wait").unwrap_or(Millis(0));
    let waiter = (wait > Millis(0)).then(|| name(option_of(options, "by").unwrap_or("w")));
    let decide = decide.with_wait(wait).unwrap();
    let decide = decide.with_owner(option_of(options, "owner").map(name));
    let decide = decide.with_dry_run(option_of(options, "dry").is_some());
    DecideRequest { waiter, ..decide.with_explain(option_of(options, "explain").is_some()).into() }
}

fn settle(words: &[&str]) -> Settle {
    let amounts = |key: &str| -> Vec<(&str, i64)> {
        let of_key = words.iter().filter_map(|word| word.strip_prefix(key)?.strip_prefix(':'));
        of_key.map(|pair| pair.split_once('=').unwrap()).map(|(n, v)| (n, v.parse().unwrap())).collect()
    };
    let checks = amounts("check").into_iter().map(|(check, hits)| (name(check), hits as u64));
    let holds = amounts("hold").into_iter().map(|(limit, value)| (name(limit), value));
    let settle = Settle::new(name(words[0])).with_checks(checks).unwrap().with_holds(holds).unwrap();
    settle.with_record(option_of(words, "record").is_some())
}

fn part(parts: &mut Parts, kind: &str, words: &[&str]) {
    let number = |key: &str| option_of(words, key).map(|text| text.parse::<i64>().unwrap());
    let pairs = || words.iter().filter(|word| word.contains('=') && !word.contains(':')).copied();
    match kind {
        "check" => parts.checks.push(PartCheck {
            name: option_of(words, "name").map(name),
            require_match: option_of(words, "match").is_some(),
            estimate: option_of(words, "estimate").is_some(),
            ..PartCheck::new(conditions::key_values(pairs()), number("hits").unwrap_or(1) as u64)
        }),
        "hold" => {
            parts.create_missing = option_of(words, "create").is_some();
            parts.holds.extend(pairs().map(|pair| {
                let (limit, value) = pair.split_once('=').unwrap();
                Change { ceiling: number("ceiling"), ..Change::new(name(limit), value.parse().unwrap()) }
            }));
        }
        "lock" => parts.locks.extend(words.iter().map(|word| locks::lock_of(word))),
        "event" => parts.event = Some(PartEvent::new(name(words[0]), words[1])),
        other => panic!("unknown part {other}"),
    }
}

pub(crate) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Decided(decision)
        | Reply::Ended(decision)
        | Reply::Extended(decision)
        | Reply::Decision(decision) => show_decision(decision),
        Reply::Batch(results) => lines(results.iter().map(|result| match result {
            Ok(reply) => show_reply(reply),
            Err(refusal) => show_refusal(refusal),
        })),
        Reply::Abandoned => "abandoned".into(),
        Reply::Decisions(listed) => lines(listed.items.iter().map(show_decision)),
    }
}

fn show_decision(decision: &Decision) -> String {
    let Decision { operation_id, state, owner, position, fencing_token, made_at, expires_at, now, .. } =
        decision;
    let mut head = format!("{operation_id} {state:?}");
    head += &owner.as_ref().map_or(String::new(), |owner| format!(" of {owner}"));
    head += if decision.repeated { " repeated" } else { "" };
    head += if decision.late { " late" } else { "" };
    head += &position.map_or(" dry".into(), |position| format!(" @{}", position.0));
    head += &fencing_token.map_or(String::new(), |token| format!(" token {}", token.0));
    head += &format!(" age {}", now.0 - made_at.0);
    head += &expires_at.map_or(String::new(), |expires_at| format!(" left {}", expires_at.0 - now.0));
    let limits = decision.limits.iter().map(show_limit);
    let values = decision
        .values
        .iter()
        .map(|value| format!("{}: {} + {}", value.limit_name, value.commit_value, value.hold_value));
    let held = decision.locks.iter().map(|lock| format!("lock {:?} {:?}", lock.key_values, lock.mode));
    let event = decision.event.iter().map(|EventPart { stream, event, state }| {
        format!("{stream}: {} {state:?}, due in {}", event.event, event.publishes_at.0 as i64 - now.0 as i64)
    });
    lines([head].into_iter().chain(limits).chain(values).chain(held).chain(event))
}

fn show_limit(limit: &LimitOfCheck) -> String {
    let check = limit.check.as_ref().map_or(limit.status.entry.to_string(), |name| name.to_string());
    format!("{check}: {}{}", limiter::show_limit(&limit.status), show_holders(&limit.held_by))
}

fn show_holders(held_by: &[HeldBy]) -> String {
    let holders = held_by.iter().map(|HeldBy { operation_id, lease_id, owner, held, expires_in }| {
        let id = operation_id
            .as_ref()
            .map_or_else(|| format!("the lease {}", lease_id.as_ref().unwrap()), |id| id.to_string());
        let owner = owner.as_ref().map_or(String::new(), |owner| format!(" of {owner}"));
        format!("{id}{owner} for {} and {} more", held.0, expires_in.0)
    });
    let holders: Vec<String> = holders.collect();
    if holders.is_empty() { String::new() } else { format!(", held by {}", holders.join(", ")) }
}

pub(crate) fn show_refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Refused(refused) => show_refused(refused),
        Refusal::QuotaExceeded(exceeded) => show_quota(exceeded),
        other => format!("{other:?}"),
    }
}

fn show_refused(refused: &Refused) -> String {
    let retry = refused.retry_after.map_or(String::new(), |millis| format!(", retry after {}", millis.0));
    let head = format!("Refused{}{retry}", if refused.is_limited() { " by limits" } else { "" });
    let limits = refused.limits.iter().map(show_limit);
    let holds = refused.holds.iter().map(|hold| match &hold.refused {
        RefusedHold::LimitExceeded(limit) => format!(
            "LimitExceeded {}: {} + {} of {}, {} available{}",
            limit.limit_name,
            limit.commit_value,
            limit.hold_value,
            limit.ceiling,
            limit.available,
            show_holders(&hold.held_by)
        ),
        RefusedHold::ValueOverflow { limit_name, ceiling, commit_value, hold_value, available } => {
            format!(
                "ValueOverflow {limit_name}: {commit_value} + {hold_value} of {ceiling:?}, {available} available"
            )
        }
    });
    let locks = refused.locks.iter().map(|lock| {
        let millis = |span: Option<Millis>| span.map_or("-".into(), |span| span.0.to_string());
        format!(
            "LockHeld {:?}: owner {:?}, held {} left {}, {} waiting",
            lock.key_values,
            lock.owner,
            millis(lock.held),
            millis(lock.expires_in),
            lock.waiting
        )
    });
    let event = refused.event.iter().map(|event| match event {
        RefusedEvent::EventConflict { conflicting_time, open_at } => {
            format!("EventConflict with {}, open at {:?}", conflicting_time.0, open_at.map(|time| time.0))
        }
        RefusedEvent::StreamFull { max_events } => format!("StreamFull {max_events}"),
    });
    lines([head].into_iter().chain(limits).chain(holds).chain(locks).chain(event))
}
