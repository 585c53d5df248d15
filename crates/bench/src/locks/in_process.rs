//! Locks without a front end.

use super::workload::{Client, Else, Grant, TTL, WAIT, lock_name};
use crate::{
    Failed,
    in_process::{Caller, key_values, name},
};
use limina_engine::{
    self as engine, Millis, Outcome,
    locks::{Acquire, Command, Lock, Mode, Refusal, Reply},
};

impl Client for Caller {
    async fn acquire(&mut self, lock: usize, word: String, otherwise: Else) -> Result<Option<Grant>, Failed> {
        let locks = vec![Lock { key_values: key_values([("lock", lock_name(lock))]), mode: Mode::Exclusive }];
        let wait = match otherwise {
            Else::Refused => Millis(0),
            Else::Waits => Millis(WAIT.as_millis() as u64),
        };
        let ttl = Millis(TTL.as_millis() as u64);
        let acquire = Acquire::new(name(&word), name(&word), locks, ttl)?.with_wait(wait)?;
        match submit(self, Command::Acquire(acquire)).await? {
            Ok(Reply::Granted { .. }) => Ok(Some(Grant { lock, id: word.clone(), session: word })),
            Err(Refusal::LockHeld(_) | Refusal::LockWaitTimeout(_)) => Ok(None),
            other => Err(format!("an unexpected outcome: {other:?}").into()),
        }
    }

    async fn release(&mut self, grant: &Grant) -> Result<bool, Failed> {
        let command = Command::Release { id: name(&grant.id), session: Some(name(&grant.session)) };
        Ok(submit(self, command).await?.is_ok())
    }

    async fn heartbeat(&mut self, grant: &Grant) -> Result<bool, Failed> {
        let command = Command::Heartbeat { id: name(&grant.id), session: name(&grant.session) };
        Ok(submit(self, command).await?.is_ok())
    }
}

async fn submit(caller: &Caller, command: Command) -> Result<Result<Reply, Refusal>, Failed> {
    match caller.submit(engine::Command::Locks(command)).await? {
        Outcome::Locks(result) => Ok(result),
        other => Err(format!("an unexpected outcome: {other:?}").into()),
    }
}
