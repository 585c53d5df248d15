//! Requests and outcomes as bytes, as one node sends them to another: what is read is what was written, and no bytes make
//! a value that could not have been made otherwise.

use limina_api::binary::{decode, encode};
use limina_engine::{
    Command, Idempotency, KeyValues, Millis, Name, Outcome, Page, Position, Request, Time, UncheckedRequest,
    audit::AuditCursor,
    decisions, events,
    key_values::Value,
    ledger::{self, AsOf, Finish, LimitPatch, Patch, Transfer},
    limiter::{self, Change, Durability, Limit, Window},
    locks::{self, Lock},
    selection::{Query, Selection, Test},
};
use proptest::prelude::*;
use std::{collections::BTreeSet, fmt::Debug};

/// All kinds of commands, and all kinds of changes of rules: the match makes sure that none is forgotten here, and
/// [`every_kind_is_read_as_it_was_written`] that none is forgotten below.
macro_rules! kinds {
    ($all:ident, $of:ident, $type:ty: $($kind:pat),* $(,)?) => {
        const $all: &[&str] = &[$(stringify!($kind)),*];

        fn $of(value: &$type) -> &'static str {
            match value {
                $($kind => stringify!($kind)),*
            }
        }
    };
}

kinds![
    CHANGES, change_kind, Change:
    Change::CreateRule(_),
    Change::PutRule(_),
    Change::PatchRule { .. },
    Change::DeleteRule(_),
    Change::CreateOverride { .. },
    Change::PutOverride { .. },
    Change::PatchOverride { .. },
    Change::DeleteOverride { .. },
    Change::PutRuleSet { .. },
    Change::DeleteRuleSet { .. },
];

kinds![
    KINDS, kind, Command:
    Command::DeleteNamespace,
    Command::ListNamespaces(_),
    Command::ListAudit(_),
    Command::ListShardAudit(_),
    Command::Ledger(ledger::Command::CreateLimit(_)),
    Command::Ledger(ledger::Command::PatchLimit { .. }),
    Command::Ledger(ledger::Command::DeleteLimit(_)),
    Command::Ledger(ledger::Command::GetLimit(_)),
    Command::Ledger(ledger::Command::ListLimits(_)),
    Command::Ledger(ledger::Command::ListLimitsByUse(_)),
    Command::Ledger(ledger::Command::Extend(_)),
    Command::Ledger(ledger::Command::Transfer(Transfer::Hold(_))),
    Command::Ledger(ledger::Command::Transfer(Transfer::Finish(..))),
    Command::Ledger(ledger::Command::Batch(_)),
    Command::Ledger(ledger::Command::Values(_)),
    Command::Ledger(ledger::Command::GetOperation(_)),
    Command::Ledger(ledger::Command::ListOperations { .. }),
    Command::Ledger(ledger::Command::ListEntries { .. }),
    Command::Limiter(limiter::Command::Change(_)),
    Command::Limiter(limiter::Command::GetRule(_)),
    Command::Limiter(limiter::Command::ListRules { .. }),
    Command::Limiter(limiter::Command::GetOverride { .. }),
    Command::Limiter(limiter::Command::ListOverrides { .. }),
    Command::Limiter(limiter::Command::PlanRuleSet(_)),
    Command::Limiter(limiter::Command::GetRuleSet(_)),
    Command::Limiter(limiter::Command::ListRuleSets(_)),
    Command::Limiter(limiter::Command::Match(_)),
    Command::Limiter(limiter::Command::Check(_)),
    Command::Limiter(limiter::Command::CheckBatch(_)),
    Command::Limiter(limiter::Command::CheckSet(_)),
    Command::Limiter(limiter::Command::MoveCounter(_)),
    Command::Limiter(limiter::Command::SetCounter(_)),
    Command::Limiter(limiter::Command::ListCounters { .. }),
    Command::Limiter(limiter::Command::TakeLease(_)),
    Command::Limiter(limiter::Command::ExtendLease { .. }),
    Command::Limiter(limiter::Command::ReleaseLease { .. }),
    Command::Limiter(limiter::Command::AbandonLease(_)),
    Command::Limiter(limiter::Command::GetLease(_)),
    Command::Limiter(limiter::Command::ListLeases { .. }),
    Command::Limiter(limiter::Command::ListGroups { .. }),
    Command::Locks(locks::Command::Acquire(_)),
    Command::Locks(locks::Command::Abandon(_)),
    Command::Locks(locks::Command::Heartbeat { .. }),
    Command::Locks(locks::Command::Release { .. }),
    Command::Locks(locks::Command::Get(_)),
    Command::Locks(locks::Command::List { .. }),
    Command::Events(events::Command::Put { .. }),
    Command::Events(events::Command::Delete(_)),
    Command::Events(events::Command::Submit(_)),
    Command::Events(events::Command::KeyFrame { .. }),
    Command::Events(events::Command::Get(_)),
    Command::Events(events::Command::List(_)),
    Command::Events(events::Command::Incubating(_)),
    Command::Events(events::Command::Snapshot(_)),
    Command::Events(events::Command::Changes(_)),
    Command::Decisions(decisions::Command::Decide(_)),
    Command::Decisions(decisions::Command::Settle(_)),
    Command::Decisions(decisions::Command::Rollback(_)),
    Command::Decisions(decisions::Command::Heartbeat(_)),
    Command::Decisions(decisions::Command::Batch(_)),
    Command::Decisions(decisions::Command::Abandon { .. }),
    Command::Decisions(decisions::Command::Get(_)),
    Command::Decisions(decisions::Command::List { .. }),
];

