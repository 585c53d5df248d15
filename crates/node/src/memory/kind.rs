//! What the bytes of the budget are used for.

/// What bytes are used for. The metric `limina_memory_bytes` shows each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Open connections, with their buffers.
    Connections,
    /// Requests that are not answered yet, queued and waiting ones included, and answers that fit into what their request had
    /// reserved.
    Requests,
    /// Bodies of requests while they arrive, and what is parsed from them.
    Bodies,
    /// Answers that their clients have not taken yet.
    Answers,
    /// Updates of streams that followers share: recent changes, pages of older ones, key frames.
    Streams,
    /// The resident state of the engines.
    State,
    /// Stored records that the table does not contain yet.
    Overlay,
    /// The block cache of the table.
    Cache,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub(crate) const ALL: [Kind; 8] = [
        Kind::Connections,
        Kind::Requests,
        Kind::Bodies,
        Kind::Answers,
        Kind::Streams,
        Kind::State,
        Kind::Overlay,
        Kind::Cache,
    ];

    /// The value of the label `kind`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Connections => "connections",
            Kind::Requests => "requests",
            Kind::Bodies => "bodies",
            Kind::Answers => "answers",
            Kind::Streams => "streams",
            Kind::State => "state",
            Kind::Overlay => "overlay",
            Kind::Cache => "cache",
        }
    }

    /// The largest part of the budget for buffers of this kind, as numerator and denominator. So clients that use up one kind,
    /// for example with slow bodies, leave room for the others.
    pub(super) fn share(self) -> (u64, u64) {
        match self {
            Kind::Connections | Kind::Bodies | Kind::Answers => (1, 4),
            Kind::Streams => (1, 2),
            Kind::Requests | Kind::State | Kind::Overlay | Kind::Cache => (1, 1),
        }
    }
}
