//! `limina serve`: from the configuration to a running server, and from SIGTERM to the end.

use crate::{
    config::{Config, ServeArgs},
    logs,
    rules::{Gate, RulesFile},
};
use limina_node::{Metrics, Node, NodeOptions, Service};
use limina_server::App;
use limina_store::{
    ShardStoreOptions,
    embedded::{Embedded, EmbeddedOptions},
};
use prometheus_client::registry::Registry;
use std::{error::Error, future::Future, sync::Arc};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

const MIB: u64 = 1 << 20;

/// Serves until told to stop.
pub(crate) fn serve(args: ServeArgs) -> Result<(), Box<dyn Error>> {
    let config = args.resolve()?;
    logs::start(&config)?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(config))
}

async fn run(config: Config) -> Result<(), Box<dyn Error>> {
    // The address is taken first: it is the likelier mistake, and a probe is answered "not ready" from now on.
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    let address = listener.local_addr()?;
    let stop = stop_signal()?;
    // Looked at before the store is: a start that fails for it has done nothing.
    let rules = config.rules.as_deref().map(RulesFile::open).transpose()?;

    let mut registry = Registry::default();
    let node_metrics = Metrics::register(&mut registry);
    let server_metrics = limina_server::Metrics::register(&mut registry);
    let service = Service::new(node_metrics.clone());
    let gate = Arc::new(Gate::closed(service.clone()));
    let app = App::new(gate.clone(), server_metrics, Arc::new(registry));
    let (stop_serving, stopped) = tokio::sync::oneshot::channel::<()>();
    let front = tokio::spawn(limina_server::serve(listener, app, async move {
        let _closed_means_stop = stopped.await;
    }));

    let options = EmbeddedOptions {
        shards: config.shards,
        segment_bytes: config.journal_segment_mib * MIB,
        reserve_bytes: config.storage_reserve_mib.map(|mib| mib * MIB),
        ..EmbeddedOptions::default()
    };
    let data = config.data.clone();
    let store = Arc::new(tokio::task::spawn_blocking(move || Embedded::open(&data, options)).await??);
    let shards = store.shards();
    let checkpoint_bytes = usize::try_from(config.checkpoint_mib * MIB)?;
    let options = NodeOptions {
        store: ShardStoreOptions {
            soft_bytes: checkpoint_bytes,
            hard_bytes: checkpoint_bytes.saturating_mul(4),
        },
        journal_bytes: config.journal_mib * MIB,
        ..NodeOptions::default()
    };
    let node =
        Node::start(service.clone(), node_metrics, store.clone(), store.clone(), shards, options).await?;
    let ready = || {
        gate.open();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            "limina listening on http://{address}, data in {}",
            config.data.display()
        );
    };
    match rules {
        None => {
            ready();
            stop.await;
        }
        Some(rules) => tokio::select! {
            never = rules.run(service.clone(), ready) => match never {},
            () = stop => {}
        },
    }
    tracing::info!("stopping: answering what was taken, refusing what is new");
    // What was taken is answered while new requests still find somebody who tells them to go elsewhere.
    service.begin_stop();
    node.stop().await;
    let _front_is_gone = stop_serving.send(());
    front.await?;
    store.close().await?;
    tracing::info!("stopped");
    Ok(())
}

/// SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()>, Box<dyn Error>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
