//! Nodes that share a database, each a process of this machine, and connections to them.

use crate::{
    Failed,
    http::{Connection, Http},
    load::{Contender, Work},
    measure::Measured,
    process::eventually,
};
use limina_node::shard_of;
use limina_wire::cluster::Cluster;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// All nodes; a connection is made to each in its turn.
pub(super) struct Nodes {
    program: PathBuf,
    store: String,
    tenure: Duration,
    nodes: Vec<Http>,
    next: AtomicUsize,
}

impl Nodes {
    pub(super) fn start(
        program: &Path,
        store: String,
        tenure: Duration,
        count: usize,
    ) -> Result<Nodes, Failed> {
        let program = program.to_owned();
        let mut nodes = Nodes { program, store, tenure, nodes: Vec::new(), next: AtomicUsize::new(0) };
        for _ in 0..count {
            nodes.add()?;
        }
        Ok(nodes)
    }

    /// Starts one more.
    pub(super) fn add(&mut self) -> Result<(), Failed> {
        self.nodes.push(Http::node(&self.program, &self.store, self.tenure)?);
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The first one, which always stays.
    pub(super) fn first(&self) -> &Http {
        &self.nodes[0]
    }

    /// Takes the last one out, which still runs.
    pub(super) fn remove_last(&mut self) -> Http {
        self.nodes.pop().expect("there is another one beside the first")
    }

    /// The number of each shard's owner, as soon as all nodes agree that each has its share.
    pub(super) async fn owners(&self) -> Result<Vec<usize>, Failed> {
        eventually(async || {
            let owners = self.seen_by(self.first()).await?;
            for node in &self.nodes[1..] {
                if self.seen_by(node).await? != owners {
                    return Err("the nodes do not agree who owns what".into());
                }
            }
            owners
                .filter(|owners| is_even(owners, self.nodes.len()))
                .ok_or_else(|| Failed::from("shards move"))
        })
        .await
    }

    /// Returns when a node sees every shard at one of these nodes.
    pub(super) async fn until_served(&self) -> Result<(), Failed> {
        eventually(async || match self.seen_by(self.first()).await? {
            Some(_) => Ok(()),
            None => Err(Failed::from("there are shards without a node")),
        })
        .await
    }

    /// The number of each shard's owner as this node sees it, if they are all among these nodes.
    async fn seen_by(&self, node: &Http) -> Result<Option<Vec<usize>>, Failed> {
        let mut connection = node.connect().await?;
        let (_, body) = connection.get("/cluster").await?;
        let cluster: Cluster = serde_json::from_slice(body)?;
        let number = |name: &String| {
            let node = cluster.nodes.iter().find(|node| node.node == *name && node.ready)?;
            let address = node.address.as_ref()?;
            self.nodes.iter().position(|node| node.address().to_string() == *address)
        };
        Ok(cluster.shards.iter().map(|shard| shard.owner.as_ref().and_then(number)).collect())
    }
}

/// Whether nobody has two more than another.
fn is_even(owners: &[usize], nodes: usize) -> bool {
    let shares = (0..nodes).map(|node| owners.iter().filter(|owner| **owner == node).count());
    let (least, most) = (shares.clone().min(), shares.max());
    least.zip(most).is_some_and(|(least, most)| most - least <= 1)
}

impl Contender for Nodes {
    type Client = Guest;

    async fn connect(&self) -> Result<Guest, Failed> {
        let node = self.next.fetch_add(1, Ordering::Relaxed) % self.nodes.len();
        Ok(Guest { node, connection: self.nodes[node].connect().await? })
    }

    fn process(&self) -> Option<u32> {
        None
    }

    fn cpu_time(&self) -> Option<Duration> {
        self.nodes.iter().map(Http::cpu_time).sum()
    }

    async fn stop(self) -> Result<(), Failed> {
        for node in self.nodes {
            node.stop().await?;
        }
        Ok(())
    }
}

/// A connection to one of the nodes.
pub(super) struct Guest {
    node: usize,
    pub(super) connection: Connection,
}

/// A namespace in each shard, by the number of the shard.
pub(super) fn namespaces(purpose: &str, shards: usize) -> Vec<String> {
    let name = |number: usize| format!("{purpose}-{number}");
    let is_in = |name: &String, shard| usize::from(shard_of(name, shards as u16).0) == shard;
    (0..shards)
        .map(|shard| (0..).map(name).find(|name| is_in(name, shard)).expect("there are enough numbers"))
        .collect()
}

/// Which requests a node is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Of all shards.
    Any,
    /// Of shards that it owns.
    Local,
    /// Of shards that another one owns.
    Forwarded,
}

/// The same work in one namespace after the other.
pub(super) struct Spread<W> {
    /// Those of which a node is asked, by the number of the node.
    namespaces: Arc<[Vec<String>]>,
    next: usize,
    work: W,
}

impl<W> Spread<W> {
    /// Clients do not begin in the same namespace.
    pub(super) fn new(namespaces: Arc<[Vec<String>]>, client: usize, work: W) -> Spread<W> {
        Spread { namespaces, next: client, work }
    }
}

impl Way {
    /// The namespaces of which each node is asked; there is one in each shard.
    pub(super) fn choose(self, namespaces: &[String], owners: &[usize], nodes: usize) -> Arc<[Vec<String>]> {
        let of = |node: usize| {
            let all = namespaces.iter().zip(owners);
            let chosen = all.filter(|(_, owner)| match self {
                Way::Any => true,
                Way::Local => **owner == node,
                Way::Forwarded => **owner != node,
            });
            chosen.map(|(namespace, _)| namespace.clone()).collect()
        };
        (0..nodes).map(of).collect()
    }
}

impl<W: Work<Connection>> Work<Guest> for Spread<W> {
    async fn step(&mut self, guest: &mut Guest, count: u64, measured: &mut Measured) -> Result<(), Failed> {
        let namespaces = &self.namespaces[guest.node];
        guest.connection.enter(&namespaces[self.next % namespaces.len()]);
        self.next += 1;
        self.work.step(&mut guest.connection, count, measured).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shard_has_a_namespace() {
        for (shard, name) in namespaces("test", 64).iter().enumerate() {
            assert_eq!(usize::from(shard_of(name, 64).0), shard);
        }
    }

    #[test]
    fn nodes_are_asked_of_their_own_shards_or_of_others() {
        #[track_caller]
        fn check(way: Way, expect: [&str; 2]) {
            let names = ["a", "b", "c"].map(str::to_owned);
            let chosen = way.choose(&names, &[1, 0, 1], 2);
            assert_eq!(chosen.iter().map(|names| names.concat()).collect::<Vec<_>>(), expect);
        }
        check(Way::Any, ["abc", "abc"]);
        check(Way::Local, ["b", "ac"]);
        check(Way::Forwarded, ["ac", "b"]);
    }

    #[test]
    fn shares_are_even_when_nobody_has_two_more() {
        assert!(is_even(&[0, 1, 0, 1, 2], 3));
        assert!(!is_even(&[0, 1, 0, 1], 3));
    }
}
