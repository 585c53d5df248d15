//! The server's certificates: loaded at the start, and again when their files change.
//!
//! Files that cannot be used at the start are an error. Later they change nothing: the server keeps the certificates that it
//! has, and logs the file and the reason.

use limina_server::{Tls, TlsFiles};
use std::{
    convert::Infallible,
    error::Error,
    os::unix::fs::MetadataExt,
    time::{Duration, Instant, SystemTime},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The interval at which the files are checked for changes.
const INTERVAL: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A certificate that expires within this time is warned of, once a day.
const EXPIRES_SOON: Duration = DAY.saturating_mul(14);

/// Certificates whose files are followed.
pub(crate) struct TlsWatch {
    files: TlsFiles,
    tls: Tls,
    hangup: Signal,
    /// The state of the files that `tls` was loaded from.
    loaded: Stamps,
    warn_at: Instant,
}

/// Of each file: device, inode, size, and the times of the last write and the last change. None if there is no such file. It
/// differs whenever the contents change or another file takes its place.
type Stamps = Vec<Option<[i128; 7]>>;

fn stamps(files: &TlsFiles) -> Stamps {
    let stamp = |path| {
        let found = std::fs::metadata(path).ok()?;
        let identity = [i128::from(found.dev()), i128::from(found.ino()), i128::from(found.size())];
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()].map(i128::from);
        let mut stamp = [0; 7];
        stamp[..3].copy_from_slice(&identity);
        stamp[3..].copy_from_slice(&times);
        Some(stamp)
    };
    files.paths().map(stamp).collect()
}

impl TlsWatch {
    /// Loads the files. From now on, SIGHUP causes another reading.
    pub(crate) fn open(files: TlsFiles) -> Result<TlsWatch, Box<dyn Error>> {
        let hangup = signal(SignalKind::hangup())?;
        // Taken before reading, so that a write during the reading is noticed later.
        let loaded = stamps(&files);
        let tls = Tls::new(files.load(SystemTime::now()).map_err(|error| format!("TLS: {error}"))?);
        Ok(TlsWatch { files, tls, hangup, loaded, warn_at: Instant::now() })
    }

    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Loads the files again whenever they change, and warns before the certificate expires.
    ///
    /// Changed files are used when two checks have found the same: before that, a program may still be writing them. If they
    /// cannot be used, the next check tries again, and an error that two checks have found is logged: when a certificate and
    /// its key are replaced one after the other, they do not fit each other for a moment.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut seen = self.loaded.clone();
        let mut problem: Option<Problem> = None;
        loop {
            self.warn_of_expiry();
            let is_requested = tokio::select! {
                _ = self.hangup.recv() => true,
                () = tokio::time::sleep(INTERVAL) => false,
            };
            // Taken before reading, so that a write during the reading is noticed by the next check.
            let now = self.blocking(stamps).await;
            let is_settled = now == std::mem::replace(&mut seen, now.clone());
            if !is_requested && (!is_settled || now == self.loaded && problem.is_none()) {
                continue;
            }
            match self.blocking(|files| files.load(SystemTime::now())).await {
                Ok(loaded) => {
                    self.tls.replace(loaded);
                    (self.loaded, self.warn_at, problem) = (now, Instant::now(), None);
                    tracing::info!(file = %self.files.cert.display(), "the TLS certificate was loaded again");
                }
                Err(error) => {
                    let text = error.to_string();
                    let before = problem.take().filter(|problem| problem.text == text);
                    let is_logged = before.as_ref().is_some_and(|before| before.is_logged);
                    if !is_logged && (before.is_some() || is_requested) {
                        tracing::error!("TLS: the certificates stay as they were: {text}");
                    }
                    let is_logged = is_logged || before.is_some() || is_requested;
                    problem = Some(Problem { text, is_logged });
                }
            }
        }
    }

    /// The files may be on a slow network file system, so they are read on a blocking thread.
    async fn blocking<T: Send + 'static>(&self, read: impl FnOnce(&TlsFiles) -> T + Send + 'static) -> T {
        let files = self.files.clone();
        let read = tokio::task::spawn_blocking(move || read(&files));
        read.await.expect("reading certificates does not panic")
    }

    fn warn_of_expiry(&mut self) {
        let now = Instant::now();
        if now < self.warn_at {
            return;
        }
        let file = self.files.cert.display();
        let left = self.tls.expires_at().duration_since(SystemTime::now()).ok();
        match left {
            None => tracing::error!(%file, "the TLS certificate has expired: clients refuse it"),
            Some(left) if left <= EXPIRES_SOON => {
                let hours_left = left.as_secs() / 3600;
                tracing::warn!(%file, hours_left, "the TLS certificate expires soon");
            }
            Some(_) => {}
        }
        self.warn_at = now + left.filter(|left| *left < DAY).unwrap_or(DAY) + INTERVAL;
    }
}

/// Why the files could not be loaded at the last check.
struct Problem {
    text: String,
    is_logged: bool,
}
