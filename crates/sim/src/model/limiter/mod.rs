//! The naive limiter: lists of everything that was taken, scanned for every answer.

mod decide;
mod groups;
mod lists;
mod quotas;
mod rule_sets;
mod rules;
mod window;

use super::{Bounds, Branch, Changed, Mark, Order, select};
use decide::{Case, Mode};
use limina_engine::{
    KeyValues, Millis, Name, Position, Time,
    limiter::{Command, CounterInfo, Decision, EntryMode, LeaseInfo, Refusal, Reply, Take},
};
use rules::Rule;
use std::collections::BTreeMap;
use window::History;

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
    /// The possible histories of each window. There is more than one only after a crash.
    groups: BTreeMap<GroupKey, Vec<History>>,
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
    token: Mark,
}

impl Limiter {
    pub(super) fn new(bounds: &Bounds) -> Limiter {
        Limiter { bounds: bounds.clone(), ..Limiter::default() }
    }

    /// All possible results of the command that agree with the answer; or the expected answer.
    pub(super) fn run(
        &self,
        now: u64,
        order: Order,
        command: &Command,
        is_keyed: bool,
        answer: Option<&Answer>,
    ) -> Result<Vec<Branch<Limiter>>, String> {
        // The items of a batch are bounded one by one, and a plan changes nothing.
        if matches!(command, Command::CheckBatch(_) | Command::PlanRuleSet(_)) {
            return self.run_unbounded(now, order, command, is_keyed, answer);
        }
        if let Some(Err(Refusal::QuotaExceeded(exceeded))) = answer {
            let ways = self.run_unbounded(now, order, command, is_keyed, None)?;
            let entries = match command {
                Command::Check(check) => check.entries().len(),
                Command::CheckSet(set) => set.entries().len(),
                _ => 1,
            };
            return self.refused_by(exceeded, order, entries, ways.iter().map(|way| &way.state));
        }
        let mut ways = self.run_unbounded(now, order, command, is_keyed, answer)?;
        let count = ways.len();
        ways.retain(|way| self.may_become(&way.state));
        match answer {
            Some(_) if ways.is_empty() => return Err(format!("a refusal by a quota {:?}", self.bounds)),
            // A quota may have refused it, also because of what an entry took that did not count in the end.
            None if self.may_be_full() || ways.len() < count || matches!(command, Command::CheckSet(_)) => {
                ways.push(self.clone().unchanged(order));
            }
            _ => {}
        }
        Ok(ways)
    }

