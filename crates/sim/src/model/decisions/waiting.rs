//! Requests that wait for locks and slots, in one list. A request is asked again when it may have come to its turn: when it is
//! the first that waits for something of which there is more than before, or behind a request that has left.

use super::{
    Decisions, Turn,
    decide::{Attempt, never_made},
    entries, has_lock,
    limits::Group,
};
use limina_engine::{
    Command, KeyValues, Name, Outcome, Request,
    decisions::{Command as DecisionsCommand, Decide, Decision, Refusal, Refused, State},
    locks::Mode,
};

/// A request that waits.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiter {
    pub(super) place: u64,
    /// The request that is answered. It may have taken over the place of an earlier one.
    pub(super) request: Request,
    pub(super) wanted: Decide,
    pub(super) until: u64,
}

impl Waiter {
    /// What identifies the request that is answered.
    fn drawn(&self) -> Option<&Name> {
        match &self.request.command {
            Command::Decisions(DecisionsCommand::Decide(asked)) => asked.waiter.as_ref(),
            _ => None,
        }
    }
}

impl Decisions {
    /// Whether a request waits under this id.
    pub(super) fn waits(&self, id: &Name) -> bool {
        self.waiter(id).is_some()
    }

    fn waiter(&self, id: &Name) -> Option<usize> {
        self.waiting.iter().position(|waiter| waiter.wanted.operation_id() == id)
    }

    /// Whether one of the request's locks is not free.
    fn is_locked(&self, waiter: &Waiter) -> bool {
        let Waiter { wanted, place, .. } = waiter;
        wanted.parts().locks.iter().any(|lock| self.is_taken(lock, wanted, *place))
    }

    /// The requests that wait for slots of a group. While one of its locks is not free, a request does not. A request that a changed
    /// rule has made impossible no longer waits, although it is answered only in its turn.
    pub(super) fn waiting_in<'a>(&'a self, group: &'a Group) -> impl Iterator<Item = &'a Waiter> {
        self.waiting.iter().filter(move |waiter| {
            if self.is_locked(waiter) || !self.is_possible(&entries(&waiter.wanted)) {
                return false;
            }
            let checks = waiter.wanted.parts().checks.iter().filter(|check| check.hits > 0);
            let mut groups = checks.flat_map(|check| self.limits.applying(&check.key_values));
            groups.any(|(rule, other)| rule.is_slot() && other == *group)
        })
    }

    pub(super) fn join(&mut self, turn: &Turn<'_>, request: &Request, wanted: &Decide) {
        self.arrived += 1;
        self.waiting.push(Waiter {
            place: self.arrived,
            request: request.clone(),
            wanted: wanted.clone(),
            until: turn.now + wanted.wait().0,
        });
    }

    /// A request under the id of one that waits. The same request takes its place.
    pub(super) fn take_over(
        &mut self,
        turn: &mut Turn<'_>,
        request: &Request,
        wanted: &Decide,
    ) -> Option<super::Answer> {
        let id = wanted.operation_id();
        let index = self.waiter(id).expect("it waits");
        let place = self.waiting[index].place;
        if !super::same(&self.waiting[index].wanted, wanted) {
            return Some(Err(Refusal::OperationReused { operation_id: id.clone() }));
        }
        if wanted.dry_run() {
            return Some(match self.attempt_at(turn, wanted, place) {
                Attempt::Done(answer) => answer,
                Attempt::Blocked { refusal, .. } => Err(refusal),
            });
        }
        let waits = Outcome::Decisions(Err(Refusal::OperationWaits { operation_id: id.clone() }));
        turn.answered.push((self.waiting[index].request.clone(), waits));
        let until = turn.now + wanted.wait().0;
        self.waiting[index] = Waiter { place, request: request.clone(), wanted: wanted.clone(), until };
        if wanted.wait().0 > 0 {
            return None;
        }
        let answer = self.last_look(turn, place, true);
        self.leave(place);
        Some(answer)
    }

    /// The wait at this place has lasted for as long as it may.
    pub(super) fn time_out(&mut self, turn: &mut Turn<'_>, place: u64) {
        let answer = self.last_look(turn, place, true);
        self.answer(turn, place, answer);
    }

    /// The client of a waiting request has gone. Another request that has taken its place goes on waiting.
    pub(super) fn abandon(&mut self, turn: &mut Turn<'_>, id: &Name, gone: &Name) {
        if let Some(waiter) = self.waiter(id).map(|index| &self.waiting[index])
            && waiter.drawn() == Some(gone)
        {
            let place = waiter.place;
            let answer = self.last_look(turn, place, false);
            self.answer(turn, place, answer);
        }
    }

