//! Rules from a file: `limina serve --rules FILE`, and `limina rules check FILE`.

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Process, Server, client, eventually, limina};
use crate::limiter::{LONG, Limiter};
use crate::reply::Reply;

/// A directory with a rules file, and with the data of the server that follows the file.
struct Home(TempDir);

impl Home {
    #[track_caller]
    fn with(rules: &str) -> Home {
        let home = Home(TempDir::new().expect("a temporary directory"));
        home.write(rules);
        home
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("rules.toml")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn write(&self, rules: &str) {
        fs::write(self.file(), rules).expect("a file of rules");
    }

    /// Replaces the file by another one, as most editors and deployments do.
    fn replace(&self, rules: &str) {
        let next = self.0.path().join("rules.toml.next");
        fs::write(&next, rules).expect("a file of rules");
        fs::rename(next, self.file()).expect("a file of rules in place of another");
    }

    #[track_caller]
    fn serve(&self) -> Server {
        let file = self.file();
        let flags = ["--journal-segment-mib", "4", "--rules", file.to_str().expect("a path that is text")];
        Server::start_with(self.data(), &flags)
    }

    #[track_caller]
    fn fails_to_serve(&self) -> String {
        let mut command = limina();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(self.data());
        let mut process = Process::spawn(command.arg("--rules").arg(self.file()));
        let status = process.exit();
        assert_eq!(status.code(), Some(1), "{}", process.log());
        process.log()
    }

    fn check(&self) -> Output {
        limina().args(["rules", "check"]).arg(self.file()).output().expect("limina rules check")
    }
}

/// A rule as the file states it, with a window that does not end.
fn rule(namespace: &str, name: &str, limit: i64) -> String {
    format!(
        "[[namespaces.{namespace}.rules]]\nname = \"{name}\"\ngroup_by = [\"ip\"]\nlimit = {limit}\n\
         window = {{ type = \"fixed\", per = \"{LONG}\" }}\n"
    )
}

fn over(namespace: &str, name: &str, ip: &str, limit: i64) -> String {
    format!(
        "[[namespaces.{namespace}.rules.overrides]]\nname = \"{name}\"\nkey_values = {{ ip = \"{ip}\" }}\n\
         limit = {limit}\n"
    )
}

/// Every rule as `name limit`, with `*` if the file manages it, and `+` if another rule set does.
fn rules(limiter: &Limiter) -> Vec<String> {
    let shown = |rule: &Value| {
        let managed_by = rule.get("managed_by").unwrap_or_else(|| panic!("no `managed_by` in {rule}"));
        let mark = match managed_by.as_str() {
            None => "",
            Some("file") => "*",
            Some(_) => "+",
        };
        format!("{} {}{mark}", rule["name"].as_str().expect("`name`"), rule["limit"])
    };
    limiter.all("/rules", None, 100).iter().map(shown).collect()
}

#[track_caller]
fn become_soon(server: &Server, namespace: &str, expect: &[&str]) {
    let limiter = server.limiter_of(namespace);
    if eventually(|| (rules(&limiter) == expect).then_some(())).is_none() {
        panic!("{namespace} has {:?} and not {expect:?}\n{}", rules(&limiter), server.log());
    }
}

#[track_caller]
fn says_soon(server: &Server, words: &str) {
    if eventually(|| server.log().contains(words).then_some(())).is_none() {
        panic!("{words:?} is not in\n{}", server.log());
    }
}

fn times(server: &Server, words: &str) -> usize {
    server.log().matches(words).count()
}

#[test]
fn rules_of_the_file_apply_from_the_start() {
    let home = Home::with(&format!(
        "{}{}{}",
        rule("default", "per-ip", 2),
        over("default", "office", "10.0.0.1", 3),
        rule("shop", "per-ip", 1)
    ));
    let server = home.serve();
    let limiter = server.limiter();
    let read =
        limiter.get("/rules/per-ip").ok().has("managed_by", "file").has("limit", 2).has("overrides", 1);
    assert_eq!(read.body["window"]["type"], "fixed", "{}", read.text);
    limiter.get("/rules/per-ip/overrides/office").ok().has("limit", 3);
    for _ in 0..2 {
        limiter.check(json!({"ip": "1"})).allowed();
    }
    limiter.check(json!({"ip": "1"})).denied(&["per-ip"]);
    limiter.take(json!({"ip": "10.0.0.1"}), 3).allowed();
    limiter.check(json!({"ip": "10.0.0.1"})).denied(&["per-ip/office"]);
    let shop = server.limiter_of("shop");
    shop.check(json!({"ip": "1"})).allowed();
    shop.check(json!({"ip": "1"})).denied(&["per-ip"]);
    // One log line for each namespace, with what was applied.
    assert_eq!(times(&server, "rule set applied"), 2, "{}", server.log());
    assert_eq!(times(&server, "created=\"per-ip\""), 2, "{}", server.log());
}

#[test]
fn clients_cannot_change_the_files_rules() {
    let home = Home::with(&format!("{}{}", rule("default", "r", 5), over("default", "o", "1", 9)));
    let server = home.serve();
    let limiter = server.limiter();
    let refused = |reply: Reply| drop(reply.refused(409, "RuleManagedBySet").has("rule", "r"));
    refused(limiter.put("/rules/r", json!({"group_by": ["ip"], "limit": 6})));
    refused(limiter.patch("/rules/r", json!({"limit": 6})));
    refused(limiter.patch("/rules/r", json!({})));
    refused(limiter.delete("/rules/r"));
    refused(limiter.override_as("r", "p", json!({"ip": "2"}), 1));
    refused(limiter.put("/rules/r/overrides/o", json!({"key_values": {"ip": "1"}, "limit": 6})));
    refused(limiter.put("/rules/r/overrides/p", json!({"key_values": {"ip": "2"}, "limit": 6})));
    refused(limiter.patch("/rules/r/overrides/o", json!({"limit": 6})));
    refused(limiter.delete("/rules/r/overrides/o"));
    limiter.post("/rules", json!({"name": "r", "limit": 6})).refused(409, "RuleAlreadyExists");
    limiter.get("/rules/r").ok().has("limit", 5).has("overrides", 1);
    limiter.get("/rules/r/overrides/o").ok().has("limit", 9);
}

#[test]
fn a_changed_file_is_applied() {
    let home = Home::with(&format!("{}{}", rule("default", "a", 1), rule("default", "b", 2)));
    let server = home.serve();
    let limiter = server.limiter();
    limiter.rule("own", &["ip"], 7);
    limiter.override_of("own", "o", json!({"ip": "1"}), 8);
    become_soon(&server, "default", &["a 1*", "b 2*", "own 7"]);
    limiter.check(json!({"ip": "9"})).allowed();

    // The file is overwritten: one rule is changed, one deleted, one new, and there is a new namespace.
    home.write(&format!("{}{}{}", rule("default", "a", 3), rule("default", "c", 4), rule("shop", "s", 5)));
    become_soon(&server, "default", &["a 3*", "c 4*", "own 7"]);
    become_soon(&server, "shop", &["s 5*"]);
    says_soon(&server, "created=\"c\" changed=\"a\" deleted=\"b\"");
    // The window keeps its count.
    limiter.take(json!({"ip": "9"}), 2).allowed().uses("a", 3);
    limiter.check(json!({"ip": "9"})).denied(&["a"]);

    // The file is replaced by another one, in which only overrides differ.
    home.replace(&format!(
        "{}{}{}",
        rule("default", "a", 3),
        over("default", "x", "9", 4),
        rule("shop", "s", 5)
    ));
    become_soon(&server, "default", &["a 3*", "own 7"]);
    limiter.get("/rules/a/overrides/x").ok().has("limit", 4);
    limiter.check(json!({"ip": "9"})).allowed().uses("a/x", 4);

    // One namespace has no rules any more, and one is not named any more.
    home.replace("[namespaces.default]\nrules = []\n");
    become_soon(&server, "default", &["own 7"]);
    become_soon(&server, "shop", &[]);
    limiter.get("/rules/own").ok().has("overrides", 1);
    limiter.delete("/rules/own").is(204);
    // One log line for each changed namespace and change. The last line may come a little after the change.
    says_soon(&server, "deleted=\"s\"");
    assert_eq!(times(&server, "rule set applied"), 6, "{}", server.log());
    assert_eq!(times(&server, "ERROR"), 0, "{}", server.log());
}

/// Two overrides with one window exchange their key-values.
#[test]
fn overrides_can_swap_key_values() {
    let home = Home::with(&format!(
        "{}{}{}",
        rule("default", "r", 1),
        over("default", "a", "1", 10),
        over("default", "b", "2", 20)
    ));
    let server = home.serve();
    let limiter = server.limiter();
    home.write(&format!(
        "{}{}{}",
        rule("default", "r", 1),
        over("default", "a", "2", 10),
        over("default", "b", "1", 20)
    ));
    says_soon(&server, "changed=\"r\"");
    limiter.check(json!({"ip": "2"})).allowed().uses("r/a", 1);
    limiter.check(json!({"ip": "1"})).allowed().uses("r/b", 1);
    let look = |server: &Server| {
        let limiter = server.limiter();
        limiter.look(json!({"ip": "2"})).uses("r/a", 1);
        limiter.look(json!({"ip": "1"})).uses("r/b", 1);
    };
    look(&server);
    let mut server = server;
    server.restart();
    look(&server);
}

#[test]
fn a_broken_file_changes_nothing() {
    let home = Home::with(&rule("default", "a", 1));
    let server = home.serve();
    // Half a file, a mistake in one of two namespaces, an empty file, no file: each is logged once.
    for (rules, words) in [
        ("[[namespaces.default.rules]", "this is not TOML"),
        (
            "[namespaces.default]\nrules = []\n[[namespaces.shop.rules]]\nname = \"s\"\nlimit = -2\n",
            "line 5: namespaces.shop.rules[0].limit: must be",
        ),
        ("", "namespaces: is required"),
    ] {
        home.write(rules);
        says_soon(&server, words);
        assert_eq!(rules_of(&server), ["a 1*"]);
    }
    fs::remove_file(home.file()).expect("remove the file");
    says_soon(&server, "cannot be read: No such file");
    assert_eq!(rules_of(&server), ["a 1*"]);
    home.write(&rule("default", "a", 2));
    become_soon(&server, "default", &["a 2*"]);
    says_soon(&server, "the rules file is valid again");
    assert_eq!(times(&server, "the rules stay as they were"), 4, "{}", server.log());
}

fn rules_of(server: &Server) -> Vec<String> {
    rules(&server.limiter())
}

#[test]
fn a_broken_file_prevents_the_start() {
    let home = Home::with("[[namespaces.default.rules]]\nname = \"a\"\nlimt = 1\n");
    let log = home.fails_to_serve();
    assert!(
        log.contains("is not valid: line 3: namespaces.default.rules[0].limt: is not a known field"),
        "{log}"
    );
    assert!(!home.data().exists(), "a refused start has done nothing");
    fs::remove_file(home.file()).expect("remove the file");
    let log = home.fails_to_serve();
    assert!(log.contains("cannot be read: No such file"), "{log}");
}

#[test]
fn changes_while_the_server_is_down_are_applied() {
    let home = Home::with(&format!(
        "{}{}{}",
        rule("default", "a", 1),
        rule("default", "b", 1),
        rule("shop", "s", 1)
    ));
    let mut server = home.serve();
    server.limiter_of("shop").rule("own", &[], 3);
    server.limiter_of("other").rule("own", &[], 4);
    server.stop();
    home.write(&rule("default", "b", 2));
    server.start_again();
    // The rules were applied before any request was served, so the test need not wait.
    assert_eq!(rules_of(&server), ["b 2*"]);
    assert_eq!(rules(&server.limiter_of("shop")), ["own 3"]);
    assert_eq!(rules(&server.limiter_of("other")), ["own 4"]);
    assert_eq!(times(&server, "rule set applied"), 2, "{}", server.log());
    // Nothing has changed, so nothing is logged.
    server.crash_and_restart();
    assert_eq!(rules_of(&server), ["b 2*"]);
    assert_eq!(times(&server, "rule set applied"), 0, "{}", server.log());
    // Without the flag nothing is applied, and the existing rules still belong to the file.
    server.stop();
    let without = Server::start(home.data());
    assert_eq!(rules_of(&without), ["b 2*"]);
    without.limiter().delete("/rules/b").refused(409, "RuleManagedBySet");
    drop(without);
    // A file without rules deletes them.
    home.write("[namespaces]\n");
    server.start_again();
    assert_eq!(rules_of(&server), [""; 0]);
}

#[test]
fn a_clients_rule_is_taken_over_unless_it_belongs_to_a_set() {
    let home = Home::with("[namespaces]\n");
    let mut server = home.serve();
    server.limiter().rule("taken", &["ip"], 7);
    home.write(&rule("default", "taken", 1));
    become_soon(&server, "default", &["taken 1*"]);
    let set = json!({"rules": [{"name": "theirs", "limit": 7}]});
    server.limiter().put("/rule-sets/clients", set).created();
    let file =
        format!("{}{}{}", rule("default", "theirs", 1), rule("default", "free", 1), rule("shop", "s", 1));
    home.write(&file);
    // One namespace is refused completely, and the other one is changed.
    let refused = "these rules belong to other rule sets: \"theirs\" of \"clients\"";
    become_soon(&server, "shop", &["s 1*"]);
    says_soon(&server, refused);
    assert_eq!(rules_of(&server), ["taken 1*", "theirs 7+"]);
    // The same happens at a start, which succeeds nevertheless: clients can delete the conflicting set only while the
    // server runs.
    server.restart();
    says_soon(&server, refused);
    assert_eq!(rules_of(&server), ["taken 1*", "theirs 7+"]);
    for path in ["/rule-sets/file", "/rule-sets/envoy"] {
        server.limiter().put(path, json!({"rules": []})).refused(409, "RuleSetManagedByServer");
        server.limiter().delete(path).refused(409, "RuleSetManagedByServer");
    }
    server.limiter().delete("/rule-sets/clients").is(204);
    become_soon(&server, "default", &["free 1*", "theirs 1*"]);
    assert_eq!(times(&server, refused), 1, "told once:\n{}", server.log());
}

#[test]
fn sighup_applies_the_file_again() {
    let home = Home::with(&rule("shop", "s", 1));
    let mut server = home.serve();
    server.delete("/v1/ns/shop").is(204);
    assert_eq!(rules(&server.limiter_of("shop")), [""; 0]);
    server.process().signal(Signal::HUP);
    become_soon(&server, "shop", &["s 1*"]);
    home.write(&rule("shop", "s", 2));
    server.process().signal(Signal::HUP);
    become_soon(&server, "shop", &["s 2*"]);
    server.stop();
}

/// A rule without a window counts what was already in use, and what changes meanwhile.
#[test]
fn a_rule_of_the_file_counts_what_is_in_use() {
    let home = Home::with("[namespaces]\n");
    let server = home.serve();
    let limiter = server.limiter();
    for user in 0..3000 {
        limiter.set(json!({"user": user, "team": user % 2}), 2).ok();
    }
    home.write("[[namespaces.default.rules]]\nname = \"team\"\ngroup_by = [\"team\"]\nlimit = 3001\n");
    become_soon(&server, "default", &["team 3001*"]);
    limiter.take(json!({"team": 1, "user": 1}), 1).allowed().uses("team", 3001);
    limiter.check(json!({"team": 1, "user": 1})).denied(&["team"]);
    home.write(
        "[[namespaces.default.rules]]\nname = \"team\"\ngroup_by = [\"team\", \"user\"]\nlimit = 3\n\
         overrides = [{ name = \"o\", key_values = { team = 1, user = 1, path = 1 }, limit = 9 }]\n",
    );
    become_soon(&server, "default", &["team 3*"]);
    limiter.check(json!({"team": 1, "user": 1})).denied(&["team"]).uses("team", 3);
}

#[test]
fn the_configuration_can_name_the_rules_file() {
    let home = Home::with(&rule("default", "a", 1));
    let config = home.0.path().join("limina.toml");
    let quoted = |path: PathBuf| format!("{:?}", path.to_str().expect("a path that is text"));
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {}\njournal_segment_mib = 4\nrules = {}\n",
        quoted(home.data()),
        quoted(home.file())
    );
    fs::write(&config, text).expect("a configuration file");
    let read = |process: &Process| {
        let rule = client().get(format!("http://{}/v1/limiter/rules/a", process.address()));
        Reply::to(rule).ok().has("managed_by", "file");
    };
    let mut process = Process::spawn(limina().arg("--config").arg(&config));
    read(&process);
    process.signal(Signal::TERM);
    assert!(process.exit().success());
    let mut command = limina();
    command.args(["--listen", "127.0.0.1:0", "--data"]).arg(home.0.path().join("other"));
    read(&Process::spawn(command.env("LIMINA_RULES", home.file())));
}

