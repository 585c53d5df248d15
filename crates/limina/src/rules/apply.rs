//! Makes one of the server's own rule sets, in every namespace, what the configuration says.

use super::{INTERVAL, INTERVAL_AT_START};
use limina_engine::{
    Command, Name, Outcome, Page, QuotaExceeded, Request,
    limiter::{
        self, Change, NewRuleSet, Refusal, Reply, RuleChange, RuleSetChanges, SetAuthor, SetOverrides,
        SetRule,
    },
};
use limina_node::{Service, Unavailable};
use limina_server::rules_file::Rules;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// The most namespaces that are changed at the same time.
const MAX_CONCURRENT: usize = 64;
const PAGE: usize = 1000;
/// The interval at which a namespace that refused its rules is tried again: a client may have removed the conflict.
const RETRY_REFUSED: Duration = Duration::from_secs(10);
/// The most names in one log line.
const MAX_NAMES: usize = 20;

/// A rule set of the server itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnSet {
    /// Its name, in every namespace: one of [`limiter::SERVERS_OWN_SETS`].
    pub(crate) name: &'static str,
    /// Whether clients may make overrides of its rules.
    pub(crate) overrides: SetOverrides,
}

/// The set of the rules file.
pub(crate) const FILE: OwnSet = OwnSet { name: "file", overrides: SetOverrides::Closed };

/// The set of Envoy's configuration.
pub(crate) const ENVOY: OwnSet = OwnSet { name: "envoy", overrides: SetOverrides::Open };

/// Knows which namespaces do not have the rules of the set yet, and applies them. Every node of a cluster does so with
/// the same configuration. If a namespace already has exactly these rules, nothing is written.
pub(crate) struct Applier {
    service: Service,
    set: OwnSet,
    /// Namespaces that may have rules of the set, of this version or of an earlier one.
    managed: BTreeSet<Name>,
    pending: BTreeMap<Name, Pending>,
}

/// A namespace that does not have the rules of the set yet.
struct Pending {
    rules: Vec<SetRule>,
    state: State,
    /// When to try next.
    next: Instant,
}

/// The result of the last attempt. It is logged when it changes, not at each attempt.
#[derive(Debug, Clone, PartialEq)]
enum State {
    New,
    Refused(Refusal),
    Unavailable { code: &'static str, is_storage_full: bool },
}

impl Applier {
    pub(crate) fn new(service: Service, set: OwnSet) -> Applier {
        Applier { service, set, managed: BTreeSet::new(), pending: BTreeMap::new() }
    }

    /// Applies the first rules. Returns when every namespace has its rules, with two exceptions: a namespace that refuses them
    /// keeps its old rules, and while the storage is full nothing is applied, but then no check is allowed either.
    pub(crate) async fn begin(&mut self, rules: Rules) {
        // An earlier process may have applied rules to any namespace.
        self.managed = self.namespaces().await;
        self.set_target(rules);
        loop {
            self.apply_due(|_| {}).await;
            let may_wait = |pending: &Pending| match &pending.state {
                State::Refused(_) => true,
                State::Unavailable { is_storage_full, .. } => *is_storage_full,
                State::New => false,
            };
            if self.pending.values().all(may_wait) {
                return;
            }
            tokio::time::sleep(INTERVAL_AT_START).await;
            self.pending.values_mut().for_each(|pending| pending.next = Instant::now());
        }
    }

    /// Sets the rules to apply. In all other namespaces the set is deleted.
    pub(crate) fn set_target(&mut self, rules: Rules) {
        let no_rules = self.managed.iter().map(|name| (name.clone(), Vec::new()));
        let mut target: Rules = no_rules.collect();
        target.extend(rules);
        self.managed.extend(target.keys().cloned());
        let now = Instant::now();
        let pending = |rules| Pending { rules, state: State::New, next: now };
        self.pending = target.into_iter().map(|(name, rules)| (name, pending(rules))).collect();
    }

