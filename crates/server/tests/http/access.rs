//! Tokens, rights, and browsers.

use super::*;
use limina_access::{Access, Secret, parse};
use limina_engine::audit::{Action, Target};

/// A token with these rights and other lines of its block.
pub(super) struct Entry {
    pub(super) secret: Secret,
    lines: String,
}

pub(super) fn entry(name: &str, rights: &[&str], more: &str) -> Entry {
    let lines = format!("name = \"{name}\"\nallow = {rights:?}\n{more}\n");
    Entry { secret: Secret::draw().unwrap(), lines }
}

fn file(entries: &[&Entry]) -> limina_access::Tokens {
    let block = |entry: &&Entry| format!("[[token]]\nsha256 = \"{}\"\n{}", entry.secret.hash(), entry.lines);
    parse(&entries.iter().map(block).collect::<String>()).unwrap()
}

pub(super) async fn protected(entries: &[&Entry]) -> (Server, Access) {
    let access = Access::new(file(entries));
    let policy = Policy::tokens(access.clone());
    let server = start_app(AppOptions { policy, ..AppOptions::default() }).await;
    (server, access)
}

impl Server {
    fn asks(&self, entry: &Entry, method: &str, path: &str) -> reqwest::RequestBuilder {
        self.request(method, path).bearer_auth(entry.secret.text())
    }
}

/// What each operation needs, as the contract says it. Everything that is not named here only reads.
fn level(method: &str, path: &str) -> &'static str {
    let using = [
        "/limiter/check",
        "/limiter/check/batch",
        "/limiter/counters",
        "/limiter/leases",
        "/limiter/leases/{lease_id}",
        "/limiter/leases/{lease_id}/heartbeat",
        "/locks",
        "/locks/{lock_id}",
        "/locks/{lock_id}/heartbeat",
        "/ledger/hold",
        "/ledger/hold/batch",
        "/ledger/commit",
        "/ledger/commit/batch",
        "/ledger/rollback",
        "/ledger/rollback/batch",
        "/ledger/extend",
        "/only-once-event",
        "/strictly-once-event",
        "/decisions",
        "/decisions/batch",
        "/decisions/commit/batch",
        "/decisions/rollback/batch",
        "/decisions/{operation_id}/commit",
        "/decisions/{operation_id}/rollback",
        "/decisions/{operation_id}/heartbeat",
    ];
    let managing = [
        "/limiter/rules",
        "/limiter/rules/{name}",
        "/limiter/rules/{name}/overrides",
        "/limiter/rules/{name}/overrides/{override}",
        "/limiter/rule-sets/{set}",
        "/limiter/counters/set",
        "/ledger/limits",
        "/ledger/limits/{name}",
    ];
    match (method, path) {
        ("GET", _) => "read",
        ("POST", "/events/{stream}") => "use",
        (_, "/events/{stream}") => "manage",
        (_, path) if using.contains(&path) => "use",
        (_, path) if managing.contains(&path) => "manage",
        _ => "read",
    }
}

/// The right that an operation of the reference needs in the namespace `shop`, or `default`; an empty text if any token will do,
/// and none if it is open.
fn right(method: &str, path: &str) -> Option<String> {
    let (namespace, rest) = match path.strip_prefix("/v1/ns/{namespace}") {
        Some(rest) => ("shop", rest),
        None => ("default", path.strip_prefix("/v1").unwrap_or(path)),
    };
    let family = rest.split('/').nth(1).unwrap_or_default();
    Some(match path {
        "/healthz" | "/readyz" | "/openapi.json" | "/docs" => return None,
        "/metrics" | "/v1/cluster" => "cluster:read".to_owned(),
        "/v1/ns" | "/ws" | "/time-sync" => String::new(),
        "/v1/audit" => "?/?:manage".to_owned(),
        "/v1/refusals/stream" => "?/?:read".to_owned(),
        "/v1/ns/{namespace}/refusals/stream" => format!("{namespace}/?:read"),
        "/v1/ns/{namespace}/audit" => format!("{namespace}/?:manage"),
        "/v1/ns/{namespace}" => format!("{namespace}/*:manage"),
        "/only-once-event" | "/strictly-once-event" => "default/events:use".to_owned(),
        _ => format!("{namespace}/{family}:{}", level(method, rest)),
    })
}

