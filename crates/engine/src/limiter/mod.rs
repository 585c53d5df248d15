//! The limiter: rules over any combination of key-values, overrides, counters, windows, leases.
//!
//! A check collects every limit that applies, decides, and then takes from all of them or from none. Without a window, a
//! limit applies to what is in use: the sum of counters, which is kept in memory for every group as counters change. With
//! a window, each group counts its own hits. All of it is resident.
//!
//! The files are layers, from below:
//!
//! - what clients say and get: `terms`, `check_request`, `reply`, `command`;
//! - the state: `window`, `groups`, `overrides`, `rule`, `rule_index`, `rule_sets`, `rules`, `counters`, `lease`,
//!   `lease_waiters`, `slot_queues`, `plan`, `rule_changes`, `garbage`, and `state` with all of these;
//! - what changes the state: `counting`, `window_timers`, `loading`;
//! - what a check touches: `touched_groups`, then `growth` and `wake`;
//! - decisions: `check`, then `check_set`, `check_batch`, `change_counter`, `leases`, `waiting`, `parts`;
//! - changes of rules: `insert_rule`, `prepare_set`, `prepare`, `finish`, `backfill`;
//! - lists: `lists`, `group_list`.

mod backfill;
mod change_counter;
mod check;
pub(crate) mod check_batch;
mod check_request;
mod check_set;
mod command;
mod counters;
mod counting;
mod finish;
mod garbage;
mod group_list;
mod groups;
mod growth;
mod insert_rule;
pub(crate) mod keys;
mod lease;
mod lease_waiters;
mod leases;
mod lists;
mod loading;
mod overrides;
pub(crate) mod parts;
mod plan;
mod prepare;
mod prepare_set;
mod reply;
mod rule;
mod rule_changes;
mod rule_index;
mod rule_sets;
mod rules;
mod slot_queues;
mod state;
mod terms;
mod touched_groups;
pub(crate) mod waiting;
mod wake;
mod window;
mod window_timers;

pub use crate::selection::RuleQuery;
pub(crate) use backfill::continue_backfill;
pub use check_request::{Check, CheckBatch, CheckSet, EntryMode, RequestLimit, SetEntry, Take};
pub use command::{Change, Command, CounterChange, NewLease, RuleChange, RuleSetPlan};
pub(crate) use garbage::Garbage;
pub use group_list::MostUsed;
pub use limina_api::limiter::{
    ChangedRule, ConflictCode, Counter, Group, Groups, Lease, LimitStatus, Override, Rule, RuleField,
    RuleMatch, RuleSet, RuleSetChanges, RuleSetInfo, SetConflict, SetRule as RuleOfSet, Window as RuleWindow,
    WindowType,
};
pub use parts::{HeldBy, LimitOfCheck};
pub(crate) use reply::Answer;
pub use reply::{AppliedLimit, Checked, CounterId, GroupId, ManagedRule, Refusal, Reply, Usage};
pub(crate) use rules::EMPTY_BYTES;
pub(crate) use slot_queues::{LAST, MAX_WAITING, Slots};
pub(crate) use state::Limiter;
pub use state::Sizes;
pub use terms::{
    Durability, Limit, MAX_COUNT, NewOverride, NewRule, NewRuleSet, OverridePatch, RulePatch,
    SERVERS_OWN_SETS, SetAuthor, SetOverrides, SetRule, Window,
};

use crate::{
    KeyValues, Name, Time, WaitId,
    answer_size::{AnswerBudget, TooLarge},
    turn::{Attempt, Turn},
};
use limina_api::limiter as api;

