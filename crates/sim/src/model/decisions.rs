//! The naive decisions: a list of all that were ever made, which is scanned at every step. Sums are added up from it, and so
//! are holders of locks. They are about holds and locks; a namespace of decisions has nothing else.

use super::{Bounds, DAY, Order};
use limina_engine::{
    Listed, Millis, Name, Page, Position, Quota, Time,
    decisions::{
        BatchItem, Command, Decide, Decision, HoldOfDecision, Refusal, Refused, Reply, Settle, State,
    },
    ledger::{ExceededLimit, RefusedHold, Value},
    locks::{GrantInfo, RefusedLock},
};
use std::collections::BTreeMap;

type Answer = Result<Reply, Refusal>;

/// The decisions of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Decisions {
    bounds: Bounds,
    /// The limits that decisions have created, with their ceilings.
    limits: BTreeMap<Name, Option<i64>>,
    /// In the order in which they were made.
    made: Vec<Made>,
}

#[derive(Debug, Clone, PartialEq)]
struct Made {
    request: Decide,
    position: u64,
    made_at: u64,
    expires_at: u64,
    /// The same as it is stored: what an opening adds is not.
    stored_expiry: u64,
    end: Option<End>,
}

#[derive(Debug, Clone, PartialEq)]
struct End {
    at: u64,
    /// The committed value of each hold. `None` if it was not committed.
    amounts: Option<Vec<i64>>,
    answer: Decision,
}

impl Decisions {
    pub(super) fn new(bounds: &Bounds) -> Decisions {
        Decisions { bounds: bounds.clone(), ..Decisions::default() }
    }

    /// The expected answer, after everything that is due has been executed. A list is returned as far as `shown` covers
    /// it.
    pub(super) fn run(
        &mut self,
        now: u64,
        order: &mut Order,
        command: &Command,
        shown: Option<&Answer>,
    ) -> Answer {
        match command {
            Command::Decide(request) => self.decide(now, order, request),
            Command::Settle(settle) => self.settle(now, order, settle),
            Command::Rollback(id) => match self.find(now, id) {
                Some(place) => match &self.made[place].end {
                    None => Ok(Reply::Ended(Box::new(self.end(place, now, order, State::RolledBack, None)))),
                    Some(End { answer, .. }) if answer.state == State::Committed => {
                        Err(not_found(id, Some(State::Committed)))
                    }
                    Some(End { answer, .. }) => Ok(Reply::Ended(Box::new(answer.clone()))),
                },
                None => Err(not_found(id, None)),
            },
            Command::Heartbeat(id) => match self.find(now, id) {
                Some(place) => {
                    if let Some(end) = &self.made[place].end {
                        return Err(not_found(id, Some(end.answer.state)));
                    }
                    order.advance();
                    let made = &mut self.made[place];
                    made.expires_at = now + made.request.ttl().0;
                    made.stored_expiry = made.expires_at;
                    Ok(Reply::Extended(Box::new(self.info(now, &self.made[place]))))
                }
                None => Err(not_found(id, None)),
            },
            Command::Get(id) => match self.find(now, id) {
                Some(place) => Ok(Reply::Decision(Box::new(match &self.made[place].end {
                    None => self.info(now, &self.made[place]),
                    Some(end) => end.answer.clone(),
                }))),
                None => Err(not_found(id, None)),
            },
            Command::Batch(items) => {
                let shown = match shown {
                    Some(Ok(Reply::Batch(results))) => results.as_slice(),
                    _ => &[],
                };
                let run = |(place, item): (usize, &BatchItem)| {
                    let command = match item.clone() {
                        BatchItem::Decide(decide) => Command::Decide(decide),
                        BatchItem::Settle(settle) => Command::Settle(settle),
                        BatchItem::Rollback(id) => Command::Rollback(id),
                    };
                    // An item whose record could not be read was not done.
                    match shown.get(place) {
                        Some(Err(Refusal::Unreadable)) => Err(Refusal::Unreadable),
                        shown => self.run(now, order, &command, shown),
                    }
                };
                Ok(Reply::Batch(items.iter().enumerate().map(run).collect()))
            }
            Command::Abandon { .. } => Ok(Reply::Abandoned),
            Command::List { owner, older_than, page } => {
                Ok(Reply::Decisions(self.list(now, owner.as_ref(), *older_than, page, shown)))
            }
        }
    }

