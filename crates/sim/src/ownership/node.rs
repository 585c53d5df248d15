//! One node: the real decisions about ownership, and shards whose content is a list.

use super::{
    clients::RequestKind,
    event_queue::{Answer, Millis},
};
use limina_node::ownership::{OwnershipAction, OwnershipPlanner, UnownedShard, is_current};
use limina_store::{
    AppendError, ConfirmError, Epoch, Journal, NodeId, Seq, ShardId, StoreError, Tenure, View,
    memory::MemoryNode,
};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// A request at a node.
#[derive(Debug, Clone)]
pub(super) struct NodeRequest {
    pub(super) client: u64,
    pub(super) shard: ShardId,
    pub(super) kind: RequestKind,
    /// It came from another node, and must not be forwarded again.
    pub(super) is_forwarded: bool,
}

/// A call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreCall {
    /// Each bit of `prepared` is a shard.
    Renew {
        is_leaving: bool,
        prepared: u16,
    },
    EndTenure {
        node: NodeId,
    },
    Claim {
        shard: ShardId,
        seen: Epoch,
    },
    Take {
        shard: ShardId,
    },
    /// Reads the appends after `after`.
    Tail {
        shard: ShardId,
        epoch: Epoch,
        after: Seq,
    },
    /// Reads a shard of another node.
    Prepare {
        shard: ShardId,
        epoch: Epoch,
    },
    Append {
        shard: ShardId,
        epoch: Epoch,
        seq: Seq,
        number: u64,
    },
    Confirm {
        shard: ShardId,
        epoch: Epoch,
    },
    Give {
        shard: ShardId,
        epoch: Epoch,
        to: Option<NodeId>,
    },
    Leave,
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum StoreReply {
    Viewed(View),
    Yes,
    No,
    Taken(Epoch),
    ShardState(Vec<u64>),
    /// It did not happen, because another node owns the shard.
    Fenced,
}

/// What a node wants the world to do.
#[derive(Debug)]
pub(super) enum Action {
    StoreCall(StoreCall),
    /// Find out whether a node listens at this one's address.
    Probe(NodeId),
    /// Send the request to another node.
    Forward(NodeId, NodeRequest),
    Answer(u64, Answer),
    /// Answer a client at once, from this node's memory of a shard under this epoch.
    Relax {
        client: u64,
        shard: ShardId,
        epoch: Epoch,
    },
}

/// The state of a shard at a node.
#[derive(Debug)]
enum ShardState {
    /// Its epoch is being raised, or its content is being read.
    Opening,
    Serving(Serving),
}

#[derive(Debug)]
struct Serving {
    epoch: Epoch,
    list: Vec<u64>,
    queue: VecDeque<NodeRequest>,
    /// The first request of the queue is being appended or confirmed.
    is_busy: bool,
    is_giving: bool,
}

/// One node.
pub(super) struct Node {
    pub(super) store: Arc<MemoryNode>,
    pub(super) address: u64,
    pub(super) planner: OwnershipPlanner,
    shards: BTreeMap<ShardId, ShardState>,
    closing: BTreeMap<ShardId, Option<NodeId>>,
    /// What it has read of shards that other nodes will give it, and under which epoch.
    prepared: BTreeMap<ShardId, (Epoch, Vec<u64>)>,
    /// The shards that it is to prepare.
    preparing: BTreeMap<ShardId, Epoch>,
    at: BTreeMap<ShardId, Option<NodeId>>,
    /// Calls whose results it has not received.
    calls: BTreeMap<u64, StoreCall>,
    call_count: u64,
    is_renewing: bool,
    /// When the running renewal was sent.
    renewing_since: Millis,
    tenure: Millis,
    /// Until this time no other node can take a shard that this node serves.
    sure_until: Millis,
    pub(super) paused_until: Millis,
    pub(super) has_left: bool,
}

impl Node {
    pub(super) fn new(store: Arc<MemoryNode>, address: u64, tenure: Duration) -> Node {
        Node {
            planner: OwnershipPlanner::new(store.me(), tenure),
            store,
            address,
            shards: BTreeMap::new(),
            closing: BTreeMap::new(),
            prepared: BTreeMap::new(),
            preparing: BTreeMap::new(),
            at: BTreeMap::new(),
            calls: BTreeMap::new(),
            call_count: 0,
            is_renewing: false,
            renewing_since: 0,
            tenure: tenure.as_millis() as Millis,
            sure_until: 0,
            paused_until: 0,
            has_left: false,
        }
    }

    /// Whether it serves the shard.
    pub(super) fn serves(&self, shard: ShardId) -> bool {
        matches!(self.shards.get(&shard), Some(ShardState::Serving(_))) && !self.closing.contains_key(&shard)
    }

