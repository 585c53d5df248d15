//! Conversations: what a client sends, and the actions of the session.

use bytes::BytesMut;
use limina_stomp::{AckMode, Action, Limits, Options, Payload, Session, Subscription};

/// A session, and a caller that knows the destinations under `/topic/` and `/app/time`.
struct Server {
    session: Session,
    subscriptions: Vec<Subscription>,
}

impl Server {
    fn new() -> Server {
        let options = Options {
            limits: Limits { body: 100, headers: 8, header_line: 100 },
            max_subscriptions: 2,
            max_transactions: 2,
            server: "limina",
            ..Options::default()
        };
        Server { session: Session::new(options, "s1", 0), subscriptions: Vec::new() }
    }

    /// Passes what a client sends (`^` is NUL) to the session. Returns the actions, one per line.
    fn take(&mut self, text: &str) -> String {
        let bytes = text.replace('^', "\0").into_bytes();
        let (mut input, mut told) = (&bytes[..], String::new());
        while !input.is_empty() {
            self.session.handle_input(&mut input, 0);
            while let Some(action) = self.session.poll_action() {
                told += &self.perform(action);
                told.push('\n');
            }
        }
        told
    }

    fn perform(&mut self, action: Action) -> String {
        match action {
            Action::Send(bytes) => readable(&bytes),
            Action::Connect { passcode } => {
                match passcode.as_deref() {
                    Some("open sesame") => self.session.admit(0),
                    _ => self.session.fail("Unauthorized", "who are you"),
                }
                format!("connect {passcode:?}")
            }
            Action::Subscribe { subscription, destination, ack, headers, ticket } => {
                if destination.starts_with("/topic/") {
                    self.subscriptions.push(subscription);
                    self.session.accept(ticket, 0);
                } else {
                    self.session.refuse(ticket, "StreamNotFound", "there is no such stream");
                }
                let resume = headers.get("resume-after").map(|clock| format!(" after {clock}"));
                format!("subscribe {destination} {ack:?}{}", resume.unwrap_or_default())
            }
            Action::Unsubscribe { subscription } => {
                let place = self.subscriptions.iter().position(|other| *other == subscription);
                self.subscriptions.remove(place.expect("it was subscribed"));
                "unsubscribe".into()
            }
            Action::Receive { destination, body, ticket, .. } => {
                if destination == "/app/time" {
                    self.session.accept(ticket, 0);
                } else {
                    self.session.refuse(ticket, "DestinationNotFound", "nothing can be sent there");
                }
                format!("receive {destination} {:?}", String::from_utf8_lossy(&body))
            }
            Action::Acknowledge { message, consumed, .. } => {
                format!("{} {message}", if consumed { "ack" } else { "nack" })
            }
            Action::Close(ending) => format!("close {ending:?}"),
        }
    }

    fn message(&mut self, subscription: Subscription) -> Option<String> {
        let mut out = BytesMut::new();
        let written = self.session.begin_message(subscription, &mut out, 0);
        assert_eq!(written, !out.is_empty());
        out.extend_from_slice(Payload::new("text/plain", b"x").bytes());
        written.then(|| readable(&out))
    }
}

/// Frames on one line each.
fn readable(bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).expect("what is sent is UTF-8");
    text.replace('\n', "|").replace('\0', "^")
}

/// A conversation: what the client sends, and the expected actions, in turns.
#[track_caller]
fn check(turns: &[(&str, &str)]) -> Server {
    let mut server = Server::new();
    for (client, expect) in turns {
        let told = server.take(client);
        assert_eq!(told.trim_end(), *expect, "after {client:?}");
    }
    server
}

const CONNECT: (&str, &str) = (
    "CONNECT\naccept-version:1.2\n\n^",
    "CONNECTED|version:1.2|heart-beat:10000,10000|session:s1|server:limina||^",
);
const CONNECT_1_1: (&str, &str) = (
    "CONNECT\naccept-version:1.1\n\n^",
    "CONNECTED|version:1.1|heart-beat:10000,10000|session:s1|server:limina||^",
);
const CONNECT_1_0: (&str, &str) =
    ("CONNECT\n\n^", "CONNECTED|version:1.0|heart-beat:0,0|session:s1|server:limina||^");

