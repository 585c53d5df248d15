//! One stream at two nodes: their rings, the connection between them, and the clients.

use super::{
    Counts,
    client::{Client, Next, StreamReader, changes_after},
};
use crate::random::Random;
use limina_engine::{
    Name,
    events::{Changes, Command, Refusal, Reply},
};
use limina_node::{Budget, StreamUpdate, streams::Ring};
use std::collections::VecDeque;

/// A stream, and its state at the two nodes.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) namespace: Name,
    pub(super) name: Name,
    pub(super) nodes: [Topic; 2],
    pub(super) clients: Vec<Client>,
    /// The clock of the last change that was released.
    pub(super) released: u64,
    /// The clocks of clients that received a key frame instead of changes.
    pub(super) skipped_after: Vec<u64>,
    /// The memory of all rings. It has no limit. A budget has metrics, so a new one for each ring would take most of a run.
    pub(super) memory: Budget,
}

/// The state of a stream at a node.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) ring: Ring,
    /// The shard was opened here, and the ring has not been compared with the stream yet.
    pub(super) must_compare: bool,
    pub(super) compares: bool,
    /// At the node that does not own the shard: how the owner reads the stream for it, and what is in transit.
    pub(super) feed: Option<StreamReader>,
    pub(super) wire: VecDeque<FeedMessage>,
    /// The connection delivers nothing for now.
    pub(super) is_stuck: bool,
}

#[derive(Debug)]
pub(super) enum FeedMessage {
    Update(StreamUpdate),
    NoStream,
}

impl Topic {
    pub(super) fn new(memory: &Budget) -> Topic {
        Topic {
            ring: Ring::new(memory),
            must_compare: false,
            compares: false,
            feed: None,
            wire: VecDeque::new(),
            is_stuck: false,
        }
    }
}

impl Stream {
    /// Whether a client of this node follows the stream, or the other node does through this one.
    pub(super) fn is_followed(&self, node: usize, owner: usize) -> bool {
        self.clients.iter().any(|client| client.node == node && client.reader.is_some())
            || (node == owner && self.nodes[1 - node].feed.is_some())
    }

    pub(super) fn readers(&mut self) -> impl Iterator<Item = &mut StreamReader> {
        let feeds = self.nodes.iter_mut().filter_map(|topic| topic.feed.as_mut());
        feeds.chain(self.clients.iter_mut().filter_map(|client| client.reader.as_mut()))
    }

    /// As far as this node knows, the stream was deleted.
    pub(super) fn deleted(&mut self, node: usize) {
        let must_compare = self.nodes[node].must_compare;
        self.nodes[node] = Topic { must_compare, ..Topic::new(&self.memory) };
        for client in self.clients.iter_mut().filter(|client| client.node == node && client.reader.is_some())
        {
            *client = Client::new();
        }
        let other = &mut self.nodes[1 - node];
        if other.feed.take().is_some() {
            other.wire.push_back(FeedMessage::NoStream);
        }
    }

    pub(super) fn pump(
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
                self.nodes[node] = Topic { must_compare, ..Topic::new(&self.memory) };
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
            let Some(reader) = &mut client.reader else { continue };
            let ring = &self.nodes[client.node].ring;
            let is_begun = ring.last().is_some();
            match reader.next(ring, &self.name) {
                Next::Ask(question) => {
                    counts.ahead += u64::from(is_begun && matches!(question, Command::Get(_)));
                    asked.push(question);
                }
                Next::Nothing => {}
                Next::Take(messages) => {
                    for message in messages {
                        let skipped = client.take(&message.update, counts)?;
                        self.skipped_after.extend(skipped);
                    }
                }
            }
        }
        let check = |after: &u64| changes_after(self.name.clone(), *after, 1);
        asked.extend(self.skipped_after.iter().map(check));
        Ok(asked)
    }

    /// Feeds the node that does not own the shard, slowly.
    pub(super) fn feed(&mut self, owner: usize, random: &mut Random, is_all: bool, asked: &mut Vec<Command>) {
        let [first, second] = &mut self.nodes;
        let (source, fed) = if owner == 0 { (first, second) } else { (second, first) };
        if fed.feed.is_none() && fed.wire.is_empty() && fed.ring.last().is_some() {
            fed.feed = Some(StreamReader::new(fed.ring.last()));
        }
        if let Some(feed) = &mut fed.feed {
            match feed.next(&source.ring, &self.name) {
                Next::Ask(question) => asked.push(question),
                Next::Take(messages) => {
                    fed.wire
                        .extend(messages.iter().map(|message| FeedMessage::Update(message.update.clone())));
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
                Some(FeedMessage::Update(StreamUpdate::Change(change))) => fed.ring.push_change(change),
                Some(FeedMessage::Update(StreamUpdate::KeyFrame(frame))) => fed.ring.push_key_frame(frame),
                Some(FeedMessage::NoStream) => return self.deleted(1 - owner),
                None => break,
            }
        }
    }

    pub(super) fn answered(
        &mut self,
        owner: usize,
        question: &Command,
        answer: Option<&Result<Reply, Refusal>>,
        counts: &mut Counts,
    ) -> Result<(), String> {
        // A stream that a quota refuses to create does not exist either.
        let is_gone = matches!(answer, Some(Err(Refusal::StreamNotFound { .. } | Refusal::QuotaExceeded(_))));
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
            self.nodes[1 - owner].wire.push_back(FeedMessage::NoStream);
        }
        let [first, second] = &mut self.nodes;
        let (source, fed) = if owner == 0 { (first, second) } else { (second, first) };
        if let Some(feed) = &mut fed.feed {
            feed.answered(question, answer, &mut source.ring)?;
        }
        for client in &mut self.clients {
            let Some(reader) = &mut client.reader else { continue };
            if !reader.asked(question) {
                continue;
            }
            if is_gone {
                *client = Client::new();
                continue;
            }
            reader.answered(question, answer, &mut self.nodes[client.node].ring)?;
        }
        if let (Command::Snapshot(_), Some(Ok(Reply::Incubating(frame)))) = (question, answer) {
            for client in self.clients.iter().filter(|client| client.clock == Some(frame.clock)) {
                client.compare(frame, counts)?;
            }
        }
        Ok(())
    }

    /// After an opening, the owner compares its ring with the stream.
    pub(super) fn compared(
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