    /// Registers a call that was sent. The returned number identifies its result.
    pub(super) fn called(&mut self, call: StoreCall) -> u64 {
        self.call_count += 1;
        self.calls.insert(self.call_count, call);
        self.call_count
    }

    /// It is time to renew.
    pub(super) fn tick(&mut self, now: Millis) -> Vec<Action> {
        if std::mem::replace(&mut self.is_renewing, true) {
            return Vec::new();
        }
        self.renewing_since = now;
        let prepared = self.prepared.keys().fold(0, |bits, shard| bits | 1 << shard.0);
        vec![Action::StoreCall(StoreCall::Renew { is_leaving: self.planner.is_leaving(), prepared })]
    }

    /// Its session with the store has ended.
    pub(super) fn disconnected(&mut self, now: Millis) -> Vec<Action> {
        self.sure_until = 0;
        self.tick(now)
    }

    /// Another node's address was tried.
    pub(super) fn probed(&mut self, node: NodeId, is_refused: bool) -> Vec<Action> {
        self.planner.handle_probe(node, is_refused).map_or(Vec::new(), |act| self.act(act))
    }

    /// A call has ended, or was given up (then it may have been executed, or may be executed later).
    pub(super) fn heard(&mut self, now: Millis, number: u64, done: Option<StoreReply>) -> Vec<Action> {
        let Some(call) = self.calls.remove(&number) else { return Vec::new() };
        match (call, done) {
            (StoreCall::Renew { .. }, done) => {
                self.is_renewing = false;
                match done {
                    Some(StoreReply::Viewed(view)) => self.see(now, view),
                    _ => Vec::new(),
                }
            }
            (StoreCall::Claim { shard, .. }, Some(StoreReply::Yes)) => {
                if self.planner.claimed(shard) {
                    self.take(shard)
                } else {
                    Vec::new()
                }
            }
            (StoreCall::Claim { .. }, _) => Vec::new(),
            (StoreCall::EndTenure { .. }, _) => self.tick(now),
            (StoreCall::Take { shard }, Some(StoreReply::Taken(epoch))) => {
                // What was read of the shard is its beginning, if the epoch was raised only for the hand-over.
                let prepared = self.prepared.get(&shard).filter(|(read, _)| epoch.0 == read.0 + 2);
                let after = Seq(prepared.map_or(0, |(_, list)| list.len() as u64));
                vec![Action::StoreCall(StoreCall::Tail { shard, epoch, after })]
            }
            (StoreCall::Tail { shard, epoch, after }, Some(StoreReply::ShardState(tail))) => {
                let prepared = self.prepared.remove(&shard).filter(|_| after > Seq::ZERO);
                let list = prepared.map_or(Vec::new(), |(_, list)| list).into_iter().chain(tail).collect();
                let serving =
                    Serving { epoch, list, queue: VecDeque::new(), is_busy: false, is_giving: false };
                self.shards.insert(shard, ShardState::Serving(serving));
                self.go_on(shard)
            }
            (StoreCall::Take { shard } | StoreCall::Tail { shard, .. }, Some(_)) => self.ended(shard),
            (StoreCall::Take { shard } | StoreCall::Tail { shard, .. }, None) => self.take(shard),
            (StoreCall::Prepare { shard, epoch }, done) => {
                if let Some(StoreReply::ShardState(list)) = done
                    && self.preparing.get(&shard) == Some(&epoch)
                {
                    self.prepared.insert(shard, (epoch, list));
                }
                Vec::new()
            }
            (StoreCall::Append { shard, number, .. }, done) => self.appended(shard, number, done),
            (StoreCall::Confirm { shard, .. }, done) => self.confirmed(shard, done),
            (StoreCall::Give { shard, .. }, Some(_)) => self.ended(shard),
            (StoreCall::Give { .. }, None) => vec![Action::StoreCall(call)],
            (StoreCall::Leave, Some(_)) => {
                self.has_left = true;
                Vec::new()
            }
            (StoreCall::Leave, None) => vec![Action::StoreCall(StoreCall::Leave)],
        }
    }

    fn see(&mut self, now: Millis, view: View) -> Vec<Action> {
        let serving = self.shards.iter().filter_map(|(shard, held)| match held {
            ShardState::Serving(serving) if !serving.is_giving => Some((*shard, serving.epoch)),
            _ => None,
        });
        self.sure_until = match is_current(&view, self.store.me(), serving) {
            true => self.renewing_since + self.tenure,
            false => 0,
        };
        let open: Vec<ShardId> = self.shards.keys().copied().filter(|shard| self.serves(*shard)).collect();
        let acts = self.planner.handle_view(Duration::from_millis(now), view, |shard| open.contains(&shard));
        let mut wants: Vec<Action> = acts.into_iter().flat_map(|act| self.act(act)).collect();
        if self.planner.has_left() && !self.calls.values().any(|call| *call == StoreCall::Leave) {
            wants.push(Action::StoreCall(StoreCall::Leave));
        }
        wants
    }

