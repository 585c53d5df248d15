//! Making the rules of every namespace what the file says.

use super::{AT_START, EVERY};
use limina_engine::{
    Command, Name, Outcome, Page, Request,
    limiter::{self, Change, FileChanges, FileRule, Refusal, Reply, RuleChange},
};
use limina_node::{Service, Unavailable};
use limina_server::rules_file::Rules;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// How many namespaces are asked for, or changed, at once.
const AT_ONCE: usize = 64;
const PAGE: usize = 1000;
/// A namespace that refuses its rules is asked again after so long: what is in the way may have gone.
const REFUSED: Duration = Duration::from_secs(10);
/// So many names are told in one line.
const TOLD: usize = 20;

/// What is still to be done, and where rules of the file may be.
pub(super) struct Applier {
    service: Service,
    /// Namespaces in which there may be rules of the file.
    held: BTreeSet<Name>,
    pending: BTreeMap<Name, Pending>,
}

/// A namespace that is not yet what the file says.
struct Pending {
    rules: Vec<FileRule>,
    state: State,
    next: Instant,
}

/// What was last heard of it. It is told when that changes, and not at each try.
#[derive(Debug, Clone, PartialEq)]
enum State {
    New,
    Refused(Refusal),
    Unavailable(&'static str),
}

impl Applier {
    pub(super) fn new(service: Service) -> Applier {
        Applier { service, held: BTreeSet::new(), pending: BTreeMap::new() }
    }

    /// Applies the first rules. Returns when they stand, but for namespaces that refuse them, which keep what they
    /// had; and while the storage is full, when no check is served anyway.
    pub(super) async fn begin(&mut self, rules: Rules) {
        // A file of an earlier process may have named any of them.
        self.held = self.namespaces().await;
        self.aim(rules);
        loop {
            self.work().await;
            let may_wait = |pending: &Pending| match &pending.state {
                State::Refused(_) => true,
                State::Unavailable(code) => *code == Unavailable::StorageFull.code(),
                State::New => false,
            };
            if self.pending.values().all(may_wait) {
                return;
            }
            tokio::time::sleep(AT_START).await;
            self.pending.values_mut().for_each(|pending| pending.next = Instant::now());
        }
    }

    /// From now on it is these rules that are to stand, and no others of the file.
    pub(super) fn aim(&mut self, rules: Rules) {
        let none = self.held.iter().map(|name| (name.clone(), Vec::new()));
        let mut aim: Rules = none.collect();
        aim.extend(rules);
        self.held.extend(aim.keys().cloned());
        let now = Instant::now();
        let pending = |rules| Pending { rules, state: State::New, next: now };
        self.pending = aim.into_iter().map(|(name, rules)| (name, pending(rules))).collect();
    }

    /// Tries once whatever is to be done and due.
    pub(super) async fn work(&mut self) {
        let now = Instant::now();
        let due = self.pending.iter().filter(|(_, pending)| pending.next <= now);
        let due: Vec<Name> = due.map(|(name, _)| name.clone()).collect();
        for names in due.chunks(AT_ONCE) {
            let mut asked = JoinSet::new();
            for name in names {
                let (service, name) = (self.service.clone(), name.clone());
                let rules = self.pending[&name].rules.clone();
                asked.spawn(async move { (name.clone(), apply(&service, name, rules).await) });
            }
            let answers: BTreeMap<Name, Answer> = asked.join_all().await.into_iter().collect();
            for (name, answer) in answers {
                self.note(name, answer);
            }
        }
    }

    fn note(&mut self, name: Name, answer: Answer) {
        let Some(pending) = self.pending.get_mut(&name) else { return };
        match answer {
            Answer::Applied(changes) => {
                tell(&name, &changes);
                if pending.rules.is_empty() {
                    self.held.remove(&name);
                }
                self.pending.remove(&name);
            }
            Answer::Refused(refusal) => {
                pending.next = Instant::now() + REFUSED;
                let state = State::Refused(refusal.clone());
                if std::mem::replace(&mut pending.state, state.clone()) != state {
                    tracing::error!(
                        namespace = %name,
                        code = refusal.code(),
                        "the namespace keeps the rules that it has: {}",
                        reason(&refusal)
                    );
                }
            }
            Answer::Unavailable(code) => {
                pending.next = Instant::now() + EVERY / 2;
                let state = State::Unavailable(code);
                if std::mem::replace(&mut pending.state, state.clone()) != state {
                    tracing::warn!(namespace = %name, code, "the rules of the file could not be applied yet; trying again");
                }
            }
        }
    }

    /// All that there are.
    async fn namespaces(&self) -> BTreeSet<Name> {
        let mut names = BTreeSet::new();
        let mut is_told = false;
        loop {
            let page =
                Page::new(names.last().cloned(), PAGE).expect("the size of a page is within its limit");
            match self.service.namespaces(page).await {
                Ok(page) if page.is_empty() => return names,
                Ok(page) => names.extend(page.into_iter().map(|info| info.name)),
                Err(unavailable) => {
                    if !std::mem::replace(&mut is_told, true) {
                        let code = unavailable.code();
                        tracing::warn!(code, "the namespaces could not be listed yet; trying again");
                    }
                    tokio::time::sleep(AT_START).await;
                }
            }
        }
    }
}

/// What a namespace said.
enum Answer {
    Applied(FileChanges),
    Refused(Refusal),
    /// It may help to try again.
    Unavailable(&'static str),
}

async fn apply(service: &Service, namespace: Name, rules: Vec<FileRule>) -> Answer {
    let change =
        RuleChange::new(Change::ApplyFile(rules)).expect("each rule was checked when the file was read");
    let command = Command::Limiter(limiter::Command::Change(change));
    match service.submit(Request { namespace, idempotency: None, command }).await {
        Ok(Outcome::Limiter(Ok(Reply::FileApplied(changes)))) => Answer::Applied(changes),
        Ok(Outcome::Limiter(Err(refusal))) => Answer::Refused(refusal),
        // Such as that of a namespace that is deleted just now.
        Ok(other) => Answer::Unavailable(other.code()),
        Err(unavailable) => Answer::Unavailable(unavailable.code()),
    }
}

fn tell(namespace: &Name, FileChanges { created, changed, deleted }: &FileChanges) {
    if created.is_empty() && changed.is_empty() && deleted.is_empty() {
        return;
    }
    tracing::info!(
        %namespace,
        created = few(created),
        changed = few(changed),
        deleted = few(deleted),
        "rules of the file applied"
    );
}

/// The first of many names, or nothing if there are none.
fn few(names: &[Name]) -> Option<String> {
    let mut text = names.iter().take(TOLD).map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    if names.len() > TOLD {
        text.push_str(&format!(", and {} more", names.len() - TOLD));
    }
    (!names.is_empty()).then_some(text)
}

fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::RuleAlreadyExists { rule } => {
            format!("a client has made the rule {rule:?}; delete that one, or name the file's otherwise")
        }
        // What else a file can be refused for is found when it is read.
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_names_are_told() {
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
