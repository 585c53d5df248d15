//! A client that knows all nodes and sends each request to any of them.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::blocking::RequestBuilder;
use serde_json::Value;

use crate::harness::eventually;
use crate::ledger::Ledger;
use crate::load::{Progress, Random};
use crate::reply::Reply;

/// What all clients of a round share: the addresses of the nodes, and whether to continue.
pub(crate) struct Round {
    nodes: Vec<SocketAddr>,
    http: reqwest::blocking::Client,
    pub(crate) progress: Progress,
}

impl Round {
    pub(crate) fn new(nodes: Vec<SocketAddr>) -> Round {
        // Shorter than some pauses of a node, so that some requests time out and are repeated at another node.
        let http = reqwest::blocking::Client::builder().timeout(Duration::from_secs(2));
        let progress = Progress { pace: Duration::from_millis(10), ..Progress::default() };
        Round { nodes, http: http.build().expect("an HTTP client"), progress }
    }

    pub(crate) fn any(&self, random: &mut Random) -> SocketAddr {
        self.nodes[random.below(self.nodes.len() as u64) as usize]
    }

    pub(crate) fn go_on(&self) -> bool {
        !self.progress.stop.load(Ordering::Relaxed)
    }

    /// Pauses between two requests, so that the checks at the end of a round take a reasonable time.
    pub(crate) fn rest(&self) {
        std::thread::sleep(self.progress.pace);
    }

    /// The ledger at one node.
    pub(crate) fn ledger(&self, node: SocketAddr, namespace: &str) -> Ledger {
        Ledger::new(self.http.clone(), format!("http://{node}/v1/ns/{namespace}/ledger"))
    }
}

pub(crate) struct Client<'a> {
    pub(crate) round: &'a Round,
    pub(crate) random: Random,
    /// The client's name, which no other client of the round has.
    pub(crate) name: String,
    namespace: String,
    keys: u64,
}

/// The answer to a request that was repeated until it was answered.
pub(crate) struct RepeatedReply {
    pub(crate) reply: Reply,
    pub(crate) repeated: bool,
}

impl<'a> Client<'a> {
    pub(crate) fn new(round: &'a Round, namespace: &str, name: &str, seed: u64) -> Client<'a> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Client { round, random: Random::new(seed), name, namespace, keys: 0 }
    }

    fn request(&mut self, method: &str, path: &str) -> RequestBuilder {
        let node = self.round.any(&mut self.random);
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        self.round.http.request(method, format!("http://{node}/v1/ns/{}{path}", self.namespace))
    }

    /// Makes one attempt at some node. `None` if the attempt was not executed, or if its outcome is unknown.
    pub(crate) fn once(&mut self, method: &str, path: &str, body: &Value) -> Option<Reply> {
        let reply = Reply::try_to(with_body(self.request(method, path), body)).ok()?;
        (reply.status != 503).then_some(reply)
    }

    /// Repeats a request under one idempotency key, at one node after another, until a node answers.
    #[track_caller]
    pub(crate) fn retry(&mut self, method: &str, path: &str, body: &Value) -> RepeatedReply {
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
        RepeatedReply { reply, repeated: attempts > 1 }
    }
}

fn with_body(request: RequestBuilder, body: &Value) -> RequestBuilder {
    if body.is_null() { request } else { request.json(body) }
}
