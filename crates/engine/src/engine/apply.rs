//! Runs a request in its namespace.

use super::{
    Applied, Engine, Sizes,
    namespace::{Families, KeyedWait, Namespace, kept_replies, own_bytes},
};
use crate::{
    Command, Fetched, Job, Missing, Outcome, Quota, QuotaExceeded, Read, Request, Time,
    answer_size::TooLarge,
    events, idempotency,
    ids::{NamespaceId, WaitId},
    ledger, limiter, locks,
    turn::{Attempt, CannotRun, Turn, View},
};
use alloc::vec::Vec;

/// The arguments of one call of [`Engine::apply`].
struct Invocation<'a> {
    now: Time,
    request: &'a Request,
    /// Whether an earlier call has run a part of the request, which then stopped to fetch records.
    is_begun: bool,
    /// Whether the request has changed something.
    changed: &'a mut bool,
    fetched: &'a Fetched,
}

impl Engine {
    /// Runs a request. If it returns [`Missing`], the caller must fetch these records and call it again with the same job,
    /// before any later request. Everything that is due by `now` must have been applied before.
    pub fn apply(&mut self, now: Time, job: &mut Job, fetched: &Fetched) -> Result<Applied, Missing> {
        self.advance_time(now);
        let Job { request, progress, changed } = job;
        let request = &*request;
        let options = self.options.clone();
        let max_answer = options.max_answer;
        let may_relax = request.idempotency.is_none();
        let invocation =
            Invocation { now, request, is_begun: *changed || progress.is_begun(), changed, fetched };
        match &request.command {
            Command::Ledger(command) => self.decide(invocation, |families, turn, _| {
                let result = ledger::apply(&mut families.ledger, turn, command, progress, max_answer);
                durable(result, max_answer, Outcome::Ledger)
            }),
            Command::Limiter(command) => self.decide(invocation, |families, turn, wait| {
                Ok(match limiter::apply(&mut families.limiter, turn, command, wait, may_relax, &options) {
                    Ok(Attempt::Done(limiter::Decided { result, is_relaxed })) => {
                        Applied::Done { outcome: Outcome::Limiter(result), is_relaxed }
                    }
                    Ok(Attempt::TooManyWaiting) => Applied::durable(Outcome::TooManyWaiting),
                    Ok(Attempt::Waits) => Applied::Waiting(wait),
                    Err(TooLarge) => Applied::too_large(max_answer),
                })
            }),
            Command::Locks(command) => self.decide(invocation, |families, turn, wait| {
                Ok(match locks::apply(&mut families.locks, turn, command, wait) {
                    Attempt::Done(result) => Applied::durable(Outcome::Locks(result)),
                    Attempt::TooManyWaiting => Applied::durable(Outcome::TooManyWaiting),
                    Attempt::Waits => Applied::Waiting(wait),
                })
            }),
            Command::Events(command) => self.decide(invocation, |families, turn, _| {
                let result = events::apply(&mut families.events, turn, command, max_answer);
                durable(result, max_answer, Outcome::Events)
            }),
            Command::DeleteNamespace => Ok(Applied::durable(self.delete_namespace(&request.namespace))),
            Command::ListNamespaces(page) => Ok(Applied::durable(self.list_namespaces(page))),
        }
    }

    /// The records that the request will probably need. Fetching them for many requests together saves rounds;
    /// [`Engine::apply`] may still return more.
    pub fn missing(&self, now: Time, job: &Job, fetched: &Fetched) -> Vec<Read> {
        // In a namespace that does not exist there is nothing to fetch.
        let Some(namespace) = self.namespaces.get(&job.request.namespace) else { return Vec::new() };
        let view = View {
            now,
            namespace: namespace.id,
            position: namespace.head.position,
            building: &self.context.changes.writes,
            sealed: &self.context.sealed,
            fetched,
        };
        let mut missing = Vec::new();
        let mut note = |result: Result<(), CannotRun>| {
            if let Err(CannotRun::Missing(Missing(reads))) = result {
                missing.extend(reads);
            }
        };
        if let Some(idempotency) = &job.request.idempotency {
            note(view.read(|reader| idempotency::find(reader, view, idempotency)).map(|_| ()));
        }
        match &job.request.command {
            Command::Ledger(command) => {
                note(ledger::missing(&namespace.families.ledger, view, command, self.options.max_answer))
            }
            Command::Events(command) => note(events::missing(&namespace.families.events, view, command)),
            // These need only what is resident.
            Command::Limiter(_)
            | Command::Locks(_)
            | Command::DeleteNamespace
            | Command::ListNamespaces(_) => {}
        }
        missing
    }

