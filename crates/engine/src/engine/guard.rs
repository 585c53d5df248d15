//! Keeps the parts of open decisions together: commands of the families that would change one part alone.

use super::namespace::Families;
use crate::{Command, Outcome, decisions, limiter, locks, turn::Turn};

/// The outcome of a command that would change a part of a decision alone. `None` if it touches no such part, or if its family
/// refuses it by itself: locks know which grants are parts, and the ledger knows the ids of open decisions.
///
/// A forced release of one part rolls the whole decision back.
pub(super) fn guard(
    families: &mut Families,
    turn: &mut Turn<'_>,
    command: &Command,
    max_answer: usize,
) -> Option<Outcome> {
    let (decisions, mut parts) = families.split();
    match command {
        Command::Locks(locks::Command::Release { id, session: None }) => {
            let operation_id = locks::parts::operation_of(parts.locks, id)?.clone();
            decisions::force(decisions, &mut parts, turn, &operation_id, max_answer);
            Some(Outcome::Locks(Ok(locks::Reply::Released)))
        }
        Command::Limiter(limiter::Command::ReleaseLease { id, session: None }) => {
            let operation_id = limiter::parts::operation_of(parts.limiter, id)?.clone();
            decisions::force(decisions, &mut parts, turn, &operation_id, max_answer);
            Some(Outcome::Limiter(Ok(limiter::Reply::LeaseReleased)))
        }
        Command::Limiter(
            limiter::Command::ExtendLease { id, .. } | limiter::Command::ReleaseLease { id, .. },
        ) => {
            let operation_id = limiter::parts::operation_of(parts.limiter, id)?.clone();
            let refusal = limiter::Refusal::PartOfOperation { lease_id: id.clone(), operation_id };
            Some(Outcome::Limiter(Err(refusal)))
        }
        _ => None,
    }
}
