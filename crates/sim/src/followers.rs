//! Followers of streams, at two nodes that share a shard: the real rings and cursors, between them a wire that is slow
//! and breaks, and clients that go away and come back at either node.
//!
//! Each client folds what it is sent into what incubates, as the guide tells clients to. What it has must be right at
//! every clock, its clock must never go back, and changes that are kept must never be skipped.

use crate::random::Random;
use limina_engine::{
    Effect, Name, Time,
    events::{Change, ChangeKind, Changes, ChangesAfter, Command, Event, KeyFrame, Refusal, Reply},
};
use limina_node::{
    Message, Told,
    streams::{Cursor, Ring, Step},
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

/// How many clients follow a stream.
const CLIENTS: usize = 3;

/// What came of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Changes that were sent to clients.
    pub changes: u64,
    /// Key frames for clients that had nothing.
    pub begun: u64,
    /// Clients that came back with a clock that their node had not reached.
    pub ahead: u64,
    /// Openings of the shard after which a node found that it had missed changes.
    pub missed: u64,
    /// Moves of the shard from one node to the other.
    pub moves: u64,
    /// States that were compared with the engine's, of which at least one event was a part.
    pub compared: u64,
}

impl Counts {
    /// Several runs together.
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
    /// Which of the two nodes has the shard.
    owner: usize,
    /// What came of it.
    pub counts: Counts,
}

/// A stream, and what the two nodes have of it.
#[derive(Debug)]
struct Stream {
    namespace: Name,
    name: Name,
    nodes: [Topic; 2],
    clients: Vec<Client>,
    /// The clock of the last change that was released.
    released: u64,
    /// Clocks that clients had before a key frame came in place of changes.
    skipped_after: Vec<u64>,
}

/// What a node has of a stream.
#[derive(Debug, Default)]
struct Topic {
    ring: Ring,
    /// The shard has opened here, and the ring was not compared with the stream yet.
    must_compare: bool,
    compares: bool,
    /// In a node without the shard: how the owner reads the stream for it, and what is on its way from there.
    feed: Option<Asker>,
    wire: VecDeque<Fed>,
    /// Nothing arrives for now.
    is_stuck: bool,
}

#[derive(Debug)]
enum Fed {
    Told(Told),
    NoStream,
}

/// A cursor, and what it has asked the shard.
#[derive(Debug)]
struct Asker {
    cursor: Cursor,
    question: Option<Command>,
}

/// A client of one of the nodes.
#[derive(Debug)]
struct Client {
    node: usize,
    /// None while it is away.
    asker: Option<Asker>,
    /// The clock of what it has; none if it has nothing.
    clock: Option<u64>,
    incubating: BTreeMap<Event, Time>,
    /// The stream's clock when it came without one: its first key frame must be current.
    arrived_at: u64,
}

impl Followers {
    /// Clients that have nothing yet.
    pub fn new(streams: Vec<(Name, Name)>) -> Followers {
        let stream = |(namespace, name)| Stream {
            namespace,
            name,
            nodes: Default::default(),
            clients: (0..CLIENTS).map(|_| Client::new()).collect(),
            released: 0,
            skipped_after: Vec::new(),
        };
        Followers { streams: streams.into_iter().map(stream).collect(), owner: 0, counts: Counts::default() }
    }

    /// The streams that are followed.
    pub fn addresses(&self) -> Vec<(Name, Name)> {
        self.streams.iter().map(|stream| (stream.namespace.clone(), stream.name.clone())).collect()
    }

    /// Some clients go away, and others come back. Some wires get stuck.
    pub fn come_and_go(&mut self, random: &mut Random) {
        for stream in &mut self.streams {
            stream.nodes[1 - self.owner].is_stuck = random.one_in(2);
            for client in &mut stream.clients {
                match random.below(8) {
                    0 => client.asker = None,
                    1..=3 if client.asker.is_none() => client.come_back(random, stream.released),
                    _ => {}
                }
            }
        }
    }

    /// All clients come back.
    pub fn all_come_back(&mut self, random: &mut Random) {
        for stream in &mut self.streams {
            for client in stream.clients.iter_mut().filter(|client| client.asker.is_none()) {
                client.come_back(random, stream.released);
            }
        }
    }

