//! Notices changes of the file by polling. Polling works in every case: the file is overwritten, replaced, or reached through
//! a symbolic link that changes.

use std::{
    fs::{File, Metadata},
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// The largest file, in bytes.
pub(crate) const MAX_BYTES: u64 = 16 << 20;
/// A changed file is used after it has stayed the same for this long. Before that, a program may still be writing it.
pub(crate) const SETTLED: Duration = Duration::from_millis(200);
/// An invalid file is reported after it has stayed invalid for this much longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// If the file changes continuously, the check gives up after this many readings. The next check tries again.
pub(crate) const MAX_READINGS: usize = 10;

/// The file, and its last reading. `T` is what the file contains, and `E` why it cannot be used.
pub(crate) struct Watch<T, E> {
    path: PathBuf,
    parse: Parse<T, E>,
    last: Reading,
}

/// Parses the text of a file, or explains why there is none.
pub(crate) type Parse<T, E> = fn(&Path, &Result<String, String>) -> Result<T, E>;

/// One reading of the file.
struct Reading {
    /// If the stamp has not changed, the contents are not read again. `None` if the file could not be opened.
    stamp: Option<Stamp>,
    /// The text, or why it could not be read.
    text: Result<String, String>,
}

/// Device, inode, size, and the times of the last write and the last change. It differs whenever the contents change or
/// another file takes this one's place.
pub(crate) type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

pub(crate) fn stamp(found: &Metadata) -> Stamp {
    let (written, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    (found.dev(), found.ino(), found.size(), written, changed)
}

impl<T, E> Watch<T, E> {
    /// Reads the file for the first time.
    pub(crate) fn open(path: &Path, parse: Parse<T, E>) -> Result<(Watch<T, E>, T), E> {
        let last = Reading::read(path);
        let contents = parse(path, &last.text)?;
        Ok((Watch { path: path.to_owned(), parse, last }, contents))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the contents of the file if the file has changed, or in any case if `is_requested`.
    pub(crate) async fn check(&mut self, is_requested: bool) -> Option<Result<T, E>> {
        if is_requested {
            self.last = self.read().await;
            return Some((self.parse)(&self.path, &self.last.text));
        }
        if self.last.stamp.is_some() && self.stamp().await == self.last.stamp {
            return None;
        }
        let mut now = self.read().await;
        for _ in 0..MAX_READINGS {
            if now.text == self.last.text {
                self.last = now;
                return None;
            }
            tokio::time::sleep(SETTLED).await;
            let mut before = std::mem::replace(&mut now, self.read().await);
            if now.text != before.text {
                continue;
            }
            let contents = (self.parse)(&self.path, &now.text);
            if contents.is_err() {
                tokio::time::sleep(PATIENCE).await;
                before = std::mem::replace(&mut now, self.read().await);
            }
            if now.text == before.text {
                self.last = now;
                return Some(contents);
            }
        }
        None
    }

    async fn stamp(&self) -> Option<Stamp> {
        let path = self.path.clone();
        blocking(move || std::fs::metadata(path).ok().map(|found| stamp(&found))).await
    }

    async fn read(&self) -> Reading {
        let path = self.path.clone();
        blocking(move || Reading::read(&path)).await
    }
}

/// The file may be on a slow network file system, so it is read on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("reading a file does not panic")
}

impl Reading {
    fn read(path: &Path) -> Reading {
        let mut reading = Reading { stamp: None, text: Err(String::new()) };
        reading.text = reading.read_text(path).map_err(|error| error.to_string());
        reading
    }

    fn read_text(&mut self, path: &Path) -> std::io::Result<String> {
        use std::io::Error;
        // Checked before opening, because opening a pipe would block.
        if !std::fs::metadata(path)?.is_file() {
            return Err(Error::other("it is not a file"));
        }
        let file = File::open(path)?;
        // Taken before reading, so that a write during the reading changes the stamp.
        self.stamp = Some(stamp(&file.metadata()?));
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::other(format!("it has more than {} MiB", MAX_BYTES >> 20)));
        }
        String::from_utf8(bytes).map_err(|_| Error::other("it is not UTF-8"))
    }
}

