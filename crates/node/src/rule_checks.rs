//! What became of checks, by rule, for operators.

use limina_engine::{
    Command, Name, Outcome, Request,
    limiter::{self, Decision, Refusal, Reply},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// So many rules have labels of their own; the others share empty ones.
const MAX_NAMED: usize = 1_000;

/// Counts checks by rule and result. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct RuleChecks {
    family: Family<Labels, Counter>,
    /// By namespace and rule, so that counting makes no labels.
    known: Arc<RwLock<Known>>,
}

#[derive(Default)]
struct Known {
    rules: HashMap<Name, HashMap<Name, Results>>,
    count: usize,
    /// Those of all other rules, once there are any.
    others: Option<Results>,
}

impl Known {
    /// None if they must be made.
    fn results_of(&self, namespace: &Name, rule: &Name) -> Option<&Results> {
        self.rules.get(namespace).and_then(|rules| rules.get(rule)).or(self.others.as_ref())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Labels {
    namespace: String,
    rule: String,
    result: &'static str,
}

/// One rule's counters.
struct Results {
    allowed: Counter,
    refused: Counter,
    shadow_refused: Counter,
}

/// A request with checks that count: those that take something, or would have.
pub(crate) struct Asked {
    namespace: Name,
    /// The places in a batch of those that only look.
    dry: Vec<usize>,
}

impl Asked {
    /// None if there are no such checks in the request.
    pub(crate) fn of(request: &Request) -> Option<Asked> {
        let Command::Limiter(command) = &request.command else { return None };
        let dry = match command {
            limiter::Command::Check(check) if !check.dry_run() => Vec::new(),
            limiter::Command::MoveCounter(_) | limiter::Command::TakeLease(_) => Vec::new(),
            limiter::Command::CheckBatch(checks) => {
                let dry = checks.iter().enumerate().filter(|(_, check)| check.dry_run());
                dry.map(|(place, _)| place).collect()
            }
            _ => return None,
        };
        Some(Asked { namespace: request.namespace.clone(), dry })
    }
}

impl RuleChecks {
    pub(crate) fn family(&self) -> Family<Labels, Counter> {
        self.family.clone()
    }

    /// Counts what became of the checks that were asked for.
    pub(crate) fn count(&self, asked: &Asked, outcome: &Outcome) {
        let Outcome::Limiter(result) = outcome else { return };
        match result {
            Ok(
                Reply::Allowed(decision) | Reply::Moved { decision, .. } | Reply::LeaseTaken { decision, .. },
            )
            | Err(Refusal::LimitReached(decision)) => self.count_decision(&asked.namespace, decision),
            Ok(Reply::Batch(decisions)) => {
                for (place, decision) in decisions.iter().enumerate() {
                    if asked.dry.binary_search(&place).is_err() {
                        self.count_decision(&asked.namespace, decision);
                    }
                }
            }
            _ => {}
        }
    }

    fn count_decision(&self, namespace: &Name, decision: &Decision) {
        for limit in &decision.limits {
            let Some(rule) = &limit.rule else { continue };
            self.with_results_of(namespace, rule, |results| match (limit.exceeded, limit.shadow) {
                (true, true) => drop(results.shadow_refused.inc()),
                (true, false) => drop(results.refused.inc()),
                (false, _) if decision.allowed => drop(results.allowed.inc()),
                // Another limit refused it.
                (false, _) => {}
            });
        }
    }

    fn with_results_of(&self, namespace: &Name, rule: &Name, count: impl Fn(&Results)) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(results) = known.results_of(namespace, rule) {
            return count(results);
        }
        drop(known);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.results_of(namespace, rule).is_none() {
            if known.count >= MAX_NAMED {
                known.others = Some(self.make("", ""));
            } else {
                known.count += 1;
                let results = self.make(namespace.as_str(), rule.as_str());
                known.rules.entry(namespace.clone()).or_default().insert(rule.clone(), results);
            }
        }
        count(known.results_of(namespace, rule).expect("it was just made"));
    }

    fn make(&self, namespace: &str, rule: &str) -> Results {
        let counter = |result| {
            let labels = Labels { namespace: namespace.to_owned(), rule: rule.to_owned(), result };
            self.family.get_or_create_owned(&labels)
        };
        Results {
            allowed: counter("allowed"),
            refused: counter("refused"),
            shadow_refused: counter("shadow_refused"),
        }
    }
}
