//! A cluster of nodes that share a database: starts nodes, asks which node owns what, and finds the owner of a
//! namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Index;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use limina_pg_server::PgServer;
use serde_json::Value;

use crate::harness::{DEADLINE, Server, eventually, within};
use crate::reply::Reply;

pub(crate) const SHARDS: usize = 8;

/// The tenure for tests in which a node must soon count as dead.
pub(crate) const SHORT: &str = "1s";

/// The tenure for tests in which nothing may wait for a tenure to expire: none expires while a test runs.
pub(crate) const LONG: &str = "30s";

/// The deadline for everything that must not wait for a [`LONG`] tenure. Only a stalled machine takes longer.
pub(crate) const SOON: Duration = Duration::from_secs(25);

/// The database server of all tests, except those that disturb it.
pub(crate) fn postgres() -> &'static PgServer {
    static SERVER: OnceLock<PgServer> = OnceLock::new();
    SERVER.get_or_init(|| PgServer::start().expect("a private PostgreSQL"))
}

/// The address of a new database.
#[track_caller]
pub(crate) fn new_store() -> String {
    let server = postgres();
    server.url(&server.new_database().expect("a database"))
}

pub(crate) struct Cluster {
    nodes: Vec<Server>,
    store: String,
    tenure: &'static str,
}

impl Index<usize> for Cluster {
    type Output = Server;

    fn index(&self, node: usize) -> &Server {
        &self.nodes[node]
    }
}

impl Cluster {
    /// Starts nodes on a new database, and waits until every shard is where it belongs.
    #[track_caller]
    pub(crate) fn of(count: usize, tenure: &'static str) -> Cluster {
        Cluster::on(new_store(), count, tenure)
    }

    #[track_caller]
    pub(crate) fn on(store: String, count: usize, tenure: &'static str) -> Cluster {
        let mut cluster = Cluster::empty(store, tenure);
        for _ in 0..count {
            cluster.join();
        }
        cluster.settle(&(0..count).collect::<Vec<_>>());
        cluster
    }

    pub(crate) fn empty(store: String, tenure: &'static str) -> Cluster {
        Cluster { nodes: Vec::new(), store, tenure }
    }

    /// Starts one more node. It may not serve requests yet.
    #[track_caller]
    pub(crate) fn join(&mut self) -> usize {
        let store = self.store.clone();
        self.join_by(&store)
    }

    /// As `join`, but this node reaches the database through another URL.
    #[track_caller]
    pub(crate) fn join_by(&mut self, store: &str) -> usize {
        self.join_with(&flags(store, self.tenure))
    }

    #[track_caller]
    pub(crate) fn join_with(&mut self, flags: &[&str]) -> usize {
        self.nodes.push(Server::node([free_address(), free_address()], flags));
        self.nodes.len() - 1
    }

    /// As `join`, with other environment variables.
    #[track_caller]
    pub(crate) fn join_under(&mut self, environment: &[(&str, &str)]) -> usize {
        let flags = flags(&self.store, self.tenure);
        self.nodes.push(Server::node_under([free_address(), free_address()], &flags, environment));
        self.nodes.len() - 1
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&mut self, node: usize) -> &mut Server {
        &mut self.nodes[node]
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    /// One of the nodes, and all other nodes.
    pub(crate) fn apart(&mut self, node: usize) -> (&mut Server, Vec<&Server>) {
        let (before, rest) = self.nodes.split_at_mut(node);
        let (node, after) = rest.split_first_mut().expect("such a node");
        (node, before.iter().chain(after.iter()).collect())
    }

    /// Waits until these nodes agree on their shares and know no other nodes.
    #[track_caller]
    pub(crate) fn settle(&self, nodes: &[usize]) {
        self.settle_within(DEADLINE, nodes);
    }

    #[track_caller]
    pub(crate) fn settle_within(&self, patience: Duration, nodes: &[usize]) {
        settle(patience, &nodes.iter().map(|&node| &self[node]).collect::<Vec<_>>());
    }

    /// A namespace whose shard this node owns.
    #[track_caller]
    pub(crate) fn namespace_of(&self, node: usize) -> String {
        let view = View::of(&self[node]).expect("the node's view");
        let shard = view.owners.iter().position(|&owner| owner == Some(self[node].peer_address()));
        namespace_in(&self[node], shard.expect("the node owns a shard"))
    }

    /// The owner of the namespace according to one node. `None` while no node owns its shard.
    pub(crate) fn owner_of(&self, namespace: &str, seen_by: usize) -> Option<usize> {
        let shard = shard_of(&self[seen_by], namespace)?;
        let owner = View::of(&self[seen_by])?.owners[shard]?;
        self.nodes.iter().position(|node| node.peer_address() == owner)
    }

    /// Waits until another node owns the namespace.
    #[track_caller]
    pub(crate) fn await_new_owner(&self, namespace: &str, old: usize, seen_by: usize) -> usize {
        let new = eventually(|| self.owner_of(namespace, seen_by).filter(|&owner| owner != old));
        new.unwrap_or_else(|| panic!("{namespace} stayed with node {old}"))
    }
}

/// Waits until each of these nodes sees all of them and no others, until they agree, and until each has opened its
/// share.
#[track_caller]
pub(crate) fn settle(patience: Duration, nodes: &[&Server]) {
    let addresses: BTreeSet<SocketAddr> = nodes.iter().map(|node| node.peer_address()).collect();
    let mut views = Vec::new();
    let settled = within(patience, || {
        views = nodes.iter().map(|node| View::of(node)).collect();
        let first = views.first()?.as_ref()?;
        let agree = views.iter().all(|view| view.as_ref().is_some_and(|view| view.agrees_with(first)));
        let ready = nodes.iter().all(|node| is_ready(node));
        (agree && ready && first.is_fair_among(&addresses)).then_some(())
    });
    assert!(settled.is_some(), "not shared among {addresses:?} within {patience:?}: {views:#?}");
}

pub(crate) fn flags<'a>(store: &'a str, tenure: &'a str) -> [&'a str; 6] {
    ["--store", store, "--tenure", tenure, "--shards", "8"]
}

