//! Checks that no rule applied to, by namespace. A misspelt key or a missing rule is seen here.

use limina_engine::Name;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// The most namespaces that have labels of their own. All other namespaces share a counter with an empty label.
const MAX_NAMED: usize = 1_000;

/// Counts checks by namespace. A clone shares the counters.
#[derive(Clone, Default)]
pub(super) struct UnmatchedChecks {
    family: Family<Labels, Counter>,
    /// The counters by namespace, so that counting a check allocates no label.
    known: Arc<RwLock<HashMap<Name, Counter>>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    namespace: String,
}

impl UnmatchedChecks {
    pub(super) fn register(&self, r: &mut Registry) {
        let help = "Checks and leases that no rule applied to, allowed or refused; namespaces beyond the first thousand \
                    share an empty name";
        r.register("limiter_unmatched_checks", help, self.family.clone());
    }

    pub(super) fn count(&self, namespace: &Name) {
        if let Some(counter) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(namespace) {
            counter.inc();
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let make = |namespace: String| self.family.get_or_create_owned(&Labels { namespace });
        match known.len() < MAX_NAMED {
            true => known.entry(namespace.clone()).or_insert_with(|| make(namespace.to_string())).inc(),
            false => make(String::new()).inc(),
        };
    }
}
