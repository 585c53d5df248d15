//! Time, the network, the faults, and the checks at the end of a run.

use super::{
    clients::Clients,
    event_queue::{Answer, Event, EventQueue, Millis},
    node::{Action, Node, NodeRequest, StoreCall, StoreReply, carry_out, list},
};
use crate::{random::Random, world::ready};
use limina_store::{
    Epoch, Journal, NodeId, ShardId,
    memory::{Cluster, MemoryOptions},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

const TENURE: Duration = Duration::from_millis(2_000);
const RENEW_EVERY: Millis = 400;
/// After this time a node gives a call up.
const GIVE_UP: Millis = 1_500;
/// Faults happen until this time. After it, the cluster must become stable.
const TROUBLE_ENDS: Millis = 60_000;
const SETTLED: Millis = 80_000;
const END: Millis = 100_000;

/// What happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests that succeeded.
    pub successes: u64,
    /// Requests that were answered at once, from memory.
    pub relaxed: u64,
    /// Requests that failed without being executed.
    pub failures: u64,
    /// Appends with an unknown outcome.
    pub unknown: u64,
    /// Shards that were claimed or handed over.
    pub moves: u64,
    /// Appends and confirms that were rejected because another node owned the shard.
    pub fenced: u64,
    /// Calls that were lost, or given up before they were executed.
    pub late: u64,
    /// Nodes that were paused.
    pub pauses: u64,
    /// Nodes that died.
    pub crashes: u64,
    /// Nodes that left as planned.
    pub stops: u64,
    /// Sessions that ended although their nodes lived.
    pub disconnects: u64,
    /// Tenures of dead nodes that were ended before they expired.
    pub ended_early: u64,
    /// A checksum of everything that was appended.
    pub digest: u64,
}

impl Report {
    /// Adds the report of another run.
    pub fn add(&mut self, other: &Report) {
        self.successes += other.successes;
        self.relaxed += other.relaxed;
        self.failures += other.failures;
        self.unknown += other.unknown;
        self.moves += other.moves;
        self.fenced += other.fenced;
        self.late += other.late;
        self.pauses += other.pauses;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.disconnects += other.disconnects;
        self.ended_early += other.ended_early;
        self.digest ^= other.digest;
    }
}

struct World {
    random: Random,
    is_verbose: bool,
    now: Millis,
    event_queue: EventQueue,
    cluster: Arc<Cluster>,
    shards: u16,
    nodes: BTreeMap<NodeId, Node>,
    /// The addresses of all nodes that ever were.
    addresses: BTreeMap<NodeId, u64>,
    /// The number of nodes that there should be.
    wanted: u64,
    node_count: u64,
    clients: Clients,
    /// The owner of each shard, and the epoch of its ownership.
    owners: BTreeMap<ShardId, (Option<NodeId>, Epoch)>,
    last_move: Millis,
    report: Report,
}

/// Runs one seed. The error says what went wrong.
pub fn run(seed: u64, is_verbose: bool) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let shards = 1 + random.below(12) as u16;
    let options = MemoryOptions { shards, seed, ..MemoryOptions::default() };
    let cluster = Cluster::new(&options).map_err(|error| error.to_string())?;
    let wanted = 2 + random.below(4);
    let mut world = World {
        random,
        is_verbose,
        now: 0,
        event_queue: EventQueue::default(),
        cluster,
        shards,
        nodes: BTreeMap::new(),
        addresses: BTreeMap::new(),
        wanted,
        node_count: 0,
        clients: Clients::default(),
        owners: BTreeMap::new(),
        last_move: 0,
        report: Report::default(),
    };
    for address in 0..wanted {
        let at = world.random.below(3_000);
        world.event_queue.at(at, Event::Start(address));
    }
    world.event_queue.at(100, Event::Client);
    world.event_queue.at(4_000, Event::Trouble);
    let ran = world.run().and_then(|()| world.check_end());
    ran.map_err(|problem| format!("seed {seed}, at {} ms: {problem}", world.now))?;
    Ok(world.report)
}

