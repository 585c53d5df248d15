//! The client of the ledger over HTTP: writes requests, and reads the answers.

use super::workload::{CEILING, Client, Operation};
use crate::{
    Failed,
    http::Connection,
    namespaces::{InTurn, NAMESPACES},
};
use limina_engine::Name;
use std::fmt::Write;

impl Client for Connection {
    async fn create(&mut self, limits: &[Name]) -> Result<(), Failed> {
        for limit in limits {
            self.json = format!(r#"{{"name":"{limit}","ceiling":{CEILING}}}"#);
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
                write!(json, r#"{{"limit_name":"{limit}","value":1}}"#).expect("a string takes any text");
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

    async fn values(&mut self, limit: &Name, as_of: Option<&str>) -> Result<(), Failed> {
        let operation = as_of.map_or(String::new(), |id| format!(r#","operation_id":"{id}""#));
        self.json = format!(r#"{{"limit_names":["{limit}"]{operation}}}"#);
        self.post_expecting("/ledger/values", 200).await?;
        Ok(())
    }
}

impl Client for InTurn {
    async fn create(&mut self, limits: &[Name]) -> Result<(), Failed> {
        for _ in 0..NAMESPACES {
            self.next().create(limits).await?;
        }
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        self.next().hold(operations).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        self.same().commit(operations).await
    }
}
