//! Checks of the limiter, counted by rule and result.

use super::unmatched_checks::UnmatchedChecks;
use hashbrown::HashMap;
use limina_engine::{
    Command, Name, Outcome, Request,
    decisions::{self, BatchItem, Decide},
    limiter::{self, AppliedLimit, Checked, LimitOfCheck, Refusal, Reply},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The most rules that have labels of their own. All other rules share counters with empty labels.
const MAX_NAMED: usize = 1_000;

/// Counts checks by rule and result. A clone shares the counters.
#[derive(Clone, Default)]
pub(crate) struct RuleChecks {
    family: Family<Labels, Counter>,
    unmatched: UnmatchedChecks,
    /// The counters by namespace and rule, so that counting a check allocates no labels.
    known: Arc<RwLock<KnownCounters>>,
}

#[derive(Default)]
struct KnownCounters {
    rules: HashMap<Name, HashMap<Name, Results>>,
    count: usize,
    /// The counters that all rules beyond [`MAX_NAMED`] share. None until there is such a rule.
    others: Option<Results>,
}

impl KnownCounters {
    fn of<'k>(&'k self, namespace: &Name) -> KnownRules<'k> {
        KnownRules { rules: self.rules.get(namespace), others: self.others.as_ref() }
    }
}

/// The rules of a namespace that were counted before.
struct KnownRules<'k> {
    rules: Option<&'k HashMap<Name, Results>>,
    others: Option<&'k Results>,
}

impl<'k> KnownRules<'k> {
    /// None if the rule was never counted, and its counters must be created.
    fn results_of(&self, rule: &Name) -> Option<&'k Results> {
        self.rules.and_then(|rules| rules.get(rule)).or(self.others)
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

impl Results {
    /// `is_refused` says whether any limit, or another part of a decision, refused.
    fn count(&self, is_refused: bool, limit: &AppliedLimit) {
        match (limit.exceeded, limit.shadow) {
            (true, true) => drop(self.shadow_refused.inc()),
            (true, false) => drop(self.refused.inc()),
            (false, _) if !is_refused => drop(self.allowed.inc()),
            // Another limit refused the check, or another part the decision.
            (false, _) => {}
        }
    }
}

/// A request with checks that are counted: checks that take something, or would have if they had passed.
pub(crate) struct CountedChecks {
    namespace: Name,
    counted: Counted,
}

enum Counted {
    /// Checks of the limiter.
    Checks {
        /// The indexes of the dry runs of a batch, ascending. They are not counted.
        dry_runs: Vec<usize>,
    },
    /// A decision, or a batch of them: the number of checks of each item that are counted.
    Decisions(Vec<usize>),
}

impl CountedChecks {
    /// None if the request contains no check that is counted.
    pub(crate) fn of(request: &Request) -> Option<CountedChecks> {
        let counted = match &request.command {
            Command::Limiter(command) => Counted::Checks { dry_runs: dry_runs(command)? },
            Command::Decisions(command) => Counted::Decisions(checks_of_decisions(command)?),
            _ => return None,
        };
        Some(CountedChecks { namespace: request.namespace.clone(), counted })
    }
}

/// None if the command contains no check that is counted.
fn dry_runs(command: &limiter::Command) -> Option<Vec<usize>> {
    match command {
        limiter::Command::Check(check) if !check.dry_run() => Some(Vec::new()),
        limiter::Command::CheckSet(_) | limiter::Command::MoveCounter(_) | limiter::Command::TakeLease(_) => {
            Some(Vec::new())
        }
        limiter::Command::CheckBatch(checks) => {
            let dry_runs = checks.iter().enumerate().filter(|(_, check)| check.dry_run());
            Some(dry_runs.map(|(index, _)| index).collect())
        }
        _ => None,
    }
}

/// None if the command contains no check that is counted.
fn checks_of_decisions(command: &decisions::Command) -> Option<Vec<usize>> {
    let checks = |decide: &Decide| if decide.dry_run() { 0 } else { decide.parts().checks.len() };
    let checks: Vec<usize> = match command {
        decisions::Command::Decide(request) => vec![checks(&request.wanted)],
        decisions::Command::Batch(items) => {
            let checks = |item: &BatchItem| match item {
                BatchItem::Decide(request) => checks(&request.wanted),
                BatchItem::Settle(_) | BatchItem::Rollback(_) => 0,
            };
            items.iter().map(checks).collect()
        }
        _ => return None,
    };
    checks.iter().any(|count| *count > 0).then_some(checks)
}

impl RuleChecks {
    pub(super) fn register(&self, r: &mut Registry) {
        let help = "Checks by rule and result; rules beyond the first thousand share an empty name";
        r.register("limiter_rule_checks", help, self.family.clone());
        self.unmatched.register(r);
    }

    /// Counts the results of a request's checks.
    pub(crate) fn count(&self, checks: &CountedChecks, outcome: &Outcome) {
        let namespace = &checks.namespace;
        match (&checks.counted, outcome) {
            (Counted::Checks { dry_runs }, Outcome::Limiter(result)) => {
                self.count_checks(namespace, dry_runs, result);
            }
            (Counted::Decisions(checks), Outcome::Decisions(Ok(decisions::Reply::Batch(results)))) => {
                for (checks, result) in checks.iter().zip(results) {
                    self.count_checks_of_decision(namespace, *checks, result);
                }
            }
            (Counted::Decisions(checks), Outcome::Decisions(result)) if checks.len() == 1 => {
                self.count_checks_of_decision(namespace, checks[0], result);
            }
            _ => {}
        }
    }

