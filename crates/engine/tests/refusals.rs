//! A refused request of the ledger leaves no trace: it moves nothing, uses no position and writes no record.

use limina_engine::{
    Applied, Command, Engine, Fetched, Job, Millis, Missing, Name, Options, Outcome, Quota, QuotaTable,
    ReadResult, Request,
    ledger::{Batch, Change, Command as Ledger, Hold, NewLimit, Reply, Transfer},
};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn run(engine: &mut Engine, command: Ledger) -> Outcome {
    let time = engine.time();
    // Nothing is stored but what this engine has written since it was opened.
    let mut fetched = Fetched::default();
    let mut job = Job::new(Request::new(name("n"), Command::Ledger(command)));
    loop {
        match engine.apply(time, &mut job, &fetched) {
            Ok(Applied::Done { outcome, .. }) => return outcome,
            Ok(Applied::Unfinished) => {}
            Ok(Applied::Waiting(wait)) => panic!("{wait:?}"),
            Err(Missing(reads)) => {
                reads.into_iter().for_each(|read| fetched.insert(read, ReadResult::Value(None)));
            }
        }
    }
}

fn limit(text: &str) -> Ledger {
    Ledger::CreateLimit(NewLimit { ceiling: Some(10), ..NewLimit::new(name(text)) })
}

fn hold(id: &str, changes: &[(&str, i64)]) -> Hold {
    let changes = changes.iter().map(|(limit, value)| Change::new(name(limit), *value)).collect();
    Hold::new(name(id), changes).unwrap().with_create_missing(true)
}

fn transfer(hold: Hold) -> Ledger {
    Ledger::Transfer(Transfer::Hold(hold))
}

/// An engine with the limits `a` and `b`, of which `b` is full, and at most so many limits.
fn engine(limits: u64, resident_bytes: Option<u64>) -> Engine {
    let quotas = [(Quota::LedgerLimits, Some(limits)), (Quota::ResidentBytes, resident_bytes)];
    let quotas = QuotaTable::new(quotas.into_iter().collect(), []);
    Engine::open(Options { quotas: quotas.into(), ..Options::default() }, []).unwrap()
}

fn prepared(limits: u64) -> Engine {
    let mut engine = engine(limits, None);
    for command in [limit("a"), limit("b"), transfer(hold("o", &[("b", 10)]))] {
        assert!(run(&mut engine, command).is_done());
    }
    engine.seal();
    engine
}

#[test]
fn a_refused_hold_leaves_no_trace() {
    #[track_caller]
    fn check(limits: u64, refused: Hold, code: &str) {
        let mut engine = prepared(limits);
        let (before, bytes) = (format!("{:?}", engine.stats()), engine.resident_bytes());
        let outcome = run(&mut engine, transfer(refused));
        assert_eq!(outcome.code(), code);
        assert!(!engine.has_changes(), "{code}: something is to be written");
        assert_eq!((format!("{:?}", engine.stats()), engine.resident_bytes()), (before, bytes));
        // Two limits and one hold have used three positions.
        match run(&mut engine, transfer(hold("next", &[("a", 1)]))) {
            Outcome::Ledger(Ok(Reply::Hold(reply))) => assert_eq!(reply.position.0, 4),
            other => panic!("{other:?}"),
        }
    }
    let expiring = |hold: Hold| hold.with_expires_after(Some(Millis(1_000))).unwrap();
    check(9, expiring(hold("p", &[("a", 1), ("new", 1), ("b", 1)])), "LimitExceeded");
    check(9, expiring(hold("p", &[("new", i64::MAX), ("newer", 1), ("a", 11)])), "LimitExceeded");
    check(9, hold("o", &[("a", 1), ("b", 1)]), "DuplicateOperation");
    check(3, expiring(hold("p", &[("a", 1), ("new", 1), ("newer", 1)])), "QuotaExceeded");
}

#[test]
fn a_refused_item_of_a_batch_leaves_the_others_as_if_it_were_not_there() {
    let run_batch = |items: Vec<Hold>| {
        let mut engine = prepared(3);
        let items = items.into_iter().map(Transfer::Hold).collect();
        let Outcome::Ledger(Ok(Reply::Batch(mut results))) =
            run(&mut engine, Ledger::Batch(Batch::new(items).unwrap()))
        else {
            panic!("a batch has results")
        };
        results.retain(Result::is_ok);
        let writes = format!("{:?}", engine.seal().writes.iter().collect::<Vec<_>>());
        (results, writes, engine.resident_bytes())
    };
    let (first, last) = (hold("p", &[("a", 1)]), hold("r", &[("a", 2), ("new", 3)]));
    let full = hold("q", &[("a", 1), ("new", 1), ("b", 1)]);
    let too_many = hold("q", &[("a", 1), ("new", 1), ("newer", 1)]);
    let expect = run_batch(vec![first.clone(), last.clone()]);
    assert_eq!(run_batch(vec![first.clone(), full, last.clone()]), expect);
    assert_eq!(run_batch(vec![first, too_many, last]), expect);
}

#[test]
fn what_memory_refuses_leaves_no_trace() {
    let mut engine = engine(9, Some(0));
    let mut check = |command: Ledger| {
        assert_eq!(run(&mut engine, command).code(), "QuotaExceeded");
        assert!(!engine.has_changes());
        assert_eq!(engine.resident_bytes(), 0);
    };
    check(limit("a"));
    check(transfer(hold("p", &[("new", 1)])));
}
