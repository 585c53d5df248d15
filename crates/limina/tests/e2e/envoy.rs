//! Envoy's rate limit service: gRPC, JSON, health, rights, and a configuration that the server follows. `cargo xtask
//! envoy` tests with the real Envoy.

use crate::{
    harness::{LIMINA, Server, eventually},
    reply::Reply,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
};

const SHOULD_RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

fn limits(per_year: u32) -> String {
    let limit = format!("rate_limit: {{unit: year, requests_per_unit: {per_year}}}");
    format!("domain: edge\ndescriptors:\n  - key: user\n    {limit}\n    detailed_metric: true\n")
}

fn request(domain: &str, user: &str) -> Value {
    json!({"domain": domain, "descriptors": [{"entries": [{"key": "user", "value": user}]}]})
}

#[track_caller]
fn ask(server: &Server, domain: &str, user: &str) -> (u16, Value) {
    let answer =
        server.http().post(server.url("/json")).body(request(domain, user).to_string()).send().unwrap();
    (answer.status().as_u16(), answer.json().unwrap())
}

/// A length-delimited field of protobuf.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()][..], bytes].concat()
}

/// The same request as `ask` sends, as a gRPC message.
fn message(domain: &str, user: &str) -> Vec<u8> {
    let entry = [field(1, b"user"), field(2, user.as_bytes())].concat();
    framed(&[field(1, domain.as_bytes()), field(2, &field(1, &entry))].concat())
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

/// Calls a gRPC method. Returns the status, which an error has in the head, and the message.
#[track_caller]
fn call(origin: &str, method: &str, token: Option<&str>, body: Vec<u8>) -> (Option<u16>, Vec<u8>) {
    let client = reqwest::blocking::Client::builder().http2_prior_knowledge().build().unwrap();
    let mut call =
        client.post(format!("{origin}/{method}")).header("content-type", "application/grpc").body(body);
    if let Some(token) = token {
        call = call.bearer_auth(token);
    }
    let answer = call.send().unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "application/grpc");
    let status = answer.headers().get("grpc-status").map(|status| status.to_str().unwrap().parse().unwrap());
    (status, answer.bytes().unwrap().to_vec())
}

/// The code of a response, which is its first field.
#[track_caller]
fn code(answer: &(Option<u16>, Vec<u8>)) -> u8 {
    assert_eq!(answer.0, None, "the call has failed");
    assert_eq!((answer.1[0], answer.1[5]), (0, 0x08), "{answer:?}");
    answer.1[6]
}

const OK: u8 = 1;
const OVER_LIMIT: u8 = 2;

