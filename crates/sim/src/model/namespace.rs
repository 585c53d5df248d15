//! One namespace: its families, and the replies that are kept under idempotency keys.

use super::{
    Bounds, Branch, Changed, Order,
    decisions::{self, Decisions},
    events::Events,
    ledger::{self, Ledger},
    limiter::Limiter,
    locks::{self, Locks},
    retention::DAY,
};
use limina_engine::{
    Command, Idempotency, Name, Outcome, Position, Request, Time,
    decisions::{self as engine_decisions, Decision},
    events as engine_events, ledger as engine_ledger, limiter as engine_limiter, locks as engine_locks,
};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Namespace {
    pub(super) order: Order,
    pub(super) existence: Existence,
    pub(super) ledger: Ledger,
    pub(super) limiter: Limiter,
    pub(super) locks: Locks,
    pub(super) events: Events,
    pub(super) decisions: Decisions,
    /// Everything in it is decided by the model of decisions, which knows all families.
    pub(super) is_decided: bool,
    pub(super) replies: BTreeMap<(Option<Name>, Name), Kept>,
}

/// Whether a namespace exists after a crash.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Existence {
    Durable,
    /// It exists, but only because of relaxed answers.
    Relaxed,
    /// It is not known.
    Maybe,
}

/// A reply kept under an idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    pub(super) given: u64,
    pub(super) fingerprint: [u8; 16],
    /// `None` if no client has seen the outcome.
    pub(super) outcome: Option<Outcome>,
    /// The results so far, if it is the reply of a batch that is not done.
    pub(super) progress: Option<Outcome>,
    pub(super) grant: Option<Granted>,
    /// False if it is not known whether the command changed anything.
    pub(super) is_certain: bool,
}

/// What a kept reply had granted or extended. The reply is repeated while the grant lives.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Granted {
    Lease(Name),
    Lock(Name),
    ExtendedLock(Name),
    /// The decision that was made at this position.
    Decision(Position),
}

/// The expected answer to a request with a known idempotency key.
pub(super) struct Repeat {
    /// The namespace, with what the answer showed; or the expected answer.
    pub(super) result: Result<Namespace, String>,
    /// It is impossible that the request was executed again.
    pub(super) is_certain: bool,
}

/// One possible end of a request, with its outcome if that is known.
pub(super) type Ended = (Branch<Namespace>, Option<Outcome>);

impl Namespace {
    pub(super) fn new(floor: Order, bounds: &Bounds, is_decided: bool) -> Namespace {
        Namespace {
            order: floor,
            existence: Existence::Maybe,
            ledger: Ledger::new(bounds),
            limiter: Limiter::new(bounds),
            locks: Locks::new(bounds),
            events: Events::new(bounds),
            decisions: Decisions::new(bounds),
            is_decided,
            replies: BTreeMap::new(),
        }
    }

    pub(super) fn repeat(&self, now: Time, request: &Request, answer: Option<&Outcome>) -> Option<Repeat> {
        let key = request.idempotency.as_ref()?;
        let kept = self.replies.get(&key.owned_key()).filter(|kept| now.0 < kept.given + DAY)?;
        let is_grant_gone = match &kept.grant {
            None => false,
            Some(Granted::Lease(id)) => !self.limiter.has_lease(id),
            Some(Granted::Lock(id) | Granted::ExtendedLock(id)) => self.locks.grant_info(now.0, id).is_none(),
            Some(Granted::Decision(token)) => !self.decisions.is_open(*token),
        };
        let is_same = kept.fingerprint == key.fingerprint;
        // A batch that was cut continues.
        if is_same && (is_grant_gone || kept.progress.is_some()) {
            return None;
        }
        // If a lease has ended, its key may or may not be remembered.
        let is_lease_gone = is_grant_gone && matches!(kept.grant, Some(Granted::Lease(_)));
        let is_certain = kept.is_certain && !is_lease_gone;
        let mut next = self.clone();
        if let (Some(Granted::Lock(id)), true) = (&kept.grant, is_same) {
            // From now on a hang-up of the request that created the grant does not end it.
            next.locks.add_listener(id, locks::name_of(request));
        }
        let Some(answer) = answer else { return Some(Repeat { result: Ok(next), is_certain }) };
        let expected =
            if is_same { next.kept_outcome(now, key, answer) } else { Some(Outcome::IdempotencyKeyReused) };
        let result = match expected {
            Some(expected) if expected != *answer => Err(format!("kept: {expected:?}")),
            None if !matches!(answer, Outcome::Limiter(Ok(_)) | Outcome::Ledger(Ok(_))) => {
                Err("a kept reply, which nobody has seen yet".into())
            }
            _ => Ok(next),
        };
        Some(Repeat { result, is_certain })
    }

