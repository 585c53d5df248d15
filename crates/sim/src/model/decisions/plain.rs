//! Commands of the limiter and of the locks in a namespace of decisions: what they show of the parts of decisions, and what
//! they change.

use super::{super::limiter::shown_rule, Decisions, LAST, Made, Turn, limits::InUse};
use limina_engine::{
    Listed, Millis, Name, Position,
    limiter::{self, AppliedLimit, Change, Check, Checked, Counter, Group, Lease, LimitOfCheck, LimitStatus},
    locks::{self, GrantInfo},
};
use std::collections::BTreeMap;

impl Decisions {
    /// The expected answer to a command of the limiter. Where the order of a list is not specified, it is that of `shown`.
    pub(super) fn limiter(
        &mut self,
        turn: &mut Turn<'_>,
        command: &limiter::Command,
        shown: Option<&Result<limiter::Reply, limiter::Refusal>>,
    ) -> Result<limiter::Reply, limiter::Refusal> {
        use limiter::{Command, Refusal, Reply};
        match command {
            Command::Change(change) => self.change(turn, change),
            Command::Check(check) => self.check(turn, check),
            Command::ReleaseLease { id, session } => {
                let found = self.leases(turn.now).find(|lease| lease.lease_id == *id);
                let Some(lease) = found else { return Err(Refusal::LeaseNotFound { lease_id: id.clone() }) };
                if session.is_some() {
                    let operation_id = lease.operation_id.expect("all leases are parts");
                    return Err(Refusal::PartOfOperation { lease_id: id.clone(), operation_id });
                }
                let Position(position) = lease.fencing_token;
                self.force(turn, position);
                Ok(Reply::LeaseReleased)
            }
            Command::ListLeases { owner: None, page } => {
                assert!(page.after.is_none(), "the workload reads them at once");
                let mut items: Vec<Lease> = self.leases(turn.now).collect();
                items.sort_by(|a, b| a.lease_id.cmp(&b.lease_id));
                Ok(Reply::Leases(Listed { items, next: None }))
            }
            Command::ListCounters { .. } => {
                let items = self.counters();
                let items = match shown {
                    Some(Ok(Reply::Counters(shown))) => in_order_of(items, &shown.items),
                    _ => items,
                };
                Ok(Reply::Counters(Listed { items, next: None }))
            }
            Command::ListGroups { rule, .. } => {
                let Some(items) = self.groups(turn.now, rule) else {
                    return Err(Refusal::RuleNotFound { rule: rule.clone() });
                };
                let items = match shown {
                    Some(Ok(Reply::Groups(shown))) => in_order_of(items, &shown.items),
                    _ => items,
                };
                Ok(Reply::Groups(Listed { items, next: None }))
            }
            other => unreachable!("the workload does not send {other:?} to decisions"),
        }
    }

    fn change(&mut self, turn: &mut Turn<'_>, change: &Change) -> Result<limiter::Reply, limiter::Refusal> {
        use limiter::{Refusal, Reply};
        match change {
            Change::CreateRule(new) => {
                if self.limits.rules.contains_key(&new.name) {
                    return Err(Refusal::RuleAlreadyExists { rule: new.name.clone() });
                }
                let created_at = turn.order.advance();
                let rule = super::limits::Rule { terms: new.clone(), created_at };
                self.limits.rules.insert(new.name.clone(), rule);
                self.wake_all();
                Ok(Reply::RuleCreated(self.rule_info(&new.name)))
            }
            Change::PatchRule { name, patch } => {
                let Some(rule) = self.limits.rules.get(name) else {
                    return Err(Refusal::RuleNotFound { rule: name.clone() });
                };
                let limit = patch.limit.expect("only limits are patched");
                if rule.terms.limit != limit {
                    turn.order.advance();
                    self.limits.change_limit(turn.now, name, limit);
                }
                self.wake_all();
                Ok(Reply::Rule(self.rule_info(name)))
            }
            other => unreachable!("the workload does not send {other:?} to decisions"),
        }
    }

    fn rule_info(&self, name: &Name) -> limiter::Rule {
        let rule = &self.limits.rules[name];
        shown_rule(&rule.terms, Position(rule.created_at))
    }

    /// A check without a decision. It has one entry.
    fn check(&mut self, turn: &mut Turn<'_>, check: &Check) -> Result<limiter::Reply, limiter::Refusal> {
        let [take] = check.entries() else { unreachable!("the workload sends one entry") };
        let key_values = take.key_values().clone();
        let hits = u64::try_from(take.hits()).unwrap_or(0);
        let back = take.hits().min(0).unsigned_abs();
        let place = if check.report() { 0 } else { LAST };
        let asked = self.ask_limits(turn.now, &[(key_values.clone(), hits)], place, check.report());
        let is_taken = !check.dry_run() && take.hits() != 0 && (check.report() || !asked.is_refused);
        if is_taken {
            let is_counted = self.limits.is_counted(&key_values);
            let is_in_window = self.limits.applying(&key_values).any(|(rule, _)| rule.terms.window.is_some());
            let before = self.limits.unleased.get(&key_values).copied().unwrap_or(0);
            let after = if is_counted { (before + hits).saturating_sub(back) } else { before };
            if back > 0 {
                self.limits.give_back(turn.now, &key_values, back);
                self.wake_slots(&key_values);
            } else {
                self.limits = asked.taken.0;
            }
            self.limits.unleased.insert(key_values.clone(), after);
            self.limits.unleased.retain(|_, hits| *hits > 0);
            if after != before || is_in_window {
                turn.order.advance();
            }
        }
        let exceeded = asked.limits.iter().map(|limit| limit.status.exceeded);
        let now_used = self.statuses(turn.now, &[(key_values, hits)], &self.in_use(), place);
        let limits = now_used.into_iter().zip(exceeded);
        let limits = limits.map(|(LimitOfCheck { status, .. }, exceeded)| AppliedLimit {
            status: LimitStatus { exceeded, ..status.status },
            ..status
        });
        let limits = limits.collect();
        let is_refused = asked.is_refused && !check.report();
        let retry_after = asked.retry_after.filter(|_| is_refused).map(Millis);
        let decision = Checked { allowed: !asked.is_refused, reported: check.report(), limits, retry_after };
        match is_refused {
            true => Err(limiter::Refusal::LimitReached(decision)),
            false => Ok(limiter::Reply::Allowed(decision)),
        }
    }

