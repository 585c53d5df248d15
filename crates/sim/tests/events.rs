//! The events of the engine against the model, without shard and store: random commands at random times, with durations
//! of a few milliseconds, so that most of what happens is at an edge. A case that fails is cut down to the shortest
//! script that still fails.

mod bench;

use bench::{Bench, Step};
use limina_engine::{Command, Page, Request};
use limina_sim::{random::Random, workload::Happenings};

#[derive(Debug, Clone)]
enum What {
    Ask(Request),
    /// The batch ends, and is stored.
    Seal,
    /// The engine is opened again from what was stored.
    Reopen,
}

#[test]
fn any_commands() {
    bench::check(4_000, act, |random| {
        let spans = *random.pick(&[&[10, 11, 12][..], &[10, 17, 64], &[10, 100], &[50, 1_000]]);
        script(random, spans, 60)
    });
}

#[test]
fn long_scripts() {
    bench::check(60, act, |random| script(random, &[5, 100, 1_000], 600));
}

fn script(random: &mut Random, spans: &[u64], length: usize) -> (usize, Vec<Step<What>>) {
    let mut happenings = Happenings::with_spans(random, spans);
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
            0..=3 => What::Seal,
            4..=5 => What::Reopen,
            6 if random.one_in(2) => What::Ask(bench::plain(Command::DeleteNamespace)),
            7 => What::Ask(bench::plain(Command::ListNamespaces(Page::new(None, 10).expect("a small page")))),
            _ => {
                let command = Command::Events(happenings.command(random));
                What::Ask(bench::request(random, command, 6))
            }
        };
        steps.push(Step { wait, what });
    }
    (1, steps)
}

fn act(bench: &mut Bench, what: &What) -> Result<(), String> {
    match what {
        What::Ask(request) => {
            bench.ask(request)?;
        }
        What::Seal => bench.seal(),
        What::Reopen => bench.reopen()?,
    }
    Ok(())
}
