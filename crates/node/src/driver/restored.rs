//! A store that has gone back to an older state: a standby that lacked appends was promoted, or an older copy was restored under
//! running nodes. The shard serves what is stored. Positions jump before it serves anything, because those that are lost were used:
//! as fencing tokens, and as clocks of streams.

use super::outputs::batch;
use crate::{Metrics, OpenError};
use limina_engine::{Engine, Name, Position};
use limina_store::{AppendError, Journal, LostAppends, ShardId, ShardStore, StoreError, Table};
use std::{collections::BTreeMap, fmt::Write};

/// The namespaces that the log names.
const NAMED: usize = 8;

/// The position of every namespace in a shard's memory.
pub(crate) type Positions = BTreeMap<Name, Position>;

pub(super) fn positions(engine: &Engine) -> Positions {
    engine.positions().map(|(name, position)| (name.clone(), position)).collect()
}

/// If the store has gone back to an older state, which the engine was loaded from, this leaves out positions, and stores that. `before` is
/// what the shard served here until then.
pub(crate) async fn jump_if_restored<J: Journal, T: Table>(
    store: &ShardStore<J, T>,
    shard: ShardId,
    engine: &mut Engine,
    before: &Positions,
    metrics: &Metrics,
) -> Result<(), OpenError> {
    let Some(lost) = store.lost() else { return Ok(()) };
    let failed = |source| OpenError::Store { shard: shard.0, source };
    // If there is much to write, an append waits for a checkpoint, and nobody else makes one before the shard is open.
    if store.backlog().due {
        store.checkpoint().await.map_err(failed)?;
    }
    let positions = LostPositions::between(before, &positions(engine));
    engine.jump_positions();
    let appended = store.append(store.seq().next(), batch(&engine.seal().writes)).await;
    appended.map_err(|error| {
        failed(match error {
            AppendError::NotDone(source) | AppendError::Unknown(source) => source,
            AppendError::Full => StoreError::Unavailable("the storage is full".to_owned()),
            AppendError::Fenced => StoreError::Unavailable("another owner has taken the shard".to_owned()),
        })
    })?;
    report(shard, lost, &positions, metrics);
    Ok(())
}

fn report(shard: ShardId, lost: LostAppends, positions: &LostPositions, metrics: &Metrics) {
    metrics.store.restores.inc();
    metrics.store.lost_appends.inc_by(lost.last.0 + 1 - lost.first.0);
    metrics.store.lost_positions.inc_by(positions.count);
    tracing::error!(
        shard = shard.0,
        first_lost_append = lost.first.0,
        last_lost_append = lost.last.0,
        lost_positions = positions.count,
        namespaces = positions.namespaces,
        lost = positions.text,
        "the database has gone back to an older state: the shard serves that state from now on"
    );
}

/// The positions that the memory of a shard had, and its store has not. Some of the last ones may never have been stored.
#[derive(Debug, Default, PartialEq, Eq)]
struct LostPositions {
    namespaces: usize,
    count: u64,
    /// The first and the last lost position of some namespaces.
    text: String,
}

impl LostPositions {
    fn between(before: &Positions, stored: &Positions) -> LostPositions {
        let mut lost = LostPositions::default();
        for (name, last) in before {
            let stored = stored.get(name).copied().unwrap_or(Position(0));
            let Some(count) = last.0.checked_sub(stored.0).filter(|count| *count > 0) else { continue };
            lost.namespaces += 1;
            lost.count += count;
            if lost.namespaces <= NAMED {
                let separator = if lost.text.is_empty() { "" } else { ", " };
                // Writing to a string cannot fail.
                let _written = write!(lost.text, "{separator}{name} {}–{}", stored.0 + 1, last.0);
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_positions_are_counted_and_some_are_named() {
        let positions = |ranges: &[(&str, u64)]| -> Positions {
            ranges.iter().map(|(name, last)| (Name::new(name).expect("a name"), Position(*last))).collect()
        };
        let check = |before: &[(&str, u64)], stored: &[(&str, u64)], expect: (usize, u64, &str)| {
            let lost = LostPositions::between(&positions(before), &positions(stored));
            assert_eq!((lost.namespaces, lost.count, &lost.text[..]), expect);
        };
        check(&[], &[("a", 7)], (0, 0, ""));
        check(&[("a", 7)], &[("a", 7)], (0, 0, ""));
        check(&[("a", 9), ("b", 3), ("c", 2)], &[("a", 7), ("c", 2)], (2, 5, "a 8–9, b 1–3"));
        let many: Vec<(String, u64)> = (0..20).map(|n| (format!("n{n:02}"), 1)).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|(name, last)| (&name[..], *last)).collect();
        let lost = LostPositions::between(&positions(&many), &Positions::new());
        assert_eq!((lost.namespaces, lost.count, lost.text.matches(", ").count()), (20, 20, NAMED - 1));
    }
}
