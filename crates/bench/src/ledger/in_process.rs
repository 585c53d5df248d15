//! The ledger without a front end, with every answer synced.

use super::workload::{CEILING, Client, Operation, limit_name};
use crate::{
    Failed,
    in_process::{self, name},
    load::Contender,
};
use limina_engine::{
    Command, Invalid, Name, Outcome,
    ledger::{self, Batch, Change, Finalization, Finish, Hold, NewLimit, Reply, Transfer},
};
use std::{ops::Range, path::Path, sync::Arc};

/// With the names of the limits at hand, as a program that uses it would have them.
pub(crate) struct InProcess {
    inner: in_process::InProcess,
    limits: Arc<[Name]>,
}

impl InProcess {
    pub(crate) async fn start(directory: &Path, limits: usize) -> Result<InProcess, Failed> {
        let inner = in_process::InProcess::start(directory).await?;
        Ok(InProcess { inner, limits: (0..limits).map(|number| name(&limit_name(number))).collect() })
    }
}

impl Contender for InProcess {
    type Client = Caller;

    async fn connect(&self) -> Result<Caller, Failed> {
        Ok(Caller { inner: self.inner.connect().await?, limits: self.limits.clone() })
    }

    fn process(&self) -> Option<u32> {
        self.inner.process()
    }

    async fn stop(self) -> Result<(), Failed> {
        self.inner.stop().await
    }
}

pub(crate) struct Caller {
    inner: in_process::Caller,
    limits: Arc<[Name]>,
}

impl Caller {
    async fn submit(&self, command: ledger::Command) -> Result<Outcome, Failed> {
        self.inner.submit(Command::Ledger(command)).await
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
        match self.submit(ledger::Command::Batch(Batch::new(transfers)?)).await? {
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
        let change = |&limit: &usize| Change::new(self.limits[limit].clone(), 1);
        let holds = operations.iter().map(|operation| {
            let changes = operation.limits.iter().map(change).collect();
            Ok(Transfer::Hold(Hold::new(name(&operation.id), changes)?))
        });
        self.transfer(holds.collect::<Result<_, Invalid>>()?).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        let commits = operations.iter().map(|operation| {
            let operation_id = name(&operation.id);
            Ok(Transfer::Finish(Finalization::new(Finish::Commit, operation_id, None)?))
        });
        self.transfer(commits.collect::<Result<_, Invalid>>()?).await
    }
}