/// The ERROR with `code` and its body, and the end of the session.
fn error(code: &str, detail: &str) -> String {
    error_with(code, "", detail)
}

fn error_with(code: &str, headers: &str, detail: &str) -> String {
    let length = detail.len();
    format!(
        "ERROR|message:{code}|{headers}content-type:text/plain|content-length:{length}||{detail}^\nclose Failed"
    )
}

#[test]
fn versions() {
    let supported = "version:1.0,1.1,1.2|";
    let refused =
        error_with("VersionNotSupported", supported, "the versions offered here are 1.0, 1.1 and 1.2");
    let check_version = |accept: &str, version: Option<&str>| {
        let told = Server::new().take(&format!("STOMP\naccept-version:{accept}\nhost:h\n\n^"));
        match version {
            Some(version) => {
                assert!(told.starts_with(&format!("CONNECTED|version:{version}|")), "{accept}: {told}")
            }
            None => assert_eq!(told.trim_end(), refused, "{accept}"),
        }
    };
    check(&[CONNECT_1_0]);
    check_version("1.0", Some("1.0"));
    check_version("1.1", Some("1.1"));
    check_version("1.2", Some("1.2"));
    check_version("1.2,1.1,1.0", Some("1.2"));
    check_version("1.0,1.1", Some("1.1"));
    check_version("1.0, 1.1, 1.3", Some("1.1"));
    check_version("2.0,1.0", Some("1.0"));
    check_version("1.3", None);
    check_version("", None);
    check_version("1", None);
}

#[test]
fn before_and_after_connect() {
    let first = error_with(
        "NotConnected",
        "version:1.0,1.1,1.2|receipt-id:r|",
        "the first frame must be CONNECT or STOMP",
    );
    check(&[("\n\nSUBSCRIBE\nid:1\ndestination:/topic/a\nreceipt:r\n\n^", &first)]);
    let twice = error("AlreadyConnected", "this connection has a session already");
    check(&[CONNECT, (CONNECT.0, &twice), ("DISCONNECT\nreceipt:r\n\n^", "")]);
    let beat = error_with("InvalidHeader", "version:1.0,1.1,1.2|", "the header heart-beat is not valid");
    check(&[("CONNECT\naccept-version:1.2\nheart-beat:often\n\n^", &beat)]);
    for command in ["CONNECTED", "MESSAGE", "RECEIPT", "ERROR"] {
        let detail = format!("{command} is not a command of this session");
        check(&[CONNECT, (&format!("{command}\n\n^"), &error("CommandNotOffered", &detail))]);
    }
}

#[test]
fn frames_joined_and_split() {
    check(&[(
        "\nCONNECT\naccept-version:1.1\n\n^\n\nSUBSCRIBE\nid:a\\cb\ndestination:/topic/a\nreceipt:x\\cy\n\n^\n",
        "CONNECTED|version:1.1|heart-beat:10000,10000|session:s1|server:limina||^\n\
         subscribe /topic/a Auto\n\
         RECEIPT|receipt-id:x\\cy||^",
    )]);
    check(&[
        ("CONN", ""),
        ("ECT\naccept-", ""),
        ("version:1.2\n\n", ""),
        ("^", CONNECT.1),
        ("\n", ""),
        ("DISCONNECT\nreceipt:r\n", ""),
        ("\n^", "RECEIPT|receipt-id:r||^\nclose Disconnected"),
    ]);
}

