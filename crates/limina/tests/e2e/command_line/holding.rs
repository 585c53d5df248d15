//! `limina lock … -- PROGRAM` and `limina lease … -- PROGRAM`: the behaviour on which cron jobs rely.

use crate::{
    harness::{Server, eventually, limina},
    reply::Reply,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// `limina` in a process that runs a shell script under a lock or a lease.
struct Run {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Run {
    fn start(server: &Server, arguments: &[&str], script: &str) -> Run {
        let mut command: Command = limina();
        command.env("LIMINA_URL", server.url("")).args(arguments).args(["--", "sh", "-c", script]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Run { child, stdin, stdout }
    }

    /// The next line that the script prints.
    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code, and what was printed to standard error.
    #[track_caller]
    fn end(mut self) -> (i32, String) {
        drop(self.stdin.take());
        let status = eventually(|| self.child.try_wait().unwrap()).expect("the command ends");
        let mut words = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
        (status.code().unwrap_or(-1), words)
    }
}

/// The only grant of a lock.
#[track_caller]
fn grant(server: &Server) -> Value {
    let page = server.get("/v1/locks").ok();
    let [grant] = page.items().as_slice() else { panic!("{:?}", page.items()) };
    grant.clone()
}

/// A script that prints `ready`, and ends when its standard input is closed.
const UNTIL_STDIN_ENDS: &str = "echo ready; cat";

#[test]
fn the_program_gets_the_token_and_its_exit_code_is_returned() {
    let server = Server::fresh();
    let mut token = 0;
    for expect in [0, 7] {
        let mut run =
            Run::start(&server, &["lock", "job=a"], &format!("echo $LIMINA_FENCING_TOKEN; exit {expect}"));
        let next: u64 = run.line().parse().unwrap();
        assert!(next > token, "{next} after {token}");
        token = next;
        assert_eq!(run.end().0, expect);
    }
    let (code, words) = Run::start(&server, &["lock", "job=a"], "kill -9 $$").end();
    assert_eq!((code, words.as_str()), (128 + 9, ""));
    let missing = limina()
        .env("LIMINA_URL", server.url(""))
        .args(["lock", "job=a", "--", "/does/not/exist"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(server.get("/v1/locks").ok().items().is_empty(), "every lock is released");
}

#[test]
fn a_held_lock_is_not_obtained_until_it_is_free() {
    let server = Server::fresh();
    let rule = json!({"name": "slots", "group_by": ["job"], "limit": 1});
    Reply::to(server.http().post(server.url("/v1/limiter/rules")).json(&rule)).created();
    for (command, code) in [("lock", "LockHeld"), ("lease", "LimitReached")] {
        let mut first = Run::start(&server, &[command, "job=b", "--owner", "first"], UNTIL_STDIN_ENDS);
        assert_eq!(first.line(), "ready");
        let (exit, words) = Run::start(&server, &[command, "job=b"], "echo never").end();
        assert_eq!(exit, 75);
        assert!(words.contains("was not obtained") && words.contains(code), "{words}");
        let mut patient = Run::start(&server, &[command, "job=b", "--wait", "60s"], "echo mine");
        drop(first.stdin.take());
        assert_eq!(first.end().0, 0);
        assert_eq!(patient.line(), "mine");
        assert_eq!(patient.end().0, 0);
    }
}

#[test]
fn signals_are_passed_on_to_the_program() {
    let server = Server::fresh();
    let script = "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut run = Run::start(&server, &["lock", "job=c"], script);
    assert_eq!(run.line(), "ready");
    run.signal(Signal::TERM);
    assert_eq!(run.line(), "got it");
    assert_eq!(run.end().0, 9);
}

#[test]
fn a_signal_ends_a_wait_and_leaves_the_queue() {
    let server = Server::fresh();
    let mut holder = Run::start(&server, &["lock", "job=d"], UNTIL_STDIN_ENDS);
    assert_eq!(holder.line(), "ready");
    let waiter = Run::start(&server, &["lock", "job=d", "--wait", "5m"], "echo never");
    let waiting = |count: u64| eventually(|| (grant(&server)["waiting"] == count).then_some(()));
    waiting(1).expect("the second waits");
    waiter.signal(Signal::TERM);
    assert_eq!(waiter.end().0, 128 + 15);
    waiting(0).expect("nobody waits any more");
    assert_eq!(holder.end().0, 0);
}

#[test]
fn a_program_is_ended_when_its_lock_is_lost() {
    let server = Server::fresh();
    // The first script obeys SIGTERM, the second one ignores it.
    for (script, words) in [
        ("echo ready; cat", "SIGTERM"),
        ("trap '' TERM; echo ready; while :; do sleep 0.05; done", "SIGKILL"),
    ] {
        let arguments = ["lock", "job=e", "--ttl", "900ms", "--grace", "100ms"];
        let mut run = Run::start(&server, &arguments, script);
        assert_eq!(run.line(), "ready");
        let lock_id = grant(&server)["lock_id"].as_str().unwrap().to_owned();
        server.delete(&format!("/v1/locks/{lock_id}?force=true")).is(204);
        let status = eventually(|| run.child.try_wait().unwrap()).expect("the program is ended");
        assert_eq!(status.code(), Some(76));
        let said = run.end().1;
        assert!(said.contains("the lock is lost") && said.contains(words), "{said}");
    }
}