#[test]
fn every_kind_is_read_as_it_was_written() {
    let idempotency = [None, Some(Idempotency { owner: None, key: name("key 🌮"), fingerprint: [7; 16] })];
    let mut seen = BTreeSet::new();
    let mut changes = BTreeSet::new();
    for command in commands() {
        seen.insert(kind(&command));
        if let Command::Limiter(limiter::Command::Change(change)) = &command {
            changes.insert(change_kind(change));
        }
        for idempotency in idempotency.clone() {
            let request = Request { idempotency, ..Request::new(name("n"), command.clone()) };
            let bytes = encode(&request).unwrap();
            let read: UncheckedRequest =
                decode(&bytes).unwrap_or_else(|error| panic!("{error}: {request:?}"));
            assert_eq!(Request::try_from(read), Ok(request));
        }
    }
    assert_eq!(seen, KINDS.iter().copied().collect());
    assert_eq!(changes, CHANGES.iter().copied().collect());
}

fn commands() -> Vec<Command> {
    let cursor =
        AuditCursor { time: Time(5), namespace: name("n"), position: Position(7), is_deletion: true };
    let audit = || Page::new(Some(cursor.clone()), 3).unwrap();
    let namespaces = [
        Command::DeleteNamespace,
        Command::ListNamespaces(page()),
        Command::ListAudit(audit()),
        Command::ListShardAudit(audit()),
    ];
    let all = ledger().into_iter().map(Command::Ledger).chain(limiter().into_iter().map(Command::Limiter));
    let all = all.chain(locks().into_iter().map(Command::Locks));
    let all = all.chain(events().into_iter().map(Command::Events));
    all.chain(decisions().into_iter().map(Command::Decisions)).chain(namespaces).collect()
}

