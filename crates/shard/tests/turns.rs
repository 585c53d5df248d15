//! A large request is done in many turns, so that other requests of the shard wait for one turn of it and not for all of it.

use crate::harness::{Bench, name};
use limina_engine::{
    Command, KeyValues,
    key_values::Value,
    ledger::{self, Batch, Change as LimitChange, Hold, Transfer},
    limiter::{self, Change, Check, CheckBatch, CounterChange, Limit, NewRule, RuleChange, Take},
    selection::{Selection, Test},
};
use limina_shard::Options;

/// The work of one slice.
const SLICE: usize = 4_096;

/// The number of turns that a command takes, with slices of this much work. `prepare` makes what the command works on.
fn turns(slice: usize, prepare: impl Fn(&mut Bench), command: &Command) -> usize {
    let max_batch_work = slice.saturating_mul(4);
    let mut bench =
        Bench::new(slice, Options { max_batch_work, max_batch_bytes: usize::MAX, ..Options::default() });
    prepare(&mut bench);
    bench.turns = 0;
    bench.ask("red", command.clone());
    bench.turns
}

/// Checks that slices are the reason why a batch takes many turns.
#[track_caller]
fn check_batch(prepare: impl Fn(&mut Bench), batch: &Command) {
    let (sliced, at_once) = (turns(SLICE, &prepare, batch), turns(usize::MAX, &prepare, batch));
    assert!(sliced >= 10, "only {sliced} turns");
    assert!(at_once < 10, "{at_once} turns without slices");
}

fn limiter(command: limiter::Command) -> Command {
    Command::Limiter(command)
}

fn key_values(keys: usize, number: i64) -> KeyValues {
    KeyValues::new((0..keys).map(|key| (format!("k{key:02}"), Value::<&str>::Integer(number))).collect())
        .unwrap()
}

/// Conditions on each key with a list of 1,024 values, of which the last one is met.
fn long_lists(keys: usize) -> Selection {
    let values = || (0..1_024).map(|number| Value::Integer(1_023 - number)).collect();
    let conditions = (0..keys).map(|key| (format!("k{key:02}").into(), vec![Test::In(values())]));
    Selection::new(conditions.collect()).unwrap()
}

fn rule(rule_name: &str, selection: Selection) -> Command {
    let rule = NewRule {
        name: name(rule_name),
        group_by: vec!["k00".into()],
        selection,
        limit: Limit::AtMost(1_000_000),
        window: None,
        shadow: false,
        durability: None,
        description: None,
    };
    limiter(limiter::Command::Change(RuleChange::new(Change::CreateRule(rule)).unwrap()))
}

#[test]
fn a_batch_of_holds() {
    let hold = |item: usize| {
        let change = |number: usize| LimitChange::new(name(&format!("l{}", (item * 7 + number) % 1_000)), 1);
        let changes = (0..50).map(change).collect();
        Transfer::Hold(Hold::new(name(&format!("op{item}")), changes).unwrap().with_create_missing(true))
    };
    let batch = Batch::new((0..1_024).map(hold).collect()).unwrap();
    check_batch(|_| {}, &Command::Ledger(ledger::Command::Batch(batch)));
}

#[test]
fn a_batch_of_checks_with_long_conditions() {
    let make_rules = |bench: &mut Bench| {
        for number in 0..10 {
            bench.ask("red", rule(&format!("rule {number}"), long_lists(10)));
        }
    };
    let take = || Take::new(key_values(10, 0), 1).unwrap();
    let checks = CheckBatch::new((0..128).map(|_| Check::new(vec![take()]).unwrap()).collect()).unwrap();
    check_batch(make_rules, &limiter(limiter::Command::CheckBatch(checks)));
}

#[test]
fn the_deletion_of_a_namespace() {
    let make_counters = |bench: &mut Bench| {
        for number in 0..20_000 {
            let change = CounterChange::new(key_values(3, number), 1).unwrap();
            bench.ask("red", limiter(limiter::Command::SetCounter(change)));
        }
    };
    let turns = turns(SLICE, make_counters, &Command::DeleteNamespace);
    assert!(turns >= 50, "only {turns} turns");
}
