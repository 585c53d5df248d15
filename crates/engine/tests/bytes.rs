//! Requests and outcomes as bytes, as one node sends them to another: what is read is what was written, and no bytes make
//! a value that could not have been made otherwise.

use limina_engine::{
    Command, Idempotency, KeyValues, Millis, Name, Outcome, Page, Position, Request, events,
    key_values::Value,
    ledger::{self, AsOf, Finish, Patch, Transfer},
    limiter::{self, Change, Durability, Limit, Window},
    locks::{self, Lock},
    selection::{Query, Selection, Test},
};
use proptest::prelude::*;
use std::{collections::BTreeSet, fmt::Debug};

/// All kinds of commands: the match makes sure that none is forgotten here, and [`every_kind_is_read_as_it_was_written`]
/// that none is forgotten below.
macro_rules! kinds {
    ($($kind:pat),* $(,)?) => {
        const KINDS: &[&str] = &[$(stringify!($kind)),*];

        fn kind(command: &Command) -> &'static str {
            match command {
                $($kind => stringify!($kind)),*
            }
        }
    };
}

kinds![
    Command::DeleteNamespace,
    Command::ListNamespaces(_),
    Command::Ledger(ledger::Command::CreateLimit(_)),
    Command::Ledger(ledger::Command::PatchLimit { .. }),
    Command::Ledger(ledger::Command::GetLimit(_)),
    Command::Ledger(ledger::Command::ListLimits(_)),
    Command::Ledger(ledger::Command::Transfer(Transfer::Hold(_))),
    Command::Ledger(ledger::Command::Transfer(Transfer::Finish(_))),
    Command::Ledger(ledger::Command::Batch(_)),
    Command::Ledger(ledger::Command::Values { .. }),
    Command::Ledger(ledger::Command::GetOperation(_)),
    Command::Ledger(ledger::Command::ListOperations { .. }),
    Command::Ledger(ledger::Command::ListEntries { .. }),
    Command::Limiter(limiter::Command::Change(Change::CreateRule(_))),
    Command::Limiter(limiter::Command::Change(Change::PutRule(_))),
    Command::Limiter(limiter::Command::Change(Change::PatchRule { .. })),
    Command::Limiter(limiter::Command::Change(Change::DeleteRule(_))),
    Command::Limiter(limiter::Command::Change(Change::CreateOverride { .. })),
    Command::Limiter(limiter::Command::Change(Change::PutOverride { .. })),
    Command::Limiter(limiter::Command::Change(Change::PatchOverride { .. })),
    Command::Limiter(limiter::Command::Change(Change::DeleteOverride { .. })),
    Command::Limiter(limiter::Command::Change(Change::ApplyFile(_))),
    Command::Limiter(limiter::Command::GetRule(_)),
    Command::Limiter(limiter::Command::ListRules { .. }),
    Command::Limiter(limiter::Command::GetOverride { .. }),
    Command::Limiter(limiter::Command::ListOverrides { .. }),
    Command::Limiter(limiter::Command::Match(_)),
    Command::Limiter(limiter::Command::Check(_)),
    Command::Limiter(limiter::Command::CheckBatch(_)),
    Command::Limiter(limiter::Command::MoveCounter { .. }),
    Command::Limiter(limiter::Command::SetCounter { .. }),
    Command::Limiter(limiter::Command::ListCounters { .. }),
    Command::Limiter(limiter::Command::TakeLease(_)),
    Command::Limiter(limiter::Command::ExtendLease(_)),
    Command::Limiter(limiter::Command::ReleaseLease(_)),
    Command::Limiter(limiter::Command::GetLease(_)),
    Command::Limiter(limiter::Command::ListLeases(_)),
    Command::Locks(locks::Command::Acquire(_)),
    Command::Locks(locks::Command::Abandon(_)),
    Command::Locks(locks::Command::Heartbeat { .. }),
    Command::Locks(locks::Command::Release { .. }),
    Command::Locks(locks::Command::Get(_)),
    Command::Locks(locks::Command::List { .. }),
    Command::Events(events::Command::Put { .. }),
    Command::Events(events::Command::Delete(_)),
    Command::Events(events::Command::Submit { .. }),
    Command::Events(events::Command::KeyFrame { .. }),
    Command::Events(events::Command::Get(_)),
    Command::Events(events::Command::List(_)),
    Command::Events(events::Command::Incubating(_)),
    Command::Events(events::Command::Changes { .. }),
];

