//! The ledger over HTTP.

use super::workload::{CEILING, Client, Operation, limit_name};
use crate::{Failed, http::Connection};
use std::{fmt::Write, ops::Range};

impl Client for Connection {
    async fn create(&mut self, limits: Range<usize>) -> Result<(), Failed> {
        for number in limits {
            self.json = format!(r#"{{"name":"{}","ceiling":{CEILING}}}"#, limit_name(number));
            self.post_expecting("/ledger/limits", 201).await?;
        }
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        self.write_operations("operations", operations, |json, operation| {
            json.push_str(r#"{"operation_id":""#);
            json.push_str(&operation.id);
            json.push_str(r#"","changes":["#);
            for (index, limit) in operation.limits.iter().enumerate() {
                json.push_str(if index > 0 { "," } else { "" });
                write!(json, r#"{{"limit_name":"limit-{limit}","value":1}}"#).expect("memory takes it");
            }
            json.push_str("]}");
        });
        self.post_operations("/ledger/hold", operations.len()).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        self.write_operations("operations", operations, |json, operation| {
            json.push_str(r#"{"operation_id":""#);
            json.push_str(&operation.id);
            json.push_str(r#""}"#);
        });
        self.post_operations("/ledger/commit", operations.len()).await
    }
}

/// Reads the values of a limit, now or as of an operation.
pub(crate) async fn values(
    connection: &mut Connection,
    limit: usize,
    as_of: Option<&str>,
) -> Result<(), Failed> {
    connection.json = format!(r#"{{"limit_names":["{}"]"#, limit_name(limit));
    if let Some(operation) = as_of {
        connection.json.push_str(&format!(r#","operation_id":"{operation}""#));
    }
    connection.json.push('}');
    connection.post_expecting("/ledger/values", 200).await?;
    Ok(())
}
