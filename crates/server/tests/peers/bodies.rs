//! Bodies that no node sends.

use super::{
    raw::{ANSWER, ASK, FOLLOW, REFUSED, RawConnection},
    *,
};
use limina_engine::{KeyValues, key_values::Value};

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
                let (variant, field, _reason): (u8, String, String) = postcard::from_bytes(&body).unwrap();
                assert_eq!(variant, 1, "it is refused for another reason");
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
    // A whole request: the shard, the namespace `n`, no key, nobody who asks, and that it is to be deleted.
    let whole = vec![0, 0, 1, b'n', 0, 0, 0, 5];
    assert_eq!(caller.call(ASK, &whole).await, Ok(vec![0, 5]));
    let long = [whole, vec![0]].concat();
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
    let key_values = KeyValues::new(vec![("k", Value::<&str>::Integer(1))]).unwrap();
    let none = None::<()>;
    let mut caller = Caller::connect(&node).await;
    // The shard, the namespace, no key, the numbers of the variants, and the fields.
    let mut ask = async |body: Vec<u8>, field: &str| {
        let body = [vec![0, 0], body].concat();
        assert_eq!(caller.call(ASK, &body).await, Err(field.to_owned()));
    };
    let change = || ("a", 1_i64, none, 0_u8, none);
    let hold = (
        "n",
        none,
        (none, none),
        (0_u8, 6_u8, 0_u8),
        "op",
        vec![change(), change()],
        false,
        true,
        (none, none),
    );
    ask(bytes(&hold), "changes[1].limit_name").await;
    let window = Some((0_u8, 0_u64));
    let rule = (
        "n",
        none,
        (none, none),
        (1_u8, 0_u8, 0_u8),
        "r",
        0_u8,
        0_u8,
        (1_u8, 5_u64),
        window,
        false,
        none,
        none,
    );
    ask(bytes(&rule), "window.per").await;
    let locks = vec![(key_values.clone(), 0_u8), (key_values, 0_u8)];
    let acquire = ("n", none, (none, none), (2_u8, 0_u8), "id", "session", locks, 1_000_u64, 0_u64, none);
    ask(bytes(&acquire), "locks[1].key_values").await;
    ask(bytes(&("n", none, (none, none), (3_u8, 2_u8), "s", "", none)), "event").await;
    // A decision without parts.
    let parts = (0_u8, 0_u8, false, 0_u8, none);
    let decide =
        ("n", none, (none, none), (4_u8, 0_u8), "op", none, 60_000_u64, parts, (false, false), 0_u64, none);
    ask(bytes(&decide), "checks").await;
    ask(bytes(&("n", none, (none, none), 6_u8, none, 0_usize)), "limit").await;
    let wanted = (0_u16, "n", "s", none, Some((0_u8, 10_u64, 0_u32, 10_000_u64)));
    assert_eq!(caller.call(FOLLOW, &bytes(&wanted)).await, Err("make.max_events".to_owned()));
    assert!(node.fake.asked.lock().unwrap().is_empty());
    assert!(node.fake.wanted.lock().unwrap().is_none());
}

fn bytes(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).unwrap()
}