    fn run_unbounded(
        &self,
        now: u64,
        order: Order,
        command: &Command,
        is_keyed: bool,
        answer: Option<&Answer>,
    ) -> Result<Vec<Branch<Limiter>>, String> {
        let decided = answer.and_then(decision_in);
        match command {
            Command::Change(change) => {
                let ways = self.change(now, order, change);
                fitting(ways.into_iter().map(|way| way.fit(order, answer)))
            }
            Command::Check(check) => {
                let case = Case {
                    now,
                    entries: check.entries(),
                    dry_run: check.dry_run(),
                    report: check.report(),
                    is_keyed,
                    mode: Mode::Check,
                };
                if check.require_match()
                    && let Some(refusal) = self.no_rule_applies(check.entries())
                {
                    let way = Branch { is_relaxed: self.is_relaxed(&case), ..self.clone().unchanged(order) };
                    return fitting([fit(way, &Err(refusal), answer)]);
                }
                let ways = self.decide(order, &case, decided.as_ref())?;
                fitting(ways.into_iter().map(|way| {
                    let reply = if way.decision.is_refused() {
                        Err(way.decision)
                    } else {
                        Ok(Reply::Allowed(way.decision))
                    };
                    fit(way.way, &reply.map_err(Refusal::LimitReached), answer)
                }))
            }
            Command::CheckSet(set) => {
                let entries = set.entries();
                let is_plain = |entry| set.mode(entry) == EntryMode::Take && set.alternative(entry).is_none();
                if !(0..entries.len()).all(is_plain) {
                    return match answer {
                        None | Some(Ok(Reply::Set(_))) => {
                            self.decide_set(now, order, set, is_keyed, decided.as_ref())
                        }
                        Some(_) => Err("the decision about a set".into()),
                    };
                }
                // A set whose entries all take, without alternatives, is decided as a check is.
                let case = Case { now, entries, dry_run: false, report: false, is_keyed, mode: Mode::Check };
                let ways = self.decide(order, &case, decided.as_ref())?;
                fitting(ways.into_iter().map(|way| fit(way.way, &Ok(Reply::Set(way.decision)), answer)))
            }
            Command::CheckBatch(checks) => {
                let results = match answer {
                    None => None,
                    Some(Ok(Reply::Batch(results))) if results.len() == checks.len() => Some(results),
                    Some(_) => return Err("a batch with one result for each check".into()),
                };
                let mut ways =
                    vec![Branch { state: self.clone(), order, changed: Changed::No, is_relaxed: !is_keyed }];
                for (place, check) in checks.iter().enumerate() {
                    let result = results.map(|results| match results[place].clone() {
                        Ok(decision) if !decision.is_refused() => Ok(Reply::Allowed(decision)),
                        Ok(decision) => Err(Refusal::LimitReached(decision)),
                        Err(refusal) => Err(refusal),
                    });
                    let command = Command::Check(check.clone());
                    let mut next = Vec::new();
                    for before in ways {
                        let all = before.state.run(now, before.order, &command, is_keyed, result.as_ref());
                        next.extend(
                            all.map_err(|text| format!("of check {place}: {text}"))?.into_iter().map(|way| {
                                Branch {
                                    changed: way.changed.max(before.changed),
                                    is_relaxed: way.is_relaxed && before.is_relaxed,
                                    ..way
                                }
                            }),
                        );
                    }
                    ways = next;
                }
                Ok(ways)
            }
            Command::MoveCounter(change) => {
                self.move_counter(now, order, change.key_values(), change.amount(), answer)
            }
            Command::SetCounter(change) => {
                let (key_values, to) = (change.key_values(), change.amount());
                let mut next = self.clone();
                let change = i128::from(to.max(0)) - self.unleased(key_values);
                let changed = if change == 0 { Changed::Unclear } else { Changed::Yes };
                next.moves.push((key_values.clone(), change));
                let reply = Ok(Reply::Counter(next.counter(key_values)));
                fitting([fit(next.way(order, changed), &reply, answer)])
            }
            Command::TakeLease(new) => {
                let lease = Lease {
                    id: new.id().clone(),
                    session: new.session().clone(),
                    key_values: new.key_values().clone(),
                    hits: new.hits(),
                    owner: new.owner().cloned(),
                    ttl: new.ttl().0,
                    taken_at: now,
                    expires_at: now + new.ttl().0,
                    stored_expires_at: now + new.ttl().0,
                    token: Mark::after(order),
                };
                let hits = i64::try_from(new.hits()).expect("hits are small");
                let entries =
                    [Take::new(new.key_values().clone(), hits).expect("a lease is within the limits")];
                if new.require_match()
                    && let Some(refusal) = self.no_rule_applies(&entries)
                {
                    return fitting([fit(self.clone().unchanged(order), &Err(refusal), answer)]);
                }
                let mode = Mode::Lease(&lease);
                let case = Case { now, entries: &entries, dry_run: false, report: false, is_keyed, mode };
                let ways = self.decide(order, &case, decided.as_ref())?;
                fitting(ways.into_iter().map(|decided| {
                    let mut way = decided.way;
                    if !decided.allowed {
                        return fit(way, &Err(Refusal::LimitReached(decided.decision)), answer);
                    }
                    let shown = match answer {
                        Some(Ok(Reply::LeaseTaken { lease, .. })) => lease.fencing_token,
                        _ => Position(0),
                    };
                    let lease = way.state.lease_info(now, new.id(), shown).expect("it was just taken");
                    if answer.is_some() {
                        way.state.learn_token(new.id(), lease.fencing_token);
                        way.order.learn(lease.fencing_token);
                    }
                    let session = new.session().clone();
                    let lease = Box::new(lease);
                    fit(way, &Ok(Reply::LeaseTaken { lease, session, decision: decided.decision }), answer)
                }))
            }
            Command::ExtendLease { id, session } => {
                let mut next = self.clone();
                if let Err(refusal) = self.check_session(id, Some(session)) {
                    return fitting([fit(next.unchanged(order), &Err(refusal), answer)]);
                }
                let lease = next.leases.iter_mut().find(|lease| lease.id == *id).expect("it lives");
                let changed =
                    if lease.expires_at == now + lease.ttl { Changed::Unclear } else { Changed::Yes };
                (lease.expires_at, lease.stored_expires_at) = (now + lease.ttl, now + lease.ttl);
                next.show_lease(now, order, changed, id, answer)
            }
            Command::ReleaseLease { id, session } => {
                let mut next = self.clone();
                if let Err(refusal) = self.check_session(id, session.as_ref()) {
                    return fitting([fit(next.unchanged(order), &Err(refusal), answer)]);
                }
                next.leases.retain(|lease| lease.id != *id);
                fitting([fit(next.way(order, Changed::Yes), &Ok(Reply::LeaseReleased), answer)])
            }
            Command::AbandonLease(_) => {
                fitting([fit(self.clone().unchanged(order), &Ok(Reply::LeaseAbandoned), answer)])
            }
            Command::GetLease(id) => match self.lease(id) {
                Some(_) => self.clone().show_lease(now, order, Changed::No, id, answer),
                None => fitting([fit(self.clone().unchanged(order), &Err(lease_not_found(id)), answer)]),
            },
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
            | Command::ListLeases { .. } => match answer {
                Some(answer) => self.read(now, order, command, answer).map(|way| vec![way]),
                None => Ok(vec![self.clone().unchanged(order)]),
            },
        }
    }