#[test]
fn faulty_bytes() {
    let faulty = error("InvalidFrame", "the frame does not begin with a command of STOMP");
    check(&[CONNECT, ("GET / HTTP/1.1\r\n\r\n", &faulty), ("\n", "")]);
    let escape =
        error_with("InvalidFrame", "receipt-id:r|", "a header has an escape that STOMP 1.2 does not define");
    check(&[CONNECT, ("SEND\nreceipt:r\na:\\t\n\n^", &escape)]);
    let large = error_with("FrameTooLarge", "receipt-id:r|", "the body is longer than 100 bytes");
    check(&[CONNECT, ("SEND\nreceipt:r\ncontent-length:101\n\n", &large)]);
    let many = error("FrameTooLarge", "there are more than 8 headers");
    check(&[CONNECT, (&format!("SEND\n{}", "a:b\n".repeat(9)), &many)]);
}

#[test]
fn subscriptions() {
    check(&[
        CONNECT,
        ("SUBSCRIBE\nid:0\ndestination:/topic/a\n\n^", "subscribe /topic/a Auto"),
        (
            "SUBSCRIBE\nid:1\ndestination:/topic/a\nack:client\nresume-after:7\nreceipt:r1\n\n^",
            "subscribe /topic/a Client after 7\nRECEIPT|receipt-id:r1||^",
        ),
        ("UNSUBSCRIBE\nid:0\nreceipt:r2\n\n^", "unsubscribe\nRECEIPT|receipt-id:r2||^"),
        (
            "SUBSCRIBE\nid:0\ndestination:/topic/b\nack:client-individual\n\n^",
            "subscribe /topic/b ClientIndividual",
        ),
        (
            "SUBSCRIBE\nid:2\ndestination:/topic/c\nreceipt:r3\n\n^",
            &error_with("TooManySubscriptions", "receipt-id:r3|", "a connection may have 2 subscriptions"),
        ),
    ]);
    let refused = error_with("StreamNotFound", "receipt-id:r|", "there is no such stream");
    check(&[
        CONNECT,
        (
            "SUBSCRIBE\nid:0\ndestination:/queue/a\nreceipt:r\n\n^",
            &format!("subscribe /queue/a Auto\n{refused}"),
        ),
    ]);
    let check_fault = |frame: &str, code: &str, detail: &str| {
        check(&[
            CONNECT,
            ("SUBSCRIBE\nid:0\ndestination:/topic/a\n\n^", "subscribe /topic/a Auto"),
            (frame, &error(code, detail)),
        ]);
    };
    let exists = "there is a subscription of this id, or without an id of this destination";
    check_fault("SUBSCRIBE\nid:0\ndestination:/topic/b\n\n^", "SubscriptionExists", exists);
    check_fault("SUBSCRIBE\nid:1\n\n^", "HeaderMissing", "SUBSCRIBE needs the header destination");
    check_fault("SUBSCRIBE\ndestination:/topic/b\n\n^", "HeaderMissing", "SUBSCRIBE needs the header id");
    check_fault(
        "SUBSCRIBE\nid:1\ndestination:/topic/b\nack:maybe\n\n^",
        "InvalidHeader",
        "the header ack is not valid",
    );
    check_fault("UNSUBSCRIBE\nid:1\n\n^", "SubscriptionNotFound", "there is no such subscription");
    check_fault("UNSUBSCRIBE\n\n^", "HeaderMissing", "UNSUBSCRIBE needs the header id");
}

#[test]
fn subscriptions_of_1_0_need_no_id() {
    let mut server = check(&[
        CONNECT_1_0,
        ("SUBSCRIBE\ndestination: /topic/a\nack: client\n\n^", "subscribe /topic/a Client"),
        ("SUBSCRIBE\nid:b\ndestination:/topic/a\n\n^", "subscribe /topic/a Auto"),
    ]);
    let [without, with] = server.subscriptions[..] else { panic!("there are two") };
    assert_eq!(
        server.message(without).unwrap(),
        "MESSAGE|destination:/topic/a|message-id:1-1|content-type:text/plain|content-length:1||x^"
    );
    assert!(
        server
            .message(with)
            .unwrap()
            .starts_with("MESSAGE|subscription:b|destination:/topic/a|message-id:2-1|")
    );
    let exists = error(
        "SubscriptionExists",
        "there is a subscription of this id, or without an id of this destination",
    );
    for (client, expect) in [
        ("UNSUBSCRIBE\nid:b\n\n^", "unsubscribe"),
        ("UNSUBSCRIBE\ndestination:/topic/a\n\n^", "unsubscribe"),
        ("SUBSCRIBE\ndestination:/topic/a\n\n^", "subscribe /topic/a Auto"),
        ("SUBSCRIBE\ndestination:/topic/a\n\n^", &exists),
    ] {
        assert_eq!(server.take(client).trim_end(), expect);
    }
}

