//! Doors for the fuzz targets to the messages between nodes.

use super::{
    frames::{Decoder, Incoming, Message},
    wire::{Refusal, decode, encode},
};
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
    let _refusal: Option<Refusal> = decode(bytes);
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

/// Reads any value. What is read is the same after it was written.
pub fn peer_value(bytes: &[u8]) {
    if let Some(value) = decode::<serde_json::Value>(bytes) {
        assert_eq!(decode(&encode(&value)), Some(value));
    }
}

/// Reads frames that arrive in these pieces: the messages, each with its kind and its call. The last value is whether the bytes
/// were frames to the end.
pub fn peer_frames<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<(u8, u64, Vec<u8>)>, bool) {
    let mut decoder = Decoder::default();
    let mut found = Vec::new();
    for piece in pieces {
        decoder.input.extend_from_slice(piece);
        loop {
            match decoder.next() {
                Ok(Some(Incoming::Message(Message { kind, call, body }))) => {
                    found.push((kind as u8, call, body.to_vec()));
                }
                Ok(Some(Incoming::Unfinished { .. })) => {}
                Ok(None) => break,
                Err(_) => return (found, false),
            }
        }
    }
    (found, true)
}
