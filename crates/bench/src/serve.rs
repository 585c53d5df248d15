//! Limina as a server, with the same parts and defaults as the binary `limina`.

use crate::Failed;
use limina_api::duration;
use limina_engine::{
    Command, Name, Outcome, Request,
    limiter::{self, Change, NewRule, NewRuleSet, RuleChange, SetAuthor, SetOverrides, SetRule},
};
use limina_node::{Joining, Metrics, Node, NodeOptions, Service};
use limina_server::{App, AppOptions, EnvoyLimits, PeerClient};
use limina_store::{
    NodeId,
    embedded::{Embedded, EmbeddedOptions},
    postgres::{Postgres, PostgresOptions},
};
use prometheus_client::registry::Registry;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};

/// More than any benchmark has nodes.
const MAX_PEER_CONNECTIONS: usize = 256;

/// The flags of `limina serve` that the benchmark uses.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Address to listen on
    #[arg(long)]
    listen: SocketAddr,
    /// Directory for the data
    #[arg(long, required_unless_present = "store")]
    data: Option<PathBuf>,
    /// Database that nodes share
    #[arg(long)]
    store: Option<String>,
    /// File of Envoy's limits
    #[arg(long)]
    envoy_config: Option<PathBuf>,
    /// Address to listen on for other nodes
    #[arg(long, default_value = "127.0.0.1:0")]
    peer_listen: SocketAddr,
    /// Time after which the shards of a silent node are taken over
    #[arg(long, default_value = "5s")]
    tenure: duration::Duration,
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let listener = TcpListener::bind(options.listen).await?;
    let address = listener.local_addr()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut registry = Registry::default();
    let metrics = Metrics::new();
    metrics.register(&mut registry);
    let server_metrics = limina_server::Metrics::register(&mut registry);
    let service = Service::new(metrics.clone());
    let limits = EnvoyLimits::default();
    let app_options = AppOptions { envoy: Some(limits.clone()), ..AppOptions::default() };
    let app = App::new(Arc::new(service.clone()), server_metrics, Arc::new(registry), app_options);
    let (stop_serving, stopped) = watch::channel(false);
    let stopped = move || {
        let mut stopped = stopped.clone();
        Box::pin(async move {
            let _closed_means_stop = stopped.wait_for(|is_stopped| *is_stopped).await;
        })
    };
    let front = tokio::spawn(limina_server::serve(listener, app.clone(), stopped()));
    let mut embedded = None;
    let node = match &options.store {
        Some(url) => {
            let listener = TcpListener::bind(options.peer_listen).await?;
            let (address, peers) =
                (listener.local_addr()?, Arc::new(PeerClient::new(service.memory().clone())?));
            tokio::spawn(limina_server::serve_peers(
                listener,
                app,
                peers.clone(),
                MAX_PEER_CONNECTIONS,
                stopped(),
            ));
            join(url, address, peers, options.tenure, &service, metrics).await?
        }
        None => {
            let data = options.data.unwrap_or_default();
            let store = embedded.insert(Arc::new(Embedded::open(&data, EmbeddedOptions::default())?));
            let (journal, table, sharding) = (store.clone(), store.clone(), store.sharding());
            Node::start(service.clone(), metrics, journal, table, sharding, NodeOptions::default()).await?
        }
    };
    service.until_served().await;
    if let Some(path) = &options.envoy_config {
        limits.set(apply_envoy_config(path, &service).await?);
    }
    eprintln!("listening on http://{address}");
    terminate.recv().await;
    service.begin_stop();
    node.stop().await;
    stop_serving.send_replace(true);
    front.await?;
    match embedded {
        Some(store) => Ok(store.close().await?),
        None => Ok(()),
    }
}

/// Makes the rules of Envoy's limits.
async fn apply_envoy_config(path: &Path, service: &Service) -> Result<limina_envoy::Config, Failed> {
    let text = std::fs::read_to_string(path)?;
    let config =
        limina_envoy::load([("limits.yaml", text.as_str())]).map_err(|problems| format!("{problems:?}"))?;
    for domain in config.domains() {
        let rule = |rule: &NewRule| SetRule { rule: rule.clone(), overrides: Vec::new() };
        let new =
            NewRuleSet { rules: domain.rules().iter().map(rule).collect(), overrides: SetOverrides::Open };
        let set = Name::new("envoy").map_err(|error| error.to_string())?;
        let change = RuleChange::new(Change::PutRuleSet { set, new, author: SetAuthor::Server });
        let change = change.map_err(|error| error.to_string())?;
        let command = Command::Limiter(limiter::Command::Change(change));
        let outcome = service.submit(Request::new(domain.name().clone(), command)).await;
        if !matches!(outcome, Ok(Outcome::Limiter(Ok(_)))) {
            return Err(format!("the limits were not applied: {outcome:?}").into());
        }
    }
    Ok(config)
}

/// Starts a node of a cluster that shares a database.
async fn join(
    url: &str,
    address: SocketAddr,
    peers: Arc<PeerClient>,
    tenure: duration::Duration,
    service: &Service,
    metrics: Metrics,
) -> Result<Node, Failed> {
    // All nodes of a benchmark are processes of one machine.
    let node = NodeId(std::process::id().into());
    let tenure = Duration::from_millis(tenure.millis);
    let options = PostgresOptions { node, shards: None, patience: tenure };
    let store = Arc::new(Postgres::connect(url, options).await?);
    let joining = Joining { address: address.to_string(), host: String::new(), tenure, peers };
    let sharding = store.sharding();
    Ok(Node::join(service.clone(), metrics, store, sharding, joining, NodeOptions::default()).await?)
}
