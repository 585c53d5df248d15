//! A request whose answer would be too large is refused before anything is done.

use limina_engine::{
    Applied, Command, Engine, Fetched, Idempotency, Job, KeyValues, Listed, Millis, Name, Options, Outcome,
    Page, Request,
    events::{self, Mode, StreamTerms},
    key_values::Value,
    ledger::{self, Finalization, Finish, Hold, Transfer},
    limiter::{self, Change, Check, CounterChange, Limit, NewLease, NewOverride, NewRule, RuleChange, Take},
    selection::Selection,
};

const MAX: usize = 8_192;

fn engine() -> Engine {
    Engine::open(Options { max_answer: MAX, ..Options::default() }, []).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key_values(pairs: &[(&str, i64)]) -> KeyValues {
    let pairs = pairs.iter().map(|(key, value)| (*key, Value::Integer(*value))).collect();
    KeyValues::new::<&str, &str>(pairs).unwrap()
}

fn run(engine: &mut Engine, idempotency: Option<Idempotency>, command: Command) -> Outcome {
    let request = Request { idempotency, ..Request::new(name("n"), command) };
    let time = engine.time();
    // Nothing is stored but what this engine has written since it was opened.
    let mut fetched = Fetched::default();
    let mut job = Job::new(request);
    loop {
        match engine.apply(time, &mut job, &fetched) {
            Ok(Applied::Done { outcome, .. }) => return outcome,
            Ok(Applied::Unfinished) => {}
            Ok(waits) => panic!("{waits:?}"),
            Err(limina_engine::Missing(reads)) => {
                for read in reads {
                    fetched.insert(read, limina_engine::ReadResult::Value(None));
                }
            }
        }
    }
}

#[track_caller]
fn done(engine: &mut Engine, command: Command) -> Outcome {
    let outcome = run(engine, None, command);
    assert!(outcome.is_done(), "{outcome:?}");
    outcome
}

/// Refused with and without a key, without a change, and without a reply that would be kept.
#[track_caller]
fn refused(engine: &mut Engine, command: Command) {
    engine.seal();
    let key = Idempotency { owner: None, key: name("key"), fingerprint: [1; 16] };
    for idempotency in [None, Some(key)] {
        let outcome = run(engine, idempotency, command.clone());
        assert_eq!(outcome, Outcome::AnswerTooLarge { max_bytes: MAX as u64 });
        assert_eq!(outcome.code(), "AnswerTooLarge");
        assert!(!engine.has_changes(), "{command:?} has changed something");
    }
}

/// A rule for the key `a` with so many overrides that all apply to `a` = 1 and one of `n` = 0, 1, 2, …
fn with_overrides(engine: &mut Engine, count: i64) {
    let rule = NewRule {
        name: name("rule"),
        group_by: vec!["a".into()],
        selection: Selection::default(),
        limit: Limit::AtMost(1_000),
        window: None,
        shadow: false,
        durability: None,
        description: None,
    };
    let change = |change| Command::Limiter(limiter::Command::Change(RuleChange::new(change).unwrap()));
    done(engine, change(Change::CreateRule(rule)));
    for n in 0..count {
        let new = NewOverride {
            name: name(&format!("override {n}")),
            key_values: key_values(&[("a", 1), (&format!("n{n}"), n)]),
            limit: Limit::AtMost(1_000),
            burst: None,
        };
        done(engine, change(Change::CreateOverride { rule: name("rule"), new }));
    }
}

fn meeting(overrides: i64) -> KeyValues {
    let keys: Vec<String> = (0..overrides).map(|n| format!("n{n}")).collect();
    let mut pairs = vec![("a", 1)];
    pairs.extend(keys.iter().zip(0..).map(|(key, n)| (key.as_str(), n)));
    key_values(&pairs)
}

fn check(key_values: KeyValues) -> Check {
    Check::new(vec![Take::new(key_values, 1).unwrap()]).unwrap()
}

#[test]
fn a_check_that_meets_many_overrides() {
    use limiter::Command::{CheckBatch, Match, MoveCounter, TakeLease};
    let mut engine = engine();
    with_overrides(&mut engine, 40);
    done(&mut engine, Command::Limiter(limiter::Command::Check(check(meeting(3)))));
    let all = || meeting(40);
    refused(&mut engine, Command::Limiter(limiter::Command::Check(check(all()))));
    refused(&mut engine, Command::Limiter(Match(all())));
    let moved = |by| Command::Limiter(MoveCounter(CounterChange::new(all(), by).unwrap()));
    refused(&mut engine, moved(1));
    let lease = NewLease::new(name("lease"), name("session"), all(), 1, Millis(1_000)).unwrap();
    refused(&mut engine, Command::Limiter(TakeLease(lease)));
    // Giving back is never refused: it shows no limits.
    done(&mut engine, moved(-1));
    // A batch is refused as a whole, also for what its last check would show.
    let batch = |checks| Command::Limiter(CheckBatch(limiter::CheckBatch::new(checks).unwrap()));
    let mut checks = vec![check(meeting(3))];
    done(&mut engine, batch(checks.clone()));
    checks.extend(vec![check(meeting(3)); 7]);
    refused(&mut engine, batch(checks));
    refused(&mut engine, batch(vec![check(meeting(1)), check(all())]));
}

#[test]
fn a_batch_of_commits_that_meet_many_holds() {
    let mut engine = engine();
    let change = |n: i64| ledger::Change::new(name(&format!("limit {n}")), 1);
    let hold = |id: &str, limits: i64| {
        let hold = Hold::new(name(id), (0..limits).map(change).collect()).unwrap();
        Transfer::Hold(hold.with_create_missing(true))
    };
    let commit = |id: &str| Transfer::Finish(Finish::Commit, Finalization::new(name(id), None).unwrap());
    let batch = |transfers| Command::Ledger(ledger::Command::Batch(ledger::Batch::new(transfers).unwrap()));
    let ledger = |command| Command::Ledger(command);
    done(&mut engine, ledger(ledger::Command::Transfer(hold("large", 20))));
    done(&mut engine, ledger(ledger::Command::Transfer(hold("small", 1))));
    done(&mut engine, batch(vec![commit("small")]));
    // The commit names no limit, and yet its answer has twenty of them.
    refused(&mut engine, batch(vec![commit("large"), commit("large")]));
    refused(&mut engine, batch(vec![hold("new", 20), hold("newer", 20)]));
    done(&mut engine, batch(vec![hold("new", 2), hold("newer", 2)]));
}

#[test]
fn a_page_ends_where_its_answer_has_enough_bytes() {
    let mut engine = engine();
    for n in 0..40 {
        let limit = ledger::NewLimit {
            context: ledger::Context::new([("word", "x".repeat(100))]).unwrap(),
            ..ledger::NewLimit::new(name(&format!("limit {n:02}")))
        };
        done(&mut engine, Command::Ledger(ledger::Command::CreateLimit(limit)));
    }
    let (mut after, mut seen, mut pages) = (None, Vec::new(), 0);
    loop {
        let page = Page::new(after, 1_000).unwrap();
        let outcome = done(&mut engine, Command::Ledger(ledger::Command::ListLimits(page)));
        let Outcome::Ledger(Ok(ledger::Reply::Limits(Listed { items, next }))) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(!items.is_empty(), "each page goes on");
        seen.extend(items.into_iter().map(|item| item.name));
        pages += 1;
        if next.is_none() {
            break;
        }
        after = next;
    }
    assert!(pages > 1, "40 limits of about 1 KiB are more than 8 KiB");
    assert_eq!(seen, (0..40).map(|n| name(&format!("limit {n:02}"))).collect::<Vec<_>>());
}

#[test]
fn a_stream_with_many_events() {
    let mut engine = engine();
    let terms = StreamTerms::new(Mode::OnlyOnce, Millis(10_000)).unwrap();
    let events = |command| Command::Events(command);
    done(&mut engine, events(events::Command::Put { name: name("stream"), terms }));
    for n in 0..20 {
        let event = format!("event {n}").into();
        let submit = events::Command::Submit(events::Submit::new(name("stream"), event).unwrap());
        done(&mut engine, events(submit));
    }
    done(&mut engine, events(events::Command::Incubating(name("stream"))));
    for n in 20..80 {
        let event = format!("event {n}").into();
        let submit = events::Command::Submit(events::Submit::new(name("stream"), event).unwrap());
        done(&mut engine, events(submit));
    }
    refused(&mut engine, events(events::Command::Incubating(name("stream"))));
    // A follower needs them all.
    done(&mut engine, events(events::Command::Snapshot(name("stream"))));
}