    /// The kept reply as it is shown now. `None` if no client has seen it before.
    pub(super) fn kept_outcome(&mut self, now: Time, key: &Idempotency, answer: &Outcome) -> Option<Outcome> {
        let kept = self.replies.get_mut(&key.owned_key())?;
        kept.is_certain = true;
        let known = kept.outcome.is_some();
        let mut outcome = kept.outcome.get_or_insert_with(|| answer.clone()).clone();
        match (&kept.grant, &mut outcome) {
            (
                Some(Granted::Lease(id)),
                Outcome::Limiter(Ok(engine_limiter::Reply::LeaseTaken { lease, .. })),
            ) => {
                let shown = lease.fencing_token;
                **lease = self.limiter.lease_info(now.0, id, shown)?;
                if !known && outcome == *answer {
                    self.limiter.learn_token(id, shown);
                }
                return Some(outcome);
            }
            (Some(Granted::Lease(id)), Outcome::Limiter(Ok(engine_limiter::Reply::Lease(lease)))) => {
                let shown = lease.fencing_token;
                *lease = self.limiter.lease_info(now.0, id, shown)?;
                if !known && outcome == *answer {
                    self.limiter.learn_token(id, shown);
                }
                return Some(outcome);
            }
            (Some(Granted::ExtendedLock(id)), Outcome::Locks(Ok(engine_locks::Reply::Extended(grant)))) => {
                *grant = self.locks.grant_info(now.0, id)?;
            }
            (Some(Granted::Lock(id)), Outcome::Locks(Ok(engine_locks::Reply::Granted { grant, .. }))) => {
                *grant = self.locks.grant_info(now.0, id)?;
            }
            (
                Some(Granted::Decision(token)),
                Outcome::Decisions(Ok(engine_decisions::Reply::Decided(kept))),
            ) => {
                let token = *token;
                let (info, _) = self.at_decisions(now, |decisions, turn| decisions.open_info(turn, token));
                **kept = Decision { repeated: true, ..info? };
            }
            (
                Some(Granted::Decision(token)),
                Outcome::Decisions(Ok(engine_decisions::Reply::Extended(kept))),
            ) => {
                let token = *token;
                let (info, _) = self.at_decisions(now, |decisions, turn| decisions.open_info(turn, token));
                **kept = info?;
            }
            (None, Outcome::Decisions(Ok(engine_decisions::Reply::Batch(_)))) => {
                outcome = self.repeated(now, outcome, usize::MAX);
            }
            _ => {}
        }
        known.then_some(outcome)
    }

    /// The first results of a batch, as a repeated request is shown them: open decisions as they are now, with the limits of the first
    /// answer, and those that have ended as refusals.
    pub(super) fn repeated(&self, now: Time, mut outcome: Outcome, restored: usize) -> Outcome {
        let Outcome::Decisions(Ok(engine_decisions::Reply::Batch(results))) = &mut outcome else {
            return outcome;
        };
        for result in results.iter_mut().take(restored) {
            let Ok(engine_decisions::Reply::Decided(kept)) = result else { continue };
            let Some(token) = kept.fencing_token else { continue };
            let (info, _) =
                self.clone().at_decisions(now, |decisions, turn| decisions.open_info(turn, token));
            *result = match info {
                Some(info) => Ok(engine_decisions::Reply::Decided(Box::new(Decision {
                    repeated: true,
                    limits: kept.limits.clone(),
                    ..info
                }))),
                None => Err(engine_decisions::Refusal::OperationAlreadyInFinalState {
                    operation_id: kept.operation_id.clone(),
                    state: None,
                    position: None,
                }),
            };
        }
        outcome
    }

