//! The naive limiter: lists of everything that was taken, scanned for every answer.

mod decide;
mod groups;
mod lists;
mod quotas;
mod relaxed;
mod rule_sets;
mod rules;
pub(super) mod window;

use super::{Bounds, CreationPosition, Done, Order, expect, pages::page_of, select};
use decide::{Case, Mode};
use limina_engine::{
    KeyValues, Millis, Name, Position,
    limiter::{self, Checked, Command, Counter, EntryMode, NewLease, Refusal, Reply, Take},
};
use rules::Rule;
use std::collections::BTreeMap;
use window::History;
pub(super) use {rules::shown_rule, window::remaining};

type Answer = Result<Reply, Refusal>;

/// The limiter of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Limiter {
    bounds: Bounds,
    rules: Vec<Rule>,
    sets: Vec<rule_sets::Set>,
    /// Every change of a counter, except by leases.
    moves: Vec<(KeyValues, i128)>,
    /// The leases that have not ended.
    leases: Vec<Lease>,
    /// What happened to each window.
    groups: BTreeMap<GroupKey, History>,
}

/// Identifies a window.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum GroupKey {
    /// A group of a rule, shared with the override that has exactly its keys.
    Group { rule: Name, values: KeyValues },
    /// An override with more keys than the rule groups by.
    Own { rule: Name, name: Name },
    /// A limit that came with requests.
    Request { key_values: KeyValues, per: u64 },
}

#[derive(Debug, Clone, PartialEq)]
struct Lease {
    id: Name,
    session: Name,
    key_values: KeyValues,
    hits: u64,
    owner: Option<Name>,
    ttl: u64,
    taken_at: u64,
    expires_at: u64,
    /// The expiry without the extension by an opening, which is not stored.
    stored_expires_at: u64,
    token: CreationPosition,
}

impl Lease {
    fn new(now: u64, order: Order, new: &NewLease) -> Lease {
        let expires_at = now + new.ttl().0;
        Lease {
            id: new.id().clone(),
            session: new.session().clone(),
            key_values: new.key_values().clone(),
            hits: new.hits(),
            owner: new.owner().cloned(),
            ttl: new.ttl().0,
            taken_at: now,
            expires_at,
            stored_expires_at: expires_at,
            token: CreationPosition::after(order),
        }
    }

    /// What it takes.
    fn take(&self) -> Take {
        let hits = i64::try_from(self.hits).expect("hits are small");
        Take::new(self.key_values.clone(), hits).expect("a lease is within the limits")
    }
}

impl Limiter {
    pub(super) fn new(bounds: &Bounds) -> Limiter {
        Limiter { bounds: bounds.clone(), ..Limiter::default() }
    }

    /// Executes a command that has this answer. The error is the expected answer.
    pub(super) fn run(
        &mut self,
        now: u64,
        order: &mut Order,
        command: &Command,
        is_keyed: bool,
        answer: &Answer,
    ) -> Result<Done, String> {
        let before = self.clone();
        let done = match (command, answer) {
            // A plan changes nothing.
            (Command::PlanRuleSet(_), _) => {
                return self.run_unbounded(now, order, command, is_keyed, answer);
            }
            (_, Err(Refusal::QuotaExceeded(exceeded))) => {
                return self.refused_by(now, order, command, exceeded);
            }
            _ => self.run_unbounded(now, order, command, is_keyed, answer)?,
        };
        expect(before.may_become(self), || format!("a refusal by a quota {:?}", self.bounds))?;
        Ok(done)
    }