fn ledger() -> Vec<ledger::Command> {
    use ledger::Command::*;
    let context = ledger::Context::new([("provider", "p")]).unwrap();
    let new = ledger::NewLimit {
        limit_id: Some(name("id")),
        context: context.clone(),
        ceiling: Some(-1),
        ..ledger::NewLimit::new(name("a"))
    };
    let change =
        ledger::Change { limit_name: name("a"), value: i64::MIN, limit_id: None, context, ceiling: Some(7) };
    let hold = ledger::Hold::new(name("op"), vec![change]).unwrap().with_skip_existing_holds(true);
    let hold = ledger::Transfer::Hold(hold.with_expires_after(Some(ledger::Hold::MAX_EXPIRY)).unwrap());
    let finish = |finish, changes| {
        ledger::Transfer::Finish(finish, ledger::Finalization::new(name("op"), changes).unwrap())
    };
    let part = ledger::FinalizationChange { limit_name: name("a"), value: Some(3) };
    let commit = finish(Finish::Commit, Some(vec![part]));
    let values = |as_of| Values(ledger::Values::new(vec![name("a"), name("b")], as_of).unwrap());
    vec![
        CreateLimit(new),
        PatchLimit { name: name("a"), patch: LimitPatch { ceiling: Patch::Remove, context: Patch::Keep } },
        PatchLimit {
            name: name("a"),
            patch: LimitPatch { ceiling: Patch::Set(i64::MAX), context: Patch::Set(Default::default()) },
        },
        DeleteLimit(name("a")),
        GetLimit(name("a")),
        ListLimits(page()),
        ListLimitsByUse(page()),
        Extend(ledger::Extend::new(name("op"), Some(ledger::Hold::MIN_EXPIRY)).unwrap()),
        Transfer(hold.clone()),
        Transfer(commit.clone()),
        Batch(ledger::Batch::new(vec![hold, commit, finish(Finish::Rollback, None)]).unwrap()),
        values(AsOf::Now),
        values(AsOf::Operation(name("op"))),
        values(AsOf::Position(Position(7))),
        GetOperation(name("op")),
        ListOperations {
            filter: ledger::OperationFilter {
                only_held: true,
                older_than: Some(Millis(1)),
                limit_name: Some(name("a")),
            },
            page: page(),
        },
        ListEntries { limit_name: name("a"), page: Page::new(Some(Position(7)), 1).unwrap() },
    ]
}

fn limiter() -> Vec<limiter::Command> {
    use limiter::Command::*;
    let limit = limiter::RequestLimit::new(5, Millis(1_000)).unwrap();
    let take = limiter::Take::new(key_values(), -1).unwrap().with_limit(Some(limit));
    let entry = limiter::SetEntry::new(take.clone(), limiter::EntryMode::Report).with_alternative(Some(1));
    let set = limiter::CheckSet::new(vec![entry]).unwrap();
    let check = limiter::Check::new(vec![take]).unwrap().with_report(true).with_require_match(true);
    let lease = limiter::NewLease::new(name("id"), name("session"), key_values(), 1, Millis(100)).unwrap();
    let lease = lease.with_owner(Some(name("owner"))).with_require_match(true);
    let amount = |key_values, amount| limiter::CounterChange::new(key_values, amount).unwrap();
    let rules = limiter::RuleQuery::new(query(key_selection())).unwrap();
    let query = || query(selection());
    let reads_and_checks = [
        GetRule(name("r")),
        ListRules { query: rules, page: page() },
        GetOverride { rule: name("r"), name: name("o") },
        ListOverrides { rule: name("r"), query: query(), page: page() },
        PlanRuleSet(limiter::RuleSetPlan::new(name("s"), rule_set()).unwrap()),
        GetRuleSet(name("s")),
        ListRuleSets(page()),
        Match(key_values()),
        Check(check.clone()),
        CheckBatch(limiter::CheckBatch::new(vec![check.clone(), check]).unwrap()),
        CheckSet(set),
        MoveCounter(amount(key_values(), -3)),
        SetCounter(amount(KeyValues::empty(), 3)),
        ListCounters { query: query(), page: Page::new(Some(limiter::CounterId(9)), 100).unwrap() },
        TakeLease(lease),
        ExtendLease { id: name("id"), session: name("session") },
        ReleaseLease { id: name("id"), session: Some(name("session")) },
        ReleaseLease { id: name("id"), session: None },
        AbandonLease(name("id")),
        GetLease(name("id")),
        ListLeases { owner: Some(name("owner")), page: page() },
        ListLeases { owner: None, page: page() },
        ListGroups {
            rule: name("r"),
            above: Some(limiter::Usage { limit: limiter::Limit::AtMost(5), used: 3 }),
            page: Page::new(Some(limiter::GroupId(9)), 100).unwrap(),
        },
    ];
    let changes = changes().into_iter().map(|change| Change(limiter::RuleChange::new(change).unwrap()));
    changes.chain(reads_and_checks).collect()
}

