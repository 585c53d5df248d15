//! `limina mark-restored`: when an older copy was restored, no position or token from after the copy is given out
//! again.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::json;

use crate::harness::{Server, limina};
use crate::locks::exclusive;
use crate::verify::{ends, says, verify};

const JUMP: u64 = 1 << 40;

fn mark(store: &Path) -> Output {
    limina().arg("mark-restored").arg(store).stdin(Stdio::null()).output().expect("limina runs")
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).expect("a file")),
        }
    }
}

/// Acquires a lock three times, and returns the tokens.
fn three_tokens(server: &Server) -> Vec<u64> {
    let locks = server.locks_of("shop");
    let grant = |_| {
        let grant = locks.grant(exclusive(json!({"order": 1})));
        locks.let_go(&grant);
        grant.token
    };
    (0..3).map(grant).collect()
}

#[test]
fn a_marked_copy_never_repeats_a_fencing_token() {
    let mut server = Server::fresh();
    let before = three_tokens(&server);
    server.stop();
    let home = tempfile::TempDir::new().expect("a directory");
    let backup = home.path().join("backup");
    copy(server.data(), &backup);
    server.start_again();
    let lost = three_tokens(&server);
    says(&ends(&mark(server.data()), 1), &["is in use by another limina process"]);
    server.stop();

    // An older copy that was not marked repeats tokens, because nothing in it shows that it is old.
    let said = ends(&mark(&backup), 0);
    says(&said, &["limina: marked as restored", &JUMP.to_string()]);
    says(&ends(&verify(&backup), 0), &["is sound"]);
    let mut restored = Server::start(&backup);
    says(&restored.log(), &["the shard was restored from an older state"]);
    let after = three_tokens(&restored);
    assert!(after[0] > JUMP && after[0] > lost[2] && lost[0] > before[2], "{before:?} {lost:?} {after:?}");
    // The positions jump once, not at every start.
    restored.crash_and_restart();
    let later = three_tokens(&restored);
    assert!(later[0] > after[2] && later[2] < 2 * JUMP, "{after:?} {later:?}");
    restored.stop();
    // Each run of `mark-restored` adds one more jump.
    ends(&mark(&backup), 0);
    ends(&mark(&backup), 0);
    restored.start_again();
    assert!(three_tokens(&restored)[0] > 3 * JUMP);
}

#[test]
fn only_a_store_can_be_marked() {
    let home = tempfile::TempDir::new().expect("a directory");
    says(&ends(&mark(home.path()), 1), &["is not a data directory of limina"]);
    says(&ends(&mark(&home.path().join("missing")), 1), &["is not a data directory of limina"]);
    assert!(!home.path().join("missing").exists());
}
