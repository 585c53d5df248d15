//! Checks of the limiter, counted by rule and result.

use super::unmatched_checks::UnmatchedChecks;
use limina_engine::{
    Command, Name, Outcome, Request,
    limiter::{self, Decision, LimitStatus, Refusal, Reply},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use std::{
    collections::HashMap,
    iter, mem, ptr,
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
        self.results_in(self.rules.get(namespace), rule)
    }

    /// The same, with the rules of the namespace.
    fn results_in<'k>(
        &'k self,
        rules: Option<&'k HashMap<Name, Results>>,
        rule: &Name,
    ) -> Option<&'k Results> {
        rules.and_then(|rules| rules.get(rule)).or(self.others.as_ref())
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

/// The results of some checks, to be added to one rule's counters together.
#[derive(Default)]
struct Sums {
    allowed: u64,
    refused: u64,
    shadow_refused: u64,
}

impl Sums {
    fn add(&mut self, decision: &Decision, limit: &LimitStatus) {
        match (limit.exceeded, limit.shadow) {
            (true, true) => self.shadow_refused += 1,
            (true, false) => self.refused += 1,
            (false, _) if !decision.is_refused() => self.allowed += 1,
            // Another limit refused the check.
            (false, _) => {}
        }
    }
}

impl Results {
    fn count(&self, sums: Sums) {
        for (counter, sum) in [
            (&self.allowed, sums.allowed),
            (&self.refused, sums.refused),
            (&self.shadow_refused, sums.shadow_refused),
        ] {
            if sum > 0 {
                counter.inc_by(sum);
            }
        }
    }
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
                self.count_checks(&checks.namespace, iter::once(decision));
            }
            // A counter counts even if no rule applies, and needs none to give back.
            Ok(Reply::Moved { decision, .. }) | Err(Refusal::LimitReached(decision)) => {
                self.count_decisions(&checks.namespace, iter::once(decision));
            }
            Err(Refusal::NoRuleApplies { .. }) => self.unmatched.count(&checks.namespace),
            Ok(Reply::Batch(decisions)) => {
                let is_counted = |index: &usize| checks.dry_runs.binary_search(index).is_err();
                let counted = decisions.iter().enumerate().filter(|(index, _)| is_counted(index));
                let counted = counted.map(|(_, decision)| decision);
                self.count_checks(&checks.namespace, counted.clone().flatten());
                for refused in counted {
                    if let Err(Refusal::NoRuleApplies { .. }) = refused {
                        self.unmatched.count(&checks.namespace);
                    }
                }
            }
            _ => {}
        }
    }

    fn count_checks<'d>(&self, namespace: &Name, decisions: impl Iterator<Item = &'d Decision> + Clone) {
        for _ in decisions.clone().filter(|decision| decision.limits.is_empty()) {
            self.unmatched.count(namespace);
        }
        self.count_decisions(namespace, decisions);
    }

    /// Adds up the results of the same rule as long as no other rule comes between them: every addition to a counter is seen by
    /// other threads, and takes much longer than an addition to a local number.
    fn count_decisions<'d>(&self, namespace: &Name, decisions: impl Iterator<Item = &'d Decision>) {
        let mut new = Vec::new();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let rules = known.rules.get(namespace);
        let mut last: Option<(&Name, &Results)> = None;
        let mut sums = Sums::default();
        for decision in decisions {
            for (limit, rule) in
                decision.limits.iter().filter_map(|limit| Some((limit, limit.rule.as_ref()?)))
            {
                let results = match last {
                    Some((name, results)) if name == rule => results,
                    _ => match known.results_in(rules, rule) {
                        Some(results) => results,
                        None => {
                            new.push((rule, decision, limit));
                            continue;
                        }
                    },
                };
                if let Some((_, before)) = last
                    && !ptr::eq(before, results)
                {
                    before.count(mem::take(&mut sums));
                }
                last = Some((rule, results));
                sums.add(decision, limit);
            }
        }
        if let Some((_, results)) = last {
            results.count(sums);
        }
        drop(known);
        for (rule, decision, limit) in new {
            let mut sums = Sums::default();
            sums.add(decision, limit);
            self.count_new(namespace, rule, sums);
        }
    }

    /// Counts results of a rule that had no counters a moment ago.
    fn count_new(&self, namespace: &Name, rule: &Name, sums: Sums) {
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
        known.results_of(namespace, rule).expect("created above").count(sums);
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

#[cfg(test)]
mod tests {
    use super::*;
    use limina_engine::{KeyValues, limiter::Limit};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// A decision about limits, each given by its rule, whether it is exceeded, and whether it is a shadow limit.
    fn decision(limits: &[(&str, bool, bool)]) -> Decision {
        let limit = |(rule, exceeded, shadow): &(&str, bool, bool)| LimitStatus {
            entry: 0,
            rule: Some(name(rule)),
            override_name: None,
            group: KeyValues::empty(),
            limit: Limit::AtMost(1),
            used: 1,
            reset: None,
            per: None,
            refill: None,
            shadow: *shadow,
            exceeded: *exceeded,
            waiting: 0,
        };
        let allowed = !limits.iter().any(|(_, exceeded, shadow)| *exceeded && !shadow);
        Decision { allowed, reported: false, limits: limits.iter().map(limit).collect(), retry_after: None }
    }

    /// Counts twice: the first time, the counters do not exist yet.
    #[test]
    fn results_of_a_batch_are_counted_by_rule() {
        let counted = RuleChecks::default();
        let decisions = [
            decision(&[("a", false, false), ("b", false, false)]),
            decision(&[("a", false, false), ("b", true, true)]),
            decision(&[("a", false, false), ("b", true, false)]),
            // The dry run.
            decision(&[("a", false, false)]),
            decision(&[("a", false, false)]),
        ];
        let checks = CountedChecks { namespace: name("shop"), dry_runs: vec![3] };
        let outcome = Outcome::Limiter(Ok(Reply::Batch(decisions.into_iter().map(Ok).collect())));
        for times in 1..3 {
            counted.count(&checks, &outcome);
            let known = counted.known.read().unwrap();
            let results = |rule: &str| {
                let Results { allowed, refused, shadow_refused } =
                    known.results_of(&checks.namespace, &name(rule)).unwrap();
                [allowed.get(), refused.get(), shadow_refused.get()]
            };
            assert_eq!(results("a"), [3 * times, 0, 0]);
            assert_eq!(results("b"), [times, times, times]);
        }
    }
}
