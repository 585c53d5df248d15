//! Everything that all families share: health, metrics, the API reference, and the versions of HTTP.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Server};
use crate::ledger::Ledger;
use crate::raw;
use crate::reply::Reply;

#[test]
fn the_server_is_alive_and_ready() {
    let mut server = Server::fresh();
    server.get("/healthz").ok();
    server.get("/readyz").ok();
    server.restart();
    server.get("/readyz").ok();
}

#[test]
fn a_single_server_shows_its_cluster() {
    let server = Server::fresh();
    let reply = server.get("/v1/cluster").ok();
    assert!(reply.body.is_object(), "{}", reply.text);
}

/// The value of each (metric, labels), and the type of each metric family.
pub(crate) struct Metrics {
    pub(crate) samples: BTreeMap<(String, String), f64>,
    types: BTreeMap<String, String>,
}

impl Metrics {
    /// Parses Prometheus text as strictly as a scraper.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Metrics {
        let mut metrics = Metrics { samples: BTreeMap::new(), types: BTreeMap::new() };
        for line in text.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.split(' ');
                match (words.next(), words.next(), words.next()) {
                    (Some("TYPE"), Some(family), Some(kind)) => {
                        let before = metrics.types.insert(family.to_owned(), kind.to_owned());
                        assert_eq!(before, None, "two TYPEs of {family}");
                    }
                    (Some("HELP" | "UNIT"), Some(_), _) | (Some("EOF"), None, None) => {}
                    _ => panic!("not a comment of the format: {line:?}"),
                }
                continue;
            }
            if line.is_empty() {
                continue;
            }
            let (name_labels, value) =
                line.rsplit_once(' ').unwrap_or_else(|| panic!("not a sample: {line:?}"));
            let (name, labels) = match name_labels.split_once('{') {
                Some((name, labels)) => (
                    name,
                    labels.strip_suffix('}').unwrap_or_else(|| panic!("labels without an end: {line:?}")),
                ),
                None => (name_labels, ""),
            };
            let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
            assert!(!name.is_empty() && name.chars().all(good), "a bad name: {line:?}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("a bad value: {line:?}"));
            let before = metrics.samples.insert((name.to_owned(), labels.to_owned()), value);
            assert_eq!(before, None, "the same sample twice: {line:?}");
        }
        metrics
    }

    /// The families of this type whose name has all these words.
    fn families(&self, kinds: &[&str], words: &[&str]) -> Vec<&str> {
        let fits = |(family, kind): &(&String, &String)| {
            kinds.contains(&kind.as_str()) && words.iter().all(|word| family.contains(word))
        };
        self.types.iter().filter(fits).map(|(family, _)| family.as_str()).collect()
    }

    fn sum(&self, name: &str) -> f64 {
        self.samples.iter().filter(|((sample, _), _)| sample == name).map(|(_, value)| value).sum()
    }

    /// Checks that the buckets of every histogram rise up to its count.
    #[track_caller]
    fn check_histograms(&self) {
        for (family, _) in self.types.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut series: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
            for ((name, labels), value) in &self.samples {
                if *name == format!("{family}_bucket") {
                    let (bounds, rest): (Vec<&str>, Vec<&str>) =
                        labels.split(',').partition(|label| label.starts_with("le=\""));
                    let bound =
                        bounds.first().unwrap_or_else(|| panic!("a bucket without `le`: {name}{{{labels}}}"));
                    let bound = bound["le=\"".len()..].trim_end_matches('"').parse().expect("a bound");
                    series.entry(rest.join(",")).or_default().push((bound, *value));
                }
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{family}{{{labels}}} falls: {buckets:?}");
                let count = self.samples[&(format!("{family}_count"), labels.clone())];
                assert_eq!(
                    buckets.last().map(|(bound, value)| (*bound, *value)),
                    Some((f64::INFINITY, count)),
                    "{family}"
                );
            }
        }
    }
}