#[test]
fn messages() {
    let messages = |connect, ack: &str| {
        let mut server = check(&[connect]);
        server.take(&format!("SUBSCRIBE\nid:a b\\cc\ndestination:/topic/x:y\nack:{ack}\n\n^"));
        let subscription = server.subscriptions[0];
        let messages = [server.message(subscription).unwrap(), server.message(subscription).unwrap()];
        server.take("UNSUBSCRIBE\nid:a b\\cc\n\n^");
        assert_eq!(server.message(subscription), None, "an ended subscription gets nothing");
        messages.map(|message| message.replace("content-type:text/plain|content-length:1||x^", "…"))
    };
    let head = "MESSAGE|subscription:a b\\cc|destination:/topic/x\\cy|";
    assert_eq!(
        messages(CONNECT, "auto"),
        [format!("{head}message-id:1-1|…"), format!("{head}message-id:1-2|…")]
    );
    assert_eq!(
        messages(CONNECT, "client"),
        [format!("{head}message-id:1-1|ack:1-1|…"), format!("{head}message-id:1-2|ack:1-2|…")]
    );
    assert_eq!(
        messages(CONNECT_1_1, "client"),
        [format!("{head}message-id:1-1|…"), format!("{head}message-id:1-2|…")]
    );
    // 1.0 has no escapes, so text is returned unchanged.
    let head = "MESSAGE|subscription:a b\\cc|destination:/topic/x:y|";
    assert_eq!(
        messages(CONNECT_1_0, "client"),
        [format!("{head}message-id:1-1|…"), format!("{head}message-id:1-2|…")]
    );
}

#[test]
fn acknowledgements() {
    let subscribed = |connect| {
        let subscribe =
            ("SUBSCRIBE\nid:a\ndestination:/topic/a\nack:client\n\n^", "subscribe /topic/a Client");
        let mut server = check(&[connect, subscribe]);
        for _ in 0..3 {
            server.message(server.subscriptions[0]).unwrap();
        }
        server
    };
    let check = |connect, turns: &[(&str, &str)]| {
        let mut server = subscribed(connect);
        for (client, expect) in turns {
            assert_eq!(server.take(client).trim_end(), *expect, "after {client:?}");
        }
    };
    check(
        CONNECT,
        &[
            ("ACK\nid:1-2\n\n^", "ack 2"),
            ("NACK\nid:1-3\nreceipt:r\n\n^", "nack 3\nRECEIPT|receipt-id:r||^"),
            ("ACK\nid:1-2\nsubscription:a\n\n^", "ack 2"), // stompjs names the subscription as well
            ("UNSUBSCRIBE\nid:a\n\n^", "unsubscribe"),
            ("ACK\nid:1-3\nreceipt:late\n\n^", "RECEIPT|receipt-id:late||^"),
        ],
    );
    check(CONNECT_1_1, &[("ACK\nmessage-id:1-1\nsubscription:a\n\n^", "ack 1")]);
    check(CONNECT_1_1, &[("NACK\nmessage-id:1-1\nsubscription:a\n\n^", "nack 1")]);
    check(CONNECT_1_0, &[("ACK\nmessage-id:1-1\n\n^", "ack 1")]);
    let missing = |name| error("HeaderMissing", &format!("ACK needs the header {name}"));
    check(CONNECT, &[("ACK\nmessage-id:1-1\nsubscription:a\n\n^", &missing("id"))]);
    check(CONNECT_1_1, &[("ACK\nmessage-id:1-1\n\n^", &missing("subscription"))]);
    check(CONNECT_1_1, &[("ACK\nsubscription:a\n\n^", &missing("message-id"))]);
    check(CONNECT_1_0, &[("ACK\nid:1-1\n\n^", &missing("message-id"))]);
    let nack = error("CommandNotOffered", "NACK is not a command of this session");
    check(CONNECT_1_0, &[("NACK\nmessage-id:1-1\n\n^", &nack)]);
    let unknown = error("MessageNotFound", "no such message was sent");
    for id in ["1-4", "1-0", "0-1", "2-1", "1", "-", "", "a-b", "1-1-1", "99999999999999999999-1"] {
        check(CONNECT, &[(&format!("ACK\nid:{id}\n\n^"), &unknown)]);
    }
}

