//! `limina verify`: what it says of a directory at rest, and how it ends.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use tempfile::TempDir;

use crate::harness::{Server, limina};
use crate::ledger::{batch, hold};
use crate::restored::copy;

const FLAGS: [&str; 6] = ["--journal-segment-mib", "1", "--journal-mib", "2", "--checkpoint-mib", "1"];

/// Where the frames of a segment begin, with 64 shards.
const FIRST_FRAME: usize = 8192;

/// A directory with some of everything: in the table, in the journal alone, committed, held, of two namespaces.
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

/// What it said on both channels; it must not have panicked, and must have ended with this status.
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

/// Every file but the lock, which bears the pid of whoever looked last.
pub(crate) fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let all = files(directory).into_iter().filter(|path| path != &directory.join("LOCK"));
    all.map(|path| (path.clone(), std::fs::read(path).expect("a file"))).collect()
}

/// The longest file whose path holds these words.
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
fn a_sound_directory_is_sound_and_damage_is_named() {
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

    // The number of the oldest segment's first frame.
    let segment = files(&data.join("journal")).into_iter().next().expect("a segment");
    flip(&segment, FIRST_FRAME + 16);
    flip(&table, middle);
    let said = ends(&verify(&data), 1);
    says(&said, &[&segment.display().to_string(), &table.display().to_string(), "is damaged: 2 problems"]);
    flip(&segment, FIRST_FRAME + 16);
    flip(&table, middle);

    // Looking did no harm.
    assert!(contents(&data) == before, "verify changed something");
    server.start_again();
    server.ledger().values(&["a", "b"]).ok().value("a", 1, 15_999).value("b", 2, 31_998);
}

/// A server that was killed leaves a directory that needs nothing.
#[test]
fn after_a_crash_it_is_sound() {
    let mut server = Server::fresh();
    server.ledger().create("a");
    for n in 0..20 {
        server.ledger().hold(&format!("operation-{n}"), &[("a", 1)]).ok();
    }
    server.kill();
    says(&ends(&verify(server.data()), 0), &["is sound", "1 ledger limits"]);
}

/// Another format is no damage, and parts that do not belong together are refused with the words of the server.
#[test]
fn another_format_and_parts_of_another_age_are_refused_but_are_no_damage() {
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

    // The records of an earlier time, with everything else of now.
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
fn a_directory_in_use_is_left_alone() {
    let mut server = Server::fresh();
    let said = ends(&verify(server.data()), 1);
    says(&said, &["limina: data directory", "is in use by another limina process (pid"]);
    server.ledger().create("a");
    server.stop();
    ends(&verify(server.data()), 0);
}

#[test]
fn what_is_no_data_directory_is_not_made_one() {
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

/// Where nobody reads what it says, the status still tells.
#[test]
fn a_closed_pipe_is_no_panic() {
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
