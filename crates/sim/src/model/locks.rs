//! The naive locks: all requests are in one list, in the order of arrival. After every step the whole list is scanned
//! by the words of the contract: a request is granted when no holder and no earlier waiter conflicts with it in any of
//! its locks.
//!
//! Nothing here is uncertain: the same commands in the same order have the same answers, and each change takes one
//! position. So the model knows an answer even if it was lost.

use super::{Bounds, Order, pages::page_of, select};
use limina_engine::{
    KeyValues, Listed, Millis, Name, Outcome, Page, Position, Quota, Request,
    locks::{Acquire, Blocked, Command, GrantInfo, Holder, Lock, LockRequest, Mode, Refusal, Reply},
    selection::Query,
};

type Answer = Result<Reply, Refusal>;

/// The locks of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Locks {
    bounds: Bounds,
    /// Holders and waiters, in the order of arrival.
    requests: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    id: Name,
    session: Name,
    wanted: Acquire,
    request: Request,
    state: State,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Waits {
        until: u64,
    },
    Holds {
        token: u64,
        granted_at: u64,
        expires_at: u64,
        /// The expiry without the extension by an opening, which is not stored.
        stored_expires_at: u64,
        listeners: Listeners,
    },
}

/// The requests that were answered with a grant and have not hung up.
#[derive(Debug, Clone, PartialEq)]
enum Listeners {
    These(Vec<Name>),
    /// More than the contract says are remembered. No hang-up ends the grant any more.
    TooMany,
}

/// The number of remembered requests for each grant.
const MAX_LISTENERS: usize = 8;

/// One step and its consequences.
pub(super) struct Turn {
    pub(super) now: u64,
    pub(super) order: Order,
    /// Requests that waited and are answered by this step, in order.
    pub(super) answered: Vec<(Request, Outcome)>,
}

impl Turn {
    fn answer(&mut self, request: Request, answer: Answer) {
        self.answered.push((request, Outcome::Locks(answer)));
    }
}

impl Entry {
    fn waits(&self) -> bool {
        matches!(self.state, State::Waits { .. })
    }

    fn token(&self) -> Option<u64> {
        match self.state {
            State::Holds { token, .. } => Some(token),
            State::Waits { .. } => None,
        }
    }

    fn asks_for(&self, key_values: &KeyValues) -> bool {
        self.wanted.locks().iter().any(|lock| lock.key_values == *key_values)
    }

    /// Whether the two cannot have this lock at the same time.
    fn conflicts(&self, lock: &Lock) -> bool {
        self.wanted.locks().iter().any(|own| {
            own.key_values == lock.key_values && (own.mode == Mode::Exclusive || lock.mode == Mode::Exclusive)
        })
    }

    /// When it expires. At the same instant holders come first, then waiters, each in the order of arrival.
    fn due(&self) -> (u64, bool, Option<u64>) {
        match self.state {
            State::Holds { expires_at, token, .. } => (expires_at, false, Some(token)),
            State::Waits { until } => (until, true, None),
        }
    }
}

/// The id by which a hang-up names a request for locks.
pub(super) fn name_of(request: &Request) -> Option<&Name> {
    match &request.command {
        limina_engine::Command::Locks(Command::Acquire(wanted)) => Some(&wanted.id),
        _ => None,
    }
}

impl Locks {
    pub(super) fn new(bounds: &Bounds) -> Locks {
        Locks { bounds: bounds.clone(), ..Locks::default() }
    }

    /// The expected answer, after everything that is due has been executed; `None` if the request has to wait. A list
    /// is returned as far as `shown` covers it. [`Locks::grant_what_is_free`] follows.
    pub(super) fn run(
        &mut self,
        turn: &mut Turn,
        request: &Request,
        command: &Command,
        shown: Option<&Answer>,
    ) -> Option<Answer> {
        Some(match command {
            Command::Acquire(wanted) => return self.acquire(turn, request, wanted),
            Command::Abandon(id) => {
                self.hang_up(turn, id);
                Ok(Reply::Abandoned)
            }
            Command::Heartbeat { id, session } => self.holder(id, Some(session)).map(|index| {
                let Entry { wanted, state, .. } = &mut self.requests[index];
                let until = turn.now + wanted.ttl().0;
                if let State::Holds { expires_at, stored_expires_at, .. } = state {
                    (*expires_at, *stored_expires_at) = (until, until);
                }
                turn.order.advance();
                Reply::Extended(self.info(turn.now, index))
            }),
            Command::Release { id, session } => self.holder(id, session.as_ref()).map(|index| {
                self.end(turn, index);
                Reply::Released
            }),
            Command::Get(id) => self.holder(id, None).map(|index| Reply::Grant(self.info(turn.now, index))),
            Command::List { query, page } => Ok(Reply::Grants(self.list(turn.now, query, page, shown))),
        })
    }

