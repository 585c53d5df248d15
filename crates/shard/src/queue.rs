//! The waiting requests: one line for each namespace, and the namespaces take turns.
//!
//! Within a namespace, first come, first served. A namespace with a lot of work delays the others by no more than a slice of
//! it.

use hashbrown::HashMap;
use limina_engine::{Job, Name};
use std::collections::{HashSet, VecDeque};

/// The work that a namespace may put into a round before the next one has its turn.
const QUANTUM: usize = 512;

/// Waiting requests with their tickets.
pub(crate) struct Queue<T> {
    lines: HashMap<Name, Line<T>>,
    /// The namespaces with waiting requests, in the order of their turns.
    turns: VecDeque<Name>,
    len: usize,
    /// The namespaces whose first waiting request is done in part, or whose last one was a long one. The others go first.
    held_up: HashSet<Name>,
}

/// The waiting requests of one namespace.
struct Line<T> {
    requests: VecDeque<(T, Job)>,
    /// The round that is being taken must have no more requests of this namespace, because one of them may stay unfinished.
    is_closed: bool,
}

/// How much one round may take.
pub(crate) struct RoundSize {
    /// The number of requests.
    pub(crate) requests: usize,
    /// The work of all of them. A request counts for at most one slice of work.
    pub(crate) work: usize,
    /// The work after which a request may stay unfinished.
    pub(crate) slice: usize,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Queue<T> {
        Queue { lines: HashMap::new(), turns: VecDeque::new(), len: 0, held_up: HashSet::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of requests whose namespaces are not held up.
    pub(crate) fn ready_len(&self) -> usize {
        let lines = self.held_up.iter().filter_map(|name| self.lines.get(name));
        self.len - lines.map(|line| line.requests.len()).sum::<usize>()
    }

    /// The namespaces that wait until all others have had their turn.
    pub(crate) fn held_up(&self) -> &HashSet<Name> {
        &self.held_up
    }

    /// Adds a request behind all others of its namespace.
    pub(crate) fn push_back(&mut self, ticket: T, job: Job) {
        let name = job.request.namespace.clone();
        self.line(&name, VecDeque::push_back).push_back((ticket, job));
    }

    /// Puts a request that was taken before all others of its namespace again. Its namespace has the next turn.
    pub(crate) fn push_front(&mut self, ticket: T, job: Job) {
        let name = job.request.namespace.clone();
        self.line(&name, VecDeque::push_front).push_front((ticket, job));
    }

    /// Puts an unfinished request before all others of its namespace. First the other namespaces have their turn.
    pub(crate) fn push_unfinished(&mut self, ticket: T, job: Job) {
        let name = job.request.namespace.clone();
        self.line(&name, VecDeque::push_back).push_front((ticket, job));
        self.end_turn(&name);
    }

    /// Lets all other namespaces have their turn before the requests of this one go on.
    pub(crate) fn end_turn(&mut self, name: &Name) {
        if self.lines.contains_key(name) {
            self.turns.retain(|other| other != name);
            self.turns.push_back(name.clone());
            self.held_up.insert(name.clone());
        }
    }

    fn line(&mut self, name: &Name, add_turn: fn(&mut VecDeque<Name>, Name)) -> &mut VecDeque<(T, Job)> {
        self.len += 1;
        let line = self.lines.entry(name.clone()).or_insert_with(|| {
            add_turn(&mut self.turns, name.clone());
            Line { requests: VecDeque::new(), is_closed: false }
        });
        &mut line.requests
    }

    /// Takes requests for a round. `take` says whether it puts the request into the round.
    pub(crate) fn take_round(&mut self, size: &RoundSize, mut take: impl FnMut(T, Job) -> bool) {
        let (mut count, mut work) = (0, 0);
        let mut closed = VecDeque::new();
        while count < size.requests
            && work < size.work
            && let Some(name) = self.turns.pop_front()
        {
            let line = self.lines.get_mut(&name).expect("a namespace with a turn has a line");
            let mut quantum = QUANTUM;
            while count < size.requests
                && work < size.work
                && quantum > 0
                && !line.is_closed
                && let Some((ticket, job)) = line.requests.pop_front()
            {
                self.len -= 1;
                self.held_up.remove(&name);
                let weight = job.weight();
                if take(ticket, job) {
                    count += 1;
                    work += weight.min(size.slice);
                    quantum = quantum.saturating_sub(weight);
                    line.is_closed = weight > size.slice;
                }
            }
            if line.requests.is_empty() {
                self.lines.remove(&name);
            } else if line.is_closed {
                line.is_closed = false;
                closed.push_back(name);
            } else {
                self.turns.push_back(name);
            }
        }
        self.turns.append(&mut closed);
    }

    /// Takes all requests, in the order of turns.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (T, Job)> {
        self.len = 0;
        self.held_up.clear();
        let mut lines = std::mem::take(&mut self.lines);
        let names = std::mem::take(&mut self.turns).into_iter();
        names.filter_map(move |name| lines.remove(&name)).flat_map(|line| line.requests)
    }
}