#[test]
fn sending() {
    check(&[
        CONNECT,
        (
            "SEND\ndestination:/app/time\nreceipt:r\n\nnow?^",
            "receive /app/time \"now?\"\nRECEIPT|receipt-id:r||^",
        ),
        ("SEND\ndestination:/app/time\n\n^", "receive /app/time \"\""),
        (
            "SEND\ndestination:/topic/a\nreceipt:r\n\nx^",
            &format!(
                "receive /topic/a \"x\"\n{}",
                error_with("DestinationNotFound", "receipt-id:r|", "nothing can be sent there")
            ),
        ),
    ]);
    let missing = error("HeaderMissing", "SEND needs the header destination");
    check(&[CONNECT, ("SEND\n\nx^", &missing)]);
}

#[test]
fn transactions() {
    check(&[
        CONNECT,
        ("BEGIN\ntransaction:t1\nreceipt:r1\n\n^", "RECEIPT|receipt-id:r1||^"),
        ("BEGIN\ntransaction:t2\n\n^", ""),
        ("COMMIT\ntransaction:t1\nreceipt:r2\n\n^", "RECEIPT|receipt-id:r2||^"),
        ("BEGIN\ntransaction:t1\n\n^", ""),
        ("ABORT\ntransaction:t2\n\n^", ""),
        ("BEGIN\ntransaction:t3\n\n^", ""),
        (
            "BEGIN\ntransaction:t4\n\n^",
            &error("TooManyTransactions", "a connection may have 2 transactions at a time"),
        ),
    ]);
    let check_fault = |frame: &str, code: &str, detail: &str| {
        check(&[CONNECT, ("BEGIN\ntransaction:t1\n\n^", ""), (frame, &error(code, detail))]);
    };
    check_fault("BEGIN\ntransaction:t1\n\n^", "TransactionExists", "there is a transaction of this name");
    check_fault("BEGIN\n\n^", "HeaderMissing", "BEGIN needs the header transaction");
    check_fault("COMMIT\ntransaction:t2\n\n^", "TransactionNotFound", "there is no such transaction");
    check_fault("ABORT\ntransaction:t2\n\n^", "TransactionNotFound", "there is no such transaction");
    check_fault("ACK\nid:1-1\ntransaction:t2\n\n^", "TransactionNotFound", "there is no such transaction");
    check_fault(
        "SEND\ndestination:/app/time\ntransaction:t1\n\n^",
        "TransactionNotOffered",
        "messages cannot be sent in a transaction",
    );
}

#[test]
fn endings() {
    check(&[CONNECT, ("DISCONNECT\n\n^SEND\n\n^", "close Disconnected"), ("\n", "")]);
    let mut server =
        check(&[CONNECT, ("SUBSCRIBE\nid:a\ndestination:/topic/a\n\n^", "subscribe /topic/a Auto")]);
    server.session.fail("StreamNotFound", "the stream was deleted");
    server.session.fail("ShuttingDown", "only the first reason counts");
    assert!(server.session.is_closed());
    let told: Vec<_> = std::iter::from_fn(|| server.session.poll_action()).collect();
    let told: Vec<_> = told.into_iter().map(|action| server.perform(action)).collect();
    assert_eq!(told.join("\n"), error("StreamNotFound", "the stream was deleted"));
    assert_eq!(server.message(server.subscriptions[0]), None);
    assert_eq!(server.session.poll_timeout(), None);
}

