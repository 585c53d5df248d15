//! Nodes that share a database, each a process of this machine, and connections to them.

use crate::{
    Failed,
    http::{Connection, Http},
    load::{Contender, Work},
    measure::Measured,
    process::eventually,
};
use limina_api::cluster::Cluster;
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// All nodes. Connections are made to the nodes in turn.
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

    /// Starts another node.
    pub(super) fn add(&mut self) -> Result<(), Failed> {
        self.nodes.push(Http::node(&self.program, &self.store, self.tenure)?);
        Ok(())
    }

    pub(super) fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The first node, which is never removed.
    pub(super) fn first(&self) -> &Http {
        &self.nodes[0]
    }

    /// Removes the last node, which still runs.
    pub(super) fn remove_last(&mut self) -> Http {
        self.nodes.pop().expect("there is another one beside the first")
    }

    /// Waits until the shards are spread evenly and all nodes agree on their owners. Returns the number of each shard's
    /// owner.
    pub(super) async fn owners(&self) -> Result<Vec<usize>, Failed> {
        eventually(async || {
            let owners = self.seen_by(self.first()).await?;
            for node in &self.nodes[1..] {
                if self.seen_by(node).await? != owners {
                    return Err("the nodes do not agree on the owners of shards".into());
                }
            }
            owners
                .filter(|owners| is_even(owners, self.nodes.len()))
                .ok_or_else(|| Failed::from("the shards are not spread evenly"))
        })
        .await
    }

    /// Waits until the first node reports an owner among these nodes for every shard.
    pub(super) async fn until_served(&self) -> Result<(), Failed> {
        eventually(async || match self.seen_by(self.first()).await? {
            Some(_) => Ok(()),
            None => Err(Failed::from("there are shards without an owner")),
        })
        .await
    }

    /// A namespace in each shard, by the number of the shard. Only the nodes know the key of the hash that chooses a
    /// namespace's shard, so the first one is asked, name by name.
    pub(super) async fn namespaces(&self, purpose: &str, shards: usize) -> Result<Vec<String>, Failed> {
        let mut connection = self.first().connect().await?;
        let mut found = vec![None; shards];
        let mut number = 0;
        while found.iter().any(Option::is_none) {
            let name = format!("{purpose}-{number}");
            let (_, body) = connection.get(&format!("/cluster?namespace={name}")).await?;
            let cluster: Cluster = serde_json::from_slice(body)?;
            let shard = cluster.shards.first().and_then(|shard| found.get_mut(usize::from(shard.shard)));
            shard.ok_or("the node does not say in which shard a namespace is")?.get_or_insert(name);
            number += 1;
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// The number of each shard's owner according to this node; none if some owner is not among these nodes.
    async fn seen_by(&self, node: &Http) -> Result<Option<Vec<usize>>, Failed> {
        let mut names = Vec::new();
        for node in &self.nodes {
            names.push(view_of(node).await?.node);
        }
        let cluster = view_of(node).await?;
        let number = |owner: &String| {
            let owner = cluster.nodes.iter().find(|node| node.node == *owner && node.ready)?;
            names.iter().position(|name| *name == owner.node)
        };
        Ok(cluster.shards.iter().map(|shard| shard.owner.as_ref().and_then(number)).collect())
    }
}

/// All nodes and shards as this node sees them.
async fn view_of(node: &Http) -> Result<Cluster, Failed> {
    let mut connection = node.connect().await?;
    let (_, body) = connection.get("/cluster").await?;
    Ok(serde_json::from_slice(body)?)
}

/// Whether no node has two shards more than another.
fn is_even(owners: &[usize], nodes: usize) -> bool {
    let shares = (0..nodes).map(|node| owners.iter().filter(|owner| **owner == node).count());
    let (least, most) = (shares.clone().min(), shares.max());
    least.zip(most).is_some_and(|(least, most)| most - least <= 1)
}

impl Contender for Nodes {
    type Client = NodeConnection;

    async fn connect(&self) -> Result<NodeConnection, Failed> {
        let node = self.next.fetch_add(1, Ordering::Relaxed) % self.nodes.len();
        Ok(NodeConnection { node, connection: self.nodes[node].connect().await? })
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
pub(super) struct NodeConnection {
    node: usize,
    pub(super) connection: Connection,
}

/// The shards for which a node receives requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// All shards.
    Any,
    /// Shards that the node owns.
    Local,
    /// Shards that another node owns.
    Forwarded,
}

/// Does the same work in one namespace after the other.
pub(super) struct Spread<W> {
    /// The namespaces for which a node receives requests, by the number of the node.
    namespaces: Arc<[Vec<String>]>,
    next: usize,
    work: W,
}

impl<W> Spread<W> {
    /// Each client begins with another namespace.
    pub(super) fn new(namespaces: Arc<[Vec<String>]>, client: usize, work: W) -> Spread<W> {
        Spread { namespaces, next: client, work }
    }
}

impl Route {
    /// The namespaces for which each node receives requests, out of one namespace in each shard.
    pub(super) fn choose(self, namespaces: &[String], owners: &[usize], nodes: usize) -> Arc<[Vec<String>]> {
        let of = |node: usize| {
            let all = namespaces.iter().zip(owners);
            let chosen = all.filter(|(_, owner)| match self {
                Route::Any => true,
                Route::Local => **owner == node,
                Route::Forwarded => **owner != node,
            });
            chosen.map(|(namespace, _)| namespace.clone()).collect()
        };
        (0..nodes).map(of).collect()
    }
}

impl<W: Work<Connection>> Work<NodeConnection> for Spread<W> {
    async fn step(
        &mut self,
        client: &mut NodeConnection,
        count: u64,
        measured: &mut Measured,
    ) -> Result<(), Failed> {
        let namespaces = &self.namespaces[client.node];
        client.connection.enter(&namespaces[self.next % namespaces.len()]);
        self.next += 1;
        self.work.step(&mut client.connection, count, measured).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_choose_the_shards_of_the_node_or_of_others() {
        #[track_caller]
        fn check(route: Route, expect: [&str; 2]) {
            let names = ["a", "b", "c"].map(str::to_owned);
            let chosen = route.choose(&names, &[1, 0, 1], 2);
            assert_eq!(chosen.iter().map(|names| names.concat()).collect::<Vec<_>>(), expect);
        }
        check(Route::Any, ["abc", "abc"]);
        check(Route::Local, ["b", "ac"]);
        check(Route::Forwarded, ["ac", "b"]);
    }

    #[test]
    fn shares_are_even_if_no_node_has_two_more() {
        assert!(is_even(&[0, 1, 0, 1, 2], 3));
        assert!(!is_even(&[0, 1, 0, 1], 3));
    }
}