fn rule_set() -> limiter::NewRuleSet {
    let rule = limiter::NewRule {
        name: name("r"),
        group_by: vec!["text".into()],
        selection: selection(),
        limit: Limit::Unlimited,
        window: Some(Window::Bucket { per: Millis(3), burst: None }),
        shadow: false,
        durability: None,
        description: None,
    };
    let item = limiter::NewOverride {
        name: name("o"),
        key_values: key_values(),
        limit: Limit::Unlimited,
        burst: Some(1),
    };
    limiter::NewRuleSet {
        rules: vec![limiter::SetRule { rule, overrides: vec![item] }],
        overrides: limiter::SetOverrides::Open,
    }
}

fn changes() -> Vec<Change> {
    use limiter::{NewOverride, NewRule, OverridePatch, RulePatch, SetAuthor};
    let windows = [
        None,
        Some(Window::Fixed { per: Millis(1) }),
        Some(Window::Sliding { per: Millis(2) }),
        Some(Window::Bucket { per: Millis(3), burst: Some(4) }),
    ];
    let rules = windows.map(|window| NewRule {
        name: name("r"),
        group_by: vec!["k".into(), "j".into()],
        selection: selection(),
        limit: Limit::AtMost(limiter::MAX_COUNT),
        window,
        shadow: true,
        durability: Some(Durability::Relaxed),
        description: Some("words".into()),
    });
    let new =
        NewOverride { name: name("o"), key_values: key_values(), limit: Limit::Unlimited, burst: Some(1) };
    let rule_patch = RulePatch {
        limit: Some(Limit::AtMost(0)),
        window: Some(None),
        selection: Some(selection()),
        shadow: Some(false),
        durability: Some(Some(Durability::Durable)),
        description: Some(None),
    };
    let override_patch =
        OverridePatch { key_values: Some(key_values()), limit: Some(Limit::Unlimited), burst: Some(None) };
    let rule = || name("r");
    let others = [
        Change::PutRule(rules[1].clone()),
        Change::PatchRule { name: rule(), patch: rule_patch },
        Change::PatchRule { name: rule(), patch: RulePatch::default() },
        Change::DeleteRule(rule()),
        Change::CreateOverride { rule: rule(), new: new.clone() },
        Change::PutOverride { rule: rule(), new: new.clone() },
        Change::PatchOverride { rule: rule(), name: name("o"), patch: override_patch },
        Change::PatchOverride { rule: rule(), name: name("o"), patch: OverridePatch::default() },
        Change::DeleteOverride { rule: rule(), name: name("o") },
        Change::PutRuleSet { set: name("s"), new: rule_set(), author: SetAuthor::Client },
        Change::DeleteRuleSet { set: name("s"), author: SetAuthor::Server },
    ];
    rules.map(Change::CreateRule).into_iter().chain(others).collect()
}

fn locks() -> Vec<locks::Command> {
    use locks::Command::*;
    let other = KeyValues::new(vec![("other", Value::<&str>::Integer(1))]).unwrap();
    let wanted = vec![
        Lock { key_values: key_values(), mode: locks::Mode::Exclusive },
        Lock { key_values: other, mode: locks::Mode::Shared },
    ];
    let wanted = locks::Acquire::new(wanted, Millis(100)).unwrap().with_wait(Millis(2)).unwrap();
    vec![
        Acquire(locks::LockRequest { id: name("id"), session: name("session"), wanted }),
        Abandon(name("id")),
        Heartbeat { id: name("id"), session: name("session") },
        Release { id: name("id"), session: Some(name("session")) },
        Release { id: name("id"), session: None },
        Get(name("id")),
        List { query: query(selection()), page: Page::new(None, 1).unwrap() },
    ]
}

fn events() -> Vec<events::Command> {
    use events::Command::*;
    let terms = |mode| {
        let terms = events::StreamTerms::new(mode, Millis(10)).unwrap().with_max_events(2).unwrap();
        terms.with_key_frame_every(Millis(300)).unwrap()
    };
    let once = terms(events::Mode::OnlyOnce);
    vec![
        Put { name: name("s"), terms: terms(events::Mode::StrictlyOnce) },
        Delete(name("s")),
        Submit(events::Submit::new(name("s"), "🌮".into()).unwrap().with_make(Some(once))),
        KeyFrame { stream: name("s"), make: None },
        Get(name("s")),
        List(page()),
        Incubating(name("s")),
        Snapshot(name("s")),
        Changes(events::ChangesAfter::new(name("s"), u64::MAX, 1).unwrap()),
    ]
}