#[test]
fn envoys_limits_are_rules() {
    let home = tempfile::tempdir().unwrap();
    let [limits_file, config] = ["edge.yaml", "limina.toml"].map(|name| home.path().join(name));
    fs::write(&limits_file, limits(2)).unwrap();
    fs::write(&config, "[envoy.egde]\ncount_refused = \"always\"\n").unwrap();
    let [limits_file, config] = [&limits_file, &config].map(|path| path.to_str().unwrap());
    let flags = ["--envoy-config", limits_file, "--envoy-listen", "127.0.0.1:0", "--config", config];
    let server = Server::start_with(home.path().join("data"), &flags);
    let log = server.log();
    assert!(log.contains("a setting of Envoy's configuration has no effect"), "{log}");
    assert!(
        log.contains("a domain that Envoy's configuration does not have") && log.contains("egde"),
        "{log}"
    );
    let (_, own) = log.split_once("Envoy's rate limit service listens on ").expect("the address in the log");
    let origins = [server.url(""), own.split_whitespace().next().unwrap().to_owned()];

    // gRPC and JSON count in the same limits.
    let (status, answer) = ask(&server, "edge", "ann");
    assert_eq!((status, &answer["overallCode"]), (200, &json!("OK")));
    let limit = json!({"requestsPerUnit": 2, "unit": "YEAR"});
    assert_eq!(
        (&answer["statuses"][0]["currentLimit"], &answer["statuses"][0]["limitRemaining"]),
        (&limit, &json!(1))
    );
    assert_eq!(code(&call(&origins[0], SHOULD_RATE_LIMIT, None, message("edge", "ann"))), OK);
    assert_eq!(code(&call(&origins[1], SHOULD_RATE_LIMIT, None, message("edge", "ann"))), OVER_LIMIT);
    let (status, answer) = ask(&server, "edge", "ann");
    assert_eq!((status, &answer["statuses"][0]["code"]), (429, &json!("OVER_LIMIT")));
    assert_eq!(
        ask(&server, "elsewhere", "ann").1,
        json!({"overallCode": "OK", "statuses": [{"code": "OK"}]})
    );

    // Clients can read the rules, and may override them.
    let rule = server.get("/v1/ns/edge/limiter/rules/user").body.clone();
    assert_eq!((&rule["managed_by"], &rule["limit"]), (&json!("envoy"), &json!(2)));
    let more = json!({"name": "ann", "key_values": {"0:user": "ann"}, "limit": 3});
    let made = server
        .http()
        .post(server.url("/v1/ns/edge/limiter/rules/user/overrides"))
        .body(more.to_string())
        .send();
    assert_eq!(made.unwrap().status(), 201);
    assert_eq!(ask(&server, "edge", "ann").1["statuses"][0]["currentLimit"]["requestsPerUnit"], 3);
    assert_eq!(ask(&server, "edge", "ann").0, 429);

    // Requests that cannot be decided get gRPC statuses.
    for origin in &origins {
        assert_eq!(call(origin, SHOULD_RATE_LIMIT, None, message("", "ann")).0, Some(3));
        assert_eq!(call(origin, SHOULD_RATE_LIMIT, None, framed(b"\xff\xff")).0, Some(3));
        assert_eq!(call(origin, SHOULD_RATE_LIMIT, None, b"junk".to_vec()).0, Some(3));
        let healthy = framed(&[0x08, 1]);
        assert_eq!(call(origin, "grpc.health.v1.Health/Check", None, framed(&[])), (None, healthy));
        assert_eq!(call(origin, "grpc.health.v1.Health/Check", None, framed(&field(1, b"else"))).0, Some(5));
    }
    // Envoy's port serves nothing else.
    assert_eq!(server.http().get(format!("{}/v1/ns", origins[1])).send().unwrap().status(), 404);
    assert_eq!(server.http().post(server.url("/json")).body("{}").send().unwrap().status(), 400);
    // Refusals and metrics are those of checks.
    let metrics = server.get("/metrics").text.clone();
    assert!(
        metrics
            .contains(r#"limina_limiter_rule_checks_total{namespace="edge",rule="user",result="refused"}"#),
        "{metrics}"
    );
    assert!(metrics.contains(r#"operation="should_rate_limit",status="429""#), "{metrics}");
}

/// A watch reports the server's health at once, and ends cleanly when the server stops.
#[test]
fn health_can_be_watched() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Server::start(home.path());
    let client = reqwest::blocking::Client::builder().http2_prior_knowledge().timeout(None).build().unwrap();
    let watch = |service: &[u8]| {
        let call = client.post(server.url("/grpc.health.v1.Health/Watch"));
        let body = if service.is_empty() { framed(&[]) } else { framed(&field(1, service)) };
        call.header("content-type", "application/grpc").body(body).send().unwrap()
    };
    let (mut all, mut unknown) = (watch(b""), watch(b"else"));
    let mut first = [0; 7];
    all.read_exact(&mut first).unwrap();
    assert_eq!(first[..], framed(&[0x08, 1]), "it serves");
    unknown.read_exact(&mut first).unwrap();
    assert_eq!(first[..], framed(&[0x08, 3]), "the service is unknown");
    // A client that watches needs no token, so a connection may have only a few watches.
    let more = [watch(b""), watch(b""), watch(b"")];
    let statuses = more
        .each_ref()
        .map(|answer| answer.headers().get("grpc-status").map(reqwest::header::HeaderValue::as_bytes));
    assert_eq!(statuses, [None, None, Some(&b"14"[..])]);
    drop(more);
    server.stop();
    let mut rest = Vec::new();
    all.read_to_end(&mut rest).expect("the stream ends, and is not cut off");
    assert!(rest.is_empty() || rest == framed(&[0x08, 2]), "{rest:?}");
}

#[test]
fn the_configuration_is_followed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("limits");
    fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    write("edge.yaml", &limits(1));
    write(".hidden", "nonsense: [");
    let server = Server::start_with(home.path().join("data"), &["--envoy-config", folder.to_str().unwrap()]);
    assert_eq!((ask(&server, "edge", "ann").0, ask(&server, "edge", "ann").0), (200, 429));
    // A larger limit, and another domain.
    write("edge.yaml", &limits(2));
    write("core.yaml", &limits(1).replace("edge", "core"));
    eventually(|| (ask(&server, "core", "ann").0 == 429).then_some(())).expect("the new domain");
    assert_eq!((ask(&server, "edge", "ann").0, ask(&server, "edge", "ann").0), (200, 429));
    // A configuration is applied completely or not at all: one broken file changes nothing.
    write("core.yaml", "domain: core\ndescriptors:\n  - key: user\n    ratelimit: {}\n");
    write("edge.yaml", &limits(9));
    let said = "core.yaml: line 4: the key `ratelimit` is unknown";
    eventually(|| server.log().contains(said).then_some(())).expect("the reason in the log");
    assert_eq!((ask(&server, "edge", "ann").0, ask(&server, "core", "ann").0), (429, 429));
    // A domain that was removed has no limits.
    fs::remove_file(folder.join("core.yaml")).unwrap();
    eventually(|| (ask(&server, "core", "ann").0 == 200).then_some(())).expect("the domain has no limits");
    assert_eq!(ask(&server, "edge", "ann").0, 200);
    assert_eq!(server.get("/v1/ns/core/limiter/rules").body["items"], json!([]));
}

/// Until a namespace has the new rules, its old limits apply: a descriptor whose rule is missing would not be limited.
#[test]
fn a_domain_that_refuses_its_new_rules_keeps_its_limits() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("edge.yaml");
    fs::write(&config, limits(1)).unwrap();
    let mut server =
        Server::start_with(home.path().join("data"), &["--envoy-config", config.to_str().unwrap()]);
    assert_eq!((ask(&server, "edge", "ann").0, ask(&server, "edge", "ann").0), (200, 429));
    // A client has created a rule with the name of a new limit.
    let set = "/v1/ns/edge/limiter/rule-sets/mine";
    let rule = json!({"name": "plan", "group_by": ["plan"], "limit": 1});
    let put = server.http().put(server.url(set)).json(&json!({"rules": [rule]}));
    assert_eq!(Reply::to(put).status, 201);
    let limit = "rate_limit: {unit: year, requests_per_unit: 2}";
    let other = format!("  - key: plan\n    {limit}\n  - key: user\n    value: ann\n    {limit}\n");
    fs::write(&config, format!("domain: edge\ndescriptors:\n{other}")).unwrap();
    let said = r#"these rules belong to other rule sets: "plan" of "mine""#;
    eventually(|| server.log().contains(said).then_some(())).expect("the reason in the log");
    assert_eq!(ask(&server, "edge", "ann").0, 429);
    // The conflict is gone.
    assert_eq!(server.delete(set).status, 204);
    server.process().signal(Signal::HUP);
    let limit = |answer: &Value| answer["statuses"][0]["currentLimit"]["requestsPerUnit"].clone();
    eventually(|| (limit(&ask(&server, "edge", "ann").1) == 2).then_some(())).expect("the new limit");
}

