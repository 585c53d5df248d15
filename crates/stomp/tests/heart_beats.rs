//! When a session must send something, and when it ends because it has received too little.

use bytes::BytesMut;
use limina_stomp::{Action, HeartBeat, Options, Session};

/// A session that is opened at 0 and, if `connect` has headers, connected at 1,000. The server sends every 8,000 and
/// expects every 10,000.
fn session(connect: Option<&str>) -> Session {
    let options = Options {
        heart_beat: HeartBeat { send_ms: 8_000, expect_ms: 10_000 },
        connect_timeout_ms: 5_000,
        idle_timeout_ms: 60_000,
        ..Options::default()
    };
    let mut session = Session::new(options, "s", 0);
    if let Some(headers) = connect {
        receive(&mut session, format!("CONNECT\n{headers}\n\0").as_bytes(), 1_000);
    }
    session
}

fn receive(session: &mut Session, mut input: &[u8], now: u64) {
    while !input.is_empty() {
        session.handle_input(&mut input, now);
        while let Some(action) = session.poll_action() {
            if let Action::Subscribe { ticket, .. } = action {
                session.accept(ticket, now);
            }
        }
    }
}

/// Advances the time. Returns what is sent, and whether the session ends.
fn wait(session: &mut Session, now: u64) -> (String, bool) {
    session.handle_timeout(now);
    let (mut sent, mut closed) = (String::new(), false);
    while let Some(action) = session.poll_action() {
        assert!(!closed, "nothing comes after the end");
        match action {
            Action::Send(bytes) => sent += std::str::from_utf8(&bytes).unwrap(),
            Action::Close(_) => closed = true,
            other => panic!("{other:?}"),
        }
    }
    (sent, closed)
}

#[track_caller]
fn check_error((sent, closed): (String, bool), code: &str) {
    assert!(sent.starts_with(&format!("ERROR\nmessage:{code}\n")), "{sent}");
    assert!(closed);
}

const NOTHING: (String, bool) = (String::new(), false);

fn beat() -> (String, bool) {
    ("\n".into(), false)
}

const BOTH: &str = "accept-version:1.2\nheart-beat:12000,4000\n";

#[test]
fn a_client_must_connect_in_time() {
    let mut silent = session(None);
    assert_eq!(silent.poll_timeout(), Some(5_000));
    // Neither heart-beats nor half a frame extend the time to connect.
    receive(&mut silent, b"\n\nCONNECT\naccept-", 4_000);
    assert_eq!(silent.poll_timeout(), Some(5_000));
    assert_eq!(wait(&mut silent, 4_999), NOTHING);
    check_error(wait(&mut silent, 5_000), "ConnectTimeout");
    assert_eq!(silent.poll_timeout(), None);
}

#[test]
fn an_idle_server_sends_heart_beats() {
    // The server has agreed to send every 8,000, and does so after three quarters of it. The client sends every 12,000,
    // and may miss three periods.
    let mut session = session(Some(BOTH));
    assert_eq!(session.poll_timeout(), Some(7_000));
    assert_eq!(wait(&mut session, 6_999), NOTHING);
    assert_eq!(wait(&mut session, 7_000), beat());
    assert_eq!(session.poll_timeout(), Some(13_000));
    // A late timer sends one heart-beat, not several.
    assert_eq!(wait(&mut session, 30_000), beat());
    assert_eq!(session.poll_timeout(), Some(36_000));
}

#[test]
fn any_output_counts_as_a_heart_beat() {
    let mut session = session(Some(BOTH));
    receive(&mut session, b"BEGIN\ntransaction:t\nreceipt:r\n\n\0", 5_000);
    assert_eq!(session.poll_timeout(), Some(11_000), "a receipt");
    receive(&mut session, b"BEGIN\ntransaction:u\n\n\0", 6_000);
    assert_eq!(session.poll_timeout(), Some(11_000), "nothing was sent");
    let mut input: &[u8] = b"SUBSCRIBE\nid:a\ndestination:/topic/a\nreceipt:r\n\n\0";
    session.handle_input(&mut input, 6_000);
    let Some(Action::Subscribe { subscription, ticket, .. }) = session.poll_action() else { panic!() };
    session.accept(ticket, 7_000);
    assert_eq!(session.poll_timeout(), Some(13_000), "an answer");
    assert!(session.begin_message(subscription, &mut BytesMut::new(), 9_000));
    assert_eq!(session.poll_timeout(), Some(15_000), "a message");
}