/// Whether a right is enough for another, without patterns.
fn includes(right: &str, need: &str) -> bool {
    let levels = ["read", "use", "manage"];
    match (right, need) {
        ("cluster:admin", _) | (_, "") => true,
        (right, need) if right == need => true,
        _ => {
            let parts = |text: &str| -> Option<(String, String, usize)> {
                let (namespace, rest) = text.split_once('/')?;
                let (family, level) = rest.split_once(':')?;
                let level = levels.iter().position(|word| *word == level)?;
                Some((namespace.to_owned(), family.to_owned(), level))
            };
            let (Some(right), Some(need)) = (parts(right), parts(need)) else { return false };
            let is_there = need.0 == "?" || right.0 == need.0;
            is_there && (right.1 == "*" || need.1 == "?" || right.1 == need.1) && right.2 >= need.2
        }
    }
}

/// Every operation of the reference, with every right: it passes exactly if the contract says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_needs_its_right() {
    let mut rights: Vec<String> = ["cluster:read", "cluster:admin"].map(str::to_owned).into();
    for namespace in ["shop", "default", "other"] {
        for family in ["limiter", "locks", "events", "ledger", "decisions", "*"] {
            rights.extend(["read", "use", "manage"].map(|level| format!("{namespace}/{family}:{level}")));
        }
    }
    let entries: Vec<Entry> = rights.iter().map(|right| entry("t", &[right], "")).collect();
    let (server, _) = protected(&entries.iter().collect::<Vec<_>>()).await;
    let document: Json = serde_json::from_str(OPENAPI_JSON).unwrap();
    let mut operations = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys().map(|method| method.to_uppercase()) {
            operations += 1;
            let need = right(&method, path);
            let called = path.replace("{namespace}", "shop").replace(['{', '}'], "");
            let bare = server.send(&method, &called, "").await;
            match &need {
                None => assert_eq!(bare.status(), 200, "{method} {path}"),
                // The token may come with the CONNECT frame.
                Some(_) if path == "/ws" => assert_eq!(bare.status(), 400),
                Some(_) => {
                    assert_eq!(bare.headers()["www-authenticate"], "Bearer", "{method} {path}");
                    problem_of(bare, 401, "Unauthorized").await;
                }
            }
            let Some(need) = need else { continue };
            for (right, entry) in rights.iter().zip(&entries) {
                let answer = server.asks(entry, &method, &called).send().await.unwrap();
                if includes(right, &need) {
                    assert!(![401, 403].contains(&answer.status().as_u16()), "{right} for {method} {path}");
                } else {
                    assert_eq!(answer.status(), 403, "{right} for {method} {path}, which needs {need}");
                    let needs = problem_of(answer, 403, "Forbidden").await["needs"].clone();
                    assert_eq!(needs, need.replace('?', "*"), "{method} {path}");
                }
            }
        }
    }
    assert!(operations > 100, "only {operations} operations were tried");
}

#[tokio::test]
async fn a_token_is_presented_in_one_way() {
    let one = entry("one", &["*/*:read"], "");
    let (server, access) = protected(&[&one]).await;
    let token = one.secret.text();
    let expired = entry("old", &["*/*:read"], "expires = 2020-01-01");
    for (header, expect) in [
        (format!("Bearer {token}"), 200),
        (format!("bearer {token}"), 200),
        (format!("Bearer {token}x"), 401),
        (format!("Basic {token}"), 401),
        (token.to_owned(), 401),
        ("Bearer ".to_owned(), 401),
        (format!("Bearer {}", expired.secret.text()), 401),
    ] {
        let answer =
            server.request("GET", "/v1/locks").header("authorization", &header).send().await.unwrap();
        assert_eq!(answer.status(), expect, "{header}");
        let body = answer.text().await.unwrap();
        assert!(!body.contains("limina_"), "the token is in {body}");
    }
    let twice = server.asks(&one, "GET", "/v1/locks").bearer_auth("x").send().await.unwrap();
    problem_of(twice, 401, "Unauthorized").await;
    access.replace(file(&[&one, &expired]));
    let answer = server.asks(&expired, "GET", "/v1/locks").send().await.unwrap();
    problem_of(answer, 401, "Unauthorized").await;
}

