//! Doors for the fuzz targets to the messages between nodes.

use super::wire::{Messages, decode, encode};
use limina_engine::{Outcome, Request, UncheckedRequest};
use limina_node::{FeedRequest, PeerError, RefusalsPage, RefusalsRequest};

/// Reads the request of another node, and checks it.
pub fn peer_request(bytes: &[u8]) -> Option<Request> {
    decode::<UncheckedRequest>(bytes)?.try_into().ok()
}

/// Writes a request as it is sent to another node.
pub fn encode_peer_request(request: &Request) -> Vec<u8> {
    encode(request).to_vec()
}

/// Reads the answer of another node.
pub fn peer_answer(bytes: &[u8]) {
    let _answer: Option<Result<Outcome, PeerError>> = decode(bytes);
}

/// Reads the request of another node to follow a stream.
pub fn peer_feed(bytes: &[u8]) {
    let _request: Option<FeedRequest> = decode(bytes);
}

/// Reads the request of another node for refusals, and the answer to it.
pub fn peer_refusals(bytes: &[u8]) {
    let _request: Option<RefusalsRequest> = decode(bytes);
    let _page: Option<Result<RefusalsPage, PeerError>> = decode(bytes);
}

/// Reads messages that arrive in these pieces. The last value is whether one was too long.
pub fn peer_messages<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, bool) {
    let mut messages = Messages::default();
    let mut found = Vec::new();
    for piece in pieces {
        messages.push(piece);
        loop {
            match messages.next() {
                Ok(Some(message)) => found.push(message.to_vec()),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
    }
    (found, false)
}
