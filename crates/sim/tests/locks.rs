//! The engine's locks compared with the model, without shard and store: random commands at random times, with spans of
//! a few milliseconds, so that most happens at a boundary. After every step all grants are read. A failing case is
//! reduced to the shortest script that still fails.

use crate::harness::{self, Bench, Step, StepKind};
use limina_engine::{
    Command, Name, Outcome, Page, Request,
    locks::{self, GrantInfo, Mode, Reply},
    selection::Query,
};
use limina_sim::{random::Random, workload::LockWorkload};

#[test]
fn any_commands() {
    harness::check(2_000, act, |random| {
        let spans =
            *random.pick(&[&[100, 101, 102][..], &[100, 107, 164], &[110, 200], &[150, 1_000, 60_000]]);
        script(random, spans, 60)
    });
}

#[test]
fn long_scripts() {
    harness::check(60, act, |random| script(random, &[100, 150, 1_000], 600));
}

fn script(random: &mut Random, spans: &[u64], length: usize) -> (usize, Vec<Step<StepKind>>) {
    let mut doors = LockWorkload::with_spans(random, spans);
    let mut steps = Vec::new();
    // The last requests for locks that had an idempotency key.
    let mut asked: Vec<Request> = Vec::new();
    while steps.len() < length {
        let span = *random.pick(doors.spans());
        let wait = harness::wait_about(random, span);
        let what = match random.below(80) {
            0..=3 => StepKind::Seal,
            4 => StepKind::Reopen,
            5 => StepKind::EndWaits,
            6 if random.one_in(2) => StepKind::ask(harness::plain(Command::DeleteNamespace)),
            7 => StepKind::ask(harness::plain(Command::ListNamespaces(
                Page::new(None, 10).expect("a small page"),
            ))),
            8..=11 if !asked.is_empty() => StepKind::ask(again(&mut doors, random, &asked)),
            _ => {
                let command = Command::Locks(doors.command(random));
                StepKind::ask(harness::request(random, command, 6))
            }
        };
        if let StepKind::Ask(request) = &what
            && let (Command::Locks(locks::Command::Acquire(_)), Some(_)) =
                (&request.command, &request.idempotency)
        {
            asked.push(Request::clone(request));
            asked.drain(..asked.len().saturating_sub(4));
        }
        steps.push(Step { wait, what });
    }
    (1, steps)
}

/// A retry of one of these requests, or the hang-up of its first connection.
fn again(doors: &mut LockWorkload, random: &mut Random, asked: &[Request]) -> Request {
    let first = random.pick(asked).clone();
    let Command::Locks(wanted) = &first.command else { unreachable!("only these are remembered") };
    match doors.hang_up_or_retry(random, wanted) {
        hang_up @ locks::Command::Abandon(_) => harness::plain(Command::Locks(hang_up)),
        retry => Request { command: Command::Locks(retry), ..first },
    }
}

fn act(bench: &mut Bench, what: &StepKind) -> Result<(), String> {
    bench.act(what)?;
    look(bench)
}

/// Whatever the model expects: two requests never hold an exclusive lock, and counts agree with the lists.
fn look(bench: &mut Bench) -> Result<(), String> {
    let page = Page::new(None, 100_000).expect("the largest page");
    let list = Command::Locks(locks::Command::List { query: Query::default(), page });
    let request = Request::new(Name::new("n").unwrap(), list);
    let Some(Outcome::Locks(Ok(Reply::Grants(listed)))) = bench.ask(&request)? else {
        return Err("a list is a list".into());
    };
    for (place, grant) in listed.items.iter().enumerate() {
        if let Some(other) = listed.items[..place].iter().find(|other| conflict(grant, other)) {
            return Err(format!("both are held: {grant:?} and {other:?}"));
        }
    }
    let expected = locks::Sizes { held: listed.items.len(), waiting: bench.waiting.len() };
    let sizes = bench.engine.stats().sizes.locks;
    if sizes == expected { Ok(()) } else { Err(format!("{expected:?} are there, but {sizes:?} are counted")) }
}

fn conflict(a: &GrantInfo, b: &GrantInfo) -> bool {
    a.locks.iter().any(|lock| {
        let same = b.locks.iter().filter(|other| other.key_values == lock.key_values);
        same.into_iter().any(|other| lock.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
    })
}
