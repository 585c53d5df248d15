//! What a run prints: tables to stdout, as soon as they are complete, and the progress to stderr.
//!
//! On a terminal the progress is one line, which is rewritten every second. In a log it is a line every half a minute.

use crate::Failed;
use std::{
    convert::Infallible,
    io::{self, IsTerminal, Write},
    iter::Sum,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Roughly the time to start a contender and to stop it again.
const SET_UP: Duration = Duration::from_secs(1);

/// How long measurements are expected to take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Plan {
    pub(crate) steps: usize,
    pub(crate) time: Duration,
}

impl Sum for Plan {
    fn sum<I: Iterator<Item = Plan>>(plans: I) -> Plan {
        let add = |a: Plan, b: Plan| Plan { steps: a.steps + b.steps, time: a.time + b.time };
        plans.fold(Plan::default(), add)
    }
}

/// Steps that measure for these times.
impl FromIterator<Duration> for Plan {
    fn from_iter<I: IntoIterator<Item = Duration>>(steps: I) -> Plan {
        steps.into_iter().map(|time| Plan { steps: 1, time: SET_UP + time }).sum()
    }
}

/// Prints tables and progress so that they do not mix.
pub(crate) struct Screen {
    state: Arc<Mutex<State>>,
    /// The thread that repeats the progress ends when this is dropped.
    _repeats: mpsc::Sender<Infallible>,
}

struct State {
    out: Box<dyn Write + Send>,
    progress: Progress,
    is_terminal: bool,
    is_drawn: bool,
}

impl Screen {
    pub(crate) fn new(all: Plan) -> Screen {
        Screen::to(io::stdout(), all)
    }

    /// Prints tables to another place than stdout.
    pub(crate) fn to(out: impl Write + Send + 'static, all: Plan) -> Screen {
        let is_terminal = io::stderr().is_terminal();
        let progress = Progress::new(all, Instant::now());
        let state = State { out: Box::new(out), progress, is_terminal, is_drawn: false };
        let pace = state.pace();
        let state = Arc::new(Mutex::new(state));
        let (repeats, ended) = mpsc::channel();
        let repeated = state.clone();
        thread::spawn(move || {
            while ended.recv_timeout(pace) == Err(mpsc::RecvTimeoutError::Timeout) {
                lock(&repeated).draw();
            }
        });
        Screen { state, _repeats: repeats }
    }

    /// Says that the next step begins, which measures for this time. So the one before it is done.
    pub(crate) fn begin(&self, name: String, planned: Duration) {
        let mut state = lock(&self.state);
        state.progress.begin(name, planned, Instant::now());
        if state.is_terminal || !state.is_drawn {
            state.draw();
        }
    }

    /// Prints text to stdout at once.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failed> {
        let mut state = lock(&self.state);
        state.erase();
        state.out.write_all(text.as_bytes())?;
        Ok(state.out.flush()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.progress.step = None;
        state.erase();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// The interval at which the progress is repeated.
    fn pace(&self) -> Duration {
        Duration::from_secs(if self.is_terminal { 1 } else { 30 })
    }

    fn draw(&mut self) {
        let Some(line) = self.progress.line(Instant::now()) else { return };
        self.is_drawn = true;
        // A run does not fail because nobody reads its progress.
        let _unread = match self.is_terminal {
            true => write!(io::stderr(), "\r\x1b[2K{line}"),
            false => writeln!(io::stderr(), "{line}"),
        };
    }

    fn erase(&mut self) {
        if self.is_terminal && self.is_drawn {
            let _unread = write!(io::stderr(), "\r\x1b[2K");
        }
    }
}

/// How far a run has come.
struct Progress {
    all: Plan,
    /// The steps that are done, with their planned time.
    done: Plan,
    start: Instant,
    step: Option<Step>,
}

struct Step {
    name: String,
    planned: Duration,
    begin: Instant,
}

impl Progress {
    fn new(all: Plan, now: Instant) -> Progress {
        Progress { all, done: Plan::default(), start: now, step: None }
    }

    fn begin(&mut self, name: String, planned: Duration, now: Instant) {
        let before = self.step.replace(Step { name, planned: SET_UP + planned, begin: now });
        if let Some(before) = before {
            self.done.steps += 1;
            self.done.time += before.planned;
        }
    }

    /// The current step, and an estimate of the time that is left.
    fn line(&self, now: Instant) -> Option<String> {
        let Step { name, .. } = self.step.as_ref()?;
        let (number, all) = (self.done.steps + 1, self.all.steps);
        Some(format!("[{number}/{all}] {name}; about {} left", in_words(self.left(now))))
    }

    /// The remaining time: the rest of the plan is expected to deviate from its planned time as much as the finished
    /// part did.
    fn left(&self, now: Instant) -> Duration {
        let Some(step) = &self.step else { return Duration::ZERO };
        let factor = match self.done.time {
            Duration::ZERO => 1.0,
            planned => ((step.begin - self.start).as_secs_f64() / planned.as_secs_f64()).max(1.0),
        };
        let later = self.all.time.saturating_sub(self.done.time + step.planned);
        let current = step.planned.mul_f64(factor).saturating_sub(now - step.begin);
        later.mul_f64(factor) + current
    }
}

fn in_words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_estimated_from_the_plan_and_from_what_is_done() {
        let seconds = Duration::from_secs;
        let start = Instant::now();
        let all = [5, 5, 59].map(seconds).into_iter().collect();
        let mut progress = Progress::new(all, start);
        let check = |progress: &Progress, at: u64, expect: Option<&str>| {
            assert_eq!(progress.line(start + seconds(at)).as_deref(), expect);
        };
        check(&progress, 0, None);
        progress.begin("http".into(), seconds(5), start);
        check(&progress, 0, Some("[1/3] http; about 1 min 12 s left"));
        check(&progress, 2, Some("[1/3] http; about 1 min 10 s left"));
        // The step took 9 s instead of 6, and so everything else is expected to take half as long again.
        progress.begin("echo".into(), seconds(5), start + seconds(9));
        check(&progress, 9, Some("[2/3] echo; about 1 min 39 s left"));
        // A step that takes longer than expected does not count below zero.
        check(&progress, 30, Some("[2/3] echo; about 1 min 30 s left"));
        progress.begin("groups".into(), seconds(59), start + seconds(18));
        check(&progress, 78, Some("[3/3] groups; about 30 s left"));
    }
}