    fn run_unbounded(
        &mut self,
        now: u64,
        order: &mut Order,
        command: &Command,
        is_keyed: bool,
        answer: &Answer,
    ) -> Result<Done, String> {
        let is = |expected: Answer| expect(*answer == expected, || format!("{expected:?}"));
        Ok(match command {
            Command::Change(change) => return self.change(now, order, change, answer),
            Command::Check(check) => {
                let entries = check.entries();
                let case = Case::new(now, is_keyed, entries, Mode::Check);
                let case = Case { dry_run: check.dry_run(), report: check.report(), ..case };
                if let Some(refusal) = self.no_rule_applies(entries).filter(|_| check.require_match()) {
                    is(Err(refusal))?;
                    return Ok(Done { is_change: false, is_relaxed: self.is_relaxed(&case) });
                }
                let (decision, done) = self.decide(order, &case, decision_in(answer)?)?;
                is(match decision.is_refused() {
                    true => Err(Refusal::LimitReached(decision)),
                    false => Ok(Reply::Allowed(decision)),
                })?;
                done
            }
            Command::CheckSet(set) => {
                let entries = set.entries();
                let is_plain = |entry| set.mode(entry) == EntryMode::Take && set.alternative(entry).is_none();
                // A set whose entries all take, without alternatives, is decided as a check is.
                let set = (!(0..entries.len()).all(is_plain)).then_some(set);
                let case = Case { set, ..Case::new(now, is_keyed, entries, Mode::Check) };
                let (decision, done) = self.decide(order, &case, decision_in(answer)?)?;
                is(Ok(Reply::Set(decision)))?;
                done
            }
            Command::CheckBatch(_) => unreachable!("a batch is executed item by item"),
            Command::MoveCounter(change) if change.amount() < 0 => {
                let key_values = change.key_values();
                let back = self.unleased(key_values).min(i128::from(change.amount().unsigned_abs()));
                self.moves.push((key_values.clone(), -back));
                let decision =
                    Checked { allowed: true, reported: false, limits: Vec::new(), retry_after: None };
                is(Ok(Reply::Moved { counter: self.counter(key_values), decision }))?;
                changed(order, u64::from(back > 0))
            }
            Command::MoveCounter(change) => {
                let key_values = change.key_values().clone();
                let entries =
                    [Take::new(key_values.clone(), change.amount()).expect("a counter is within the limits")];
                let (decision, done) = self.decide(
                    order,
                    &Case::new(now, is_keyed, &entries, Mode::Move),
                    decision_in(answer)?,
                )?;
                is(match decision.is_refused() {
                    true => Err(Refusal::LimitReached(decision)),
                    false => Ok(Reply::Moved { counter: self.counter(&key_values), decision }),
                })?;
                done
            }
            Command::SetCounter(change) => {
                let key_values = change.key_values();
                let by = i128::from(change.amount().max(0)) - self.unleased(key_values);
                self.moves.push((key_values.clone(), by));
                is(Ok(Reply::Counter(self.counter(key_values))))?;
                changed(order, 1)
            }
            Command::TakeLease(new) => {
                let lease = Lease::new(now, *order, new);
                let entries = [lease.take()];
                if let Some(refusal) = self.no_rule_applies(&entries).filter(|_| new.require_match()) {
                    is(Err(refusal))?;
                    return Ok(Done::NOTHING);
                }
                let (decision, done) = self.decide(
                    order,
                    &Case::new(now, is_keyed, &entries, Mode::Lease(&lease)),
                    decision_in(answer)?,
                )?;
                if decision.is_refused() {
                    is(Err(Refusal::LimitReached(decision)))?;
                    return Ok(done);
                }
                let session = new.session().clone();
                let lease = Box::new(self.show_lease(now, order, new.id(), answer)?);
                is(Ok(Reply::LeaseTaken { lease, session, decision }))?;
                done
            }
            Command::ExtendLease { id, session } => {
                if let Err(refusal) = self.check_session(id, Some(session)) {
                    is(Err(refusal))?;
                    return Ok(Done::NOTHING);
                }
                let lease = self.leases.iter_mut().find(|lease| lease.id == *id).expect("it lives");
                (lease.expires_at, lease.stored_expires_at) = (now + lease.ttl, now + lease.ttl);
                is(Ok(Reply::Lease(self.show_lease(now, order, id, answer)?)))?;
                changed(order, 1)
            }
            Command::ReleaseLease { id, session } => {
                if let Err(refusal) = self.check_session(id, session.as_ref()) {
                    is(Err(refusal))?;
                    return Ok(Done::NOTHING);
                }
                self.leases.retain(|lease| lease.id != *id);
                is(Ok(Reply::LeaseReleased))?;
                changed(order, 1)
            }
            Command::AbandonLease(_) => {
                is(Ok(Reply::LeaseAbandoned))?;
                Done::NOTHING
            }
            Command::GetLease(id) => {
                is(match self.has_lease(id) {
                    true => Ok(Reply::Lease(self.show_lease(now, order, id, answer)?)),
                    false => Err(lease_not_found(id)),
                })?;
                Done::NOTHING
            }
            Command::GetRule(_)
            | Command::ListRules { .. }
            | Command::GetOverride { .. }
            | Command::ListOverrides { .. }
            | Command::PlanRuleSet(_)
            | Command::GetRuleSet(_)
            | Command::ListRuleSets(_)
            | Command::Match(_)
            | Command::ListCounters { .. }
            | Command::ListGroups { .. }
            | Command::ListLeases { .. } => {
                self.read(now, order, command, answer)?;
                Done::NOTHING
            }
        })
    }

    /// What an answer must show of a lease. If it shows the token for the first time, that is the lease's token.
    fn show_lease(
        &mut self,
        now: u64,
        order: &mut Order,
        id: &Name,
        answer: &Answer,
    ) -> Result<limiter::Lease, String> {
        let shown = match answer {
            Ok(Reply::LeaseTaken { lease, .. }) => lease.fencing_token,
            Ok(Reply::Lease(lease)) => lease.fencing_token,
            _ => return Err("the lease".into()),
        };
        let info = self.lease_info(now, id, shown).ok_or("no lease")?;
        let lease = self.leases.iter_mut().find(|lease| lease.id == *id).expect("it lives");
        lease.token.known = Some(info.fencing_token.0);
        order.learn(info.fencing_token);
        Ok(info)
    }

