//! The limits of commands. Every constructor accepts what is just within its limits, and refuses what is just outside with
//! the path of the field and the reason. No other layer tests these limits again.
//!
//! A node that decodes the request of another node checks the same limits, at the door that the last test shows.

use limina_engine::{
    Invalid, KeyValues, Millis, Name, Page, Request, UncheckedRequest,
    decisions::{Decide, PartCheck, Parts, Settle},
    events::{ChangesAfter, Mode as Duplicates, StreamTerms, Submit},
    key_values::Value,
    ledger::{
        AsOf, Batch, Change, Context, Extend, Finalization, FinalizationChange, Hold, MAX_CHANGES, Transfer,
        Values,
    },
    limiter::{
        Change as Rules, Check, CheckBatch, CheckSet, CounterChange, EntryMode, Limit, MAX_COUNT, NewLease,
        NewOverride, NewRule, NewRuleSet, OverridePatch, RequestLimit, RuleChange, RulePatch, RuleQuery,
        RuleSetPlan, SetAuthor, SetEntry, SetOverrides, SetRule, Take, Window,
    },
    locks::{Acquire, Lock, Mode},
    selection::{Query, Selection, Test},
};
use serde::Serialize;

const DAY: u64 = Millis::DAY.0;
const MOST: i64 = MAX_COUNT as i64;