    /// Applies rules again in those of these namespaces that have lost the whole set, because they were deleted. A set that is there
    /// stays as it is: another node may have a newer configuration, or may have applied it again already. Returns the namespaces whose set
    /// is there.
    pub(crate) async fn restore(&mut self, rules: Rules) -> Vec<Name> {
        let mut asked = JoinSet::new();
        for (namespace, rules) in rules {
            let (service, set) = (self.service.clone(), self.set);
            asked.spawn(async move {
                let name = Name::new(set.name).expect("the name of an own set is valid");
                let command = Command::Limiter(limiter::Command::GetRuleSet(name));
                let answer = service.submit(Request::new(namespace.clone(), command)).await;
                (namespace, rules, answer)
            });
        }
        let mut present = Vec::new();
        for (namespace, rules, answer) in asked.join_all().await {
            match answer {
                Ok(Outcome::Limiter(Err(Refusal::RuleSetNotFound { .. }))) => {
                    let pending = Pending { rules, state: State::New, next: Instant::now() };
                    self.pending.entry(namespace).or_insert(pending);
                }
                Ok(Outcome::Limiter(Ok(_))) => present.push(namespace),
                // It is not known now. The next request asks again.
                Ok(_) | Err(_) => {}
            }
        }
        present
    }

    /// Makes one attempt for each namespace whose next attempt is due, for some of them at a time. Calls `applied` after each part in which
    /// a namespace has got its rules.
    pub(crate) async fn apply_due(&mut self, mut applied: impl FnMut(&Applier)) {
        let now = Instant::now();
        let due = self.pending.iter().filter(|(_, pending)| pending.next <= now);
        let due: Vec<Name> = due.map(|(name, _)| name.clone()).collect();
        for names in due.chunks(MAX_CONCURRENT) {
            let mut asked = JoinSet::new();
            for name in names {
                let (service, set, name) = (self.service.clone(), self.set, name.clone());
                let rules = self.pending[&name].rules.clone();
                asked.spawn(async move { (name.clone(), apply(&service, set, name, rules).await) });
            }
            let answers: BTreeMap<Name, Answer> = asked.join_all().await.into_iter().collect();
            let mut has_applied = false;
            for (name, answer) in answers {
                has_applied |= matches!(answer, Answer::Applied(_));
                self.note(name, answer);
            }
            if has_applied {
                applied(self);
            }
        }
    }

    /// The namespaces that do not have the rules of the set yet.
    pub(crate) fn pending(&self) -> impl Iterator<Item = &Name> {
        self.pending.keys()
    }

    fn note(&mut self, name: Name, answer: Answer) {
        let Some(pending) = self.pending.get_mut(&name) else { return };
        match answer {
            Answer::Applied(changes) => {
                log(self.set, &name, &changes);
                if pending.rules.is_empty() {
                    self.managed.remove(&name);
                }
                self.pending.remove(&name);
            }
            Answer::Refused(refusal) => {
                pending.next = Instant::now() + RETRY_REFUSED;
                let state = State::Refused(refusal.clone());
                if std::mem::replace(&mut pending.state, state.clone()) != state {
                    tracing::error!(
                        namespace = %name,
                        rule_set = self.set.name,
                        code = refusal.code(),
                        "the namespace keeps the rules that it has: {}",
                        reason(&refusal)
                    );
                }
            }
            Answer::Unavailable { code, is_storage_full } => {
                pending.next = Instant::now() + INTERVAL / 2;
                let state = State::Unavailable { code, is_storage_full };
                if std::mem::replace(&mut pending.state, state.clone()) != state {
                    tracing::warn!(namespace = %name, rule_set = self.set.name, code, "the rule set could not be applied yet; trying again");
                }
            }
        }
    }

