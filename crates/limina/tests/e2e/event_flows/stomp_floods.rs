//! Clients that send as fast as they can do not keep others from being served.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::Server;
use crate::locks::PROMPT;
use crate::stomp::{Stomp, encode};
use crate::websocket::TEXT;

/// The maximum length of a message.
const BYTES: usize = 256 << 10;

/// Two connections of each kind send messages of maximum length without a pause: more connections than there are
/// processors.
#[test]
fn floods_do_not_keep_others_from_being_answered() {
    let server = Server::fresh();
    let pair = encode("BEGIN", &[("transaction", "t")], "") + &encode("COMMIT", &[("transaction", "t")], "");
    let floods = ["\n".to_owned(), "\r\n".to_owned(), pair];
    // All floods connect before the first one begins: a busy server might not even accept the others.
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
                // The server has understood everything.
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
