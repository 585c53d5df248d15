//! The naive decisions: a list of all that were ever made, which is scanned at every step. Locks, slots and what incubates are
//! those of the open decisions on that list, so a part without its decision, or a decision without its parts, is a difference.
//! Holds are in the log of the naive ledger, events in the naive streams, and windows are played from their histories.
//!
//! Nothing here is uncertain: the same commands in the same order have the same answers, and each change takes one position.
//!
//! Read in this order: this file, `decide`, `end`, `waiting`, then `limits`.

mod decide;
mod end;
mod limits;
mod plain;
mod waiting;

use super::{Bounds, Events, Ledger, Order, pages::page_of, retention::DAY};
use limina_engine::{
    Command, KeyValues, Listed, Millis, Name, Outcome, Page, Position, Request, Time,
    decisions::{Command as DecisionsCommand, Decide, Decision, Refusal, Reply, State},
    events::{EventInfo, EventPart, EventState},
    limiter::LimitOfCheck,
};
use limits::{HistoryEntry, InUse, Limits};
use std::collections::BTreeSet;
use waiting::Waiter;

type Answer = Result<Reply, Refusal>;

/// The place in the queues of a request that does not wait: behind all that do.
const LAST: u64 = u64::MAX;

/// The decisions of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Decisions {
    bounds: Bounds,
    limits: Limits,
    /// In the order in which they were made.
    made: Vec<Made>,
    /// In the order of arrival.
    waiting: Vec<Waiter>,
    /// The places of waiting requests that are asked again next.
    woken: BTreeSet<u64>,
    /// The number of requests that ever waited.
    arrived: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Made {
    request: Decide,
    position: u64,
    made_at: u64,
    expires_at: u64,
    /// The same as it is stored: what an opening adds is not.
    stored_expiry: u64,
    /// For each check, whether it has slots.
    counted: Vec<bool>,
    /// For each check, the windows from which an estimate was taken.
    taken: Vec<Vec<HistoryEntry>>,
    /// The number of the event's stream, and the event.
    event: Option<(u64, EventInfo)>,
    end: Option<End>,
}

#[derive(Debug, Clone, PartialEq)]
struct End {
    /// When its state changed for the last time.
    at: u64,
    /// What was committed. `None` if nothing was.
    amounts: Option<Amounts>,
    answer: Decision,
    /// An operator has rolled it back.
    was_forced: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Amounts {
    checks: Vec<u64>,
    holds: Vec<i64>,
}

/// One step and its consequences.
pub(super) struct Turn<'a> {
    pub(super) now: u64,
    pub(super) order: &'a mut Order,
    pub(super) ledger: &'a mut Ledger,
    pub(super) events: &'a mut Events,
    /// Requests that waited and are answered by this step, in order.
    pub(super) answered: Vec<(Request, Outcome)>,
}

impl Made {
    fn id(&self) -> &Name {
        self.request.operation_id()
    }
}

impl Decisions {
    pub(super) fn new(bounds: &Bounds) -> Decisions {
        Decisions { bounds: bounds.clone(), ..Decisions::default() }
    }

    /// The expected answer, after everything that is due has been executed. `None` if the request has to wait. A list is
    /// returned as far as `shown` covers it. Also returns the position that the request itself has reached, before others
    /// were granted what it made free.
    pub(super) fn run(
        &mut self,
        turn: &mut Turn<'_>,
        request: &Request,
        shown: Option<&Outcome>,
    ) -> (Option<Outcome>, u64) {
        let answer = match &request.command {
            Command::Decisions(command) => {
                let shown = match shown {
                    Some(Outcome::Decisions(shown)) => Some(shown),
                    _ => None,
                };
                self.command(turn, request, command, shown).map(Outcome::Decisions)
            }
            Command::Limiter(command) => {
                let shown = match shown {
                    Some(Outcome::Limiter(shown)) => Some(shown),
                    _ => None,
                };
                Some(Outcome::Limiter(self.limiter(turn, command, shown)))
            }
            Command::Locks(command) => Some(Outcome::Locks(self.locks(turn, command))),
            other => unreachable!("{other:?} is not about decisions"),
        };
        let reached = turn.order.position;
        self.grant(turn);
        self.reserve(turn);
        (answer, reached)
    }