    pub(super) fn run(
        &self,
        now: Time,
        request: &Request,
        answer: Option<&Outcome>,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<Vec<Branch<Namespace>>, String> {
        let ways = match (&request.command, answer) {
            (Command::Decisions(_) | Command::Limiter(_) | Command::Locks(_), _) if self.is_decided => {
                vec![self.run_decided(now, request, answer, answered)?]
            }
            (Command::Locks(command), None) => vec![self.run_locks(now, request, command, None, answered)?],
            (Command::Locks(command), Some(Outcome::Locks(answer))) => {
                vec![self.run_locks(now, request, command, Some(answer), answered)?]
            }
            (Command::Events(command), None) => vec![self.run_events(now, command, None)?],
            (Command::Events(command), Some(Outcome::Events(answer))) => {
                vec![self.run_events(now, command, Some(answer))?]
            }
            (Command::Ledger(command), None) => vec![self.run_ledger(now, command, None)?],
            (Command::Ledger(command), Some(Outcome::Ledger(answer))) => {
                vec![self.run_ledger(now, command, Some(answer))?]
            }
            (Command::Limiter(command), None) => self.run_limiter(now, request, command, None)?,
            (Command::Limiter(command), Some(Outcome::Limiter(answer))) => {
                self.run_limiter(now, request, command, Some(answer))?
            }
            _ => return Err("an answer of the family that was asked".into()),
        };
        Ok(ways.into_iter().map(|(way, outcome)| way.keep(now, request, outcome)).collect())
    }

    pub(super) fn run_locks(
        &self,
        now: Time,
        request: &Request,
        command: &engine_locks::Command,
        answer: Option<&Result<engine_locks::Reply, engine_locks::Refusal>>,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<Ended, String> {
        let mut next = self.clone();
        let ((expected, changed), granted) = next.at_locks(now, |locks, turn| {
            let expected = locks.run(turn, request, command, answer);
            // What others are granted then is not the command's own change.
            let changed = if turn.order == self.order { Changed::No } else { Changed::Yes };
            locks.grant_what_is_free(turn);
            (expected, changed)
        });
        let expected = expected.ok_or("it has to wait")?;
        if answer.is_some_and(|answer| *answer != expected) {
            return Err(format!("{expected:?}"));
        }
        *answered = granted;
        let order = next.order;
        Ok((Branch { state: next, order, changed, is_relaxed: false }, Some(Outcome::Locks(expected))))
    }

    pub(super) fn run_events(
        &self,
        now: Time,
        command: &engine_events::Command,
        answer: Option<&Result<engine_events::Reply, engine_events::Refusal>>,
    ) -> Result<Ended, String> {
        let mut next = self.clone();
        let expected = next.events.run(now.0, &mut next.order, command, answer);
        if answer.is_some_and(|answer| *answer != expected) {
            return Err(format!("{expected:?}"));
        }
        let changed = if next.order == self.order { Changed::No } else { Changed::Yes };
        let order = next.order;
        Ok((Branch { state: next, order, changed, is_relaxed: false }, Some(Outcome::Events(expected))))
    }

    /// A command in a namespace of decisions, except one of its ledger and of its streams.
    pub(super) fn run_decided(
        &self,
        now: Time,
        request: &Request,
        answer: Option<&Outcome>,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<Ended, String> {
        let mut next = self.clone();
        let ran = next.at_decisions(now, |decisions, turn| decisions.run(turn, request, answer));
        let (expected, reached) = ran.0;
        let expected = expected.ok_or("it has to wait")?;
        if answer.is_some_and(|answer| *answer != expected) {
            return Err(format!("{expected:?}"));
        }
        answered.extend(ran.1);
        let changed = if reached == self.order.position { Changed::No } else { Changed::Yes };
        let order = next.order;
        // Only a check to which no rule applies is relaxed: all rules are durable.
        let is_relaxed = match &expected {
            Outcome::Limiter(Ok(engine_limiter::Reply::Allowed(decision))) => {
                decision.limits.is_empty() && request.idempotency.is_none()
            }
            _ => false,
        };
        Ok((Branch { state: next, order, changed, is_relaxed }, Some(expected)))
    }

    /// One step of the decisions. Records which waiting requests must be answered, and keeps the replies of those with a key.
    pub(super) fn at_decisions<R>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut Decisions, &mut decisions::Turn<'_>) -> R,
    ) -> (R, Vec<(Request, Outcome)>) {
        let Namespace { decisions, order, ledger, events, .. } = self;
        let mut turn = decisions::Turn { now: now.0, order, ledger, events, answered: Vec::new() };
        let result = act(decisions, &mut turn);
        let answered = turn.answered;
        for (request, outcome) in &answered {
            if outcome.is_done() {
                self.keep_reply(now, request, Some(outcome.clone()), true);
            }
        }
        (result, answered)
    }

    /// When the next decision, wait or event of a namespace of decisions is due.
    pub(super) fn next_decided_due(&self) -> Option<u64> {
        let events = self.events.next_due().map(|(due, _)| due);
        let decisions = self.decisions.next_due().map(|(due, ..)| due);
        events.into_iter().chain(decisions).min().filter(|_| self.is_decided)
    }

    /// Expires what is due next in a namespace of decisions. Returns the requests that this answers.
    pub(super) fn expire_decided(&mut self, now: Time) -> Vec<(Request, Outcome)> {
        let of_event = self.events.next_due().map(|(due, position)| (due, false, position));
        let of_decision = self.decisions.next_due();
        match (of_event, of_decision) {
            (Some(event), Some(decision)) if event > decision => {}
            (None, _) => {}
            (Some(_), _) => {
                self.events.expire_next(&mut self.order);
                return Vec::new();
            }
        }
        self.at_decisions(now, Decisions::expire_next).1
    }

    /// One step of the locks. Records which waiting requests must be answered, and keeps the replies of those with a
    /// key.
    pub(super) fn at_locks<R>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut Locks, &mut locks::Turn) -> R,
    ) -> (R, Vec<(Request, Outcome)>) {
        let mut turn = locks::Turn { now: now.0, order: self.order, answered: Vec::new() };
        let result = act(&mut self.locks, &mut turn);
        self.order = turn.order;
        for (request, outcome) in &turn.answered {
            if outcome.is_done() {
                self.keep_reply(now, request, Some(outcome.clone()), true);
            }
        }
        (result, turn.answered)
    }

