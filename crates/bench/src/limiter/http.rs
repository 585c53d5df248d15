//! The limiter over HTTP.

use super::workload::{Client, LIMIT, PER_SECONDS, RULE};
use crate::{Failed, http::Connection};
use std::fmt::Write;

impl Client for Connection {
    async fn create(&mut self) -> Result<(), Failed> {
        self.json = format!(
            r#"{{"name":"{RULE}","group_by":["client"],"limit":{LIMIT},"window":{{"type":"fixed","per":"{PER_SECONDS}s"}}}}"#
        );
        self.post_expecting("/v1/limiter/rules", 201).await?;
        Ok(())
    }

    async fn check(&mut self, clients: &[usize]) -> Result<u64, Failed> {
        self.write_operations("checks", clients, |json, client| {
            write!(json, r#"{{"key_values":{{"client":"client-{client}"}}}}"#).expect("memory takes it");
        });
        self.post_operations("/v1/limiter/check", clients.len()).await
    }
}