    fn command(
        &mut self,
        turn: &mut Turn<'_>,
        request: &Request,
        command: &DecisionsCommand,
        shown: Option<&Answer>,
    ) -> Option<Answer> {
        let now = turn.now;
        Some(match command {
            DecisionsCommand::Decide(asked) => return self.decide(turn, request, &asked.wanted),
            DecisionsCommand::Settle(settle) => self.settle(turn, settle),
            DecisionsCommand::Rollback(id) => self.roll_back(turn, id),
            DecisionsCommand::Heartbeat(id) => match self.open_place(now, id) {
                Ok(place) => {
                    turn.order.advance();
                    let made = &mut self.made[place];
                    made.expires_at = now + made.request.ttl().0;
                    made.stored_expiry = made.expires_at;
                    Ok(Reply::Extended(Box::new(self.info(turn, &self.made[place]))))
                }
                Err(refusal) => Err(refusal),
            },
            DecisionsCommand::Get(id) => match self.find(now, id) {
                Some(place) => Ok(Reply::Decision(Box::new(match &self.made[place].end {
                    None => self.info(turn, &self.made[place]),
                    Some(end) => end.answer.clone(),
                }))),
                None => Err(self.not_found(now, id)),
            },
            DecisionsCommand::Batch(_) => unreachable!("a batch is executed item by item"),
            DecisionsCommand::Abandon { operation_id, waiter } => {
                self.abandon(turn, operation_id, waiter);
                Ok(Reply::Abandoned)
            }
            DecisionsCommand::List { owner, older_than, page } => {
                Ok(Reply::Decisions(self.list(turn, owner.as_ref(), *older_than, page, shown)))
            }
        })
    }

    fn open(&self) -> impl Iterator<Item = &Made> {
        self.made.iter().filter(|made| made.end.is_none())
    }

    /// The place of the decision under this id, if it is open or remembered.
    fn find(&self, now: u64, id: &Name) -> Option<usize> {
        self.made.iter().rposition(|made| {
            let is_remembered = |end: &End| !made.request.parts().holds.is_empty() || now < end.at + DAY;
            made.id() == id && made.end.as_ref().is_none_or(is_remembered)
        })
    }

    fn open_place(&self, now: u64, id: &Name) -> Result<usize, Refusal> {
        let found = self.find(now, id).filter(|place| self.made[*place].end.is_none());
        found.ok_or_else(|| self.not_found(now, id))
    }

    /// The refusal of a command that needs an open decision.
    fn not_found(&self, now: u64, id: &Name) -> Refusal {
        let ended = || self.made[self.find(now, id)?].end.as_ref().map(|end| end.answer.state);
        let state = if self.waits(id) { Some(State::Waiting) } else { ended() };
        Refusal::OperationNotFound { operation_id: id.clone(), state }
    }

    /// What open decisions have in use.
    fn in_use(&self) -> Vec<InUse> {
        let counted = |made: &Made| -> Vec<InUse> {
            let checks = made.request.parts().checks.iter().zip(&made.counted);
            checks
                .filter(|(_, counted)| **counted)
                .map(|(check, _)| (check.key_values.clone(), check.hits))
                .collect()
        };
        self.open().flat_map(counted).collect()
    }

    /// The limits that apply to the checks, as they are now.
    fn statuses(&self, now: u64, checks: &[InUse], in_use: &[InUse], place: u64) -> Vec<LimitOfCheck> {
        let mut statuses = Vec::new();
        for (entry, (key_values, _)) in checks.iter().enumerate() {
            for (rule, group) in self.limits.applying(key_values) {
                let mut status = self.limits.status(now, entry, rule, &group, in_use);
                status.status.waiting =
                    self.waiting_in(&group).filter(|waiter| waiter.place != place).count();
                statuses.push(LimitOfCheck { check: None, status, refuses: false, held_by: Vec::new() });
            }
        }
        statuses
    }

    fn info(&self, turn: &Turn<'_>, made: &Made) -> Decision {
        let Made { request, position, made_at, expires_at, .. } = made;
        let limits = self.statuses(turn.now, &entries(request), &self.in_use(), LAST);
        let event = made.event.as_ref().and_then(|(stream, event)| {
            let state = turn.events.look(*stream, *position)?;
            Some(event_part(request, event, state))
        });
        Decision {
            operation_id: made.id().clone(),
            state: State::Open,
            repeated: false,
            late: false,
            owner: request.owner().cloned(),
            position: Some(Position(*position)),
            fencing_token: Some(Position(*position)),
            ttl: request.ttl(),
            made_at: Time(*made_at),
            expires_at: Some(Time(*expires_at)),
            limits: named(request, limits),
            values: turn.ledger.values_of(made.id()),
            locks: request.parts().locks.clone(),
            event,
            now: Time(turn.now),
        }
    }