#[test]
fn every_kind_is_read_as_it_was_written() {
    let idempotency = [None, Some(Idempotency { key: name("key 🌮"), fingerprint: [7; 16] })];
    let mut seen = BTreeSet::new();
    for command in commands() {
        seen.insert(kind(&command));
        for idempotency in idempotency.clone() {
            let request = Request { namespace: name("n"), idempotency, command: command.clone() };
            let bytes = postcard::to_allocvec(&request).unwrap();
            assert_eq!(postcard::from_bytes(&bytes), Ok(request));
        }
    }
    assert_eq!(seen, KINDS.iter().copied().collect());
}

fn commands() -> Vec<Command> {
    let namespaces = [Command::DeleteNamespace, Command::ListNamespaces(page())];
    let all = ledger().into_iter().map(Command::Ledger).chain(limiter().into_iter().map(Command::Limiter));
    let all = all.chain(locks().into_iter().map(Command::Locks));
    all.chain(events().into_iter().map(Command::Events)).chain(namespaces).collect()
}

fn ledger() -> Vec<ledger::Command> {
    use ledger::Command::*;
    let context: ledger::Context = [("provider".into(), "p".into())].into();
    let new = ledger::NewLimit {
        name: name("a"),
        limit_id: Some(name("id")),
        context: context.clone(),
        ceiling: Some(-1),
    };
    let change = ledger::Change { limit_name: name("a"), value: i64::MIN, limit_id: None, context };
    let hold = ledger::Transfer::Hold(ledger::Hold {
        operation_id: name("op"),
        changes: vec![change],
        skip_existing_holds: true,
        create_missing: false,
        expires_after: Some(Millis(u64::MAX)),
    });
    let finish = |finish, changes| {
        ledger::Transfer::Finish(ledger::Finalization { finish, operation_id: name("op"), changes })
    };
    let part = ledger::FinalizationChange { limit_name: name("a"), value: Some(3) };
    let commit = finish(Finish::Commit, Some(vec![part]));
    let values = |as_of| Values { limit_names: vec![name("a"), name("b")], as_of };
    vec![
        CreateLimit(new),
        PatchLimit { name: name("a"), ceiling: Patch::Remove, context: Patch::Keep },
        PatchLimit { name: name("a"), ceiling: Patch::Set(i64::MAX), context: Patch::Set([].into()) },
        GetLimit(name("a")),
        ListLimits(page()),
        Transfer(hold.clone()),
        Transfer(commit.clone()),
        Batch(vec![hold, commit, finish(Finish::Rollback, None)]),
        values(AsOf::Now),
        values(AsOf::Operation(name("op"))),
        values(AsOf::Position(Position(7))),
        GetOperation(name("op")),
        ListOperations { only_held: true, page: page() },
        ListEntries { limit_name: name("a"), page: Page { after: Some(Position(7)), limit: 1 } },
    ]
}

fn limiter() -> Vec<limiter::Command> {
    use limiter::Command::*;
    let take = limiter::Take {
        key_values: key_values(),
        hits: -1,
        limit: Some(limiter::RequestLimit { limit: 5, per: Millis(1_000) }),
    };
    let check = limiter::Check { entries: vec![take], dry_run: true };
    let lease = limiter::NewLease {
        id: name("id"),
        key_values: key_values(),
        hits: 1,
        ttl: Millis(1),
        owner: Some(name("owner")),
    };
    let reads_and_checks = [
        GetRule(name("r")),
        ListRules { query: query(), page: page() },
        GetOverride { rule: name("r"), name: name("o") },
        ListOverrides { rule: name("r"), query: query(), page: page() },
        Match(key_values()),
        Check(check.clone()),
        CheckBatch(vec![check.clone(), check]),
        MoveCounter { key_values: key_values(), by: -3 },
        SetCounter { key_values: KeyValues::empty(), to: 3 },
        ListCounters { query: query(), page: Page { after: Some(limiter::CounterId(9)), limit: 100 } },
        TakeLease(lease),
        ExtendLease(name("id")),
        ReleaseLease(name("id")),
        GetLease(name("id")),
        ListLeases(page()),
    ];
    changes().into_iter().map(Change).chain(reads_and_checks).collect()
}

