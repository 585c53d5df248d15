//! The state of an open shard: the engine, the batch that is being built, and the one in flight.

use crate::{
    batch::{Batch, PendingReply},
    output::{Failure, Output, Reply},
    round::{Round, Work},
    shard::Options,
};
use limina_engine::{Applied, Engine, Fetched, Time, WaitId};
use std::collections::{BTreeMap, VecDeque};

/// The part of a shard that exists only while the shard is open.
pub(crate) struct Open<T> {
    pub(crate) engine: Engine,
    pub(crate) round: Option<Round<T>>,
    pub(crate) building: Batch<T>,
    pub(crate) in_flight: Option<Batch<T>>,
    /// Requests that the engine answers later.
    pub(crate) waiting: BTreeMap<WaitId, T>,
    /// Shard time stays here until clients can reach the shard.
    pub(crate) stopped_at: Option<Time>,
    /// The number of decisions since the shard was opened.
    pub(crate) decisions: u64,
    pub(crate) batches_since_sweep: usize,
    /// Whether the store answers a sweep's scan quickly.
    pub(crate) may_scan: bool,
    /// More timers were due than the last round took.
    pub(crate) is_behind: bool,
    /// The time of the last round, if it lags and [`crate::Shard::take_lag`] has not reported it yet.
    pub(crate) lags_at: Option<Time>,
    pub(crate) fetched: Fetched,
}

impl<T> Open<T> {
    /// Whether everything that was decided is stored.
    pub(crate) fn is_stored(&self) -> bool {
        self.round.is_none() && self.building.is_empty && self.in_flight.is_none()
    }

    /// Whether the batch takes no more. While more timers are due, a batch ends after one slice, so that the clients
    /// whose requests are in it do not wait for the next slices.
    pub(crate) fn is_full(&self, options: &Options) -> bool {
        let most = if self.is_behind { options.due_slice.min(options.max_batch) } else { options.max_batch };
        self.building.count >= most || self.has_enough(options)
    }

    /// Whether the batch has enough work or bytes. The engine counts bytes that it may not write in the end. A batch with
    /// nothing to seal must never count as full, because no seal would ever empty it.
    pub(crate) fn has_enough(&self, options: &Options) -> bool {
        let has_work = !self.building.is_empty && self.building.work >= options.max_batch_work;
        has_work || self.has_enough_bytes(options)
    }

    /// Whether the batch has enough bytes, so that not even a timer is added.
    pub(crate) fn has_enough_bytes(&self, options: &Options) -> bool {
        !self.building.is_empty && self.engine.unsealed_bytes() >= options.max_batch_bytes
    }

    /// Adds a decision to the batch. A relaxed outcome is released at once instead, and a request that has to wait is
    /// answered later.
    pub(crate) fn record_decision(
        &mut self,
        now: Time,
        work: Work<T>,
        may_be_partly_stored: bool,
        applied: Option<Applied>,
        outputs: &mut VecDeque<Output<T>>,
    ) {
        self.building.work += self.engine.take_work();
        match (work, applied) {
            (Work::Request(ticket, job), Some(Applied::Done { outcome, is_relaxed: false })) => {
                self.decisions += 1;
                let order = self.decisions;
                self.building.is_empty = false;
                self.building.count += 1;
                let is_write = job.request.is_write();
                self.building.replies.push(PendingReply {
                    ticket,
                    decided_at: now,
                    order,
                    outcome,
                    is_write,
                    may_be_partly_stored,
                });
            }
            (Work::Request(ticket, _), Some(Applied::Done { outcome, is_relaxed: true })) => {
                // No reply waits for these changes, but they have to be appended nevertheless.
                self.building.is_empty &= !self.engine.has_changes();
                self.decisions += 1;
                outputs.push_back(Output::Reply(Reply {
                    ticket,
                    decided_at: Some(now),
                    order: self.decisions,
                    result: Ok(outcome),
                }));
            }
            (Work::Request(ticket, job), Some(Applied::Waiting(id))) => {
                self.building.is_empty = false;
                self.waiting.insert(id, ticket);
                self.decisions += 1;
                let order = self.decisions;
                outputs.push_back(Output::Waits { request: job.request, since: now, order });
            }
            _ => {
                self.building.is_empty = false;
                self.building.count += 1;
            }
        }
        self.record_completions(now);
    }

    /// Adds the answers to requests that waited to the batch, in the order in which the engine has decided them.
    pub(crate) fn record_completions(&mut self, now: Time) {
        for (id, outcome) in self.engine.take_completions() {
            if let Some(ticket) = self.waiting.remove(&id) {
                self.decisions += 1;
                let order = self.decisions;
                self.building.replies.push(PendingReply {
                    ticket,
                    decided_at: now,
                    order,
                    outcome,
                    is_write: true,
                    may_be_partly_stored: false,
                });
            }
        }
    }

    /// At a planned stop: fails all requests that wait for locks. Returns whether there were any.
    pub(crate) fn end_lock_waits(&mut self, outputs: &mut VecDeque<Output<T>>) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        let ended = self.engine.end_lock_waits();
        let any = !ended.is_empty();
        for ticket in ended.into_iter().filter_map(|wait| self.waiting.remove(&wait)) {
            self.decisions += 1;
            let (decided_at, order) = (Some(self.engine.time()), self.decisions);
            outputs.push_back(Output::Reply(Reply {
                ticket,
                decided_at,
                order,
                result: Err(Failure::Closing),
            }));
        }
        any
    }

    pub(crate) fn seal(&mut self) -> Output<T> {
        self.batches_since_sweep += 1;
        let sealed = self.engine.seal();
        let mut batch = std::mem::take(&mut self.building);
        batch.effects = sealed.effects;
        batch.discards = self.engine.take_discards();
        let requests = batch.replies.len();
        self.in_flight = Some(batch);
        if sealed.writes.is_empty() {
            Output::Confirm
        } else {
            Output::Append { writes: sealed.writes, requests }
        }
    }
}
