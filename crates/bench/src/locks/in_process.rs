//! Locks without a front end.

use super::workload::{Client, Grant, IfHeld, TTL, WAIT, lock_name};
use crate::{
    Failed,
    in_process::{Caller, key_values, name, unexpected},
};
use limina_engine::{
    self as engine, Millis, Outcome,
    locks::{Acquire, Command, Lock, LockRequest, Mode, Refusal, Reply},
};

impl Client for Caller {
    async fn acquire(
        &mut self,
        lock: usize,
        secret: String,
        if_held: IfHeld,
    ) -> Result<Option<Grant>, Failed> {
        match submit(self, Command::Acquire(acquire(lock, &secret, if_held))).await? {
            Ok(Reply::Granted { .. }) => Ok(Some(Grant { lock, id: secret.clone(), session: secret })),
            Err(Refusal::LockHeld(_) | Refusal::LockWaitTimeout(_)) => Ok(None),
            other => Err(unexpected(other)),
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

fn acquire(lock: usize, secret: &str, if_held: IfHeld) -> LockRequest {
    let locks = vec![Lock { key_values: key_values([("lock", lock_name(lock))]), mode: Mode::Exclusive }];
    let wait = match if_held {
        IfHeld::Refuse => Millis(0),
        IfHeld::Wait => Millis(WAIT.as_millis() as u64),
    };
    let wanted = Acquire::new(locks, TTL).and_then(|wanted| wanted.with_wait(wait));
    LockRequest { id: name(secret), session: name(secret), wanted: wanted.expect("a valid request") }
}

async fn submit(caller: &Caller, command: Command) -> Result<Result<Reply, Refusal>, Failed> {
    match caller.submit(engine::Command::Locks(command)).await? {
        Outcome::Locks(result) => Ok(result),
        other => Err(unexpected(other)),
    }
}
