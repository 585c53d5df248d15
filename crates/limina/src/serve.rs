//! `limina serve`: from the configuration to a running server, and from SIGTERM to the end.

use crate::{
    access::{self, TokensFile},
    clock,
    config::Config,
    descriptors::Descriptors,
    envoy::EnvoyFiles,
    listen::Listen,
    logs,
    memory::{self, MemoryLimit},
    open::{Joining, advertised, open},
    process_metrics,
    rules::{Gate, RulesFile},
    settings::Settings,
    tls::TlsWatch,
};
use futures_util::future::OptionFuture;
use limina_embed::{Limina, Metrics, Service};
use limina_node::{Budget, memory::Kind};
use limina_server::{App, AppOptions, EnvoyLimits, PeerClient, Policy, Shutdown};
use limina_store::StoreError;
use prometheus_client::registry::Registry;
use std::{
    convert::Infallible,
    error::Error,
    future::Future,
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinHandle,
};

/// The longest time that stopping may take: longer than the time that requests in progress have, and shorter than supervisors
/// usually wait.
const STOP_WITHIN: Duration = Duration::from_secs(25);
/// The same for a node among others, which also waits for the next owners of its shards.
const LEAVE_WITHIN: Duration = Duration::from_secs(30);

/// The longest time that a request waits at a node among others that has just started. The other nodes serve meanwhile, so it
/// can forward the request as soon as it has its share. Loading a share of large shards takes some seconds.
const STARTING_WAIT: Duration = Duration::from_secs(10);
/// How long a stopping node among others serves at least, while it reports that it is not ready and closes each client's
/// connection after the next answer: load balancers and clients have this time to go elsewhere.
const LAME_DUCK: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT, or until the instance fails.
pub(crate) fn serve(settings: Settings) -> Result<(), Box<dyn Error>> {
    let small_arenas = memory::shrink_arenas();
    let config = Config::new(settings)?;
    logs::start(&config)?;
    if let Err(error) = small_arenas {
        tracing::warn!(%error, "the process could not be restarted with settings for its limited address space");
    }
    clock::check()?;
    let descriptors = Descriptors::prepare(&config)?;
    let memory_limit = MemoryLimit::of(&config);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().max_blocking_threads(memory_limit.blocking_threads());
    runtime.build()?.block_on(run(config, descriptors, memory_limit))
}

/// The addresses that the server listens on.
struct Listeners {
    clients: TcpListener,
    peers: Option<TcpListener>,
    envoy: Option<TcpListener>,
}

impl Listeners {
    async fn bind(config: &Config) -> Result<Listeners, String> {
        let bind = async |listen: &Listen| {
            listen.bind().await.map_err(|error| format!("cannot listen on {listen}: {error}"))
        };
        Ok(Listeners {
            clients: bind(&config.listen).await?,
            peers: OptionFuture::from(config.peer_listen.as_ref().map(bind)).await.transpose()?,
            envoy: OptionFuture::from(config.envoy_listen.as_ref().map(bind)).await.transpose()?,
        })
    }
}

/// The files besides the configuration. They are followed while the server runs.
struct Files {
    tokens: Option<TokensFile>,
    /// The tokens that are accepted.
    policy: Policy,
    envoy: Option<EnvoyFiles>,
    /// What the files of Envoy's limits say.
    envoy_limits: EnvoyLimits,
    rules: Option<RulesFile>,
    tls: Option<TlsWatch>,
}

impl Files {
    fn open(config: &Config, listeners: &Listeners) -> Result<Files, Box<dyn Error>> {
        let tokens = config.tokens.as_deref().map(TokensFile::open).transpose()?;
        let policy = access::policy(config, tokens.as_ref(), listeners.clients.local_addr()?)?;
        if let Some(listener) = &listeners.envoy {
            access::policy(config, tokens.as_ref(), listener.local_addr()?)?;
        }
        let envoy_limits = EnvoyLimits::new(config.envoy_count_refused.clone());
        let envoy = config.envoy_config.as_deref().map(|path| EnvoyFiles::open(path, envoy_limits.clone()));
        Ok(Files {
            tokens,
            policy,
            envoy: envoy.transpose()?,
            envoy_limits,
            rules: config.rules.as_deref().map(RulesFile::open).transpose()?,
            tls: config.tls.clone().map(TlsWatch::open).transpose()?,
        })
    }
}

