//! The configuration of Envoy's rate limits, which changes while the server runs.

use limina_engine::Name;
use limina_envoy::{Config, CountRefused};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::{Notify, watch};

/// The configuration that Envoy's requests are resolved with. Cheap to clone.
#[derive(Clone, Default)]
pub struct EnvoyLimits(Arc<Limits>);

/// What a request is resolved with.
#[derive(Clone, Default)]
pub(super) struct Current {
    pub(super) config: Arc<Config>,
    /// How often the server has looked for missing rules, and made them again where they were lost.
    pub(super) searches: u64,
}

#[derive(Default)]
struct Limits {
    current: watch::Sender<Current>,
    count_refused: BTreeMap<String, CountRefused>,
    /// Namespaces in which a request has missed a rule.
    missing: Mutex<BTreeSet<Name>>,
    missed: Notify,
}

impl EnvoyLimits {
    /// Knows no domain yet. `count_refused` says for some domains which refused hits count.
    pub fn new(count_refused: BTreeMap<String, CountRefused>) -> EnvoyLimits {
        EnvoyLimits(Arc::new(Limits { count_refused, ..Limits::default() }))
    }

    /// Resolves requests with this configuration from now on, also those that miss a rule of a domain that it changes. Its rules should
    /// exist already.
    pub fn set(&self, config: Config) {
        self.0.current.send_modify(|current| current.config = Arc::new(config));
    }

    /// Lets the requests that wait for a missing rule ask the limiter again.
    pub fn retry_missing(&self) {
        self.0.current.send_modify(|current| current.searches += 1);
    }

    /// The configuration with which requests are resolved.
    pub fn config(&self) -> Arc<Config> {
        self.0.current.borrow().config.clone()
    }

    /// What requests are resolved with, now and after each change.
    pub(super) fn subscribe(&self) -> watch::Receiver<Current> {
        self.0.current.subscribe()
    }

    /// Waits until a request misses a rule that the configuration has. Returns the namespaces of such requests.
    pub async fn missing_rules(&self) -> BTreeSet<Name> {
        self.0.missed.notified().await;
        std::mem::take(&mut *self.0.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The namespace does not have a rule that a request needs.
    pub(super) fn report_missing(&self, namespace: Name) {
        self.0.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace);
        self.0.missed.notify_one();
    }

    /// The domains that have a setting of their own, and that the configuration does not have: perhaps a name is misspelt.
    pub fn unknown_domains<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = &'a str> {
        let domains = self.0.count_refused.keys().map(String::as_str);
        domains.filter(|domain| config.domain(domain).is_none())
    }

    pub(super) fn count_refused(&self, domain: &str) -> CountRefused {
        self.0.count_refused.get(domain).copied().unwrap_or_default()
    }
}
