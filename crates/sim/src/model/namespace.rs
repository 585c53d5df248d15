//! One namespace: its families, and the replies that are kept under idempotency keys.

use super::{
    Bounds, Done, Order,
    batches::Unfinished,
    decisions::{self, Decisions},
    events::Events,
    expect, is_batch,
    ledger::{self, Ledger},
    limiter::Limiter,
    locks::{self, Locks},
    retention::DAY,
};
use limina_engine::{
    Command, Idempotency, Name, Outcome, Position, Request, Time,
    decisions::{self as engine_decisions, Decision, Reply as DecisionsReply},
    ledger as engine_ledger,
    limiter::Reply as LimiterReply,
    locks::Reply as LocksReply,
};
use std::collections::BTreeMap;

#[derive(Debug, Clone)]
pub(super) struct Namespace {
    pub(super) order: Order,
    pub(super) exists: bool,
    /// It exists only because of relaxed answers, so a loss may remove it.
    pub(super) is_relaxed: bool,
    pub(super) ledger: Ledger,
    pub(super) limiter: Limiter,
    pub(super) locks: Locks,
    pub(super) events: Events,
    pub(super) decisions: Decisions,
    /// Everything in it is decided by the model of decisions, which knows all families.
    pub(super) is_decided: bool,
    pub(super) replies: BTreeMap<(Option<Name>, Name), Kept>,
}

/// A reply kept under an idempotency key.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) given: u64,
    pub(super) fingerprint: [u8; 16],
    /// `None` if it is the reply of a batch that is not done.
    pub(super) outcome: Option<Outcome>,
    /// The results of such a batch so far.
    pub(super) parts: Vec<Outcome>,
}

type DecisionResult = Result<DecisionsReply, engine_decisions::Refusal>;

impl Namespace {
    pub(super) fn new(floor: Order, bounds: &Bounds, is_decided: bool) -> Namespace {
        Namespace {
            order: floor,
            exists: false,
            is_relaxed: false,
            ledger: Ledger::new(bounds),
            limiter: Limiter::new(bounds),
            locks: Locks::new(bounds),
            events: Events::new(bounds),
            decisions: Decisions::new(bounds),
            is_decided,
            replies: BTreeMap::new(),
        }
    }

