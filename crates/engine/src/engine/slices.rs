//! Runs a batch, one slice a turn.
//!
//! Between two slices, requests of other namespaces have their turn. Requests of the same namespace wait. So nothing but the
//! time, and what falls due with it, comes between two items of a batch.
//!
//! With an idempotency key, each slice stores its results together with its changes. If a crash or a failed append cuts the
//! batch, a request with the same key reads the results of the slices that are stored, and continues behind them.

use super::{
    Applied, Engine,
    apply::{KeptReply, find_kept, refuse_to_keep_reply},
    namespace::{Families, kept_replies},
};
use crate::{
    Fetched, Job, Missing, Outcome, Time, decisions, idempotency,
    job::batch_of,
    ledger, limiter,
    request::BatchCommand,
    turn::{CannotRun, Slice, Sliced, Turn},
};

/// The work of reading back one result of an earlier request.
const RESTORE_WORK: usize = 8;

impl Engine {
    /// The work of one slice.
    pub fn slice_work(&self) -> usize {
        self.options.slice_work
    }

    /// Drops a request that is not done. If it is a batch, other requests of its namespace may run from now on.
    pub fn give_up(&mut self, job: &Job) {
        if let Some(namespace) = self.namespaces.get(&job.request.namespace) {
            self.context.unfinished.remove(&namespace.id);
        }
    }

    /// Does the next slice of a batch.
    pub(super) fn apply_slice(
        &mut self,
        now: Time,
        job: &mut Job,
        fetched: &Fetched,
    ) -> Result<Applied, Missing> {
        let name = job.request.namespace.clone();
        let mut slice = Slice::new(self.options.slice_work);
        let max_answer = self.options.max_answer;
        let applied = self.in_namespace(&name, |context, namespace| {
            if !job.is_begun && namespace.is_key_in_use(&job.request) {
                return Ok(Applied::durable(Outcome::IdempotencyKeyInUse));
            }
            let used_replies = kept_replies(&namespace.head, &namespace.waits);
            context.step(namespace, now, fetched, |families, turn| {
                run_slice(families, turn, job, &mut slice, used_replies, max_answer)
            })
        });
        self.context.work += slice.spent().max(1);
        if let Some(namespace) = self.namespaces.get(&name) {
            match &applied {
                Ok(Applied::Unfinished) => self.context.unfinished.insert(namespace.id),
                Ok(_) => self.context.unfinished.remove(&namespace.id),
                Err(_) => false,
            };
        }
        applied
    }
}

fn run_slice(
    families: &mut Families,
    turn: &mut Turn<'_>,
    job: &mut Job,
    slice: &mut Slice,
    used_replies: u64,
    max_answer: usize,
) -> Result<Applied, Missing> {
    // If the key becomes free while the kept reply is read, the batch begins anew in its next turn, as if it came then. The parts of
    // that reply that were not read may be removed at any time.
    if !job.is_partly_done() && job.kept.as_ref().is_some_and(|kept| kept.is_over(turn.now)) {
        job.forget_restored();
        return Ok(Applied::Unfinished);
    }
    if !job.is_begun {
        if let Some(applied) = find_kept_parts(families, turn, job, used_replies, max_answer)? {
            return Ok(applied);
        }
        job.is_begun = true;
    }
    if let Some(applied) = read_kept_parts(families, turn, job, slice)? {
        return Ok(applied);
    }
    let before = turn.head.position;
    let ran = run_items(families, turn, job, slice, max_answer);
    job.changed |= turn.head.position != before;
    match ran {
        Ok(Sliced::Unfinished) => {
            keep_results(turn, job, false);
            Ok(Applied::Unfinished)
        }
        Ok(Sliced::Done) if job.kept.is_none() => {
            let (outcome, is_relaxed) = take_answer(families, turn, job);
            if let (Some(idempotency), true) = (&job.request.idempotency, job.changed) {
                idempotency::keep(turn, idempotency, &outcome, job.replaced);
            }
            Ok(Applied::Done { outcome, is_relaxed })
        }
        Ok(Sliced::Done) => {
            keep_results(turn, job, true);
            let (outcome, is_relaxed) = take_answer(families, turn, job);
            Ok(Applied::Done { outcome, is_relaxed })
        }
        Err(CannotRun::Missing(missing)) => Err(missing),
        Err(CannotRun::Unreadable) => Ok(Applied::durable(Outcome::Unreadable)),
        Err(CannotRun::TooLarge) => Ok(Applied::too_large(max_answer)),
    }
}

