//! A request on its way through the engine. A batch is done in slices, and its job knows how far it has come.

use crate::{
    Outcome, Request, decisions,
    idempotency::KeptParts,
    ledger, limiter,
    request::{BatchCommand, Command},
};
use alloc::boxed::Box;

/// A request on its way through the engine.
#[derive(Debug)]
pub struct Job {
    /// The request. It is large, and a job moves through several queues.
    pub request: Box<Request>,
    /// Whether a kept reply was looked for, so that the next turn need not look again.
    pub(crate) is_begun: bool,
    /// Whether the request has changed something already.
    pub(crate) changed: bool,
    /// None if the request is no batch.
    pub(crate) progress: Option<Box<Progress>>,
    /// What is kept of the reply under the request's idempotency key.
    pub(crate) kept: Option<KeptParts>,
    /// The period that had a reply under this key before, which no longer counts.
    pub(crate) replaced: Option<u32>,
    /// The number of results that are kept.
    pub(crate) kept_results: usize,
    /// Whether an attempt of this job was cut, so that some of its items may have been done.
    may_have_begun: bool,
    weight: usize,
    /// The number of results that an earlier request under the same key had, so that they are not decided again.
    pub(crate) restored: usize,
}

/// How far a batch has come. Only the part of its family is used.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) ledger: ledger::batch::Progress,
    pub(crate) limiter: limiter::check_batch::Progress,
    pub(crate) decisions: decisions::batch::Progress,
}

impl Job {
    /// Begins a request.
    pub fn new(request: impl Into<Box<Request>>) -> Job {
        let request = request.into();
        // Only `Deserialize` of a part of a command could have avoided the constructors.
        debug_assert_eq!(request.command.validate(), Ok(()), "the engine was given an invalid command");
        Job {
            weight: request.weight(),
            may_have_begun: false,
            progress: request.command.as_batch().map(|_| Box::default()),
            request,
            is_begun: false,
            changed: false,
            kept: None,
            replaced: None,
            kept_results: 0,
            restored: 0,
        }
    }

    /// The number of a batch's items that are decided, including those of an earlier request under the same key.
    pub fn done(&self) -> usize {
        self.progress.as_ref().map_or(0, |progress| progress.done())
    }

    /// The number of a batch's items that an earlier request under the same idempotency key had decided.
    pub fn restored(&self) -> usize {
        self.restored
    }

    /// Whether this job has decided some of its items, and not all.
    pub fn is_partly_done(&self) -> bool {
        self.done() > self.restored
    }

    /// Whether some of a batch's items may have been decided, and not all: by this job, or before the shard lost its memory.
    pub fn may_be_partly_done(&self) -> bool {
        self.may_have_begun || self.is_partly_done()
    }

    /// The same request from its beginning, after the shard lost its memory.
    #[must_use]
    pub fn restart(self) -> Job {
        Job { may_have_begun: self.may_be_partly_done(), ..Job::new(self.request) }
    }

    /// Forgets the results that were read from a kept reply, and that a kept reply was looked for.
    pub(crate) fn forget_restored(&mut self) {
        self.progress = self.progress.take().map(|_| Box::default());
        (self.is_begun, self.changed, self.kept) = (false, false, None);
        (self.kept_results, self.restored) = (0, 0);
    }

    /// About how much work is left: [`Request::weight`], without the items of a batch that are decided.
    pub fn weight(&self) -> usize {
        match self.request.command.as_batch() {
            Some(batch) => self.weight.saturating_sub(self.weight * self.done() / batch.len().max(1)),
            None => self.weight,
        }
    }

    /// The outcome of a batch's items from the item `from` on, as far as they are decided.
    pub fn results_from(&self, from: usize) -> Outcome {
        let progress = self.progress.as_ref().expect("only a batch has items");
        match &self.request.command {
            Command::Limiter(_) => Outcome::Limiter(Ok(progress.limiter.results_from(from))),
            Command::Decisions(_) => Outcome::Decisions(Ok(progress.decisions.results_from(from))),
            _ => Outcome::Ledger(Ok(progress.ledger.results_from(from))),
        }
    }
}

/// The batch of a request, and how far it has come.
pub(crate) fn batch_of<'j>(
    request: &'j Request,
    progress: &'j mut Option<Box<Progress>>,
) -> (BatchCommand<'j>, &'j mut Progress) {
    let batch = request.command.as_batch().expect("only a batch is done in slices");
    (batch, progress.as_mut().expect("the job of a batch has it"))
}

impl Progress {
    /// The number of items that are done.
    pub(crate) fn done(&self) -> usize {
        self.ledger.done() + self.limiter.done() + self.decisions.done()
    }

    /// Takes the results of all items.
    pub(crate) fn take_results(&mut self, batch: BatchCommand<'_>) -> Outcome {
        match batch {
            BatchCommand::Transfers(_) => Outcome::Ledger(Ok(self.ledger.take_results())),
            BatchCommand::Checks(_) => Outcome::Limiter(Ok(self.limiter.take_results())),
            BatchCommand::Operations(_) => Outcome::Decisions(Ok(self.decisions.take_results())),
        }
    }

    /// Adds results of an earlier request. Returns false if they cannot be those of this batch.
    pub(crate) fn restore(&mut self, batch: BatchCommand<'_>, results: Outcome) -> bool {
        match (batch, results) {
            (BatchCommand::Transfers(_), Outcome::Ledger(Ok(reply))) => self.ledger.restore(reply),
            (BatchCommand::Checks(_), Outcome::Limiter(Ok(reply))) => self.limiter.restore(reply),
            (BatchCommand::Operations(_), Outcome::Decisions(Ok(reply))) => self.decisions.restore(reply),
            _ => false,
        }
    }
}