#[tokio::test]
async fn a_wait_ends_when_the_token_loses_the_right_to_what_it_waits_for() {
    let lock = r#"{"key_values": {"k": 1}, "ttl": "10s", "wait": "1m"}"#;
    let lease = r#"{"key_values": {"k": 1}, "hits": 1, "ttl": "10s", "wait": "1m"}"#;
    let decision =
        r#"{"operation_id": "o", "holds": [{"limit_name": "l", "value": 1}], "ttl": "10s", "wait": "1m"}"#;
    for (path, body, left, lost) in [
        ("/v1/locks", lock, "*/locks:read", "default/locks:use"),
        ("/v1/limiter/leases", lease, "*/locks:use", "default/limiter:use"),
        ("/v1/decisions", decision, "*/decisions:use", "default/ledger:use"),
        ("/v1/decisions", decision, "*/ledger:use", "default/decisions:use"),
    ] {
        let mut one = entry("one", &["*/*:use"], "");
        let (server, access) = protected(&[&one]).await;
        let _nothing_is_answered = server.fake.gate.lock().await;
        let waits = tokio::spawn(server.asks(&one, "POST", path).body(body).send());
        let submitted = server.fake.submitted.notified();
        tokio::time::timeout(Duration::from_secs(60), submitted).await.expect("the request is valid");
        one.lines = format!("name = \"one\"\nallow = [\"{left}\"]\n");
        access.replace(file(&[&one]));
        let answer = tokio::time::timeout(Duration::from_secs(60), waits)
            .await
            .expect("the wait ends")
            .unwrap()
            .unwrap();
        assert_eq!(problem_of(answer, 403, "Forbidden").await["needs"], lost, "{path}");
    }
}

/// With other rights, other items of the batch are done. So the answer that is kept does not belong to the second request.
#[tokio::test]
async fn a_batch_under_the_same_key_is_another_one_after_its_rights_have_changed() {
    let mut one = entry("one", &["*/decisions:use", "*/limiter:use"], "");
    let (server, access) = protected(&[&one]).await;
    let body = r#"{"operations": [
        {"operation_id": "h", "holds": [{"limit_name": "l", "value": 1}], "ttl": "10s"},
        {"operation_id": "c", "checks": [{"key_values": {"k": 1}}], "ttl": "10s"}]}"#;
    let mut fingerprints = Vec::new();
    for rights in ["", "", ", \"*/ledger:use\""] {
        one.lines = format!("name = \"one\"\nallow = [\"*/decisions:use\", \"*/limiter:use\"{rights}]\n");
        access.replace(file(&[&one]));
        let batch =
            server.asks(&one, "POST", "/v1/decisions/batch").header("idempotency-key", "k").body(body);
        assert_eq!(batch.send().await.unwrap().status(), 200);
        fingerprints.push(server.last_asked().idempotency.unwrap().fingerprint);
    }
    assert_eq!(fingerprints[0], fingerprints[1]);
    assert_ne!(fingerprints[1], fingerprints[2]);
}

#[tokio::test]
async fn the_service_is_told_who_asks_and_keys_belong_to_names() {
    let one = entry("one", &["*/*:manage"], "");
    let (server, _) = protected(&[&one]).await;
    let hold = server.asks(&one, "POST", "/v1/ledger/hold").header("idempotency-key", "k").body(HOLD);
    assert_eq!(hold.send().await.unwrap().status(), 200);
    let asked = server.last_asked();
    assert_eq!(asked.caller.actor, Some(name("one")));
    assert_eq!(asked.caller.address, Some("127.0.0.1".parse().unwrap()));
    let key = asked.idempotency.unwrap();
    assert_eq!((key.owner, key.key), (Some(name("one")), name("k")));
}

