//! `values`: the sums of limits, now or as of any position.

use super::{
    balance::Balance,
    entries, limits,
    operations::{self, Operation},
    reply::{Refusal, Reply},
    state::Ledger,
};
use crate::{
    Name, Position,
    ids::NamespaceId,
    reads::{ReadError, Reader},
    turn::{CannotRun, View},
};
use alloc::vec::Vec;
use limina_api::ledger::{AsOf, LimitValue, ValuesReply};

pub(super) fn read(
    ledger: &Ledger,
    view: View<'_>,
    limit_names: &[Name],
    as_of_moment: &AsOf,
) -> Result<Result<Reply, Refusal>, CannotRun> {
    let numbers = match limits::find_all(ledger, limit_names.iter()) {
        Ok(numbers) => numbers,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let current = view.position;
    view.read(|reader| {
        let (position, values) = match as_of_moment {
            AsOf::Now => (current, numbers.iter().map(|number| ledger.value_now(*number)).collect()),
            AsOf::Position(position) if *position > current => {
                return Ok(Err(Refusal::PositionNotReached { current }));
            }
            AsOf::Position(position) => {
                (*position, as_of(ledger, reader, view.namespace, &numbers, *position)?)
            }
            AsOf::Operation(id) => match operations::find(ledger, reader, view.namespace, id)? {
                Some(operation) => {
                    (operation.view, as_of_operation(ledger, reader, view.namespace, &numbers, &operation)?)
                }
                None => {
                    let operation_id = id.clone();
                    return Ok(Err(Refusal::OperationNotFound {
                        operation_id,
                        limit_name: None,
                        state: None,
                    }));
                }
            },
        };
        Ok(Ok(Reply::Values(ValuesReply { position, values })))
    })
}

/// The values of the limits after the change at `position` and before the next one: one look-up each.
pub(super) fn as_of(
    ledger: &Ledger,
    reader: &Reader<'_>,
    namespace: NamespaceId,
    numbers: &[u32],
    position: Position,
) -> Result<Vec<LimitValue>, ReadError> {
    values(ledger, numbers, |number| balance_as_of(reader, namespace, number, position))
}

/// The values of the limits at the operation's view. The operation's own record has those of the limits that it held then.
pub(super) fn as_of_operation(
    ledger: &Ledger,
    reader: &Reader<'_>,
    namespace: NamespaceId,
    numbers: &[u32],
    operation: &Operation,
) -> Result<Vec<LimitValue>, ReadError> {
    values(ledger, numbers, |number| match operation.balance_of(number) {
        Some(balance) => Ok(balance),
        None => balance_as_of(reader, namespace, number, operation.view),
    })
}

/// Looks up all balances before looking at the first result, so that one round fetches all of them.
fn values(
    ledger: &Ledger,
    numbers: &[u32],
    balance_of: impl Fn(u32) -> Result<Balance, ReadError>,
) -> Result<Vec<LimitValue>, ReadError> {
    let found: Vec<_> = numbers.iter().map(|number| balance_of(*number)).collect();
    let value = |(number, balance): (&u32, _)| Ok(ledger.value(*number, balance?));
    numbers.iter().zip(found).map(value).collect()
}

/// The balance of a limit at a position: 0 if it has no entry up to there.
fn balance_as_of(
    reader: &Reader<'_>,
    namespace: NamespaceId,
    number: u32,
    position: Position,
) -> Result<Balance, ReadError> {
    let entry = entries::last_at_or_before(reader, namespace, number, position)?;
    Ok(entry.map_or(Balance::default(), |entry| entry.balance))
}
