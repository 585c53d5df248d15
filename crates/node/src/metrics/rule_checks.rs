//! Checks of the limiter, counted by rule and result.

use super::unmatched_checks::UnmatchedChecks;
use limina_engine::{
    Command, Name, Outcome, Request,
    limiter::{self, Decision, Refusal, Reply},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// The most rules that have labels of their own. All other rules share counters with empty labels.
const MAX_NAMED: usize = 1_000;

/// Counts checks by rule and result. A clone shares the counters.
#[derive(Clone, Default)]
pub(crate) struct RuleChecks {
    family: Family<Labels, Counter>,
    unmatched: UnmatchedChecks,
    /// The counters by namespace and rule, so that counting a check allocates no labels.
    known: Arc<RwLock<Known>>,
}

#[derive(Default)]
struct Known {
    rules: HashMap<Name, HashMap<Name, Results>>,
    count: usize,
    /// The counters that all rules beyond [`MAX_NAMED`] share. None until there is such a rule.
    others: Option<Results>,
}

impl Known {
    /// None if the rule was never counted, and its counters must be created.
    fn results_of(&self, namespace: &Name, rule: &Name) -> Option<&Results> {
        self.rules.get(namespace).and_then(|rules| rules.get(rule)).or(self.others.as_ref())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
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

/// A request with checks that are counted: checks that take something, or would have if they had passed.
pub(crate) struct CountedChecks {
    namespace: Name,
    /// The indexes of the dry runs of a batch, ascending. They are not counted.
    dry_runs: Vec<usize>,
}

impl CountedChecks {
    /// None if the request contains no check that is counted.
    pub(crate) fn of(request: &Request) -> Option<CountedChecks> {
        let Command::Limiter(command) = &request.command else { return None };
        let dry_runs = match command {
            limiter::Command::Check(check) if !check.dry_run() => Vec::new(),
            limiter::Command::CheckSet(_)
            | limiter::Command::MoveCounter(_)
            | limiter::Command::TakeLease(_) => Vec::new(),
            limiter::Command::CheckBatch(checks) => {
                let dry_runs = checks.iter().enumerate().filter(|(_, check)| check.dry_run());
                dry_runs.map(|(index, _)| index).collect()
            }
            _ => return None,
        };
        Some(CountedChecks { namespace: request.namespace.clone(), dry_runs })
    }
}

impl RuleChecks {
    pub(super) fn register(&self, r: &mut Registry) {
        let help = "Checks by rule and result; rules beyond the first thousand share an empty name";
        r.register("limiter_rule_checks", help, self.family.clone());
        self.unmatched.register(r);
    }

    /// Counts the results of a request's checks.
    pub(crate) fn count(&self, checks: &CountedChecks, outcome: &Outcome) {
        let Outcome::Limiter(result) = outcome else { return };
        match result {
            Ok(Reply::Allowed(decision) | Reply::Set(decision) | Reply::LeaseTaken { decision, .. }) => {
                self.count_check(&checks.namespace, decision);
            }
            // A counter counts even if no rule applies, and needs none to give back.
            Ok(Reply::Moved { decision, .. }) | Err(Refusal::LimitReached(decision)) => {
                self.count_decision(&checks.namespace, decision);
            }
            Err(Refusal::NoRuleApplies { .. }) => self.unmatched.count(&checks.namespace),
            Ok(Reply::Batch(decisions)) => {
                for (index, decision) in decisions.iter().enumerate() {
                    if checks.dry_runs.binary_search(&index).is_ok() {
                        continue;
                    }
                    match decision {
                        Ok(decision) => self.count_check(&checks.namespace, decision),
                        Err(Refusal::NoRuleApplies { .. }) => self.unmatched.count(&checks.namespace),
                        Err(_) => {}
                    }
                }
            }
            _ => {}
        }
    }

    fn count_check(&self, namespace: &Name, decision: &Decision) {
        if decision.limits.is_empty() {
            self.unmatched.count(namespace);
        }
        self.count_decision(namespace, decision);
    }

    fn count_decision(&self, namespace: &Name, decision: &Decision) {
        for limit in &decision.limits {
            let Some(rule) = &limit.rule else { continue };
            self.with_results_of(namespace, rule, |results| match (limit.exceeded, limit.shadow) {
                (true, true) => drop(results.shadow_refused.inc()),
                (true, false) => drop(results.refused.inc()),
                (false, _) if !decision.is_refused() => drop(results.allowed.inc()),
                // Another limit refused the check.
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
        count(known.results_of(namespace, rule).expect("created above"));
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
