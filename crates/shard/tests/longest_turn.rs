//! How long a single request can keep a shard busy: the longest time that `poll` takes. For a developer who changes what a
//! command costs: `cargo test -p limina-shard --test longest_turn -- --ignored --nocapture`.

use crate::harness::{Bench, name};
use limina_engine::{
    Command, KeyValues, Millis,
    key_values::Value,
    ledger::{self, Batch, Change as LimitChange, Hold, Transfer},
    limiter::{
        self, Change, Check, CheckBatch, CounterChange, Limit, NewRule, NewRuleSet, RuleChange, RuleSetPlan,
        SetAuthor, SetOverrides, SetRule, Take, Window,
    },
    lists::Page,
    selection::{Query, Selection, Test},
};
use limina_shard::Options;

const DEFAULT_SLICE: usize = 4_096;

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

fn report(what: &str, bench: &mut Bench, command: Command) {
    bench.longest_poll = Default::default();
    bench.polls = 0;
    let begin = std::time::Instant::now();
    bench.ask("red", command);
    println!(
        "{what}: longest turn {:?}, {} turns, {:?} in all",
        bench.longest_poll,
        bench.polls,
        begin.elapsed()
    );
}

#[test]
#[ignore = "a measurement"]
fn longest_turns() {
    for (slice, batch_work) in [(usize::MAX, usize::MAX), (DEFAULT_SLICE, 4 * DEFAULT_SLICE)] {
        println!("slices of {slice}:");
        let options =
            || Options { max_batch_work: batch_work, max_batch_bytes: usize::MAX, ..Options::default() };
        hold_batch(&mut Bench::new(slice, options()));
        check_batch(&mut Bench::new(slice, options()));
        query_and_deletion(&mut Bench::new(slice, options()));
        rule_set(&mut Bench::new(slice, options()));
    }
}

fn hold_batch(bench: &mut Bench) {
    let names: Vec<_> = (0..1_000).map(|number| name(&format!("l{number}"))).collect();
    let change = |number: usize| LimitChange::new(names[number % names.len()].clone(), 1);
    // 8,192 × 50 would be refused: its answer would be larger than 64 MiB.
    let hold = |item: usize| {
        let changes = (0..50).map(|number| change(item * 7 + number)).collect();
        Transfer::Hold(Hold::new(name(&format!("op{item}")), changes).unwrap().with_create_missing(true))
    };
    let batch = Batch::new((0..4_096).map(hold).collect()).unwrap();
    report("holds, 4,096 × 50", bench, Command::Ledger(ledger::Command::Batch(batch)));
    let batch = Batch::new((8_192..16_384).map(hold).collect()).unwrap();
    report("holds, 8,192 × 50, refused", bench, Command::Ledger(ledger::Command::Batch(batch)));
}

fn check_batch(bench: &mut Bench) {
    for number in 0..10 {
        bench.ask("red", rule(&format!("rule {number}"), long_lists(10)));
    }
    let take = || Take::new(key_values(10, 0), 1).unwrap();
    let checks = CheckBatch::new((0..8_192).map(|_| Check::new(vec![take()]).unwrap()).collect()).unwrap();
    report(
        "8,192 checks, 10 rules × 10 lists of 1,024",
        bench,
        limiter(limiter::Command::CheckBatch(checks)),
    );
}

fn rule_set(bench: &mut Bench) {
    let set = |limit: u64| {
        let rule = |number: usize| NewRule {
            name: name(&format!("rule {number}")),
            group_by: vec!["user".into()],
            selection: Selection::new(vec![("path".into(), vec![Test::Eq(Value::Integer(number as i64))])])
                .unwrap(),
            limit: Limit::AtMost(limit),
            window: Some(Window::Fixed { per: Millis(1_000) }),
            shadow: false,
            durability: None,
            description: Some("what it is for".into()),
        };
        let rules = (0..NewRuleSet::MAX_RULES).map(rule);
        let rules = rules.map(|rule| SetRule { rule, overrides: Vec::new() }).collect();
        NewRuleSet { rules, overrides: SetOverrides::Closed }
    };
    let put = |limit| {
        let change = Change::PutRuleSet { set: name("s"), new: set(limit), author: SetAuthor::Client };
        limiter(limiter::Command::Change(RuleChange::new(change).unwrap()))
    };
    report("a set of 10,000 rules, made", bench, put(1));
    report("the same set again", bench, put(1));
    let plan = RuleSetPlan::new(name("s"), set(2)).unwrap();
    report("a plan that changes all", bench, limiter(limiter::Command::PlanRuleSet(plan)));
    report("every rule changed", bench, put(2));
    report("the set read", bench, limiter(limiter::Command::GetRuleSet(name("s"))));
    let delete = RuleChange::delete_rule_set(name("s"), SetAuthor::Client);
    report("the set deleted", bench, limiter(limiter::Command::Change(delete)));
}

fn query_and_deletion(bench: &mut Bench) {
    for from in (0..500_000).step_by(8_192) {
        for number in from..(from + 8_192).min(500_000) {
            let change = CounterChange::new(key_values(3, number), 1).unwrap();
            bench.send("", "red", None, limiter(limiter::Command::SetCounter(change)));
        }
        bench.run();
    }
    let part = || Query::new(long_lists(3));
    let query = part().with_all((0..40).map(|_| part()).collect()).unwrap();
    let page = Page::new(None, 1_000).unwrap();
    report("a query with 123 lists", bench, limiter(limiter::Command::ListCounters { query, page }));
    report("deletion of 500,000 counters", bench, Command::DeleteNamespace);
}
