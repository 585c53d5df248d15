//! Tokens at the real server: the server follows the token file, and everything that a removed token has open ends.

use crate::{
    harness::{DEADLINE, LIMINA, Server},
    stomp::Stomp,
};
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::Command,
    time::{Duration, Instant},
};

/// A new token, and the block for the file.
fn new_token(name: &str, rights: &[&str]) -> (String, String) {
    let made =
        Command::new(LIMINA).args(["token", "new", "--name", name, "--allow"]).args(rights).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let text = String::from_utf8(made.stdout).unwrap();
    let (token, block) = text.split_once("\n\n").unwrap();
    assert!(token.starts_with("limina_") && token.len() == 50, "{token}");
    (token.to_owned(), block.to_owned())
}

fn ask(server: &Server, token: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let client = reqwest::blocking::Client::new();
    let request = client.request(method, format!("http://{}{path}", server.address())).bearer_auth(token);
    let answer = request.body(body.to_owned()).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap_or(Value::Null))
}

#[test]
fn an_id_leads_from_a_request_to_the_log_and_the_audit() {
    const SENT: &str = "deploy-42.put-stream";
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tokens.toml");
    let (operator, first) = new_token("operator", &["*/*:manage"]);
    let (reader, second) = new_token("reader", &["shop/events:read"]);
    std::fs::write(&file, format!("{first}\n{second}")).unwrap();
    let flags = ["--tokens", file.to_str().unwrap()];
    let server = Server::start_with(home.path().join("data"), &flags);
    let client = reqwest::blocking::Client::new();
    let url = format!("http://{}/v1/ns/shop/events/s", server.address());
    let stream = r#"{"mode": "only_once", "duration": "10s"}"#;
    let put =
        client.put(&url).bearer_auth(&operator).header("x-request-id", SENT).body(stream).send().unwrap();
    assert_eq!((put.status().as_u16(), &put.headers()["x-request-id"]), (201, &SENT.parse().unwrap()));
    // Without an id of its own, a request gets one.
    let delete = client.delete(&url).bearer_auth(&operator).send().unwrap();
    let made = delete.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(delete.status().as_u16(), 204);
    let (_, audit) = ask(&server, &operator, "GET", "/v1/ns/shop/audit", "");
    let ids: Vec<&Value> =
        audit["items"].as_array().unwrap().iter().map(|item| &item["request_id"]).collect();
    assert_eq!(ids, [SENT, &made], "{audit}");
    let denied = client.delete(&url).bearer_auth(&reader).send().unwrap();
    let problem: Value = denied.json().unwrap();
    let denied = problem["request_id"].as_str().unwrap();
    let log = server.log();
    let has_line = |about: &str, id: &str| log.lines().any(|line| line.contains(about) && line.contains(id));
    assert!(has_line("done: delete_stream", &made), "{log}");
    assert!(has_line("denied", denied), "{log}");
}

