//! The calls about locks.

use super::*;
use limina_engine::{
    KeyValues, Listed, Millis,
    key_values::Value as KeyValue,
    locks::{
        Blocked, Command as LockCommand, GrantInfo, Holder, Lock, LockRequest, Mode, Refusal,
        Reply as LockReply,
    },
};

/// What the engine could answer, where a case does not care.
pub(crate) fn plausible(command: &LockCommand) -> LockReply {
    match command {
        LockCommand::Acquire(wanted) => {
            LockReply::Granted { grant: grant("l"), session: wanted.session.clone() }
        }
        LockCommand::Abandon(_) => LockReply::Abandoned,
        LockCommand::Heartbeat { .. } => LockReply::Extended(grant("l")),
        LockCommand::Release { .. } => LockReply::Released,
        LockCommand::Get(_) => LockReply::Grant(grant("l")),
        LockCommand::List { .. } => LockReply::Grants(Listed { items: vec![grant("l")], next: None }),
    }
}

fn one(key: &str) -> KeyValues {
    KeyValues::new(vec![(key, KeyValue::<&str>::Integer(1))]).unwrap()
}

pub(super) fn grant(id: &str) -> GrantInfo {
    GrantInfo {
        lock_id: name(id),
        operation_id: None,
        owner: Some(name("me")),
        locks: vec![Lock { key_values: one("k"), mode: Mode::Shared }],
        held_ms: Millis(1_500),
        expires_in_ms: Millis(4_500),
        ttl_ms: Millis(5_000),
        fencing_token: Position(9),
        waiting: 2,
    }
}

#[tokio::test]
async fn a_request_is_one_lock_or_several() {
    let server = start().await;
    let check = async |body: Json, locks: Vec<Lock>, wait: u64| {
        let reply = server.send("POST", "/v1/ns/n/locks", &body.to_string()).await;
        assert_eq!(reply.status(), 200, "{body}");
        let request = server.last_asked();
        let Command::Locks(LockCommand::Acquire(LockRequest { id, session, wanted })) = request.command
        else {
            panic!("{:?}", request.command)
        };
        assert_eq!((request.namespace.as_str(), wanted.locks(), wanted.wait().0), ("n", &*locks, wait));
        assert_eq!(wanted.ttl(), Millis(1_000));
        assert!(id != session && id.as_str().len() == 32);
    };
    let lock = |key: &str, mode| Lock { key_values: one(key), mode };
    let (exclusive, shared) = (Mode::Exclusive, Mode::Shared);
    check(json!({"key_values": {"k": 1}, "ttl": "1s"}), vec![lock("k", exclusive)], 0).await;
    check(
        json!({"KeyValues": {"k": 1}, "mode": "shared", "ttl_ms": 1000, "wait_ms": 7}),
        vec![lock("k", shared)],
        7,
    )
    .await;
    let several = json!({
        "locks": [{"key_values": {"k": 1}, "mode": "shared"}, {"key_values": {"l": 1}}],
        "ttl": "1s", "wait": "5m",
    });
    check(several, vec![lock("k", shared), lock("l", exclusive)], 300_000).await;
}