#[test]
fn a_silent_client_times_out() {
    let mut silent = session(Some(BOTH));
    let mut beats = 0;
    let end = loop {
        let now = silent.poll_timeout().expect("the session lasts");
        let done = wait(&mut silent, now);
        if done != beat() {
            check_error(done, "HeartBeatTimeout");
            break now;
        }
        beats += 1;
    };
    assert_eq!((end, beats), (37_000, 5));

    // Anything that a client sends, complete or not, shows that it is alive.
    let mut slow = session(Some("accept-version:1.1\nheart-beat:12000,0\n"));
    assert_eq!(slow.poll_timeout(), Some(37_000));
    for (now, bytes) in
        [(36_000, "\n"), (71_000, "SUBSCR"), (106_000, "IBE\nid:a\ndestination:/topic/a\n\n\0")]
    {
        receive(&mut slow, bytes.as_bytes(), now);
        assert_eq!(slow.poll_timeout(), Some(now + 36_000));
        assert_eq!(wait(&mut slow, now + 35_999), NOTHING);
    }
    check_error(wait(&mut slow, 142_000), "HeartBeatTimeout");
}

/// The caller looks for the stream. Meanwhile it passes no input, and the client cannot show that it is alive.
#[test]
fn a_client_need_not_send_heart_beats_while_its_request_is_decided() {
    let mut session = session(Some(BOTH));
    let mut input: &[u8] = b"SUBSCRIBE\nid:a\ndestination:/topic/a\n\n\0";
    session.handle_input(&mut input, 2_000);
    let Some(Action::Subscribe { ticket, .. }) = session.poll_action() else { panic!() };
    for _ in 0..20 {
        let now = session.poll_timeout().expect("the session lasts");
        assert_eq!(wait(&mut session, now), beat());
    }
    session.accept(ticket, 122_000);
    assert_eq!(wait(&mut session, 157_999), beat());
    check_error(wait(&mut session, 158_000), "HeartBeatTimeout");
}

#[test]
fn idle_connections_without_subscriptions_time_out() {
    let mut idle = session(Some("accept-version:1.2\n"));
    assert_eq!(idle.poll_timeout(), Some(61_000));
    receive(&mut idle, b"\n", 2_000);
    assert_eq!(idle.poll_timeout(), Some(62_000));
    receive(&mut idle, b"SUBSCRIBE\nid:a\ndestination:/topic/a\n\n\0", 3_000);
    assert_eq!(idle.poll_timeout(), None);
    assert_eq!(wait(&mut idle, 1_000_000), NOTHING);
    receive(&mut idle, b"UNSUBSCRIBE\nid:a\n\n\0", 1_000_000);
    assert_eq!(wait(&mut idle, 1_059_999), NOTHING);
    check_error(wait(&mut idle, 1_060_000), "IdleTimeout");
}

/// stompjs offers heart-beats with all its versions, and sends none if 1.0 is chosen.
#[test]
fn version_1_0_has_no_heart_beats() {
    let mut old = session(Some("accept-version:1.0\nheart-beat:10000,10000\n"));
    receive(&mut old, b"SUBSCRIBE\ndestination:/topic/a\n\n\0", 3_000);
    assert_eq!(old.poll_timeout(), None);
}

#[test]
fn extreme_times() {
    let mut session = session(Some(&format!("accept-version:1.2\nheart-beat:{0},{0}\n", u64::MAX)));
    assert_eq!(session.poll_timeout(), Some(1_000 + (u64::MAX - u64::MAX / 4)));
    assert_eq!(wait(&mut session, 0), NOTHING, "a clock that goes back does no harm");
    let (_, closed) = wait(&mut session, u64::MAX);
    assert!(closed, "nor one at its end");
}
