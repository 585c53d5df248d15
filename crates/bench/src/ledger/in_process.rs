//! The ledger without a front end.

use super::workload::{CEILING, Client, Operation};
use crate::{
    Failed,
    in_process::{Caller, name, unexpected},
};
use limina_engine::{
    Command, Name, Outcome,
    ledger::{self, Batch, Change, Finalization, Finish, Hold, NewLimit, Refusal, Reply, Transfer},
};

impl Client for Caller {
    async fn create(&mut self, limits: &[Name]) -> Result<(), Failed> {
        for limit in limits {
            submit(self, ledger::Command::CreateLimit(new_limit(limit))).await?.map_err(unexpected)?;
        }
        Ok(())
    }

    async fn hold(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        transfer(self, operations.iter().map(hold).collect()).await
    }

    async fn commit(&mut self, operations: &[Operation]) -> Result<u64, Failed> {
        transfer(self, operations.iter().map(commit).collect()).await
    }
}

fn new_limit(limit: &Name) -> NewLimit {
    NewLimit { ceiling: Some(CEILING), ..NewLimit::new(limit.clone()) }
}

fn hold(operation: &Operation) -> Transfer {
    let changes = operation.limits.iter().map(|limit| Change::new(limit.clone(), 1)).collect();
    Transfer::Hold(Hold::new(name(&operation.id), changes).expect("a valid hold"))
}

fn commit(operation: &Operation) -> Transfer {
    let operation_id = name(&operation.id);
    Transfer::Finish(Finish::Commit, Finalization::new(operation_id, None).expect("a valid commit"))
}

/// Sends one transfer as itself, and several as a batch. Returns how many were refused.
async fn transfer(caller: &Caller, mut transfers: Vec<Transfer>) -> Result<u64, Failed> {
    if transfers.len() == 1 {
        let single = ledger::Command::Transfer(transfers.remove(0));
        return Ok(u64::from(submit(caller, single).await?.is_err()));
    }
    match submit(caller, ledger::Command::Batch(Batch::new(transfers)?)).await? {
        Ok(Reply::Batch(results)) => Ok(results.iter().filter(|result| result.is_err()).count() as u64),
        other => Err(unexpected(other)),
    }
}

async fn submit(caller: &Caller, command: ledger::Command) -> Result<Result<Reply, Refusal>, Failed> {
    match caller.submit(Command::Ledger(command)).await? {
        Outcome::Ledger(result) => Ok(result),
        other => Err(unexpected(other)),
    }
}