#[tokio::test]
async fn what_does_not_validate_names_the_field() {
    let server = start().await;
    let check = async |body: Json, field: &str| {
        let problem = server.send("POST", "/v1/locks", &body.to_string()).await;
        let problem = problem_of(problem, 400, "InvalidRequest").await;
        assert_eq!(problem["field"], field, "{body} gave {problem}");
        server.nothing_asked();
    };
    let k = || json!({"k": 1});
    check(json!({"key_values": k()}), "ttl").await;
    check(json!({"ttl": "1s"}), "key_values").await;
    check(json!({"key_values": {}, "ttl": "1s"}), "key_values").await;
    check(json!({"key_values": k(), "ttl": "99ms"}), "ttl").await;
    check(json!({"key_values": k(), "ttl": 1000}), "ttl").await;
    check(json!({"key_values": k(), "ttl_ms": 99}), "ttl_ms").await;
    check(json!({"key_values": k(), "ttl": "1s", "wait": 1}), "wait").await;
    check(json!({"key_values": k(), "ttl": "1s", "wait_ms": 300_001}), "wait_ms").await;
    check(json!({"key_values": k(), "ttl": "1s", "wait": 0, "wait_ms": 0}), "wait_ms").await;
    check(json!({"key_values": k(), "ttl": "25h"}), "ttl").await;
    check(json!({"key_values": k(), "ttl": "1s", "wait": "301s"}), "wait").await;
    check(json!({"key_values": k(), "ttl": "1s", "mode": "write"}), "mode").await;
    check(json!({"key_values": k(), "ttl": "1s", "mode": 1}), "mode").await;
    check(json!({"key_values": k(), "ttl": "1s", "owner": ""}), "owner").await;
    check(json!({"key_values": k(), "ttl": "1s", "session_id": "s"}), "session_id").await;
    check(json!({"key_values": k(), "locks": [], "ttl": "1s"}), "locks").await;
    check(json!({"locks": [], "ttl": "1s"}), "locks").await;
    check(json!({"locks": [{"key_values": k()}], "mode": "shared", "ttl": "1s"}), "mode").await;
    check(json!({"locks": [{"key_values": k()}, {"key_values": {}}], "ttl": "1s"}), "locks[1].key_values")
        .await;
    check(json!({"locks": [{"key_values": k()}, {"key_values": k()}], "ttl": "1s"}), "locks[1].key_values")
        .await;
    let many: Vec<Json> = (0..65).map(|n| json!({"key_values": {"k": n}})).collect();
    check(json!({"locks": many, "ttl": "1s"}), "locks").await;

    let check = async |query: &str, field: &str| {
        let problem = server.send("DELETE", &format!("/v1/locks/l{query}"), "").await;
        assert_eq!(problem_of(problem, 400, "InvalidRequest").await["field"], field);
        server.nothing_asked();
    };
    check("", "session_id").await;
    check("?force=false", "session_id").await;
    check("?force=yes", "force").await;
    check("?session_id=", "session_id").await;
    check("?sessionid=x", "sessionid").await;
}

#[tokio::test]
async fn a_lock_is_released_by_its_session_or_by_force() {
    let server = start().await;
    let check = async |query: &str, session: Option<&str>| {
        assert_eq!(server.send("DELETE", &format!("/v1/locks/l{query}"), "").await.status(), 204);
        let expect = LockCommand::Release { id: name("l"), session: session.map(name) };
        assert_eq!(server.last_asked().command, Command::Locks(expect));
    };
    check("?session_id=s", Some("s")).await;
    check("?session_id=s&force=false", Some("s")).await;
    check("?force=true", None).await;
    check("?force=true&session_id=s", None).await;
}

