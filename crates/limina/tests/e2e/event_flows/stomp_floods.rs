//! Clients that send as much as they can: others are served meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::Server;
use crate::locks::PROMPT;
use crate::stomp::{Stomp, encode};
use crate::websocket::TEXT;

/// As long as a message may be.
const BYTES: usize = 256 << 10;

/// Two connections of each kind send one full message after another, more than there are processors to work on them.
#[test]
fn a_flood_does_not_keep_others_from_being_answered() {
    let server = Server::fresh();
    let pair = encode("BEGIN", &[("transaction", "t")], "") + &encode("COMMIT", &[("transaction", "t")], "");
    let floods = ["\n".to_owned(), "\r\n".to_owned(), pair];
    // All are connected before the first begins: a server that is kept busy would not even let the others in.
    let floods = floods.iter().flat_map(|flood| [flood, flood]);
    let clients: Vec<_> =
        floods.map(|flood| (Stomp::connect(&server), flood.repeat(BYTES / flood.len()))).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (mut client, message) in clients {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    client.socket().send(TEXT, message.as_bytes());
                }
                // All of it was understood.
                client.sync("end");
            });
        }
        let begun = Instant::now();
        let mut slowest = Duration::ZERO;
        while begun.elapsed() < Duration::from_secs(3) {
            let asked = Instant::now();
            server.get("/healthz").ok();
            slowest = slowest.max(asked.elapsed());
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(slowest < PROMPT, "an answer came after {slowest:?}");
    });
}