    /// Ends all waits. Returns the requests, in order.
    pub(super) fn give_up(&mut self) -> Vec<Request> {
        let mut waiting = self.decisions.give_up(&mut self.ledger);
        waiting.extend(self.locks.give_up());
        waiting
    }

    pub(super) fn keep_reply(
        &mut self,
        now: Time,
        request: &Request,
        outcome: Option<Outcome>,
        is_certain: bool,
    ) {
        let Some(Idempotency { owner, key, fingerprint }) = request.idempotency.clone() else { return };
        let grant = match (&request.command, &outcome) {
            (Command::Limiter(engine_limiter::Command::TakeLease(new)), _) => {
                Some(Granted::Lease(new.id().clone()))
            }
            (Command::Limiter(engine_limiter::Command::ExtendLease { id, .. }), _) => {
                Some(Granted::Lease(id.clone()))
            }
            (_, Some(Outcome::Locks(Ok(engine_locks::Reply::Extended(grant))))) => {
                Some(Granted::ExtendedLock(grant.id.clone()))
            }
            (_, Some(Outcome::Locks(Ok(engine_locks::Reply::Granted { grant, .. })))) => {
                Some(Granted::Lock(grant.id.clone()))
            }
            (
                _,
                Some(Outcome::Decisions(Ok(
                    engine_decisions::Reply::Decided(decision) | engine_decisions::Reply::Extended(decision),
                ))),
            ) => decision.fencing_token.map(Granted::Decision),
            _ => None,
        };
        self.replies.insert(
            (owner, key),
            Kept { given: now.0, fingerprint, outcome, progress: None, grant, is_certain },
        );
    }