#[test]
fn check_describes_a_valid_file() {
    let home = Home::with(&format!(
        "{}{}{}{}\n[namespaces.empty]\nrules = []\n",
        rule("default", "a", 1),
        over("default", "o", "1", 1),
        over("default", "p", "2", 1),
        rule("shop", "s", 1)
    ));
    let found = home.check();
    assert!(found.status.success(), "{found:?}");
    let said = String::from_utf8_lossy(&found.stdout);
    assert_eq!(
        said,
        "default: 1 rule, 2 overrides\nempty: 0 rules, 0 overrides\nshop: 1 rule, 0 overrides\n"
    );
    assert!(found.stderr.is_empty(), "{found:?}");
}

#[test]
fn check_reports_every_mistake() {
    let home = Home::with(
        "[[namespaces.a.rules]]\nname = \"x\"\nlimit = 1\nwindow = { type = \"sliding\", per = \"1\" }\n\
         [[namespaces.b.rules]]\nname = \"y\"\ngroup_by = [\"ip\"]\nlimit = 1\n\
         overrides = [{ name = \"o\", key_values = {}, limit = 1, burst = 3 }]\n\
         [[namespaces.b.rules]]\nname = \"y\"\nlimit = 1\n",
    );
    let found = home.check();
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    let said = String::from_utf8_lossy(&found.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].starts_with("problem: line 4: namespaces.a.rules[0].window.per: "), "{said}");
    assert!(
        lines[1].starts_with("problem: line 9: namespaces.b.rules[0].overrides[0].key_values.ip: "),
        "{said}"
    );
    assert!(lines[2].starts_with("problem: line 11: namespaces.b.rules[1].name: "), "{said}");
    let error = String::from_utf8_lossy(&found.stderr);
    assert!(
        error.starts_with("limina: the rules file ") && error.ends_with("is not valid: 3 problems\n"),
        "{error}"
    );

    fs::remove_file(home.file()).expect("remove the file");
    let found = home.check();
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert!(String::from_utf8_lossy(&found.stderr).contains("No such file"), "{found:?}");
}

/// If standard output and standard error are closed, the exit status still shows the result.
#[test]
fn a_closed_pipe_causes_no_panic() {
    let home = Home::with(&rule("default", "a", 1));
    let status = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let again = writer.try_clone().expect("a pipe");
        let mut command = limina();
        command.args(["rules", "check"]).arg(home.file()).stdout(writer).stderr(again);
        command.status().expect("limina runs")
    };
    assert_eq!(status().code(), Some(0));
    home.write("");
    assert_eq!(status().code(), Some(1));
}
