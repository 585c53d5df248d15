//! The limiter: rules over any combination of key-values, overrides, counters, windows, leases.
//!
//! A check collects every limit that applies, decides, and then moves all of them or none. What is in use is kept in
//! memory for every group as counters change; windows are counted by themselves. All of it is resident.
//!
//! Read in this order: `command`, `terms`, `reply`, `rule`, `check`, `window`, then `changes` and `build`.

mod build;
mod changes;
mod check;
mod command;
mod counters;
mod groups;
pub(crate) mod keys;
mod leases;
mod lists;
mod matching;
mod reply;
mod rule;
mod state;
mod terms;
mod window;

pub(crate) use build::work;
pub use changes::check_override;
pub use command::{
    Change, Check, CheckBatch, Command, CounterChange, CounterId, NewLease, RequestLimit, RuleChange,
    RuleQuery, Take,
};
pub use reply::{
    CounterInfo, Decision, FileChanges, LeaseInfo, LimitStatus, OverrideInfo, Refusal, Reply, RuleInfo,
    RuleMatch,
};
pub use state::Sizes;
pub(crate) use state::{Garbage, Limiter};
pub use terms::{
    Durability, FileRule, Limit, MAX_COUNT, NewOverride, NewRule, OverridePatch, RulePatch, Window,
};

use crate::{
    Millis, Name, Options, Time, WaitId,
    answer::{Room, TooLarge},
    ids::NamespaceId,
    timers::{SetBy, Timer, TimerKey, Timers},
    turn::Turn,
};
use build::Begun;

/// How many window states that no answer waits for are written at once.
const WRITTEN_AT_ONCE: usize = 4_096;
/// How long such a state may wait.
const WRITTEN_AFTER: Millis = Millis(100);
/// If there are too many for one time.
const WRITTEN_ON_AFTER: Millis = Millis(10);
/// How many groups are looked at for idle ones at a time.
const IDLE_SLICE: usize = 4_096;
/// How long until the next slice, and until the next time after the last one.
const IDLE_ON_AFTER: Millis = Millis(80);
const IDLE_AFTER: Millis = Millis(10_000);

/// What became of a command.
pub(crate) enum Applied {
    Done {
        result: Result<Reply, Refusal>,
        /// It may be told before it is durable.
        is_relaxed: bool,
    },
    /// It is answered later.
    Waits,
    /// Too many wait already.
    Refused,
    /// The answer would be too large.
    TooLarge,
}

/// Runs a command of the limiter. Nothing has to be fetched for it. `wait` names the request if its answer comes later;
/// `may_relax` says whether the answer may leave before it is durable.
pub(crate) fn apply(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    command: &Command,
    wait: WaitId,
    may_relax: bool,
    options: &Options,
) -> Applied {
    let room = Room::new(options.max_answer);
    let done = match command {
        Command::Change(change) => match build::begin(limiter, turn, change, wait, options.build_slice) {
            Begun::Done(result) => Ok((result, false)),
            Begun::Waits => return Applied::Waits,
            Begun::Refused => return Applied::Refused,
        },
        Command::Check(check) => check::check(limiter, turn, check, may_relax, room),
        Command::CheckBatch(checks) => {
            let decided = check::batch(limiter, turn, checks, may_relax, room);
            decided.map(|(reply, is_relaxed)| (Ok(reply), is_relaxed))
        }
        Command::MoveCounter(CounterChange { key_values, amount }) => {
            check::move_counter(limiter, turn, key_values, *amount, room).map(|result| (result, false))
        }
        Command::SetCounter(CounterChange { key_values, amount }) => {
            Ok((Ok(check::set_counter(limiter, turn, key_values, *amount)), false))
        }
        Command::TakeLease(new) => leases::take(limiter, turn, new, room).map(|result| (result, false)),
        Command::ExtendLease(id) => Ok((leases::extend(limiter, turn, id), false)),
        Command::ReleaseLease(id) => Ok((leases::release(limiter, turn, id), false)),
        Command::Match(key_values) => {
            lists::matches(limiter, key_values, room).map(|reply| (Ok(reply), false))
        }
        Command::GetRule(_)
        | Command::ListRules { .. }
        | Command::GetOverride { .. }
        | Command::ListOverrides { .. }
        | Command::ListCounters { .. }
        | Command::GetLease(_)
        | Command::ListLeases(_) => Ok((read(limiter, turn, command), false)),
    };
    match done {
        Ok((result, is_relaxed)) => Applied::Done { result, is_relaxed },
        Err(TooLarge) => Applied::TooLarge,
    }
}

