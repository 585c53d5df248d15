//! Noticing that the file has changed: by looking at it, which works for files that are written over, replaced, and
//! switched by a link far away alike.

use super::RulesError;
use limina_server::rules_file::{self, Rules};
use std::{
    fs::{File, Metadata},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// A larger file is surely not meant.
const MAX_BYTES: u64 = 16 << 20;
/// A file is taken when it is the same for so long: before, it may still be being written.
const SETTLED: Duration = Duration::from_millis(200);
/// And it is called broken when it is so for so long.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so many looks at a file that changes all the time, it is left for later.
const LOOKS: usize = 10;

/// The file, and what was last seen of it.
pub(super) struct Watch {
    path: PathBuf,
    seen: Seen,
}

/// What a look at the file found.
struct Seen {
    /// If it is the same, the contents are not read again; none where there is nothing to read.
    stamp: Option<Stamp>,
    /// The text, or why there is none.
    text: Result<String, String>,
}

/// Changes whenever the contents do, or another file stands in this one's place.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

fn stamp(found: &Metadata) -> Stamp {
    let (written, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    (found.dev(), found.ino(), found.size(), written, changed)
}

impl Watch {
    /// Reads the file for the first time.
    pub(super) fn open(path: &Path) -> Result<(Watch, Rules), RulesError> {
        let seen = Seen::read(path);
        let rules = parse(path, &seen.text)?;
        Ok((Watch { path: path.to_owned(), seen }, rules))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What stands in the file, if that is something else than before, or if somebody `asked` for it.
    pub(super) async fn look(&mut self, asked: bool) -> Option<Result<Rules, RulesError>> {
        if asked {
            self.seen = self.read().await;
            return Some(parse(&self.path, &self.seen.text));
        }
        if self.seen.stamp.is_some() && self.stamp().await == self.seen.stamp {
            return None;
        }
        let mut now = self.read().await;
        for _ in 0..LOOKS {
            if now.text == self.seen.text {
                self.seen = now;
                return None;
            }
            tokio::time::sleep(SETTLED).await;
            let mut before = std::mem::replace(&mut now, self.read().await);
            if now.text != before.text {
                continue;
            }
            let rules = parse(&self.path, &now.text);
            if rules.is_err() {
                tokio::time::sleep(PATIENCE).await;
                before = std::mem::replace(&mut now, self.read().await);
            }
            if now.text == before.text {
                self.seen = now;
                return Some(rules);
            }
        }
        None
    }

    async fn stamp(&self) -> Option<Stamp> {
        let path = self.path.clone();
        blocking(move || std::fs::metadata(path).ok().map(|found| stamp(&found))).await
    }

    async fn read(&self) -> Seen {
        let path = self.path.clone();
        blocking(move || Seen::read(&path)).await
    }
}

/// The file may be far away; nobody else waits for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("looking at a file does not panic")
}

impl Seen {
    fn read(path: &Path) -> Seen {
        let mut seen = Seen { stamp: None, text: Err(String::new()) };
        seen.text = seen.read_text(path).map_err(|error| error.to_string());
        seen
    }

    fn read_text(&mut self, path: &Path) -> std::io::Result<String> {
        use std::io::Error;
        // Asked before opening, which would wait at a pipe.
        if !std::fs::metadata(path)?.is_file() {
            return Err(Error::other("it is not a file"));
        }
        let file = File::open(path)?;
        // Before reading: what is written meanwhile changes it.
        self.stamp = Some(stamp(&file.metadata()?));
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::other(format!("it has more than {} MiB", MAX_BYTES >> 20)));
        }
        String::from_utf8(bytes).map_err(|_| Error::other("it is not UTF-8"))
    }
}

/// The file's rules, once.
pub(super) fn read(path: &Path) -> Result<Rules, RulesError> {
    parse(path, &Seen::read(path).text)
}

