//! A stream of server-sent events that connects again whenever it is interrupted.

use crate::{
    error::{Done, Error, Result},
    reply::Reply,
    transport::{Request, Scope, pause},
};
use bytes::Bytes;
use reqwest::{Method, Response};
use serde::de::DeserializeOwned;
use std::{collections::VecDeque, mem, time::Duration};

/// The server sends a comment after 15 s without a message. After this long without a byte, the connection is dead.
const IDLE: Duration = Duration::from_secs(45);

pub(crate) struct EventStream {
    scope: Scope,
    path: String,
    connection: Option<Connection>,
    /// Whether there has ever been a connection. The first one is retried as other requests are, later ones for ever.
    opened: bool,
    failures: u32,
}

struct Connection {
    response: Response,
    parser: Parser,
}

impl EventStream {
    pub(crate) fn new(scope: &Scope, path: impl Into<String>) -> EventStream {
        EventStream { scope: scope.clone(), path: path.into(), connection: None, opened: false, failures: 0 }
    }

    /// The next event. If this is dropped before it is ready, no event is lost.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self, last_event_id: Option<u64>) -> Result<Reply<T>> {
        loop {
            let interruption = match &mut self.connection {
                Some(connection) => match connection.next().await {
                    Ok(Some(data)) => {
                        self.failures = 0;
                        let json = Bytes::from(data);
                        let message =
                            serde_json::from_slice(&json).map_err(|error| Error::unreadable(200, error))?;
                        return Ok(Reply::new(message, json, Vec::new()));
                    }
                    Ok(None) => None,
                    Err(error) => Some(error),
                },
                None => match self.open(last_event_id).await {
                    Ok(connection) => {
                        self.connection = Some(connection);
                        self.opened = true;
                        continue;
                    }
                    Err(error) => Some(error),
                },
            };
            self.connection = None;
            self.failures += 1;
            let retry_after = match interruption {
                None => None,
                Some(Error::Unavailable { done, failure }) => {
                    let scope = &self.scope;
                    let after = failure.retry_after;
                    if !self.opened && !scope.transport.may_retry(scope, self.failures, after) {
                        self.failures = 0;
                        return Err(Error::Unavailable { done, failure });
                    }
                    after
                }
                Some(error) => return Err(error),
            };
            tokio::time::sleep(pause(self.failures, retry_after)).await;
        }
    }

    async fn open(&self, last_event_id: Option<u64>) -> Result<Connection> {
        let url = self.scope.url(&self.path, &[])?;
        let request = Request {
            method: Method::GET,
            url,
            body: None,
            key: None,
            last_event_id,
            text: false,
            is_check: false,
        };
        let response = self.scope.transport.open(&request, self.scope.timeout).await?;
        Ok(Connection { response, parser: Parser::default() })
    }
}

impl Connection {
    /// The data of the next event, or `None` at the end.
    async fn next(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(data) = self.parser.events.pop_front() {
                return Ok(Some(data));
            }
            let interrupted = |why: String| Error::unavailable(Done::Unknown, why);
            let chunk = tokio::time::timeout(IDLE, self.response.chunk()).await;
            match chunk.map_err(|_| interrupted(format!("nothing arrived for {IDLE:?}")))? {
                Ok(Some(bytes)) => self.parser.feed(&bytes),
                Ok(None) => return Ok(None),
                Err(error) => return Err(interrupted(error.to_string())),
            }
        }
    }
}

/// Reads server-sent events. Comments, ids and events without data are passed over: the messages themselves have the clock.
#[derive(Default)]
struct Parser {
    line: Vec<u8>,
    data: Vec<String>,
    after_return: bool,
    events: VecDeque<String>,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            // A line ends with CR, LF, or both.
            let second_half = mem::replace(&mut self.after_return, byte == b'\r') && byte == b'\n';
            match byte {
                b'\n' if second_half => {}
                b'\r' | b'\n' => self.end_line(),
                _ => self.line.push(byte),
            }
        }
    }

    fn end_line(&mut self) {
        let line = mem::take(&mut self.line);
        if line.is_empty() {
            if !self.data.is_empty() {
                self.events.push_back(mem::take(&mut self.data).join("\n"));
            }
        } else if let Some(data) = line.strip_prefix(b"data:") {
            let data = data.strip_prefix(b" ").unwrap_or(data);
            self.data.push(String::from_utf8_lossy(data).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Parser;

    #[test]
    fn events_are_read_in_pieces_of_any_size() {
        let text = "id: 7\r\ndata: {\"a\":\r\ndata:\"🌮\"}\r\n\r\n: comment\n\ndata: two\n\nevent: x\n\ndata: three\r\rdata: cut";
        for size in 1..text.len() {
            let mut parser = Parser::default();
            text.as_bytes().chunks(size).for_each(|chunk| parser.feed(chunk));
            assert_eq!(parser.events, ["{\"a\":\n\"🌮\"}", "two", "three"], "in pieces of {size} bytes");
        }
    }
}
