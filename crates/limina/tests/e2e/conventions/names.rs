//! Names and ids: any 1–256 bytes of printable UTF-8, percent-encoded in paths.

use serde_json::json;

use crate::harness::Server;
use crate::ledger::encode;
use crate::raw;

fn good_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "0",
        "-",
        "_",
        "~",
        "...",
        ".a",
        "a.",
        "a/b",
        "/",
        "//",
        "a//b",
        "../up",
        "with space",
        " ",
        "+",
        "a+b",
        "100%",
        "%2F",
        "%",
        "%zz",
        "?",
        "a?b=c",
        "#",
        "a#b",
        "&",
        "a&b",
        ";",
        ":",
        "@",
        "\\",
        "\"",
        "'",
        "<>",
        "[x]",
        "{name}",
        "batch",
        "limits",
        "ünïcode",
        "日本語",
        "🌮",
        "\u{a0}",
        "\u{feff}",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(256));
    names.push("ж".repeat(128));
    names.push("🌮".repeat(64));
    names
}

#[test]
fn percent_encoded_names_are_found() {
    let mut server = Server::fresh();
    let ledger = server.ledger();
    for name in good_names() {
        let reply = ledger.post("/limits", json!({"name": name}));
        assert_eq!(reply.status, 201, "{name:?} → {}", reply.text);
        let reply = ledger.hold(&name, &[(&name, 1)]);
        assert_eq!(reply.status, 200, "{name:?} → {}", reply.text);
    }
    server.restart();
    let ledger = server.ledger();
    for name in good_names() {
        for path in [format!("/limits/{}", encode(&name)), format!("/operations/{}", encode(&name))] {
            let reply = ledger.get(&path);
            assert_eq!(reply.status, 200, "{name:?} at {path} → {}", reply.text);
        }
        ledger.limit(&name).ok().has("name", name.as_str());
        ledger.operation(&name).ok().has("operation_id", name.as_str());
        assert_eq!(ledger.entries(&name).len(), 1, "{name:?}");
        ledger.patch(&name, json!({"ceiling": 5})).ok().has("ceiling", 5);
        ledger.values_as_of(&name, &[&name]).ok().value(&name, 0, 1);
    }
    let mut listed = ledger.limit_names(10);
    listed.sort();
    let mut names = good_names();
    names.sort();
    assert_eq!(listed, names);
}

/// The letter case of hex digits does not matter, nor does unnecessary encoding. A plus sign is not a space.
#[test]
fn a_path_is_decoded_once() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create_all(&["a/b", "a%2Fb", "p+q", "plain"]);
    for (path, name) in [
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("%61%2F%62", "a/b"),
        ("a%252Fb", "a%2Fb"),
        ("p+q", "p+q"),
        ("p%2Bq", "p+q"),
        ("%70lain", "plain"),
    ] {
        let reply =
            raw::ask(server.address(), raw::request("GET", &format!("/v1/ledger/limits/{path}"), "", b""));
        assert_eq!((reply.status, &reply.body["name"]), (200, &json!(name)), "{path} → {}", reply.text);
    }
    ledger.get("/limits/p%20q").refused(404, "LimitNotFound");
}

/// No path causes a crash or a 500.
#[test]
fn invalid_names_are_refused_in_paths() {
    let server = Server::fresh();
    server.ledger().create("a");
    let long = "x".repeat(257);
    let names =
        ["%00", "%0A", "a%7Fb", "%C2%85", "%FF", "%C0%AF", "%ED%A0%80", "%2E", "%2e%2e", ".", "..", &long];
    for name in names {
        for path in [
            format!("/v1/ledger/limits/{name}"),
            format!("/v1/ledger/limits/{name}/entries"),
            format!("/v1/ledger/operations/{name}"),
            format!("/v1/ns/{name}/ledger/limits"),
            format!("/v1/ns/{name}/ledger/limits/a"),
        ] {
            let reply = raw::ask(server.address(), raw::request("GET", &path, "", b""));
            let code = reply.code().to_owned();
            assert!([400, 404].contains(&reply.status), "GET {path} → {} {}", reply.status, reply.text);
            reply.clone().refused(reply.status, &code);
        }
        let body = json!({"name": "b"}).to_string();
        let path = format!("/v1/ns/{name}/ledger/limits");
        let reply = raw::ask(server.address(), raw::request("POST", &path, "", body.as_bytes()));
        assert!([400, 404].contains(&reply.status), "POST {path} → {} {}", reply.status, reply.text);
    }
    // A percent sign without two hex digits is refused, or stands for itself. Then it is 404, because there is no limit of that name.
    for name in ["%zz", "%", "%2"] {
        let path = format!("/v1/ledger/limits/{name}");
        let reply = raw::ask(server.address(), raw::request("GET", &path, "", b""));
        assert!([400, 404].contains(&reply.status), "GET {path} → {} {}", reply.status, reply.text);
    }
    let listed = crate::shape::namespaces(&server.get("/v1/ns").ok().body);
    assert_eq!(listed, ["default"], "no namespace of a bad name came into being");
}
