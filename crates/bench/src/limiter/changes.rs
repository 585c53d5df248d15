//! Rules without a window are made, changed and deleted while there are many counters, and checks go on.
//!
//! Checks are asked for at fixed times, whether earlier ones were answered or not, and the time that one takes begins
//! when it was to be asked for: so who is held up shows, however many are.

use super::{
    in_process::{self, change, check, checks_refused},
    workload::Case,
};
use crate::{
    Failed,
    in_process::{Caller, InProcess, key_values, name},
    load::{Contender, Load, Until, Work, drive},
    machine,
    measure::Measured,
    options::Place,
};
use limina_engine::{
    Command, Outcome,
    key_values::Value,
    limiter::{self, Change, Limit, NewRule, RulePatch},
    selection::{Selection, Test},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, task::JoinSet};

/// Between two checks of one kind.
const EVERY: Duration = Duration::from_micros(500);
/// So many counters are made by one request.
const BATCH: usize = 1000;
/// What is measured goes on for so long after the change was answered: memory is freed behind it.
const AFTER: Duration = Duration::from_secs(1);
const REGIONS: usize = 1000;

/// What was measured while something happened.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// How long the change took, if there was one.
    pub(crate) took: Option<Duration>,
    /// Checks by a rule with a window: they do not wait for the disk.
    pub(crate) relaxed: Measured,
    /// Counters taken from: they do.
    pub(crate) durable: Measured,
    pub(crate) resident: Option<u64>,
}

/// All phases, and how fast the counters were made.
pub(crate) struct Changes {
    pub(crate) counters: usize,
    pub(crate) fill: Measured,
    pub(crate) phases: Vec<Phase>,
}

pub(crate) async fn measure(place: &Place, counters: usize, time: Duration) -> Result<Changes, Failed> {
    let directory = place.directory()?;
    let contender = InProcess::start(directory.path()).await?;
    let caller = contender.connect().await?;
    change(&caller, Change::CreateRule(per_client())).await?;
    // Counters come into being where a rule without a window applies; this one has one group.
    change(&caller, Change::CreateRule(rule("all", &[]))).await?;
    let load = Load { connections: 8.min(counters), batch: BATCH };
    let share = counters.div_ceil(load.connections);
    let fill =
        drive(&contender, load, Until::Finished(counters as u64), |client| Fill { next: client * share });
    let fill = fill.await?;
    machine::settle(std::process::id()).await;

    let mut phases = vec![phase(&caller, counters, "before", time, None).await?];
    let not_one = Test::Ne(Value::String(region(1).into()));
    let selection = Selection::new(vec![("region".into(), vec![not_one])])?;
    let patch = |patch| Change::PatchRule { name: name("new"), patch };
    let changes = [
        ("create, a group for each", Change::CreateRule(rule("new", &["account"]))),
        ("another limit", patch(RulePatch { limit: Some(Limit::AtMost(1 << 40)), ..Default::default() })),
        ("another selection", patch(RulePatch { selection: Some(selection), ..Default::default() })),
        ("other groups", Change::PutRule(rule("new", &["region"]))),
        ("delete", Change::DeleteRule(name("new"))),
    ];
    for (name, change) in changes {
        phases.push(phase(&caller, counters, name, Duration::ZERO, Some(change)).await?);
    }
    phases.push(phase(&caller, counters, "after", time, None).await?);
    contender.stop().await?;
    Ok(Changes { counters, fill, phases })
}

/// A rule with a window.
fn per_client() -> NewRule {
    in_process::rule(Case::simple(1), 0)
}

fn rule(rule: &str, group_by: &[&str]) -> NewRule {
    NewRule {
        name: name(rule),
        group_by: group_by.iter().map(|&key| key.into()).collect(),
        limit: Limit::AtMost(limiter::MAX_COUNT),
        window: None,
        ..per_client()
    }
}

fn region(number: usize) -> String {
    format!("region-{number}")
}