impl World {
    fn run(&mut self) -> Result<(), String> {
        while let Some((time, event)) = self.event_queue.next().filter(|(time, _)| *time < END) {
            self.cluster.advance(Duration::from_millis(time - self.now));
            self.now = time;
            if self.is_verbose {
                println!("{time:>6} {event:?}");
            }
            self.happen(event)?;
        }
        Ok(())
    }

    fn is_troubled(&self) -> bool {
        self.now < TROUBLE_ENDS
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick(id) => {
                if self.can_act(id, || Event::Tick(id)) {
                    self.event_queue.at(self.now + RENEW_EVERY, Event::Tick(id));
                    let now = self.now;
                    self.with_node(id, |node| node.tick(now))?;
                }
            }
            Event::Called { node, number, call } => self.called(node, number, call)?,
            Event::Heard { node, number, done } => {
                if self.is_paused(node) {
                    let later = self.nodes[&node].paused_until;
                    self.event_queue.at(later, Event::Heard { node, number, done });
                } else {
                    let now = self.now;
                    self.with_node(node, |node| node.heard(now, number, done))?;
                    self.bury(node);
                }
            }
            Event::NodeRequest { node, asked } => {
                let again = asked.clone();
                if self.can_act(node, || Event::NodeRequest { node, asked: again }) {
                    let now = self.now;
                    self.with_node(node, |node| node.asked(now, asked))?;
                }
            }
            Event::Disconnected(id) => {
                if self.can_act(id, || Event::Disconnected(id)) {
                    let now = self.now;
                    self.with_node(id, |node| node.disconnected(now))?;
                }
            }
            Event::Probe { by, of } => {
                let address = self.addresses[&of];
                // A paused node still has its socket.
                let is_refused = self.nodes.values().all(|node| node.address != address);
                let arrives = self.now + self.delay();
                self.event_queue.at(arrives, Event::Probed { by, of, is_refused });
            }
            Event::Probed { by, of, is_refused } => {
                if self.can_act(by, || Event::Probed { by, of, is_refused }) {
                    self.with_node(by, |node| node.probed(of, is_refused))?;
                }
            }
            Event::Answered { client, answer } => self.clients.answered(self.now, client, answer)?,
            Event::Client => self.client(),
            Event::Trouble => self.trouble(),
            Event::Start(address) => self.start(address),
        }
        Ok(())
    }

    fn is_paused(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| self.now < node.paused_until)
    }

    /// Whether the node exists and is not paused. If it is paused, the event happens when it continues.
    fn can_act(&mut self, id: NodeId, event: impl FnOnce() -> Event) -> bool {
        if self.is_paused(id) {
            self.event_queue.at(self.nodes[&id].paused_until, event());
            return false;
        }
        self.nodes.contains_key(&id)
    }

    fn with_node(&mut self, id: NodeId, act: impl FnOnce(&mut Node) -> Vec<Action>) -> Result<(), String> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        for want in act(node) {
            match want {
                Action::StoreCall(call) => self.call(id, call),
                Action::Probe(of) => {
                    let arrives = self.now + self.delay();
                    self.event_queue.at(arrives, Event::Probe { by: id, of });
                }
                Action::Forward(other, asked) => {
                    let arrives = self.now + self.delay();
                    // If no answer comes, the client assumes at some time that the outcome is unknown.
                    let answer = Answer::Unknown;
                    self.event_queue.at(self.now + 8_000, Event::Answered { client: asked.client, answer });
                    if !self.is_lost() {
                        self.event_queue.at(arrives, Event::NodeRequest { node: other, asked });
                    }
                }
                Action::Relax { client, shard, epoch } => {
                    // A relaxed answer waits for nothing, so no other node may have owned the shard up to this instant.
                    let (owner, since) = self.owners.get(&shard).copied().unwrap_or((None, Epoch(0)));
                    if owner != Some(id) || since > epoch {
                        return Err(format!(
                            "{id} gives a relaxed answer of {shard:?} under {epoch:?}, and it is {owner:?}'s since {since:?}"
                        ));
                    }
                    let arrives = self.now + self.delay();
                    self.event_queue.at(arrives, Event::Answered { client, answer: Answer::Relaxed });
                }
                Action::Answer(client, answer) => {
                    let arrives = self.now + self.delay();
                    self.event_queue.at(arrives, Event::Answered { client, answer });
                }
            }
        }
        Ok(())
    }

    /// Sends a call to the store. Unless it is lost, it arrives, even if the node has given it up.
    fn call(&mut self, id: NodeId, call: StoreCall) {
        if matches!(call, StoreCall::Claim { .. } | StoreCall::Give { .. }) {
            self.last_move = self.now;
            self.report.moves += 1;
        }
        let number = self.nodes.get_mut(&id).expect("it has just acted").called(call);
        self.event_queue.at(self.now + GIVE_UP, Event::Heard { node: id, number, done: None });
        if self.is_lost() {
            self.report.late += 1;
            return;
        }
        // A late claim may meet an owner that seemed dead and has renewed since.
        let is_late = matches!(call, StoreCall::Claim { .. }) && self.is_troubled() && self.random.one_in(3);
        let arrives = self.now + if is_late { self.random.below(2_000) } else { self.delay() };
        self.report.late += u64::from(arrives > self.now + GIVE_UP);
        self.event_queue.at(arrives, Event::Called { node: id, number, call });
    }

    fn called(&mut self, id: NodeId, number: u64, call: StoreCall) -> Result<(), String> {
        // Calls that a dead node has sent still arrive.
        let store = self.cluster.node(id);
        let address = self.nodes.get(&id).map_or(u64::MAX - id.0, |node| node.address);
        let done = ready(carry_out(&store, address, TENURE, call))?.map_err(|error| error.to_string())?;
        self.report.fenced += u64::from(matches!(done, StoreReply::Fenced));
        let is_ended = matches!((call, &done), (StoreCall::EndTenure { .. }, StoreReply::Yes));
        self.report.ended_early += u64::from(is_ended);
        if !self.nodes.contains_key(&id) {
            self.cluster.disconnect(id);
        }
        for shard in (0..self.shards).map(ShardId) {
            let (owner, epoch) = self.cluster.owner(shard).map_err(|error| error.to_string())?;
            if self.owners.get(&shard).is_none_or(|(before, _)| *before != owner) {
                self.owners.insert(shard, (owner, epoch));
            }
        }
        if !self.is_lost() {
            let arrives = self.now + self.delay();
            self.event_queue.at(arrives, Event::Heard { node: id, number, done: Some(done) });
        }
        Ok(())
    }

    /// The delay of a message. It is mostly short.
    fn delay(&mut self) -> Millis {
        match self.is_troubled() && self.random.one_in(30) {
            true => self.random.below(4_000),
            false => 1 + self.random.below(20),
        }
    }

    fn is_lost(&mut self) -> bool {
        self.is_troubled() && self.random.one_in(40)
    }

    fn client(&mut self) {
        if self.now < END - 10_000 {
            let next = self.now + 1 + self.random.below(60);
            self.event_queue.at(next, Event::Client);
        }
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let shard = ShardId(self.random.below(u64::from(self.shards)) as u16);
        let kind = self.random.below(6);
        let (client, kind) = self.clients.begin(self.now, shard, kind);
        let node = *self.random.pick(&ids);
        let asked = NodeRequest { client, shard, kind, is_forwarded: false };
        let arrives = self.now + self.delay();
        self.event_queue.at(arrives, Event::NodeRequest { node, asked });
    }

    fn trouble(&mut self) {
        if !self.is_troubled() {
            return self.mend();
        }
        let next = self.now + 200 + self.random.below(4_000);
        self.event_queue.at(next, Event::Trouble);
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        let Some(id) = (!ids.is_empty()).then(|| *self.random.pick(&ids)) else { return };
        let back = self.now + self.random.below(6_000);
        match self.random.below(4) {
            0 => {
                // Often the node continues just after its tenure has expired.
                let span = match self.random.one_in(2) {
                    true => TENURE.as_millis() as Millis - RENEW_EVERY + self.random.below(1_500),
                    false => self.random.below(8_000),
                };
                let node = self.nodes.get_mut(&id).expect("it was picked");
                node.paused_until = (self.now + span).min(TROUBLE_ENDS);
                self.report.pauses += 1;
            }
            1 => {
                let address = self.nodes.remove(&id).map_or(0, |node| node.address);
                self.cluster.disconnect(id);
                self.report.crashes += 1;
                self.event_queue.at(back, Event::Start(address));
            }
            2 => {
                let node = self.nodes.get_mut(&id).expect("it was picked");
                if !node.planner.is_leaving() {
                    node.planner.leave();
                    self.report.stops += 1;
                    let address = node.address;
                    // The node returns with the same address, once that is free, or with another one.
                    let address = if self.random.one_in(2) { address } else { address + self.wanted };
                    self.event_queue.at(back + 1_000, Event::Start(address));
                }
            }
            _ => {
                self.cluster.disconnect(id);
                self.report.disconnects += 1;
                let noticed = self.now + self.delay();
                self.event_queue.at(noticed, Event::Disconnected(id));
            }
        }
    }

    /// No more faults happen, and there are as many nodes as there should be.
    fn mend(&mut self) {
        let staying = self.nodes.values().filter(|node| !node.planner.is_leaving()).count() as u64;
        for number in staying..self.wanted {
            self.event_queue.at(self.now + 1, Event::Start(1_000 + number));
        }
    }

    fn start(&mut self, address: u64) {
        let staying = self.nodes.values().filter(|node| !node.planner.is_leaving());
        if staying.clone().count() as u64 >= self.wanted
            || staying.clone().any(|node| node.address == address)
        {
            return;
        }
        self.node_count += 1;
        // Ids in no particular order, like those of real nodes.
        let id = NodeId(self.node_count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.nodes.insert(id, Node::new(self.cluster.node(id), address, TENURE));
        self.addresses.insert(id, address);
        self.event_queue.at(self.now, Event::Tick(id));
    }

    /// Removes a node that has left.
    fn bury(&mut self, id: NodeId) {
        if self.nodes.get(&id).is_some_and(|node| node.has_left) {
            self.nodes.remove(&id);
        }
    }

    fn check_end(&mut self) -> Result<(), String> {
        if self.last_move > SETTLED {
            return Err(format!("shards still moved at {} ms", self.last_move));
        }
        if self.clients.last_failure > SETTLED {
            return Err(format!("a request still failed at {} ms", self.clients.last_failure));
        }
        if self.nodes.len() as u64 != self.wanted {
            return Err(format!("there are {} nodes instead of {}", self.nodes.len(), self.wanted));
        }
        let shards: Vec<ShardId> = (0..self.shards).map(ShardId).collect();
        for shard in &shards {
            let owners = self.nodes.values().filter(|node| node.serves(*shard)).count();
            if owners != 1 {
                return Err(format!("{shard:?} is served by {owners} nodes"));
            }
        }
        let shares =
            || self.nodes.values().map(|node| shards.iter().filter(|shard| node.serves(**shard)).count());
        if shares().max().unwrap_or(0) > shares().min().unwrap_or(0) + 1 {
            return Err(format!("the shares differ: {:?}", shares().collect::<Vec<_>>()));
        }
        self.check_lists(&shards)
    }

    fn check_lists(&mut self, shards: &[ShardId]) -> Result<(), String> {
        for shard in shards {
            let owner = self.nodes.values().find(|node| node.serves(*shard)).expect("it was just there");
            let found = ready(async {
                let epoch = owner.store.take(*shard).await?;
                list(&owner.store, *shard, epoch).await
            })?;
            let found = found.map_err(|error| error.to_string())?;
            self.clients.check_end(*shard, &found)?;
            for number in &found {
                let mixed = self.report.digest.rotate_left(5) ^ number;
                self.report.digest = mixed.wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        let Clients { successes, relaxed, failures, unknown, .. } = &self.clients;
        (self.report.successes, self.report.relaxed) = (*successes, *relaxed);
        (self.report.failures, self.report.unknown) = (*failures, *unknown);
        Ok(())
    }
}
