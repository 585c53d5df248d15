//! The jump of all positions after the store has gone back to an older state.
//!
//! What the lost time had used (positions, and with them fencing tokens and the clocks of streams) must not be used again. A node that
//! notices the loss calls [`Engine::jump_positions`]. Otherwise a record of the shard asks for the jump, which an operator has made. The
//! batch that stores the new positions removes that mark, so the jump is made once. A shard that is lost before that makes the same jump
//! again.

use super::Engine;
use crate::{Position, record::key};

/// How far positions jump for each restore. Nothing makes as many changes between a backup and its restore.
pub const POSITION_JUMP: u64 = 1 << 40;

impl Engine {
    /// Moves every position and every clock ahead. Call it right after opening. What the next seal returns must be durable before
    /// anything is served.
    pub fn jump_positions(&mut self) {
        self.jump_by(POSITION_JUMP);
    }

    /// The same for a shard that was marked as restored so many times, and removes the mark.
    pub(super) fn handle_mark(&mut self, restores: u64) {
        let by = restores.saturating_mul(POSITION_JUMP);
        self.jump_by(by);
        self.context.changes.remove(key::restored());
        self.jumped = Some(by);
    }

    fn jump_by(&mut self, by: u64) {
        let moved = |position: Position| Position(position.0.saturating_add(by));
        self.meta.position_floor = moved(self.meta.position_floor);
        self.context.changes.put(&key::shard_meta(), &self.meta);
        for namespace in self.namespaces.values_mut() {
            namespace.head.position = moved(namespace.head.position);
            namespace.families.events.jump_clocks(namespace.id, by, &mut self.context.changes);
            self.context.mark_changed(namespace);
        }
        self.begin_sweeps();
    }

    /// How far positions jumped when this engine was loaded. `None` if the shard was not marked as restored.
    pub fn jumped(&self) -> Option<u64> {
        self.jumped
    }
}