/// The key-values of a counter.
fn account(number: usize) -> [(&'static str, String); 2] {
    [("account", format!("account-{number}")), ("region", region(number % REGIONS))]
}

/// Makes counters, from this number on.
struct Fill {
    next: usize,
}

impl Work<Caller> for Fill {
    async fn step(&mut self, caller: &mut Caller, count: u64, measured: &mut Measured) -> Result<(), Failed> {
        let numbers = self.next..self.next + usize::try_from(count)?;
        self.next = numbers.end;
        let checks = numbers.map(|number| check(key_values(account(number))));
        let asked = Instant::now();
        let refused = checks_refused(caller, checks.collect()).await?;
        measured.note(count, refused, asked.elapsed());
        Ok(())
    }
}

/// Checks go on for this time at least, and during the change, if there is one.
async fn phase(
    caller: &Caller,
    counters: usize,
    name: &'static str,
    time: Duration,
    to_change: Option<Change>,
) -> Result<Phase, Failed> {
    let pace = Pace::start(caller.clone(), counters);
    let begin = Instant::now();
    let mut took = None;
    if let Some(to_change) = to_change {
        change(caller, to_change).await?;
        took = Some(begin.elapsed());
        tokio::time::sleep(AFTER).await;
    }
    tokio::time::sleep(time.saturating_sub(begin.elapsed())).await;
    let [relaxed, durable] = pace.stop().await?;
    Ok(Phase { name, took, relaxed, durable, resident: machine::resident_bytes(std::process::id()) })
}

/// Asks for checks, on and on.
struct Pace {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<JoinSet<Result<(), Failed>>>,
    measured: Arc<[Mutex<Measured>; 2]>,
    begin: Instant,
}

impl Pace {
    fn start(caller: Caller, counters: usize) -> Pace {
        let is_over = Arc::new(AtomicBool::new(false));
        let measured = Arc::new([Mutex::new(Measured::new()), Mutex::new(Measured::new())]);
        let begin = Instant::now();
        let (runtime, over, into) = (Handle::current(), is_over.clone(), measured.clone());
        // A thread of its own, which nothing that the runtime does can hold up.
        let thread = thread::spawn(move || {
            let mut tasks = JoinSet::new();
            let mut due = begin;
            for number in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                thread::sleep(due.saturating_duration_since(Instant::now()));
                for kind in 0..2 {
                    let (caller, into) = (caller.clone(), into.clone());
                    let ask = async move {
                        let refused = match kind {
                            0 => relaxed(&caller, number).await?,
                            _ => durable(&caller, number.wrapping_mul(7919) % counters).await?,
                        };
                        into[kind].lock().expect("nobody panics").note(1, refused, due.elapsed());
                        Ok(())
                    };
                    tasks.spawn_on(ask, &runtime);
                }
                while tasks.try_join_next().is_some_and(|done| matches!(done, Ok(Ok(())))) {}
                due += EVERY;
            }
            tasks
        });
        Pace { is_over, thread, measured, begin }
    }

    /// When all are answered.
    async fn stop(self) -> Result<[Measured; 2], Failed> {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        let mut tasks = thread.map_err(|_| "the thread that asks failed")?;
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let take = |measured: &Mutex<Measured>| {
            let mut measured =
                std::mem::replace(&mut *measured.lock().expect("nobody panics"), Measured::new());
            measured.elapsed = self.begin.elapsed();
            measured
        };
        Ok([take(&self.measured[0]), take(&self.measured[1])])
    }
}

async fn relaxed(caller: &Caller, number: usize) -> Result<u64, Failed> {
    let client = format!("client-{}", number % 10_000);
    checks_refused(caller, vec![check(key_values([("client", client)]))]).await
}

/// Takes 1 more of a counter.
async fn durable(caller: &Caller, number: usize) -> Result<u64, Failed> {
    let command = limiter::Command::MoveCounter { key_values: key_values(account(number)), by: 1 };
    match caller.submit(Command::Limiter(command)).await? {
        Outcome::Limiter(result) => Ok(u64::from(result.is_err())),
        other => Err(format!("an unexpected outcome: {other:?}").into()),
    }
}