/// If its rule is missing, a descriptor would not be limited, so the request fails.
#[test]
fn a_domain_without_its_rules_refuses_requests() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("edge.yaml");
    fs::write(&config, limits(1)).unwrap();
    let arguments = ["--envoy-config", config.to_str().unwrap()];
    let server = Server::start_with(home.path().join("data"), &arguments);
    assert_eq!((ask(&server, "edge", "ann").0, ask(&server, "edge", "ann").0), (200, 429));
    // The namespace is deleted, and with it its rules. They are created again when a request misses one.
    assert_eq!(server.delete("/v1/ns/edge").status, 204);
    assert_eq!((eventually_limited(&server, "ann"), ask(&server, "edge", "ann").0), (200, 429));
    // At the next start the namespace refuses the rules, because another set has one of them.
    let set = "/v1/ns/edge/limiter/rule-sets/mine";
    let rule = json!({"name": "plan", "group_by": ["plan"], "limit": 1});
    let put = server.http().put(server.url(set)).json(&json!({"rules": [rule]}));
    assert_eq!(Reply::to(put).status, 201);
    drop(server);
    let of_bob = limits(1).replace("key: user", "key: user\n    value: bob");
    let of_plan = "  - key: plan\n    rate_limit: {unit: year, requests_per_unit: 1}\n";
    fs::write(&config, format!("{of_bob}{of_plan}")).unwrap();
    let server = Server::start_with(home.path().join("data"), &arguments);
    let (status, problem) = ask(&server, "edge", "bob");
    assert_eq!((status, &problem["code"]), (503, &json!("ShardUnavailable")));
    // The file is corrected. The server notices that, although requests miss their rule all the time.
    fs::write(&config, of_bob).unwrap();
    assert_eq!((eventually_limited(&server, "bob"), ask(&server, "edge", "bob").0), (200, 429));
}