    /// The shard has lost its memory, and with it all questions and effects that were not released.
    pub fn shard_lost(&mut self) {
        for stream in &mut self.streams {
            for topic in &mut stream.nodes {
                topic.compares = false;
            }
            stream.askers().for_each(|asker| asker.question = None);
        }
    }

    /// The owner's process has ended, with its rings and connections.
    pub fn owner_died(&mut self) {
        for stream in &mut self.streams {
            stream.nodes[self.owner] = Topic::default();
            stream.nodes[1 - self.owner].feed = None;
            let owner = self.owner;
            let clients = stream.clients.iter_mut().filter(|client| client.node == owner);
            clients.for_each(|client| client.asker = None);
        }
    }

    /// The shard opens, in the same node as before or in the other.
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

    /// The shard has released this.
    pub fn hear(&mut self, effect: &Effect) {
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

    /// Nodes feed each other and clients take what there is, all of it or some. Returns what they ask.
    pub fn pump(&mut self, random: &mut Random, is_all: bool) -> Result<Vec<(Name, Command)>, String> {
        let mut asked = Vec::new();
        for stream in &mut self.streams {
            let questions = stream.pump(self.owner, random, is_all, &mut self.counts)?;
            asked.extend(questions.into_iter().map(|question| (stream.namespace.clone(), question)));
        }
        Ok(asked)
    }

    /// A question was answered; none if the answer was lost.
    pub fn answered(
        &mut self,
        namespace: &Name,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
    ) -> Result<(), String> {
        let name = match question {
            Command::Get(name) | Command::Incubating(name) => name,
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

    /// Every client has come as far as this, or has nothing where there is no stream.
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

impl Stream {
    /// Whether a client of this node follows the stream, or the other node does through this one.
    fn is_followed(&self, node: usize, owner: usize) -> bool {
        self.clients.iter().any(|client| client.node == node && client.asker.is_some())
            || (node == owner && self.nodes[1 - node].feed.is_some())
    }

    fn askers(&mut self) -> impl Iterator<Item = &mut Asker> {
        let feeds = self.nodes.iter_mut().filter_map(|topic| topic.feed.as_mut());
        feeds.chain(self.clients.iter_mut().filter_map(|client| client.asker.as_mut()))
    }

    /// The stream is gone, as far as this node knows.
    fn deleted(&mut self, node: usize) {
        let must_compare = self.nodes[node].must_compare;
        self.nodes[node] = Topic { must_compare, ..Topic::default() };
        for client in self.clients.iter_mut().filter(|client| client.node == node && client.asker.is_some()) {
            *client = Client::new();
        }
        let other = &mut self.nodes[1 - node];
        if other.feed.take().is_some() {
            other.wire.push_back(Fed::NoStream);
        }
    }

    fn pump(
        &mut self,
        owner: usize,
        random: &mut Random,
        is_all: bool,
        counts: &mut Counts,
    ) -> Result<Vec<Command>, String> {
        let mut asked = Vec::new();
        for node in [owner, 1 - owner] {
            if !self.is_followed(node, owner) {
                let must_compare = self.nodes[node].must_compare;
                self.nodes[node] = Topic { must_compare, ..Topic::default() };
            }
        }
        let get = Command::Get(self.name.clone());
        let topic = &mut self.nodes[owner];
        if topic.must_compare && topic.ring.last().is_some() && !topic.compares {
            topic.compares = true;
            asked.push(get);
        }
        self.feed(owner, random, is_all, &mut asked);
        for index in 0..self.clients.len() {
            if !is_all && random.one_in(3) {
                continue;
            }
            let client = &mut self.clients[index];
            let Some(asker) = &mut client.asker else { continue };
            let ring = &self.nodes[client.node].ring;
            let is_begun = ring.last().is_some();
            match asker.next(ring, &self.name) {
                Next::Ask(question) => {
                    counts.ahead += u64::from(is_begun && matches!(question, Command::Get(_)));
                    asked.push(question);
                }
                Next::Nothing => {}
                Next::Take(messages) => {
                    for message in messages {
                        let skipped = client.take(&message.told, counts)?;
                        self.skipped_after.extend(skipped);
                    }
                }
            }
        }
        let check = |after: &u64| changes(self.name.clone(), *after, 1);
        asked.extend(self.skipped_after.iter().map(check));
        Ok(asked)
    }

    /// The node without the shard is fed, slowly.
    fn feed(&mut self, owner: usize, random: &mut Random, is_all: bool, asked: &mut Vec<Command>) {
        let [first, second] = &mut self.nodes;
        let (source, fed) = if owner == 0 { (first, second) } else { (second, first) };
        if fed.feed.is_none() && fed.wire.is_empty() && fed.ring.last().is_some() {
            fed.feed = Some(Asker::new(fed.ring.last()));
        }
        if let Some(feed) = &mut fed.feed {
            match feed.next(&source.ring, &self.name) {
                Next::Ask(question) => asked.push(question),
                Next::Take(messages) => {
                    fed.wire.extend(messages.iter().map(|message| Fed::Told(message.told.clone())));
                }
                Next::Nothing => {}
            }
        }
        let arriving = match is_all {
            true => fed.wire.len(),
            false if fed.is_stuck => 0,
            false => random.below(3) as usize,
        };
        for _ in 0..arriving {
            match fed.wire.pop_front() {
                Some(Fed::Told(Told::Change(change))) => fed.ring.push_change(change),
                Some(Fed::Told(Told::KeyFrame(frame))) => fed.ring.push_key_frame(frame),
                Some(Fed::NoStream) => return self.deleted(1 - owner),
                None => break,
            }
        }
    }

    fn answered(
        &mut self,
        owner: usize,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let is_gone = matches!(answer, Some(Err(Refusal::StreamNotFound { .. })));
        if let Command::Changes(wanted) = question
            && wanted.limit() == 1
            && let after = wanted.after()
            && let Some(place) = self.skipped_after.iter().position(|skipped| *skipped == after)
            && let Some(Ok(Reply::Changes(changes))) = answer
        {
            self.skipped_after.swap_remove(place);
            if matches!(changes, Changes::Kept(kept) if !kept.is_empty()) {
                return Err(format!("a key frame stood in for kept changes after {after}: {changes:?}"));
            }
        }
        if is_gone {
            self.skipped_after.clear();
        }
        self.compared(owner, question, answer, counts);
        if is_gone && self.nodes[1 - owner].feed.as_ref().is_some_and(|feed| feed.asked(question)) {
            self.nodes[1 - owner].feed = None;
            self.nodes[1 - owner].wire.push_back(Fed::NoStream);
        }
        let [first, second] = &mut self.nodes;
        let (source, fed) = if owner == 0 { (first, second) } else { (second, first) };
        if let Some(feed) = &mut fed.feed {
            feed.answered(question, answer, &mut source.ring)?;
        }
        for client in &mut self.clients {
            let Some(asker) = &mut client.asker else { continue };
            if !asker.asked(question) {
                continue;
            }
            if is_gone {
                *client = Client::new();
                continue;
            }
            asker.answered(question, answer, &mut self.nodes[client.node].ring)?;
        }
        if let (Command::Incubating(_), Some(Ok(Reply::Incubating(frame)))) = (question, answer) {
            for client in self.clients.iter().filter(|client| client.clock == Some(frame.clock)) {
                client.compare(frame, counts)?;
            }
        }
        Ok(())
    }

    /// The owner compares its ring with the stream after the shard has opened.
    fn compared(
        &mut self,
        owner: usize,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
        counts: &mut Counts,
    ) {
        let topic = &mut self.nodes[owner];
        if !topic.compares || !matches!(question, Command::Get(_)) {
            return;
        }
        topic.compares = false;
        match answer {
            Some(Ok(Reply::Stream(info))) => {
                counts.missed += u64::from(topic.ring.last().is_some_and(|last| last < info.clock));
                topic.ring.handle_clock(info.clock);
                topic.must_compare = false;
            }
            Some(Err(_)) => {
                topic.must_compare = false;
                self.deleted(owner);
            }
            _ => {}
        }
    }
}

enum Next {
    Take(Vec<Arc<Message>>),
    Ask(Command),
    Nothing,
}

impl Asker {
    fn new(resume_after: Option<u64>) -> Asker {
        Asker { cursor: Cursor::new(resume_after), question: None }
    }

    fn asked(&self, question: &Command) -> bool {
        self.question.as_ref() == Some(question)
    }

    fn next(&mut self, ring: &Ring, stream: &Name) -> Next {
        if self.question.is_some() {
            return Next::Nothing;
        }
        let step = match ring.last() {
            Some(_) => self.cursor.poll(ring),
            None => Step::AskClock,
        };
        let stream = stream.clone();
        let question = match step {
            Step::Send(messages) => return Next::Take(messages),
            Step::Wait => return Next::Nothing,
            Step::AskClock => Command::Get(stream),
            Step::AskKeyFrame => Command::Incubating(stream),
            Step::AskPage { after, limit } => changes(stream, after, limit),
        };
        self.question = Some(question.clone());
        Next::Ask(question)
    }

    fn answered(
        &mut self,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
        ring: &mut Ring,
    ) -> Result<(), String> {
        if !self.asked(question) {
            return Ok(());
        }
        self.question = None;
        match (question, answer) {
            (Command::Get(_), Some(Ok(Reply::Stream(info)))) => {
                ring.begin(info.clock);
                self.cursor.handle_clock(info.clock, ring);
            }
            (Command::Incubating(_), Some(Ok(Reply::Incubating(frame)))) => {
                self.cursor.handle_key_frame(Message::new(Told::KeyFrame(frame.clone())));
            }
            (Command::Changes(wanted), Some(Ok(Reply::Changes(changes)))) => {
                self.cursor.handle_page(wanted.after(), changes.clone(), ring);
            }
            // It is asked again.
            (_, None) => {}
            (_, Some(other)) => return Err(format!("{question:?} was answered {other:?}")),
        }
        Ok(())
    }
}

fn changes(stream: Name, after: u64, limit: usize) -> Command {
    let wanted = ChangesAfter::new(stream, after, limit).expect("a cursor asks for few changes at a time");
    Command::Changes(wanted)
}

impl Client {
    fn new() -> Client {
        Client { node: 0, asker: None, clock: None, incubating: BTreeMap::new(), arrived_at: 0 }
    }

    fn come_back(&mut self, random: &mut Random, released: u64) {
        self.node = random.below(2) as usize;
        self.arrived_at = released;
        self.asker = Some(Asker::new(self.clock));
    }

    /// What a client does with a message. Returns its clock before, if a key frame came in place of changes.
    fn take(&mut self, told: &Told, counts: &mut Counts) -> Result<Option<u64>, String> {
        let frame = match told {
            Told::Change(change) => {
                counts.changes += 1;
                return self.fold(change).map(|()| None);
            }
            Told::KeyFrame(frame) => frame,
        };
        let skipped = match self.clock {
            None if frame.clock < self.arrived_at => {
                return Err(format!("came at the clock {}, and got {frame:?}", self.arrived_at));
            }
            None => {
                counts.begun += 1;
                None
            }
            Some(clock) if clock > frame.clock => {
                return Err(format!("the clock goes back from {clock} to {frame:?}"));
            }
            Some(clock) if clock == frame.clock => {
                self.compare(frame, counts)?;
                None
            }
            Some(clock) => Some(clock),
        };
        self.clock = Some(frame.clock);
        self.incubating = frame.events.iter().map(|event| (event.event.clone(), event.time)).collect();
        Ok(skipped)
    }

    fn fold(&mut self, change: &Change) -> Result<(), String> {
        let Change { clock, kind, event, time } = change;
        if self.clock.is_none_or(|last| *clock != last + 1) {
            return Err(format!("after the clock {:?} comes {change:?}", self.clock));
        }
        self.clock = Some(*clock);
        let (before, expected) = match kind {
            ChangeKind::Submitted => (self.incubating.insert(event.clone(), *time), None),
            ChangeKind::Invalidated | ChangeKind::Published => (self.incubating.remove(event), Some(*time)),
        };
        if before == expected { Ok(()) } else { Err(format!("{change:?} comes where {before:?} incubates")) }
    }

    /// At the same clock there is the same to be had.
    fn compare(&self, frame: &KeyFrame, counts: &mut Counts) -> Result<(), String> {
        let events = frame.events.iter().map(|event| (&event.event, &event.time));
        if !self.incubating.iter().eq(events.collect::<BTreeMap<_, _>>()) {
            return Err(format!("by what was sent {:?} incubates, but {frame:?}", self.incubating));
        }
        counts.compared += u64::from(!frame.events.is_empty());
        Ok(())
    }
}