async fn run(
    config: Config,
    descriptors: Descriptors,
    memory_limit: MemoryLimit,
) -> Result<(), Box<dyn Error>> {
    // Bind the addresses first: a wrong address is the likelier mistake, and probes are answered with "not ready" from now on.
    let listeners = Listeners::bind(&config).await?;
    let address = listeners.clients.local_addr()?;
    let stop = stop_signal()?;
    // Read the files before the store is opened: a start that fails because of a file has changed nothing.
    let Files { tokens, policy, envoy, envoy_limits, rules, tls } = Files::open(&config, &listeners)?;
    let scheme = if tls.is_some() { "https" } else { "http" };

    let mut registry = Registry::default();
    let node_metrics = Metrics::new();
    node_metrics.register(&mut registry);
    let server_metrics = limina_server::Metrics::register(&mut registry);
    process_metrics::register(&mut registry, config.store.is_none().then(|| config.data.clone()));
    let memory = Budget::new(memory_limit.bytes, &node_metrics);
    // The cache fills up sooner or later, so all of it counts from the start. PostgreSQL caches in its own processes.
    let cache_bytes = if config.store.is_none() { memory_limit.cache_bytes() } else { 0 };
    let _cache = memory.reserve_anyway(Kind::Cache, usize::try_from(cache_bytes)?);
    tracing::info!(memory_mib = memory_limit.bytes >> 20, "memory budget");
    let service = Service::with_memory(node_metrics.clone(), memory.clone());
    let max_wait = if config.store.is_some() { STARTING_WAIT } else { Duration::ZERO };
    let gate = Arc::new(Gate::closed(service.clone(), max_wait));
    let options = AppOptions {
        policy,
        tls: tls.as_ref().map(TlsWatch::tls),
        envoy: envoy.is_some().then_some(envoy_limits),
        memory: memory.clone(),
        max_connections: descriptors.connections,
        ..AppOptions::default()
    };
    let app = App::new(gate.clone(), server_metrics, Arc::new(registry), options);
    if let Some(tokens) = tokens {
        tokio::spawn(tokens.run());
    }
    if let Some(tls) = tls {
        tokio::spawn(tls.run());
    }
    let (front, joining) = FrontEnds::start(listeners, &config, scheme, &app, &memory, &descriptors)?;
    let mut stop = pin!(stop);
    let limina = tokio::select! {
        limina = open(&config, joining, &descriptors, memory_limit, service.clone(), node_metrics) => limina?,
        () = &mut stop => {
            tracing::info!("stopped before the store was open");
            return Ok(());
        }
    };
    let ready = || {
        gate.open();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            "limina listening on {scheme}://{address}, data in {}",
            if config.store.is_some() { "PostgreSQL".into() } else { config.data.display().to_string() }
        );
    };
    let failed = tokio::select! {
        never = follow_files(&service, envoy, rules, ready) => match never {},
        failed = limina.failed() => Some(failed),
        () = stop => None,
    };
    if let Some(failed) = &failed {
        tracing::error!(error = failed.source(), "{failed}; the process ends");
    }
    begin_stop(&config, &app);
    close(&limina, front.stop()).await?;
    tracing::info!("stopped");
    failed.map_or(Ok(()), |failed| Err(failed.into()))
}

