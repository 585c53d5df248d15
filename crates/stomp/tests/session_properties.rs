//! Properties that hold for everything that a client may send.

use bytes::BytesMut;
use limina_stomp::{Action, Command, Decoded, Decoder, Frame, Limits, Options, Session, Version};
use proptest::prelude::*;
use proptest::sample::select;

const CLIENT_WORDS: &[&str] = &[
    "", "a", "b", "1-1", "1-2", "2-1", "auto", "client", "1.2", "1.1", "1.0", "0,0", "10,10", "a:b", "t",
    "🌮",
];
const CLIENT_HEADERS: &[&str] = &[
    "id",
    "destination",
    "ack",
    "message-id",
    "subscription",
    "transaction",
    "receipt",
    "accept-version",
    "heart-beat",
];

#[derive(Clone, Debug)]
enum Event {
    Frame(Frame),
    Bytes(Vec<u8>),
    Time(u64),
    Message,
    Fail,
}

fn event() -> impl Strategy<Value = Event> {
    let headers = prop::collection::vec((select(CLIENT_HEADERS), select(CLIENT_WORDS)), 0..6);
    let frame = (select(Command::ALL), headers).prop_map(|(command, headers)| Frame::new(command, headers));
    // Headers that most frames need, so that random conversations make progress.
    let useful = select(vec![
        Frame::new(Command::Connect, [("accept-version", "1.2,1.1"), ("heart-beat", "10,10")]),
        Frame::new(
            Command::Subscribe,
            [("id", "a"), ("destination", "a"), ("ack", "client"), ("receipt", "r")],
        ),
        Frame::new(Command::Subscribe, [("id", "b"), ("destination", "a:b")]),
        Frame::new(Command::Unsubscribe, [("id", "a"), ("receipt", "r")]),
        Frame::new(Command::Begin, [("transaction", "t")]),
        Frame::new(Command::Send, [("destination", "a"), ("receipt", "r:1")]),
        Frame::new(Command::Ack, [("id", "1-1"), ("message-id", "1-1"), ("subscription", "a")]),
    ]);
    prop_oneof![
        8 => useful.prop_map(Event::Frame),
        2 => frame.prop_map(Event::Frame),
        1 => prop::collection::vec(any::<u8>(), 0..8).prop_map(Event::Bytes),
        2 => Just(Event::Bytes(b"\n".to_vec())),
        3 => (0..40u64).prop_map(Event::Time),
        4 => Just(Event::Message),
        1 => Just(Event::Fail),
    ]
}

proptest! {
    /// A client can decode everything that is sent. The session ends with an ERROR or because the client asked for it,
    /// nothing follows the end, and timers are always in the future.
    #[test]
    fn any_conversation(events in prop::collection::vec(event(), 0..60), refuse in any::<u8>()) {
        let limits = Limits { body: 64, headers: 8, header_line: 64 };
        let options = Options { limits, max_subscriptions: 2, max_transactions: 2, ..Options::default() };
        let mut session = Session::new(options, "s", 0);
        let mut client = Decoder::new(Limits::default());
        let (mut now, mut subscriptions, mut closed, mut answers) = (0, Vec::new(), false, 0u32);
        for event in events {
            let mut sent = BytesMut::new();
            let mut bytes = Vec::new();
            let version = session.version().unwrap_or(Version::V1_0);
            match event {
                Event::Frame(frame) => bytes = frame.encode(version).to_vec(),
                Event::Bytes(random) => bytes = random,
                Event::Time(ms) => {
                    now += ms;
                    session.handle_timeout(now);
                    prop_assert!(session.poll_timeout().is_none_or(|due| due > now));
                }
                Event::Message => {
                    for subscription in &subscriptions {
                        prop_assert!(session.begin_message(*subscription, &mut sent, now) != closed);
                        if !closed {
                            sent.extend_from_slice(b"\n\0");
                        }
                    }
                }
                Event::Fail => {
                    if now % 5 == 4 {
                        session.fail("Why", "not");
                    }
                }
            }
            let mut input = &bytes[..];
            loop {
                session.handle_input(&mut input, now);
                let mut actions = 0;
                while let Some(action) = session.poll_action() {
                    prop_assert!(!closed, "{:?} after the end", action);
                    actions += 1;
                    prop_assert!(actions <= 4, "a frame has few consequences");
                    match action {
                        Action::Connect { .. } => session.admit(now),
                        Action::Send(bytes) => sent.extend_from_slice(&bytes),
                        Action::Subscribe { subscription, ticket, .. } => {
                            subscriptions.push(subscription);
                            prop_assert!(subscriptions.len() <= 2);
                            session.accept(ticket, now);
                        }
                        Action::Unsubscribe { subscription } => subscriptions.retain(|other| *other != subscription),
                        Action::Receive { ticket, .. } => {
                            answers += 1;
                            if answers % 8 == u32::from(refuse % 8) {
                                session.refuse(ticket, "No", "no\nand no");
                            } else {
                                session.accept(ticket, now);
                            }
                        }
                        Action::Acknowledge { subscription, .. } => prop_assert!(subscriptions.contains(&subscription)),
                        Action::Close(_) => closed = true,
                    }
                }
                if input.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(session.is_closed(), closed);
            let mut sent = &sent[..];
            loop {
                match client.decode(&mut sent) {
                    Ok(Some(Decoded::Frame(frame))) => {
                        if frame.command == Command::Connected {
                            let version = frame.headers.get("version").unwrap();
                            client.set_version(Version::ALL.into_iter().find(|v| v.as_str() == version).unwrap());
                        }
                    }
                    Ok(Some(Decoded::HeartBeat)) => {}
                    Ok(None) => break,
                    Err(error) => prop_assert!(false, "the client cannot read it: {}", error),
                }
            }
        }
    }
}