fn decisions() -> Vec<decisions::Command> {
    use decisions::{Command::*, DecideRequest, PartCheck, PartEvent, Parts};
    let parts = Parts {
        checks: vec![PartCheck {
            name: Some(name("tokens")),
            require_match: true,
            estimate: true,
            ..PartCheck::new(key_values(), 5)
        }],
        holds: vec![ledger::Change::new(name("a"), -5)],
        create_missing: true,
        locks: vec![Lock { key_values: key_values(), mode: locks::Mode::Shared }],
        event: Some(PartEvent::new(name("s"), "🌮")),
    };
    let decide = decisions::Decide::new(name("op"), parts).unwrap().with_owner(Some(name("me")));
    let settle = decisions::Settle::new(name("op")).with_checks(vec![(name("tokens"), 7)]).unwrap();
    let items = vec![
        decisions::BatchItem::Decide(decide.clone().into()),
        decisions::BatchItem::Settle(settle.clone()),
        decisions::BatchItem::Rollback(name("op")),
    ];
    let decide = decide.with_wait(Millis(300_000)).unwrap().with_ttl(Millis(100)).unwrap();
    let wanted = decide.with_dry_run(true).with_explain(true).into();
    vec![
        Decide(DecideRequest { wanted, waiter: Some(name("w")) }),
        Settle(settle.with_holds(vec![(name("a"), i64::MIN)]).unwrap().with_record(true)),
        Rollback(name("op")),
        Heartbeat(name("op")),
        Batch(decisions::Batch::new(items).unwrap()),
        Abandon { operation_id: name("op"), waiter: name("w") },
        Get(name("op")),
        List {
            owner: Some(name("me")),
            older_than: Some(Millis(1)),
            page: Page::new(Some(Position(7)), 10).unwrap(),
        },
    ]
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn page() -> Page<Name> {
    Page::new(Some(name("before")), 1_000).unwrap()
}

fn key_values() -> KeyValues {
    let pairs = vec![
        ("text", Value::String("1")),
        ("integer", Value::Integer(1)),
        ("float", Value::Float(-0.0)),
        ("boolean", Value::Boolean(true)),
    ];
    KeyValues::new(pairs).unwrap()
}

fn selection() -> Selection {
    let tests = vec![
        Test::Eq(Value::String("a".into())),
        Test::Ne(Value::Integer(-1)),
        Test::Lt(Value::Float(1.5)),
        Test::Lte(Value::Boolean(false)),
        Test::Gt(Value::Float(0.0)),
        Test::Gte(Value::Integer(i64::MIN)),
        Test::In(vec![Value::Integer(1), Value::Boolean(true)].into()),
        Test::Prefix("p".into()),
    ];
    Selection::new(vec![("k".into(), tests), ("b".into(), vec![Test::Exists(true)])]).unwrap()
}

fn key_selection() -> Selection {
    Selection::new(vec![("b".into(), vec![Test::Exists(true)])]).unwrap()
}

/// As deep as one may be, and with parts on both sides.
fn query(selection: Selection) -> Query {
    let mut query = Query::new(selection).with_min_keys(Some(1));
    for _ in 1..Query::MAX_DEPTH {
        let other = Query::default().with_max_keys(Some(2));
        query = Query::default().with_any(vec![other.clone(), query]).unwrap().with_all(vec![other]).unwrap();
    }
    query
}

#[track_caller]
fn is_refused<T: serde::de::DeserializeOwned + Debug>(written: impl serde::Serialize) {
    let bytes = encode(&written).unwrap();
    if let Ok(read) = decode::<T>(&bytes) {
        panic!("it was read as {read:?}");
    }
}

#[test]
fn names_are_checked() {
    is_refused::<Name>("");
    is_refused::<Name>("a\nb");
    is_refused::<Name>("x".repeat(257));
}

#[test]
fn key_values_are_checked() {
    let key = |key: &str, value: &[u8]| [&(key.len() as u16).to_le_bytes(), key.as_bytes(), value].concat();
    let (yes, no): (&[u8], &[u8]) = (&[3, 1], &[3, 0]);
    let float = |number: f64| [&[2][..], &number.to_bits().to_le_bytes()].concat();
    let text = |length: usize| [&[0][..], &(length as u16).to_le_bytes(), &vec![b'x'; length]].concat();
    let fine = [key("a", yes), key("b", no), key("c", &float(1.5)), key("d", &text(1_024))].concat();
    let read = decode::<KeyValues>(&encode(&Raw(fine)).unwrap());
    assert_eq!(read.map(|read| read.len()), Ok(4));
    let many = |count: u8| (0..count).flat_map(|place| key(&char::from(place + 1).to_string(), yes));
    let refused = [
        key("", yes),
        key(&"k".repeat(257), yes),
        [key("b", yes), key("a", yes)].concat(),
        [key("a", yes), key("a", no)].concat(),
        key("a", &[3, 2]),
        key("a", &[4, 0]),
        key("a", &[3]),
        key("a", &float(f64::NAN)),
        key("a", &float(f64::INFINITY)),
        key("a", &float(-0.0)),
        key("a", &text(1_025)),
        many(65).collect(),
    ];
    refused.into_iter().map(Raw).for_each(is_refused::<KeyValues>);
}

/// Bytes as they are, in place of key-values.
struct Raw(Vec<u8>);

impl serde::Serialize for Raw {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

#[test]
fn selections_and_queries_are_checked() {
    let tests = || vec![Test::Exists(true)];
    is_refused::<Selection>(vec![("b", tests()), ("a", tests())]);
    is_refused::<Selection>(vec![("a", tests()), ("a", tests())]);
    is_refused::<Selection>(vec![("a", vec![Test::Eq(Value::Float(f64::NAN))])]);

    // A part of a query: its selection, its bounds, and the number of parts within it, which follow.
    type Part = (Selection, Option<usize>, Option<usize>, usize, usize);
    let part = |any: usize| -> Part { (Selection::default(), None, None, any, 0) };
    let read = |parts: Vec<Part>| decode::<Query>(&encode(&parts).unwrap());
    let deep = |depth: usize| [vec![part(1); depth - 1], vec![part(0)]].concat();
    assert!(read(deep(Query::MAX_DEPTH)).is_ok());
    is_refused::<Query>(deep(Query::MAX_DEPTH + 1));
    let wide = |parts: usize| [vec![part(parts - 1)], vec![part(0); parts - 1]].concat();
    assert!(read(wide(Query::MAX_PARTS)).is_ok());
    is_refused::<Query>(wide(Query::MAX_PARTS + 1));
    is_refused::<Query>(Vec::<Part>::new());
    is_refused::<Query>(vec![part(1)]);
    is_refused::<Query>(vec![part(usize::MAX)]);
    is_refused::<Query>(vec![part(0), part(0)]);
}

#[test]
fn there_is_no_batch_in_a_batch() {
    let batch = |results| ledger::Reply::Batch(results);
    let outcome = |reply| Outcome::Ledger(Ok(reply));
    let finished = ledger::Reply::Finalization(ledger::FinalizationReply {
        operation_id: name("op"),
        position: Position(3),
        values: Vec::new(),
    });
    let fine = outcome(batch(vec![Ok(finished), Err(ledger::Refusal::Unreadable)]));
    assert_eq!(decode(&encode(&fine).unwrap()), Ok(fine));
    is_refused::<Outcome>(outcome(batch(vec![Ok(batch(Vec::new()))])));
}

proptest! {
    /// One changed byte makes another request or none, and never a panic.
    #[test]
    fn damaged_requests_are_refused_or_are_requests(
        command in proptest::sample::select(commands()),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let request = Request::new(name("n"), command);
        let mut bytes = encode(&request).unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        let read = |bytes: &[u8]| Request::try_from(decode::<UncheckedRequest>(bytes).ok()?).ok();
        if let Some(request) = read(&bytes) {
            let again = encode(&request).unwrap();
            prop_assert_eq!(read(&again), Some(request));
        }
    }
}