    /// The slots that open decisions hold.
    fn leases(&self, now: u64) -> impl Iterator<Item = Lease> {
        let of_one = move |made: &Made| -> Vec<Lease> {
            let checks = made.request.parts().checks.iter().zip(&made.counted).enumerate();
            let counted = checks.filter(|(_, (_, counted))| **counted);
            let lease = counted.map(|(place, (check, _))| Lease {
                lease_id: Name::new(&format!("operation-{}-{place}", made.position)).expect("a short name"),
                key_values: check.key_values.clone(),
                hits: check.hits,
                owner: made.request.owner().cloned(),
                ttl_ms: made.request.ttl(),
                held_ms: Millis(now - made.made_at),
                expires_in_ms: Millis(made.expires_at - now),
                fencing_token: Position(made.position),
                operation_id: Some(made.id().clone()),
            });
            lease.collect()
        };
        self.open().flat_map(of_one)
    }

    fn counters(&self) -> Vec<Counter> {
        let mut counters: BTreeMap<_, Counter> = BTreeMap::new();
        let unleased = self.limits.unleased.iter().map(|(key_values, hits)| (key_values.clone(), *hits, 0));
        let leased = self.in_use().into_iter().map(|(key_values, hits): InUse| (key_values, 0, hits));
        for (key_values, unleased, leased) in unleased.chain(leased) {
            let none = Counter { key_values: key_values.clone(), counters: 0, leased: 0 };
            let counter = counters.entry(key_values).or_insert(none);
            counter.counters += unleased + leased;
            counter.leased += leased;
        }
        counters.into_values().collect()
    }

    /// The groups of a rule that count something.
    fn groups(&self, now: u64, name: &Name) -> Option<Vec<Group>> {
        let rule = self.limits.rules.get(name)?;
        let in_use = self.in_use();
        let counters = self.counters();
        let counted = counters.iter().flat_map(|counter| self.limits.applying(&counter.key_values));
        let counted = counted.map(|(_, group)| group).filter(|(rule, _)| rule == name);
        let mut groups: Vec<_> = self.limits.windows_of(name).cloned().chain(counted).collect();
        groups.sort();
        groups.dedup();
        let groups = groups.iter().map(|group| {
            let LimitStatus { limit, used, remaining, reset_ms, .. } =
                self.limits.status(now, 0, rule, group, &in_use).status;
            let waiting = self.waiting_in(group).count();
            Group { override_name: None, group: group.1.clone(), limit, used, remaining, reset_ms, waiting }
        });
        Some(groups.filter(|group| group.used > 0).collect())
    }

    /// The expected answer to a command of the locks.
    pub(super) fn locks(
        &mut self,
        turn: &mut Turn<'_>,
        command: &locks::Command,
    ) -> Result<locks::Reply, locks::Refusal> {
        use locks::{Command, Refusal, Reply};
        match command {
            Command::List { page, .. } => {
                assert!(page.after.is_none(), "the workload reads them at once");
                Ok(Reply::Grants(Listed { items: self.grants(turn.now).collect(), next: None }))
            }
            Command::Release { id, session } => {
                let found = self.grants(turn.now).find(|grant| grant.lock_id == *id);
                let Some(grant) = found else { return Err(Refusal::LockNotFound { lock_id: id.clone() }) };
                if session.is_some() {
                    let operation_id = grant.operation_id.expect("all grants are parts");
                    return Err(Refusal::PartOfOperation { lock_id: id.clone(), operation_id });
                }
                let Position(position) = grant.fencing_token;
                self.force(turn, position);
                Ok(Reply::Released)
            }
            other => unreachable!("the workload does not send {other:?} to decisions"),
        }
    }

    /// The locks that open decisions hold.
    fn grants(&self, now: u64) -> impl Iterator<Item = GrantInfo> {
        let locking = self.open().filter(|made| !made.request.parts().locks.is_empty());
        locking.map(move |made| {
            let is_wanted = |waiter: &&super::Waiter| {
                let locks = &made.request.parts().locks;
                locks.iter().any(|lock| super::has_lock(&waiter.wanted, &lock.key_values))
            };
            GrantInfo {
                lock_id: Name::new(&format!("operation-{}", made.position)).expect("a short name"),
                operation_id: Some(made.id().clone()),
                owner: made.request.owner().cloned(),
                locks: made.request.parts().locks.clone(),
                held_ms: Millis(now - made.made_at),
                expires_in_ms: Millis(made.expires_at - now),
                ttl_ms: made.request.ttl(),
                fencing_token: Position(made.position),
                waiting: self.waiting.iter().filter(is_wanted).count(),
            }
        })
    }
}

/// The items in the order of others, if they are the same.
fn in_order_of<T: Clone + PartialEq>(items: Vec<T>, others: &[T]) -> Vec<T> {
    let is_same = items.len() == others.len() && items.iter().all(|item| others.contains(item));
    if is_same { others.to_vec() } else { items }
}
