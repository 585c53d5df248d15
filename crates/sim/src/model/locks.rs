//! Locks, naively: everybody who asked stands in one list, in the order in which they came, and after every step the
//! whole list is gone through by the contract's own words: a request is granted when no holder and no earlier waiter
//! conflicts with it in any of its locks.
//!
//! Nothing here is uncertain: the same commands in the same order have the same answers, and each change takes one
//! position. So an answer that nobody heard is known all the same.

use super::{Order, select};
use limina_engine::{
    KeyValues, Listed, Millis, Name, Outcome, Page, Position, Request, Time,
    locks::{Acquire, Blocked, Command, GrantInfo, Holder, Lock, Mode, Refusal, Reply},
    selection::Query,
};

type Answer = Result<Reply, Refusal>;

/// The locks of one namespace.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Locks {
    /// Who holds and who waits, in the order in which they came.
    asked: Vec<Asked>,
}

#[derive(Debug, Clone, PartialEq)]
struct Asked {
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
        /// The same without what an opening added, which is not stored.
        stored_expires_at: u64,
        told: Told,
    },
}

/// Who was answered with a grant and has not hung up.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    These(Vec<Name>),
    /// More than the contract says are remembered: no hang-up ends the grant any more.
    TooMany,
}

/// How many requests that were answered with one grant are remembered.
const MOST_TOLD: usize = 8;

/// One step, and what it leads to.
pub(super) struct Turn {
    pub(super) now: u64,
    pub(super) order: Order,
    /// Who had to wait and is answered by this, in order.
    pub(super) told: Vec<(Request, Outcome)>,
}

impl Turn {
    fn tell(&mut self, request: Request, answer: Answer) {
        self.told.push((request, Outcome::Locks(answer)));
    }
}

impl Asked {
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

    /// Whether both cannot have this lock at the same time.
    fn conflicts(&self, lock: &Lock) -> bool {
        self.wanted.locks().iter().any(|own| {
            own.key_values == lock.key_values && (own.mode == Mode::Exclusive || lock.mode == Mode::Exclusive)
        })
    }

    /// When its time runs out. At the same instant holders come first, then who waits, each in the order of arrival.
    fn due(&self) -> (u64, bool, Option<u64>) {
        match self.state {
            State::Holds { expires_at, token, .. } => (expires_at, false, Some(token)),
            State::Waits { until } => (until, true, None),
        }
    }
}

/// The name by which a request for locks hangs up.
pub(super) fn name_of(request: &Request) -> Option<&Name> {
    match &request.command {
        limina_engine::Command::Locks(Command::Acquire(wanted)) => Some(wanted.id()),
        _ => None,
    }
}

