//! Rules without a window are created, changed and deleted while there are many counters and checks continue.
//!
//! Checks are sent at fixed times, whether earlier ones were answered or not, and a latency counts from the time at which
//! the check was due. So the figures include every check that a change delays.

use super::{
    in_process::{self, change, check, checks_refused},
    workload::Case,
};
use crate::{
    Failed,
    in_process::{Caller, InProcess, key_values, name, unexpected},
    load::{Contender, Load, Until, Work, drive},
    machine,
    measure::Measured,
};
use limina_engine::{
    Command, Outcome,
    key_values::Value,
    limiter::{self, Change, CounterChange, Limit, NewRule, RulePatch},
    selection::{Selection, Test},
};
use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, task::JoinSet};

/// The interval between two checks of one kind.
const EVERY: Duration = Duration::from_micros(500);
/// Counters that one request creates.
const BATCH: usize = 1000;
/// A measurement continues for at most this time after the answer to the change, because memory is freed after the answer.
pub(super) const AFTER: Duration = Duration::from_secs(1);
const REGIONS: usize = 1000;

/// The checks during one change, or without a change.
pub(crate) struct Phase {
    pub(crate) name: &'static str,
    /// Duration of the change, if there was one.
    pub(crate) took: Option<Duration>,
    /// Checks by a rule with a window, which do not wait for the disk.
    pub(crate) relaxed: Measured,
    /// Changes of counters, which wait for the disk.
    pub(crate) durable: Measured,
    pub(crate) resident: Option<u64>,
}

/// All phases, and the creation of the counters.
pub(crate) struct Changes {
    pub(crate) counters: usize,
    pub(crate) fill: Measured,
    pub(crate) phases: Vec<Phase>,
}

pub(crate) async fn measure(directory: &Path, counters: usize, time: Duration) -> Result<Changes, Failed> {
    let contender = InProcess::start(directory).await?;
    let caller = contender.connect().await?;
    change(&caller, Change::CreateRule(per_client())).await?;
    // Counters exist only where a rule without a window applies. This one has one group.
    change(&caller, Change::CreateRule(rule("all", &[]))).await?;
    let load = Load { connections: 8.min(counters), batch: BATCH };
    let share = counters.div_ceil(load.connections);
    let fill =
        drive(&contender, load, Until::Finished(counters as u64), |client| Fill { next: client * share });
    let fill = fill.await?;
    // Fewer leave no background work that would disturb the measurement.
    if counters >= 100_000 {
        contender.settle().await;
    }

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
        phases.push(phase(&caller, counters, name, AFTER.min(time), Some(change)).await?);
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

/// Creates counters, beginning with this number.
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

/// Sends checks during the change, if there is one, and for this time after it.
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
    }
    tokio::time::sleep(time).await;
    let [relaxed, durable] = pace.stop().await?;
    Ok(Phase { name, took, relaxed, durable, resident: machine::resident_bytes(std::process::id()) })
}

/// Sends checks until it is stopped.
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
        // This is a thread of its own, so that work of the runtime cannot delay it.
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

    /// Stops sending, waits for all answers, and returns the relaxed and the durable checks.
    async fn stop(self) -> Result<[Measured; 2], Failed> {
        self.is_over.store(true, Ordering::Relaxed);
        let thread = tokio::task::spawn_blocking(|| self.thread.join()).await?;
        let mut tasks = thread.map_err(|_| "the thread that sends checks panicked")?;
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

/// Adds 1 to a counter.
async fn durable(caller: &Caller, number: usize) -> Result<u64, Failed> {
    let command = limiter::Command::MoveCounter(CounterChange::new(key_values(account(number)), 1)?);
    match caller.submit(Command::Limiter(command)).await? {
        Outcome::Limiter(result) => Ok(u64::from(result.is_err())),
        other => Err(unexpected(other)),
    }
}
