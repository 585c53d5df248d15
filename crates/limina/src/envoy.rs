//! Envoy's configuration: read at the start, applied as rules before any request is served, and followed while the server runs.
//!
//! Files that are not valid at the start are an error. Later, they change nothing. Each domain is resolved as before until its
//! namespace has the rules of the new configuration. If the rule of a limit does not exist, a request with that limit waits a little,
//! and then fails.

use crate::{
    rules::{Applier, ENVOY, FirstProblems, INTERVAL, few},
    watch::{self, MAX_BYTES, MAX_READINGS, SETTLED, Stamp},
};
use limina_engine::limiter::{NewRule, SetRule};
use limina_envoy::{Config, ConfigError, Domain};
use limina_node::Service;
use limina_server::{EnvoyLimits, rules_file::Rules};
use std::{
    collections::BTreeSet,
    convert::Infallible,
    io::{Error as IoError, Read},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::MissedTickBehavior,
};

/// The pause after a search for missing rules.
const PAUSE_AFTER_MISSING: Duration = Duration::from_millis(50);

/// The log says at most this often that rules are missing.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvoyError {
    #[error("Envoy's configuration {} cannot be read: {why}", .path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("Envoy's configuration {} is not valid: {}", .path.display(), FirstProblems(.problems, "limina rules check --envoy"))]
    Invalid { path: PathBuf, problems: Vec<ConfigError> },
    #[error("waiting for SIGHUP")]
    Signal(#[source] IoError),
}

/// Reads the configuration once.
pub(crate) fn read(path: &Path) -> Result<Config, EnvoyError> {
    Reading::read(path).parse(path)
}

/// A configuration that is being followed.
pub(crate) struct EnvoyFiles {
    path: PathBuf,
    hangup: Signal,
    limits: EnvoyLimits,
    last: Reading,
    config: Config,
    /// Settings without an effect that are logged already.
    logged: BTreeSet<&'static str>,
}

impl EnvoyFiles {
    /// Reads the files. From now on, SIGHUP causes another reading.
    pub(crate) fn open(path: &Path, limits: EnvoyLimits) -> Result<EnvoyFiles, EnvoyError> {
        let hangup = signal(SignalKind::hangup()).map_err(EnvoyError::Signal)?;
        let last = Reading::read(path);
        let config = last.parse(path)?;
        Ok(EnvoyFiles { path: path.to_owned(), hangup, limits, last, config, logged: BTreeSet::new() })
    }

    /// Applies the first configuration. Returns when every domain has its rules, except those that refuse them. What was used before
    /// is not known here, so these are resolved with the new configuration: some of its rules may exist. Requests that
    /// need one of the others fail.
    pub(crate) async fn begin(mut self, service: Service) -> Following {
        let mut applier = Applier::new(service, ENVOY);
        let config = std::mem::take(&mut self.config);
        self.log(&config);
        for domain in self.limits.unknown_domains(&config) {
            tracing::warn!(
                domain,
                "the server has a setting for a domain that Envoy's configuration does not have"
            );
        }
        applier.begin(rules_of(&config)).await;
        self.limits.set(config.clone());
        Following { files: self, applier, target: config }
    }

    /// Says once which settings have no effect.
    fn log(&mut self, config: &Config) {
        for ignored in config.ignored() {
            if self.logged.insert(ignored.key()) {
                tracing::info!(setting = ignored.key(), "a setting of Envoy's configuration has no effect");
            }
        }
    }

    /// The configuration if the files have changed, or in any case if `is_requested`.
    async fn check(&mut self, is_requested: bool) -> Option<Result<Config, EnvoyError>> {
        let path = self.path.clone();
        let read = move || {
            let path = path.clone();
            watch::blocking(move || Reading::read(&path))
        };
        if is_requested {
            self.last = read().await;
            return Some(self.last.parse(&self.path));
        }
        let path = self.path.clone();
        if watch::blocking(move || stamps(&path)).await.is_ok_and(|stamps| stamps == self.last.stamps) {
            return None;
        }
        let mut now = read().await;
        for _ in 0..MAX_READINGS {
            if now.texts == self.last.texts {
                self.last = now;
                return None;
            }
            // A program may still be writing the files.
            tokio::time::sleep(SETTLED).await;
            let before = std::mem::replace(&mut now, read().await);
            if now.texts == before.texts {
                self.last = now;
                return Some(self.last.parse(&self.path));
            }
        }
        None
    }
}

/// A configuration whose first version is applied.
pub(crate) struct Following {
    files: EnvoyFiles,
    applier: Applier,
    /// The last configuration that was valid.
    target: Config,
}

