//! `limina verify`: its report on a directory that is not in use, and its exit status.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tempfile::TempDir;

use crate::harness::{Server, limina};
use crate::ledger::{batch, hold};
use crate::restored::copy;

const FLAGS: [&str; 6] = ["--journal-segment-mib", "1", "--journal-mib", "2", "--checkpoint-mib", "1"];

/// The offset of the first frame in a segment of a store with 64 shards.
const FIRST_FRAME: usize = 8192;

/// A directory with records in the table, and others only in the journal; with committed and held amounts, in two
/// namespaces.
#[track_caller]
fn filled(home: &TempDir) -> Server {
    let mut server = Server::start_with(home.path().join("data"), &FLAGS);
    let ledger = server.ledger();
    ledger.create_all(&["a", "b"]);
    for round in 0..8 {
        let holds = (0..2000).map(|n| hold(&format!("{round}-{n:0200}"), &[("a", 1), ("b", 2)])).collect();
        ledger.post("/hold/batch", batch(holds)).ok();
    }
    ledger.commit_all(&format!("0-{:0200}", 0)).ok();
    server.ledger_of("other").create("c");
    server.stop();
    server
}

pub(crate) fn verify(directory: &Path) -> Output {
    limina().arg("verify").arg(directory).stdin(Stdio::null()).output().expect("limina runs")
}

/// Requires this exit status, and no panic. Returns standard output and standard error.
#[track_caller]
pub(crate) fn ends(output: &Output, code: i32) -> String {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    let said = String::from_utf8(said).expect("text");
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(!said.contains("panicked at"), "{said}");
    said
}

#[track_caller]
pub(crate) fn says(said: &str, words: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is not in:\n{said}");
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in
        std::fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path())
    {
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Every file except the lock file, which contains the process id of the last user.
pub(crate) fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let all = files(directory).into_iter().filter(|path| path != &directory.join("LOCK"));
    all.map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
}

/// The longest file whose path contains these words.
#[track_caller]
fn longest(directory: &Path, words: &str) -> PathBuf {
    let matching = files(directory).into_iter().filter(|path| path.to_string_lossy().contains(words));
    matching.max_by_key(|path| std::fs::metadata(path).expect("a file").len()).expect("such a file")
}

pub(crate) fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[offset] ^= 0x04;
    std::fs::write(path, bytes).expect("a file");
}

#[test]
fn verify_accepts_a_sound_directory_and_names_damage() {
    let home = TempDir::new().expect("a directory");
    let mut server = filled(&home);
    let data = server.data().to_path_buf();
    let before = contents(&data);
    let said = ends(&verify(&data), 0);
    says(
        &said,
        &["64 shards", "segments", "frames", "records", "64 shards load", "2 namespaces", "3 ledger limits"],
    );
    says(&said, &["is sound"]);
    assert!(!said.contains("problem"), "{said}");
    assert!(contents(&data) == before, "verify changed something");

    let table = longest(&data, "/tables/");
    let middle = std::fs::metadata(&table).expect("a file").len() as usize / 2;
    flip(&table, middle);
    let said = ends(&verify(&data), 1);
    says(
        &said,
        &["problem: damaged data in", &table.display().to_string(), "at offset", "is damaged: 1 problem"],
    );
    flip(&table, middle);

    // The number of the first frame of the oldest segment.
    let segment = files(&data.join("journal")).into_iter().next().expect("a segment");
    flip(&segment, FIRST_FRAME + 16);
    flip(&table, middle);
    let said = ends(&verify(&data), 1);
    says(&said, &[&segment.display().to_string(), &table.display().to_string(), "is damaged: 2 problems"]);
    flip(&segment, FIRST_FRAME + 16);
    flip(&table, middle);

    // The check has not changed anything.
    assert!(contents(&data) == before, "verify changed something");
    server.start_again();
    server.ledger().values(&["a", "b"]).ok().value("a", 1, 15_999).value("b", 2, 31_998);
}