fn changes() -> Vec<Change> {
    use limiter::{FileRule, NewOverride, NewRule, OverridePatch, RulePatch};
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
        Change::ApplyFile(vec![FileRule { rule: rules[2].clone(), overrides: vec![new] }]),
    ];
    rules.map(Change::CreateRule).into_iter().chain(others).collect()
}

fn locks() -> Vec<locks::Command> {
    use locks::Command::*;
    let lock = |mode| Lock { key_values: key_values(), mode };
    let acquire = locks::Acquire {
        id: name("id"),
        session: name("session"),
        locks: vec![lock(locks::Mode::Exclusive), lock(locks::Mode::Shared)],
        ttl: Millis(1),
        wait: Millis(2),
        owner: None,
    };
    vec![
        Acquire(acquire),
        Abandon(name("id")),
        Heartbeat { id: name("id"), session: name("session") },
        Release { id: name("id"), session: Some(name("session")) },
        Release { id: name("id"), session: None },
        Get(name("id")),
        List { query: query(), page: Page { after: None, limit: 1 } },
    ]
}

fn events() -> Vec<events::Command> {
    use events::Command::*;
    let terms =
        |mode| events::StreamTerms { mode, duration: Millis(1), max_events: 2, key_frame_every: Millis(3) };
    let once = terms(events::Mode::OnlyOnce);
    vec![
        Put { name: name("s"), terms: terms(events::Mode::StrictlyOnce) },
        Delete(name("s")),
        Submit { stream: name("s"), event: "🌮".into(), make: Some(once) },
        KeyFrame { stream: name("s"), make: None },
        Get(name("s")),
        List(page()),
        Incubating(name("s")),
        Changes { stream: name("s"), after: u64::MAX, limit: 1 },
    ]
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn page() -> Page<Name> {
    Page { after: Some(name("before")), limit: 1_000 }
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
        Test::In(vec![Value::Integer(1), Value::Boolean(true)]),
        Test::Prefix("p".into()),
    ];
    Selection::new(vec![("k".into(), tests), ("b".into(), vec![Test::Exists(true)])])
}

/// As deep as one may be, and with parts on both sides.
fn query() -> Query {
    let mut query = Query { selection: selection(), min_keys: Some(1), ..Query::default() };
    for _ in 1..Query::MAX_DEPTH {
        let other = Query { max_keys: Some(2), ..Query::default() };
        query = Query { any: vec![other.clone(), query], all: vec![other], ..Query::default() };
    }
    query
}

#[track_caller]
fn is_refused<T: serde::de::DeserializeOwned + Debug>(written: impl serde::Serialize) {
    let bytes = postcard::to_allocvec(&written).unwrap();
    if let Ok(read) = postcard::from_bytes::<T>(&bytes) {
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
    let read = postcard::from_bytes::<KeyValues>(&postcard::to_allocvec(&fine).unwrap());
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
    refused.into_iter().for_each(is_refused::<KeyValues>);
}

#[test]
fn selections_and_queries_are_checked() {
    let tests = || vec![Test::Exists(true)];
    is_refused::<Selection>(vec![("b", tests()), ("a", tests())]);
    is_refused::<Selection>(vec![("a", tests()), ("a", tests())]);
    is_refused::<Selection>(vec![("a", vec![Test::Eq(Value::Float(f64::NAN))])]);

    let any = |query| Query { any: vec![query], ..Query::default() };
    is_refused::<Query>(any(query()));
    let wide = |parts| Query { all: vec![Query::default(); parts], ..Query::default() };
    is_refused::<Query>(wide(Query::MAX_PARTS));
    let widest = wide(Query::MAX_PARTS - 1);
    assert_eq!(postcard::from_bytes(&postcard::to_allocvec(&widest).unwrap()), Ok(widest));
    // A part of a query: its selection, its bounds, and how many follow.
    type Part = (Selection, Option<usize>, Option<usize>, usize, usize);
    let part = |any: usize| -> Part { (Selection::default(), None, None, any, 0) };
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
    assert_eq!(postcard::from_bytes(&postcard::to_allocvec(&fine).unwrap()), Ok(fine));
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
        let request = Request { namespace: name("n"), idempotency: None, command };
        let mut bytes = postcard::to_allocvec(&request).unwrap();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        if let Ok(read) = postcard::from_bytes::<Request>(&bytes) {
            let again = postcard::to_allocvec(&read).unwrap();
            prop_assert_eq!(postcard::from_bytes(&again), Ok(read));
        }
    }
}
