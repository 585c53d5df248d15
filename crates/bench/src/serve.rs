//! Limina as a server, in a process of its own: the same parts as in the binary `limina`, with its defaults.

use crate::Failed;
use limina_node::{Metrics, Node, NodeOptions, Service};
use limina_server::App;
use limina_store::embedded::{Embedded, EmbeddedOptions};
use prometheus_client::registry::Registry;
use std::{net::SocketAddr, path::PathBuf, sync::Arc};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

/// The flags of `limina serve` that the benchmark uses.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Directory for the data
    #[arg(long)]
    data: PathBuf,
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let listener = TcpListener::bind(options.listen).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut registry = Registry::default();
    let node_metrics = Metrics::register(&mut registry);
    let server_metrics = limina_server::Metrics::register(&mut registry);
    let service = Service::new(node_metrics.clone());
    let app = App::new(Arc::new(service.clone()), server_metrics, Arc::new(registry));
    let store = Arc::new(Embedded::open(&options.data, EmbeddedOptions::default())?);
    let (shards, journal, table) = (store.shards(), store.clone(), store.clone());
    let node = Node::start(service, node_metrics, journal, table, shards, NodeOptions::default()).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    limina_server::serve(listener, app, async move {
        terminate.recv().await;
    })
    .await;
    node.stop().await;
    store.close().await?;
    Ok(())
}
