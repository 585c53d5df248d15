//! `limina status`: is the server well, and what does it hold?

use crate::{
    Exit, Failed, Session,
    health::{Health, at_most},
    metrics::Metrics,
    watch::Watch,
    words,
};
use limina_client::{
    Error,
    types::{Cluster, Node},
};
use std::time::Duration;

/// The time between two looks at the metrics. A disk that is slow now may have been fast since the start.
const LOOK: Duration = Duration::from_millis(500);

/// The arguments of `status`.
#[derive(clap::Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    watch: Watch,
}

pub(crate) async fn run(args: StatusArgs, session: &mut Session) -> Result<Exit, Failed> {
    args.watch.run(session, async |session| status(session).await).await
}

async fn status(session: &mut Session) -> Result<Exit, Failed> {
    let client = session.client.clone();
    let server = client.server();
    let ready = match server.ready().await {
        Ok(()) => true,
        // It answers that it is not ready: that is a status, and worth showing.
        Err(Error::Unavailable { failure, .. }) if failure.status.is_some() => false,
        Err(error) => return Err(error.into()),
    };
    let exit = if ready { Exit::Yes } else { Exit::Unavailable };
    let cluster = server.cluster().await;
    if !session.out.is_table() {
        session.out.line(cluster?.json());
        return Ok(exit);
    }
    let state = if ready { words::green("ready") } else { words::red("not ready") };
    session.out.line(format!("server      {}, {state}", words::printable(&session.connection.url)));
    let cluster = match cluster {
        Ok(cluster) => cluster,
        // A token that may use limits need not be allowed to look at the cluster.
        Err(Error::Forbidden(failure)) => {
            session.out.say(format!("nodes and shards: {failure}"));
            return Ok(exit);
        }
        Err(error) => return Err(error.into()),
    };
    show_cluster(session, &cluster);
    let namespace = session.connection.namespace.clone();
    if let Ok(place) = server.cluster_of(&namespace).await
        && let [shard] = place.shards.as_slice()
    {
        let owner = cluster.nodes.iter().find(|node| shard.owner.as_ref() == Some(&node.node));
        let owner = owner.map_or_else(|| words::or_dash(shard.owner.as_ref()), address);
        session.out.line(format!(
            "namespace   {} is in shard {} of node {owner}",
            words::printable(&namespace),
            shard.shard
        ));
    }
    let before = Health::of(&Metrics::parse(&server.metrics().await?));
    tokio::time::sleep(LOOK).await;
    let metrics = Metrics::parse(&server.metrics().await?);
    show_metrics(session, &metrics);
    show_health(session, &before, &Health::of(&metrics));
    Ok(exit)
}

/// Where the node is. A server with a data directory has only itself, and no address for other nodes.
fn address(node: &Node) -> String {
    words::printable(node.address.as_ref().unwrap_or(&node.node))
}

fn show_cluster(session: &mut Session, cluster: &Cluster) {
    let out = &mut session.out;
    for node in &cluster.nodes {
        let state = match (node.ready, node.leaving) {
            (_, true) => "leaving".to_owned(),
            (true, false) => "ready".to_owned(),
            (false, false) => words::red("not ready"),
        };
        let owned = cluster.shards.iter().filter(|shard| shard.owner.as_ref() == Some(&node.node)).count();
        let here = if node.node == cluster.node { ", answers here" } else { "" };
        out.line(format!(
            "node        {}: {state}, {}{here}",
            address(node),
            words::counted(owned as u64, "shard")
        ));
    }
    let open = cluster.shards.iter().filter(|shard| shard.open).count();
    let text = format!("shards      {open} of {} open", cluster.shards.len());
    out.line(if open < cluster.shards.len() { words::red(&text) } else { text });
}

/// What this node holds. In a cluster every node counts its own.
fn show_metrics(session: &mut Session, metrics: &Metrics) {
    let sum = |name: &str| metrics.sum(name, &[]) as i128;
    let counted = |name: &str, word: &str| words::counted(sum(name), word);
    let out = &mut session.out;
    out.line(format!("namespaces  {}", words::number(sum("limina_namespaces"))));
    out.line(format!(
        "limiter     {}, {}, {}",
        counted("limina_limiter_rules", "rule"),
        counted("limina_limiter_groups", "group"),
        counted("limina_limiter_leases", "lease"),
    ));
    out.line(format!(
        "locks       {} held, {} waiting for locks or slots",
        words::number(sum("limina_locks_held")),
        words::number(sum("limina_locks_waiting")),
    ));
    out.line(format!("decisions   {} open", words::number(sum("limina_decisions_open"))));
    out.line(format!("ledger      {}", counted("limina_ledger_limits", "limit")));
    out.line(format!("events      {}", counted("limina_event_streams", "stream")));
}

/// What this node lacks, and what it has refused for lack of it.
fn show_health(session: &mut Session, before: &Health, now: &Health) {
    let mib = |bytes: f64| words::number((bytes / f64::from(1 << 20)) as i128);
    let out = &mut session.out;
    out.line(format!("memory      {} MiB of {} MiB", mib(now.memory), mib(now.memory_limit)));
    let append = match (now.append_p99(Some(before)), now.append_p99(None)) {
        (Some(p99), _) => {
            format!("{} (99 of 100 of the last {})", at_most(p99), words::duration(LOOK.as_millis() as u64))
        }
        (None, Some(p99)) => format!("{} (99 of 100 since the start)", at_most(p99)),
        (None, None) => "nothing was written since the start".to_owned(),
    };
    out.line(format!("appends     {append}"));
    let refused = now.refused(None);
    if !refused.is_empty() {
        out.line(format!("refused     {} since the start", refused.join(", ")));
    }
    for trouble in now.troubles(before) {
        out.line(words::red(&format!("trouble     {trouble}")));
    }
}
