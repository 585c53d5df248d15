//! Followers of streams at two nodes that share a shard. Rings and cursors are the real ones. Between the nodes is a
//! connection that is slow and breaks, and clients go away and return to either node.
//!
//! Each client applies what it receives to its set of incubating events, as the guide tells clients to do. Its set must
//! be right at every clock, its clock must never go back, and it must never skip changes that are kept.

mod client;
mod stream;

use crate::random::Random;
use client::Client;
use limina_engine::{
    Effect, Name,
    events::{Command, KeyFrame, Refusal, Reply},
};
use limina_node::Budget;
use stream::{Stream, Topic};

/// The number of clients of each stream.
const CLIENTS: usize = 3;

/// What the followers did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Changes that were sent to clients.
    pub changes: u64,
    /// Key frames for clients that had nothing.
    pub begun: u64,
    /// Clients that returned with a clock that their node had not reached.
    pub ahead: u64,
    /// Openings of the shard after which a node noticed that it had missed changes.
    pub missed: u64,
    /// Moves of the shard from one node to the other.
    pub moves: u64,
    /// Comparisons with the engine's state that contained at least one event.
    pub compared: u64,
}

impl Counts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Counts) {
        self.changes += other.changes;
        self.begun += other.begun;
        self.ahead += other.ahead;
        self.missed += other.missed;
        self.moves += other.moves;
        self.compared += other.compared;
    }
}

/// All followers of all streams.
#[derive(Debug)]
pub struct Followers {
    streams: Vec<Stream>,
    /// Which of the two nodes owns the shard.
    owner: usize,
    /// What came of it.
    pub counts: Counts,
}

impl Followers {
    /// Clients that have nothing yet.
    pub fn new(streams: Vec<(Name, Name)>) -> Followers {
        let memory = Budget::unlimited();
        let stream = |(namespace, name)| Stream {
            namespace,
            name,
            nodes: [Topic::new(&memory), Topic::new(&memory)],
            clients: (0..CLIENTS).map(|_| Client::new()).collect(),
            released: 0,
            skipped_after: Vec::new(),
            memory: memory.clone(),
        };
        Followers { streams: streams.into_iter().map(stream).collect(), owner: 0, counts: Counts::default() }
    }

    /// The streams that are followed.
    pub fn addresses(&self) -> Vec<(Name, Name)> {
        self.streams.iter().map(|stream| (stream.namespace.clone(), stream.name.clone())).collect()
    }

    /// Some clients go away, others return, and some connections get stuck.
    pub fn come_and_go(&mut self, random: &mut Random) {
        for stream in &mut self.streams {
            stream.nodes[1 - self.owner].is_stuck = random.one_in(2);
            for client in &mut stream.clients {
                match random.below(8) {
                    0 => client.reader = None,
                    1..=3 if client.reader.is_none() => client.come_back(random, stream.released),
                    _ => {}
                }
            }
        }
    }

    /// Makes all clients return.
    pub fn all_come_back(&mut self, random: &mut Random) {
        for stream in &mut self.streams {
            for client in stream.clients.iter_mut().filter(|client| client.reader.is_none()) {
                client.come_back(random, stream.released);
            }
        }
    }

    /// The shard has lost its memory, and with it all requests and effects that were not released.
    pub fn shard_lost(&mut self) {
        for stream in &mut self.streams {
            for topic in &mut stream.nodes {
                topic.compares = false;
            }
            stream.readers().for_each(|reader| reader.question = None);
        }
    }

    /// The owner's process has ended, with its rings and connections.
    pub fn owner_died(&mut self) {
        for stream in &mut self.streams {
            stream.nodes[self.owner] = Topic::new(&stream.memory);
            stream.nodes[1 - self.owner].feed = None;
            let owner = self.owner;
            let clients = stream.clients.iter_mut().filter(|client| client.node == owner);
            clients.for_each(|client| client.reader = None);
        }
    }

    /// The shard opens, at the same node as before or at the other one.
    pub fn shard_opened(&mut self, random: &mut Random) {
        if random.one_in(3) {
            self.owner = 1 - self.owner;
            self.counts.moves += 1;
        }
        for stream in &mut self.streams {
            stream.nodes[self.owner].must_compare = true;
            for topic in &mut stream.nodes {
                topic.feed = None;
                topic.wire.clear();
            }
            stream.nodes[1 - self.owner].must_compare = false;
        }
    }

    /// The shard has released this effect.
    pub fn handle_effect(&mut self, effect: &Effect) {
        let (namespace, name) = match effect {
            Effect::StreamChanged { namespace, stream, .. }
            | Effect::KeyFrame { namespace, stream, .. }
            | Effect::StreamDeleted { namespace, stream } => (namespace, stream),
            _ => return,
        };
        let owner = self.owner;
        let is_it = |stream: &&mut Stream| (&stream.namespace, &stream.name) == (namespace, name);
        let Some(stream) = self.streams.iter_mut().find(is_it) else { return };
        let is_followed = stream.is_followed(owner, owner);
        let ring = &mut stream.nodes[owner].ring;
        match effect {
            Effect::StreamChanged { change, .. } => {
                stream.released = stream.released.max(change.clock);
                if is_followed {
                    ring.push_change(change.clone());
                }
            }
            Effect::KeyFrame { frame, .. } if is_followed => ring.push_key_frame(frame.clone()),
            Effect::KeyFrame { .. } => {}
            _ => stream.deleted(owner),
        }
    }

    /// The nodes feed each other, and clients take all or some of what there is. Returns the requests that they send to
    /// the shard.
    pub fn pump(&mut self, random: &mut Random, is_all: bool) -> Result<Vec<(Name, Command)>, String> {
        let mut asked = Vec::new();
        for stream in &mut self.streams {
            let questions = stream.pump(self.owner, random, is_all, &mut self.counts)?;
            asked.extend(questions.into_iter().map(|question| (stream.namespace.clone(), question)));
        }
        Ok(asked)
    }

    /// A request was answered. `None` if the answer was lost.
    pub fn answered(
        &mut self,
        namespace: &Name,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
    ) -> Result<(), String> {
        let name = match question {
            Command::Get(name) | Command::Snapshot(name) => name,
            Command::Changes(wanted) => wanted.stream(),
            _ => return Ok(()),
        };
        for stream in &mut self.streams {
            if (&stream.namespace, &stream.name) == (namespace, name) {
                stream.answered(self.owner, question, answer, &mut self.counts)?;
            }
        }
        Ok(())
    }

    /// Checks that every client has reached the clock of `frame`, or has nothing if there is no stream.
    pub fn check_at(&self, namespace: &Name, name: &Name, frame: Option<&KeyFrame>) -> Result<(), String> {
        for stream in &self.streams {
            if (&stream.namespace, &stream.name) == (namespace, name) {
                for client in &stream.clients {
                    if client.clock != frame.map(|frame| frame.clock) {
                        return Err(format!("{frame:?} is not what there is for {client:?} of {stream:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}
