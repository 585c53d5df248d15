//! Limina without a front end: engine, shard, journal and table, with every answer synced.

use super::workload::{CEILING, Client, Contender, Operation, limit_name};
use crate::Failed;
use limina_engine::{
    Command, Name, Outcome, Request,
    ledger::{self, Change, Finalization, Finish, Hold, NewLimit, Reply, Transfer},
};
use limina_node::{Metrics, Node, NodeOptions, Service};
use limina_store::embedded::{Embedded, EmbeddedOptions};
use prometheus_client::registry::Registry;
use std::{ops::Range, path::Path, sync::Arc};

pub(crate) struct InProcess {
    service: Service,
    node: Node,
    store: Arc<Embedded>,
    limits: Arc<[Name]>,
}

impl InProcess {
    pub(crate) async fn start(directory: &Path, limits: usize) -> Result<InProcess, Failed> {
        let store = Arc::new(Embedded::open(&directory.join("data"), EmbeddedOptions::default())?);
        let metrics = Metrics::register(&mut Registry::default());
        let service = Service::new(metrics.clone());
        let (shards, journal, table) = (store.shards(), store.clone(), store.clone());
        let node =
            Node::start(service.clone(), metrics, journal, table, shards, NodeOptions::default()).await?;
        let limits = (0..limits).map(|number| name(&limit_name(number))).collect();
        Ok(InProcess { service, node, store, limits })
    }
}

impl Contender for InProcess {
    type Client = Caller;

    async fn connect(&self) -> Result<Caller, Failed> {
        Ok(Caller { service: self.service.clone(), limits: self.limits.clone() })
    }

    fn process(&self) -> Option<u32> {
        None
    }

    async fn stop(self) -> Result<(), Failed> {
        self.node.stop().await;
        self.store.close().await?;
        Ok(())
    }
}

pub(crate) struct Caller {
    service: Service,
    limits: Arc<[Name]>,
}

impl Caller {
    async fn submit(&self, command: ledger::Command) -> Result<Outcome, Failed> {
        let request =
            Request { namespace: name("default"), idempotency: None, command: Command::Ledger(command) };
        Ok(self.service.submit(request).await?)
    }

    /// One is asked for as itself, several as a batch.
    async fn transfer(&self, mut transfers: Vec<Transfer>) -> Result<u64, Failed> {
        if transfers.len() == 1 {
            let one = transfers.remove(0);
            return match self.submit(ledger::Command::Transfer(one)).await? {
                Outcome::Ledger(Ok(_)) => Ok(0),
                Outcome::Ledger(Err(_)) => Ok(1),
                other => Err(format!("an unexpected outcome: {other:?}").into()),
            };
        }
        match self.submit(ledger::Command::Batch(transfers)).await? {
            Outcome::Ledger(Ok(Reply::Batch(results))) => {
                Ok(results.iter().filter(|result| result.is_err()).count() as u64)
            }
            other => Err(format!("an unexpected outcome: {other:?}").into()),
        }
    }
}

impl Client for Caller {
    async fn create(&mut self, limits: Range<usize>) -> Result<(), Failed> {
        for number in limits {
            let new = NewLimit {
                name: self.limits[number].clone(),
                limit_id: None,
                context: Default::default(),
                ceiling: Some(CEILING),
            };
            match self.submit(ledger::Command::CreateLimit(new)).await? {
                Outcome::Ledger(Ok(_)) => {}
                other => return Err(format!("a limit was not made: {other:?}").into()),
            }
        }
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        let change = |&limit: &usize| Change {
            limit_name: self.limits[limit].clone(),
            value: 1,
            limit_id: None,
            context: Default::default(),
        };
        let holds = operations.iter().map(|operation| {
            Transfer::Hold(Hold {
                operation_id: name(&operation.id),
                changes: operation.limits.iter().map(change).collect(),
                skip_existing_holds: false,
                create_missing: false,
                expires_after: None,
            })
        });
        self.transfer(holds.collect()).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        let commits = operations.iter().map(|operation| {
            let operation_id = name(&operation.id);
            Transfer::Finish(Finalization { finish: Finish::Commit, operation_id, changes: None })
        });
        self.transfer(commits.collect()).await
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}
