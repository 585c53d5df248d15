//! Locks over HTTP. A client that waits has its request open meanwhile.

use super::workload::{Client, Else, Grant, TTL, WAIT, lock_name};
use crate::{Failed, http::Connection};
use memchr::{memchr, memmem};

impl Client for Connection {
    async fn acquire(&mut self, lock: usize, _: String, otherwise: Else) -> Result<Option<Grant>, Failed> {
        let (name, ttl) = (lock_name(lock), TTL.as_secs());
        let wait = match otherwise {
            Else::Refused => String::new(),
            Else::Waits => format!(r#","wait":"{}s""#, WAIT.as_secs()),
        };
        self.json = format!(r#"{{"key_values":{{"lock":"{name}"}},"ttl":"{ttl}s"{wait}}}"#);
        match self.post("/locks").await? {
            (200, body) => {
                let (id, session) = (text(body, r#""lock_id":""#)?, text(body, r#""session_id":""#)?);
                Ok(Some(Grant { lock, id, session }))
            }
            (409, _) => Ok(None),
            (status, body) => Err(format!("{status}: {}", String::from_utf8_lossy(body)).into()),
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

/// What stands behind this, up to the next quote: none of these texts has one in it.
fn text(body: &[u8], before: &str) -> Result<String, Failed> {
    let rest = memmem::find(body, before.as_bytes()).map(|at| &body[at + before.len()..]);
    let text = rest.and_then(|rest| Some(&rest[..memchr(b'"', rest)?])).ok_or("a grant without a name")?;
    Ok(str::from_utf8(text)?.to_owned())
}