/// An answer of the caller may come when the client has continued, or has gone.
#[test]
fn late_answers() {
    let mut session = Session::new(Options::default(), "s1", 0);
    let mut ask = |frames: &str| {
        let (frames, mut actions) = (frames.replace('^', "\0"), Vec::new());
        let mut input = frames.as_bytes();
        while !input.is_empty() {
            session.handle_input(&mut input, 0);
            actions.extend(std::iter::from_fn(|| session.poll_action()));
        }
        actions
    };
    let mut actions = ask("CONNECT\n\n^SUBSCRIBE\nid:a\ndestination:/topic/a\nreceipt:r\n\n^\
         UNSUBSCRIBE\nid:a\n\n^SUBSCRIBE\nid:a\ndestination:/topic/a\n\n^");
    let Some(Action::Subscribe { subscription: second, ack: AckMode::Auto, .. }) = actions.pop() else {
        panic!("{actions:?}")
    };
    assert!(matches!(actions.pop(), Some(Action::Unsubscribe { subscription }) if subscription != second));
    let Some(Action::Subscribe { ticket, .. }) = actions.pop() else { panic!("{actions:?}") };
    session.accept(ticket, 0);
    assert!(
        matches!(session.poll_action(), Some(Action::Send(bytes)) if bytes == "RECEIPT\nreceipt-id:r\n\n\0")
    );

    let mut actions = Vec::new();
    let mut input: &[u8] = b"SEND\ndestination:/app/time\nreceipt:r\n\n\0DISCONNECT\n\n\0";
    while !input.is_empty() {
        session.handle_input(&mut input, 0);
        actions.extend(std::iter::from_fn(|| session.poll_action()));
    }
    let Some(Action::Receive { ticket, .. }) = actions.into_iter().next() else { panic!() };
    session.refuse(ticket, "Late", "nobody hears it");
    assert!(session.poll_action().is_none(), "nothing comes after the end");
}

/// What the most widely used clients send, byte by byte.
#[test]
fn real_clients() {
    // @stomp/stompjs 7.5: no `host`, and heart-beats by default.
    check(&[
        ("CONNECT\naccept-version:1.2,1.1,1.0\nheart-beat:10000,10000\n\n^", CONNECT.1),
        ("SUBSCRIBE\nid:sub-0\ndestination:/topic/a\n\n^", "subscribe /topic/a Auto"),
        ("SEND\ndestination:/app/time\ncontent-length:4\n\n🌮^", "receive /app/time \"🌮\""),
        ("\n", ""),
        ("UNSUBSCRIBE\nid:sub-0\n\n^", "unsubscribe"),
        ("DISCONNECT\nreceipt:close-1\n\n^", "RECEIPT|receipt-id:close-1||^\nclose Disconnected"),
    ]);
    // stomp.py 9: STOMP, with headers sorted by name.
    check(&[
        (
            "STOMP\naccept-version:1.2\nheart-beat:0,0\nhost:127.0.0.1\nlogin:me\npasscode:secret\n\n^",
            CONNECT.1,
        ),
        (
            "SUBSCRIBE\nack:client-individual\ndestination:/topic/a\nid:1\n\n^",
            "subscribe /topic/a ClientIndividual",
        ),
        ("UNSUBSCRIBE\nid:1\n\n^", "unsubscribe"),
        (
            "DISCONNECT\nreceipt:9aab1fdd-1e42-4da2-8aab-b4c4ff8a3d54\n\n^",
            "RECEIPT|receipt-id:9aab1fdd-1e42-4da2-8aab-b4c4ff8a3d54||^\nclose Disconnected",
        ),
    ]);
    // stomp.py as a client of 1.1 and of 1.0.
    check(&[("STOMP\naccept-version:1.1\nheart-beat:0,0\n\n^", CONNECT_1_1.1)]);
    check(&[("CONNECT\naccept-version:1.0\n\n^", CONNECT_1_0.1)]);
}