    fn decide(&mut self, now: u64, order: &mut Order, request: &Decide) -> Answer {
        let id = request.operation_id().clone();
        if let Some(place) = self.find(now, &id) {
            let made = &self.made[place];
            return match &made.end {
                None if same(&made.request, request) => {
                    Ok(Reply::Decided(Box::new(Decision { repeated: true, ..self.info(now, made) })))
                }
                None => Err(Refusal::OperationReused { operation_id: id }),
                Some(end) => Err(Refusal::OperationAlreadyInFinalState {
                    operation_id: id,
                    state: Some(end.answer.state),
                    position: end.answer.position.expect("an ended decision has a position"),
                }),
            };
        }
        let parts = request.parts();
        let unknown =
            || parts.holds.iter().map(|change| &change.limit_name).filter(|n| !self.limits.contains_key(*n));
        if !parts.create_missing && unknown().next().is_some() {
            return Err(Refusal::LimitNotFound { limit_names: unknown().cloned().collect() });
        }
        let refused = Refused {
            holds: self.refused_holds(request),
            locks: self.refused_locks(now, request),
            ..Refused::default()
        };
        if !refused.holds.is_empty() || !refused.locks.is_empty() {
            return Err(Refusal::Refused(Box::new(refused)));
        }
        let held = self.open().filter(|made| !made.request.parts().locks.is_empty()).count();
        let exceeded = self.bounds.refuses(Quota::LedgerLimits, self.limits.len(), unknown().count());
        let more_locks = usize::from(!parts.locks.is_empty());
        let exceeded = exceeded.or_else(|| self.bounds.refuses(Quota::LocksHeld, held, more_locks));
        if let Some(exceeded) = exceeded {
            return Err(Refusal::QuotaExceeded(exceeded));
        }
        let mut after = self.clone();
        let mut position = order.position;
        for change in &parts.holds {
            if !after.limits.contains_key(&change.limit_name) {
                position += 1;
                after.limits.insert(change.limit_name.clone(), change.ceiling);
            }
        }
        position += 1;
        let expires_at = now + request.ttl().0;
        let request = request.clone();
        let is_dry_run = request.dry_run();
        after.made.push(Made {
            request,
            position,
            made_at: now,
            expires_at,
            stored_expiry: expires_at,
            end: None,
        });
        let decision = after.info(now, after.made.last().expect("it was just pushed"));
        if is_dry_run {
            let dry = Decision { position: None, fencing_token: None, ..decision };
            return Ok(Reply::Decided(Box::new(dry)));
        }
        order.position = position;
        *self = after;
        Ok(Reply::Decided(Box::new(decision)))
    }

    fn settle(&mut self, now: u64, order: &mut Order, settle: &Settle) -> Answer {
        let id = settle.operation_id();
        let Some(place) = self.find(now, id) else { return Err(not_found(id, None)) };
        let made = &self.made[place];
        let holds = &made.request.parts().holds;
        let mut amounts: Vec<i64> = holds.iter().map(|change| change.value).collect();
        for (limit_name, value) in settle.holds() {
            match holds.iter().position(|change| change.limit_name == *limit_name) {
                Some(index) => amounts[index] = *value,
                None => return Err(Refusal::NotHeld { limit_name: limit_name.clone() }),
            }
        }
        match &made.end {
            None => {
                let too_much = holds.iter().zip(&amounts).find(|(change, amount)| {
                    let (held, amount) = (change.value, **amount);
                    !(amount == 0 || (amount.signum() == held.signum() && amount.abs() <= held.abs()))
                });
                if let (Some((change, value)), false) = (too_much, settle.record()) {
                    return Err(Refusal::CommitExceedsHold {
                        operation_id: id.clone(),
                        limit_name: change.limit_name.clone(),
                        held: change.value,
                        value: *value,
                    });
                }
                Ok(Reply::Ended(Box::new(self.end(place, now, order, State::Committed, Some(amounts)))))
            }
            Some(end) if end.amounts.as_ref() == Some(&amounts) => {
                Ok(Reply::Ended(Box::new(end.answer.clone())))
            }
            Some(end) if end.answer.state == State::Expired && settle.record() => {
                let (at, answer) = (end.at, end.answer.clone());
                let position = Some(Position(order.advance()));
                self.made[place].end = Some(End { at, amounts: Some(amounts), answer: answer.clone() });
                let values = self.values(&self.made[place].request);
                let answer = Decision {
                    state: State::Committed,
                    late: true,
                    position,
                    values,
                    now: Time(now),
                    ..answer
                };
                if let Some(end) = &mut self.made[place].end {
                    end.answer = answer.clone();
                }
                Ok(Reply::Ended(Box::new(answer)))
            }
            Some(end) => Err(not_found(id, Some(end.answer.state))),
        }
    }