#[tokio::test]
async fn nobody_but_the_holder_sees_a_session() {
    let server = start().await;
    let shown = json!({
        "lock_id": "l", "owner": "me", "locks": [{"key_values": {"k": 1}, "mode": "shared"}],
        "held_ms": 1500, "expires_in_ms": 4500, "ttl_ms": 5000, "fencing_token": 9, "waiting": 2, "operation_id": null,
    });
    let get = async |method: &str, path: &str, body: &str| -> Json {
        server.send(method, path, body).await.json().await.unwrap()
    };
    assert_eq!(get("GET", "/v1/locks/l", "").await, shown);
    assert_eq!(get("POST", "/v1/locks/l/heartbeat", r#"{"session_id": "s"}"#).await, shown);
    let page = json!({"items": [shown], "next": null});
    assert_eq!(get("GET", "/v1/locks", "").await, page);
    assert_eq!(get("POST", "/v1/locks/query", r#"{"where": {"k": 1}}"#).await, page);
    let granted = get("POST", "/v1/locks", r#"{"key_values": {"k": 1}, "ttl": "1s"}"#).await;
    assert_eq!(granted["session_id"].as_str().map(str::len), Some(32), "{granted}");
    assert_eq!((&granted["fencing_token"], &granted["expires_in_ms"]), (&json!(9), &json!(4500)));
}

#[tokio::test]
async fn refusals_say_what_is_in_the_way() {
    let server = start().await;
    let check = async |refusal: Refusal, status: u16, code: &str, members: Json| {
        server.answers(Ok(Outcome::Locks(Err(refusal))));
        let reply = server.send("POST", "/v1/locks", r#"{"key_values": {"k": 1}, "ttl": "1s"}"#).await;
        let problem = problem_of(reply, status, code).await;
        for (member, value) in members.as_object().unwrap() {
            assert_eq!(problem[member], *value, "{problem}");
        }
    };
    let holder = Holder { lock_id: name("h"), owner: None, expires_in: Millis(70) };
    let blocked = |holder| Blocked { key_values: one("k"), holder, waiting: 3 };
    let members =
        json!({"key_values": {"k": 1}, "lock_id": "h", "owner": null, "expires_in_ms": 70, "waiting": 3});
    check(Refusal::LockHeld(blocked(Some(holder))), 409, "LockHeld", members).await;
    let members = json!({"key_values": {"k": 1}, "waiting": 3});
    check(Refusal::LockWaitTimeout(blocked(None)), 409, "LockWaitTimeout", members).await;
    let (lock_id, members) = (name("l"), json!({"lock_id": "l"}));
    check(Refusal::LockNotFound { lock_id: lock_id.clone() }, 404, "LockNotFound", members.clone()).await;
    check(Refusal::SessionMismatch { lock_id }, 409, "SessionMismatch", members).await;
}

const LOCK: &str = r#"{"key_values": {"k": 1}, "ttl": "1s", "wait": "5m"}"#;

/// Sends a request for a lock and these bytes, and closes the sending side.
async fn ask_and_hang_up(server: &Server, behind: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("POST /v1/ns/n/locks HTTP/1.1\r\nHost: l\r\nContent-Length: {}\r\n\r\n", LOCK.len());
    stream.write_all(format!("{head}{LOCK}{behind}").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    stream
}

/// All that is answered, which is nothing or that the client has hung up.
async fn is_told_of_no_grant(mut stream: TcpStream) {
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer));
    read.await.expect("the hang-up is noticed").expect("an answer, or none");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.is_empty() || answer.contains("ClientHungUp"), "{answer}");
}

const BEHIND: [&str; 3] = ["", "\r\n", "GET /healthz HTTP/1.1\r\nHost: l\r\n\r\n"];

/// Nothing is answered while the gate is closed, so it is the hang-up that ends the wait.
#[tokio::test]
async fn who_hangs_up_waits_no_more_whatever_it_sent_before() {
    for behind in BEHIND {
        let server = start().await;
        let _closed = server.fake.gate.lock().await;
        is_told_of_no_grant(ask_and_hang_up(&server, behind).await).await;
    }
}

/// The grant is there at once; but the client had hung up by then.
#[tokio::test]
async fn a_client_that_has_hung_up_is_told_of_no_grant() {
    for behind in BEHIND {
        let server = start().await;
        is_told_of_no_grant(ask_and_hang_up(&server, behind).await).await;
        // The connection may end before the grant is taken back.
        let is_held = || matches!(server.fake.asked.lock().unwrap()[..], [_]);
        let taken_back = async {
            while is_held() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), taken_back).await.expect("the grant is taken back");
        let asked = server.fake.asked.lock().unwrap();
        let commands: Vec<&Command> = asked.iter().map(|request| &request.command).collect();
        match commands[..] {
            // It was noticed before anything was asked.
            [] => {}
            [Command::Locks(LockCommand::Acquire(wanted)), Command::Locks(LockCommand::Abandon(gone))] => {
                assert_eq!(*gone, wanted.id, "{behind:?}");
            }
            _ => panic!("{behind:?}: {commands:?}"),
        }
    }
}

/// The client hangs up when its lock is granted. The connection ends while the grant is taken back, and that must not be
/// cancelled with it.
#[tokio::test]
async fn a_grant_to_a_client_that_has_gone_is_taken_back() {
    use std::io::Write;
    let server = start().await;
    let mut client = std::net::TcpStream::connect(server.address).unwrap();
    *server.fake.hangs_up.lock().unwrap() = Some(client.try_clone().unwrap());
    let body = r#"{"key_values": {"k": 1}, "ttl": "1h"}"#;
    let length = body.len();
    write!(client, "POST /v1/locks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    // The copy in the backend is the last one.
    drop(client);
    let taken_back = async {
        loop {
            let asked = server.fake.asked.lock().unwrap().last().map(|request| request.command.clone());
            if let Some(Command::Locks(LockCommand::Abandon(_))) = asked {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), taken_back).await.expect("it is taken back");
}