fn parse(path: &Path, text: &Result<String, String>) -> Result<Rules, RulesError> {
    let path = || path.to_owned();
    let text = text.as_ref().map_err(|why| RulesError::Unreadable { path: path(), why: why.clone() })?;
    rules_file::parse(text).map_err(|problems| RulesError::Invalid { path: path(), problems })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ONE: &str = "[namespaces.one]\nrules = []\n";
    const TWO: &str = "[namespaces.two]\nrules = []\n";

    /// The namespaces that a look finds, or what it says, or nothing.
    async fn look(watch: &mut Watch) -> String {
        match watch.look(false).await {
            None => "nothing".to_owned(),
            Some(Ok(rules)) => rules.keys().map(|name| name.as_str()).collect::<Vec<_>>().join(" "),
            Some(Err(error)) => error.to_string(),
        }
    }

    #[track_caller]
    fn check(found: &str, expect: &str) {
        assert!(found.contains(expect), "{found:?} does not say {expect:?}");
    }

    #[tokio::test]
    async fn every_kind_of_change_is_noticed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        fs::write(&path, ONE).unwrap();
        let (mut watch, rules) = Watch::open(&path).unwrap();
        assert_eq!(rules.len(), 1);
        check(&look(&mut watch).await, "nothing");
        // Written over with a text of the same length.
        fs::write(&path, TWO).unwrap();
        check(&look(&mut watch).await, "two");
        check(&look(&mut watch).await, "nothing");
        // Written again with the same text.
        fs::write(&path, TWO).unwrap();
        check(&look(&mut watch).await, "nothing");
        // Another file in its place.
        let other = home.path().join("other.toml");
        fs::write(&other, ONE).unwrap();
        fs::rename(&other, &path).unwrap();
        check(&look(&mut watch).await, "one");
        // Broken, once; then gone, once; then back.
        fs::write(&path, "[namespaces").unwrap();
        check(&look(&mut watch).await, "is not valid: line 1: this is not TOML");
        check(&look(&mut watch).await, "nothing");
        fs::remove_file(&path).unwrap();
        check(&look(&mut watch).await, "cannot be read: No such file");
        check(&look(&mut watch).await, "nothing");
        fs::write(&path, ONE).unwrap();
        check(&look(&mut watch).await, "one");
        // Asked for, it is told as it is.
        assert_eq!(watch.look(true).await.unwrap().unwrap().len(), 1);
    }

    /// As ConfigMaps are changed: the file is a link through a directory that is a link, and that one is switched.
    #[tokio::test]
    async fn a_switched_link_is_noticed() {
        use std::os::unix::fs::symlink;
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str| home.path().join(name);
        for (version, text) in [("v1", ONE), ("v2", TWO)] {
            fs::create_dir(place(version)).unwrap();
            fs::write(place(version).join("rules.toml"), text).unwrap();
        }
        symlink("v1", place("..data")).unwrap();
        symlink("..data/rules.toml", place("rules.toml")).unwrap();
        let (mut watch, _) = Watch::open(&place("rules.toml")).unwrap();
        check(&look(&mut watch).await, "nothing");
        symlink("v2", place("..next")).unwrap();
        fs::rename(place("..next"), place("..data")).unwrap();
        check(&look(&mut watch).await, "two");
    }

    /// Each part of it would be a whole file by itself.
    #[tokio::test]
    async fn half_a_file_is_not_taken() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        fs::write(&path, ONE).unwrap();
        let (mut watch, _) = Watch::open(&path).unwrap();
        fs::write(&path, "[namespaces]\n").unwrap();
        let written = path.clone();
        let writer = tokio::spawn(async move {
            tokio::time::sleep(SETTLED / 4).await;
            fs::write(&written, TWO).unwrap();
        });
        check(&look(&mut watch).await, "two");
        writer.await.unwrap();
    }

    #[test]
    fn what_cannot_be_read() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        let said = || read(&path).unwrap_err().to_string();
        check(&said(), "No such file");
        fs::create_dir(&path).unwrap();
        check(&said(), "it is not a file");
        fs::remove_dir(&path).unwrap();
        fs::write(&path, b"\xff").unwrap();
        check(&said(), "it is not UTF-8");
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        check(&said(), "more than 16 MiB");
    }
}