    /// The names of all namespaces. Retries until it has them.
    async fn namespaces(&self) -> BTreeSet<Name> {
        let mut names = BTreeSet::new();
        let mut is_logged = false;
        loop {
            let page =
                Page::new(names.last().cloned(), PAGE).expect("the size of a page is within its limit");
            match self.service.namespaces(page).await {
                Ok(page) if page.is_empty() => return names,
                Ok(page) => names.extend(page.into_iter().map(|info| info.name)),
                Err(unavailable) => {
                    if !std::mem::replace(&mut is_logged, true) {
                        let code = unavailable.code();
                        tracing::warn!(code, "the namespaces could not be listed yet; trying again");
                    }
                    tokio::time::sleep(INTERVAL_AT_START).await;
                }
            }
        }
    }
}

/// The result of one attempt.
enum Answer {
    Applied(RuleSetChanges),
    Refused(Refusal),
    /// A later attempt may succeed.
    Unavailable {
        code: &'static str,
        is_storage_full: bool,
    },
}

/// Makes the set in this namespace exactly these rules, or deletes it if there are none, so that a namespace that the
/// configuration does not name has no empty set.
async fn apply(service: &Service, set: OwnSet, namespace: Name, rules: Vec<SetRule>) -> Answer {
    let name = Name::new(set.name).expect("the name of an own set is valid");
    let author = SetAuthor::Server;
    let change = match rules.is_empty() {
        true => RuleChange::delete_rule_set(name, author),
        false => {
            let new = NewRuleSet { rules, overrides: set.overrides };
            let change = RuleChange::new(Change::PutRuleSet { set: name, new, author });
            change.expect("the rules were checked when the configuration was read")
        }
    };
    let command = Command::Limiter(limiter::Command::Change(change));
    match service.submit(Request::new(namespace, command)).await {
        Ok(Outcome::Limiter(Ok(Reply::RuleSetPut { changes, .. } | Reply::RuleSetDeleted(changes)))) => {
            Answer::Applied(changes)
        }
        Ok(Outcome::Limiter(Err(Refusal::RuleSetNotFound { .. }))) => {
            Answer::Applied(RuleSetChanges::default())
        }
        Ok(Outcome::Limiter(Err(refusal))) => Answer::Refused(refusal),
        // For example, a namespace that is being deleted.
        Ok(other) => Answer::Unavailable { code: other.code(), is_storage_full: false },
        Err(unavailable) => Answer::Unavailable {
            code: unavailable.code(),
            is_storage_full: unavailable == Unavailable::StorageFull,
        },
    }
}

fn log(set: OwnSet, namespace: &Name, changes: &RuleSetChanges) {
    if changes.is_empty() {
        return;
    }
    let changed: Vec<Name> = changes.changed.iter().map(|changed| changed.rule.clone()).collect();
    let starts_empty = changes.changed.iter().filter(|changed| changed.starts_empty);
    let starts_empty: Vec<Name> = starts_empty.map(|changed| changed.rule.clone()).collect();
    tracing::info!(
        %namespace,
        rule_set = set.name,
        created = few(&changes.created),
        changed = few(&changed),
        starts_empty = few(&starts_empty),
        deleted = few(&changes.deleted),
        "rule set applied"
    );
}

/// The first names, and how many more there are; `None` if there are no names.
pub(crate) fn few(names: &[Name]) -> Option<String> {
    let names: Vec<&str> = names.iter().map(Name::as_str).collect();
    (!names.is_empty()).then(|| few_of(&names))
}

/// The first texts, and how many more there are.
fn few_of(texts: &[impl AsRef<str>]) -> String {
    let first: Vec<&str> = texts.iter().take(MAX_NAMES).map(AsRef::as_ref).collect();
    let mut text = first.join(", ");
    if texts.len() > MAX_NAMES {
        text.push_str(&format!(", and {} more", texts.len() - MAX_NAMES));
    }
    text
}

fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::RuleManagedBySet { rules } => {
            let named: Vec<String> =
                rules.iter().map(|managed| format!("{:?} of {:?}", managed.rule, managed.set)).collect();
            format!("these rules belong to other rule sets: {}", few_of(&named))
        }
        Refusal::OverridesConflict { rule, name } => {
            format!("a client's override {name:?} of the rule {rule:?} lacks a key of the new group_by")
        }
        Refusal::OverrideAlreadyExists { rule, name } => {
            format!("a client's override {name:?} of the rule {rule:?} has the key-values of one of the set")
        }
        Refusal::QuotaExceeded(QuotaExceeded { quota, limit, used }) => {
            format!(
                "the namespace may have {limit} {quota}, and has {used}: see [quotas] in the configuration"
            )
        }
        // Every other reason for a refusal is found when the configuration is read.
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened() {
        #[track_caller]
        fn check(count: usize, begin: &str, end: &str) {
            let names: Vec<Name> = (0..count).map(|n| Name::new(&format!("r{n}")).unwrap()).collect();
            let text = few(&names).unwrap_or_default();
            assert!(text.starts_with(begin) && text.ends_with(end), "{text}");
        }
        assert_eq!(few(&[]), None);
        check(1, "r0", "r0");
        check(2, "r0, r1", "r0, r1");
        check(20, "r0, r1, ", ", r18, r19");
        check(23, "r0, r1, ", ", r18, r19, and 3 more");
    }
}
