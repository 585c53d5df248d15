//! Keeps the parts of open decisions together: commands of the families that would change one part alone.

use super::{Decisions, Families, end};
use crate::{Command, Outcome, limiter, locks, turn::Turn};

/// What happens to a command of a family.
pub(crate) enum Guarded {
    /// It touches no part of a decision: its family runs it.
    Unaffected,
    /// It is decided.
    Decided(Outcome),
}

/// Refuses a command that would change a lease of a decision alone. A forced release of one of its locks or leases rolls the
/// whole decision back. (Locks refuse the others themselves, and the ledger knows the ids of open decisions.)
pub(crate) fn guard(
    decisions: &mut Decisions,
    families: &mut Families<'_>,
    turn: &mut Turn<'_>,
    command: &Command,
    max_answer: usize,
) -> Guarded {
    match command {
        Command::Locks(locks::Command::Release { id, session: None }) => {
            let Some(operation_id) = locks::parts::operation_of(families.locks, id).cloned() else {
                return Guarded::Unaffected;
            };
            end::force(decisions, families, turn, &operation_id, max_answer);
            Guarded::Decided(Outcome::Locks(Ok(locks::Reply::Released)))
        }
        Command::Limiter(limiter::Command::ExtendLease(id) | limiter::Command::ReleaseLease(id)) => {
            let Some(operation_id) = limiter::parts::operation_of(families.limiter, id).cloned() else {
                return Guarded::Unaffected;
            };
            let lease_id = id.clone();
            let refusal = limiter::Refusal::PartOfOperation { lease_id, operation_id };
            Guarded::Decided(Outcome::Limiter(Err(refusal)))
        }
        _ => Guarded::Unaffected,
    }
}