    fn act(&mut self, act: OwnershipAction) -> Vec<Action> {
        match act {
            OwnershipAction::Open { shard, .. } => self.take(shard),
            OwnershipAction::Claim { shards } => {
                let call = |UnownedShard { shard, seen, .. }| StoreCall::Claim { shard, seen };
                shards.into_iter().map(call).map(Action::StoreCall).collect()
            }
            OwnershipAction::Probe { node } => vec![Action::Probe(node)],
            OwnershipAction::EndTenure { node } => vec![Action::StoreCall(StoreCall::EndTenure { node })],
            OwnershipAction::Prepare { shard, epoch } => {
                self.preparing.insert(shard, epoch);
                vec![Action::StoreCall(StoreCall::Prepare { shard, epoch })]
            }
            OwnershipAction::Discard { shard } => {
                self.preparing.remove(&shard);
                self.prepared.remove(&shard);
                Vec::new()
            }
            OwnershipAction::CheckOwnership { shard } => match self.shards.get(&shard) {
                Some(ShardState::Serving(serving)) if !serving.is_busy && !serving.is_giving => {
                    self.lose(shard)
                }
                _ => Vec::new(),
            },
            OwnershipAction::Close { shard, to } => {
                self.closing.insert(shard, to);
                self.at.insert(shard, None);
                self.go_on(shard)
            }
            OwnershipAction::Place { shard, at } => {
                self.at.insert(shard, at);
                Vec::new()
            }
        }
    }

    fn take(&mut self, shard: ShardId) -> Vec<Action> {
        self.shards.insert(shard, ShardState::Opening);
        self.preparing.remove(&shard);
        vec![Action::StoreCall(StoreCall::Take { shard })]
    }

    /// The memory of the shard can no longer be trusted: its waiting requests fail, and the shard is taken again.
    fn lose(&mut self, shard: ShardId) -> Vec<Action> {
        let waiting = match self.shards.remove(&shard) {
            Some(ShardState::Serving(serving)) => serving.queue,
            _ => VecDeque::new(),
        };
        let told = waiting.into_iter().map(|asked| Action::Answer(asked.client, Answer::NotDone));
        told.chain(self.take(shard)).collect()
    }

    fn ended(&mut self, shard: ShardId) -> Vec<Action> {
        self.shards.remove(&shard);
        let to = self.closing.remove(&shard).flatten();
        self.at.insert(shard, to);
        self.planner.ended(shard);
        Vec::new()
    }

    /// A request arrives.
    pub(super) fn asked(&mut self, now: Millis, asked: NodeRequest) -> Vec<Action> {
        let shard = asked.shard;
        if self.serves(shard)
            && let Some(ShardState::Serving(serving)) = self.shards.get_mut(&shard)
        {
            if asked.kind == RequestKind::Relaxed {
                let (client, epoch) = (asked.client, serving.epoch);
                return vec![match now < self.sure_until {
                    true => Action::Relax { client, shard, epoch },
                    false => Action::Answer(client, Answer::NotDone),
                }];
            }
            serving.queue.push_back(asked);
            return self.go_on(shard);
        }
        match self.at.get(&shard).copied().flatten() {
            Some(node) if !asked.is_forwarded => {
                vec![Action::Forward(node, NodeRequest { is_forwarded: true, ..asked })]
            }
            _ => vec![Action::Answer(asked.client, Answer::NotDone)],
        }
    }

    /// Begins the next request of the queue, or hands the shard over if there is none.
    fn go_on(&mut self, shard: ShardId) -> Vec<Action> {
        let to = self.closing.get(&shard).copied();
        let Some(ShardState::Serving(serving)) = self.shards.get_mut(&shard) else { return Vec::new() };
        if serving.is_busy || serving.is_giving {
            return Vec::new();
        }
        let epoch = serving.epoch;
        let call = match (serving.queue.front().map(|asked| asked.kind), to) {
            (Some(RequestKind::Append(number)), _) => {
                StoreCall::Append { shard, epoch, seq: Seq(serving.list.len() as u64 + 1), number }
            }
            (Some(RequestKind::Read | RequestKind::Relaxed), _) => StoreCall::Confirm { shard, epoch },
            (None, Some(to)) => StoreCall::Give { shard, epoch, to },
            (None, None) => return Vec::new(),
        };
        serving.is_giving = matches!(call, StoreCall::Give { .. });
        serving.is_busy = !serving.is_giving;
        vec![Action::StoreCall(call)]
    }