    fn end(
        &mut self,
        place: usize,
        at: u64,
        order: &mut Order,
        state: State,
        amounts: Option<Vec<i64>>,
    ) -> Decision {
        let ended = Position(order.advance());
        let open = self.info(at, &self.made[place]);
        self.made[place].end = Some(End { at, amounts, answer: open.clone() });
        let values = self.values(&self.made[place].request);
        let answer = Decision { state, position: Some(ended), expires_at: None, values, ..open };
        if let Some(end) = &mut self.made[place].end {
            end.answer = answer.clone();
        }
        answer
    }

    fn open(&self) -> impl Iterator<Item = &Made> {
        self.made.iter().filter(|made| made.end.is_none())
    }

    /// The place of the decision under this id, if it is open or remembered.
    fn find(&self, now: u64, id: &Name) -> Option<usize> {
        self.made.iter().rposition(|made| {
            let is_remembered = |end: &End| !made.request.parts().holds.is_empty() || now < end.at + DAY;
            made.request.operation_id() == id && made.end.as_ref().is_none_or(is_remembered)
        })
    }

    /// What is committed, and the open holds: all of them, and the positive ones.
    fn sums(&self, limit: &Name) -> (i64, i64, i64) {
        let (mut commit, mut held, mut held_up) = (0, 0, 0);
        for made in &self.made {
            let holds = made.request.parts().holds.iter().enumerate();
            for (index, change) in holds.filter(|(_, change)| change.limit_name == *limit) {
                match &made.end {
                    None => {
                        held += change.value;
                        held_up += change.value.max(0);
                    }
                    Some(End { amounts: Some(amounts), .. }) => commit += amounts[index],
                    Some(End { amounts: None, .. }) => {}
                }
            }
        }
        (commit, held, held_up)
    }

    fn values(&self, request: &Decide) -> Vec<Value> {
        let limits = request.parts().holds.iter().map(|change| change.limit_name.clone());
        let value = |limit_name: Name| {
            let (commit_value, hold_value, _) = self.sums(&limit_name);
            Value { limit_name, limit_id: None, commit_value, hold_value }
        };
        limits.map(value).collect()
    }

    fn refused_holds(&self, request: &Decide) -> Vec<HoldOfDecision> {
        let holds = request.parts().holds.iter().filter_map(|change| {
            let (commit_value, hold_value, held_up) = self.sums(&change.limit_name);
            let ceiling = self.limits.get(&change.limit_name).copied().unwrap_or(change.ceiling)?;
            let room = ceiling - commit_value - held_up;
            let limit_name = change.limit_name.clone();
            let available = room.max(0);
            (change.value > 0 && change.value > room).then(|| HoldOfDecision {
                refused: RefusedHold::LimitExceeded(ExceededLimit {
                    limit_name,
                    ceiling,
                    commit_value,
                    hold_value,
                    available,
                }),
                held_by: Vec::new(),
            })
        });
        holds.collect()
    }

    fn refused_locks(&self, now: u64, request: &Decide) -> Vec<RefusedLock> {
        let locks = request.parts().locks.iter().filter_map(|wanted| {
            let mut holders = self.open().filter_map(|made| {
                let held =
                    made.request.parts().locks.iter().find(|lock| lock.key_values == wanted.key_values)?;
                Some((made, held.mode))
            });
            // All holders of one lock have the same mode, or there is only one.
            let (made, mode) = holders.next()?;
            wanted.mode.conflicts(mode).then(|| RefusedLock {
                key_values: wanted.key_values.clone(),
                mode: wanted.mode,
                is_held: true,
                owner: made.request.owner().cloned(),
                held: Some(Millis(now - made.made_at)),
                expires_in: Some(Millis(made.expires_at - now)),
                waiting: 0,
            })
        });
        locks.collect()
    }

