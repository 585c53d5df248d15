//! What the model knows of positions and of the result of a command.

use limina_engine::Position;

/// What is known of a namespace's position. How many positions a change of rules takes, and when, is not specified. So after the
/// first command of the limiter the position is only known to be at least this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Order {
    pub(super) position: u64,
    pub(super) is_exact: bool,
}

impl Order {
    /// Takes the next position. For the families that take them one by one.
    pub(super) fn advance(&mut self) -> u64 {
        self.position += 1;
        self.position
    }

    /// The position grew by at least this much.
    pub(super) fn grow(&mut self, at_least: u64) {
        self.position += at_least;
        self.is_exact = false;
    }

    /// An answer showed the position.
    pub(super) fn learn(&mut self, position: Position) {
        if position.0 > self.position {
            *self = Order { position: position.0, is_exact: false };
        }
    }
}

/// The position at which something was created. It is known once an answer has shown it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CreationPosition {
    pub(super) after: u64,
    pub(super) known: Option<u64>,
}

impl CreationPosition {
    /// The mark of something that is created now.
    pub(super) fn after(order: Order) -> CreationPosition {
        CreationPosition { after: order.position, known: None }
    }

    /// The position that an answer must show, given the one that it shows.
    pub(super) fn expect(&self, shown: Position) -> Position {
        Position(self.known.unwrap_or(shown.0.max(self.after + 1)))
    }
}

/// What a command of the limiter did, as far as its answer does not say it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Done {
    /// It has changed something, so that a namespace which did not exist is created, and the reply is kept under the idempotency key.
    pub(super) is_change: bool,
    /// Its answer need not wait for the disk.
    pub(super) is_relaxed: bool,
}

impl Done {
    /// It was a read or was refused.
    pub(super) const NOTHING: Done = Done { is_change: false, is_relaxed: false };
    /// Its change is durable.
    pub(super) const CHANGE: Done = Done { is_change: true, is_relaxed: false };
}

/// The error says what was expected.
pub(super) fn expect(is_right: bool, expected: impl FnOnce() -> String) -> Result<(), String> {
    if is_right { Ok(()) } else { Err(expected()) }
}
