//! Requests that are decided as soon as they arrive, without a turn in the queue.
//!
//! Most requests find a shard that has nothing else to do. For such a request the queue, the search for due timers and the
//! look at background work cost more than the decision. So the driver may begin a round of this request alone, if
//! [`Shard::is_free`] says that no other work comes first. The round itself is the same as any other.

use crate::{
    output::Output,
    round::{Round, Work},
    shard::Shard,
};
use limina_engine::{Job, Request, Time};
use std::collections::VecDeque;

impl<T> Shard<T> {
    /// Whether a request that arrives now is the next one to decide: the shard is open and serves, nothing waits, is due or is
    /// looked up, and the batch has room. An append may be in flight.
    pub fn is_free(&self, now: Time) -> bool {
        let Some(open) = &self.open else { return false };
        let now = now.max(open.engine.time());
        self.queue.is_empty()
            && self.outputs.is_empty()
            && open.round.is_none()
            && open.stopped_at.is_none()
            && !self.is_closing
            && self.has_space
            && !self.is_out_of_space
            && !open.is_full(&self.options)
            && open.engine.next_due().is_none_or(|due| due > now)
    }

    /// Begins a round of this request alone. The shard must be free. [`Shard::poll_direct`] runs the round.
    pub fn handle_direct(&mut self, now: Time, ticket: T, request: Request) {
        assert!(self.is_free(now), "other work comes before this request");
        let open = self.open.as_mut().expect("a free shard is open");
        let now = now.max(open.engine.time());
        open.fetched.clear();
        let work = VecDeque::from([Work::Request(ticket, Job::new(request))]);
        open.round = Some(Round { now, work, is_fetching: false, is_asked: false, is_ready: false });
    }

    /// The next output of the round that [`Shard::handle_direct`] began. `None` when the round is done or waits for its
    /// look-ups. Unlike [`Shard::poll`], this neither begins another round nor seals the batch, so it never returns an append, a
    /// confirm or an effect.
    pub fn poll_direct(&mut self) -> Option<Output<T>> {
        loop {
            if let Some(output) = self.outputs.pop_front() {
                return Some(output);
            }
            let open = self.open.as_mut()?;
            if open.round.as_ref()?.is_fetching {
                return None;
            }
            let fetch = open.run_round(self.may_relax, &self.options, &mut self.queue, &mut self.outputs);
            self.outputs.extend(fetch);
        }
    }

    /// Whether [`Shard::poll`] would seal the batch, or go on with a request that is done in part.
    pub fn is_ready_to_poll(&self) -> bool {
        let Some(open) = &self.open else { return false };
        let may_seal = open.in_flight.is_none() && !open.building.is_empty;
        may_seal || !self.queue.is_empty()
    }
}