    /// Counts the checks of one decision, if it has any that are counted.
    fn count_checks_of_decision(
        &self,
        namespace: &Name,
        checks: usize,
        result: &Result<decisions::Reply, decisions::Refusal>,
    ) {
        let (limits, is_refused) = match result {
            _ if checks == 0 => return,
            Ok(decisions::Reply::Decided(decision)) if !decision.repeated => (&decision.limits, false),
            Err(decisions::Refusal::Refused(refused)) => (&refused.limits, true),
            Err(decisions::Refusal::NoRuleApplies { .. }) => return self.unmatched.count(namespace),
            _ => return,
        };
        // Limits are sorted by check, so each run of limits belongs to one check that some rule applies to.
        let is_same = |one: &LimitOfCheck, next: &LimitOfCheck| one.status.entry == next.status.entry;
        let matched = limits.chunk_by(is_same).count();
        (matched..checks).for_each(|_| self.unmatched.count(namespace));
        self.count_limits(namespace, limits.iter().map(|limit| (is_refused, &limit.status)));
    }

    fn count_checks(&self, namespace: &Name, dry_runs: &[usize], result: &Result<Reply, Refusal>) {
        match result {
            Ok(Reply::Allowed(decision) | Reply::Set(decision) | Reply::LeaseTaken { decision, .. }) => {
                self.count_unmatched(namespace, decision);
                self.count_by_rule(namespace, [decision]);
            }
            // A counter counts even if no rule applies, and needs none to give back.
            Ok(Reply::Moved { decision, .. }) | Err(Refusal::LimitReached(decision)) => {
                self.count_by_rule(namespace, [decision]);
            }
            Err(Refusal::NoRuleApplies { .. }) => self.unmatched.count(namespace),
            Ok(Reply::Batch(decisions)) => {
                let is_counted = |index| dry_runs.binary_search(&index).is_err();
                let counted = || decisions.iter().enumerate().filter(|(index, _)| is_counted(*index));
                for (_, decision) in counted() {
                    match decision {
                        Ok(decision) => self.count_unmatched(namespace, decision),
                        Err(Refusal::NoRuleApplies { .. }) => self.unmatched.count(namespace),
                        Err(_) => {}
                    }
                }
                self.count_by_rule(namespace, counted().filter_map(|(_, decision)| decision.as_ref().ok()));
            }
            _ => {}
        }
    }

    fn count_unmatched(&self, namespace: &Name, decision: &Checked) {
        if decision.limits.is_empty() {
            self.unmatched.count(namespace);
        }
    }

    fn count_by_rule<'d>(&self, namespace: &Name, decisions: impl IntoIterator<Item = &'d Checked>) {
        let limits = decisions.into_iter().flat_map(|decision| {
            let is_refused = decision.is_refused();
            decision.limits.iter().map(move |limit| (is_refused, limit))
        });
        self.count_limits(namespace, limits);
    }

    /// Counts limits of one namespace by their rules, each with whether its check was refused. The namespace is looked up once for
    /// all of them.
    fn count_limits<'l>(&self, namespace: &Name, limits: impl Iterator<Item = (bool, &'l AppliedLimit)>) {
        let mut known = self.known();
        let mut rules = known.of(namespace);
        for (is_refused, limit) in limits {
            let Some(rule) = &limit.rule else { continue };
            let results = match rules.results_of(rule) {
                Some(results) => results,
                None => {
                    drop(known);
                    self.add(namespace, rule);
                    known = self.known();
                    rules = known.of(namespace);
                    rules.results_of(rule).expect("rules are only added")
                }
            };
            results.count(is_refused, limit);
        }
    }

    fn known(&self) -> RwLockReadGuard<'_, KnownCounters> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the counters of a rule, unless another thread just has.
    fn add(&self, namespace: &Name, rule: &Name) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.of(namespace).results_of(rule).is_some() {
            return;
        }
        if known.count >= MAX_NAMED {
            known.others = Some(self.make("", ""));
        } else {
            known.count += 1;
            let results = self.make(namespace.as_str(), rule.as_str());
            known.rules.entry(namespace.clone()).or_default().insert(rule.clone(), results);
        }
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
    use limina_engine::{
        KeyValues,
        limiter::{Limit, LimitStatus},
    };

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    /// A decision about limits, each given by its rule, whether it is exceeded, and whether it is a shadow limit.
    fn decision(limits: &[(&str, bool, bool)]) -> Checked {
        let limit = |(rule, exceeded, shadow): &(&str, bool, bool)| AppliedLimit {
            entry: 0,
            per: None,
            refill: None,
            status: LimitStatus {
                rule: Some(name(rule)),
                override_name: None,
                group: KeyValues::empty(),
                limit: Limit::AtMost(1),
                used: 1,
                remaining: Some(0),
                reset_ms: None,
                shadow: *shadow,
                exceeded: *exceeded,
                waiting: 0,
            },
        };
        let allowed = !limits.iter().any(|(_, exceeded, shadow)| *exceeded && !shadow);
        Checked { allowed, reported: false, limits: limits.iter().map(limit).collect(), retry_after: None }
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
        let counted_checks = Counted::Checks { dry_runs: vec![3] };
        let checks = CountedChecks { namespace: name("shop"), counted: counted_checks };
        let outcome = Outcome::Limiter(Ok(Reply::Batch(decisions.into_iter().map(Ok).collect())));
        for times in 1..3 {
            counted.count(&checks, &outcome);
            let known = counted.known.read().unwrap();
            let results = |rule: &str| {
                let Results { allowed, refused, shadow_refused } =
                    known.of(&checks.namespace).results_of(&name(rule)).unwrap();
                [allowed.get(), refused.get(), shadow_refused.get()]
            };
            assert_eq!(results("a"), [3 * times, 0, 0]);
            assert_eq!(results("b"), [times, times, times]);
        }
    }
}
