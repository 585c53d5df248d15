//! Bodies that no node sends.

use super::{
    raw::{ANSWER, ASK, FOLLOW, REFUSED, RawConnection},
    *,
};
use limina_engine::{KeyValues, Millis, decisions, key_values::Value, limiter, locks};

/// Sends calls as a node would.
struct Caller {
    connection: RawConnection,
    calls: u64,
}

impl Caller {
    async fn connect(node: &Node) -> Caller {
        let certificate = Certificate::new();
        introduce_to(&node.server.peers, &[&certificate]);
        let connection = RawConnection::peer(node.address(), &certificate).await.unwrap();
        Caller { connection, calls: 0 }
    }

    /// Makes a call, and returns the field that is not valid if the call is refused.
    async fn call(&mut self, kind: u8, body: &[u8]) -> Result<Vec<u8>, String> {
        self.calls += 1;
        self.connection.send(kind, self.calls, body).await;
        let (kind, call, body) = soon(self.connection.message()).await.expect("an answer");
        assert_eq!(call, self.calls);
        match kind {
            ANSWER => Ok(body),
            REFUSED => {
                let refusal: Refusal = limina_api::binary::decode(&body).unwrap();
                let Refusal::Invalid { field, .. } = refusal else { panic!("{refusal:?}") };
                Err(field)
            }
            other => panic!("a message of kind {other}"),
        }
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let node = Node::start().await;
    let mut caller = Caller::connect(&node).await;
    // A simple generator, so that every run sends the same.
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    for length in 0..200 {
        let body: Vec<u8> = (0..length).map(|_| byte()).collect();
        for kind in [ASK, FOLLOW] {
            let refused = caller.call(kind, &body).await;
            let field = if kind == ASK && length < 2 { "shard" } else { "body" };
            assert_eq!(refused, Err(field.to_owned()), "{kind} with {body:?}");
        }
    }
    assert_eq!(caller.call(ASK, &deletion()).await, Ok(deleted()));
    let long = [deletion(), vec![0]].concat();
    assert_eq!(caller.call(ASK, &long).await, Err("body".to_owned()));
    for kind in [ASK, FOLLOW] {
        assert_eq!(caller.call(kind, &vec![0; (24 << 20) + 1]).await, Err("body".to_owned()));
    }
    assert_eq!(node.fake.asked.lock().unwrap().len(), 1);
}

/// Bytes that decode, but to a command that no constructor builds. `crates/engine/tests/limits.rs` has all the limits; here
/// the door is shown for each family.
#[tokio::test]
async fn an_invalid_command_is_refused() {
    let node = Node::start().await;
    let mut caller = Caller::connect(&node).await;
    // Sends a valid command, in which one value was replaced.
    let mut ask = async |command: Command, valid: Vec<u8>, invalid: Vec<u8>, field: &str| {
        let body = replaced(&ask_bytes(&Request::new(name("n"), command)), &valid, &invalid);
        assert_eq!(caller.call(ASK, &body).await, Err(field.to_owned()));
    };
    let changes = ["first", "other"].map(|limit| ledger::Change::new(name(limit), 1));
    let hold = ledger::Transfer::Hold(ledger::Hold::new(name("op"), changes.into()).unwrap());
    let hold = Command::Ledger(ledger::Command::Transfer(hold));
    ask(hold, bytes(&"other"), bytes(&"first"), "changes[1].limit_name").await;
    let per = 86_399_999_u64;
    let rule = limiter::NewRule {
        name: name("r"),
        group_by: Vec::new(),
        selection: Default::default(),
        limit: limiter::Limit::AtMost(5),
        window: Some(limiter::Window::Fixed { per: Millis(per) }),
        shadow: false,
        durability: None,
        description: None,
    };
    let rule = limiter::RuleChange::new(limiter::Change::CreateRule(rule)).unwrap();
    let rule = Command::Limiter(limiter::Command::Change(rule));
    ask(rule, bytes(&per), bytes(&0), "window.per").await;
    let wanted = ["first", "other"].map(|key| {
        let key_values = KeyValues::new(vec![(key, Value::<&str>::Integer(1))]).unwrap();
        locks::Lock { key_values, mode: locks::Mode::Exclusive }
    });
    let wanted = locks::Acquire::new(wanted.into(), Millis(1_000)).unwrap();
    let request = locks::LockRequest { id: name("id"), session: name("session"), wanted };
    let acquire = Command::Locks(locks::Command::Acquire(request));
    ask(acquire, b"other".to_vec(), b"first".to_vec(), "locks[1].key_values").await;
    let submit = events::Submit::new(name("s"), "happened".into()).unwrap();
    let submit = Command::Events(events::Command::Submit(submit));
    ask(submit, bytes(&"happened"), bytes(&""), "event").await;
    let parts = decisions::Parts { holds: vec![ledger::Change::new(name("a"), 1)], ..Default::default() };
    let decide = decisions::Decide::new(name("op"), parts).unwrap().with_ttl(Millis(per)).unwrap();
    let decide = Command::Decisions(decisions::Command::Decide(decide.into()));
    ask(decide, bytes(&per), bytes(&0), "ttl").await;
    let list = Command::ListNamespaces(Page::new(None, 54_321).unwrap());
    ask(list, bytes(&54_321), bytes(&0), "limit").await;
    let make = events::StreamTerms::new(events::Mode::OnlyOnce, Millis(10)).unwrap();
    let make = Some(make.with_max_events(54_321).unwrap());
    let (namespace, stream) = (name("n"), name("s"));
    let wanted = FeedRequest { shard: ShardId(0), namespace, stream, resume_after: None, make };
    let wanted = replaced(&bytes(&wanted), &bytes(&54_321), &bytes(&0));
    assert_eq!(caller.call(FOLLOW, &wanted).await, Err("make.max_events".to_owned()));
    assert!(node.fake.asked.lock().unwrap().is_empty());
    assert!(node.fake.wanted.lock().unwrap().is_none());
}

/// The bytes with another value in the place of one, which occurs once.
fn replaced(bytes: &[u8], value: &[u8], by: &[u8]) -> Vec<u8> {
    let found = |place: &usize| bytes[*place..].starts_with(value);
    let places: Vec<usize> = (0..bytes.len()).filter(found).collect();
    let [place] = places[..] else { panic!("{value:x?} is at {places:?} in {bytes:x?}") };
    [&bytes[..place], by, &bytes[place + value.len()..]].concat()
}

/// A node of a newer version sends a field that this one does not know.
#[tokio::test]
async fn a_field_that_is_not_known_is_passed_over() {
    #[derive(serde::Serialize)]
    struct NewerRequest<'r> {
        namespace: Name,
        urgent: Option<Vec<Name>>,
        idempotency: Option<limina_engine::Idempotency>,
        caller: &'r limina_engine::Caller,
        command: &'r Command,
    }
    let node = Node::start().await;
    let mut caller = Caller::connect(&node).await;
    let request = read();
    let newer = NewerRequest {
        namespace: name("n"),
        urgent: Some(vec![name("namespace")]),
        idempotency: None,
        caller: &request.caller,
        command: &request.command,
    };
    assert_eq!(caller.call(ASK, &[vec![0, 0], bytes(&newer)].concat()).await, Ok(deleted()));
    assert_eq!(node.fake.asked.lock().unwrap()[..], [(ShardId(0), request)]);
}
