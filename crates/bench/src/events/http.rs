//! The client that submits events over HTTP.

use super::workload::{Client, KEY_FRAME_EVERY, MAX_EVENTS, STREAM};
use crate::{
    Failed,
    http::{Connection, unexpected},
};
use std::time::Duration;

impl Client for Connection {
    async fn put(&mut self, duration: Duration) -> Result<(), Failed> {
        self.json = format!(
            r#"{{"mode":"only_once","duration_ms":{},"max_events":{MAX_EVENTS},"key_frame_every_ms":{}}}"#,
            duration.as_millis(),
            KEY_FRAME_EVERY.as_millis()
        );
        match Connection::put(self, &format!("/events/{STREAM}")).await? {
            (200 | 201, _) => Ok(()),
            (status, body) => Err(unexpected(status, body)),
        }
    }

    async fn submit(&mut self, event: &str) -> Result<bool, Failed> {
        self.json = format!(r#"{{"event":"{event}"}}"#);
        match self.post(&format!("/events/{STREAM}")).await? {
            (201, _) => Ok(true),
            (409, _) => Ok(false),
            (status, body) => Err(unexpected(status, body)),
        }
    }
}