#[tokio::test]
async fn a_list_of_namespaces_shows_what_the_token_may_read() {
    let (one, some) = (entry("a", &["n3/locks:read"], ""), entry("b", &["n*/events:use", "x/*:read"], ""));
    let (none, last) = (entry("c", &["cluster:read"], ""), entry("d", &["*4/*:use"], ""));
    let (server, _) = protected(&[&one, &some, &none, &last]).await;
    for (entry, query, expect, next) in [
        (&one, "", vec!["n3"], Json::Null),
        (&one, "?limit=1", vec!["n3"], Json::Null),
        (&one, "?after=n3", vec![], Json::Null),
        (&some, "?limit=2", vec!["n0", "n1"], json!("n1")),
        (&some, "?after=n3", vec!["n4"], Json::Null),
        (&none, "", vec![], Json::Null),
        (&last, "?limit=1", vec!["n4"], Json::Null),
    ] {
        let answer = server.asks(entry, "GET", &format!("/v1/ns{query}")).send().await.unwrap();
        let page: Json = answer.json().await.unwrap();
        let names: Vec<&str> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["namespace"].as_str().unwrap())
            .collect();
        assert_eq!((names, &page["next"]), (expect, &next), "{query}");
    }
}

#[tokio::test]
async fn a_forced_release_needs_more() {
    let (user, operator) = (entry("u", &["*/locks:use"], ""), entry("o", &["*/locks:manage"], ""));
    let (server, _) = protected(&[&user, &operator]).await;
    let path = "/v1/locks/id?force=true";
    let answer = server.asks(&user, "DELETE", path).send().await.unwrap();
    assert_eq!(problem_of(answer, 403, "Forbidden").await["needs"], "default/locks:manage");
    server.nothing_asked();
    assert_eq!(server.asks(&operator, "DELETE", path).send().await.unwrap().status(), 204);
    let own = server.asks(&user, "DELETE", "/v1/locks/id?session_id=s").send().await.unwrap();
    assert_eq!(own.status(), 204);
}

/// A forced release of a part of a decision ends the whole decision.
#[tokio::test]
async fn a_forced_release_of_a_part_needs_decisions_too() {
    use limina_engine::{limiter, locks};
    let operator = entry("o", &["*/locks:manage", "*/limiter:manage"], "");
    let chief = entry("c", &["*/*:manage"], "");
    let (server, _) = protected(&[&operator, &chief]).await;
    let grant = || {
        let grant = super::locks::grant("id");
        locks::Reply::Grant(locks::GrantInfo { operation_id: Some(name("op")), ..grant })
    };
    let lease = || {
        let lease = super::limiter::lease("id");
        limiter::Reply::Lease(limiter::Lease { operation_id: Some(name("op")), ..lease })
    };
    for (path, part) in [
        ("/v1/locks/id?force=true", Outcome::Locks(Ok(grant()))),
        ("/v1/limiter/leases/id?force=true", Outcome::Limiter(Ok(lease()))),
    ] {
        server.fake.script.lock().unwrap().push_back(part);
        let answer = server.asks(&operator, "DELETE", path).send().await.unwrap();
        assert_eq!(problem_of(answer, 403, "Forbidden").await["needs"], "default/decisions:manage");
        // One that is no part of a decision, and one whose part could not be read.
        assert_eq!(server.asks(&operator, "DELETE", path).send().await.unwrap().status(), 204);
        server.answers(Err(Unavailable::ShardUnavailable));
        let answer = server.asks(&operator, "DELETE", path).send().await.unwrap();
        problem_of(answer, 503, "ShardUnavailable").await;
        *server.fake.answer.lock().unwrap() = None;
        assert_eq!(server.asks(&chief, "DELETE", path).send().await.unwrap().status(), 204);
    }
}