    fn acquire(
        &mut self,
        turn: &mut Turn,
        request: &Request,
        LockRequest { id, session, wanted }: &LockRequest,
    ) -> Option<Answer> {
        if let Ok(index) = self.holder(id, None) {
            let session = self.requests[index].session.clone();
            self.add_listener(id, Some(id));
            return Some(Ok(Reply::Granted { grant: self.info(turn.now, index), session }));
        }
        if let Some(index) = self.requests.iter().position(|entry| entry.id == *id) {
            self.end(turn, index);
        }
        let state = State::Waits { until: turn.now + wanted.wait().0 };
        let (id, session, wanted) = (id.clone(), session.clone(), wanted.clone());
        self.requests.push(Entry { id, session, wanted, request: request.clone(), state });
        let index = self.requests.len() - 1;
        let refusal = match self.blocked(turn.now, index) {
            None => match self.no_room_to_hold() {
                None => return Some(Ok(self.grant(turn, index))),
                Some(refusal) => refusal,
            },
            Some(blocked) if self.requests[index].wanted.wait() == Millis(0) => Refusal::LockHeld(blocked),
            Some(_) => {
                let others = self.requests[..index].iter().filter(|entry| entry.waits()).count();
                match self.bounds.refuses(Quota::LocksWaiting, others, 1) {
                    None => return None,
                    Some(exceeded) => Refusal::QuotaExceeded(exceeded),
                }
            }
        };
        self.requests.pop();
        Some(Err(refusal))
    }

    fn no_room_to_hold(&self) -> Option<Refusal> {
        let held = self.requests.iter().filter(|entry| !entry.waits()).count();
        self.bounds.refuses(Quota::LocksHeld, held, 1).map(Refusal::QuotaExceeded)
    }

    /// A client hangs up: its request stops waiting, and every grant without another listener ends, the oldest first.
    fn hang_up(&mut self, turn: &mut Turn, request: &Name) {
        let waits = |entry: &Entry| entry.waits() && entry.id == *request;
        if let Some(index) = self.requests.iter().position(waits) {
            self.end(turn, index);
        }
        let mut last_of = Vec::new();
        for entry in &mut self.requests {
            if let State::Holds { token, listeners: Listeners::These(listeners), .. } = &mut entry.state
                && listeners.contains(request)
            {
                listeners.retain(|other| other != request);
                last_of.extend(listeners.is_empty().then_some(*token));
            }
        }
        last_of.sort_unstable();
        for token in last_of {
            let index = self.requests.iter().position(|entry| entry.token() == Some(token));
            self.end(turn, index.expect("a hang-up ends only what no other request was answered with"));
        }
    }

    /// Records that a request was answered with the grant of this id. `None` if it was not a request for locks.
    pub(super) fn add_listener(&mut self, id: &Name, request: Option<&Name>) {
        let Ok(index) = self.holder(id, None) else { return };
        let State::Holds { listeners, .. } = &mut self.requests[index].state else { return };
        match (&mut *listeners, request) {
            (Listeners::These(names), Some(request)) if names.contains(request) => {}
            (Listeners::These(names), Some(request)) if names.len() < MAX_LISTENERS => {
                names.push(request.clone())
            }
            _ => *listeners = Listeners::TooMany,
        }
    }

    /// Ends a holder or waiter.
    fn end(&mut self, turn: &mut Turn, index: usize) {
        let blocked = self.requests[index]
            .waits()
            .then(|| self.blocked(turn.now, index).expect("after each step nobody waits for what is free"));
        let Entry { request, .. } = self.requests.remove(index);
        match blocked {
            Some(blocked) => turn.answer(request, Err(Refusal::LockWaitTimeout(blocked))),
            None => {
                turn.order.advance();
            }
        }
    }

    /// Grants every waiting request that nothing blocks, the earliest first.
    pub(super) fn grant_what_is_free(&mut self, turn: &mut Turn) {
        let now = turn.now;
        let is_free = |locks: &Locks, index: &usize| {
            locks.requests[*index].waits() && locks.blocked(now, *index).is_none()
        };
        while let Some(index) = (0..self.requests.len()).find(|index| is_free(self, index)) {
            let request = self.requests[index].request.clone();
            let answer = match self.no_room_to_hold() {
                None => Ok(self.grant(turn, index)),
                Some(refusal) => {
                    self.requests.remove(index);
                    Err(refusal)
                }
            };
            turn.answer(request, answer);
        }
    }

    fn grant(&mut self, turn: &mut Turn, index: usize) -> Reply {
        let (token, granted_at) = (turn.order.advance(), turn.now);
        let expires_at = granted_at + self.requests[index].wanted.ttl().0;
        let listeners = Listeners::These(vec![self.requests[index].id.clone()]);
        self.requests[index].state =
            State::Holds { token, granted_at, expires_at, stored_expires_at: expires_at, listeners };
        let session = self.requests[index].session.clone();
        Reply::Granted { grant: self.info(turn.now, index), session }
    }