impl Following {
    /// Applies every change of the files, forever.
    pub(crate) async fn follow(self) -> Infallible {
        let Following { mut files, mut applier, mut target } = self;
        let mut is_broken = false;
        let mut said_at = None;
        let limits = files.limits.clone();
        let mut looks = tokio::time::interval(INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_requested = tokio::select! {
                _ = files.hangup.recv() => true,
                _ = looks.tick() => false,
                missing = limits.missing_rules() => {
                    let mut rules = rules_of(&target);
                    rules.retain(|namespace, _| missing.contains(namespace));
                    let present = applier.restore(rules).await;
                    if !present.is_empty() && said_at.is_none_or(|said: Instant| said.elapsed() > SAID_EVERY) {
                        said_at = Some(Instant::now());
                        tracing::warn!(
                            namespaces = few(&present),
                            "requests are refused: these namespaces do not have the rules of this node's Envoy configuration; \
                             another node has another one, or they refuse it"
                        );
                    }
                    applier.apply_due(|applier| publish(applier, &target, &limits)).await;
                    // The rules are there again, or another node has made them again.
                    limits.retry_missing();
                    // If another node has applied other rules, every request of this node may miss a rule.
                    tokio::time::sleep(PAUSE_AFTER_MISSING).await;
                    continue;
                }
            };
            match files.check(is_requested).await {
                Some(Ok(config)) => {
                    if std::mem::take(&mut is_broken) {
                        tracing::info!(path = %files.path.display(), "Envoy's configuration is valid again");
                    }
                    files.log(&config);
                    applier.set_target(rules_of(&config));
                    target = config;
                    // A domain whose limits are all unlimited has no rules to apply. It is published, or removed, here.
                    publish(&applier, &target, &limits);
                }
                Some(Err(error)) => {
                    is_broken = true;
                    tracing::error!("Envoy's limits stay as they were: {error}");
                }
                None => {}
            }
            applier.apply_due(|applier| publish(applier, &target, &limits)).await;
        }
    }
}

/// Resolves each domain with the target whose namespace has the target's rules. The others are resolved as before.
fn publish(applier: &Applier, target: &Config, limits: &EnvoyLimits) {
    let mut usable = target.clone();
    usable.take_domains(applier.pending(), &limits.config());
    limits.set(usable);
}

/// The rules of all domains, by namespace.
fn rules_of(config: &Config) -> Rules {
    let rule = |rule: &NewRule| SetRule { rule: rule.clone(), overrides: Vec::new() };
    let rules = |domain: &Domain| (domain.name().clone(), domain.rules().iter().map(rule).collect());
    config.domains().map(rules).collect()
}

/// One reading of the files.
struct Reading {
    /// If the stamps have not changed, the files are not read again.
    stamps: Vec<(String, Stamp)>,
    /// Name and text of each file, by name; or why they could not be read.
    texts: Result<Vec<(String, String)>, String>,
}

impl Reading {
    fn read(path: &Path) -> Reading {
        let mut reading = Reading { stamps: Vec::new(), texts: Ok(Vec::new()) };
        // Taken before reading, so that a write during the reading changes a stamp.
        match stamps(path) {
            Ok(stamps) => reading.stamps = stamps,
            Err(error) => reading.texts = Err(error.to_string()),
        }
        if reading.texts.is_ok() {
            let texts = reading.stamps.iter().map(|(name, _)| {
                let text = read_text(&file_of(path, name)).map_err(|error| format!("{name}: {error}"))?;
                Ok((name.clone(), text))
            });
            reading.texts = texts.collect();
        }
        reading
    }

    fn parse(&self, path: &Path) -> Result<Config, EnvoyError> {
        let texts = match &self.texts {
            Ok(texts) => texts,
            Err(why) => return Err(EnvoyError::Unreadable { path: path.to_owned(), why: why.clone() }),
        };
        let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        limina_envoy::load(texts).map_err(|problems| EnvoyError::Invalid { path: path.to_owned(), problems })
    }
}

/// The path of a file: below the directory, or the file itself.
fn file_of(path: &Path, name: &str) -> PathBuf {
    if path.is_dir() { path.join(name) } else { path.to_owned() }
}

/// The files with their stamps, by name. Of a directory these are all files whose names do not begin with a point, as in a
/// mounted ConfigMap.
fn stamps(path: &Path) -> std::io::Result<Vec<(String, Stamp)>> {
    let found = std::fs::metadata(path)?;
    if !found.is_dir() {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        return Ok(vec![(name, watch::stamp(&found))]);
    }
    let mut stamps = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        // A file that is gone meanwhile is noticed at the next look.
        let Ok(found) = std::fs::metadata(path.join(&name)) else { continue };
        if found.is_file() {
            stamps.push((name, watch::stamp(&found)));
        }
    }
    stamps.sort();
    Ok(stamps)
}

fn read_text(path: &Path) -> std::io::Result<String> {
    // Opening a pipe would block.
    if !std::fs::metadata(path)?.is_file() {
        return Err(IoError::other("it is not a file"));
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(IoError::other(format!("it has more than {} MiB", MAX_BYTES >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| IoError::other("it is not UTF-8"))
}