    /// A request is answered, which may complete others. `live` is the batch that is under way. Returns whether the answer need not wait
    /// for the disk. The error is the expected answer.
    pub(super) fn answer(
        &mut self,
        now: Time,
        request: &Request,
        live: Option<Unfinished>,
        has_waited: bool,
        answer: &Outcome,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<bool, String> {
        if let (None, Some(expected)) = (&live, self.repeat(now, request)) {
            expect(*answer == expected, || format!("kept: {expected:?}"))?;
            return Ok(false);
        }
        let (done, given) = match is_batch(request) {
            true => self.run_batch(now, request, live, answer, answered)?,
            false => (self.run(now, request, answer, answered)?, now),
        };
        // A change of rules that has waited is kept even if it has changed nothing.
        if done.is_change || (has_waited && answer.is_done()) {
            self.keep_reply(given, request, answer);
        }
        Ok(done.is_relaxed)
    }

    /// What is kept under the request's idempotency key.
    pub(super) fn kept(&self, now: Time, request: &Request) -> Option<&Kept> {
        let kept = self.replies.get(&request.idempotency.as_ref()?.owned_key())?;
        (now.0 < kept.given + DAY).then_some(kept)
    }

    /// The kept reply, if the request is not executed again.
    pub(super) fn repeat(&mut self, now: Time, request: &Request) -> Option<Outcome> {
        let kept = self.kept(now, request)?;
        let Idempotency { fingerprint, .. } = request.idempotency.as_ref()?;
        if kept.fingerprint != *fingerprint {
            return Some(Outcome::IdempotencyKeyReused);
        }
        // A batch that was cut continues.
        let outcome = kept.outcome.clone()?;
        // From now on a hang-up of the request that created a grant does not end it.
        if let Outcome::Locks(Ok(LocksReply::Granted { grant, .. })) = &outcome {
            self.locks.add_listener(&grant.lock_id, locks::name_of(request));
        }
        self.as_of(now, outcome)
    }

    /// The kept reply as it is shown now. `None` if what it had granted or extended has ended.
    fn as_of(&self, now: Time, mut outcome: Outcome) -> Option<Outcome> {
        match &mut outcome {
            Outcome::Limiter(Ok(LimiterReply::LeaseTaken { lease, .. })) => {
                **lease = self.limiter.lease_info(now.0, &lease.lease_id, lease.fencing_token)?;
            }
            Outcome::Limiter(Ok(LimiterReply::Lease(lease))) => {
                *lease = self.limiter.lease_info(now.0, &lease.lease_id, lease.fencing_token)?;
            }
            Outcome::Locks(Ok(LocksReply::Extended(grant) | LocksReply::Granted { grant, .. })) => {
                *grant = self.locks.grant_info(now.0, &grant.lock_id)?;
            }
            Outcome::Decisions(Ok(DecisionsReply::Decided(kept))) if kept.fencing_token.is_some() => {
                **kept = Decision { repeated: true, ..self.open_decision(now, kept.fencing_token)? };
            }
            Outcome::Decisions(Ok(DecisionsReply::Extended(kept))) => {
                **kept = self.open_decision(now, kept.fencing_token)?;
            }
            Outcome::Decisions(Ok(DecisionsReply::Batch(results))) => {
                results.iter_mut().for_each(|result| *result = self.repeated(now, result.clone()));
            }
            _ => {}
        }
        Some(outcome)
    }

    fn open_decision(&self, now: Time, token: Option<Position>) -> Option<Decision> {
        let (info, _) = self.clone().at_decisions(now, |decisions, turn| decisions.open_info(turn, token?));
        info
    }

    /// A result of a batch, as a repeated request is shown it: an open decision as it is now, with the limits of the first answer,
    /// and one that has ended as a refusal.
    pub(super) fn repeated(&self, now: Time, result: DecisionResult) -> DecisionResult {
        match result {
            Ok(DecisionsReply::Decided(kept)) if kept.fencing_token.is_some() => {
                match self.open_decision(now, kept.fencing_token) {
                    Some(info) => {
                        let decision = Decision { repeated: true, limits: kept.limits, ..info };
                        Ok(DecisionsReply::Decided(Box::new(decision)))
                    }
                    None => Err(engine_decisions::Refusal::OperationAlreadyInFinalState {
                        operation_id: kept.operation_id,
                        state: None,
                        position: None,
                    }),
                }
            }
            other => other,
        }
    }

    /// Executes a command.
    pub(super) fn run(
        &mut self,
        now: Time,
        request: &Request,
        answer: &Outcome,
        answered: &mut Vec<(Request, Outcome)>,
    ) -> Result<Done, String> {
        let before = self.order.position;
        let (expected, reached) = match (&request.command, answer) {
            (Command::Decisions(_) | Command::Limiter(_) | Command::Locks(_), _) if self.is_decided => {
                let ((expected, reached), others) =
                    self.at_decisions(now, |decisions, turn| decisions.run(turn, request, Some(answer)));
                answered.extend(others);
                (expected.ok_or("it has to wait")?, reached)
            }
            (Command::Locks(command), Outcome::Locks(shown)) => {
                let ((expected, reached), others) = self.at_locks(now, |locks, turn| {
                    let expected = locks.run(turn, request, command, Some(shown));
                    // What others are granted then is not the command's own change.
                    let reached = turn.order.position;
                    locks.grant_what_is_free(turn);
                    (expected, reached)
                });
                answered.extend(others);
                (Outcome::Locks(expected.ok_or("it has to wait")?), reached)
            }
            (Command::Events(command), Outcome::Events(shown)) => {
                let expected = self.events.run(now.0, &mut self.order, command, shown);
                (Outcome::Events(expected), self.order.position)
            }
            (Command::Ledger(command), Outcome::Ledger(shown)) => {
                return self.run_ledger(now, command, shown);
            }
            (Command::Limiter(command), Outcome::Limiter(shown)) => {
                let is_keyed = request.idempotency.is_some();
                let done = self.limiter.run(now.0, &mut self.order, command, is_keyed, shown)?;
                self.note(done);
                return Ok(done);
            }
            _ => return Err("an answer of the family that was asked".into()),
        };
        expect(expected == *answer, || format!("{expected:?}"))?;
        // In a namespace of decisions, only a check to which no rule applies is relaxed: all rules are durable.
        let is_relaxed = match &expected {
            Outcome::Limiter(Ok(LimiterReply::Allowed(decision))) => {
                decision.limits.is_empty() && request.idempotency.is_none()
            }
            _ => false,
        };
        let done = Done { is_change: reached != before, is_relaxed };
        self.note(done);
        Ok(done)
    }

    /// The first change creates the namespace.
    fn note(&mut self, done: Done) {
        if done.is_change {
            self.is_relaxed = done.is_relaxed && (self.is_relaxed || !self.exists);
            self.exists = true;
        }
    }

    /// The ledger is exact, except for the positions that commands of the limiter have taken.
    fn run_ledger(
        &mut self,
        now: Time,
        command: &engine_ledger::Command,
        answer: &Result<engine_ledger::Reply, engine_ledger::Refusal>,
    ) -> Result<Done, String> {
        let run = |ledger: &Ledger, start: Order| {
            let (mut ledger, mut order) = (ledger.clone(), start);
            let expected = ledger.answer(&mut order, now.0, command, answer);
            (ledger, order, expected)
        };
        let mut start = self.order;
        let (mut ledger, mut order, mut expected) = run(&self.ledger, start);
        if *answer != expected && !self.order.is_exact {
            for shift in ledger::shifts(self.order, &expected, answer) {
                start = Order { position: self.order.position + shift, is_exact: false };
                (ledger, order, expected) = run(&self.ledger, start);
                if expected == *answer {
                    break;
                }
            }
        }
        expect(*answer == expected, || format!("{:?}", Outcome::Ledger(expected)))?;
        (self.ledger, self.order) = (ledger, order);
        let done = Done { is_change: order.position != start.position, is_relaxed: false };
        self.note(done);
        Ok(done)
    }

    /// One step of the decisions. Returns which waiting requests must be answered, and keeps the replies of those with a key.
    pub(super) fn at_decisions<R>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut Decisions, &mut decisions::Turn<'_>) -> R,
    ) -> (R, Vec<(Request, Outcome)>) {
        let Namespace { decisions, order, ledger, events, .. } = self;
        let mut turn = decisions::Turn { now: now.0, order, ledger, events, answered: Vec::new() };
        let result = act(decisions, &mut turn);
        let answered = turn.answered;
        self.keep_replies(now, &answered);
        (result, answered)
    }

