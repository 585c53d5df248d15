//! The clock of a stream is the same over every protocol.

use crate::events::{Events, LONG};
use crate::harness::Server;
use crate::stomp::Stomp;

/// A key frame has the clock of the last change that it contains.
#[test]
fn key_frames_and_reads_agree_on_the_clock() {
    let mut server = Server::fresh();
    server.events().only_once("s", LONG);
    for n in 0..5 {
        let clock = server.events().accept("s", &format!("{n}")).clock;
        check_agreement(&server.events(), &server, clock);
        server.crash_and_restart();
        check_agreement(&server.events(), &server, clock);
    }
}

#[track_caller]
fn check_agreement(events: &Events, server: &Server, clock: u64) {
    let follower = Stomp::connect(server).follow("0", "/topic/s");
    let incubating = events.incubating("s");
    assert_eq!((follower.clock, &follower.incubating), (clock, &incubating.events));
    assert_eq!((incubating.clock, events.clock("s")), (clock, clock));
}
