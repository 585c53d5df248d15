//! Lists that are longer than a page, and commands that follow something endless.

use crate::harness::{LIMINA, Server};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// 16 holds with 64 new limits each make 1,024 limits: more than a page of 1,000.
#[test]
fn lists_have_as_many_items_as_requested() {
    let server = Server::fresh();
    let change = |limit: usize| json!({"limit_name": format!("l{limit:04}"), "value": 1});
    for hold in 0..16 {
        let changes: Vec<Value> = (hold * 64..(hold + 1) * 64).map(change).collect();
        let body = json!({"operation_id": format!("o{hold}"), "changes": changes, "create_missing": true});
        server.ledger().post("/hold", body).ok();
    }
    let list = |flags: &[&str]| {
        let output = Command::new(LIMINA)
            .env("LIMINA_URL", server.url(""))
            .args(["ledger", "limits", "-o", "json"])
            .args(flags)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let some = list(&["--limit", "1010"]);
    let items = some["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[1009]["name"], &some["next"]), (1010, &json!("l1009"), &json!("l1009")));
    let all = list(&["--all"]);
    assert_eq!((all["items"].as_array().unwrap().len(), &all["next"]), (1024, &Value::Null));
}

/// `limina refusals tail | head -1` ends, although no further request is refused.
#[test]
fn a_following_command_ends_when_its_reader_is_gone() {
    let server = Server::fresh();
    server.ledger().post("/commit", json!({"operation_id": "unknown"})).refused(404, "OperationNotFound");
    server.events().only_once("s", "1h");
    server.events().submit("s", "e").created();
    for (flags, first) in
        [(["refusals", "tail", ""], "OperationNotFound"), (["events", "tail", "s"], "incubating")]
    {
        let mut tail = Command::new(LIMINA)
            .env("LIMINA_URL", server.url(""))
            .args(flags.iter().filter(|flag| !flag.is_empty()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(tail.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains(first), "{line}");
        assert!(tail.wait().unwrap().success(), "{flags:?}");
    }
}