/// Repeats the request until the status is not 503. Returns that status.
fn eventually_limited(server: &Server, user: &str) -> u16 {
    eventually(|| Some(ask(server, "edge", user).0).filter(|status| *status != 503)).expect("an answer")
}

#[test]
fn a_domain_needs_a_token_with_its_right() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("edge.yaml");
    fs::write(&config, limits(5)).unwrap();
    let made = Command::new(LIMINA)
        .args(["token", "new", "--name", "envoy", "--allow", "edge/limiter:use"])
        .output();
    let made = String::from_utf8(made.unwrap().stdout).unwrap();
    let (token, block) = made.split_once("\n\n").unwrap();
    let tokens = home.path().join("tokens.toml");
    fs::write(&tokens, block).unwrap();
    let flags = ["--envoy-config", config.to_str().unwrap(), "--tokens", tokens.to_str().unwrap()];
    let server = Server::start_with(home.path().join("data"), &flags);
    let origin = format!("http://{}", server.address());
    let ask =
        |token: Option<&str>, domain: &str| call(&origin, SHOULD_RATE_LIMIT, token, message(domain, "ann"));
    assert_eq!(ask(None, "edge").0, Some(16));
    assert_eq!(ask(Some("limina_wrong"), "edge").0, Some(16));
    assert_eq!(ask(Some(token), "core").0, Some(7));
    assert_eq!(code(&ask(Some(token), "edge")), OK);
    // Health needs none.
    assert_eq!(call(&origin, "grpc.health.v1.Health/Check", None, framed(&[])).0, None);
}

#[test]
fn a_configuration_is_checked_without_a_server() {
    #[track_caller]
    fn check(path: &Path, succeeds: bool, expect: &str) {
        let mut command = Command::new(LIMINA);
        command.args(["rules", "check", "--envoy"]).arg(path).stdin(Stdio::null());
        let output = command.output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), succeeds, "{text}");
        assert!(text.contains(expect), "{text}");
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("edge.yaml");
    fs::write(&file, limits(5)).unwrap();
    check(&file, true, "edge: 1 rule\nnote: detailed_metric has no effect");
    check(home.path(), true, "edge: 1 rule");
    fs::write(home.path().join("core.yaml"), "domain: core\ndescriptors:\n  - value: x\n").unwrap();
    check(home.path(), false, "problem: core.yaml: line 3: the descriptor has no key");
    check(&home.path().join("none"), false, "cannot be read");
}
