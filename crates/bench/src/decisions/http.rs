//! Decisions over HTTP, and the same by separate calls.

use super::workload::{
    ACTUAL, COMMITTED, Client, ESTIMATE, Flow, HELD, LIMIT, Parts, RULES, TTL_SECONDS, tenant_name,
};
use crate::{
    Failed,
    http::{Connection, unexpected},
};
use memchr::{memchr, memmem};

impl Client for Connection {
    async fn create(&mut self, tenants: usize) -> Result<(), Failed> {
        for (rule, group, has_window) in RULES {
            let window = if has_window { r#","window":{"type":"fixed","per":"1h"}"# } else { "" };
            // A decision is always durable, so the separate calls are, too.
            self.json = format!(
                r#"{{"name":"{rule}","group_by":["{group}"],"selection":{{"meter":"{rule}"}},"limit":{LIMIT},"durability":"durable"{window}}}"#
            );
            self.post_expecting("/limiter/rules", 201).await?;
        }
        for budget in (0..tenants).flat_map(|tenant| Parts::Eight.budgets(tenant)) {
            self.json = format!(r#"{{"name":"{budget}","ceiling":{LIMIT}}}"#);
            self.post_expecting("/ledger/limits", 201).await?;
        }
        Ok(())
    }

    async fn decide(&mut self, flows: &[Flow]) -> Result<u64, Failed> {
        self.write_operations("operations", flows, |json, flow| json.push_str(&decision(flow)));
        self.post_operations("/decisions", flows.len()).await
    }

    async fn settle(&mut self, flows: &[Flow]) -> Result<u64, Failed> {
        if let [flow] = flows {
            self.json = format!("{{{}}}", amounts(flow));
            let (status, _) = self.post(&format!("/decisions/{}/commit", flow.id)).await?;
            return Ok(u64::from(status != 200));
        }
        self.write_operations("operations", flows, |json, flow| {
            json.push_str(&format!(r#"{{"operation_id":"{}",{}}}"#, flow.id, amounts(flow)));
        });
        self.post_operations("/decisions/commit", flows.len()).await
    }

    async fn separately(&mut self, flow: &Flow) -> Result<bool, Failed> {
        let (mut leases, mut lock) = (Vec::new(), None);
        for (meter, hits) in checks(flow.parts) {
            let (key_values, is_slot) = (key_values(flow, meter), meter.ends_with("slots"));
            if is_slot {
                self.json = format!(r#"{{"key_values":{key_values},"hits":{hits},"ttl":"{TTL_SECONDS}s"}}"#);
                let body = self.post_expecting("/limiter/leases", 201).await?;
                leases.push((text(body, r#""lease_id":""#)?, text(body, r#""session_id":""#)?));
            } else {
                self.json = format!(r#"{{"key_values":{key_values},"hits":{hits}}}"#);
                self.post_expecting("/limiter/check", 200).await?;
            }
        }
        if flow.parts == Parts::Eight {
            self.json = format!(r#"{{"key_values":{{"call":"{}"}},"ttl":"{TTL_SECONDS}s"}}"#, flow.id);
            let body = self.post_expecting("/locks", 200).await?;
            lock = Some((text(body, r#""lock_id":""#)?, text(body, r#""session_id":""#)?));
        }
        let id = &flow.id;
        self.json = format!(r#"{{"operation_id":"{id}","changes":[{}]}}"#, changes(flow, HELD));
        self.post_expecting("/ledger/hold", 200).await?;
        self.json = format!(r#"{{"operation_id":"{id}","changes":[{}]}}"#, changes(flow, COMMITTED));
        self.post_expecting("/ledger/commit", 200).await?;
        for (path, (id, session)) in leases
            .into_iter()
            .map(|lease| ("/limiter/leases", lease))
            .chain(lock.map(|lock| ("/locks", lock)))
        {
            match self.delete(&format!("{path}/{id}?session_id={session}")).await? {
                (204, _) => {}
                (status, body) => return Err(unexpected(status, body)),
            }
        }
        Ok(true)
    }
}

/// The checks of a decision: the meter, and the hits.
fn checks(parts: Parts) -> &'static [(&'static str, u64)] {
    match parts {
        Parts::One => &[],
        Parts::Three => &[("requests", 1), ("tenant-slots", 1)],
        Parts::Eight => &[("requests", 1), ("tokens", ESTIMATE), ("tenant-slots", 1), ("model-slots", 1)],
    }
}

fn key_values(flow: &Flow, meter: &str) -> String {
    let tenant = tenant_name(flow.tenant);
    format!(r#"{{"tenant":"{tenant}","model":"large","meter":"{meter}"}}"#)
}

fn changes(flow: &Flow, value: u64) -> String {
    let budgets = flow.parts.budgets(flow.tenant);
    let changes = budgets.iter().map(|budget| format!(r#"{{"limit_name":"{budget}","value":{value}}}"#));
    changes.collect::<Vec<_>>().join(",")
}

fn decision(flow: &Flow) -> String {
    let check = |(meter, hits): &(&str, u64)| {
        let (key_values, is_estimate) = (key_values(flow, meter), *meter == "tokens");
        format!(r#"{{"name":"{meter}","key_values":{key_values},"hits":{hits},"estimate":{is_estimate}}}"#)
    };
    let checks = checks(flow.parts).iter().map(check).collect::<Vec<_>>().join(",");
    let locks = match flow.parts {
        Parts::Eight => format!(r#","locks":[{{"key_values":{{"call":"{}"}}}}]"#, flow.id),
        Parts::One | Parts::Three => String::new(),
    };
    format!(
        r#"{{"operation_id":"{}","ttl":"{TTL_SECONDS}s","checks":[{checks}],"holds":[{}]{locks}}}"#,
        flow.id,
        changes(flow, HELD)
    )
}

fn amounts(flow: &Flow) -> String {
    let checks = match flow.parts {
        Parts::Eight => format!(r#""checks":[{{"name":"tokens","hits":{ACTUAL}}}],"#),
        Parts::One | Parts::Three => String::new(),
    };
    format!(r#"{checks}"holds":[{}]"#, changes(flow, COMMITTED))
}

/// The text between `before` and the next quote. None of these texts contains a quote.
fn text(body: &[u8], before: &str) -> Result<String, Failed> {
    let rest = memmem::find(body, before.as_bytes()).map(|at| &body[at + before.len()..]);
    let text = rest.and_then(|rest| Some(&rest[..memchr(b'"', rest)?])).ok_or("an answer without an id")?;
    Ok(str::from_utf8(text)?.to_owned())
}
