//! `values`: the sums of limits, now or as of any position.

use super::{
    AsOf, Refusal, Reply, Value, ValuesReply, entries, limits, operations, state::Balance, state::Ledger,
};
use crate::{
    Name, Position,
    namespace::{Keys, Stop, View},
    reads::{Absent, Reader},
};
use alloc::vec::Vec;

pub(super) fn read(
    ledger: &Ledger,
    view: View<'_>,
    limit_names: &[Name],
    as_of_moment: &AsOf,
) -> Result<Result<Reply, Refusal>, Stop> {
    let numbers = match limits::find_all(ledger, limit_names.iter()) {
        Ok(numbers) => numbers,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let current = view.position;
    view.read(|reader| {
        let position = match as_of_moment {
            AsOf::Now => {
                let values = numbers.iter().map(|number| ledger.value_now(*number)).collect();
                return Ok(Ok(Reply::Values(ValuesReply { position: current, values })));
            }
            AsOf::Position(position) if *position > current => {
                return Ok(Err(Refusal::PositionNotReached { current }));
            }
            AsOf::Position(position) => *position,
            AsOf::Operation(id) => match operations::find(ledger, reader, view.keys, id)? {
                Some(operation) => operation.view,
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
        let values = as_of(ledger, reader, view.keys, &numbers, position)?;
        Ok(Ok(Reply::Values(ValuesReply { position, values })))
    })
}

/// The limits' values after the change at `position` and before the next: one look-up each. A limit without an entry
/// up to there reads zero.
pub(super) fn as_of(
    ledger: &Ledger,
    reader: &Reader<'_>,
    keys: Keys,
    numbers: &[u32],
    position: Position,
) -> Result<Vec<Value>, Absent> {
    // All look-ups are made before the first failure counts, so that one round fetches all of them.
    let found: Vec<_> =
        numbers.iter().map(|number| entries::last_at_or_before(reader, keys, *number, position)).collect();
    numbers
        .iter()
        .zip(found)
        .map(|(number, entry)| {
            Ok(ledger.value(*number, entry?.map_or(Balance::default(), |entry| entry.balance)))
        })
        .collect()
}
