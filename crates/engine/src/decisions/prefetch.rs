//! The stored records that a command will probably need.

use super::{command::Command, ended, state::Decisions};
use crate::{
    Name, ledger,
    reads::{ReadError, Reader},
    turn::{CannotRun, View},
};

/// Fails with the records that the command will probably need.
pub(crate) fn missing(decisions: &Decisions, view: View<'_>, command: &Command) -> Result<(), CannotRun> {
    let (id, is_new) = match command {
        Command::Decide(request) => (request.wanted.operation_id(), true),
        Command::Settle(settle) => (&settle.operation_id, settle.record),
        Command::Rollback(id) | Command::Heartbeat(id) | Command::Get(id) => (id, false),
        Command::List { .. } | Command::Batch(_) | Command::Abandon { .. } => return Ok(()),
    };
    view.read(|reader| {
        want(decisions, reader, view, id, is_new);
        if reader.has_missing() { Err(ReadError::NotFetched) } else { Ok(()) }
    })
}

/// Notes the records that a command about this operation needs. `is_new` says that it may make or book something.
pub(super) fn want(decisions: &Decisions, reader: &Reader<'_>, view: View<'_>, id: &Name, is_new: bool) {
    if decisions.find(id).is_none() && !decisions.waiters.has(id) {
        ended::want(reader, view, id);
        if is_new {
            reader.want(ledger::keys::operation(view.namespace, id));
        }
    }
}
