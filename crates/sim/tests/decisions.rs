//! The engine's decisions compared with the model, without shard and store: random commands at random times, with spans of a
//! few milliseconds, so that most happens at a boundary. The open decisions and their parts are read again and again. A failing
//! case is reduced to the shortest script that still fails.

use crate::harness::{self, Bench, Step, StepKind};
use limina_engine::{Name, Request};
use limina_sim::{model::is_batch, parts::Parts, random::Random, workload::DecisionWorkload};

#[derive(Debug, Clone)]
enum DecisionStep {
    Usual(StepKind),
    /// All parts are read, with the events of these streams, and compared with the decisions.
    Parts(Vec<Name>),
}

#[test]
fn any_commands() {
    harness::check_decisions(1_000, act, |random| script(random, 60));
}

#[test]
fn long_scripts() {
    harness::check_decisions(10, act, |random| script(random, 500));
}

fn script(random: &mut Random, length: usize) -> (usize, Vec<Step<DecisionStep>>) {
    let mut workload = DecisionWorkload::new(random);
    let ask = |command| DecisionStep::Usual(StepKind::ask(harness::plain(command)));
    let setup = workload.setup(random).into_iter();
    let mut steps: Vec<Step<DecisionStep>> =
        setup.map(|command| Step { wait: 0, what: ask(command) }).collect();
    while steps.len() < length {
        let span = *random.pick(workload.spans());
        let wait = harness::wait_about(random, span);
        let what = match random.below(60) {
            0..=2 => DecisionStep::Usual(StepKind::Seal),
            3 => DecisionStep::Usual(StepKind::Reopen),
            4 => DecisionStep::Usual(StepKind::EndWaits),
            5..=8 => ask(random.pick(&workload.looks()).clone()),
            9..=12 => DecisionStep::Parts(workload.streams().collect()),
            _ => {
                let command = workload.command(random);
                let request = harness::request(random, command, 6);
                // A batch would have to be the same under the same key.
                let idempotency = request.idempotency.clone().filter(|_| !is_batch(&request));
                DecisionStep::Usual(StepKind::ask(Request { idempotency, ..request }))
            }
        };
        steps.push(Step { wait, what });
    }
    // In the end every part is read.
    steps.extend(workload.looks().into_iter().map(|look| Step { wait: 0, what: ask(look) }));
    (4, steps)
}

fn act(bench: &mut Bench, step: &DecisionStep) -> Result<(), String> {
    match step {
        DecisionStep::Usual(what) => bench.act(what),
        DecisionStep::Parts(streams) => {
            let ask = |command| bench.ask(&harness::plain(command))?.ok_or("a list has to wait".into());
            Parts::read(streams.iter().cloned(), ask)?.check()
        }
    }
}
