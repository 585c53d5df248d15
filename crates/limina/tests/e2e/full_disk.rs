//! A disk that fills up: writes are refused, reads continue, and nothing acknowledged is lost.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::harness::{Server, eventually};
use crate::ledger::{Ledger, hold};
use crate::reply::Reply;

const MIB: u64 = 1024 * 1024;
const FLAGS: [&str; 4] = ["--journal-segment-mib", "4", "--storage-reserve-mib", "16"];

/// A file system of 96 MiB, which is unmounted when this value is dropped.
struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// `None` if an environment variable says that this need not be tested here.
    #[track_caller]
    fn mount() -> Option<SmallDisk> {
        if std::env::var_os("LIMINA_SKIP_TMPFS").is_some() {
            eprintln!("skipped: LIMINA_SKIP_TMPFS is set");
            return None;
        }
        let dir = TempDir::new().expect("a directory");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96m", "limina-e2e"])
            .arg(dir.path())
            .output()
            .expect("run mount");
        assert!(
            mounted.status.success(),
            "cannot mount a tmpfs (this needs root; set LIMINA_SKIP_TMPFS to skip): {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        Some(SmallDisk { dir })
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn free(&self) -> u64 {
        let space = rustix::fs::statvfs(self.dir.path()).expect("statvfs");
        space.f_bavail * space.f_frsize
    }

    /// Fills the disk until only this many bytes are free.
    fn leave(&self, free: u64) -> Ballast {
        let path = self.dir.path().join("ballast");
        let mut file = File::create(&path).expect("ballast");
        let mut rest = self.free().saturating_sub(free);
        while rest > 0 {
            let part = rest.min(MIB) as usize;
            if file.write_all(&vec![1; part]).is_err() {
                break;
            }
            rest -= part as u64;
        }
        Ballast { path }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.dir.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            // Another process still has a file open, so the file system is detached as soon as that file is closed.
            let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
        }
    }
}

struct Ballast {
    path: PathBuf,
}

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Holds 1 for each operation, and counts the acknowledged holds.
struct Writer {
    sent: u64,
    acknowledged: Vec<String>,
    unknown: Vec<String>,
}

impl Writer {
    fn write(&mut self, ledger: &Ledger) -> Reply {
        // Long ids, so that the journal grows.
        let id = format!("{:0200}", self.sent);
        self.sent += 1;
        let reply = ledger.post("/hold", hold(&id, &[("a", 1)]));
        match reply.status {
            200 => self.acknowledged.push(id),
            503 if reply.code() == "OutcomeUnknown" => self.unknown.push(id),
            503 => {
                let code = reply.code().to_owned();
                reply.clone().refused(503, &code);
            }
            _ => panic!("{} {}", reply.status, reply.text),
        }
        reply
    }

    #[track_caller]
    fn until(&mut self, ledger: &Ledger, done: impl Fn(&Reply) -> bool) {
        let reached = eventually(|| Some(self.write(ledger)).filter(&done));
        assert!(reached.is_some(), "the last answer: {:?}", self.write(ledger));
    }

    /// Checks that every acknowledged hold is there, and no refused one.
    #[track_caller]
    fn check(&self, ledger: &Ledger) {
        let open = ledger.all("/operations?state=held", 1000);
        let open: std::collections::BTreeSet<&str> = open
            .iter()
            .map(|operation| operation["operation_id"].as_str().expect("`operation_id`"))
            .collect();
        for id in &self.acknowledged {
            assert!(open.contains(id.as_str()), "{id} was acknowledged and is lost");
        }
        let found = self.unknown.iter().filter(|id| open.contains(id.as_str())).count();
        assert_eq!(open.len(), self.acknowledged.len() + found, "refused ones are there");
        ledger.values(&["a"]).ok().value("a", 0, open.len() as i64);
    }
}

fn start(data: &Path) -> (Server, Writer) {
    let server = Server::start_with(data, &FLAGS);
    server.ledger().create("a");
    let mut writer = Writer { sent: 0, acknowledged: Vec::new(), unknown: Vec::new() };
    for _ in 0..50 {
        writer.write(&server.ledger()).ok();
    }
    (server, writer)
}

#[test]
fn writes_are_refused_below_the_reserve() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (mut server, mut writer) = start(&disk.data());
    for round in 0..2 {
        let ballast = disk.leave(12 * MIB);
        let ledger = server.ledger();
        writer.until(&ledger, |reply| reply.code() == "StorageFull");
        ledger.post("/limits", serde_json::json!({"name": "more"})).refused(503, "StorageFull");
        ledger.commit_all(&writer.acknowledged[0]).refused(503, "StorageFull");

        // Reads go on.
        writer.check(&ledger);
        ledger.limit("a").ok();
        ledger.operation(&writer.acknowledged[0]).ok();
        ledger.values_as_of(&writer.acknowledged[3], &["a"]).ok().value("a", 0, 4);
        assert!(!ledger.entries("a").is_empty());
        server.get("/healthz").ok();
        server.get("/metrics").ok();

        // Refused holds left nothing behind, also after a crash. The start uses the reserve.
        if round == 1 {
            server.crash_and_restart();
            let ledger = server.ledger();
            writer.check(&ledger);
            writer.until(&ledger, |reply| reply.code() == "StorageFull");
        }
        drop(ballast);
        let ledger = server.ledger();
        writer.until(&ledger, |reply| reply.status == 200);
        writer.check(&ledger);
    }
    server.crash_and_restart();
    writer.check(&server.ledger());
    for _ in 0..50 {
        writer.write(&server.ledger()).ok();
    }
    server.restart();
    writer.check(&server.ledger());
}

/// Without other files on the disk: the journal itself uses the space down to the reserve, and stops there.
#[test]
fn the_journal_itself_stops_at_the_reserve() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (mut server, mut writer) = start(&disk.data());
    // Leaves room for a few segments above the reserve.
    let _ballast = disk.leave(26 * MIB);
    let mut full = false;
    for round in 0..400 {
        let operations: Vec<_> = (0..500).map(|n| hold(&format!("{round:0150}/{n}"), &[("a", 1)])).collect();
        let ids: Vec<String> = (0..500).map(|n| format!("{round:0150}/{n}")).collect();
        let reply = server.ledger().post("/hold/batch", crate::ledger::batch(operations));
        if reply.status == 503 {
            reply.refused(503, "StorageFull");
            full = true;
            break;
        }
        let reply = reply.ok();
        for (result, id) in crate::ledger::results(&reply).iter().zip(ids) {
            match result["status"].as_u64() {
                Some(200) => writer.acknowledged.push(id),
                _ => {
                    crate::reply::check_problem(result, 503, "StorageFull");
                    full = true;
                }
            }
        }
        if full {
            break;
        }
    }
    assert!(full, "wrote for ever; {} bytes are free", disk.free());
    assert!(disk.free() > 4 * MIB, "only {} bytes of the reserve are left", disk.free());
    writer.check(&server.ledger());
    server.crash_and_restart();
    writer.check(&server.ledger());
}

/// Another process uses up even the reserve. All answers must still be correct.
#[test]
fn answers_are_true_without_any_space() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (mut server, mut writer) = start(&disk.data());
    let ballast = disk.leave(0);
    let ledger = server.ledger();
    for _ in 0..200 {
        writer.write(&ledger);
    }
    let read = ledger.limit("a");
    assert!([200, 503].contains(&read.status), "{} {}", read.status, read.text);
    server.kill();
    drop(ballast);
    server.start_again();
    writer.check(&server.ledger());
    writer.until(&server.ledger(), |reply| reply.status == 200);
    writer.check(&server.ledger());
}
