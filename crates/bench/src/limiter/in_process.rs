//! The limiter without a front end.

use super::workload::{Client, LIMIT, PER_SECONDS, RULE, client_name};
use crate::{
    Failed,
    in_process::{Caller, name},
};
use limina_engine::{
    Command, KeyValues, Millis, Outcome,
    key_values::Value,
    limiter::{self, Change, Check, Limit, NewRule, Reply, Take, Window},
    selection::Selection,
};

impl Client for Caller {
    async fn create(&mut self) -> Result<(), Failed> {
        change(self, Change::CreateRule(windowed_rule())).await
    }

    /// One is asked for as itself, several as a batch.
    async fn check(&mut self, clients: &[usize]) -> Result<u64, Failed> {
        let checks = clients.iter().map(|&client| check(&[("client", &client_name(client))]));
        checks_refused(self, checks.collect()).await
    }
}

pub(super) fn windowed_rule() -> NewRule {
    let per = Millis(PER_SECONDS * 1000);
    NewRule {
        name: name(RULE),
        group_by: vec!["client".into()],
        selection: Selection::default(),
        limit: Limit::AtMost(LIMIT),
        window: Some(Window::Fixed { per }),
        shadow: false,
        durability: None,
        description: None,
    }
}

pub(super) fn check(pairs: &[(&str, &str)]) -> Check {
    let entries = vec![Take { key_values: key_values(pairs), hits: 1, limit: None }];
    Check { entries, dry_run: false }
}

pub(super) fn key_values(pairs: &[(&str, &str)]) -> KeyValues {
    let pairs = pairs.iter().map(|&(key, value)| (key, Value::String(value)));
    KeyValues::new(pairs.collect()).expect("valid key-values")
}

/// How many of the checks were refused.
pub(super) async fn checks_refused(caller: &Caller, mut checks: Vec<Check>) -> Result<u64, Failed> {
    let command = match checks.len() {
        1 => limiter::Command::Check(checks.remove(0)),
        _ => limiter::Command::CheckBatch(checks),
    };
    match caller.submit(Command::Limiter(command)).await? {
        Outcome::Limiter(Ok(Reply::Batch(results))) => {
            Ok(results.iter().filter(|result| result.is_err()).count() as u64)
        }
        Outcome::Limiter(Ok(_)) => Ok(0),
        Outcome::Limiter(Err(refusal)) if refusal.code() == "LimitReached" => Ok(1),
        other => Err(format!("an unexpected outcome: {other:?}").into()),
    }
}

/// Has rules changed.
pub(super) async fn change(caller: &Caller, change: Change) -> Result<(), Failed> {
    match caller.submit(Command::Limiter(limiter::Command::Change(change))).await? {
        Outcome::Limiter(Ok(_)) => Ok(()),
        other => Err(format!("rules were not changed: {other:?}").into()),
    }
}
