//! Batches that are done in slices: who has a turn between slices, and what a failed append leaves of them.

use crate::harness::{Bench, batch, hold, limit, name, values};
use limina_engine::{
    Command, KeyValues, Millis, Outcome,
    decisions::{self, BatchItem, Decide, DecideRequest, Parts},
    key_values::Value,
    ledger::{Reply, ValuesReply},
    limiter::{self, Change, CounterChange, NewRule, RuleChange, Take},
    locks::{Lock, Mode},
    selection::Selection,
};
use limina_shard::{Failure, Loss, Options};

/// The work of a transfer with one limit is 8, so a slice is two of them.
const SLICE: usize = 16;

fn bench() -> Bench {
    Bench::new(SLICE, Options { max_batch_work: 4 * SLICE, ..Options::default() })
}

fn operations(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

/// The sum of the open holds of the limit `a`.
fn held(outcome: &Outcome) -> i64 {
    match outcome {
        Outcome::Ledger(Ok(Reply::Values(ValuesReply { values, .. }))) => values[0].hold_value,
        other => panic!("not {other:?}"),
    }
}

fn results(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Ledger(Ok(Reply::Batch(results))) => {
            assert!(results.iter().all(Result::is_ok), "{results:?}");
            results.len()
        }
        other => panic!("not {other:?}"),
    }
}

#[test]
fn other_namespaces_have_their_turn_between_slices() {
    let mut bench = bench();
    bench.ask("red", limit("a"));
    bench.ask("blue", limit("a"));
    bench.send("batch", "red", None, batch(&operations("op", 40)));
    bench.send("same", "red", None, values("a"));
    bench.send("other", "blue", None, hold("op"));
    bench.run();
    assert_eq!(bench.answered(), ["other", "batch", "same"]);
    assert_eq!(results(&bench.outcome("batch")), 40);
    assert_eq!(held(&bench.outcome("same")), 40, "a request of the same namespace comes after the batch");
}

/// A decision about one lock.
fn decision(id: &str, lock: i64) -> Decide {
    let key_values = KeyValues::new(vec![("lock", Value::<&str>::Integer(lock))]).unwrap();
    let locks = vec![Lock { key_values, mode: Mode::Exclusive }];
    Decide::new(name(id), Parts { locks, ..Parts::default() }).unwrap()
}

/// The first slice of a batch ends a decision, and so grants another one that waits. The answer to that one is released with
/// the slice. It waits neither for the end of the batch nor for another decision.
#[test]
fn a_slice_answers_the_requests_that_it_grants() {
    let mut bench = bench();
    bench.ask("red", Command::Decisions(decisions::Command::Decide(decision("first", 0).into())));
    let wanted = decision("second", 0).with_wait(Millis(60_000)).unwrap().into();
    let waiter = DecideRequest { wanted, waiter: Some(name("waiter")) };
    bench.send("waiter", "red", None, Command::Decisions(decisions::Command::Decide(waiter)));
    bench.run();
    assert!(bench.answered().is_empty(), "{:?}", bench.answered());

    let others = (1..40).map(|lock| BatchItem::Decide(decision(&format!("op{lock}"), lock).into()));
    let items = [BatchItem::Rollback(name("first"))].into_iter().chain(others).collect();
    let items = decisions::Batch::new(items).unwrap();
    bench.send("batch", "red", None, Command::Decisions(decisions::Command::Batch(items)));
    bench.run();
    assert_eq!(bench.answered(), ["waiter", "batch"]);
    let granted = bench.outcome("waiter");
    assert!(matches!(granted, Outcome::Decisions(Ok(decisions::Reply::Decided(_)))), "{granted:?}");
}

/// A namespace that sends very many requests does not delay a single request of another one.
#[test]
fn namespaces_take_turns() {
    let mut bench = Bench::new(4_096, Options { max_batch: 10, ..Options::default() });
    bench.ask("red", limit("a"));
    bench.ask("blue", limit("a"));
    let many = operations("op", 400);
    for (number, id) in many.iter().enumerate() {
        bench.send(&format!("red {number}"), "red", None, hold(id));
    }
    bench.send("blue", "blue", None, hold("op"));
    bench.run();
    let place = bench.answered().iter().position(|name| name == "blue").unwrap();
    assert!(place < 150, "{place}");
    let red: Vec<_> = bench.answered().into_iter().filter(|name| name != "blue").collect();
    assert_eq!(red, (0..400).map(|number| format!("red {number}")).collect::<Vec<_>>());
}

fn rule(rule_name: &str) -> Command {
    rule_with(rule_name, Some(limiter::Window::Fixed { per: Millis(1_000) }))
}

fn rule_with(rule_name: &str, window: Option<limiter::Window>) -> Command {
    let new = NewRule {
        name: name(rule_name),
        group_by: vec!["user".into()],
        selection: Selection::default(),
        limit: limiter::Limit::AtMost(1_000),
        window,
        shadow: false,
        durability: None,
        description: None,
    };
    Command::Limiter(limiter::Command::Change(RuleChange::new(Change::CreateRule(new)).unwrap()))
}

/// How much work a check is depends on the rules that apply, so it is known only afterwards. A long check ends the turn of its
/// namespace, whichever requests of it were taken together.
#[test]
fn a_check_with_many_rules_ends_the_turn_of_its_namespace() {
    let mut bench = bench();
    for number in 0..100 {
        bench.ask("red", rule(&format!("rule {number}")));
    }
    bench.ask("blue", limit("a"));
    let user = KeyValues::new(vec![("user", Value::<&str>::Integer(1))]).unwrap();
    let check = limiter::Check::new(vec![Take::new(user, 1).unwrap()]).unwrap();
    for number in 0..20 {
        let command = Command::Limiter(limiter::Command::Check(check.clone()));
        bench.send(&format!("red {number}"), "red", None, command);
    }
    bench.send("blue", "blue", None, hold("op"));
    bench.run();
    let answered = bench.answered();
    let place = answered.iter().position(|name| name == "blue").unwrap();
    assert!(place <= 2, "{answered:?}");
    let red: Vec<_> = answered.into_iter().filter(|name| name != "blue").collect();
    assert_eq!(red, (0..20).map(|number| format!("red {number}")).collect::<Vec<_>>());
}