    fn appended(&mut self, shard: ShardId, number: u64, done: Option<StoreReply>) -> Vec<Action> {
        let Some(ShardState::Serving(serving)) = self.shards.get_mut(&shard) else { return Vec::new() };
        let Some(asked) = serving.queue.pop_front() else { return Vec::new() };
        serving.is_busy = false;
        match done {
            Some(StoreReply::Yes) => {
                serving.list.push(number);
                let mut wants = vec![Action::Answer(asked.client, Answer::Appended)];
                wants.extend(self.go_on(shard));
                wants
            }
            done => {
                let answer = if done.is_some() { Answer::NotDone } else { Answer::Unknown };
                let mut wants = vec![Action::Answer(asked.client, answer)];
                wants.extend(self.lose(shard));
                wants
            }
        }
    }

    fn confirmed(&mut self, shard: ShardId, done: Option<StoreReply>) -> Vec<Action> {
        let Some(ShardState::Serving(serving)) = self.shards.get_mut(&shard) else { return Vec::new() };
        let Some(asked) = serving.queue.pop_front() else { return Vec::new() };
        serving.is_busy = false;
        match done {
            Some(StoreReply::Yes) => {
                let mut wants = vec![Action::Answer(asked.client, Answer::Read(serving.list.clone()))];
                wants.extend(self.go_on(shard));
                wants
            }
            _ => {
                let mut wants = vec![Action::Answer(asked.client, Answer::NotDone)];
                wants.extend(self.lose(shard));
                wants
            }
        }
    }
}

/// Executes a call in the store.
pub(super) async fn carry_out(
    store: &MemoryNode,
    address: u64,
    tenure: Duration,
    call: StoreCall,
) -> Result<StoreReply, StoreError> {
    let yes_or_no = |yes: bool| if yes { StoreReply::Yes } else { StoreReply::No };
    Ok(match call {
        StoreCall::Renew { is_leaving, prepared } => {
            let prepared = (0..16).filter(|shard| prepared & 1 << shard != 0).map(ShardId).collect();
            let address = address.to_string();
            let (host, certificate) = (String::new(), None);
            let announcement =
                limina_store::Announcement { address, host, is_leaving, tenure, certificate, prepared };
            StoreReply::Viewed(store.renew(announcement).await?)
        }
        StoreCall::EndTenure { node } => yes_or_no(store.end_tenure(node).await?),
        StoreCall::Claim { shard, seen } => yes_or_no(!store.claim(vec![(shard, seen)]).await?.is_empty()),
        StoreCall::Take { shard } => match store.take(shard).await {
            Ok(epoch) => StoreReply::Taken(epoch),
            Err(StoreError::NotOwned) => StoreReply::Fenced,
            Err(error) => return Err(error),
        },
        StoreCall::Prepare { shard, epoch } => match list(store, shard, epoch).await {
            Ok(list) => StoreReply::ShardState(list),
            Err(_) => StoreReply::Fenced,
        },
        StoreCall::Tail { shard, epoch, after } => match tail(store, shard, epoch, after).await {
            Ok(list) => StoreReply::ShardState(list),
            // Another node owns the shard by now.
            Err(_) => StoreReply::Fenced,
        },
        StoreCall::Append { shard, epoch, seq, number } => {
            let payload = number.to_le_bytes().to_vec().into();
            match store.append(shard, epoch, seq, payload).await {
                Ok(()) => StoreReply::Yes,
                Err(AppendError::Fenced) => StoreReply::Fenced,
                Err(error) => return Err(StoreError::Unavailable(error.to_string())),
            }
        }
        StoreCall::Confirm { shard, epoch } => match store.confirm(shard, epoch, Seq::ZERO).await {
            Ok(()) => StoreReply::Yes,
            Err(ConfirmError::Fenced) => StoreReply::Fenced,
            Err(ConfirmError::Failed(error)) => return Err(error),
        },
        StoreCall::Give { shard, epoch, to } => yes_or_no(store.give(shard, epoch, to, 0).await?),
        StoreCall::Leave => {
            store.leave().await?;
            StoreReply::Yes
        }
    })
}

/// The content of a shard.
pub(super) async fn list(store: &MemoryNode, shard: ShardId, epoch: Epoch) -> Result<Vec<u64>, StoreError> {
    tail(store, shard, epoch, Seq::ZERO).await
}

/// The content of a shard after its first appends.
async fn tail(store: &MemoryNode, shard: ShardId, epoch: Epoch, after: Seq) -> Result<Vec<u64>, StoreError> {
    let mut list = Vec::new();
    loop {
        let part = store.tail(shard, epoch, Seq(after.0 + list.len() as u64)).await?;
        if part.is_empty() {
            return Ok(list);
        }
        for (_, payload) in part {
            let bytes = payload.as_ref().try_into().expect("a number was appended");
            list.push(u64::from_le_bytes(bytes));
        }
    }
}