fn read(limiter: &Limiter, turn: &Turn<'_>, command: &Command) -> Result<Reply, Refusal> {
    let rule_of =
        |rule: &Name| limiter.rule(rule).ok_or_else(|| Refusal::RuleNotFound { rule: rule.clone() });
    match command {
        Command::GetRule(name) => Ok(Reply::Rule(rule_of(name)?.info())),
        Command::ListRules { query, page } => Ok(lists::rules(limiter, query, page)),
        Command::GetOverride { rule, name } => {
            let found = rule_of(rule)?;
            match found.overrides.get(name).filter(|item| item.is_active) {
                Some(item) => Ok(Reply::Override(found.override_info(item))),
                None => Err(Refusal::OverrideNotFound { rule: rule.clone(), name: name.clone() }),
            }
        }
        Command::ListOverrides { rule, query, page } => lists::overrides(limiter, rule, query, page),
        Command::ListCounters { query, page } => Ok(lists::counters(limiter, query, page)),
        Command::GetLease(id) => leases::get(limiter, turn.now, id),
        Command::ListLeases(page) => Ok(leases::list(limiter, turn.now, page)),
        Command::Change(_)
        | Command::Check(_)
        | Command::CheckBatch(_)
        | Command::MoveCounter(_)
        | Command::SetCounter(_)
        | Command::TakeLease(_)
        | Command::ExtendLease(_)
        | Command::ReleaseLease(_)
        | Command::Match(_) => unreachable!("these are run above"),
    }
}

/// A kept reply that is given again; none if the request is to be decided afresh.
pub(crate) fn again(limiter: &Limiter, turn: &Turn<'_>, reply: &Reply) -> Option<Reply> {
    leases::again(limiter, turn.now, reply)
}

/// A lease's time has run out.
pub(crate) fn expire_lease(limiter: &mut Limiter, turn: &mut Turn<'_>, id: &Name) {
    leases::expire(limiter, turn, id);
}

impl Limiter {
    /// Sees to it that window states are written, and that idle ones are dropped.
    fn look_after_windows(&mut self, turn: &mut Turn<'_>) {
        if self.groups.has_to_write_soon() && !self.is_writing_set {
            self.is_writing_set = true;
            turn.timers.set(writing(turn, WRITTEN_AFTER), Timer::WriteWindows);
        }
        if self.groups.may_be_idle() && !self.is_dropping_set {
            self.is_dropping_set = true;
            turn.timers.set(dropping(turn, IDLE_AFTER), Timer::DropIdleWindows);
        }
    }

    /// Window states that no answer waits for are written now.
    pub(crate) fn write_windows(&mut self, turn: &mut Turn<'_>) {
        self.groups.write_some_now(WRITTEN_AT_ONCE);
        self.is_writing_set = self.groups.has_to_write_soon();
        if self.is_writing_set {
            turn.timers.set(writing(turn, WRITTEN_ON_AFTER), Timer::WriteWindows);
        }
    }

    /// Window states that no answer waits for are written now, many at a time. Says whether there are any.
    pub(crate) fn flush_relaxed(&mut self) -> bool {
        let any = self.groups.has_to_write_soon();
        self.groups.write_some_now(4 * WRITTEN_AT_ONCE);
        any
    }

    /// Some groups are looked at, and idle ones dropped.
    pub(crate) fn drop_idle_windows(&mut self, turn: &mut Turn<'_>) {
        let is_at_end = self.drop_idle(turn, IDLE_SLICE);
        self.is_dropping_set = self.groups.may_be_idle();
        if self.is_dropping_set {
            let after = if is_at_end { IDLE_AFTER } else { IDLE_ON_AFTER };
            turn.timers.set(dropping(turn, after), Timer::DropIdleWindows);
        }
    }
}

impl Limiter {
    /// Sets the timers for what was taken in.
    fn set_timers(&mut self, now: Time, namespace: NamespaceId, timers: &mut Timers) {
        self.set_lease_timers(namespace, timers);
        self.is_dropping_set = self.groups.may_be_idle();
        if self.is_dropping_set {
            let due = now.after(IDLE_AFTER);
            timers.set(TimerKey { due, namespace, set_by: SetBy::Windows }, Timer::DropIdleWindows);
        }
    }
}

fn writing(turn: &Turn<'_>, after: Millis) -> TimerKey {
    turn.timer_key(turn.now.after(after), SetBy::UnwrittenWindows)
}

fn dropping(turn: &Turn<'_>, after: Millis) -> TimerKey {
    turn.timer_key(turn.now.after(after), SetBy::Windows)
}