/// Reads and parses the file once.
pub(crate) fn read<T, E>(path: &Path, parse: Parse<T, E>) -> Result<T, E> {
    parse(path, &Reading::read(path).text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{RulesError, parse};
    use limina_server::rules_file::Rules;
    use std::fs;

    const ONE: &str = "[namespaces.one]\nrules = []\n";
    const TWO: &str = "[namespaces.two]\nrules = []\n";

    /// The namespaces that a check returns, or its error, or "nothing".
    async fn checked(watch: &mut Watch<Rules, RulesError>) -> String {
        match watch.check(false).await {
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
    async fn all_kinds_of_file_changes_are_noticed() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        fs::write(&path, ONE).unwrap();
        let (mut watch, rules) = Watch::open(&path, parse).unwrap();
        assert_eq!(rules.len(), 1);
        check(&checked(&mut watch).await, "nothing");
        // Written over with a text of the same length.
        fs::write(&path, TWO).unwrap();
        check(&checked(&mut watch).await, "two");
        check(&checked(&mut watch).await, "nothing");
        // Written again with the same text.
        fs::write(&path, TWO).unwrap();
        check(&checked(&mut watch).await, "nothing");
        // Another file in its place.
        let other = home.path().join("other.toml");
        fs::write(&other, ONE).unwrap();
        fs::rename(&other, &path).unwrap();
        check(&checked(&mut watch).await, "one");
        // Broken, once; then gone, once; then back.
        fs::write(&path, "[namespaces").unwrap();
        check(&checked(&mut watch).await, "is not valid: line 1: this is not TOML");
        check(&checked(&mut watch).await, "nothing");
        fs::remove_file(&path).unwrap();
        check(&checked(&mut watch).await, "cannot be read: No such file");
        check(&checked(&mut watch).await, "nothing");
        fs::write(&path, ONE).unwrap();
        check(&checked(&mut watch).await, "one");
        // A requested check returns the rules although nothing has changed.
        assert_eq!(watch.check(true).await.unwrap().unwrap().len(), 1);
    }

    /// Kubernetes changes ConfigMaps in this way: the path leads through a directory that is a symbolic link, and the link is
    /// replaced.
    #[tokio::test]
    async fn a_replaced_symlink_is_noticed() {
        use std::os::unix::fs::symlink;
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str| home.path().join(name);
        for (version, text) in [("v1", ONE), ("v2", TWO)] {
            fs::create_dir(place(version)).unwrap();
            fs::write(place(version).join("rules.toml"), text).unwrap();
        }
        symlink("v1", place("..data")).unwrap();
        symlink("..data/rules.toml", place("rules.toml")).unwrap();
        let (mut watch, _) = Watch::open(&place("rules.toml"), parse).unwrap();
        check(&checked(&mut watch).await, "nothing");
        symlink("v2", place("..next")).unwrap();
        fs::rename(place("..next"), place("..data")).unwrap();
        check(&checked(&mut watch).await, "two");
    }

    /// The first half of the file alone is valid.
    #[tokio::test]
    async fn a_partly_written_file_is_not_used() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        fs::write(&path, ONE).unwrap();
        let (mut watch, _) = Watch::open(&path, parse).unwrap();
        fs::write(&path, "[namespaces]\n").unwrap();
        let written = path.clone();
        let writer = tokio::spawn(async move {
            tokio::time::sleep(SETTLED / 4).await;
            fs::write(&written, TWO).unwrap();
        });
        check(&checked(&mut watch).await, "two");
        writer.await.unwrap();
    }

    #[test]
    fn unreadable_files_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("rules.toml");
        let said = || read(&path, parse).unwrap_err().to_string();
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