    /// What prevents the request at this index from being granted.
    fn blocked(&self, now: u64, index: usize) -> Option<Blocked> {
        let others = || self.requests.iter().enumerate().filter(|(other, _)| *other != index);
        let is_in_the_way = |lock: &&Lock| {
            others().any(|(other, entry)| (!entry.waits() || other < index) && entry.conflicts(lock))
        };
        let key_values = self.requests[index].wanted.locks().iter().find(is_in_the_way)?.key_values.clone();
        let about_it = || others().map(|(_, entry)| entry).filter(|entry| entry.asks_for(&key_values));
        let holder = about_it().filter(|entry| !entry.waits()).min_by_key(|entry| entry.token());
        let holder = holder.map(|entry| Holder {
            lock_id: entry.id.clone(),
            owner: entry.wanted.owner().cloned(),
            expires_in: Millis(entry.due().0.saturating_sub(now)),
        });
        let waiting = about_it().filter(|entry| entry.waits()).count();
        Some(Blocked { key_values, holder, waiting })
    }

    /// The index of the holder in the list.
    fn holder(&self, id: &Name, session: Option<&Name>) -> Result<usize, Refusal> {
        let lock_id = id.clone();
        let held = self.requests.iter().position(|entry| entry.id == *id && !entry.waits());
        let Some(index) = held else { return Err(Refusal::LockNotFound { lock_id }) };
        match session {
            Some(session) if *session != self.requests[index].session => {
                Err(Refusal::SessionMismatch { lock_id })
            }
            _ => Ok(index),
        }
    }

    fn info(&self, now: u64, index: usize) -> GrantInfo {
        let Entry { id, wanted, state, .. } = &self.requests[index];
        let State::Holds { token, granted_at, expires_at, .. } = *state else {
            unreachable!("only what is held is shown")
        };
        let waits_for_it = |other: &&Entry| {
            other.waits() && wanted.locks().iter().any(|lock| other.asks_for(&lock.key_values))
        };
        GrantInfo {
            lock_id: id.clone(),
            operation_id: None,
            owner: wanted.owner().cloned(),
            locks: wanted.locks().to_vec(),
            held_ms: Millis(now - granted_at),
            expires_in_ms: Millis(expires_at - now),
            ttl_ms: wanted.ttl(),
            fencing_token: Position(token),
            waiting: self.requests.iter().filter(waits_for_it).count(),
        }
    }

    fn list(
        &self,
        now: u64,
        query: &Query,
        page: &Page<Position>,
        shown: Option<&Answer>,
    ) -> Listed<GrantInfo, Position> {
        let held = (0..self.requests.len()).filter(|index| !self.requests[*index].waits());
        let mut all: Vec<GrantInfo> = held.map(|index| self.info(now, index)).collect();
        all.retain(|grant| grant.locks.iter().any(|lock| select::finds(query, &lock.key_values)));
        let next = match shown {
            Some(Ok(Reply::Grants(shown))) => shown.next,
            _ => None,
        };
        page_of(all.into_iter().map(|grant| (grant.fencing_token, grant)).collect(), page, next)
    }

    /// When the next holder or waiter expires.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.requests.iter().map(|entry| entry.due().0).min()
    }

    /// Expires the holder or waiter that is due next.
    pub(super) fn expire_next(&mut self, turn: &mut Turn) {
        if let Some(index) = (0..self.requests.len()).min_by_key(|index| self.requests[*index].due()) {
            self.end(turn, index);
        }
        self.grant_what_is_free(turn);
    }

    /// A grant in its present state.
    pub(super) fn grant_info(&self, now: u64, id: &Name) -> Option<GrantInfo> {
        self.holder(id, None).ok().map(|index| self.info(now, index))
    }

    pub(super) fn held_ids(&self) -> impl Iterator<Item = &Name> {
        self.requests.iter().filter(|entry| !entry.waits()).map(|entry| &entry.id)
    }

    /// Ends all waits. Returns the requests, in order.
    pub(super) fn give_up(&mut self) -> Vec<Request> {
        let (gone, left) = std::mem::take(&mut self.requests).into_iter().partition(Entry::waits);
        self.requests = left;
        Vec::into_iter(gone).map(|entry| entry.request).collect()
    }

    /// Extends every holder to at least its whole ttl from now on.
    pub(super) fn reopen(&mut self, ready: u64) {
        for entry in &mut self.requests {
            if let State::Holds { expires_at, stored_expires_at, .. } = &mut entry.state {
                *expires_at = (*stored_expires_at).max(ready + entry.wanted.ttl().0);
            }
        }
    }
}