    /// Ends the wait under an id.
    pub(super) fn roll_back_wait(&mut self, turn: &mut Turn<'_>, id: &Name) -> Option<Decision> {
        let waiter = &self.waiting[self.waiter(id)?];
        let (place, wanted) = (waiter.place, waiter.wanted.clone());
        let answer = self.last_look(turn, place, false);
        self.answer(turn, place, answer);
        turn.order.advance();
        Some(Decision { state: State::RolledBack, expires_at: None, ..never_made(&wanted, turn.now) })
    }

    /// Asks for the last time. What is free by now is granted if `may_make`.
    fn last_look(&mut self, turn: &mut Turn<'_>, place: u64, may_make: bool) -> super::Answer {
        let waiter = self.waiting.iter().find(|waiter| waiter.place == place).expect("it waits");
        let wanted = if may_make { waiter.wanted.clone() } else { waiter.wanted.clone().with_dry_run(true) };
        match self.attempt_at(turn, &wanted, place) {
            Attempt::Done(Ok(_)) if !may_make => Err(Refusal::Refused(Box::<Refused>::default())),
            Attempt::Done(answer) => answer,
            Attempt::Blocked { refusal, .. } => Err(refusal),
        }
    }

    fn answer(&mut self, turn: &mut Turn<'_>, place: u64, answer: super::Answer) {
        let waiter = self.leave(place);
        turn.answered.push((waiter.request, Outcome::Decisions(answer)));
    }

    /// Asks all requests again whose turn may have come, the earliest first.
    pub(super) fn grant(&mut self, turn: &mut Turn<'_>) {
        while let Some(place) = self.woken.pop_first() {
            let Some(waiter) = self.waiting.iter().find(|waiter| waiter.place == place) else { continue };
            let wanted = waiter.wanted.clone();
            if let Attempt::Done(answer) = self.attempt_at(turn, &wanted, place) {
                self.answer(turn, place, answer);
            }
        }
    }

    /// A request stops waiting. Those behind it are asked again.
    fn leave(&mut self, place: u64) -> Waiter {
        let index = self.waiting.iter().position(|waiter| waiter.place == place).expect("it waits");
        let was_locked = self.is_locked(&self.waiting[index]);
        let left = self.waiting.remove(index);
        let parts = left.wanted.parts();
        for check in parts.checks.iter().filter(|check| check.hits > 0 && !was_locked) {
            self.wake_slots(&check.key_values);
        }
        for lock in &parts.locks {
            self.wake_lock(&lock.key_values);
        }
        self.woken.remove(&place);
        left
    }

    /// A decision has ended, and what it had is free.
    pub(super) fn wake_behind(&mut self, ended: &Decide, counted: &[bool]) {
        for (check, _) in ended.parts().checks.iter().zip(counted).filter(|(_, counted)| **counted) {
            self.wake_slots(&check.key_values);
        }
        for lock in &ended.parts().locks {
            self.wake_lock(&lock.key_values);
        }
    }

    /// Wakes the first request in each group to which these key-values belong.
    pub(super) fn wake_slots(&mut self, key_values: &KeyValues) {
        let groups = self.limits.applying(key_values).map(|(_, group)| group);
        let groups: Vec<Group> = groups.collect();
        let firsts =
            groups.iter().filter_map(|group| self.waiting_in(group).next().map(|waiter| waiter.place));
        let firsts: Vec<u64> = firsts.collect();
        self.woken.extend(firsts);
    }

    /// Wakes the requests at the head of a lock's queue that the lock does not block: one, or all that share it.
    fn wake_lock(&mut self, key_values: &KeyValues) {
        let mode_of = |wanted: &Decide| {
            let lock = wanted.parts().locks.iter().find(|lock| lock.key_values == *key_values)?;
            Some(lock.mode)
        };
        let held: Vec<Mode> = self.open().filter_map(|made| mode_of(&made.request)).collect();
        let queue = self.waiting.iter().filter(|waiter| has_lock(&waiter.wanted, key_values));
        let queue: Vec<(u64, Mode)> =
            queue.filter_map(|waiter| Some((waiter.place, mode_of(&waiter.wanted)?))).collect();
        let Some((first, mode)) = queue.first().copied() else { return };
        if held.iter().any(|held| held.conflicts(mode)) {
            return;
        }
        match mode {
            Mode::Exclusive => self.woken.extend([first]),
            Mode::Shared => {
                let sharing = queue.iter().take_while(|(_, mode)| *mode == Mode::Shared);
                self.woken.extend(sharing.map(|(place, _)| *place));
            }
        }
    }

    /// Wakes everything that waits for slots, because a limit has changed.
    pub(super) fn wake_all(&mut self) {
        let waiting = self.waiting.iter().filter(|waiter| !waiter.wanted.parts().checks.is_empty());
        let places: Vec<u64> = waiting.map(|waiter| waiter.place).collect();
        self.woken.extend(places);
    }
}
