//! A stream's clock: one more with each change, and never the same again.

use crate::events::{Events, LONG, setting};
use crate::harness::Server;
use crate::stomp::Stomp;

#[test]
fn each_change_is_one_more() {
    let mut server = Server::fresh();
    let events = server.events();
    events.strictly_once("s", LONG);
    let mut clock = events.clock("s");
    for round in 0..4 {
        let events = server.events();
        assert_eq!(events.clock("s"), clock, "a restart is no change");
        for n in 0..3 {
            let event = format!("{round}/{n}");
            assert_eq!(events.accept("s", &event).clock, clock + 1);
            events.submit("s", &event).conflict(true);
            assert_eq!(events.clock("s"), clock + 2, "an invalidation is a change");
            events.submit("s", &event).conflict(false);
            assert_eq!(events.clock("s"), clock + 2, "a refusal alone is none");
            clock += 2;
        }
        events.put("s", &setting("strictly_once", LONG)).ok();
        assert_eq!((events.clock("s"), events.incubating("s").clock), (clock, clock));
        match round {
            1 => server.restart(),
            _ => server.crash_and_restart(),
        }
    }
}

/// What other streams and families do in the namespace leaves no gap.
#[test]
fn each_stream_has_its_own() {
    let server = Server::fresh();
    let events = server.events();
    events.only_once("a", LONG);
    events.only_once("b", LONG);
    let (a, b) = (events.clock("a"), events.clock("b"));
    let ledger = server.ledger();
    ledger.create("limit");
    for n in 1..=10 {
        assert_eq!(events.accept("a", &n.to_string()).clock, a + n);
        ledger.hold(&format!("op {n}"), &[("limit", 1)]).ok();
        if n % 2 == 0 {
            assert_eq!(events.accept("b", &n.to_string()).clock, b + n / 2);
        }
    }
}

/// Deleted and made again, and again: no clock of the stream is ever told twice, also across crashes.
#[test]
fn a_stream_made_again_never_repeats_a_clock() {
    let mut server = Server::fresh();
    let mut highest = 0;
    for round in 0..6 {
        let events = server.events();
        events.only_once("s", LONG);
        // The changes of a stream outnumber the writes of its making by far.
        for n in 0..20 {
            let clock = events.accept("s", &format!("{n}")).clock;
            assert!(clock > highest, "round {round}: {clock} again, the highest was {highest}");
            highest = clock;
        }
        assert!(events.clock("s") >= highest);
        if round == 2 {
            server.crash_and_restart();
        }
        server.events().delete("s").is(204);
        match round {
            1 => server.crash_and_restart(),
            3 => server.restart(),
            _ => {}
        }
    }
}

/// It starts at the namespace's position when the stream is made, so a later stream starts above what came before.
#[test]
fn it_starts_at_the_position_of_the_namespace() {
    let server = Server::fresh();
    let events = server.events();
    let ledger = server.ledger();
    ledger.create("limit");
    let mut position = 0;
    for n in 0..30 {
        position = ledger.hold(&format!("op {n}"), &[("limit", 1)]).ok().position();
    }
    events.only_once("s", LONG);
    let clock = events.clock("s");
    assert!(clock >= position, "made after position {position}, and starts at {clock}");
    let after = ledger.hold("after", &[("limit", 1)]).ok().position();
    assert!(clock <= after, "made before position {after}, and starts at {clock}");
    assert_eq!(events.accept("s", "x").clock, clock + 1);
}

/// A key frame bears the clock of the last change that it contains.
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
