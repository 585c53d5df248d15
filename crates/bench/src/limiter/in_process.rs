//! The limiter without a front end.

use super::workload::{Case, Client, LIMIT, PER_SECONDS, Rule};
use crate::{
    Failed,
    in_process::{Caller, key_values, name, unexpected},
};
use limina_engine::{
    Command, KeyValues, Millis, Outcome,
    key_values::Value,
    limiter::{self, Change, Check, CheckBatch, Limit, NewRule, Reply, RuleChange, Take, Window},
    selection::{Selection, Test},
};

impl Client for Caller {
    async fn create(&mut self, case: Case, number: usize) -> Result<(), Failed> {
        change(self, Change::CreateRule(rule(case, number))).await
    }

    async fn check(&mut self, case: Case, subjects: &[usize]) -> Result<u64, Failed> {
        let checks = subjects.iter().map(|&subject| check(key_values(case.key_values(subject))));
        checks_refused(self, checks.collect()).await
    }
}

/// The rule with this number, with a fixed window.
pub(super) fn rule(case: Case, number: usize) -> NewRule {
    let Rule { name: rule_name, group_by, api } = case.rule(number);
    let select = |api: String| ("api".into(), vec![Test::Eq(Value::String(api.into()))]);
    NewRule {
        name: name(&rule_name),
        group_by: group_by.into_iter().map(Into::into).collect(),
        selection: Selection::new(api.map(select).into_iter().collect()).expect("a short condition"),
        limit: Limit::AtMost(LIMIT),
        window: Some(Window::Fixed { per: Millis(PER_SECONDS * 1000) }),
        shadow: false,
        durability: None,
        description: None,
    }
}

pub(super) fn check(key_values: KeyValues) -> Check {
    let take = Take::new(key_values, 1).expect("one hit is within the limits");
    Check::new(vec![take]).expect("one entry is within the limits")
}

/// Sends one check as itself, and several as a batch. Returns how many were refused.
pub(super) async fn checks_refused(caller: &Caller, mut checks: Vec<Check>) -> Result<u64, Failed> {
    let command = match checks.len() {
        1 => limiter::Command::Check(checks.remove(0)),
        _ => limiter::Command::CheckBatch(CheckBatch::new(checks)?),
    };
    match caller.submit(Command::Limiter(command)).await? {
        Outcome::Limiter(Ok(Reply::Batch(decisions))) => {
            let allowed = decisions.iter().flatten().filter(|decision| decision.allowed).count();
            Ok((decisions.len() - allowed) as u64)
        }
        Outcome::Limiter(Ok(_)) => Ok(0),
        Outcome::Limiter(Err(limiter::Refusal::LimitReached(_))) => Ok(1),
        other => Err(unexpected(other)),
    }
}

/// Creates, changes or deletes a rule.
pub(super) async fn change(caller: &Caller, change: Change) -> Result<(), Failed> {
    let change = RuleChange::new(change)?;
    match caller.submit(Command::Limiter(limiter::Command::Change(change))).await? {
        Outcome::Limiter(Ok(_)) => Ok(()),
        other => Err(unexpected(other)),
    }
}
