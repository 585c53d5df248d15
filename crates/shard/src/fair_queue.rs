//! Fairness between namespaces: the order in which the waiting requests of a shard have their turns.
//!
//! Within a namespace, first come, first served. The namespaces take turns by deficit round robin: with each turn a namespace
//! gains credit for [`QUANTUM`] units of work, and a request is taken when its namespace has enough credit. So a namespace that
//! sends too much makes itself wait, and delays the others by a turn or a slice of work, not by all that it has sent.
//!
//! A request pays when it is taken, by an estimate of its work. If it turns out to be much more work, its namespace pays the
//! rest afterwards ([`FairQueue::settle`]), and the others go first until that is paid off. A namespace that is the only one
//! with requests owes nothing.

#[cfg(test)]
mod tests;

use hashbrown::HashMap;
use limina_engine::Name;
use std::collections::VecDeque;

/// The credit that a namespace gains with each of its turns, in units of work, which are about a microsecond each.
pub const QUANTUM: usize = 128;
/// The most that a request pays when it is taken. A larger one is done in slices of about so much work
/// ([`limina_engine::Options::slice_work`]), and pays for each of them.
const MAX_PRICE: usize = 4_096;
/// The number of empty lanes whose memory is kept, and of the requests for which each may have memory.
const SPARE: usize = 64;
/// The most requests for which [`FairQueue::take`] allocates before it knows how many it takes.
const RESERVED: usize = 1_024;

/// Waiting requests, in the order in which their shard should begin them.
pub struct FairQueue<I> {
    /// The namespaces with requests.
    lanes: HashMap<Name, Lane<I>>,
    /// The same namespaces. The first one has its turn.
    turns: VecDeque<Name>,
    /// Memory of lanes that have become empty.
    spare: Vec<VecDeque<Waiting<I>>>,
    /// The weight of all requests that were never taken.
    weight: usize,
    /// The weight of what was taken and not put back, since [`FairQueue::take_begun_weight`] was called.
    begun_weight: usize,
}

/// The requests of one namespace, in their order. There is at least one.
struct Lane<I> {
    waiting: VecDeque<Waiting<I>>,
    /// The weight of those that were never taken.
    weight: usize,
    /// The work for which the namespace may take requests. Less than 0 if one of them was more work than it had paid for.
    credit: isize,
    /// Whether it has had the credit of its present turn.
    is_in_turn: bool,
    /// Whether the first request is done in part.
    is_held_up: bool,
}

struct Waiting<I> {
    item: I,
    weight: usize,
    /// Whether it was taken before, and is not done. Such requests are in front of all others.
    was_taken: bool,
}

/// How much a round may take. It may always have one request.
#[derive(Debug, Clone, Copy)]
pub struct RoundSize {
    /// The number of requests.
    pub requests: usize,
    /// The work of all of them. A request counts for at most one slice of work.
    pub work: usize,
}

/// What becomes of a request that could be taken now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is begun.
    Begin,
    /// It is removed, and not begun.
    Drop,
    /// It stays, and the round ends before it.
    Stop,
}

/// The requests that [`FairQueue::take`] removed from the queue.
#[derive(Debug)]
pub struct TakenRequests<I> {
    /// Requests to begin, in this order.
    pub begin: Vec<I>,
    /// Requests that are not to be begun, and have paid nothing.
    pub dropped: Vec<I>,
}

impl<I> Default for FairQueue<I> {
    fn default() -> FairQueue<I> {
        FairQueue {
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            spare: Vec::new(),
            weight: 0,
            begun_weight: 0,
        }
    }
}

impl<I> FairQueue<I> {
    /// Whether no request waits.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// The number of namespaces with requests.
    pub fn namespaces(&self) -> usize {
        self.turns.len()
    }

    /// The weight of all requests that were never taken.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// The weight of a namespace's requests that were never taken. None if it has no requests.
    pub fn weight_of(&self, namespace: &Name) -> Option<usize> {
        self.lanes.get(namespace).map(|lane| lane.weight)
    }

    /// Whether there are requests, and each namespace must first finish one that is done in part.
    pub fn is_held_up(&self) -> bool {
        !self.is_empty() && self.lanes.values().all(|lane| lane.is_held_up)
    }

    /// The weight of what was taken and not put back, since the last call.
    pub fn take_begun_weight(&mut self) -> usize {
        std::mem::take(&mut self.begun_weight)
    }

    /// Adds a request behind all others of its namespace. Its weight is about the work that it is.
    pub fn push(&mut self, namespace: &Name, weight: usize, item: I) {
        let lane = self.lane(namespace, VecDeque::push_back);
        lane.weight += weight;
        lane.waiting.push_back(Waiting { item, weight, was_taken: false });
        self.weight += weight;
    }