#[test]
fn metrics_are_prometheus_text() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    for n in 0..20 {
        ledger.hold(&n.to_string(), &[("a", 1)]).ok();
        ledger.values(&["a"]).ok();
    }
    ledger.limit("absent").refused(404, "LimitNotFound");
    let reply = server.get("/metrics").ok();
    let media = reply.header("content-type");
    assert!(media.starts_with("text/plain") || media.starts_with("application/openmetrics-text"), "{media}");
    let metrics = Metrics::parse(&reply.text);
    metrics.check_histograms();

    let expect = |kinds: &[&str], words: &[&str]| -> Vec<String> {
        let found: Vec<String> = metrics.families(kinds, words).into_iter().map(str::to_owned).collect();
        assert!(!found.is_empty(), "no {kinds:?} with {words:?} in its name:\n{}", reply.text);
        found
    };
    let any = &["gauge", "histogram", "counter"][..];
    let requests = expect(&["histogram"], &["request"]);
    let appends = expect(&["histogram"], &["append"]);
    expect(any, &["queue"]);
    expect(&["histogram"], &["batch"]);
    expect(&["gauge"], &["journal"]);
    expect(&["gauge"], &["checkpoint"]);
    expect(&["info"], &["limina", "build"]);
    expect(&["gauge"], &["process", "resident"]);
    expect(&["gauge"], &["limina", "disk", "free"]);
    let most = |families: &[String]| {
        families.iter().map(|family| metrics.sum(&format!("{family}_count"))).fold(0.0, f64::max)
    };
    assert!(most(&requests) >= 41.0, "42 requests were answered: {}", most(&requests));
    assert!(most(&appends) >= 1.0, "21 writes were appended: {}", most(&appends));
    for family in metrics.types.keys() {
        assert!(
            family.starts_with("limina_") || family.starts_with("process_"),
            "{family} does not say whose it is"
        );
    }
}

#[test]
fn a_dry_run_is_no_refusal() {
    let server = Server::fresh();
    let limiter = server.limiter();
    limiter.post("/rules", json!({"name": "none", "limit": 0})).created();
    let checks = |dry_run: bool| json!({"key_values": {"user": "a"}, "dry_run": dry_run});
    let counts = || {
        let metrics = Metrics::parse(&server.get("/metrics").ok().text);
        ["DryRun", "LimitReached"].map(|outcome| {
            let labels = format!(r#"family="limiter",outcome="{outcome}""#);
            metrics.samples.get(&("limina_decisions_total".to_owned(), labels)).copied().unwrap_or_default()
        })
    };
    limiter.post("/check", checks(true)).is(429);
    assert_eq!(counts(), [1.0, 0.0]);
    limiter.post("/check", checks(false)).is(429);
    assert_eq!(counts(), [1.0, 1.0]);
}

/// A client's text must not become a label: otherwise it could fill the memory, or break the format.
#[test]
fn metrics_do_not_grow_with_names() {
    let server = Server::fresh();
    let series = || {
        let text = server.get("/metrics").ok().text;
        Metrics::parse(&text).samples.len()
    };
    let visit = |n: usize| {
        let name = format!("name-{n}\"\\");
        let ledger = server.ledger_of(&crate::ledger::encode(&format!("ns {n}")));
        ledger.limit(&name).refused(404, "LimitNotFound");
        server.get(&format!("/nowhere/{n}\"")).refused(404, "NotFound");
        Reply::to(ledger.request(&format!("M{n}"), "/limits")).refused(405, "MethodNotAllowed");
    };
    visit(0);
    series();
    let before = series();
    (1..50).for_each(visit);
    assert_eq!(series(), before, "49 more names made more series");
}

#[test]
fn the_reference_has_every_path() {
    let server = Server::fresh();
    let reply = server.get("/openapi.json").ok();
    assert!(reply.header("content-type").starts_with("application/json"), "{}", reply.header("content-type"));
    let document: Value = serde_json::from_str(&reply.text).expect("valid JSON");
    assert!(
        document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")),
        "{}",
        document["openapi"]
    );
    assert!(document["info"]["title"].is_string() && document["info"]["version"].is_string());

    let paths = document["paths"].as_object().expect("paths");
    for (path, methods) in [
        ("/ledger/limits", &["get", "post"][..]),
        ("/ledger/limits/{}", &["get", "patch"]),
        ("/ledger/limits/{}/entries", &["get"]),
        ("/ledger/hold", &["post"]),
        ("/ledger/commit", &["post"]),
        ("/ledger/rollback", &["post"]),
        ("/ledger/values", &["post"]),
        ("/ledger/operations", &["get"]),
        ("/ledger/operations/{}", &["get"]),
        ("/ledger/hold/batch", &["post"]),
        ("/ledger/commit/batch", &["post"]),
        ("/ledger/rollback/batch", &["post"]),
        ("/locks", &["get", "post"]),
        ("/locks/{}", &["get", "delete"]),
        ("/locks/{}/heartbeat", &["post"]),
        ("/locks/query", &["post"]),
        ("/v1/ns", &["get"]),
        ("/v1/ns/{}", &["delete"]),
    ] {
        let found = paths.iter().find(|(found, _)| unnamed(found).ends_with(path));
        let Some((_, item)) = found else { panic!("no {path} among {:?}", paths.keys().collect::<Vec<_>>()) };
        for method in methods {
            let responses = item[method]["responses"].as_object();
            assert!(responses.is_some_and(|responses| !responses.is_empty()), "{method} {path}: {item}");
        }
    }
    check_references(&document, &document);
}

/// The path with its parameters replaced by `{}`.
pub(crate) fn unnamed(path: &str) -> String {
    let segments = path.split('/').map(|segment| if segment.starts_with('{') { "{}" } else { segment });
    segments.collect::<Vec<_>>().join("/")
}

#[track_caller]
fn check_references(document: &Value, part: &Value) {
    match part {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                let target = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
                assert!(target.is_some(), "{reference} leads nowhere");
            }
            fields.values().for_each(|field| check_references(document, field));
        }
        Value::Array(items) => items.iter().for_each(|item| check_references(document, item)),
        _ => {}
    }
}