/// While the store does not answer, what waits is rejected, also a batch between two slices. The work of its namespace that waited
/// for the end of the batch goes on.
#[test]
fn a_batch_that_is_rejected_between_two_slices_blocks_nothing() {
    let mut bench = bench();
    bench.ask("red", limit("a"));
    let user = KeyValues::new(vec![("user", Value::<&str>::Integer(1))]).unwrap();
    let counter = CounterChange::new(user, 1).unwrap();
    bench.ask("red", Command::Limiter(limiter::Command::SetCounter(counter)));
    bench.send("batch", "red", None, batch(&operations("op", 40)));
    bench.run_slices(10);
    bench.shard.reject_waiting(Failure::Unavailable);
    bench.run();
    assert_eq!(bench.failure("batch"), Failure::OutcomeUnknown);
    // It counts what is in use, which is done in slices too.
    bench.ask("red", rule_with("in use", None));
}

/// After a failed append, a batch with a key continues behind the items that are stored, whichever these are.
#[test]
fn with_a_key_a_batch_continues_after_a_failed_append() {
    for (loss, happened) in [(Loss::NotDone, false), (Loss::Unknown, false), (Loss::Unknown, true)] {
        for appends in 0..4 {
            let mut bench = bench();
            bench.ask("red", limit("a"));
            bench.send("batch", "red", Some("key"), batch(&operations("op", 40)));
            bench.lose_append(appends, loss, happened);
            bench.run();
            assert_eq!(results(&bench.outcome("batch")), 40, "{loss:?} after {appends} appends");
            bench.send("again", "red", Some("key"), batch(&operations("op", 40)));
            bench.run();
            assert_eq!(bench.outcome("again"), bench.outcome("batch"));
            assert_eq!(held(&bench.ask("red", values("a"))), 40, "{loss:?} after {appends} appends");
        }
    }
}

/// Without a key it is not known which items are stored. They stay, and the others are not done. Whichever append fails, the
/// answer says that nothing was done only if that is true.
#[test]
fn without_a_key_the_outcome_of_a_cut_batch_is_unknown() {
    for loss in [Loss::NotDone, Loss::Full, Loss::Unknown] {
        for appends in 0.. {
            let mut bench = bench();
            bench.ask("red", limit("a"));
            bench.send("batch", "red", None, batch(&operations("op", 40)));
            bench.lose_append(appends, loss, false);
            bench.run();
            let Err(failure) = *bench.reply("batch") else {
                assert!(appends > 3, "the batch needs several appends");
                break;
            };
            let held = held(&bench.ask("red", values("a")));
            assert_eq!(
                held > 0,
                appends > 0,
                "{loss:?} after {appends} appends: the first append has some items"
            );
            assert!(held < 40, "{loss:?} after {appends} appends: the last append was lost");
            let is_true = failure == Failure::OutcomeUnknown || held == 0;
            assert!(is_true, "{failure:?}, but {held} are held: {loss:?} after {appends} appends");
        }
    }
}

/// The store may drop the records of a deleted namespace at once, but not before the deletion is durable: a lost deletion has not
/// happened.
#[test]
fn a_deleted_namespace_is_discarded_when_its_deletion_is_durable() {
    for (loss, is_lost) in [(None, false), (Some(Loss::NotDone), true)] {
        let mut bench = Bench::new(4_096, Options::default());
        bench.ask("red", limit("a"));
        if let Some(loss) = loss {
            bench.lose_append(0, loss, false);
        }
        bench.send("delete", "red", None, Command::DeleteNamespace);
        bench.run();
        assert_eq!(bench.reply("delete").is_err(), is_lost);
        assert_eq!(bench.discarded.len(), if is_lost { 0 } else { 3 }, "{:?}", bench.discarded);
    }
}

/// If the disk fills up, a batch that is under way is finished. The reserve has room for it.
#[test]
fn a_batch_that_has_begun_uses_the_reserve() {
    for key in [None, Some("key")] {
        let mut bench = bench();
        bench.ask("red", limit("a"));
        bench.send("batch", "red", key, batch(&operations("op", 40)));
        bench.send("next", "red", None, batch(&operations("next", 1)));
        bench.fill_after(2);
        bench.run();
        assert_eq!(results(&bench.outcome("batch")), 40);
        assert_eq!(bench.failure("next"), Failure::StorageFull);
    }
}

/// If not even the reserve has room for it, a batch ends between two slices, and says that its outcome is not known.
#[test]
fn a_batch_that_finds_no_space_is_cut() {
    let mut bench = bench();
    bench.ask("red", limit("a"));
    bench.send("batch", "red", Some("key"), batch(&operations("op", 40)));
    bench.fill_after(2);
    bench.lose_append(2, Loss::Full, false);
    bench.run();
    assert_eq!(bench.failure("batch"), Failure::OutcomeUnknown);
    bench.make_space();
    let before = held(&bench.ask("red", values("a")));
    assert!((1..40).contains(&before), "{before}");
    bench.send("again", "red", Some("key"), batch(&operations("op", 40)));
    bench.run();
    assert_eq!(results(&bench.outcome("again")), 40);
    assert_eq!(held(&bench.ask("red", values("a"))), 40);
}