/// The listeners for clients, for other nodes and for Envoy.
struct FrontEnds {
    is_stopping: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl FrontEnds {
    /// Serves all listeners. Returns what this node needs to join the others, if it listens for them.
    fn start(
        listeners: Listeners,
        config: &Config,
        scheme: &str,
        app: &App,
        memory: &Budget,
        descriptors: &Descriptors,
    ) -> Result<(FrontEnds, Option<Joining>), Box<dyn Error>> {
        let (is_stopping, stopped) = watch::channel(false);
        let stopped = move || -> Shutdown {
            let mut stopped = stopped.clone();
            Box::pin(async move {
                // A dropped sender means stop as well.
                let _sent_or_dropped = stopped.wait_for(|is_stopped| *is_stopped).await;
            })
        };
        let clients = limina_server::serve(listeners.clients, app.clone(), stopped());
        let envoys = match listeners.envoy {
            None => None,
            Some(listener) => {
                tracing::info!("Envoy's rate limit service listens on {scheme}://{}", listener.local_addr()?);
                Some(limina_server::serve_envoy(listener, app.clone(), stopped()))
            }
        };
        let (joining, nodes) = match listeners.peers {
            None => (None, None),
            Some(listener) => {
                let advertised = advertised(config, listener.local_addr()?)?;
                tracing::info!(advertised, "other nodes reach this one on {}", listener.local_addr()?);
                let peers = Arc::new(PeerClient::new(memory.clone())?);
                let most = descriptors.table_files;
                let nodes = limina_server::serve_peers(listener, app.clone(), peers.clone(), most, stopped());
                (Some(Joining { advertised, peers }), Some(nodes))
            }
        };
        let serving = tokio::spawn(async move {
            tokio::join!(clients, OptionFuture::from(nodes), OptionFuture::from(envoys));
        });
        Ok((FrontEnds { is_stopping, serving }, joining))
    }

    async fn stop(self) {
        self.is_stopping.send_replace(true);
        if let Err(error) = self.serving.await {
            tracing::error!(%error, "the front end failed");
        }
    }
}

/// Applies the limits of Envoy and the rules as soon as the shards are served, calls `ready`, and then follows the files.
async fn follow_files(
    service: &Service,
    envoy: Option<EnvoyFiles>,
    rules: Option<RulesFile>,
    ready: impl FnOnce(),
) -> Infallible {
    service.until_served().await;
    let envoy = OptionFuture::from(envoy.map(|envoy| envoy.begin(service.clone()))).await;
    let rules = async {
        match rules {
            None => {
                ready();
                std::future::pending().await
            }
            Some(rules) => rules.run(service.clone(), ready).await,
        }
    };
    let envoy = async {
        match envoy {
            None => std::future::pending().await,
            Some(envoy) => envoy.follow().await,
        }
    };
    tokio::select! {
        never = rules => never,
        never = envoy => never,
    }
}

/// Limits the time of stopping. A node among others forwards requests from now on.
fn begin_stop(config: &Config, app: &App) {
    match config.store {
        None => {
            tracing::info!("stopping: draining accepted requests, rejecting new ones");
            exit_after(STOP_WITHIN);
        }
        Some(_) => {
            tracing::info!("stopping: giving the shards to other nodes, and forwarding requests to them");
            exit_after(LEAVE_WITHIN);
            app.begin_drain();
        }
    }
}

/// Closes the store and the front end, in the order in which clients lose the least.
async fn close(limina: &Limina, stop_front: impl Future<Output = ()>) -> Result<(), StoreError> {
    match leave(limina).await {
        // The node closes last: until then it forwards the requests of clients that do not know that it stops.
        true => {
            stop_front.await;
            limina.close().await
        }
        // The front end stops last: until then it answers new requests with an error, so that clients go elsewhere.
        false => {
            let closed = limina.close().await;
            stop_front.await;
            closed
        }
    }
}

/// Gives the shards to other nodes. Returns false at once if there are none.
async fn leave(limina: &Limina) -> bool {
    let served_until = Instant::now() + LAME_DUCK;
    let has_left = limina.leave().await;
    if has_left {
        tokio::time::sleep_until(served_until.into()).await;
    }
    has_left
}

/// A disk or a database that hangs must not keep the process from ending. Everything that was acknowledged is durable, so the process may
/// exit at any time; the next start only has more to read.
fn exit_after(span: Duration) {
    let exit = move || {
        std::thread::sleep(span);
        tracing::error!("the store did not close within {} s; the process exits without it", span.as_secs());
        std::process::exit(1);
    };
    if let Err(error) = std::thread::Builder::new().name("limina-stop".to_string()).spawn(exit) {
        tracing::warn!(%error, "cannot start the thread that limits the time of stopping");
    }
}

/// Returns at SIGTERM or SIGINT.
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
