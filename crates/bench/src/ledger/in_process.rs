//! The ledger without a front end: engine, shard, journal and table, with fsync.

use crate::measure::Measured;
use limina_engine::{
    Command, Name, Outcome, Request,
    ledger::{self, Change, Finalization, Finish, Hold, NewLimit, Reply, Transfer},
};
use limina_node::{Metrics, Node, NodeOptions, Service};
use limina_store::{
    Journal,
    embedded::{Embedded, EmbeddedOptions},
};
use prometheus_client::registry::Registry;
use std::{
    error::Error,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

/// What is measured.
#[derive(clap::Args, Clone)]
pub(crate) struct Options {
    /// How long, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Operations in one request
    #[arg(long, default_value_t = 8192)]
    batch: usize,
    /// Clients at the same time
    #[arg(long, default_value_t = 3)]
    clients: usize,
    /// Limits to choose from
    #[arg(long, default_value_t = 10_000)]
    limits: usize,
    /// Limits that one operation touches
    #[arg(long, default_value_t = 1)]
    changes: usize,
    /// Where the data go [default: a temporary directory, removed afterwards]
    #[arg(long)]
    data: Option<PathBuf>,
}

pub(crate) async fn run(options: Options) -> Result<(), Failed> {
    let directory = tempfile::tempdir_in(".")?;
    let data = options.data.clone().unwrap_or_else(|| directory.path().to_path_buf());
    let store = Arc::new(Embedded::open(&data, EmbeddedOptions::default())?);
    let metrics = Metrics::register(&mut Registry::default());
    let service = Service::new(metrics.clone());
    let shards = store.shards();
    let node =
        Node::start(service.clone(), metrics, store.clone(), store.clone(), shards, NodeOptions::default())
            .await?;
    prepare(&service, options.limits).await?;

    let begin = Instant::now();
    let until = begin + Duration::from_secs(options.seconds);
    let clients: Vec<_> = (0..options.clients)
        .map(|client| tokio::spawn(client_loop(service.clone(), client, options.clone(), until)))
        .collect();
    let mut total = Measured::new();
    for client in clients {
        total.add(&client.await??);
    }
    total.elapsed = begin.elapsed();
    println!("in-process, {} a batch   {total}", options.batch);
    println!("journal {:?}", store.stats());
    node.stop().await;
    store.close().await?;
    Ok(())
}

pub(crate) type Failed = Box<dyn Error + Send + Sync>;

fn name(text: String) -> Name {
    Name::new(&text).expect("a valid name")
}

async fn submit(service: &Service, command: ledger::Command) -> Result<Reply, Failed> {
    let request =
        Request { namespace: name("default".into()), idempotency: None, command: Command::Ledger(command) };
    match service.submit(request).await? {
        Outcome::Ledger(Ok(reply)) => Ok(reply),
        other => Err(format!("refused: {other:?}").into()),
    }
}

fn limit_name(number: usize) -> Name {
    name(format!("limit-{number}"))
}

async fn prepare(service: &Service, limits: usize) -> Result<(), Failed> {
    for number in 0..limits {
        let new =
            NewLimit { name: limit_name(number), limit_id: None, context: Default::default(), ceiling: None };
        match submit(service, ledger::Command::CreateLimit(new)).await {
            Ok(_) => {}
            // The directory was used before.
            Err(error) if error.to_string().contains("DuplicateLimitName") => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Holds a batch, then commits it, and so on.
async fn client_loop(
    service: Service,
    client: usize,
    options: Options,
    until: Instant,
) -> Result<Measured, Failed> {
    let mut measured = Measured::new();
    let run = std::process::id();
    let mut random = 0x9e37_79b9_7f4a_7c15u64 ^ client as u64;
    let names: Vec<Name> = (0..options.limits).map(limit_name).collect();
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        let ids: Vec<Name> =
            (0..options.batch).map(|i| name(format!("op-{run}-{client}-{round}-{i}"))).collect();
        let holds = ids.iter().map(|id| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let first = (random >> 33) as usize;
            Transfer::Hold(Hold {
                operation_id: id.clone(),
                changes: (0..options.changes)
                    .map(|i| Change {
                        limit_name: names[(first + i) % options.limits].clone(),
                        value: 1,
                        limit_id: None,
                        context: Default::default(),
                    })
                    .collect(),
                skip_existing_holds: false,
                create_missing: false,
                expires_after: None,
            })
        });
        send(&service, holds.collect(), &mut measured).await?;
        let commits = ids.into_iter().map(|operation_id| {
            Transfer::Finish(Finalization { finish: Finish::Commit, operation_id, changes: None })
        });
        send(&service, commits.collect(), &mut measured).await?;
    }
    Ok(measured)
}

async fn send(service: &Service, transfers: Vec<Transfer>, measured: &mut Measured) -> Result<(), Failed> {
    let count = transfers.len() as u64;
    let begin = Instant::now();
    let Reply::Batch(results) = submit(service, ledger::Command::Batch(transfers)).await? else {
        return Err("a batch is answered as a batch".into());
    };
    measured.note(count, begin.elapsed());
    match results.into_iter().find_map(Result::err) {
        Some(refusal) => Err(format!("refused: {refusal:?}").into()),
        None => Ok(()),
    }
}