#[test]
fn the_token_file_is_followed() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tokens.toml");
    let (operator, first) = new_token("operator", &["*/*:manage"]);
    let (reader, second) = new_token("reader", &["shop/events:read"]);
    std::fs::write(&file, format!("{first}\n{second}")).unwrap();
    let flags = ["--tokens", file.to_str().unwrap()];
    let server = Server::start_with(home.path().join("data"), &flags);
    let stream = r#"{"mode": "only_once", "duration": "10s"}"#;
    assert_eq!(ask(&server, &operator, "PUT", "/v1/ns/shop/events/s", stream).0, 201);
    assert_eq!(ask(&server, &reader, "PUT", "/v1/ns/shop/events/s", stream).0, 403);
    assert_eq!(ask(&server, "limina_x", "GET", "/v1/ns/shop/events/s", "").0, 401);
    // The audit shows what the token did, and a broken file changes nothing.
    let (status, audit) = ask(&server, &operator, "GET", "/v1/ns/shop/audit", "");
    assert_eq!(
        (status, &audit["items"][0]["actor"], &audit["items"][0]["action"]),
        (200, &"operator".into(), &"put_stream".into())
    );
    assert_eq!(audit["items"][0]["address"], "127.0.0.1");
    assert_eq!(ask(&server, &operator, "GET", "/v1/audit", "").1["items"], audit["items"]);
    std::fs::write(&file, "[[token]\n").unwrap();
    // The reader follows the stream until its token is removed.
    let mut following = TcpStream::connect(server.address()).unwrap();
    following.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!(
        "GET /v1/ns/shop/events/s/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {reader}\r\n\r\n"
    );
    following.write_all(head.as_bytes()).unwrap();
    let mut lines = BufReader::new(following).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "HTTP/1.1 200 OK");
    let begin = Instant::now();
    while !server.log().contains("the tokens stay as they were") {
        assert!(begin.elapsed() < DEADLINE, "{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ask(&server, &reader, "GET", "/v1/ns/shop/events/s", "").0, 200);
    std::fs::write(&file, first).unwrap();
    // The last chunk, of length 0, ends the stream.
    assert!(lines.map_while(Result::ok).any(|line| line == "0"), "the stream broke, instead of ending");
    assert_eq!(ask(&server, &reader, "GET", "/v1/ns/shop/events/s", "").0, 401);
    assert_eq!(ask(&server, &operator, "DELETE", "/v1/ns/shop", "").0, 204);
    let log = server.log();
    assert!(log.contains("done: delete_namespace") && log.contains("denied: "), "{log}");
    assert!(!log.contains(&operator) && !log.contains(&reader), "a token is in the log");
}

/// A browser cannot set a header of a WebSocket request, so the token comes with CONNECT. Each SUBSCRIBE needs a right
/// of its own.
#[test]
fn a_stomp_client_presents_its_token() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tokens.toml");
    let (operator, first) = new_token("operator", &["*/*:manage"]);
    let (reader, second) = new_token("reader", &["shop/events:read"]);
    std::fs::write(&file, format!("{first}\n{second}")).unwrap();
    let server = Server::start_with(home.path().join("data"), &["--tokens", file.to_str().unwrap()]);
    for namespace in ["shop", "bank"] {
        let (path, stream) =
            (format!("/v1/ns/{namespace}/events/s"), r#"{"mode": "only_once", "duration": "10s"}"#);
        assert_eq!(ask(&server, &operator, "PUT", &path, stream).0, 201);
    }
    let connect = |passcode: Option<&str>| {
        let mut stomp = Stomp::open(&server, &["v12.stomp"]);
        let mut headers = vec![("accept-version", "1.2"), ("heart-beat", "0,0")];
        headers.extend(passcode.map(|passcode| ("passcode", passcode)));
        stomp.send("CONNECT", &headers, "");
        stomp
    };
    for unknown in [None, Some("limina_x")] {
        let mut stomp = connect(unknown);
        stomp.receive().error_naming("Unauthorized");
        stomp.expect_close();
    }
    let mut elsewhere = connect(Some(&reader));
    elsewhere.receive().is("CONNECTED");
    elsewhere.subscribe("1", "/topic/bank/s");
    elsewhere.receive().error_naming("Forbidden");
    let mut following = connect(Some(&reader));
    following.receive().is("CONNECTED");
    following.follow("1", "/topic/shop/s");
    std::fs::write(&file, first).unwrap();
    following.receive().error_naming("Unauthorized");
    following.expect_close();
    assert!(!server.log().contains(&reader), "a token is in the log");
}

#[test]
fn without_tokens_only_loopback_addresses_are_served() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve = |more: &[&str]| {
        let base = ["serve", "--listen", "0.0.0.0:0", "--data", data.to_str().unwrap()];
        let done = Command::new(LIMINA).args(base).args(more).output().unwrap();
        assert!(!done.status.success());
        String::from_utf8(done.stderr).unwrap()
    };
    let told = serve(&[]);
    assert!(told.contains("--tokens") && told.contains("--insecure-no-auth"), "{told}");
    let file = home.path().join("tokens.toml");
    std::fs::write(&file, "[[token]]\nname = \"x\"\nsha256 = \"0\"\nallow = [\"x\"]\n").unwrap();
    let told = serve(&["--tokens", file.to_str().unwrap()]);
    assert!(told.contains("tokens.toml") && told.contains("line 3") && told.contains("line 4"), "{told}");
}