    /// Runs a request in its namespace, unless there is a kept reply under its idempotency key. The reply of a request that
    /// changed something is kept under its key.
    fn decide(
        &mut self,
        invocation: Invocation<'_>,
        run: impl FnOnce(&mut Families, &mut Turn<'_>, WaitId) -> Result<Applied, Missing>,
    ) -> Result<Applied, Missing> {
        let Invocation { now, request, is_begun, changed, fetched } = invocation;
        // A namespace is created by its first change. Until then a request runs against an empty one.
        let mut created = None;
        let namespace = match self.namespaces.get_mut(&request.namespace) {
            Some(namespace) => namespace,
            None => created.insert(Namespace::new(
                NamespaceId(self.meta.next_namespace),
                request.namespace.clone(),
                self.meta.position_floor,
                &self.options.quotas,
            )),
        };
        let idempotency = request.idempotency.as_ref();
        if !is_begun && idempotency.is_some_and(|idempotency| namespace.waits.is_in_use(&idempotency.key)) {
            return Ok(Applied::durable(Outcome::IdempotencyKeyInUse));
        }
        let wait = WaitId(self.next_wait);
        let used_replies = kept_replies(&namespace.head, &namespace.waits);
        let mut replaced = None;
        let applied = self.context.step(namespace, now, fetched, |families, turn| {
            if let Some(idempotency) = idempotency
                && !is_begun
            {
                match turn.view().read(|reader| idempotency::find(reader, turn.view(), idempotency)) {
                    Ok(found) => {
                        let outcome = found.outcome;
                        if let Some(outcome) =
                            outcome.and_then(|kept| repeat_reply(families, turn, &request.command, kept))
                        {
                            return Ok(Applied::durable(outcome));
                        }
                        replaced = found.is_present.then(|| idempotency::period_of(turn.now));
                    }
                    Err(CannotRun::Missing(missing)) => return Err(missing),
                    Err(CannotRun::Unreadable | CannotRun::TooLarge) => {
                        return Ok(Applied::durable(Outcome::Unreadable));
                    }
                }
            }
            // Whether the reply will be kept is known only afterwards, and then the command is done.
            if idempotency.is_some()
                && !is_begun
                && replaced.is_none()
                && request.is_write()
                && let Err(exceeded) = turn.quotas.check(Quota::KeptReplies, used_replies, 1)
            {
                return Ok(Applied::durable(quota_exceeded(&request.command, exceeded)));
            }
            let before = turn.head.position;
            let applied = run(families, turn, wait);
            // Items of a ledger batch may have changed something before one of them had to fetch records.
            *changed |= turn.head.position != before;
            // A rule that was counted and then refused has used positions, but has changed nothing.
            if let (Some(idempotency), Ok(Applied::Done { outcome, .. })) = (idempotency, &applied)
                && *changed
                && outcome.code() != "QuotaExceeded"
            {
                idempotency::keep(turn, idempotency, outcome, replaced);
            }
            applied
        });
        if let Ok(Applied::Waiting(_)) = applied {
            self.next_wait += 1;
            if let Some(idempotency) = idempotency {
                let before = namespace.sizes();
                namespace.waits.begin(wait, KeyedWait { idempotency: idempotency.clone(), replaced });
                self.context.sizes.change(before, namespace.sizes());
            }
        }
        if let Some(created) = created
            && created.changed
        {
            self.meta.next_namespace += 1;
            let own_bytes = own_bytes(&request.namespace);
            self.context
                .sizes
                .change(Sizes::default(), Sizes { resident_bytes: own_bytes, ..Sizes::default() });
            self.names.insert(created.id, request.namespace.clone());
            self.namespaces.insert(request.namespace.clone(), created);
        }
        self.begin_sweeps();
        applied
    }
}

/// Turns the result of a command that may need stored records into an outcome.
fn durable<R>(
    result: Result<R, CannotRun>,
    max_answer: usize,
    outcome: impl FnOnce(R) -> Outcome,
) -> Result<Applied, Missing> {
    match result {
        Ok(result) => Ok(Applied::durable(outcome(result))),
        Err(CannotRun::Missing(missing)) => Err(missing),
        Err(CannotRun::Unreadable) => Ok(Applied::durable(Outcome::Unreadable)),
        Err(CannotRun::TooLarge) => Ok(Applied::too_large(max_answer)),
    }
}

/// The refusal of a command that would have exceeded a quota.
fn quota_exceeded(command: &Command, exceeded: QuotaExceeded) -> Outcome {
    match command {
        Command::Ledger(_) => Outcome::Ledger(Err(exceeded.into())),
        Command::Limiter(_) => Outcome::Limiter(Err(exceeded.into())),
        Command::Locks(_) => Outcome::Locks(Err(exceeded.into())),
        Command::Events(_) => Outcome::Events(Err(exceeded.into())),
        Command::DeleteNamespace | Command::ListNamespaces(_) => {
            unreachable!("a command about namespaces keeps no reply")
        }
    }
}

/// The kept outcome of a repeated request, as of now. `None` if the request must be decided again, because the lock or lease
/// of the kept outcome has ended.
fn repeat_reply(
    families: &mut Families,
    turn: &mut Turn<'_>,
    command: &Command,
    kept: Outcome,
) -> Option<Outcome> {
    match kept {
        Outcome::Limiter(Ok(reply)) => {
            limiter::repeat_reply(&families.limiter, turn, &reply).map(|reply| Outcome::Limiter(Ok(reply)))
        }
        Outcome::Locks(Ok(reply)) => {
            let command = match command {
                Command::Locks(command) => Some(command),
                _ => None,
            };
            locks::repeat_reply(&mut families.locks, turn, command, reply)
                .map(|reply| Outcome::Locks(Ok(reply)))
        }
        other => Some(other),
    }
}