/// `expect` is the whole sentence of an error, or empty if the value is valid.
#[track_caller]
fn check<T>(built: Result<T, Invalid>, expect: &str) {
    let sentence = built.map_or_else(|invalid| invalid.to_string(), |_| String::new());
    assert_eq!(sentence, expect);
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn one(key: &str) -> KeyValues {
    KeyValues::new(vec![(key, Value::<&str>::Integer(1))]).unwrap()
}

fn names(count: usize) -> Vec<Name> {
    (0..count).map(|number| name(&format!("n{number}"))).collect()
}

fn long(bytes: usize) -> Box<str> {
    "x".repeat(bytes).into()
}

#[test]
fn key_values() {
    let pairs = |count: usize| (0..count).map(|key| (format!("k{key}"), Value::<&str>::Integer(1))).collect();
    check(KeyValues::new(pairs(64)), "");
    check(KeyValues::new(pairs(65)), "key_values: must not have more than 64 items, and has 65");
    let pair = |key: &str, value: Value<&str>| KeyValues::new(vec![(key.to_owned(), value)]).map(|_| ());
    check(pair(&long(256), Value::Boolean(true)), "");
    check(pair("", Value::Boolean(true)), "key_values.: must have from 1 to 256 bytes");
    let key = long(257);
    check(pair(&key, Value::Boolean(true)), &format!("key_values.{key}: must have from 1 to 256 bytes"));
    check(pair("k", Value::String(&long(1024))), "");
    check(pair("k", Value::String(&long(1025))), "key_values.k: must not have more than 1024 bytes");
    check(pair("k", Value::Float(f64::NAN)), "key_values.k: must be a finite number");
    check(pair("k", Value::Float(f64::INFINITY)), "key_values.k: must be a finite number");
    let twice = vec![("k", Value::<&str>::Integer(1)), ("k", Value::Integer(2))];
    check(KeyValues::new(twice), "key_values.k: repeats an earlier one");
}

#[test]
fn pages() {
    check(Page::<Name>::new(None, 1), "");
    check(Page::<Name>::new(None, 100_000), "");
    for limit in [0, 100_001, usize::MAX] {
        check(Page::<Name>::new(None, limit), "limit: must be from 1 to 100000");
    }
}

#[test]
fn selections_and_queries() {
    let selection = |key: &str, tests| Selection::new(vec![(key.into(), tests)]);
    let exists = || vec![Test::Exists(true)];
    check(selection("k", exists()), "");
    check(selection("", exists()), "selection.: must have from 1 to 256 bytes");
    check(selection("k", vec![]), "selection.k: must have at least one test");
    check(
        Selection::new(vec![("k".into(), exists()), ("k".into(), exists())]),
        "selection.k: repeats an earlier one",
    );
    let keys = |count: usize| (0..count).map(|key| (format!("k{key}").into(), exists())).collect();
    check(Selection::new(keys(64)), "");
    check(Selection::new(keys(65)), "selection: must not have more than 64 items, and has 65");
    let text = |bytes| Value::String(long(bytes));
    check(selection("k", vec![Test::Exists(true), Test::Eq(text(1024))]), "");
    for (test, path) in [
        (Test::Eq(text(1025)), "k.eq"),
        (Test::Ne(text(1025)), "k.ne"),
        (Test::Lt(text(1025)), "k.lt"),
        (Test::Lte(text(1025)), "k.lte"),
        (Test::Gt(text(1025)), "k.gt"),
        (Test::Gte(text(1025)), "k.gte"),
        (Test::In(vec![text(1), text(1025)].into()), "k.in[1]"),
        (Test::Prefix(long(1025)), "k.prefix"),
    ] {
        check(selection("k", vec![test]), &format!("selection.{path}: must not have more than 1024 bytes"));
    }
    check(selection("k", vec![Test::Gt(Value::Float(f64::NAN))]), "selection.k.gt: must be a finite number");
    let list = |count| vec![Test::In(vec![Value::Integer(1); count].into())];
    check(selection("k", list(1024)), "");
    check(selection("k", list(1025)), "selection.k.in: must not have more than 1024 items, and has 1025");

    let deep =
        |depth| (1..depth).try_fold(Query::default(), |query, _| Query::default().with_any(vec![query]));
    check(deep(8), "");
    check(deep(9), &format!("{}: must not be nested more than 8 deep", ["any[0]"; 8].join(".")));
    let wide = |parts: usize| Query::default().with_all(vec![Query::default(); parts - 1]);
    check(wide(64), "");
    check(wide(65), "all[63]: must not have more than 64 parts");

    let query = |test| Query::default().with_any(vec![Query::new(selection("k", vec![test]).unwrap())]);
    check(query(Test::Exists(false)).and_then(RuleQuery::new), "");
    check(
        query(Test::Prefix("p".into())).and_then(RuleQuery::new),
        "any[0].where.k: must test only `exists`, because rules are found by their `group_by` keys",
    );
}

#[test]
fn ledger() {
    check(Context::new([("k", long(1024)), (&long(256), "".into())]), "");
    check(Context::new([("", "v")]), "context.: must have from 1 to 256 bytes");
    check(Context::new([("k", long(1025))]), "context.k: must not have more than 1024 bytes");
    check(Context::new([("k", "v"), ("k", "w")]), "context.k: repeats an earlier one");
    let entries = |count: usize| (0..count).map(|key| (format!("k{key}"), "v"));
    check(Context::new(entries(64)), "");
    check(Context::new(entries(65)), "context: must not have more than 64 items, and has 65");

    let hold = |limits: Vec<Name>| {
        Hold::new(name("op"), limits.into_iter().map(|limit| Change::new(limit, 1)).collect())
    };
    check(hold(names(MAX_CHANGES)), "");
    check(hold(names(0)), "changes: must have from 1 to 64 items, and has 0");
    check(hold(names(65)), "changes: must have from 1 to 64 items, and has 65");
    // Few names are compared in another way than many.
    for count in [1, 7, 8, 40] {
        let twice = [names(count), names(1)].concat();
        check(hold(twice), &format!("changes[{count}].limit_name: repeats an earlier one"));
    }
    let expires = |millis| hold(names(1)).unwrap().with_expires_after(Some(Millis(millis)));
    check(expires(1), "");
    check(expires(366 * DAY), "");
    check(expires(0), "expires_after: must be from 1 ms to 366 days");
    check(expires(366 * DAY + 1), "expires_after: must be from 1 ms to 366 days");
    let extend = |millis: Option<u64>| Extend::new(name("op"), millis.map(Millis));
    check(extend(None), "");
    check(extend(Some(366 * DAY)), "");
    check(extend(Some(0)), "expires_after: must be from 1 ms to 366 days");
    check(extend(Some(366 * DAY + 1)), "expires_after: must be from 1 ms to 366 days");

    let commit = |limits: Vec<Name>| {
        let change = |limit_name| FinalizationChange { limit_name, value: None };
        Finalization::new(name("op"), Some(limits.into_iter().map(change).collect()))
    };
    check(Finalization::new(name("op"), None), "");
    check(commit(names(64)), "");
    check(commit(names(0)), "changes: must have from 1 to 64 items, and has 0");
    check(commit(names(65)), "changes: must have from 1 to 64 items, and has 65");
    check(commit([names(2), names(1)].concat()), "changes[2].limit_name: repeats an earlier one");

    let values = |limits| Values::new(limits, AsOf::Now);
    check(values(names(1000)), "");
    check(values(names(0)), "limit_names: must have from 1 to 1000 items, and has 0");
    check(values(names(1001)), "limit_names: must have from 1 to 1000 items, and has 1001");
    check(values([names(900), names(1)].concat()), "limit_names[900]: repeats an earlier one");

    let batch = |count| Batch::new(vec![Transfer::Hold(hold(names(1)).unwrap()); count]);
    check(batch(8192), "");
    check(batch(0), "operations: must have from 1 to 8192 items, and has 0");
    check(batch(8193), "operations: must have from 1 to 8192 items, and has 8193");
}

#[test]
fn decisions() {
    let hold = |limit: &Name| Change::new(limit.clone(), 1);
    let lock = |key: &str| Lock { key_values: one(key), mode: Mode::Shared };
    let part =
        |name: Option<&str>, hits| PartCheck { name: name.map(self::name), ..PartCheck::new(one("k"), hits) };
    let decide = |parts: Parts| Decide::new(name("op"), parts);
    let of_checks = |checks| decide(Parts { checks, ..Parts::default() });
    let of_holds = |holds| decide(Parts { holds, ..Parts::default() });
    let of_locks = |locks| decide(Parts { locks, ..Parts::default() });
    check(decide(Parts::default()), "checks: must have from 1 to 16 items, and has 0");
    check(of_checks(vec![part(None, MAX_COUNT); 16]), "");
    check(of_checks(vec![part(None, 1); 17]), "checks: must not have more than 16 items, and has 17");
    check(of_checks(vec![part(None, MAX_COUNT + 1)]), "checks[0].hits: must be from 0 to 2^53−1");
    let twice = vec![part(Some("n"), 1), part(None, 0), part(Some("n"), 1)];
    check(of_checks(twice), "checks[2].name: repeats an earlier one");
    check(of_holds(names(64).iter().map(hold).collect()), "");
    check(
        of_holds(names(65).iter().map(hold).collect()),
        "holds: must not have more than 64 items, and has 65",
    );
    check(of_holds(vec![hold(&name("a")); 2]), "holds[1].limit_name: repeats an earlier one");
    check(of_locks(vec![lock("a"), lock("a")]), "locks[1].key_values: repeats an earlier one");
    let empty = Lock { key_values: KeyValues::empty(), mode: Mode::Exclusive };
    check(of_locks(vec![empty]), "locks[0].key_values: must have from 1 to 64 items, and has 0");
    let ttl = |millis| of_locks(vec![lock("a")]).unwrap().with_ttl(Millis(millis));
    check(ttl(100), "");
    check(ttl(99), "ttl: must be from 100 ms to 24 hours");
    check(ttl(DAY + 1), "ttl: must be from 100 ms to 24 hours");
    let settle = || Settle::new(name("op"));
    check(settle().with_checks(vec![(name("n"), MAX_COUNT)]), "");
    check(settle().with_checks(vec![(name("n"), MAX_COUNT + 1)]), "checks[0].hits: must be from 0 to 2^53−1");
    check(settle().with_checks(vec![(name("n"), 1); 2]), "checks[1].name: repeats an earlier one");
    check(settle().with_holds(vec![(name("n"), 1); 2]), "holds[1].limit_name: repeats an earlier one");
}

#[test]
fn locks() {
    let acquire = |keys: &[String], ttl| {
        let lock = |key: &String| Lock { key_values: one(key), mode: Mode::Shared };
        Acquire::new(keys.iter().map(lock).collect(), Millis(ttl))
    };
    let keys = |count: usize| (0..count).map(|key| format!("k{key}")).collect::<Vec<_>>();
    check(acquire(&keys(64), 100), "");
    check(acquire(&keys(0), 100), "locks: must have from 1 to 64 items, and has 0");
    check(acquire(&keys(65), 100), "locks: must have from 1 to 64 items, and has 65");
    check(acquire(&[keys(3), keys(1)].concat(), 100), "locks[3].key_values: repeats an earlier one");
    check(acquire(&[keys(30), keys(1)].concat(), 100), "locks[30].key_values: repeats an earlier one");
    let empty = Lock { key_values: KeyValues::empty(), mode: Mode::Exclusive };
    check(
        Acquire::new(vec![empty], Millis(100)),
        "locks[0].key_values: must have from 1 to 64 items, and has 0",
    );
    check(acquire(&keys(1), DAY), "");
    check(acquire(&keys(1), 99), "ttl: must be from 100 ms to 24 hours");
    check(acquire(&keys(1), DAY + 1), "ttl: must be from 100 ms to 24 hours");
    let wait = |millis| acquire(&keys(1), 100).unwrap().with_wait(Millis(millis));
    check(wait(0), "");
    check(wait(300_000), "");
    check(wait(300_001), "wait: must be from 0 to 5 minutes");
}

#[test]
fn events() {
    let terms = |duration| StreamTerms::new(Duplicates::OnlyOnce, Millis(duration));
    check(terms(10), "");
    check(terms(30 * DAY), "");
    check(terms(9), "duration: must be from 10 ms to 30 days");
    check(terms(30 * DAY + 1), "duration: must be from 10 ms to 30 days");
    let terms = terms(10).unwrap();
    check(terms.with_max_events(1), "");
    check(terms.with_max_events(1_000_000), "");
    check(terms.with_max_events(0), "max_events: must be from 1 to 1000000");
    check(terms.with_max_events(1_000_001), "max_events: must be from 1 to 1000000");
    check(terms.with_key_frame_every(Millis(100)), "");
    check(terms.with_key_frame_every(Millis(DAY)), "");
    check(terms.with_key_frame_every(Millis(99)), "key_frame_every: must be from 100 ms to 24 hours");
    check(terms.with_key_frame_every(Millis(DAY + 1)), "key_frame_every: must be from 100 ms to 24 hours");
    let submit = |event: Box<str>| Submit::new(name("s"), (*event).into());
    check(submit(long(1024)), "");
    check(submit(long(0)), "event: must have from 1 to 1024 bytes");
    check(submit(long(1025)), "event: must have from 1 to 1024 bytes");
    check(ChangesAfter::new(name("s"), 0, 10_000), "");
    check(ChangesAfter::new(name("s"), 0, 0), "limit: must be from 1 to 10000");
    check(ChangesAfter::new(name("s"), 0, 10_001), "limit: must be from 1 to 10000");
}

#[test]
fn checks_and_leases() {
    let take = |hits| Take::new(one("k"), hits);
    check(take(MOST), "");
    check(take(-MOST), "");
    check(take(MOST + 1), "hits: must be from −(2^53−1) to 2^53−1");
    check(take(i64::MIN), "hits: must be from −(2^53−1) to 2^53−1");
    check(RequestLimit::new(MAX_COUNT, Millis(1)), "");
    check(RequestLimit::new(MAX_COUNT + 1, Millis(1)), "limit.limit: must be from 0 to 2^53−1");
    check(RequestLimit::new(1, Millis(0)), "limit.per: must be from 1 ms to 366 days");
    let entries = |count| Check::new(vec![take(1).unwrap(); count]);
    check(entries(64), "");
    check(entries(0), "entries: must have from 1 to 64 items, and has 0");
    check(entries(65), "entries: must have from 1 to 64 items, and has 65");
    let batch = |count| CheckBatch::new(vec![entries(1).unwrap(); count]);
    check(batch(8192), "");
    check(batch(0), "checks: must have from 1 to 8192 items, and has 0");
    check(batch(8193), "checks: must have from 1 to 8192 items, and has 8193");
    let set = |count, hits, mode| CheckSet::new(vec![SetEntry::new(take(hits).unwrap(), mode); count]);
    check(set(64, 1, EntryMode::Take), "");
    check(set(0, 1, EntryMode::Take), "entries: must have from 1 to 64 items, and has 0");
    check(set(65, 1, EntryMode::Take), "entries: must have from 1 to 64 items, and has 65");
    check(set(1, 0, EntryMode::Take), "entries[0].hits: must be from 1 to 2^53−1");
    check(set(1, 1, EntryMode::Look), "entries[0].hits: must be from 0 to 0");
    check(set(1, -1, EntryMode::Report), "");
    let amount = |amount| CounterChange::new(one("k"), amount);
    check(amount(MOST), "");
    check(amount(-MOST), "");
    check(amount(MOST + 1), "counters: must be from −(2^53−1) to 2^53−1");
    check(amount(-MOST - 1), "counters: must be from −(2^53−1) to 2^53−1");
    let lease = |hits, ttl| NewLease::new(name("id"), name("session"), one("k"), hits, Millis(ttl));
    check(lease(1, 100), "");
    check(lease(MAX_COUNT, DAY), "");
    check(lease(0, 100), "hits: must be from 1 to 2^53−1");
    check(lease(MAX_COUNT + 1, 100), "hits: must be from 1 to 2^53−1");
    check(lease(1, 99), "ttl: must be from 100 ms to 24 hours");
    check(lease(1, DAY + 1), "ttl: must be from 100 ms to 24 hours");
    check(lease(1, 100).unwrap().with_wait(Millis(300_001)), "wait: must be from 0 to 5 minutes");
}

fn rule() -> NewRule {
    NewRule {
        name: name("r"),
        group_by: vec![],
        selection: Selection::default(),
        limit: Limit::AtMost(1),
        window: None,
        shadow: false,
        durability: None,
        description: None,
    }
}

#[test]
fn rules_and_overrides() {
    let create = |rule| RuleChange::new(Rules::CreateRule(rule));
    let group_by = |keys: Vec<Box<str>>| create(NewRule { group_by: keys, ..rule() });
    let keys = |count: usize| (0..count).map(|key| format!("k{key}").into()).collect::<Vec<_>>();
    check(group_by(keys(16)), "");
    check(group_by(keys(17)), "group_by: must not have more than 16 items, and has 17");
    check(group_by(vec!["k".into(), "".into()]), "group_by[1]: must have from 1 to 256 bytes");
    check(group_by(vec![long(257)]), "group_by[0]: must have from 1 to 256 bytes");
    check(group_by(vec!["k".into(), "l".into(), "k".into()]), "group_by[2]: repeats an earlier one");
    let limit = |limit| create(NewRule { limit: Limit::AtMost(limit), ..rule() });
    check(limit(MAX_COUNT), "");
    check(limit(MAX_COUNT + 1), "limit: must be from 0 to 2^53−1");
    let described = |bytes| create(NewRule { description: Some(long(bytes)), ..rule() });
    check(described(1024), "");
    check(described(1025), "description: must not have more than 1024 bytes");

    let window = |window| create(NewRule { window: Some(window), ..rule() });
    for per in [0, 366 * DAY + 1] {
        let per = Millis(per);
        for kind in [Window::Fixed { per }, Window::Sliding { per }, Window::Bucket { per, burst: None }] {
            check(window(kind), "window.per: must be from 1 ms to 366 days");
            let patch = RulePatch { window: Some(Some(kind)), ..RulePatch::default() };
            check(
                RuleChange::new(Rules::PatchRule { name: name("r"), patch }),
                "window.per: must be from 1 ms to 366 days",
            );
        }
    }
    let bucket = |burst| window(Window::Bucket { per: Millis(1), burst: Some(burst) });
    check(bucket(1), "");
    check(bucket(0), "window.burst: must be from 1 to 2^53−1");
    check(bucket(MAX_COUNT + 1), "window.burst: must be from 1 to 2^53−1");
    let patch = |patch| RuleChange::new(Rules::PatchRule { name: name("r"), patch });
    let too_much = Some(Limit::AtMost(MAX_COUNT + 1));
    check(patch(RulePatch { limit: too_much, ..RulePatch::default() }), "limit: must be from 0 to 2^53−1");
    check(
        patch(RulePatch { description: Some(Some(long(1025))), ..RulePatch::default() }),
        "description: must not have more than 1024 bytes",
    );

    let new = |limit, burst| NewOverride { name: name("o"), key_values: one("k"), limit, burst };
    let put = |new| RuleChange::new(Rules::PutOverride { rule: name("r"), new });
    check(put(new(Limit::Unlimited, Some(1))), "");
    check(put(new(Limit::Unlimited, Some(0))), "burst: must be from 1 to 2^53−1");
    check(put(new(Limit::AtMost(MAX_COUNT + 1), None)), "limit: must be from 0 to 2^53−1");
    let patch = |patch| RuleChange::new(Rules::PatchOverride { rule: name("r"), name: name("o"), patch });
    check(
        patch(OverridePatch { burst: Some(Some(0)), ..OverridePatch::default() }),
        "burst: must be from 1 to 2^53−1",
    );
    check(
        patch(OverridePatch { limit: too_much, ..OverridePatch::default() }),
        "limit: must be from 0 to 2^53−1",
    );
}

#[test]
fn rule_sets() {
    #[track_caller]
    fn check_set(rules: Vec<SetRule>, expect: &str) {
        let new = NewRuleSet { rules, overrides: SetOverrides::Closed };
        check(RuleSetPlan::new(name("s"), new.clone()), expect);
        check(RuleChange::new(Rules::PutRuleSet { set: name("s"), new, author: SetAuthor::Client }), expect);
    }
    let rule = |number: usize| NewRule {
        name: name(&format!("r{number}")),
        group_by: vec!["k".into()],
        selection: Selection::default(),
        limit: Limit::Unlimited,
        window: None,
        shadow: false,
        durability: None,
        description: None,
    };
    let bucket = NewRule { window: Some(Window::Bucket { per: Millis(1), burst: None }), ..rule(0) };
    let new = |of: &str, key: &str, burst| NewOverride {
        name: name(of),
        key_values: one(key),
        limit: Limit::Unlimited,
        burst,
    };
    let one_rule = |rule: &NewRule, overrides| vec![SetRule { rule: rule.clone(), overrides }];
    let many =
        |count| (0..count).map(|number| SetRule { rule: rule(number), overrides: Vec::new() }).collect();
    check_set(Vec::new(), "");
    check_set(many(10_000), "");
    check_set(many(10_001), "rules: must not have more than 10000 items, and has 10001");
    check_set([many(9), many(1)].concat(), "rules[9].name: repeats an earlier one");
    check_set(one_rule(&bucket, vec![new("a", "k", Some(1))]), "");
    check_set(
        one_rule(&bucket, vec![new("a", "k", None), new("b", "k", Some(0))]),
        "rules[0].overrides[1].burst: must be from 1 to 2^53−1",
    );
    check_set(
        one_rule(&rule(0), vec![new("a", "k", Some(1))]),
        "rules[0].overrides[0].burst: must be absent, because the rule is not a bucket",
    );
    check_set(
        one_rule(&rule(0), vec![new("a", "x", None)]),
        "rules[0].overrides[0].key_values.k: is required, because the rule groups by it",
    );
    check_set(
        one_rule(&rule(0), vec![new("a", "k", None), new("b", "k", None)]),
        "rules[0].overrides[1].key_values: repeats an earlier one",
    );
    let other = KeyValues::new(vec![("k", Value::<&str>::Integer(7))]).unwrap();
    let other = NewOverride { key_values: other, ..new("a", "k", None) };
    check_set(
        one_rule(&rule(0), vec![new("a", "k", None), other]),
        "rules[0].overrides[1].name: repeats an earlier one",
    );
    let too_much = NewRule { limit: Limit::AtMost(MAX_COUNT + 1), ..rule(0) };
    check_set(one_rule(&too_much, Vec::new()), "rules[0].limit: must be from 0 to 2^53−1");
}

/// A peer may send any bytes. The numbers are the variants of `Command` and of a family's commands; a tuple is encoded as
/// the struct that has the same fields.
#[test]
fn a_decoded_request_is_checked_by_the_same_limits() {
    /// In the order of the variants of `Command`.
    enum Family {
        Ledger,
        Limiter,
        Locks,
        Events,
    }

    /// Sends the variant of a family's command, with its fields.
    #[track_caller]
    fn sent(fields: impl Serialize, variant: u8, family: Family, expect: &str) {
        let caller = (None::<()>, None::<()>, None::<()>);
        let request = ("n", None::<()>, caller, family as u8, variant, fields);
        let bytes = postcard::to_allocvec(&request).unwrap();
        let unchecked: UncheckedRequest = postcard::from_bytes(&bytes).expect("the bytes decode");
        check(Request::try_from(unchecked), expect);
    }

    const NONE: Option<()> = None;
    // The length of an empty list.
    const EMPTY: u8 = 0;
    // Ledger: a hold and a commit are variants of `Transfer`.
    let change = |limit| (limit, 1_i64, NONE, EMPTY, NONE);
    let hold = |changes: &[&'static str], expiry: Option<u64>| {
        (0_u8, "op", changes.iter().copied().map(change).collect::<Vec<_>>(), false, true, NONE, expiry)
    };
    sent(hold(&["a"], Some(1)), 6, Family::Ledger, "");
    sent(hold(&["a", "b", "a"], None), 6, Family::Ledger, "changes[2].limit_name: repeats an earlier one");
    sent(hold(&[], None), 6, Family::Ledger, "changes: must have from 1 to 64 items, and has 0");
    sent(hold(&["a"], Some(0)), 6, Family::Ledger, "expires_after_ms: must be from 1 ms to 366 days");
    let commit = |limits: &[&'static str]| {
        let changes: Vec<_> = limits.iter().map(|limit| (*limit, NONE)).collect();
        (1_u8, 0_u8, "op", Some(changes))
    };
    sent(commit(&["a", "a"]), 6, Family::Ledger, "changes[1].limit_name: repeats an earlier one");
    let batch = vec![commit(&["a"]), commit(&[])];
    sent(batch, 8, Family::Ledger, "operations[1].changes: must have from 1 to 64 items, and has 0");
    sent(EMPTY, 8, Family::Ledger, "operations: must have from 1 to 8192 items, and has 0");
    sent((vec!["a", "a"], NONE, NONE), 9, Family::Ledger, "limit_names[1]: repeats an earlier one");
    sent((NONE, 0_usize), 4, Family::Ledger, "limit: must be from 1 to 100000");
    sent((NONE, 0_usize), 5, Family::Ledger, "limit: must be from 1 to 100000");
    // The expiry is kept in one form, and set in the other.
    sent(("op", 0_u8, (2_u8, 1_u64)), 7, Family::Ledger, "");
    sent(("op", 0_u8, (2_u8, 0_u64)), 7, Family::Ledger, "expires_after_ms: must be from 1 ms to 366 days");
    let limit = ("a", NONE, vec![("", "v")], NONE);
    sent(limit, 0, Family::Ledger, "context.: must have from 1 to 256 bytes");

    // Limiter: a rule without a length of its window divided by zero at its first check.
    let rule = |group_by: &'static [&'static str], per: u64| {
        (0_u8, "r", group_by, EMPTY, (1_u8, 5_u64), Some((0_u8, per)), false, NONE, NONE)
    };
    sent(rule(&["k"], 1), 0, Family::Limiter, "");
    sent(rule(&["k"], 0), 0, Family::Limiter, "window.per: must be from 1 ms to 366 days");
    sent(rule(&["k", "k"], 1), 0, Family::Limiter, "group_by[1]: repeats an earlier one");
    let take = |hits: i64, per: Option<(u64, u64)>| (one("k"), hits, per);
    sent((vec![take(1, None)], false, false), 6, Family::Limiter, "");
    sent((EMPTY, false, false), 6, Family::Limiter, "entries: must have from 1 to 64 items, and has 0");
    let limited = vec![take(1, Some((1, 0)))];
    sent((limited, false, false), 6, Family::Limiter, "entries[0].limit.per: must be from 1 ms to 366 days");
    let batch = vec![(vec![take(i64::MIN, None)], false, false)];
    sent(batch, 7, Family::Limiter, "checks[0].entries[0].hits: must be from −(2^53−1) to 2^53−1");
    sent((one("k"), i64::MAX), 8, Family::Limiter, "counters: must be from −(2^53−1) to 2^53−1");
    let lease = ("id", "session", one("k"), 1_u64, 0_u64, NONE, false, 0_u64);
    sent(lease, 11, Family::Limiter, "ttl: must be from 100 ms to 24 hours");

    // Locks: a lock that was named twice was held by two, which stopped the shard.
    let acquire = |locks: Vec<KeyValues>| {
        let locks: Vec<_> = locks.into_iter().map(|lock| (lock, 0_u8)).collect();
        ("id", "session", locks, 1_000_u64, 0_u64, NONE)
    };
    sent(acquire(vec![one("a"), one("b")]), 0, Family::Locks, "");
    sent(acquire(vec![one("a"), one("a")]), 0, Family::Locks, "locks[1].key_values: repeats an earlier one");
    sent(
        acquire(vec![KeyValues::empty()]),
        0,
        Family::Locks,
        "locks[0].key_values: must have from 1 to 64 items, and has 0",
    );
    sent(acquire(vec![]), 0, Family::Locks, "locks: must have from 1 to 64 items, and has 0");

    // Events.
    let terms = |max_events: u32| (0_u8, 10_u64, max_events, 10_000_u64);
    sent(("s", terms(1)), 0, Family::Events, "");
    sent(("s", terms(0)), 0, Family::Events, "max_events: must be from 1 to 1000000");
    sent(("s", "", NONE), 2, Family::Events, "event: must have from 1 to 1024 bytes");
    sent(("s", "e", Some(terms(0))), 2, Family::Events, "max_events: must be from 1 to 1000000");
    sent(("s", Some(terms(0))), 3, Family::Events, "max_events: must be from 1 to 1000000");
    sent(("s", 0_u64, 0_usize), 7, Family::Events, "limit: must be from 1 to 10000");
}
