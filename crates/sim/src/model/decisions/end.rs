//! How decisions end: by commit, by rollback, because their ttl has passed, or because an operator has released a part.

use super::{Amounts, Answer, Decisions, End, LAST, Turn, entries, event_part, named};
use crate::model::ledger::is_within;
use limina_engine::{
    Name, Position, Time,
    decisions::{ActualHits, ActualValue, Decide, Decision, Refusal, Reply, Settle, State},
    ledger::EntryType,
};

impl Decisions {
    pub(super) fn settle(&mut self, turn: &mut Turn<'_>, settle: &Settle) -> Answer {
        let id = &settle.operation_id;
        let not_found = self.not_found(turn.now, id);
        let Some(place) = self.find(turn.now, id).filter(|_| !self.waits(id)) else { return Err(not_found) };
        let made = &self.made[place];
        let amounts = amounts(&made.request, settle)?;
        let holds = &made.request.parts().holds;
        match &made.end {
            None => {
                let mut ends = holds.iter().zip(&amounts.holds);
                let too_much = ends.find(|(change, value)| !is_within(**value, change.value));
                if let (Some((change, value)), false) = (too_much, settle.record) {
                    return Err(Refusal::CommitExceedsHold {
                        operation_id: id.clone(),
                        limit_name: change.limit_name.clone(),
                        held: change.value,
                        value: *value,
                    });
                }
                let answer = self.end(turn, place, turn.now, State::Committed, Some(amounts));
                Ok(Reply::Ended(Box::new(answer)))
            }
            Some(end) if end.amounts.as_ref() == Some(&amounts) => {
                Ok(Reply::Ended(Box::new(end.answer.clone())))
            }
            Some(end) if settle.record && (end.answer.state == State::Expired || end.was_forced) => {
                let answer = self.book_late(turn, place, amounts);
                Ok(Reply::Ended(Box::new(answer)))
            }
            Some(_) => Err(not_found),
        }
    }

    /// Records what has happened although the decision has ended in another way.
    fn book_late(&mut self, turn: &mut Turn<'_>, place: usize, amounts: Amounts) -> Decision {
        let made = self.made[place].clone();
        match made.request.parts().holds.is_empty() {
            true => {
                turn.order.advance();
            }
            false => turn.ledger.book_late(turn.order, turn.now, made.id(), &amounts.holds),
        }
        // The end of the decision has given its estimate back, so the whole amount is counted now.
        for (taken, actual) in made.taken.iter().zip(&amounts.checks) {
            self.limits.settle(turn.now, taken, 0, *actual);
        }
        let limits = self.statuses(turn.now, &entries(&made.request), &self.in_use(), LAST);
        let end = made.end.expect("it has ended");
        let answer = Decision {
            state: State::Committed,
            late: true,
            position: Some(Position(turn.order.position)),
            limits: named(&made.request, limits),
            values: turn.ledger.values_of(made.request.operation_id()),
            now: Time(turn.now),
            ..end.answer
        };
        let (amounts, was_forced) = (Some(amounts), false);
        self.made[place].end = Some(End { at: turn.now, amounts, answer: answer.clone(), was_forced });
        answer
    }

    pub(super) fn roll_back(&mut self, turn: &mut Turn<'_>, id: &Name) -> Answer {
        if let Ok(place) = self.open_place(turn.now, id) {
            return Ok(Reply::Ended(Box::new(self.end(turn, place, turn.now, State::RolledBack, None))));
        }
        if let Some(answer) = self.roll_back_wait(turn, id) {
            return Ok(Reply::Ended(Box::new(answer)));
        }
        match self.find(turn.now, id).and_then(|place| self.made[place].end.as_ref()) {
            Some(end) if end.answer.state != State::Committed => {
                Ok(Reply::Ended(Box::new(end.answer.clone())))
            }
            _ => Err(self.not_found(turn.now, id)),
        }
    }

    /// An operator has released a part of the decision at this position.
    pub(super) fn force(&mut self, turn: &mut Turn<'_>, position: u64) {
        let place = self.place_of(position);
        self.end(turn, place, turn.now, State::RolledBack, None);
        if let Some(end) = &mut self.made[place].end {
            end.was_forced = true;
        }
    }

    /// The ttl of the decision at this position has passed.
    pub(super) fn expire(&mut self, turn: &mut Turn<'_>, due: u64, position: u64) {
        let place = self.place_of(position);
        self.end(turn, place, due, State::Expired, None);
    }

    fn place_of(&self, position: u64) -> usize {
        self.made.iter().position(|made| made.position == position).expect("it was made")
    }

    /// Ends all parts at one position, as of `at`.
    fn end(
        &mut self,
        turn: &mut Turn<'_>,
        place: usize,
        at: u64,
        state: State,
        amounts: Option<Amounts>,
    ) -> Decision {
        let now = std::mem::replace(&mut turn.now, at);
        let made = self.made[place].clone();
        let parts = made.request.parts();
        let kind = match state {
            State::Committed => EntryType::Commit,
            State::Expired => EntryType::Expiry,
            _ => EntryType::Rollback,
        };
        let held = amounts.as_ref().map(|amounts| amounts.holds.as_slice());
        match parts.holds.is_empty() {
            true => {
                turn.order.advance();
            }
            false => turn.ledger.end_part(turn.order, at, made.id(), held, kind),
        }
        let ended = turn.order.position;
        // An expiry may be late, and a request that waited may have been granted since it was due.
        let last_made = self.made.iter().map(|made| made.made_at).max().unwrap_or(0);
        for (check, taken) in made.taken.iter().enumerate() {
            let actual = amounts.as_ref().map_or(0, |amounts| amounts.checks[check]);
            self.limits.settle(at.max(last_made), taken, parts.checks[check].hits, actual);
        }
        let event = made.event.as_ref().and_then(|(stream, event)| {
            let committed = amounts.as_ref().map(|_| ended);
            let state = turn.events.end_part(at, *stream, made.position, committed)?;
            Some(event_part(&made.request, event, state))
        });
        let open = self.info(turn, &made);
        // From now on its locks and slots are free.
        self.made[place].end = Some(End { at, amounts, answer: open.clone(), was_forced: false });
        let limits = self.statuses(at, &entries(&made.request), &self.in_use(), LAST);
        let answer = Decision {
            state,
            position: Some(Position(ended)),
            expires_at: None,
            limits: named(&made.request, limits),
            values: turn.ledger.values_of(made.id()),
            event,
            now: Time(at),
            ..open
        };
        if let Some(end) = &mut self.made[place].end {
            end.answer = answer.clone();
        }
        self.wake_behind(&made.request, &made.counted);
        turn.now = now;
        answer
    }
}

/// The amounts of a commit, with the defaults for what it does not name.
fn amounts(request: &Decide, settle: &Settle) -> Result<Amounts, Refusal> {
    let parts = request.parts();
    let mut amounts = Amounts {
        checks: parts.checks.iter().map(|check| check.hits).collect(),
        holds: parts.holds.iter().map(|change| change.value).collect(),
    };
    for ActualHits { name, hits } in &settle.checks {
        match parts.checks.iter().position(|check| check.estimate && check.name.as_ref() == Some(name)) {
            Some(place) => amounts.checks[place] = *hits,
            None => return Err(Refusal::NotEstimated { check: name.clone() }),
        }
    }
    for ActualValue { limit_name, value } in &settle.holds {
        match parts.holds.iter().position(|change| change.limit_name == *limit_name) {
            Some(place) => amounts.holds[place] = *value,
            None => return Err(Refusal::NotHeld { limit_name: limit_name.clone() }),
        }
    }
    Ok(amounts)
}
