//! The engine's limiter compared with the model, without shard and store: random commands at random times, with windows
//! of a few milliseconds, so that most events are at a boundary. A failing case is reduced to the shortest script that
//! still fails.

use crate::harness::{self, Bench, Step};
use limina_engine::{
    Command, Name, Outcome, Page, Request,
    limiter::{self, Check, Checked, Counter, CounterId, Refusal, Reply, Take},
    selection::Query,
};
use limina_sim::{random::Random, workload::LimiterWorkload};

#[derive(Debug, Clone)]
enum StepKind {
    Ask(Box<Request>),
    /// A check. If it is refused, the same check is repeated as a dry run just before `retry_after` has passed, and
    /// just after.
    Retry(Vec<Take>),
    /// The counters, in small pages.
    Walk(usize),
    /// The batch ends, and is stored.
    Seal,
    /// The engine is opened again from what was stored.
    Reopen,
}

#[test]
fn any_commands() {
    harness::check(2_000, act, |random| {
        let spans = *random.pick(&[&[1, 7, 64][..], &[10, 100], &[100], &[50, 1_000]]);
        let limits = LimiterWorkload::with_spans(random, spans);
        script(random, limits, 50)
    });
}

#[test]
fn long_scripts() {
    harness::check(60, act, |random| {
        let limits = LimiterWorkload::with_spans(random, &[100, 1_000]);
        script(random, limits, 500)
    });
}

/// Many entries in one sliding window, which may then count slightly too long.
#[test]
fn crowded_windows() {
    harness::check(20, act, |random| {
        let limits = LimiterWorkload::crowded(random, &[640]);
        script(random, limits, 300)
    });
}

fn script(random: &mut Random, mut limits: LimiterWorkload, length: usize) -> (usize, Vec<Step<StepKind>>) {
    let namespace = Name::new("n").unwrap();
    let ask = |command, idempotency| {
        StepKind::Ask(Box::new(Request { idempotency, ..Request::new(namespace.clone(), command) }))
    };
    let mut steps: Vec<Step<StepKind>> =
        (0..2).map(|_| Step { wait: 0, what: ask(Command::Limiter(limits.rule(random)), None) }).collect();
    while steps.len() < length {
        let per = *random.pick(limits.spans());
        let wait = match random.below(12) {
            0..=4 => 0,
            5..=7 => 1,
            8 => random.below(4),
            9 => per - 1 + random.below(3),
            10 => random.below(per + 1),
            _ => random.below(4 * per),
        };
        let command = limits.command(random);
        let what = match (random.below(60), &command) {
            (0, _) => StepKind::Walk(1 + random.below(3) as usize),
            (1..=3, _) => StepKind::Seal,
            (4, _) => StepKind::Reopen,
            (5, _) if random.one_in(4) => StepKind::Ask(Box::new(harness::plain(Command::DeleteNamespace))),
            (_, limiter::Command::Check(check)) if !check.dry_run() && random.one_in(3) => {
                StepKind::Retry(check.entries().to_vec())
            }
            _ => StepKind::Ask(Box::new(harness::request(random, Command::Limiter(command), 8))),
        };
        steps.push(Step { wait, what });
    }
    (*random.pick(&[1, 2, 4_096]), steps)
}

fn act(bench: &mut Bench, what: &StepKind) -> Result<(), String> {
    match what {
        StepKind::Ask(request) => bench.ask(request).map(|_| ()),
        StepKind::Retry(entries) => retry(bench, entries),
        StepKind::Walk(limit) => walk(bench, *limit),
        StepKind::Seal => {
            bench.seal();
            Ok(())
        }
        StepKind::Reopen => bench.reopen(),
    }
}

fn answer(bench: &mut Bench, command: limiter::Command) -> Result<Result<Reply, Refusal>, String> {
    let request = harness::plain(Command::Limiter(command));
    match bench.ask(&request)? {
        Some(Outcome::Limiter(answer)) => Ok(answer),
        other => Err(format!("{request:?} -> {other:?}")),
    }
}

/// `None` if a quota refuses the check.
fn check(bench: &mut Bench, entries: &[Take], dry_run: bool) -> Result<Option<Checked>, String> {
    let check = Check::new(entries.to_vec()).expect("a valid check").with_dry_run(dry_run);
    match answer(bench, limiter::Command::Check(check))? {
        Ok(Reply::Allowed(decision)) | Err(Refusal::LimitReached(decision)) => Ok(Some(decision)),
        Err(Refusal::QuotaExceeded(_)) => Ok(None),
        other => Err(format!("a check is answered {other:?}")),
    }
}

/// The promise of `retry_after` is kept, whatever the model expects.
fn retry(bench: &mut Bench, entries: &[Take]) -> Result<(), String> {
    let Some(decision) = check(bench, entries, false)? else { return Ok(()) };
    let refusing = decision.limits.iter().filter(|limit| limit.exceeded && !limit.shadow);
    let longest = refusing.clone().map(|limit| limit.per.map_or(0, |per| per.0)).max().unwrap_or(0);
    // Nobody knows when a counter will be given back. Then nothing is promised, and a lease may end meanwhile.
    let is_in_use = refusing.clone().any(|limit| limit.per.is_none());
    match decision.retry_after {
        _ if decision.allowed || is_in_use || !bench.waiting.is_empty() => Ok(()),
        // If the same check gives something back, nothing is promised either.
        None if entries.iter().any(|take| take.hits() < 0) => Ok(()),
        Some(span) => {
            bench.wait(span.0 - 1)?;
            if is_allowed_now(bench, entries)? {
                return Err(format!("after {} ms it should not pass yet", span.0 - 1));
            }
            bench.wait(1)?;
            if !is_allowed_now(bench, entries)? {
                return Err(format!("after {} ms it should pass", span.0));
            }
            Ok(())
        }
        None => {
            bench.wait(3 * longest)?;
            if is_allowed_now(bench, entries)? { Err("it should never pass".into()) } else { Ok(()) }
        }
    }
}

/// A dry run creates nothing, so no quota refuses it.
fn is_allowed_now(bench: &mut Bench, entries: &[Take]) -> Result<bool, String> {
    Ok(check(bench, entries, true)?.is_some_and(|decision| decision.allowed))
}

/// Read in small pages, the counters must be the same as in one page, each once.
fn walk(bench: &mut Bench, limit: usize) -> Result<(), String> {
    let mut walked = Vec::new();
    let mut after = None;
    loop {
        let (items, next) = counters(bench, Page::new(after, limit).expect("a small page"))?;
        walked.extend(items);
        match next {
            Some(next) if after.is_none_or(|after| next > after) => after = Some(next),
            Some(next) => return Err(format!("after {after:?} follows {next:?}")),
            None => break,
        }
    }
    let mut all = counters(bench, Page::new(None, 100_000).expect("the largest page"))?.0;
    for counters in [&mut walked, &mut all] {
        counters.sort_by(|a, b| a.key_values.cmp(&b.key_values));
    }
    if walked == all { Ok(()) } else { Err(format!("in parts {walked:?}, but at once {all:?}")) }
}

fn counters(bench: &mut Bench, page: Page<CounterId>) -> Result<(Vec<Counter>, Option<CounterId>), String> {
    match answer(bench, limiter::Command::ListCounters { query: Query::default(), page })? {
        Ok(Reply::Counters(listed)) => Ok((listed.items, listed.next)),
        other => Err(format!("a list of counters is answered {other:?}")),
    }
}
