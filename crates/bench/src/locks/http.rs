//! Locks over HTTP. While a client waits, its request stays open.

use super::workload::{Client, Grant, IfHeld, TTL, WAIT, lock_name};
use crate::{
    Failed,
    http::{Connection, unexpected},
};
use memchr::{memchr, memmem};

impl Client for Connection {
    async fn acquire(&mut self, lock: usize, _: String, if_held: IfHeld) -> Result<Option<Grant>, Failed> {
        let (name, ttl) = (lock_name(lock), TTL.as_secs());
        let wait = match if_held {
            IfHeld::Refuse => String::new(),
            IfHeld::Wait => format!(r#","wait":"{}s""#, WAIT.as_secs()),
        };
        self.json = format!(r#"{{"key_values":{{"lock":"{name}"}},"ttl":"{ttl}s"{wait}}}"#);
        match self.post("/locks").await? {
            (200, body) => {
                let (id, session) = (text(body, r#""lock_id":""#)?, text(body, r#""session_id":""#)?);
                Ok(Some(Grant { lock, id, session }))
            }
            (409, _) => Ok(None),
            (status, body) => Err(unexpected(status, body)),
        }
    }

    async fn release(&mut self, grant: &Grant) -> Result<bool, Failed> {
        let path = format!("/locks/{}?session_id={}", grant.id, grant.session);
        let (status, _) = self.delete(&path).await?;
        Ok(status == 204)
    }

    async fn heartbeat(&mut self, grant: &Grant) -> Result<bool, Failed> {
        self.json = format!(r#"{{"session_id":"{}"}}"#, grant.session);
        let (status, _) = self.post(&format!("/locks/{}/heartbeat", grant.id)).await?;
        Ok(status == 200)
    }
}

/// The text between `before` and the next quote. None of these texts contains a quote.
fn text(body: &[u8], before: &str) -> Result<String, Failed> {
    let rest = memmem::find(body, before.as_bytes()).map(|at| &body[at + before.len()..]);
    let text = rest.and_then(|rest| Some(&rest[..memchr(b'"', rest)?])).ok_or("a grant without an id")?;
    Ok(str::from_utf8(text)?.to_owned())
}