    /// Ends the lease that is due next. If several are due together, the one that was taken first.
    pub(super) fn expire_next(&mut self) {
        if let Some(place) = (0..self.leases.len()).min_by_key(|place| self.leases[*place].expires_at) {
            self.leases.remove(place);
        }
    }

    /// When the next lease expires.
    pub(super) fn next_expiry(&self) -> Option<u64> {
        self.leases.iter().map(|lease| lease.expires_at).min()
    }

    /// Extends every lease to at least its full ttl from now on.
    pub(super) fn reopen(&mut self, ready: u64) {
        for lease in &mut self.leases {
            lease.expires_at = lease.stored_expires_at.max(ready + lease.ttl);
        }
    }

    pub(super) fn lease_ids(&self) -> impl Iterator<Item = &Name> {
        self.leases.iter().map(|lease| &lease.id)
    }

    fn has_lease(&self, id: &Name) -> bool {
        self.lease(id).is_some()
    }

    /// Why this session cannot extend or end the lease. An operator has no session.
    fn check_session(&self, id: &Name, session: Option<&Name>) -> Result<(), Refusal> {
        let lease = self.lease(id).ok_or_else(|| lease_not_found(id))?;
        if session.is_some_and(|session| *session != lease.session) {
            return Err(Refusal::SessionMismatch { lease_id: id.clone() });
        }
        Ok(())
    }

    /// The refusal of a check that requires a rule for every entry.
    fn no_rule_applies(&self, entries: &[Take]) -> Option<Refusal> {
        let is_free =
            |take: &&Take| take.limit().is_none() && self.rules_for(take.key_values()).next().is_none();
        let take = entries.iter().find(is_free)?;
        Some(Refusal::NoRuleApplies { key_values: take.key_values().clone() })
    }

    fn lease(&self, id: &Name) -> Option<&Lease> {
        self.leases.iter().find(|lease| lease.id == *id)
    }

    /// What an answer must show of a lease, given the token that it shows.
    pub(super) fn lease_info(&self, now: u64, id: &Name, shown: Position) -> Option<limiter::Lease> {
        let lease = self.lease(id)?;
        Some(limiter::Lease {
            lease_id: lease.id.clone(),
            key_values: lease.key_values.clone(),
            hits: lease.hits,
            owner: lease.owner.clone(),
            ttl_ms: Millis(lease.ttl),
            held_ms: Millis(now - lease.taken_at),
            expires_in_ms: Millis(lease.expires_at - now),
            fencing_token: lease.token.expect(shown),
            operation_id: None,
        })
    }

    fn unleased(&self, key_values: &KeyValues) -> i128 {
        self.moves.iter().filter(|(of, _)| of == key_values).map(|(_, by)| by).sum()
    }

    fn counter(&self, key_values: &KeyValues) -> Counter {
        let leases = self.leases.iter().filter(|lease| lease.key_values == *key_values);
        let leased = leases.map(|lease| lease.hits).sum();
        let unleased = u64::try_from(self.unleased(key_values)).expect("nothing is below zero");
        Counter { key_values: key_values.clone(), counters: unleased + leased, leased }
    }

    /// All counters that are not zero.
    fn counters(&self) -> Vec<Counter> {
        let moved = self.moves.iter().map(|(key_values, _)| key_values);
        let mut all: Vec<&KeyValues> =
            moved.chain(self.leases.iter().map(|lease| &lease.key_values)).collect();
        all.sort();
        all.dedup();
        all.into_iter()
            .map(|key_values| self.counter(key_values))
            .filter(|counter| counter.counters > 0)
            .collect()
    }
}

fn lease_not_found(id: &Name) -> Refusal {
    Refusal::LeaseNotFound { lease_id: id.clone() }
}

/// The decision about limits in the answer.
fn decision_in(answer: &Answer) -> Result<&Checked, String> {
    match answer {
        Ok(
            Reply::Allowed(decision)
            | Reply::Set(decision)
            | Reply::Moved { decision, .. }
            | Reply::LeaseTaken { decision, .. },
        )
        | Err(Refusal::LimitReached(decision)) => Ok(decision),
        _ => Err("a decision about limits".into()),
    }
}

/// A command without a decision has changed something if it takes positions.
fn changed(order: &mut Order, positions: u64) -> Done {
    if positions == 0 {
        return Done::NOTHING;
    }
    order.grow(positions);
    Done::CHANGE
}