    fn move_counter(
        &self,
        now: u64,
        order: Order,
        key_values: &KeyValues,
        by: i64,
        answer: Option<&Answer>,
    ) -> Result<Vec<Branch<Limiter>>, String> {
        if by < 0 {
            let mut next = self.clone();
            let back = self.unleased(key_values).min(i128::from(by.unsigned_abs()));
            next.moves.push((key_values.clone(), -back));
            let changed = if back == 0 { Changed::Unclear } else { Changed::Yes };
            let decision = Decision { allowed: true, reported: false, limits: Vec::new(), retry_after: None };
            let reply = Ok(Reply::Moved { counter: next.counter(key_values), decision });
            return fitting([fit(next.way(order, changed), &reply, answer)]);
        }
        let entries = [Take::new(key_values.clone(), by).expect("a counter is within the limits")];
        let case =
            Case { now, entries: &entries, dry_run: false, report: false, is_keyed: false, mode: Mode::Move };
        let decided = answer.and_then(decision_in);
        let ways = self.decide(order, &case, decided.as_ref())?;
        fitting(ways.into_iter().map(|way| {
            let reply = if way.allowed {
                Ok(Reply::Moved { counter: way.way.state.counter(key_values), decision: way.decision })
            } else {
                Err(Refusal::LimitReached(way.decision))
            };
            fit(way.way, &reply, answer)
        }))
    }

    fn show_lease(
        mut self,
        now: u64,
        order: Order,
        changed: Changed,
        id: &Name,
        answer: Option<&Answer>,
    ) -> Result<Vec<Branch<Limiter>>, String> {
        let shown = match answer {
            Some(Ok(Reply::Lease(lease))) => lease.fencing_token,
            _ => Position(0),
        };
        let info = self.lease_info(now, id, shown).expect("it lives");
        if answer.is_some() {
            self.learn_token(id, info.fencing_token);
        }
        fitting([fit(self.way(order, changed), &Ok(Reply::Lease(info)), answer)])
    }

