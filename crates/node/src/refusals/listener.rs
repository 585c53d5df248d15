//! A listener: an operator who watches what is being refused, by any node.

use super::{RefusalsPage, RefusalsRequest, RefusedRequest};
use crate::{
    Service,
    memory::{Kind, MemoryFull, Priority, Reservation},
};
use limina_engine::Name;
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{Interval, MissedTickBehavior, interval, sleep, timeout},
};

/// The memory of a listener: a page of each of a few nodes, and the page that its client has not taken yet.
const LISTENER_BYTES: usize = 256 << 10;
/// How often a listener looks for new nodes.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long to wait before a node that did not answer is asked again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// How long another node waits for refusals before it answers that there are none.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// Refusals as they happen, and how many were missed.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusalNews {
    /// The refusals, by time.
    pub items: Vec<RefusedRequest>,
    /// How many refusals this listener was too slow for, since the news before.
    pub missed: u64,
}

/// Receives refusals: first those in the rings of all nodes, then new ones. Created by [`Service::listen_to_refusals`]. It takes
/// pages from the rings when it is asked, so a slow listener misses refusals instead of holding memory.
pub struct RefusalListener {
    service: Service,
    namespace: Option<Name>,
    after: u64,
    /// Pages of other nodes. Each node's task waits until its last page is taken.
    others: mpsc::Receiver<RefusalsPage>,
    sender: mpsc::Sender<RefusalsPage>,
    followed: BTreeMap<String, AbortHandle>,
    tasks: JoinSet<()>,
    look: Interval,
    _memory: Reservation,
}

/// The node is stopping. There are no more refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningEnded;

impl Service {
    /// Listens to what is refused from now on, in one namespace or in all, by all nodes. First the listener receives what is in
    /// the rings.
    pub fn listen_to_refusals(&self, namespace: Option<Name>) -> Result<RefusalListener, MemoryFull> {
        let memory = self.memory().reserve(Kind::Streams, LISTENER_BYTES, Priority::Buffer)?;
        let (sender, others) = mpsc::channel(1);
        let mut look = interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(RefusalListener {
            service: self.clone(),
            namespace,
            after: 0,
            others,
            sender,
            followed: BTreeMap::new(),
            tasks: JoinSet::new(),
            look,
            _memory: memory,
        })
    }

    /// A page of this node's ring, for another node. If there is nothing new, it waits for a while.
    pub async fn refusals_for_peer(&self, request: RefusalsRequest) -> RefusalsPage {
        let refusals = self.refusals();
        let wait = async {
            loop {
                let mut news = pin!(refusals.news.notified());
                news.as_mut().enable();
                let page = refusals.page(&request);
                if !page.items.is_empty() || page.missed > 0 || refusals.is_stopping() {
                    return page;
                }
                news.await;
            }
        };
        match timeout(LONGEST_POLL, wait).await {
            Ok(page) => page,
            Err(_) => refusals.page(&request),
        }
    }
}

impl RefusalListener {
    /// The next refusals. Waits until there are any.
    pub async fn next(&mut self) -> Result<RefusalNews, ListeningEnded> {
        let service = self.service.clone();
        let refusals = service.refusals();
        let mut news = RefusalNews { items: Vec::new(), missed: 0 };
        loop {
            let mut local_news = pin!(refusals.news.notified());
            local_news.as_mut().enable();
            let page =
                refusals.page(&RefusalsRequest { after: self.after, namespace: self.namespace.clone() });
            self.after = page.next;
            news.add(page);
            while let Ok(page) = self.others.try_recv() {
                news.add(page);
            }
            if !news.items.is_empty() || news.missed > 0 {
                news.items.sort_by_key(|refused| refused.time);
                return Ok(news);
            }
            if refusals.is_stopping() {
                return Err(ListeningEnded);
            }
            tokio::select! {
                () = local_news => {}
                page = self.others.recv() => news.add(page.ok_or(ListeningEnded)?),
                _ = self.look.tick() => self.follow_others(),
            }
        }
    }

    /// Begins to follow new nodes, and stops following those that have left.
    fn follow_others(&mut self) {
        let cluster = self.service.cluster();
        let others = cluster.nodes.into_iter().filter(|node| node.node != cluster.me);
        let addresses: BTreeSet<String> = others.filter_map(|node| node.address).collect();
        self.followed.retain(|address, task| {
            let is_there = addresses.contains(address);
            if !is_there {
                task.abort();
            }
            is_there
        });
        while self.tasks.try_join_next().is_some() {}
        for address in addresses {
            if !self.followed.contains_key(&address) {
                let following = follow(
                    self.service.clone(),
                    address.clone(),
                    self.namespace.clone(),
                    self.sender.clone(),
                );
                self.followed.insert(address, self.tasks.spawn(following));
            }
        }
    }
}

impl RefusalNews {
    fn add(&mut self, page: RefusalsPage) {
        self.items.extend(page.items);
        self.missed += page.missed;
    }
}

/// Asks another node for page after page of its ring.
async fn follow(
    service: Service,
    address: String,
    namespace: Option<Name>,
    sender: mpsc::Sender<RefusalsPage>,
) {
    let Some(others) = service.others() else { return };
    let mut request = RefusalsRequest { after: 0, namespace };
    loop {
        match others.peers().refusals(&address, &request).await {
            Ok(page) => {
                request.after = page.next;
                let is_empty = page.items.is_empty() && page.missed == 0;
                if !is_empty && sender.send(page).await.is_err() {
                    return;
                }
            }
            Err(_) => sleep(RETRY_PAUSE).await,
        }
    }
}