    /// Puts a request that was taken and not begun before all others of its namespace, and returns what it has paid. It is taken
    /// again without a verdict.
    pub fn put_back(&mut self, namespace: &Name, weight: usize, item: I) {
        self.put_first(namespace, weight, item).credit += weight.min(MAX_PRICE) as isize;
    }

    /// The same for a request that was begun. The weight is that of what is left to do.
    pub fn put_back_unfinished(&mut self, namespace: &Name, weight: usize, item: I) {
        self.put_first(namespace, weight, item).is_held_up = true;
    }

    fn put_first(&mut self, namespace: &Name, weight: usize, item: I) -> &mut Lane<I> {
        self.begun_weight = self.begun_weight.saturating_sub(weight);
        let lane = self.lane(namespace, VecDeque::push_front);
        lane.waiting.push_front(Waiting { item, weight, was_taken: true });
        lane
    }

    /// Lets a namespace pay for the work of a request that was taken at this weight, in place of what the request has paid.
    pub fn settle(&mut self, namespace: &Name, weight: usize, work: usize) {
        if let Some(lane) = self.lanes.get_mut(namespace) {
            lane.credit += weight.min(MAX_PRICE) as isize - work as isize;
        }
    }

    /// Takes requests in the order of turns, until `judge` stops it, the round has its size, or nothing is left. Each request
    /// that was not taken before, and could be taken now, is judged.
    pub fn take(&mut self, size: RoundSize, mut judge: impl FnMut(&I) -> Verdict) -> TakenRequests<I> {
        let mut taken = TakenRequests { begin: Vec::new(), dropped: Vec::new() };
        let mut work = 0;
        'turns: while let Some(namespace) = self.turns.front() {
            let is_alone = self.turns.len() == 1;
            let lane = self.lanes.get_mut(namespace).expect("a namespace with a turn has a lane");
            if !std::mem::replace(&mut lane.is_in_turn, true) {
                lane.credit += QUANTUM as isize;
            }
            taken.begin.reserve(lane.waiting.len().min(RESERVED));
            while let Some(first) = lane.waiting.front() {
                let price = first.weight.min(MAX_PRICE);
                let left = lane.credit - price as isize;
                if left < 0 && !is_alone {
                    lane.is_in_turn = false;
                    self.turns.rotate_left(1);
                    continue 'turns;
                }
                let has_some = !taken.begin.is_empty();
                if has_some && (taken.begin.len() >= size.requests || work + price > size.work) {
                    break 'turns;
                }
                let verdict = if first.was_taken { Verdict::Begin } else { judge(&first.item) };
                let into = match verdict {
                    Verdict::Stop => break 'turns,
                    Verdict::Drop => &mut taken.dropped,
                    Verdict::Begin => {
                        work += price;
                        lane.credit = left.max(0);
                        lane.is_held_up = false;
                        self.begun_weight += first.weight;
                        &mut taken.begin
                    }
                };
                let first = lane.waiting.pop_front().expect("it was just there");
                if !first.was_taken {
                    lane.weight -= first.weight;
                    self.weight -= first.weight;
                }
                into.push(first.item);
            }
            let namespace = self.turns.pop_front().expect("it was just there");
            let lane = self.lanes.remove(&namespace).expect("it was just there");
            if self.spare.len() < SPARE && lane.waiting.capacity() <= SPARE {
                self.spare.push(lane.waiting);
            }
        }
        taken
    }

    /// Removes all requests that were taken before, those of each namespace in their order.
    pub fn remove_taken(&mut self) -> Vec<I> {
        let (mut removed, lanes) = (Vec::new(), &mut self.lanes);
        self.turns.retain(|namespace| {
            let lane = lanes.get_mut(namespace).expect("a namespace with a turn has a lane");
            let taken = lane.waiting.partition_point(|waiting| waiting.was_taken);
            removed.extend(lane.waiting.drain(..taken).map(|waiting| waiting.item));
            !lane.waiting.is_empty()
        });
        lanes.retain(|_, lane| !lane.waiting.is_empty());
        removed
    }

    /// Removes all requests, in the order of turns.
    pub fn drain(&mut self) -> impl Iterator<Item = I> + use<I> {
        self.weight = 0;
        let mut lanes = std::mem::take(&mut self.lanes);
        let turns = std::mem::take(&mut self.turns).into_iter();
        let lanes = turns.filter_map(move |namespace| lanes.remove(&namespace));
        lanes.flat_map(|lane| lane.waiting).map(|waiting| waiting.item)
    }

    fn lane(&mut self, namespace: &Name, add_turn: fn(&mut VecDeque<Name>, Name)) -> &mut Lane<I> {
        self.lanes.entry_ref(namespace).or_insert_with(|| {
            add_turn(&mut self.turns, namespace.clone());
            let waiting = self.spare.pop().unwrap_or_default();
            Lane { waiting, weight: 0, credit: 0, is_in_turn: false, is_held_up: false }
        })
    }
}