    fn info(&self, now: u64, made: &Made) -> Decision {
        let Made { request, position, made_at, expires_at, .. } = made;
        Decision {
            operation_id: request.operation_id().clone(),
            state: State::Open,
            repeated: false,
            late: false,
            owner: request.owner().cloned(),
            position: Some(Position(*position)),
            fencing_token: Some(Position(*position)),
            ttl: request.ttl(),
            made_at: Time(*made_at),
            expires_at: Some(Time(*expires_at)),
            limits: Vec::new(),
            values: self.values(request),
            locks: request.parts().locks.clone(),
            event: None,
            now: Time(now),
        }
    }

    /// The locks that open decisions hold, as they are listed. No part exists without its decision, and no decision without
    /// its parts.
    pub(super) fn grants(&self, now: u64) -> impl Iterator<Item = GrantInfo> {
        let locking = self.open().filter(|made| !made.request.parts().locks.is_empty());
        locking.map(move |made| GrantInfo {
            id: Name::new(&format!("operation-{}", made.position)).expect("a short name"),
            owner: made.request.owner().cloned(),
            locks: made.request.parts().locks.clone(),
            ttl: made.request.ttl(),
            granted_at: Time(made.made_at),
            expires_at: Time(made.expires_at),
            fencing_token: Position(made.position),
            waiting: 0,
            operation_id: Some(made.request.operation_id().clone()),
            now: Time(now),
        })
    }

    /// The decision that was made at this position, if it is open.
    pub(super) fn open_info(&self, now: u64, token: Position) -> Option<Decision> {
        self.open().find(|made| made.position == token.0).map(|made| self.info(now, made))
    }

    fn list(
        &self,
        now: u64,
        owner: Option<&Name>,
        older_than: Option<Millis>,
        page: &Page<Position>,
        shown: Option<&Answer>,
    ) -> Listed<Decision, Position> {
        let found = self.open().filter(|made| {
            page.after.is_none_or(|after| made.position > after.0)
                && owner.is_none_or(|owner| made.request.owner() == Some(owner))
                && older_than.is_none_or(|span| made.made_at < now.saturating_sub(span.0))
        });
        let mut all: Vec<Decision> = found.map(|made| self.info(now, made)).collect();
        // A page may be short, but a decision that it skips must not exist.
        let next = match shown {
            Some(Ok(Reply::Decisions(shown))) => shown.next,
            _ => None,
        };
        let token = |decision: &Decision| decision.fencing_token.expect("an open decision has one");
        all.retain(|decision| next.is_none_or(|next| token(decision) <= next));
        let next = next.or((all.len() > page.limit()).then(|| token(&all[page.limit() - 1])));
        all.truncate(page.limit());
        Listed { items: all, next }
    }

    /// When the next decision expires.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.open().map(|made| made.expires_at).min()
    }

    /// Expires everything that is due by `now`, in due order.
    pub(super) fn expire(&mut self, order: &mut Order, now: u64) {
        while self.next_due().is_some_and(|due| due <= now) {
            self.expire_next(order);
        }
    }

    /// Expires what is due next. If several are due together, the one that was made first.
    pub(super) fn expire_next(&mut self, order: &mut Order) {
        let open = (0..self.made.len()).filter(|place| self.made[*place].end.is_none());
        let Some(place) = open.min_by_key(|place| self.made[*place].expires_at) else { return };
        let due = self.made[place].expires_at;
        self.end(place, due, order, State::Expired, None);
    }

    /// Gives every open decision its full ttl from `ready` on.
    pub(super) fn reopen(&mut self, ready: u64) {
        for made in self.made.iter_mut().filter(|made| made.end.is_none()) {
            made.expires_at = made.stored_expiry.max(ready + made.request.ttl().0);
        }
    }
}

/// Whether two requests are the same, except for the modes in which they ask.
fn same(a: &Decide, b: &Decide) -> bool {
    a.owner() == b.owner() && a.ttl() == b.ttl() && a.parts() == b.parts()
}

fn not_found(id: &Name, state: Option<State>) -> Refusal {
    Refusal::OperationNotFound { operation_id: id.clone(), state }
}