impl Locks {
    /// What is answered at once, when all that is due is done; nothing if it has to wait. Of a list as much as `shown`
    /// says that it covers.
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
            Command::Heartbeat { id, session } => self.holder(id, Some(session)).map(|place| {
                let Asked { wanted, state, .. } = &mut self.asked[place];
                let until = turn.now + wanted.ttl().0;
                if let State::Holds { expires_at, stored_expires_at, .. } = state {
                    (*expires_at, *stored_expires_at) = (until, until);
                }
                turn.order.advance();
                Reply::Extended(self.info(turn.now, place))
            }),
            Command::Release { id, session } => self.holder(id, session.as_ref()).map(|place| {
                self.end(turn, place);
                Reply::Released
            }),
            Command::Get(id) => self.holder(id, None).map(|place| Reply::Grant(self.info(turn.now, place))),
            Command::List { query, page } => Ok(Reply::Grants(self.list(turn.now, query, page, shown))),
        })
    }

    fn acquire(&mut self, turn: &mut Turn, request: &Request, wanted: &Acquire) -> Option<Answer> {
        if let Ok(place) = self.holder(wanted.id(), None) {
            let session = self.asked[place].wanted.session().clone();
            self.tell(wanted.id(), Some(wanted.id()));
            return Some(Ok(Reply::Granted { grant: self.info(turn.now, place), session }));
        }
        if let Some(place) = self.asked.iter().position(|asked| asked.wanted.id() == wanted.id()) {
            self.end(turn, place);
        }
        let state = State::Waits { until: turn.now + wanted.wait().0 };
        self.asked.push(Asked { wanted: wanted.clone(), request: request.clone(), state });
        let place = self.asked.len() - 1;
        let Some(blocked) = self.blocked(turn.now, place) else {
            return Some(Ok(self.grant(turn, place)));
        };
        if wanted.wait() == Millis(0) {
            self.asked.pop();
            return Some(Err(Refusal::LockHeld(blocked)));
        }
        None
    }

    /// A client hangs up: it waits no more, and each grant that nobody else was told of ends, the oldest first.
    fn hang_up(&mut self, turn: &mut Turn, request: &Name) {
        let waits = |asked: &Asked| asked.waits() && asked.wanted.id() == request;
        if let Some(place) = self.asked.iter().position(waits) {
            self.end(turn, place);
        }
        let mut last_of = Vec::new();
        for asked in &mut self.asked {
            if let State::Holds { token, told: Told::These(told), .. } = &mut asked.state
                && told.contains(request)
            {
                told.retain(|other| other != request);
                last_of.extend(told.is_empty().then_some(*token));
            }
        }
        last_of.sort_unstable();
        for token in last_of {
            let place = self.asked.iter().position(|asked| asked.token() == Some(token));
            self.end(turn, place.expect("a hang-up ends only what nobody else was told of"));
        }
    }

    /// A request is answered with the grant of this id; not one for locks if it has no name of its own.
    pub(super) fn tell(&mut self, id: &Name, request: Option<&Name>) {
        let Ok(place) = self.holder(id, None) else { return };
        let State::Holds { told, .. } = &mut self.asked[place].state else { return };
        match (&mut *told, request) {
            (Told::These(names), Some(request)) if names.contains(request) => {}
            (Told::These(names), Some(request)) if names.len() < MOST_TOLD => names.push(request.clone()),
            _ => *told = Told::TooMany,
        }
    }

    /// Somebody holds or waits no more; then whoever can be granted, is.
    fn end(&mut self, turn: &mut Turn, place: usize) {
        let blocked = self.asked[place]
            .waits()
            .then(|| self.blocked(turn.now, place).expect("after each step nobody waits for what is free"));
        let Asked { request, .. } = self.asked.remove(place);
        match blocked {
            Some(blocked) => turn.tell(request, Err(Refusal::LockWaitTimeout(blocked))),
            None => {
                turn.order.advance();
            }
        }
        let now = turn.now;
        let is_free = |locks: &Locks, place: &usize| {
            locks.asked[*place].waits() && locks.blocked(now, *place).is_none()
        };
        while let Some(place) = (0..self.asked.len()).find(|place| is_free(self, place)) {
            let request = self.asked[place].request.clone();
            let reply = self.grant(turn, place);
            turn.tell(request, Ok(reply));
        }
    }

    fn grant(&mut self, turn: &mut Turn, place: usize) -> Reply {
        let (token, granted_at) = (turn.order.advance(), turn.now);
        let expires_at = granted_at + self.asked[place].wanted.ttl().0;
        let told = Told::These(vec![self.asked[place].wanted.id().clone()]);
        self.asked[place].state =
            State::Holds { token, granted_at, expires_at, stored_expires_at: expires_at, told };
        let session = self.asked[place].wanted.session().clone();
        Reply::Granted { grant: self.info(turn.now, place), session }
    }

    /// What keeps the one at this place from holding what it asks for.
    fn blocked(&self, now: u64, place: usize) -> Option<Blocked> {
        let others = || self.asked.iter().enumerate().filter(|(other, _)| *other != place);
        let is_in_the_way = |lock: &&Lock| {
            others().any(|(other, asked)| (!asked.waits() || other < place) && asked.conflicts(lock))
        };
        let key_values = self.asked[place].wanted.locks().iter().find(is_in_the_way)?.key_values.clone();
        let about_it = || others().map(|(_, asked)| asked).filter(|asked| asked.asks_for(&key_values));
        let holder = about_it().filter(|asked| !asked.waits()).min_by_key(|asked| asked.token());
        let holder = holder.map(|asked| Holder {
            lock_id: asked.wanted.id().clone(),
            owner: asked.wanted.owner().cloned(),
            expires_in: Millis(asked.due().0.saturating_sub(now)),
        });
        let waiting = about_it().filter(|asked| asked.waits()).count();
        Some(Blocked { key_values, holder, waiting })
    }

    /// Where the holder stands in the list.
    fn holder(&self, id: &Name, session: Option<&Name>) -> Result<usize, Refusal> {
        let lock_id = id.clone();
        let held = self.asked.iter().position(|asked| asked.wanted.id() == id && !asked.waits());
        let Some(place) = held else { return Err(Refusal::LockNotFound { lock_id }) };
        match session {
            Some(session) if session != self.asked[place].wanted.session() => {
                Err(Refusal::SessionMismatch { lock_id })
            }
            _ => Ok(place),
        }
    }

    fn info(&self, now: u64, place: usize) -> GrantInfo {
        let Asked { wanted, state, .. } = &self.asked[place];
        let State::Holds { token, granted_at, expires_at, .. } = *state else {
            unreachable!("only what is held is shown")
        };
        let waits_for_it = |other: &&Asked| {
            other.waits() && wanted.locks().iter().any(|lock| other.asks_for(&lock.key_values))
        };
        GrantInfo {
            id: wanted.id().clone(),
            owner: wanted.owner().cloned(),
            locks: wanted.locks().to_vec(),
            ttl: wanted.ttl(),
            granted_at: Time(granted_at),
            expires_at: Time(expires_at),
            fencing_token: Position(token),
            waiting: self.asked.iter().filter(waits_for_it).count(),
            now: Time(now),
        }
    }

    fn list(
        &self,
        now: u64,
        query: &Query,
        page: &Page<Position>,
        shown: Option<&Answer>,
    ) -> Listed<GrantInfo, Position> {
        let held = (0..self.asked.len()).filter(|place| !self.asked[*place].waits());
        let mut all: Vec<GrantInfo> = held.map(|place| self.info(now, place)).collect();
        all.retain(|grant| grant.locks.iter().any(|lock| select::finds(query, &lock.key_values)));
        all.retain(|grant| page.after.is_none_or(|after| grant.fencing_token > after));
        all.sort_by_key(|grant| grant.fencing_token);
        // A part may be short; what it skips must not exist.
        let next = match shown {
            Some(Ok(Reply::Grants(shown))) => {
                shown.next.filter(|next| page.after.is_none_or(|after| *next > after))
            }
            _ => None,
        };
        all.retain(|grant| next.is_none_or(|next| grant.fencing_token <= next));
        let next = next.or((all.len() > page.limit()).then(|| all[page.limit() - 1].fencing_token));
        all.truncate(page.limit());
        Listed { items: all, next }
    }

    /// When the next time runs out.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.asked.iter().map(|asked| asked.due().0).min()
    }

    /// Ends the one whose time runs out next.
    pub(super) fn expire_next(&mut self, turn: &mut Turn) {
        if let Some(place) = (0..self.asked.len()).min_by_key(|place| self.asked[*place].due()) {
            self.end(turn, place);
        }
    }

    /// A grant as it is now.
    pub(super) fn grant_info(&self, now: u64, id: &Name) -> Option<GrantInfo> {
        self.holder(id, None).ok().map(|place| self.info(now, place))
    }

    /// Whether somebody waits under this idempotency key.
    pub(super) fn uses_key(&self, key: &Name) -> bool {
        let mut waiting = self.asked.iter().filter(|asked| asked.waits());
        waiting.any(|asked| asked.request.idempotency.as_ref().is_some_and(|used| used.key == *key))
    }

    /// Nobody waits any more. Who did, in order.
    pub(super) fn give_up(&mut self) -> Vec<Request> {
        let (gone, left) = std::mem::take(&mut self.asked).into_iter().partition(Asked::waits);
        self.asked = left;
        Vec::into_iter(gone).map(|asked| asked.request).collect()
    }

    /// Whoever holds something has at least its whole ttl from now on.
    pub(super) fn reopen(&mut self, ready: u64) {
        for asked in &mut self.asked {
            if let State::Holds { expires_at, stored_expires_at, .. } = &mut asked.state {
                *expires_at = (*stored_expires_at).max(ready + asked.wanted.ttl().0);
            }
        }
    }
}