    /// The same for the locks.
    pub(super) fn at_locks<R>(
        &mut self,
        now: Time,
        act: impl FnOnce(&mut Locks, &mut locks::Turn) -> R,
    ) -> (R, Vec<(Request, Outcome)>) {
        let mut turn = locks::Turn { now: now.0, order: self.order, answered: Vec::new() };
        let result = act(&mut self.locks, &mut turn);
        self.order = turn.order;
        self.keep_replies(now, &turn.answered);
        (result, turn.answered)
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

    /// Executes everything that is due by `now`, in due order, until it answers requests.
    pub(super) fn expire(&mut self, now: Time) -> Vec<(Request, Outcome)> {
        while self.next_due().is_some_and(|due| due <= now.0) {
            let answered = self.expire_next(now);
            if !answered.is_empty() {
                return answered;
            }
        }
        Vec::new()
    }

    /// When the next hold, lease, lock, event, decision or wait is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        let families = [
            self.ledger.next_due(),
            self.limiter.next_expiry(),
            self.locks.next_due(),
            self.events.next_due().map(|(due, _)| due),
            self.decisions.next_due().map(|(due, ..)| due),
        ];
        families.into_iter().flatten().min()
    }

    /// Expires what is due next. Returns the requests that this answers.
    pub(super) fn expire_next(&mut self, now: Time) -> Vec<(Request, Outcome)> {
        let due = self.next_due();
        if self.is_decided {
            return self.expire_decided(now);
        }
        if self.ledger.next_due() == due {
            self.ledger.expire_next(&mut self.order);
        } else if self.events.next_due().map(|(due, _)| due) == due {
            self.events.expire_next(&mut self.order);
        } else if self.limiter.next_expiry() == due {
            self.limiter.expire_next();
            self.order.grow(1);
        } else {
            return self.at_locks(now, Locks::expire_next).1;
        }
        Vec::new()
    }

    /// Ends all waits. Returns the requests, in order.
    pub(super) fn give_up(&mut self) -> Vec<Request> {
        let mut waiting = self.decisions.give_up(&mut self.ledger);
        waiting.extend(self.locks.give_up());
        waiting
    }

    fn keep_replies(&mut self, now: Time, answered: &[(Request, Outcome)]) {
        for (request, outcome) in answered.iter().filter(|(_, outcome)| outcome.is_done()) {
            self.keep_reply(now, request, outcome);
        }
    }

    fn keep_reply(&mut self, given: Time, request: &Request, outcome: &Outcome) {
        self.keep(given, request, Some(outcome.clone()), Vec::new());
    }

    /// Keeps the results so far of a batch.
    pub(super) fn keep_parts(&mut self, given: Time, request: &Request, parts: Vec<Outcome>) {
        self.keep(given, request, None, parts);
    }

    fn keep(&mut self, given: Time, request: &Request, outcome: Option<Outcome>, parts: Vec<Outcome>) {
        if let Some(Idempotency { owner, key, fingerprint }) = request.idempotency.clone() {
            self.replies.insert((owner, key), Kept { given: given.0, fingerprint, outcome, parts });
        }
    }
}