/// Runs a command that is not a batch. It needs no stored record. If it waits, `wait` identifies it when it completes. `may_relax` says whether
/// the reply may be relaxed at all: the reply to a request with an idempotency key may not.
pub(crate) fn apply(
    limiter: &mut Limiter,
    turn: &mut Turn<'_>,
    command: &Command,
    wait: WaitId,
    may_relax: bool,
    max_answer: usize,
    backfill_slice: usize,
) -> Result<Attempt<Answer>, TooLarge> {
    turn.begin_family(limiter.resident_bytes());
    turn.begin_waits(limiter.waiting());
    let budget = AnswerBudget::new(max_answer);
    let durable = |result| Answer { result, is_relaxed: false };
    let answer = match command {
        Command::Change(change) => {
            return Ok(match backfill::begin(limiter, turn, change, wait, backfill_slice) {
                Attempt::Done(result) => Attempt::Done(durable(result)),
                Attempt::Waits => Attempt::Waits,
                Attempt::TooManyWaiting => Attempt::TooManyWaiting,
            });
        }
        Command::Check(check) => check::check(limiter, turn, check, may_relax, budget)?,
        Command::CheckSet(set) => check_set::check_set(limiter, turn, set, may_relax, budget)?,
        Command::CheckBatch(_) => unreachable!("a batch is run in slices"),
        Command::MoveCounter(CounterChange { key_values, amount }) => {
            durable(change_counter::move_by(limiter, turn, key_values, *amount, budget)?)
        }
        Command::SetCounter(CounterChange { key_values, amount }) => {
            durable(change_counter::set(limiter, turn, key_values, *amount))
        }
        Command::TakeLease(new) => {
            return Ok(match waiting::take(limiter, turn, new, wait, budget)? {
                Attempt::Done(result) => Attempt::Done(durable(result)),
                Attempt::Waits => Attempt::Waits,
                Attempt::TooManyWaiting => Attempt::TooManyWaiting,
            });
        }
        Command::ExtendLease { id, session } => durable(leases::extend(limiter, turn, id, session)),
        Command::ReleaseLease { id, session } => {
            durable(leases::release(limiter, turn, id, session.as_ref()))
        }
        Command::AbandonLease(id) => durable(Ok(waiting::abandon(limiter, turn, id, max_answer))),
        Command::PlanRuleSet(plan) => durable(prepare_set::plan(limiter, turn, plan)),
        Command::GetRuleSet(set) => durable(lists::rule_set(limiter, set, budget)?),
        Command::ListRuleSets(page) => durable(Ok(lists::rule_sets(limiter, page))),
        Command::Match(key_values) => durable(Ok(lists::matches(limiter, key_values, budget)?)),
        Command::GetRule(name) => durable(lists::rule(limiter, name)),
        Command::ListRules { query, page } => durable(Ok(lists::rules(limiter, query, page))),
        Command::GetOverride { rule, name } => durable(lists::override_of(limiter, rule, name)),
        Command::ListOverrides { rule, query, page } => durable(lists::overrides(limiter, rule, query, page)),
        Command::ListCounters { query, page } => durable(Ok(lists::counters(limiter, query, page))),
        Command::ListGroups { rule, above, page } => {
            durable(group_list::groups(limiter, turn.now, rule, *above, page))
        }
        Command::GetLease(id) => durable(leases::get(limiter, turn.now, id)),
        Command::ListLeases { owner, page } => {
            durable(Ok(leases::list(limiter, turn.now, owner.as_ref(), page)))
        }
    };
    Ok(Attempt::Done(answer))
}

/// A rule as it is now.
pub(crate) fn find_rule(limiter: &Limiter, name: &Name) -> Option<api::Rule> {
    match lists::rule(limiter, name) {
        Ok(Reply::Rule(info)) => Some(info),
        _ => None,
    }
}

/// A rule set as it is now, without its rules.
pub(crate) fn find_rule_set(limiter: &Limiter, set: &Name) -> Option<api::RuleSetInfo> {
    limiter.rules.sets.get(set).map(|stored| limiter.rules.sets.info(stored))
}

/// An override as it is now.
pub(crate) fn find_override(limiter: &Limiter, rule: &Name, name: &Name) -> Option<api::Override> {
    match lists::override_of(limiter, rule, name) {
        Ok(Reply::Override(info)) => Some(info),
        _ => None,
    }
}

/// A lease as it is now.
pub(crate) fn find_lease(limiter: &Limiter, now: Time, id: &Name) -> Option<api::Lease> {
    match leases::get(limiter, now, id) {
        Ok(Reply::Lease(info)) => Some(info),
        _ => None,
    }
}

/// A counter as it is now, unless nothing is in use.
pub(crate) fn find_counter(limiter: &Limiter, key_values: &KeyValues) -> Option<api::Counter> {
    Some(limiter.counters.info(key_values)).filter(|counter| counter.counters > 0)
}

/// The kept reply to a repeated request, as of now. `None` if the request must be decided again, because the lease of the
/// kept reply has ended.
pub(crate) fn repeat_reply(limiter: &mut Limiter, turn: &Turn<'_>, reply: &Reply) -> Option<Reply> {
    leases::repeat_reply(limiter, turn.now, reply)
}

/// Ends the wait of a lease because it has lasted for as long as it may.
pub(crate) fn end_wait(limiter: &mut Limiter, turn: &mut Turn<'_>, wait: WaitId, max_answer: usize) {
    turn.begin_family(limiter.resident_bytes());
    waiting::time_out(limiter, turn, wait, max_answer);
}

/// Gives back what the lease holds, because its ttl has passed.
pub(crate) fn expire_lease(limiter: &mut Limiter, turn: &mut Turn<'_>, id: &Name) {
    leases::expire(limiter, turn, id);
}
