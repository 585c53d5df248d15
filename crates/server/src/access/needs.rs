//! What a route needs.

use limina_access::{Family, Level, Need};
use std::fmt;

/// What a route needs. Every route has one: see `http/routes.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing. The answer contains no data.
    Nothing,
    /// A valid token. The handler shows only what the token may see.
    Token,
    /// A level in the family of the route, in the namespace of the path.
    Level(Level),
    /// A level in this family, in the namespace of the path.
    Family(Family, Level),
    /// A level in every family of the namespace of the path.
    Namespace(Level),
    /// A level in at least one family of the namespace of the path. The handler shows only what the token may see.
    AnyFamily(Level),
    /// A level in at least one family of at least one namespace. The handler shows only what the token may see.
    Anywhere(Level),
    /// `cluster:read`.
    ClusterRead,
    /// A token in the header, or in the CONNECT frame. Each frame is judged by itself.
    Frames,
    /// `limiter:use` in the namespace that the body names as its domain. The handler checks it.
    Domain,
}

impl From<Level> for Needs {
    fn from(level: Level) -> Needs {
        Needs::Level(level)
    }
}

impl Needs {
    /// The same for a route of this family.
    pub(crate) fn of_family(self, family: Family) -> Needs {
        match self {
            Needs::Level(level) => Needs::Family(family, level),
            other => other,
        }
    }

    /// Whether a request may create its namespace.
    pub(super) fn may_create_namespace(self) -> bool {
        matches!(self, Needs::Family(_, Level::Use | Level::Manage))
    }

    /// The right for this namespace. `None` if any valid token will do.
    pub(super) fn right(self, namespace: &str) -> Option<Need<'_>> {
        match self {
            Needs::Nothing | Needs::Token | Needs::Frames | Needs::Domain => None,
            // A route of a family knows its family. Anything else needs the right of all families.
            Needs::Level(level) | Needs::Namespace(level) => Some(Need::Namespace(namespace, level)),
            Needs::AnyFamily(level) => Some(Need::AnyFamily(namespace, level)),
            Needs::Anywhere(level) => Some(Need::Anywhere(level)),
            Needs::Family(family, level) => Some(Need::Family(namespace, family, level)),
            Needs::ClusterRead => Some(Need::ClusterRead),
        }
    }
}

/// As the documentation shows it.
impl fmt::Display for Needs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Needs::Nothing => f.write_str("nothing"),
            Needs::Token => f.write_str("any token"),
            Needs::Frames => {
                f.write_str("any token, here or in CONNECT; `NAMESPACE/events:read` to subscribe")
            }
            Needs::Domain => f.write_str("`DOMAIN/limiter:use`"),
            Needs::AnyFamily(level) => write!(f, "`{level}` in one family of the namespace"),
            Needs::Anywhere(level) => write!(f, "`{level}` in one family of any namespace"),
            Needs::Level(_) | Needs::Family(..) | Needs::Namespace(_) | Needs::ClusterRead => {
                write!(f, "`{}`", self.right("NAMESPACE").expect("these have a right"))
            }
        }
    }
}