    /// Ends every lease that is due. Returns whether there was one.
    pub(super) fn expire(&mut self, now: u64) -> bool {
        let before = self.leases.len();
        while self.next_expiry().is_some_and(|due| due <= now) {
            self.expire_next();
        }
        self.leases.len() < before
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

    /// After a crash: windows may have lost the effect of relaxed answers.
    pub(super) fn forget(&mut self, persisted: u64) {
        for histories in self.groups.values_mut() {
            let mut rests: Vec<History> = Vec::new();
            for rest in histories.iter().flat_map(|history| history.rests(persisted)) {
                if !rests.contains(&rest) {
                    rests.push(rest);
                }
            }
            *histories = rests;
        }
    }

    /// Extends every lease to at least its full ttl from now on.
    pub(super) fn reopen(&mut self, ready: u64) {
        for lease in &mut self.leases {
            lease.expires_at = lease.stored_expires_at.max(ready + lease.ttl);
        }
    }

    /// Whether the two differ in more than windows.
    pub(super) fn differs_solidly(&self, other: &Limiter) -> bool {
        self.rules != other.rules || self.moves != other.moves || self.leases != other.leases
    }

    pub(super) fn has_lease(&self, id: &Name) -> bool {
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
    pub(super) fn lease_info(&self, now: u64, id: &Name, shown: Position) -> Option<LeaseInfo> {
        let lease = self.lease(id)?;
        Some(LeaseInfo {
            id: lease.id.clone(),
            key_values: lease.key_values.clone(),
            hits: lease.hits,
            owner: lease.owner.clone(),
            ttl: Millis(lease.ttl),
            taken_at: Time(lease.taken_at),
            expires_at: Time(lease.expires_at),
            fencing_token: lease.token.expect(shown),
            operation_id: None,
            now: Time(now),
        })
    }

    pub(super) fn learn_token(&mut self, id: &Name, token: Position) {
        if let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == *id) {
            lease.token.known = Some(token.0);
        }
    }

    fn unleased(&self, key_values: &KeyValues) -> i128 {
        self.moves.iter().filter(|(of, _)| of == key_values).map(|(_, by)| by).sum()
    }

    fn counter(&self, key_values: &KeyValues) -> CounterInfo {
        let leases = self.leases.iter().filter(|lease| lease.key_values == *key_values);
        let leased = leases.map(|lease| lease.hits).sum();
        let unleased = u64::try_from(self.unleased(key_values)).expect("nothing is below zero");
        CounterInfo { key_values: key_values.clone(), total: unleased + leased, leased }
    }

    /// All counters that are not zero.
    fn counters(&self) -> Vec<CounterInfo> {
        let moved = self.moves.iter().map(|(key_values, _)| key_values);
        let mut all: Vec<&KeyValues> =
            moved.chain(self.leases.iter().map(|lease| &lease.key_values)).collect();
        all.sort();
        all.dedup();
        all.into_iter()
            .map(|key_values| self.counter(key_values))
            .filter(|counter| counter.total > 0)
            .collect()
    }

    fn unchanged(self, order: Order) -> Branch<Limiter> {
        self.way(order, Changed::No)
    }

    /// The result of a command whose answer waits for the disk.
    fn way(self, mut order: Order, changed: Changed) -> Branch<Limiter> {
        if changed != Changed::No {
            order.grow(u64::from(changed == Changed::Yes));
        }
        Branch { state: self, order, changed, is_relaxed: false }
    }
}

fn lease_not_found(id: &Name) -> Refusal {
    Refusal::LeaseNotFound { lease_id: id.clone() }
}

/// The decision about limits in the answer.
fn decision_in(answer: &Answer) -> Option<Decision> {
    match answer {
        Ok(
            Reply::Allowed(decision)
            | Reply::Set(decision)
            | Reply::Moved { decision, .. }
            | Reply::LeaseTaken { decision, .. },
        )
        | Err(Refusal::LimitReached(decision)) => Some(decision.clone()),
        _ => None,
    }
}

/// The result, if the answer is the expected one.
fn fit(way: Branch<Limiter>, expected: &Answer, answer: Option<&Answer>) -> Result<Branch<Limiter>, String> {
    match answer {
        Some(answer) if answer != expected => Err(format!("{expected:?}")),
        _ => Ok(way),
    }
}

/// The results that fit; if none does, the expected answer of each.
fn fitting(
    ways: impl IntoIterator<Item = Result<Branch<Limiter>, String>>,
) -> Result<Vec<Branch<Limiter>>, String> {
    let (mut fitting, mut others) = (Vec::new(), Vec::new());
    for way in ways {
        match way {
            Ok(way) => fitting.push(way),
            Err(expected) => others.push(expected),
        }
    }
    if fitting.is_empty() { Err(others.join("\n   or:    ")) } else { Ok(fitting) }
}
