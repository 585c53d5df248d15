//! What the model knows of positions and of the result of a command.

use limina_engine::Position;

/// What is known of a namespace's position. How many positions a command of the limiter takes, and when, is not
/// specified. So after the first one the position is only known to be at least this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Order {
    pub(super) position: u64,
    pub(super) is_exact: bool,
}

impl Order {
    /// Takes the next position. For the ledger and the locks, which take them one by one.
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
pub(super) struct Mark {
    pub(super) after: u64,
    pub(super) known: Option<u64>,
}

impl Mark {
    /// The mark of something that is created now.
    pub(super) fn after(order: Order) -> Mark {
        Mark { after: order.position, known: None }
    }

    /// The position that an answer must show, given the one that it shows.
    pub(super) fn expect(&self, shown: Position) -> Position {
        Position(self.known.unwrap_or(shown.0.max(self.after + 1)))
    }
}

/// Whether a command changed something, as far as can be known. For example, taking nothing from an unlimited bucket
/// may or may not count as a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changed {
    No,
    Unclear,
    Yes,
}

/// One possible result of a command.
pub(super) struct Branch<S> {
    pub(super) state: S,
    pub(super) order: Order,
    pub(super) changed: Changed,
    /// Its answer need not wait for the disk.
    pub(super) is_relaxed: bool,
}