    /// The decision that was made at this position, if it is open.
    pub(super) fn open_info(&self, turn: &Turn<'_>, token: Position) -> Option<Decision> {
        self.open().find(|made| made.position == token.0).map(|made| self.info(turn, made))
    }

    pub(super) fn open_positions(&self) -> impl Iterator<Item = u64> {
        self.open().map(|made| made.position)
    }

    fn list(
        &self,
        turn: &Turn<'_>,
        owner: Option<&Name>,
        older_than: Option<Millis>,
        page: &Page<Position>,
        shown: Option<&Answer>,
    ) -> Listed<Decision, Position> {
        let found = self.open().filter(|made| {
            owner.is_none_or(|owner| made.request.owner() == Some(owner))
                && older_than.is_none_or(|span| made.made_at < turn.now.saturating_sub(span.0))
        });
        let all = found.map(|made| (Position(made.position), self.info(turn, made)));
        let next = match shown {
            Some(Ok(Reply::Decisions(shown))) => shown.next,
            _ => None,
        };
        page_of(all.collect(), page, next)
    }

    /// When the next decision expires or the next wait ends. At the same time, decisions come first, each in its order.
    pub(super) fn next_due(&self) -> Option<(u64, bool, u64)> {
        let open = self.open().map(|made| (made.expires_at, false, made.position));
        open.chain(self.waiting.iter().map(|waiter| (waiter.until, true, waiter.place))).min()
    }

    /// Expires what is due next.
    pub(super) fn expire_next(&mut self, turn: &mut Turn<'_>) {
        match self.next_due() {
            Some((due, false, position)) => self.expire(turn, due, position),
            Some((_, true, place)) => self.time_out(turn, place),
            None => {}
        }
        self.grant(turn);
        self.reserve(turn);
    }

    /// Gives every open decision its full ttl from `ready` on.
    pub(super) fn reopen(&mut self, ledger: &mut Ledger, ready: u64) {
        for made in self.made.iter_mut().filter(|made| made.end.is_none()) {
            made.expires_at = made.stored_expiry.max(ready + made.request.ttl().0);
        }
        ledger.reserve(self.reserved());
    }

    /// Ends all waits. Returns the requests, in order.
    pub(super) fn give_up(&mut self, ledger: &mut Ledger) -> Vec<Request> {
        self.woken.clear();
        let gone = std::mem::take(&mut self.waiting).into_iter().map(|waiter| waiter.request).collect();
        ledger.reserve(self.reserved());
        gone
    }

    fn reserve(&self, turn: &mut Turn<'_>) {
        turn.ledger.reserve(self.reserved());
    }

    /// The ids that belong to decisions.
    fn reserved(&self) -> impl Iterator<Item = (Name, u64)> {
        let open = self.open().map(|made| (made.id().clone(), made.expires_at));
        open.chain(self.waiting.iter().map(|waiter| (waiter.wanted.operation_id().clone(), waiter.until)))
    }
}

/// What the checks of a request take.
fn entries(request: &Decide) -> Vec<InUse> {
    let checks = request.parts().checks.iter();
    checks.map(|check| (check.key_values.clone(), check.hits)).collect()
}

/// Names the checks to which limits apply.
fn named(request: &Decide, mut limits: Vec<LimitOfCheck>) -> Vec<LimitOfCheck> {
    for limit in &mut limits {
        limit.check = request.parts().checks[limit.status.entry as usize].name.clone();
    }
    limits
}

fn event_part(request: &Decide, event: &EventInfo, state: EventState) -> EventPart {
    let stream = request.parts().event.as_ref().expect("it has an event").stream.clone();
    EventPart { stream, event: event.clone(), state }
}

/// Whether two requests are the same, except for the modes in which they ask.
fn same(a: &Decide, b: &Decide) -> bool {
    a.owner() == b.owner() && a.ttl() == b.ttl() && a.parts() == b.parts()
}

/// Whether one of the locks is about these key-values.
fn has_lock(request: &Decide, key_values: &KeyValues) -> bool {
    request.parts().locks.iter().any(|lock| lock.key_values == *key_values)
}
