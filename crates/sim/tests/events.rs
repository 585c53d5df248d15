//! The engine's events compared with the model, without shard and store: random commands at random times, with
//! durations of a few milliseconds, so that most happens at a boundary. A failing case is reduced to the shortest
//! script that still fails.

use crate::harness::{self, Bench, Step};
use limina_engine::{Command, Page, Request};
use limina_sim::{random::Random, workload::EventWorkload};

#[derive(Debug, Clone)]
enum StepKind {
    Ask(Box<Request>),
    /// The batch ends, and is stored.
    Seal,
    /// The engine is opened again from what was stored.
    Reopen,
}

#[test]
fn any_commands() {
    harness::check(2_000, act, |random| {
        let spans = *random.pick(&[&[10, 11, 12][..], &[10, 17, 64], &[10, 100], &[50, 1_000]]);
        script(random, spans, 60)
    });
}

#[test]
fn long_scripts() {
    harness::check(60, act, |random| script(random, &[10, 100, 1_000], 600));
}

fn script(random: &mut Random, spans: &[u64], length: usize) -> (usize, Vec<Step<StepKind>>) {
    let mut happenings = EventWorkload::with_spans(random, spans);
    let mut steps = Vec::new();
    while steps.len() < length {
        let span = *random.pick(happenings.spans());
        let wait = match random.below(12) {
            0..=5 => 0,
            6..=7 => 1,
            8..=9 => span - 1 + random.below(3),
            10 => random.below(span + 1),
            _ => random.below(2 * span),
        };
        let what = match random.below(80) {
            0..=3 => StepKind::Seal,
            4..=5 => StepKind::Reopen,
            6 if random.one_in(2) => StepKind::Ask(Box::new(harness::plain(Command::DeleteNamespace))),
            7 => StepKind::Ask(Box::new(harness::plain(Command::ListNamespaces(
                Page::new(None, 10).expect("a small page"),
            )))),
            _ => {
                let command = Command::Events(happenings.command(random));
                StepKind::Ask(Box::new(harness::request(random, command, 6)))
            }
        };
        steps.push(Step { wait, what });
    }
    (1, steps)
}

fn act(bench: &mut Bench, what: &StepKind) -> Result<(), String> {
    match what {
        StepKind::Ask(request) => {
            bench.ask(request)?;
        }
        StepKind::Seal => bench.seal(),
        StepKind::Reopen => bench.reopen()?,
    }
    Ok(())
}