/// Making a decision needs `use` in the family of each part; ending it needs decisions alone.
#[tokio::test]
async fn a_decision_needs_the_families_of_its_parts() {
    let families = ["limiter", "ledger", "locks", "events"];
    let all: Vec<String> = families.iter().map(|family| format!("*/{family}:use")).collect();
    let rights = |without: &str| {
        let used = all.iter().filter(|right| !right.contains(without)).map(String::as_str);
        used.chain(["*/decisions:use"]).collect::<Vec<_>>()
    };
    let entries = families.map(|family| entry(family, &rights(family), ""));
    let (only, meter) = (entry("d", &["*/decisions:use"], ""), entry("m", &["*/*:use"], "record = false"));
    let (server, _) = protected(&entries.iter().chain([&only, &meter]).collect::<Vec<_>>()).await;
    let parts = [
        r#""checks": [{"key_values": {"k": 1}}]"#,
        r#""holds": [{"limit_name": "a", "value": 1}]"#,
        r#""locks": [{"key_values": {"k": 1}}]"#,
        r#""event": {"stream": "s", "event": "e"}"#,
    ];
    let ask = async |entry: &Entry, path: &str, body: String| {
        server.asks(entry, "POST", &format!("/v1/decisions{path}")).body(body).send().await.unwrap()
    };
    for (family, part) in families.iter().zip(parts) {
        let body = format!(r#"{{"operation_id": "op", "dry_run": true, {part}}}"#);
        for (other, entry) in families.iter().zip(&entries) {
            let answer = ask(entry, "", body.clone()).await;
            let batch = ask(entry, "/batch", format!(r#"{{"operations": [{body}]}}"#)).await;
            let item = batch.json::<Json>().await.unwrap()["results"][0].clone();
            if family == other {
                let needs = format!("default/{family}:use");
                assert_eq!(problem_of(answer, 403, "Forbidden").await["needs"], needs);
                assert_eq!((&item["status"], &item["needs"]), (&json!(403), &json!(needs)));
            } else {
                assert_eq!(
                    (answer.status().as_u16(), &item["status"]),
                    (200, &json!(200)),
                    "{family} as {other}"
                );
            }
        }
    }
    for (path, body) in [
        ("/op/commit", ""),
        ("/op/rollback", ""),
        ("/op/heartbeat", ""),
        ("/op/commit", r#"{"record": true}"#),
    ] {
        assert_eq!(ask(&only, path, body.to_owned()).await.status(), 200, "{path}");
    }
    assert_eq!(ask(&meter, "/op/commit", r#"{"record": false}"#.to_owned()).await.status(), 200);
    let answer = ask(&meter, "/op/commit", r#"{"record": true}"#.to_owned()).await;
    assert_eq!(problem_of(answer, 403, "Forbidden").await["needs"], "record");
    let batch = ask(
        &meter,
        "/commit/batch",
        r#"{"operations": [{"operation_id": "op", "record": true}]}"#.to_owned(),
    )
    .await;
    assert_eq!(batch.json::<Json>().await.unwrap()["results"][0]["status"], 403);
}

const WAITING: &str = r#"{"key_values": {"a": 1}, "ttl": "10s", "wait": "1m"}"#;

/// A wait ends when its token is removed; and a token has only so many.
#[tokio::test]
async fn a_removed_token_waits_no_longer() {
    let (one, other) = (entry("one", &["*/*:use"], "max_waits = 1"), entry("other", &["*/*:use"], ""));
    let (server, access) = protected(&[&one, &other]).await;
    let closed = server.fake.gate.lock().await;
    let acquire = || server.asks(&one, "POST", "/v1/locks").body(WAITING).send();
    let first = tokio::spawn(acquire());
    // Until the first waits, the second does too: it is abandoned then.
    let refused = loop {
        match tokio::time::timeout(Duration::from_millis(50), acquire()).await {
            Ok(answer) => break answer.unwrap(),
            Err(_abandoned) => continue,
        }
    };
    problem_of(refused, 503, "Overloaded").await;
    access.replace(file(&[&other]));
    problem_of(first.await.unwrap().unwrap(), 401, "Unauthorized").await;
    drop(closed);
}

/// Each stream of refusals reserves memory that all followers share.
#[tokio::test]
async fn a_token_follows_a_few_streams_of_refusals() {
    let all = "/v1/refusals/stream";
    let one = "/v1/ns/shop/refusals/stream";
    let (usual, more) =
        (entry("usual", &["*/*:read"], ""), entry("more", &["*/*:read"], "max_refusal_streams = 20"));
    let few = entry("few", &["shop/locks:read"], "max_streams = 2");
    let (server, access) = protected(&[&usual, &more, &few]).await;
    for (entry, most) in [(&usual, 16), (&more, 20), (&few, 2)] {
        let mut open = Vec::new();
        for path in [all, one].into_iter().cycle().take(most) {
            let answer = server.asks(entry, "GET", path).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{} of {most}", open.len());
            open.push(answer);
        }
        for path in [all, one] {
            let answer = server.asks(entry, "GET", path).send().await.unwrap();
            problem_of(answer, 503, "Overloaded").await;
        }
        // When one has ended, there is room for another.
        open.pop();
        while server.asks(entry, "GET", all).send().await.unwrap().status() != 200 {
            tokio::task::yield_now().await;
        }
    }
    // A stream ends when the token may read nothing there any more.
    for (path, left) in [(all, "cluster:read"), (one, "other/*:read")] {
        let mut one = entry("one", &["shop/locks:use"], "");
        access.replace(file(&[&one]));
        let stream = server.asks(&one, "GET", path).send().await.unwrap();
        assert_eq!(stream.status(), 200);
        one.lines = format!("name = \"one\"\nallow = [\"{left}\"]\n");
        access.replace(file(&[&one]));
        let ended = tokio::time::timeout(Duration::from_secs(60), stream.bytes()).await;
        assert!(ended.is_ok(), "{path} ends");
    }
}

#[tokio::test]
async fn a_token_has_so_many_connections_and_bytes() {
    let one = entry("one", &["*/*:use"], "max_connections = 1\nmax_in_flight_mib = 1");
    let (server, _) = protected(&[&one]).await;
    let ask = |client: Client| {
        let url = format!("http://{}/v1/ledger/hold", server.address);
        client.post(url).bearer_auth(one.secret.text())
    };
    let (first, second) = (Client::new(), Client::new());
    assert_eq!(ask(first.clone()).body(HOLD).send().await.unwrap().status(), 200);
    assert_eq!(ask(first.clone()).body(HOLD).send().await.unwrap().status(), 200);
    problem_of(ask(second.clone()).body(HOLD).send().await.unwrap(), 503, "Overloaded").await;
    let large = format!("{{\"x\": \"{}\"}}", "x".repeat(700 << 10));
    problem_of(ask(first.clone()).body(large).send().await.unwrap(), 503, "Overloaded").await;
    assert_eq!(ask(first.clone()).body(HOLD).send().await.unwrap().status(), 200);
    // When the first connection is closed, another one may take its place.
    drop(first);
    while ask(second.clone()).body(HOLD).send().await.unwrap().status() != 200 {
        tokio::task::yield_now().await;
    }
}

/// The backend has the namespaces n0 to n4.
#[tokio::test]
async fn a_token_has_so_many_namespaces() {
    let (full, other) =
        (entry("a", &["n*/*:use"], "max_namespaces = 5"), entry("b", &["m*/*:use"], "max_namespaces = 1"));
    let few = entry("c", &["*/*:use"], "max_namespaces = 1");
    let (server, _) = protected(&[&full, &other, &few]).await;
    for (entry, namespace, expect) in [
        (&full, "n3", 200),
        (&full, "new", 507),
        (&full, "n0", 200),
        (&other, "m1", 200),
        (&other, "m1", 200),
        // It may use all that exist, although they are more than it may have.
        (&few, "n4", 200),
        (&few, "new", 507),
        (&few, "n0", 200),
    ] {
        let path = format!("/v1/ns/{namespace}/ledger/hold");
        let answer = server.asks(entry, "POST", &path).body(HOLD).send().await.unwrap();
        assert_eq!(answer.status(), expect, "{namespace}");
        if expect == 507 {
            assert_eq!(problem_of(answer, 507, "QuotaExceeded").await["quota"], "namespaces");
        }
    }
    // Following a default stream creates its namespace.
    let followed = server.asks(&few, "GET", "/v1/events/only-once/stream").send().await.unwrap();
    problem_of(followed, 507, "QuotaExceeded").await;
    // Reading creates nothing.
    assert_eq!(server.asks(&full, "GET", "/v1/ns/new/locks").send().await.unwrap().status(), 200);
}

/// Sends a request by hand, and returns its status and its headers of CORS.
async fn browse(server: &Server, head: &str) -> (u16, Option<String>) {
    let answer = server.raw(format!("{head}Connection: close\r\n\r\n").as_bytes()).await;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let allowed = answer.lines().find_map(|line| line.strip_prefix("access-control-allow-origin: "));
    (status, allowed.map(str::to_owned))
}

#[tokio::test]
async fn without_tokens_pages_of_other_sites_are_kept_out() {
    let friend = "https://console.example.com";
    for (policy, is_loopback) in [(Policy::loopback(), true), (Policy::anyone(), false)] {
        let policy = policy.allow_origins(vec![friend.parse().unwrap()]);
        let server = start_app(AppOptions { policy, ..AppOptions::default() }).await;
        let (elsewhere, get) = (if is_loopback { 403 } else { 200 }, "GET /v1/locks HTTP/1.1\r\n");
        for (headers, expect) in [
            ("Host: localhost:7070\r\n", 200),
            ("Host: 127.0.0.1\r\n", 200),
            ("Host: [::1]:80\r\n", 200),
            ("Host: LIMINA.localhost:1\r\n", 200),
            ("Host: evil.example:7070\r\n", elsewhere),
            ("Host: localhost.evil.example\r\n", elsewhere),
            ("Host: 10.0.0.1\r\n", elsewhere),
            ("Host: localhost:7070\r\nOrigin: http://localhost:7070\r\n", 200),
            ("Host: localhost\r\nOrigin: http://localhost\r\n", 200),
            ("Host: localhost:80\r\nOrigin: http://localhost\r\n", 200),
            (
                "Host: localhost:7070\r\nOrigin: http://127.0.0.1:7070\r\n",
                if is_loopback { 200 } else { 403 },
            ),
            ("Host: localhost:7070\r\nOrigin: http://localhost:3000\r\n", 403),
            ("Host: localhost:7070\r\nOrigin: https://evil.example\r\n", 403),
            ("Host: localhost:7070\r\nOrigin: null\r\n", 403),
        ] {
            assert_eq!(browse(&server, &format!("{get}{headers}")).await, (expect, None), "{headers}");
        }
        // Also where the path is open, or unknown.
        let evil = "HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n";
        for path in ["/healthz", "/nowhere", "/v1/ns/"] {
            assert_eq!(browse(&server, &format!("GET {path} {evil}")).await, (403, None));
        }
        let host = "Host: localhost\r\n";
        let friendly = format!("{host}Origin: {friend}\r\n");
        assert_eq!(browse(&server, &format!("{get}{friendly}")).await, (200, Some(friend.to_owned())));
        let preflight = "Access-Control-Request-Method: PUT\r\n";
        for path in ["/v1/limiter/rules/a", "/v1/ns/n/locks"] {
            let options = format!("OPTIONS {path} HTTP/1.1\r\n{preflight}");
            let answer = browse(&server, &format!("{options}{friendly}")).await;
            assert_eq!(answer, (204, Some(friend.to_owned())));
            let evil = format!("{options}{host}Origin: https://evil.example\r\n");
            assert_eq!(browse(&server, &evil).await, (403, None));
        }
        assert_eq!(browse(&server, &format!("OPTIONS /v1/locks HTTP/1.1\r\n{host}")).await, (405, None));
    }
}

/// With tokens a page of another site may ask, as it has no token; but it opens no WebSocket.
#[tokio::test]
async fn with_tokens_only_browsers_are_told_about_origins() {
    let one = entry("one", &["*/*:use"], "");
    let (server, _) = protected(&[&one]).await;
    let host = "HTTP/1.1\r\nHost: limina.example\r\n";
    let token = format!("Authorization: Bearer {}\r\n", one.secret.text());
    assert_eq!(browse(&server, &format!("GET /v1/locks {host}{token}")).await, (200, None));
    let evil = format!("{host}Origin: https://evil.example\r\n");
    assert_eq!(browse(&server, &format!("GET /v1/locks {evil}{token}")).await, (200, None));
    assert_eq!(browse(&server, &format!("GET /v1/locks {evil}")).await, (401, None));
    let preflight = "Access-Control-Request-Method: PUT\r\n";
    assert_eq!(browse(&server, &format!("OPTIONS /v1/locks {evil}{preflight}")).await, (403, None));
    assert_eq!(browse(&server, &format!("GET /ws {evil}Upgrade: websocket\r\n")).await, (403, None));
}

/// The table of rights in the documentation is the one of the code. `UPDATE_DOCS=1` rewrites it.
#[test]
fn the_documented_rights_are_those_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- rights -->\n", "<!-- /rights -->");
    let (before, rest) = text.split_once(begin).expect("the table begins");
    let (table, after) = rest.split_once(end).expect("the table ends");
    let expect = limina_server::rights_table();
    if table != expect && std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{begin}{expect}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(table, expect, "UPDATE_DOCS=1 cargo test -p limina-server rewrites docs/security.md");
}

/// A record of the audit that every token sees which manages this namespace.
fn audited(namespace: &str, time: u64) -> AuditRecord {
    AuditRecord {
        time: Time(time),
        namespace: name(namespace),
        position: Position(time),
        actor: None,
        address: None,
        request_id: None,
        action: Action::DeleteNamespace,
        target: Target::Namespace,
        before: None,
        after: None,
    }
}

/// A client that sees nothing of a long audit gets an empty page in time. The next page goes on behind it, and its `next` shows nothing of
/// what is hidden.
#[tokio::test]
async fn a_page_of_an_audit_ends_in_time() {
    let entry = entry("mine", &["mine*/*:manage"], "");
    let (server, _access) = protected(&[&entry]).await;
    *server.fake.audited.lock().unwrap() = Some(audited("hidden", 0));
    let read_behind = || server.fake.audit_read_behind.load(Ordering::Relaxed);
    let mut path = "/v1/audit".to_owned();
    let mut last = 0;
    for _ in 0..2 {
        let page: Json = server.asks(&entry, "GET", &path).send().await.unwrap().json().await.unwrap();
        assert_eq!(page["items"], json!([]));
        let next = page["next"].as_str().expect("a next page");
        assert!(read_behind() > last, "{} after {last}", read_behind());
        last = read_behind();
        // The fake has a record at each of the following milliseconds. None of them is in the text, in any form.
        let digits = next.strip_prefix('~').expect("a sealed place");
        let number = u64::from_str_radix(digits, 16).expect("a number in hexadecimal");
        assert!(number > last + 1_000_000, "{next} is near {last}");
        path = format!("/v1/audit?after={next}");
    }
    let forged = server.asks(&entry, "GET", "/v1/audit?after=~12").send().await.unwrap();
    assert_eq!(problem_of(forged, 400, "InvalidRequest").await["field"], "after");
}

/// If a token names its namespaces, only their records are read, however many there are of others.
#[tokio::test]
async fn an_audit_is_read_only_where_the_token_manages_something() {
    let entry = entry("mine", &["b/*:manage", "a/*:manage", "c*/*:use"], "");
    let (server, _access) = protected(&[&entry]).await;
    *server.fake.audited.lock().unwrap() = Some(audited("hidden", 0));
    let part = |namespace: &str, times: &[u64], has_more: bool| {
        let items: Vec<AuditRecord> = times.iter().map(|time| audited(namespace, *time)).collect();
        let next = items.last().map(AuditRecord::cursor).filter(|_| has_more);
        Outcome::Audit(Listed { items, next })
    };
    let read = async |query: &str, parts: [Outcome; 2]| {
        server.fake.script.lock().unwrap().extend(parts);
        let answer = server.asks(&entry, "GET", &format!("/v1/audit{query}")).send().await.unwrap();
        let page: Json = answer.json().await.unwrap();
        let items = page["items"].as_array().unwrap().iter();
        let shown: Vec<String> =
            items.map(|item| format!("{} {}", item["namespace"].as_str().unwrap(), item["time"])).collect();
        (shown, page["next"].clone())
    };
    // Behind the end of the first part there may be more of its namespace, so what the other one has there comes later.
    let first = [part("a", &[1, 4], true), part("b", &[2, 3, 5], false)];
    let (shown, next) = read("?limit=3", first).await;
    assert_eq!((shown, next), (["a 1", "b 2", "b 3"].map(str::to_owned).into(), json!("3.3.1.b")));
    let (shown, next) =
        read("?limit=3&after=3.3.1.b", [part("a", &[4], false), part("b", &[5], false)]).await;
    assert_eq!((shown, next), (["a 4", "b 5"].map(str::to_owned).into(), Json::Null));
    let asked = server.fake.asked.lock().unwrap();
    assert_eq!(asked.len(), 4);
    for (request, namespace) in asked.iter().zip(["a", "b", "a", "b"]) {
        assert_eq!(request.namespace.as_str(), namespace);
        assert!(matches!(request.command, Command::ListAudit(_)), "{request:?}");
    }
}
