//! `limina export` and `limina import`: the answers of the new store, and what is refused.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::LazyLock;

use limina_pg_server::PgServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events::{LONG as INCUBATING, number};
use crate::harness::{Server, limina};
use crate::ledger::{encode, hold};
use crate::limiter::{LONG, Lease, bucket, fixed, sliding};
use crate::locks::{Grant, exclusive};
use crate::reply::Reply;
use crate::sse::Sse;
use crate::verify::{contents, ends, flip, says, verify};

/// With the default number of shards they are in different shards. With few shards, some share one.
const NAMESPACES: [&str; 4] = ["default", "a", "payments", "zürich"];

static POSTGRES: LazyLock<PgServer> = LazyLock::new(|| PgServer::start().expect("PostgreSQL starts"));

fn new_database() -> String {
    POSTGRES.url(&POSTGRES.new_database().expect("a database"))
}

fn run(args: &[&str]) -> Output {
    limina().args(args).stdin(Stdio::null()).output().expect("limina runs")
}

/// Runs `export` or `import` for a directory.
fn moved(verb: &str, data: &Path, more: &[&str], file: &Path) -> Output {
    let (data, file) = (data.to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    run(&[&[verb, "--data", data][..], more, &[file]].concat())
}

/// Runs `export` or `import` for a database.
fn moved_in_database(verb: &str, url: &str, more: &[&str], file: &Path) -> Output {
    run(&[&[verb, "--store", url][..], more, &[file.to_str().expect("UTF-8")]].concat())
}

/// The file without its header, which contains the time and the version.
fn body(file: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(file).expect("an export");
    let version = usize::from(u16::from_le_bytes([bytes[20], bytes[21]]));
    bytes.split_off(22 + version + 4)
}

/// The ids and tokens that a namespace's clients hold.
struct Held {
    namespace: &'static str,
    lock: Grant,
    lease: Lease,
    /// The clock of the stream before its first event.
    since: u64,
}

/// Creates something in every family.
#[track_caller]
fn fill(server: &Server, namespace: &'static str) -> Held {
    let ledger = server.ledger_of(&encode(namespace));
    ledger.create_all(&["card", "shop"]);
    ledger.create_with_ceiling("capped", 100);
    for n in 0..20 {
        ledger.hold(&format!("pay-{n}"), &[("card", n), ("shop", 2)]).ok();
    }
    ledger.commit_all("pay-3").ok();
    ledger.rollback_all("pay-4").ok();
    ledger.post_keyed("/hold", "key-1", &hold("kept", &[("capped", 90)])).ok();

    let limiter = server.limiter_of(namespace);
    limiter.rule("in-use", &["team"], 10);
    limiter.window("fixed", &["key"], 5, fixed(LONG));
    limiter.window("sliding", &["key"], 6, sliding(LONG));
    limiter.window("bucket", &["key"], 7, bucket(LONG, 7));
    limiter.override_of("fixed", "more", json!({"key": "vip"}), 50);
    limiter.take(json!({"key": "k"}), 2).allowed();
    limiter.take(json!({"key": "vip"}), 3).allowed();
    limiter.counters(json!({"team": "core", "job": 1}), 3).ok();
    let lease = limiter.lease(json!({"team": "core", "job": 2}), 2, "1h").lease();

    let lock = server.locks_of(namespace).grant(exclusive(json!({"order": 4711})));

    let events = server.events_of(namespace);
    events.only_once("mails", INCUBATING);
    events.strictly_once("strict", INCUBATING);
    let since = events.clock("mails");
    for event in ["one", "two", "three"] {
        events.accept("mails", event);
    }
    Held { namespace, lock, lease, since }
}

/// Answers that must be the same in every store. The requests change nothing.
#[track_caller]
fn answers(server: &Server, held: &Held) -> Vec<Value> {
    let limits = ["card", "shop", "capped"];
    let ledger = server.ledger_of(&encode(held.namespace));
    let limiter = server.limiter_of(held.namespace);
    let events = server.events_of(held.namespace);
    let replies = [
        ledger.get("/limits").ok(),
        without_position(ledger.values(&limits).ok()),
        ledger.values_as_of("pay-7", &limits).ok(),
        ledger.values_at(9, &["card"]).ok(),
        ledger.operation("pay-3").ok(),
        ledger.operation("pay-4").ok(),
        ledger.get("/operations?state=held").ok(),
        ledger.post_keyed("/hold", "key-1", &hold("kept", &[("capped", 90)])).ok(),
        limiter.get("/rules").ok(),
        limiter.get("/rules/fixed/overrides").ok(),
        limiter.look(json!({"key": "k"})),
        limiter.look(json!({"key": "vip"})),
        limiter.held(&held.lease).ok(),
        server.locks_of(held.namespace).get(&held.lock.lock_id).ok(),
        events.read("mails").ok(),
        events.read("strict").ok(),
    ];
    let mut answers: Vec<Value> = replies.into_iter().map(|reply| timeless(reply.body)).collect();
    answers.push(Value::Array(ledger.entries("card")));
    answers.push(json!(limiter.in_use()));
    answers.push(json!(events.incubating("mails").events));
    answers
}

/// The distance by which positions jump when an imported store is opened, so that positions that the old store used
/// after the export are not repeated.
const JUMP: u64 = 1 << 40;

/// The answer without the namespace's present position.
fn without_position(mut reply: Reply) -> Reply {
    assert!(
        reply.body.as_object_mut().is_some_and(|values| values.remove("position").is_some()),
        "{reply:?}"
    );
    reply
}

/// The answer without remaining and elapsed times, and without the clocks of streams.
fn timeless(answer: Value) -> Value {
    const DROPPED: [&str; 5] = ["expires_in_ms", "held_ms", "reset_ms", "retry_after_ms", "clock"];
    match answer {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(name, _)| !DROPPED.contains(&name.as_str()));
            fields.map(|(name, value)| (name, timeless(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(timeless).collect(),
        other => other,
    }
}

/// Everything that was begun in the old store can be continued in the new one.
#[track_caller]
fn goes_on(server: &Server, held: &Held) {
    let ledger = server.ledger_of(&encode(held.namespace));
    let last = ledger.values(&["card"]).ok().position();
    assert!(last > JUMP, "{last}");
    assert!(ledger.hold("next", &[("card", 1)]).ok().position() > last);
    ledger.commit_all("pay-5").ok();
    ledger.hold("too-much", &[("capped", 11)]).refused(409, "LimitExceeded");

    let limiter = server.limiter_of(held.namespace);
    limiter.take(json!({"key": "k"}), 4).denied(&["fixed"]);
    limiter.heartbeat(&held.lease).ok();
    limiter.release(&held.lease);
    assert_eq!(limiter.used("in-use", json!({"team": "core"})), 3);

    let locks = server.locks_of(held.namespace);
    locks.taken(exclusive(json!({"order": 4711})));
    locks.heartbeat(&held.lock).ok();
    locks.let_go(&held.lock);
    assert!(locks.grant(exclusive(json!({"order": 4711}))).token > held.lock.token + JUMP);

    let events = server.events_of(held.namespace);
    events.submit("mails", "two").conflict(false);
    let path = format!("/v1/ns/{}/events/mails/stream", encode(held.namespace));
    for clock in [held.since, held.since + 3, held.since + 10] {
        let first = Sse::open(server, &path, Some(&clock.to_string())).push();
        assert!(first.is_key_frame() && first.clock() == held.since + 3 + JUMP, "after {clock}: {first:?}");
    }
    assert_eq!(events.accept("mails", "four").clock, held.since + 4 + JUMP);
}

struct Filled {
    home: TempDir,
    data: PathBuf,
    held: Vec<Held>,
    answers: Vec<Vec<Value>>,
    /// The position of a change in a namespace that was deleted.
    used_position: u64,
}

/// The directory of a stopped server, with something of every family.
#[track_caller]
fn filled() -> Filled {
    let home = TempDir::new().expect("a directory");
    let data = home.path().join("data");
    let mut server = Server::start_with(&data, &["--journal-segment-mib", "4", "--checkpoint-mib", "1"]);
    let held: Vec<Held> = NAMESPACES.into_iter().map(|namespace| fill(&server, namespace)).collect();
    let gone = server.ledger_of("gone");
    gone.create_all(&["a", "b", "c"]);
    let used_position = number(&gone.limit("c").ok().body, "created_position");
    server.delete("/v1/ns/gone");
    let answers = held.iter().map(|held| answers(&server, held)).collect();
    server.stop();
    let is_told = |line: &str| line.contains("done: delete_namespace") && line.contains("gone");
    assert!(server.log().lines().any(is_told), "{}", server.log());
    Filled { home, data, held, answers, used_position }
}

impl Filled {
    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Exports the directory.
    #[track_caller]
    fn exported(&self, name: &str) -> PathBuf {
        let file = self.path(name);
        says(&ends(&moved("export", &self.data, &[], &file), 0), &["limina: exported 4 namespaces, "]);
        let mode = std::fs::metadata(&file).expect("the export").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "others may read the export");
        file
    }

    /// Serves the directory, and compares the answers with those of the old server.
    #[track_caller]
    fn is_served_from(&self, data: &Path) {
        let server = Server::start(data);
        for (held, expect) in self.held.iter().zip(&self.answers) {
            assert_eq!(&answers(&server, held), expect, "in {}", held.namespace);
        }
        self.held.iter().for_each(|held| goes_on(&server, held));
        server.ledger_of("gone").create("a");
        let made_at = number(&server.ledger_of("gone").limit("a").ok().body, "created_position");
        assert!(made_at > self.used_position + JUMP, "position {made_at} was used before");
    }
}

#[test]
fn an_export_can_be_imported_with_another_number_of_shards() {
    let filled = filled();
    let before = contents(&filled.data);
    let file = filled.exported("export");
    assert!(contents(&filled.data) == before, "export changed something");
    for shards in ["1", "3", "200"] {
        let data = filled.path(shards);
        let said = ends(&moved("import", &data, &["--shards", shards], &file), 0);
        says(&said, &["limina: importing", "limina: imported 4 namespaces, "]);
        let loads = match shards {
            "1" => "1 shard loads: 4 namespaces".to_owned(),
            _ => format!("{shards} shards load: 4 namespaces"),
        };
        says(&ends(&verify(&data), 0), &["is sound", &loads]);
        let again = filled.path(&format!("export-{shards}"));
        ends(&moved("export", &data, &[], &again), 0);
        assert!(body(&again) == body(&file), "{shards} shards export something else");
    }
    filled.is_served_from(&filled.path("3"));
}

#[test]
fn exports_move_a_directory_to_postgres_and_back() {
    let filled = filled();
    let (file, url) = (filled.exported("export"), new_database());
    says(
        &ends(&moved_in_database("import", &url, &["--shards", "8"], &file), 0),
        &["limina: imported 4 namespaces, "],
    );
    let again = filled.path("of-postgres");
    ends(&moved_in_database("export", &url, &[], &again), 0);
    assert!(body(&again) == body(&file), "the database exports something else");
    let back = filled.path("back");
    ends(&moved("import", &back, &["--shards", "64"], &again), 0);
    filled.is_served_from(&back);
}

#[test]
fn exports_can_be_piped() {
    let filled = filled();
    let (data, new) = (filled.data.to_str().expect("UTF-8"), filled.path("new"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut export =
        limina().args(["export", "-"]).env("LIMINA_DATA", data).stdout(writer).spawn().expect("limina runs");
    let mut import = limina();
    import.args(["import", "-"]).env("LIMINA_STORE", "postgres://nowhere").arg("--data").arg(&new);
    let import = import.stdin(reader).output().expect("limina runs");
    assert!(export.wait().expect("our own child").success());
    says(&ends(&import, 0), &["importing standard input", "imported 4 namespaces, "]);
    says(&ends(&verify(&new), 0), &["4 namespaces"]);
}

#[test]
fn export_and_import_overwrite_nothing() {
    let filled = filled();
    let file = filled.exported("export");
    let (bytes, before) = (std::fs::read(&file).expect("a file"), contents(&filled.data));

    says(&ends(&moved("export", &filled.data, &[], &file), 1), &["cannot be made", "File exists"]);
    assert!(std::fs::read(&file).expect("a file") == bytes);
    says(&ends(&moved("import", &filled.data, &[], &file), 1), &["is not empty"]);
    assert!(contents(&filled.data) == before, "import changed something");
    says(&ends(&moved("import", filled.home.path(), &[], &file), 1), &["is not empty"]);
    assert!(!filled.path("LOCK").exists(), "something was written");

    let url = new_database();
    ends(&moved_in_database("import", &url, &[], &file), 0);
    says(&ends(&moved_in_database("import", &url, &[], &file), 1), &["is not empty: it holds data"]);
}

#[test]
fn stores_in_use_and_missing_stores_are_not_exported() {
    let server = Server::fresh();
    let home = TempDir::new().expect("a directory");
    let file = home.path().join("export");
    says(&ends(&moved("export", server.data(), &[], &file), 1), &["in use by another limina process"]);
    says(&ends(&moved("export", &home.path().join("none"), &[], &file), 1), &["there is no data directory"]);
    says(&ends(&moved_in_database("export", &new_database(), &[], &file), 1), &["holds no data of limina"]);
    assert!(!file.exists(), "half of an export was left");
    let both = ["export", "--data", "x", "--store", "postgres://localhost/x", "-"];
    says(&ends(&run(&both), 2), &["cannot be used with"]);
}

#[test]
fn an_incomplete_file_leaves_no_usable_store() {
    let filled = filled();
    let file = filled.exported("export");
    let bytes = std::fs::read(&file).expect("an export");
    let (cut, damaged) = (filled.path("cut"), filled.path("damaged"));
    std::fs::write(&cut, &bytes[..bytes.len() - 1]).expect("a file");
    std::fs::write(&damaged, &bytes).expect("a file");
    flip(&damaged, bytes.len() / 2);

    for (bad, words) in [(&cut, "it was cut off: it ends at offset"), (&damaged, "it is damaged at offset")] {
        let half = filled.path(&format!("half-{}", words.len()));
        says(&ends(&moved("import", &half, &[], bad), 1), &["cannot be imported", words]);
        let unfinished = "holds a part of an import that was not finished";
        says(&ends(&moved("import", &half, &[], &file), 1), &[unfinished]);
        says(&ends(&moved("export", &half, &[], &filled.path("none")), 1), &[unfinished]);
        says(&ends(&verify(&half), 1), &[unfinished]);
        let half = half.to_str().expect("UTF-8");
        says(&ends(&run(&["serve", "--listen", "127.0.0.1:0", "--data", half]), 1), &[unfinished]);

        let url = new_database();
        says(&ends(&moved_in_database("import", &url, &[], bad), 1), &["cannot be imported", words]);
        ends(&moved_in_database("import", &url, &[], &file), 0);
    }

    let new = filled.path("new");
    std::fs::write(&cut, "no export at all").expect("a file");
    says(&ends(&moved("import", &new, &[], &cut), 1), &["it was not made by `limina export`"]);
    assert!(!new.exists(), "something was made");
}