/// The docs can be read without the Internet.
#[test]
fn the_docs_load_nothing_from_elsewhere() {
    let server = Server::fresh();
    let page = server.get("/docs").ok();
    assert!(page.header("content-type").starts_with("text/html"), "{}", page.header("content-type"));
    assert!(page.text.to_lowercase().contains("<html"), "{}", page.text);
    let mut local = BTreeSet::new();
    for resource in resources(&page.text) {
        let away = resource.starts_with("//") || resource.contains("://");
        assert!(!away, "loads {resource}");
        if !resource.starts_with("data:") && !resource.starts_with('#') {
            local.insert(resource);
        }
    }
    for resource in local {
        let path = if resource.starts_with('/') {
            resource
        } else {
            format!("/{}", resource.trim_start_matches("./"))
        };
        server.get(&path).ok();
    }
}

/// The `type` of a problem document leads to its explanation in the docs.
#[test]
fn problem_types_link_to_the_docs() {
    let server = Server::fresh();
    let ledger = server.ledger();
    ledger.create("a");
    let problems = [
        server.get("/nowhere").refused(404, "NotFound"),
        ledger.limit("absent").refused(404, "LimitNotFound"),
        ledger.operation("absent").refused(404, "OperationNotFound"),
        ledger.post_text("/limits", "{").refused(400, "InvalidRequest"),
        ledger.post("/limits", json!({"name": "a"})).refused(409, "DuplicateLimitName"),
    ];
    for problem in problems {
        let kind = problem.body["type"].as_str().expect("`type`");
        // In general the type may be an absolute URL. Here it must be a page of this server.
        let Some((page, anchor)) = kind.split_once('#').filter(|(page, _)| page.starts_with('/')) else {
            continue;
        };
        let page = server.get(page).ok().text;
        let found = page.contains(&format!("id=\"{anchor}\"")) || page.contains(&format!("id={anchor}"));
        assert!(found, "nothing at {kind}");
    }
}