/// The directory of a server that was killed has no problems.
#[test]
fn a_directory_is_sound_after_a_crash() {
    let mut server = Server::fresh();
    server.ledger().create("a");
    for n in 0..20 {
        server.ledger().hold(&format!("operation-{n}"), &[("a", 1)]).ok();
    }
    server.kill();
    says(&ends(&verify(server.data()), 0), &["is sound", "1 ledger limit"]);
}

/// Another format is not reported as damage. Parts that do not belong together are refused with the server's message.
#[test]
fn other_formats_and_mismatched_parts_are_not_damage() {
    let home = TempDir::new().expect("a directory");
    let mut server = filled(&home);
    let data = server.data().to_path_buf();
    let is_private =
        |file: &PathBuf| std::fs::metadata(file).expect("a file").permissions().mode() & 0o777 == 0o600;
    let open: Vec<PathBuf> = files(&data).into_iter().filter(|file| !is_private(file)).collect();
    assert!(open.is_empty(), "others may read {open:?}");
    let replace = |path: &Path, bytes: &[u8]| {
        let before = std::fs::read(path).expect("a file");
        std::fs::write(path, bytes).expect("a file");
        let said = ends(&verify(&data), 1);
        std::fs::write(path, before).expect("a file");
        assert!(!said.contains("damaged"), "{said}");
        said
    };
    let old = "limina store, format 2\nshards 64\n";
    let old = format!("{old}crc32c {:08x}\n", crc32c::crc32c(old.as_bytes()));
    says(
        &replace(&data.join("limina.meta"), old.as_bytes()),
        &["has format 2", "Export it with that limina"],
    );
    says(
        &replace(&data.join("table/version"), b"FJL\x04"),
        &["has format version 4", "cannot be used as it is"],
    );

    // Older records together with newer other parts.
    let older = home.path().join("older");
    copy(&data.join("table/keyspaces/1"), &older);
    server.start_again();
    for round in 8..12 {
        let holds = (0..2000).map(|n| hold(&format!("{round}-{n:0200}"), &[("a", 1)])).collect();
        server.ledger().post("/hold/batch", batch(holds)).ok();
    }
    server.stop();
    let (now, aside) = (data.join("table/keyspaces/1"), home.path().join("aside"));
    std::fs::rename(&now, &aside).expect("renamed");
    copy(&older, &now);
    let said = ends(&verify(&data), 1);
    says(&said, &["different ages", "keyspaces/1", "cannot be used as it is"]);
    let mut serve = limina();
    let serve = serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&data).output();
    says(&ends(&serve.expect("limina runs"), 1), &["different ages", "keyspaces/1"]);
    std::fs::remove_dir_all(&now).expect("removed");
    std::fs::rename(&aside, &now).expect("renamed");
    ends(&verify(&data), 0);
}

#[test]
fn verify_refuses_a_directory_in_use() {
    let mut server = Server::fresh();
    let said = ends(&verify(server.data()), 1);
    says(&said, &["limina: data directory", "is in use by another limina process (pid"]);
    server.ledger().create("a");
    server.stop();
    ends(&verify(server.data()), 0);
}

#[test]
fn verify_creates_no_data_directory() {
    let home = TempDir::new().expect("a directory");
    let missing = home.path().join("missing");
    says(
        &ends(&verify(&missing), 1),
        &["limina: there is no data directory", &missing.display().to_string()],
    );
    assert!(!missing.exists());

    says(&ends(&verify(home.path()), 1), &["is not a data directory"]);
    assert!(files(home.path()).is_empty(), "something was written");

    let none = limina().arg("verify").output().expect("limina runs");
    says(&ends(&none, 2), &["<DIR>"]);
}

/// If standard output and standard error are closed, the exit status still shows the result.
#[test]
fn a_closed_pipe_causes_no_panic() {
    let mut server = Server::fresh();
    server.stop();
    let status = |data: &Path| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let again = writer.try_clone().expect("a pipe");
        limina().arg("verify").arg(data).stdout(writer).stderr(again).status().expect("limina runs")
    };
    assert_eq!(status(server.data()).code(), Some(0));
    flip(&server.data().join("limina.meta"), 3);
    assert_eq!(status(server.data()).code(), Some(1));
}
