//! `limina serve`: from the configuration to a running server, and from SIGTERM to the end.

use crate::{
    clock,
    config::{Config, ServeArgs},
    descriptors::Descriptors,
    logs,
    rules::{Gate, RulesFile},
    running::Running,
};
use limina_node::{Metrics, Service};
use limina_server::App;
use prometheus_client::registry::Registry;
use std::{error::Error, future::Future, pin::pin, sync::Arc};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

/// Serves until told to stop.
pub(crate) fn serve(args: ServeArgs) -> Result<(), Box<dyn Error>> {
    let config = args.resolve()?;
    logs::start(&config)?;
    clock::check()?;
    let descriptors = Descriptors::prepare(&config)?;
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(config, descriptors))
}

async fn run(config: Config, descriptors: Descriptors) -> Result<(), Box<dyn Error>> {
    // The address is taken first: it is the likelier mistake, and a probe is answered "not ready" from now on.
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
    let address = listener.local_addr()?;
    let stop = stop_signal()?;
    // Looked at before the store is: a start that fails for it has done nothing.
    let rules = config.rules.as_deref().map(RulesFile::open).transpose()?;

    let mut registry = Registry::default();
    let node_metrics = Metrics::new();
    node_metrics.register(&mut registry);
    let server_metrics = limina_server::Metrics::register(&mut registry);
    let service = Service::new(node_metrics.clone());
    let gate = Arc::new(Gate::closed(service.clone()));
    let app = App::new(gate.clone(), server_metrics, Arc::new(registry));
    app.limit_connections(descriptors.connections);
    let (stop_serving, stopped) = tokio::sync::oneshot::channel::<()>();
    let front = tokio::spawn(limina_server::serve(listener, app.clone(), async move {
        let _closed_means_stop = stopped.await;
    }));

    let mut stop = pin!(stop);
    let running = tokio::select! {
        running = Running::start(&config, address, &descriptors, service.clone(), node_metrics, &app) => running?,
        () = &mut stop => {
            tracing::info!("stopped before the store was open");
            return Ok(());
        }
    };
    let ready = || {
        gate.open();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            "limina listening on http://{address}, data in {}",
            if config.store.is_some() { "PostgreSQL".into() } else { config.data.display().to_string() }
        );
    };
    let serving = async {
        service.until_served().await;
        match rules {
            None => {
                ready();
                std::future::pending().await
            }
            Some(rules) => rules.run(service.clone(), ready).await,
        }
    };
    let failed = tokio::select! {
        never = serving => match never {},
        failed = running.failed(&service) => Some(failed),
        () = stop => None,
    };
    if let Some(failed) = &failed {
        tracing::error!(error = failed.source(), "{failed}; the process ends");
    }
    tracing::info!("stopping: draining accepted requests, rejecting new ones");
    // What was taken is answered while new requests still find somebody who tells them to go elsewhere.
    service.begin_stop();
    let end_front = async || {
        let _front_is_gone = stop_serving.send(());
        if let Err(error) = front.await {
            tracing::error!(%error, "the front end failed");
        }
    };
    running.stop(end_front).await?;
    tracing::info!("stopped");
    failed.map_or(Ok(()), |failed| Err(failed.into()))
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
