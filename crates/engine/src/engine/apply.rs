//! Runs a request in its namespace.

use super::{
    Applied, Engine, Sizes,
    audit::Draft,
    context::Context,
    guard::guard,
    namespace::{Families, KeyedWait, Namespace, kept_replies, own_bytes},
};
use crate::{
    Command, Fetched, Job, Missing, Name, Options, Outcome, Quota, QuotaExceeded, Read, Request, Time,
    answer_size::TooLarge,
    decisions, events,
    idempotency::{self, Found, FoundReply, KeptParts},
    ids::{NamespaceId, WaitId},
    ledger, limiter, locks,
    turn::{Attempt, CannotRun, Slice, Turn, View},
};
use alloc::{boxed::Box, vec::Vec};

impl Engine {
    /// Runs a request. If it returns [`Missing`], the caller must fetch these records and call it again with the same job,
    /// before any later request. Everything that is due by `now` must have been applied before.
    pub fn apply(&mut self, now: Time, job: &mut Job, fetched: &Fetched) -> Result<Applied, Missing> {
        self.advance_time(now);
        if job.request.command.as_batch().is_some() {
            return self.apply_slice(now, job, fetched);
        }
        let request = &job.request;
        self.context.work += request.weight();
        let Options { max_answer, backfill_slice, .. } = self.options;
        let may_relax = request.idempotency.is_none();
        match &request.command {
            Command::Ledger(command) => self.decide(now, request, fetched, |families, turn, _| {
                let result = ledger::apply(&mut families.ledger, turn, command, max_answer);
                durable(result, max_answer, Outcome::Ledger)
            }),
            Command::Limiter(command) => self.decide(now, request, fetched, |families, turn, wait| {
                let limiter = &mut families.limiter;
                Ok(
                    match limiter::apply(limiter, turn, command, wait, may_relax, max_answer, backfill_slice)
                    {
                        Ok(Attempt::Done(limiter::Answer { result, is_relaxed })) => {
                            Applied::Done { outcome: Outcome::Limiter(result), is_relaxed }
                        }
                        Ok(Attempt::TooManyWaiting) => Applied::durable(Outcome::TooManyWaiting),
                        Ok(Attempt::Waits) => Applied::Waiting(wait),
                        Err(TooLarge) => Applied::too_large(max_answer),
                    },
                )
            }),
            Command::Locks(command) => self.decide(now, request, fetched, |families, turn, wait| {
                Ok(match locks::apply(&mut families.locks, turn, command, wait) {
                    Attempt::Done(result) => Applied::durable(Outcome::Locks(result)),
                    Attempt::TooManyWaiting => Applied::durable(Outcome::TooManyWaiting),
                    Attempt::Waits => Applied::Waiting(wait),
                })
            }),
            Command::Events(command) => self.decide(now, request, fetched, |families, turn, _| {
                let result = events::apply(&mut families.events, turn, command, max_answer);
                durable(result, max_answer, Outcome::Events)
            }),
            Command::Decisions(command) => self.decide(now, request, fetched, |families, turn, wait| {
                let (decisions, mut families) = families.split();
                match decisions::apply(decisions, &mut families, turn, command, wait, max_answer) {
                    Ok(Attempt::Waits) => Ok(Applied::Waiting(wait)),
                    Ok(Attempt::TooManyWaiting) => Ok(Applied::durable(Outcome::TooManyWaiting)),
                    Ok(Attempt::Done(result)) => Ok(Applied::durable(Outcome::Decisions(result))),
                    Err(stop) => durable(Err(stop), max_answer, Outcome::Decisions),
                }
            }),
            Command::DeleteNamespace => {
                Ok(Applied::durable(self.delete_namespace(&request.namespace, &request.caller)))
            }
            Command::ListNamespaces(page) => Ok(Applied::durable(self.list_namespaces(page))),
            Command::ListAudit(page) => self.list_audit(Some(&request.namespace), page, fetched),
            Command::ListShardAudit(page) => self.list_audit(None, page, fetched),
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
            note(match &job.kept {
                _ if !job.is_begun => {
                    view.read(|reader| idempotency::find(reader, view, idempotency)).map(|_| ())
                }
                Some(kept) => {
                    view.read(|reader| idempotency::read_part(reader, view, idempotency, kept)).map(|_| ())
                }
                None => Ok(()),
            });
        }
        let families = &namespace.families;
        match &job.request.command {
            Command::Ledger(ledger::Command::Batch(transfers)) => {
                let slice = Slice::new(self.options.slice_work);
                if let Some(progress) = &job.progress {
                    note(ledger::batch::prefetch(view, transfers, &progress.ledger, &slice));
                }
            }
            Command::Ledger(command) => {
                note(ledger::missing(&families.ledger, view, command, self.options.max_answer))
            }
            Command::Events(command) => note(events::missing(&families.events, view, command)),
            Command::Decisions(decisions::Command::Batch(items)) => {
                let slice = Slice::new(self.options.slice_work);
                if let Some(progress) = &job.progress {
                    let (decisions, progress) = (&families.decisions, &progress.decisions);
                    note(decisions::batch::prefetch(decisions, view, items, progress, &slice));
                }
            }
            Command::Decisions(command) => note(decisions::missing(&families.decisions, view, command)),
            // These need only what is resident, or do not depend on the namespace.
            Command::ListAudit(_)
            | Command::ListShardAudit(_)
            | Command::Limiter(_)
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
        now: Time,
        request: &Request,
        fetched: &Fetched,
        run: impl FnOnce(&mut Families, &mut Turn<'_>, WaitId) -> Result<Applied, Missing>,
    ) -> Result<Applied, Missing> {
        let wait = WaitId(self.next_wait);
        let max_answer = self.options.max_answer;
        let applied = self.in_namespace(&request.namespace, |context, namespace| {
            if namespace.is_key_in_use(request) {
                return Ok(Applied::durable(Outcome::IdempotencyKeyInUse));
            }
            let used_replies = kept_replies(&namespace.head, &namespace.waits);
            let mut replaced = None;
            let mut draft = None;
            let applied = context.step(namespace, now, fetched, |families, turn| {
                match find_kept(families, turn, request, max_answer)? {
                    KeptReply::Nothing { replaced: period } => replaced = period,
                    KeptReply::Outcome(outcome) => return Ok(Applied::durable(outcome)),
                    // A batch began under this key, and this request is no batch.
                    KeptReply::Parts(_) => return Ok(Applied::durable(Outcome::IdempotencyKeyReused)),
                }
                if let Some(refused) = refuse_to_keep_reply(turn, request, used_replies, replaced) {
                    return Ok(Applied::durable(refused));
                }
                let before = turn.head.position;
                draft = Draft::of(request, families, turn.now);
                let applied = match guard(families, turn, &request.command, max_answer) {
                    Some(outcome) => Ok(Applied::durable(outcome)),
                    None => run(families, turn, wait),
                };
                if let Ok(Applied::Done { outcome, .. }) = &applied
                    && let Some(draft) = draft.take()
                    && outcome.is_done()
                    && turn.head.position != before
                {
                    draft.store(turn, families, outcome);
                }
                // A rule that was counted and then refused has used positions, but has changed nothing.
                if let (Some(idempotency), Ok(Applied::Done { outcome, .. })) =
                    (&request.idempotency, &applied)
                    && turn.head.position != before
                    && outcome.exceeded_quota().is_none()
                {
                    idempotency::keep(turn, idempotency, outcome, replaced);
                }
                applied
            });
            if let (Ok(Applied::Waiting(_)), Some(draft)) = (&applied, draft) {
                namespace.drafts.insert(wait, draft);
            }
            if let (Ok(Applied::Waiting(_)), Some(idempotency)) = (&applied, &request.idempotency) {
                let before = namespace.sizes();
                namespace.waits.begin(wait, KeyedWait { idempotency: idempotency.clone(), replaced });
                context.sizes.change(before, namespace.sizes());
            }
            applied
        });
        if let Ok(Applied::Waiting(_)) = applied {
            self.next_wait += 1;
        }
        applied
    }

    /// Runs a step in a namespace. A namespace is created by its first change. Until then a request runs against an empty
    /// one.
    pub(super) fn in_namespace<R>(
        &mut self,
        name: &Name,
        step: impl FnOnce(&mut Context, &mut Namespace) -> R,
    ) -> R {
        let mut created = None;
        let namespace = match self.namespaces.get_mut(name) {
            Some(namespace) => namespace,
            None => created.insert(Box::new(Namespace::new(
                NamespaceId(self.meta.next_namespace),
                name.clone(),
                self.meta.position_floor,
                &self.options.quotas,
            ))),
        };
        let result = step(&mut self.context, namespace);
        if let Some(created) = created
            && created.changed
        {
            self.meta.next_namespace += 1;
            let own_bytes = own_bytes(name);
            self.context
                .sizes
                .change(Sizes::default(), Sizes { resident_bytes: own_bytes, ..Sizes::default() });
            self.names.insert(created.id, name.clone());
            self.namespaces.insert(name.clone(), created);
        }
        self.begin_sweeps();
        result
    }
}

/// What is kept under a request's idempotency key.
pub(super) enum KeptReply {
    /// Nothing: the request must be decided. `replaced` is the present period, if that has a reply under this key which no
    /// longer counts. A new reply replaces it.
    Nothing { replaced: Option<u32> },
    /// The answer to the request.
    Outcome(Outcome),
    /// Parts of the answer to a batch.
    Parts(KeptParts),
}

/// Looks for a kept reply.
pub(super) fn find_kept(
    families: &mut Families,
    turn: &mut Turn<'_>,
    request: &Request,
    max_answer: usize,
) -> Result<KeptReply, Missing> {
    let Some(idempotency) = &request.idempotency else { return Ok(KeptReply::Nothing { replaced: None }) };
    match turn.view().read(|reader| idempotency::find(reader, turn.view(), idempotency)) {
        Ok(Found { reply, is_present }) => {
            let replaced = is_present.then(|| idempotency::period_of(turn.now));
            Ok(match reply {
                Some(FoundReply::Parts(kept)) => KeptReply::Parts(kept),
                Some(FoundReply::Whole(kept)) => {
                    repeat_reply(families, turn, &request.command, kept, max_answer)
                        .map_or(KeptReply::Nothing { replaced }, KeptReply::Outcome)
                }
                None => KeptReply::Nothing { replaced },
            })
        }
        Err(CannotRun::Missing(missing)) => Err(missing),
        Err(CannotRun::Unreadable | CannotRun::TooLarge) => Ok(KeptReply::Outcome(Outcome::Unreadable)),
    }
}

/// The refusal of a request whose reply could not be kept. Whether a reply will be kept is known only afterwards, when the
/// command is done.
pub(super) fn refuse_to_keep_reply(
    turn: &Turn<'_>,
    request: &Request,
    used_replies: u64,
    replaced: Option<u32>,
) -> Option<Outcome> {
    if request.idempotency.is_none() || replaced.is_some() || !request.is_write() {
        return None;
    }
    let exceeded = turn.quotas.check(Quota::KeptReplies, used_replies, 1).err()?;
    Some(quota_exceeded(&request.command, exceeded))
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
        Command::Decisions(_) => Outcome::Decisions(Err(exceeded.into())),
        Command::DeleteNamespace
        | Command::ListNamespaces(_)
        | Command::ListAudit(_)
        | Command::ListShardAudit(_) => {
            unreachable!("a command about namespaces keeps no reply")
        }
    }
}

/// The kept outcome of a repeated request, as of now. `None` if the request must be decided again, because the lock, lease or
/// decision of the kept outcome has ended.
fn repeat_reply(
    families: &mut Families,
    turn: &mut Turn<'_>,
    command: &Command,
    kept: Outcome,
    max_answer: usize,
) -> Option<Outcome> {
    match kept {
        Outcome::Limiter(Ok(reply)) => limiter::repeat_reply(&mut families.limiter, turn, &reply)
            .map(|reply| Outcome::Limiter(Ok(reply))),
        Outcome::Locks(Ok(reply)) => {
            let command = match command {
                Command::Locks(command) => Some(command),
                _ => None,
            };
            locks::repeat_reply(&mut families.locks, turn, command, reply)
                .map(|reply| Outcome::Locks(Ok(reply)))
        }
        Outcome::Decisions(Ok(reply)) => {
            let (decisions, families) = families.split();
            decisions::repeat_reply(decisions, &families, turn.now, reply, max_answer)
                .map(|reply| Outcome::Decisions(Ok(reply)))
        }
        other => Some(other),
    }
}