    pub(super) fn run_limiter(
        &self,
        now: Time,
        request: &Request,
        command: &engine_limiter::Command,
        answer: Option<&Result<engine_limiter::Reply, engine_limiter::Refusal>>,
    ) -> Result<Vec<Ended>, String> {
        let is_keyed = request.idempotency.is_some();
        let ways = self.limiter.run(now.0, self.order, command, is_keyed, answer)?;
        let outcome = answer.map(|answer| Outcome::Limiter(answer.clone()));
        let in_namespace = |Branch { state, order, changed, is_relaxed }: Branch<Limiter>| {
            let state = Namespace { limiter: state, ..self.clone() };
            (Branch { state, order, changed, is_relaxed }, outcome.clone())
        };
        Ok(ways.into_iter().map(in_namespace).collect())
    }

    /// The ledger is exact, except for the positions that commands of the limiter have taken.
    pub(super) fn run_ledger(
        &self,
        now: Time,
        command: &engine_ledger::Command,
        answer: Option<&Result<engine_ledger::Reply, engine_ledger::Refusal>>,
    ) -> Result<(Branch<Namespace>, Option<Outcome>), String> {
        let run = |start: Order| {
            let mut next = Namespace { order: start, ..self.clone() };
            let expected = next.ledger.answer(&mut next.order, now.0, command, answer);
            (next, expected)
        };
        let mut start = self.order;
        let (mut next, mut expected) = run(start);
        let readable = answer.map(ledger::readable);
        if let Some(readable) = &readable
            && *readable != expected
            && !self.order.is_exact
        {
            for shift in ledger::shifts(self.order, &expected, readable) {
                start = Order { position: self.order.position + shift, is_exact: false };
                (next, expected) = run(start);
                if expected == *readable {
                    break;
                }
            }
        }
        if let Some(readable) = readable
            && readable != expected
        {
            return Err(format!("{:?}", Outcome::Ledger(expected)));
        }
        let changed = if next.order.position == start.position { Changed::No } else { Changed::Yes };
        let outcome = match answer {
            Some(answer) => Some(Outcome::Ledger(answer.clone())),
            None => next.order.is_exact.then_some(Outcome::Ledger(expected)),
        };
        let order = next.order;
        Ok((Branch { state: next, order, changed, is_relaxed: false }, outcome))
    }
}

impl Branch<Namespace> {
    /// Records what the command changes in its namespace.
    pub(super) fn keep(self, now: Time, request: &Request, outcome: Option<Outcome>) -> Branch<Namespace> {
        let Branch { order, changed, is_relaxed, .. } = self;
        let mut state = self.settle();
        if changed != Changed::No {
            state.keep_reply(now, request, outcome, changed == Changed::Yes);
        }
        Branch { state, order, changed, is_relaxed }
    }

    /// The namespace after the command.
    pub(super) fn settle(self) -> Namespace {
        let existence = match (self.changed, self.is_relaxed, self.state.existence) {
            (Changed::Yes, false, _) => Existence::Durable,
            (Changed::Yes, true, Existence::Maybe) => Existence::Relaxed,
            (_, _, existence) => existence,
        };
        Namespace { order: self.order, existence, ..self.state }
    }
}