/// The name of a namespace in this shard.
#[track_caller]
pub(crate) fn namespace_in(node: &Server, shard: usize) -> String {
    let mut names = (0..).map(|n| format!("ns-{n}"));
    names
        .find(|name| shard_of(node, name).expect("the node answers") == shard)
        .expect("there are enough names")
}

/// The shard of a namespace. `None` while the node does not answer.
fn shard_of(node: &Server, namespace: &str) -> Option<usize> {
    let path = format!("/v1/cluster?namespace={namespace}");
    let body = Reply::try_to(node.http().get(node.url(&path))).ok()?.ok().body;
    Some(body["shards"][0]["shard"].as_u64().expect("the number of a shard") as usize)
}

/// An address below the range from which connections get their ports, so that nothing else uses it while its node is
/// down.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id() % 20_000;
    loop {
        let next = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (start + next) % 20_000;
        let address = (Ipv4Addr::LOCALHOST, u16::try_from(port).expect("a port")).into();
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// The view that a node gives of the whole cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    /// The nodes that are ready and do not leave. A node that died may still be listed for a while, as not ready.
    nodes: BTreeSet<SocketAddr>,
    /// The owner of each shard that is open.
    owners: Vec<Option<SocketAddr>>,
    pub(crate) epochs: Vec<u64>,
}

impl View {
    /// `None` while the node does not answer, or has not joined.
    pub(crate) fn of(node: &Server) -> Option<View> {
        let body = Reply::try_to(node.http().get(node.url("/v1/cluster"))).ok()?.ok().body;
        let joined = body["shards"].as_array().is_some_and(|shards| shards.len() == SHARDS);
        joined.then(|| View::read(&body))
    }

    #[track_caller]
    fn read(body: &Value) -> View {
        let list =
            |name: &str| body[name].as_array().unwrap_or_else(|| panic!("no `{name}`: {body}")).as_slice();
        let text = |item: &Value, name: &str| item[name].as_str().map(str::to_owned);
        let (mut nodes, mut addresses) = (BTreeSet::new(), BTreeMap::new());
        for item in list("nodes") {
            let address: SocketAddr =
                text(item, "address").and_then(|text| text.parse().ok()).expect("`address`");
            if item["ready"] == true && item["leaving"] == false {
                nodes.insert(address);
            }
            let before = addresses.insert(text(item, "node").expect("`node`"), address);
            assert_eq!(before, None, "a node twice: {body}");
        }
        let shards = list("shards");
        for (n, shard) in shards.iter().enumerate() {
            assert_eq!(shard["shard"], n, "{body}");
        }
        let owner = |shard: &Value| match shard["open"] == true {
            true => text(shard, "owner").and_then(|owner| addresses.get(&owner).copied()),
            false => None,
        };
        let epochs = shards.iter().map(|shard| shard["epoch"].as_u64().expect("`epoch`")).collect();
        View { nodes, owners: shards.iter().map(owner).collect(), epochs }
    }

    fn agrees_with(&self, other: &View) -> bool {
        (&self.nodes, &self.owners) == (&other.nodes, &other.owners)
    }

    /// Whether each of these nodes has its share, and no two shares differ by more than one shard.
    fn is_fair_among(&self, nodes: &BTreeSet<SocketAddr>) -> bool {
        let shares: Vec<usize> = nodes
            .iter()
            .map(|node| self.owners.iter().filter(|&&owner| owner == Some(*node)).count())
            .collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        self.nodes == *nodes
            && shares.iter().sum::<usize>() == SHARDS
            && least.zip(most).is_some_and(|(least, most)| most - least <= 1)
    }
}

pub(crate) fn is_ready(node: &Server) -> bool {
    Reply::try_to(node.http().get(node.url("/readyz"))).is_ok_and(|reply| reply.status == 200)
}

/// Repeats the request until the status is not 503.
#[track_caller]
pub(crate) fn retry(mut request: impl FnMut() -> reqwest::blocking::RequestBuilder) -> Reply {
    let mut last = None;
    let answer = eventually(|| match Reply::try_to(request()) {
        Ok(reply) if reply.status != 503 => Some(reply),
        other => {
            last = Some(other);
            None
        }
    });
    answer.unwrap_or_else(|| panic!("never answered; the last was {last:?}"))
}

/// The sum of a metric over its labels; 0 if the metric does not exist.
#[track_caller]
pub(crate) fn metric(node: &Server, name: &str) -> f64 {
    let text = node.get("/metrics").ok().text;
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{']).then(|| rest.split_whitespace().last()?.parse::<f64>().ok())?
    };
    text.lines().filter_map(value).sum()
}