/// The URLs that a browser would load on its own: scripts, style sheets, imports, and URLs in styles.
fn resources(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let end = ['"', '\'', ')', ' ', '>'];
    let bare = |rest: &str| {
        let rest = rest.trim_start_matches(['"', '\'']);
        rest.split(end).next().unwrap_or_default().to_owned()
    };
    for mark in [" src=", "\nsrc=", "url("] {
        found.extend(page.match_indices(mark).map(|(at, _)| bare(&page[at + mark.len()..])));
    }
    // In a script, only the URL in a string literal is known.
    for mark in ["@import ", "fetch(", "import("] {
        let rests = page.match_indices(mark).map(|(at, _)| &page[at + mark.len()..]);
        found.extend(rests.filter(|rest| rest.starts_with(['"', '\''])).map(bare));
    }
    for (at, _) in page.match_indices("<link") {
        let tag = &page[at..at + page[at..].find('>').unwrap_or(0)];
        found.extend(tag.split_once("href=").map(|(_, rest)| bare(rest)));
    }
    found
}

#[test]
fn http_2_without_tls_works() {
    let server = Server::fresh();
    let http = reqwest::blocking::Client::builder()
        .http2_prior_knowledge()
        .timeout(DEADLINE)
        .build()
        .expect("a client");
    let response = http.get(server.url("/healthz")).send().expect("an answer");
    assert_eq!((response.version(), response.status().as_u16()), (reqwest::Version::HTTP_2, 200));
    let ledger = Ledger::new(http, server.url("/v1/ledger"));
    ledger.create("a");
    std::thread::scope(|scope| {
        for client in 0..16 {
            let ledger = &ledger;
            scope.spawn(move || {
                for n in 0..5 {
                    ledger.hold(&format!("{client}-{n}"), &[("a", 1)]).ok();
                }
            });
        }
    });
    ledger.values(&["a"]).ok().value("a", 0, 80);
    ledger.limit("absent").refused(404, "LimitNotFound");
    ledger.post_text("/limits", vec![b' '; 2 << 20]).refused(413, "PayloadTooLarge");
    ledger.limit("a").ok();
}

#[test]
fn connections_can_be_reused() {
    let server = Server::fresh();
    server.ledger().create("a");
    let mut connection = raw::Connection::open(server.address());
    for n in 0..20 {
        let body = crate::ledger::hold(&format!("op-{n}"), &[("a", 1)]).to_string();
        connection.send(raw::request("POST", "/v1/ledger/hold", "", body.as_bytes()));
        connection.receive().ok().value("a", 0, n + 1);
        // The connection can be used again after a refusal.
        connection.send(raw::request("GET", "/v1/ledger/limits/absent", "", b""));
        connection.receive().refused(404, "LimitNotFound");
        connection.send(raw::request("POST", "/v1/ledger/hold", "", b"{not json"));
        connection.receive().refused(400, "InvalidRequest");
    }
    connection.send(raw::request("GET", "/healthz", "Connection: close\r\n", b""));
    connection.receive().ok();
    connection.expect_end();
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::fresh();
    server.ledger().create("a");
    let mut connection = raw::Connection::open(server.address());
    let mut bytes = Vec::new();
    for n in 0..30 {
        let body = json!({"operation_id": format!("op-{n}"), "changes": [{"limit_name": "a", "value": 1}]});
        bytes.extend(raw::request("POST", "/v1/ledger/hold", "", body.to_string().as_bytes()));
        bytes.extend(raw::request("GET", &format!("/v1/ledger/operations/op-{n}"), "", b""));
    }
    let sender = connection.send_aside(bytes);
    for n in 0..30 {
        connection.receive().ok().has("operation_id", format!("op-{n}")).value("a", 0, n + 1);
        connection.receive().ok().has("operation_id", format!("op-{n}"));
    }
    sender.join().expect("the sender");
}

#[test]
fn http_1_0_is_answered() {
    let server = Server::fresh();
    let mut connection = raw::Connection::open(server.address());
    connection.send("GET /healthz HTTP/1.0\r\n\r\n");
    connection.receive().ok();
    connection.expect_end();
}