/// Looks for the reply of an earlier request under the same key. Returns how the batch ends, if it ends here.
fn find_kept_parts(
    families: &mut Families,
    turn: &mut Turn<'_>,
    job: &mut Job,
    used_replies: u64,
    max_answer: usize,
) -> Result<Option<Applied>, Missing> {
    match find_kept(families, turn, &job.request, max_answer)? {
        KeptReply::Nothing { replaced } => {
            if let Some(refused) = refuse_to_keep_reply(turn, &job.request, used_replies, replaced) {
                return Ok(Some(Applied::durable(refused)));
            }
            job.replaced = replaced;
        }
        KeptReply::Outcome(outcome) => return Ok(Some(Applied::durable(outcome))),
        KeptReply::Parts(kept) => {
            job.kept = Some(kept);
            // What was changed is stored already.
            job.changed = true;
        }
    }
    Ok(None)
}

/// Reads the results that an earlier request under the same key has stored. Returns how the turn ends, if it ends here: the
/// slice is used up, or the batch was done.
fn read_kept_parts(
    families: &mut Families,
    turn: &mut Turn<'_>,
    job: &mut Job,
    slice: &mut Slice,
) -> Result<Option<Applied>, Missing> {
    let Job { request, kept: Some(kept), progress, restored, kept_results, .. } = job else {
        return Ok(None);
    };
    let Some(idempotency) = &request.idempotency else { return Ok(None) };
    let is_read_back = kept.has_unread_parts();
    let (batch, progress) = batch_of(request, progress);
    while kept.has_unread_parts() {
        if slice.is_used_up() {
            return Ok(Some(Applied::Unfinished));
        }
        let view = turn.view();
        let results = match view.read(|reader| idempotency::read_part(reader, view, idempotency, kept)) {
            Ok(results) => results,
            Err(CannotRun::Missing(_)) if slice.is_begun() => return Ok(Some(Applied::Unfinished)),
            Err(CannotRun::Missing(missing)) => return Err(missing),
            Err(CannotRun::Unreadable | CannotRun::TooLarge) => {
                return Ok(Some(Applied::durable(Outcome::Unreadable)));
            }
        };
        let is_restored = results.is_some_and(|results| progress.restore(batch, results));
        let done = progress.done();
        // Results of another kind, or more than there are items, are damage.
        if !is_restored || done > batch.len() {
            return Ok(Some(Applied::durable(Outcome::Unreadable)));
        }
        kept.handle_read();
        slice.spend(RESTORE_WORK * (done - *restored).max(1));
        (*restored, *kept_results) = (done, done);
    }
    let was_done = is_read_back && kept.is_complete();
    Ok(was_done.then(|| Applied::durable(take_answer(families, turn, job).0)))
}

/// Decides the next items, until the slice is used up.
fn run_items(
    families: &mut Families,
    turn: &mut Turn<'_>,
    job: &mut Job,
    slice: &mut Slice,
    max_answer: usize,
) -> Result<Sliced, CannotRun> {
    let Job { request, progress, .. } = job;
    let (batch, progress) = batch_of(request, progress);
    match batch {
        BatchCommand::Transfers(transfers) => {
            turn.begin_family(families.ledger.resident_bytes());
            ledger::batch::run(&mut families.ledger, turn, transfers, &mut progress.ledger, slice, max_answer)
        }
        BatchCommand::Checks(checks) => {
            turn.begin_family(families.limiter.resident_bytes());
            let may_relax = request.idempotency.is_none();
            let progress = &mut progress.limiter;
            let limiter = &mut families.limiter;
            let ran =
                limiter::check_batch::run(limiter, turn, checks, may_relax, progress, slice, max_answer);
            // The slice has counted it.
            limiter.take_work();
            ran.map_err(CannotRun::from)
        }
        BatchCommand::Operations(items) => {
            let (decisions, mut families) = families.split();
            let progress = &mut progress.decisions;
            decisions::batch::run(decisions, &mut families, turn, items, progress, slice, max_answer)
        }
    }
}

/// Stores the results since the last turn, if the request has a key and has changed something.
fn keep_results(turn: &mut Turn<'_>, job: &mut Job, is_complete: bool) {
    let Some(idempotency) = &job.request.idempotency else { return };
    let done = job.done();
    if job.changed && (done > job.kept_results || is_complete) {
        let results = job.results_from(job.kept_results);
        idempotency::keep_part(turn, idempotency, &mut job.kept, &results, is_complete, job.replaced);
        job.kept_results = done;
    }
}

/// The whole answer, and whether it may be released before it is durable.
fn take_answer(families: &mut Families, turn: &Turn<'_>, job: &mut Job) -> (Outcome, bool) {
    let Job { request, progress, restored, .. } = job;
    let (batch, progress) = batch_of(request, progress);
    let is_relaxed = match batch {
        BatchCommand::Transfers(_) => false,
        BatchCommand::Checks(_) => progress.limiter.is_relaxed(),
        BatchCommand::Operations(_) => {
            let (decisions, families) = families.split();
            let restored = progress.decisions.restored(*restored);
            decisions::repeat_results(decisions, &families, turn.now, restored);
            false
        }
    };
    (progress.take_results(batch), is_relaxed)
}
