//! The limiter over HTTP.

use super::workload::{Case, Client, LIMIT, PER_SECONDS, RULE, Rule};
use crate::{
    Failed,
    http::Connection,
    namespaces::{InTurn, NAMESPACES},
};
use std::fmt::Write;

impl Client for Connection {
    async fn create(&mut self, case: Case, number: usize) -> Result<(), Failed> {
        let Rule { name, group_by, api } = case.rule(number);
        let selection = api.map_or(String::new(), |api| format!(r#""api":"{api}""#));
        self.json = format!(
            r#"{{"name":"{name}","group_by":{group_by:?},"selection":{{{selection}}},"limit":{LIMIT},"window":{{"type":"fixed","per":"{PER_SECONDS}s"}}}}"#
        );
        self.post_expecting("/limiter/rules", 201).await?;
        Ok(())
    }

    async fn check(&mut self, case: Case, subjects: &[usize]) -> Result<u64, Failed> {
        self.write_operations("checks", subjects, |json, &subject| {
            json.push_str(r#"{"key_values":{"#);
            for (number, (key, value)) in case.key_values(subject).iter().enumerate() {
                let comma = if number > 0 { "," } else { "" };
                write!(json, r#"{comma}"{key}":"{value}""#).expect("a string takes any text");
            }
            json.push_str("}}");
        });
        self.post_operations("/limiter/check", subjects.len()).await
    }
}

impl Client for InTurn {
    async fn create(&mut self, case: Case, number: usize) -> Result<(), Failed> {
        for _ in 0..NAMESPACES {
            self.next().create(case, number).await?;
        }
        Ok(())
    }

    async fn check(&mut self, case: Case, subjects: &[usize]) -> Result<u64, Failed> {
        self.next().check(case, subjects).await
    }
}

/// Creates a rule without a window, whose checks are durable.
pub(crate) async fn create_counters(connection: &mut Connection) -> Result<(), Failed> {
    connection.json = format!(r#"{{"name":"{RULE}","group_by":["client"],"limit":{LIMIT}}}"#);
    connection.post_expecting("/limiter/rules", 201).await?;
    Ok(())
}
