//! A client that knows all nodes and asks any of them.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::blocking::RequestBuilder;
use serde_json::Value;

use crate::harness::eventually;
use crate::ledger::Ledger;
use crate::load::{Progress, Random};
use crate::reply::Reply;

/// What all clients share: where the nodes are, and whether to go on.
pub(crate) struct Front {
    nodes: Vec<SocketAddr>,
    http: reqwest::blocking::Client,
    pub(crate) progress: Progress,
}

impl Front {
    pub(crate) fn new(nodes: Vec<SocketAddr>) -> Front {
        // Shorter than some pauses of a node, so that some requests are given up and repeated elsewhere.
        let http = reqwest::blocking::Client::builder().timeout(Duration::from_secs(2));
        let progress = Progress { pace: Duration::from_millis(10), ..Progress::default() };
        Front { nodes, http: http.build().expect("an HTTP client"), progress }
    }

    pub(crate) fn any(&self, random: &mut Random) -> SocketAddr {
        self.nodes[random.below(self.nodes.len() as u64) as usize]
    }

    pub(crate) fn go_on(&self) -> bool {
        !self.progress.stop.load(Ordering::Relaxed)
    }

    /// Between two requests, so that what is done can be looked at in the end in reasonable time.
    pub(crate) fn rest(&self) {
        std::thread::sleep(self.progress.pace);
    }

    /// The ledger at one node.
    pub(crate) fn ledger(&self, node: SocketAddr, namespace: &str) -> Ledger {
        Ledger::new(self.http.clone(), format!("http://{node}/v1/ns/{namespace}/ledger"))
    }
}

pub(crate) struct Client<'a> {
    pub(crate) front: &'a Front,
    pub(crate) random: Random,
    /// No other client of the round has it.
    pub(crate) name: String,
    namespace: String,
    keys: u64,
}

/// An answer, and whether earlier attempts got none.
pub(crate) struct Insisted {
    pub(crate) reply: Reply,
    pub(crate) repeated: bool,
}

impl<'a> Client<'a> {
    pub(crate) fn new(front: &'a Front, namespace: &str, name: &str, seed: u64) -> Client<'a> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Client { front, random: Random::new(seed), name, namespace, keys: 0 }
    }

    fn request(&mut self, method: &str, path: &str) -> RequestBuilder {
        let node = self.front.any(&mut self.random);
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.front.http.request(method, format!("http://{node}/v1/ns/{}{path}", self.namespace))
    }

    /// One attempt at any node; none where what became of it is not known, or nothing.
    pub(crate) fn once(&mut self, method: &str, path: &str, body: &Value) -> Option<Reply> {
        let reply = Reply::try_to(with_body(self.request(method, path), body)).ok()?;
        (reply.status != 503).then_some(reply)
    }

    /// Repeated under one key, at one node after the other, until there is an answer.
    #[track_caller]
    pub(crate) fn insist(&mut self, method: &str, path: &str, body: &Value) -> Insisted {
        self.keys += 1;
        let key = format!("{} {}", self.name, self.keys);
        let (mut attempts, mut last) = (0, None);
        let answer = eventually(|| {
            attempts += 1;
            let request = with_body(self.request(method, path), body).header("idempotency-key", &key);
            match Reply::try_to(request) {
                Ok(reply) if reply.status != 503 && reply.code() != "IdempotencyKeyInUse" => Some(reply),
                other => {
                    last = Some(other);
                    None
                }
            }
        });
        let reply = answer.unwrap_or_else(|| panic!("never answered: {method} {path} {body}; {last:?}"));
        Insisted { reply, repeated: attempts > 1 }
    }
}

fn with_body(request: RequestBuilder, body: &Value) -> RequestBuilder {
    if body.is_null() { request } else { request.json(body) }
}
