//! `limina status`: is the server well, and what does it hold?

use crate::{Exit, Failed, Session, metrics::Metrics, watch::Watch, words};
use limina_client::{Error, types::Cluster};

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
    match cluster {
        Ok(cluster) => show_cluster(session, &cluster),
        // A token that may use limits need not be allowed to look at the cluster.
        Err(Error::Forbidden(failure)) => {
            session.out.say(format!("nodes and shards: {failure}"));
            return Ok(exit);
        }
        Err(error) => return Err(error.into()),
    }
    let namespace = session.connection.namespace.clone();
    if let Ok(place) = server.cluster_of(&namespace).await
        && let [shard] = place.shards.as_slice()
    {
        let owner = words::or_dash(shard.owner.as_ref());
        session.out.line(format!(
            "namespace   {} is in shard {} of node {owner}",
            words::printable(&namespace),
            shard.shard
        ));
    }
    show_metrics(session, &Metrics::parse(&server.metrics().await?));
    Ok(exit)
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
            words::printable(&node.node),
            words::counted(owned as u64, "shard")
        ));
    }
    let open = cluster.shards.iter().filter(|shard| shard.open).count();
    let text = format!("shards      {open} of {} open", cluster.shards.len());
    out.line(if open < cluster.shards.len() { words::red(&text) } else { text });
}

/// What this node holds. In a cluster every node counts its own.
fn show_metrics(session: &mut Session, metrics: &Metrics) {
    let count = |name: &str| words::number(metrics.sum(name, &[]) as i128);
    let mib = |name: &str| words::number((metrics.sum(name, &[]) / f64::from(1 << 20)) as i128);
    let out = &mut session.out;
    out.line(format!("namespaces  {}", count("limina_namespaces")));
    out.line(format!(
        "limiter     {} rules, {} groups, {} leases",
        count("limina_limiter_rules"),
        count("limina_limiter_groups"),
        count("limina_limiter_leases"),
    ));
    out.line(format!(
        "locks       {} held, {} waiting for locks or slots",
        count("limina_locks_held"),
        count("limina_locks_waiting"),
    ));
    out.line(format!("decisions   {} open", count("limina_decisions_open")));
    out.line(format!("ledger      {} limits", count("limina_ledger_limits")));
    out.line(format!("events      {} streams", count("limina_event_streams")));
    out.line(format!(
        "memory      {} MiB of {} MiB",
        mib("limina_memory_bytes"),
        mib("limina_memory_limit_bytes"),
    ));
    if metrics.sum("limina_storage_full", &[]) > 0.0 {
        out.line(words::red("storage     full: writes are refused"));
    }
}
