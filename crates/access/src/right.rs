//! Rights: what a token may do, and what a request needs.

use crate::pattern::Pattern;
use std::{fmt, str::FromStr};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),* }

        impl $name {
            /// All of them, in order.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The word in a right.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),* }
            }

            /// Parses the word.
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
    };
}

words! {
    /// A family of calls.
    Family {
        /// Rules, checks, counters, leases.
        Limiter = "limiter",
        /// Locks.
        Locks = "locks",
        /// Streams of events.
        Events = "events",
        /// Limits as accounts.
        Ledger = "ledger",
        /// Composite decisions.
        Decisions = "decisions",
    }
}

words! {
    /// How much a right allows. Each level includes those before it.
    Level {
        /// Lists, queries, values, following a stream.
        Read = "read",
        /// What programs do all day: checks, leases, locks, holds, events.
        Use = "use",
        /// What operators do: rules, limits, streams, forced releases, the audit.
        Manage = "manage",
    }
}

/// One right of a token: `NAMESPACE/FAMILY:LEVEL`, `cluster:read` or `cluster:admin`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// `family` is `None` for `*`: every family, and the namespace itself.
    Namespace {
        namespace: Pattern,
        family: Option<Family>,
        level: Level,
    },
    ClusterRead,
    ClusterAdmin,
}

/// What a request needs. It is written like a right that is enough for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need<'a> {
    /// A level in one family of a namespace.
    Family(&'a str, Family, Level),
    /// A level in every family of a namespace: `NAMESPACE/*:LEVEL`.
    Namespace(&'a str, Level),
    /// A level in at least one family of a namespace.
    AnyFamily(&'a str, Level),
    /// A level in at least one family of at least one namespace, whether that exists or not.
    Anywhere(Level),
    /// To see the nodes, the shards and the metrics.
    ClusterRead,
    /// Everything.
    ClusterAdmin,
}

impl Right {
    /// Whether this right is enough for the need.
    pub fn allows(&self, need: Need<'_>) -> bool {
        match (&self.0, need) {
            (Kind::ClusterAdmin, _) => true,
            (Kind::ClusterRead, need) => need == Need::ClusterRead,
            (Kind::Namespace { namespace, family, level }, Need::Family(name, needed, needed_level)) => {
                *level >= needed_level
                    && family.is_none_or(|family| family == needed)
                    && namespace.matches(name)
            }
            (Kind::Namespace { namespace, family, level }, Need::Namespace(name, needed_level)) => {
                *level >= needed_level && family.is_none() && namespace.matches(name)
            }
            (Kind::Namespace { namespace, level, .. }, Need::AnyFamily(name, needed_level)) => {
                *level >= needed_level && namespace.matches(name)
            }
            (Kind::Namespace { level, .. }, Need::Anywhere(needed_level)) => *level >= needed_level,
            (Kind::Namespace { .. }, Need::ClusterRead | Need::ClusterAdmin) => false,
        }
    }

    /// The only namespace to which this right applies. `None` if it may apply to several, or applies to none.
    pub(crate) fn only_namespace(&self) -> Option<&str> {
        match &self.0 {
            Kind::Namespace { namespace, .. } => namespace.literal(),
            Kind::ClusterRead | Kind::ClusterAdmin => None,
        }
    }

    /// The prefix of all namespaces to which this right applies. `None` if it applies to no namespace.
    pub(crate) fn namespace_prefix(&self) -> Option<&str> {
        match &self.0 {
            Kind::Namespace { namespace, .. } => Some(namespace.prefix()),
            Kind::ClusterRead => None,
            Kind::ClusterAdmin => Some(""),
        }
    }
}

/// Why a text is not a right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a right: {reason}")]
pub struct InvalidRight {
    text: String,
    reason: &'static str,
}

impl FromStr for Right {
    type Err = InvalidRight;

    fn from_str(text: &str) -> Result<Right, InvalidRight> {
        let invalid = |reason| InvalidRight { text: text.to_owned(), reason };
        match text {
            "cluster:read" => return Ok(Right(Kind::ClusterRead)),
            "cluster:admin" => return Ok(Right(Kind::ClusterAdmin)),
            _ => {}
        }
        let shape = "write NAMESPACE/FAMILY:LEVEL, cluster:read or cluster:admin";
        let (namespace, rest) = text.rsplit_once('/').ok_or_else(|| invalid(shape))?;
        let (family, level) = rest.split_once(':').ok_or_else(|| invalid(shape))?;
        if namespace.is_empty() || namespace.chars().any(char::is_control) {
            return Err(invalid("the namespace must not be empty or have control characters; * means all"));
        }
        let family = match family {
            "*" => None,
            word => Some(Family::from_word(word).ok_or_else(|| {
                invalid("the family must be limiter, locks, events, ledger, decisions or *")
            })?),
        };
        let level =
            Level::from_word(level).ok_or_else(|| invalid("the level must be read, use or manage"))?;
        Ok(Right(Kind::Namespace { namespace: Pattern::new(namespace), family, level }))
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Namespace { namespace, family, level } => {
                write!(f, "{namespace}/{}:{level}", family.map_or("*", Family::word))
            }
            Kind::ClusterRead => f.write_str("cluster:read"),
            Kind::ClusterAdmin => f.write_str("cluster:admin"),
        }
    }
}

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Family(namespace, family, level) => write!(f, "{namespace}/{family}:{level}"),
            Need::Namespace(namespace, level) | Need::AnyFamily(namespace, level) => {
                write!(f, "{namespace}/*:{level}")
            }
            Need::Anywhere(level) => write!(f, "*/*:{level}"),
            Need::ClusterRead => f.write_str("cluster:read"),
            Need::ClusterAdmin => f.write_str("cluster:admin"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_read_and_written() {
        #[track_caller]
        fn check(text: &str, expect: Option<&str>) {
            let found = text.parse::<Right>();
            match expect {
                None => assert_eq!(found.map(|right| right.to_string()), Ok(text.to_owned())),
                Some(reason) => {
                    let told = found.unwrap_err().to_string();
                    assert!(told.starts_with(&format!("{text:?}")) && told.contains(reason), "{told}");
                }
            }
        }
        check("shop/limiter:use", None);
        check("*/*:manage", None);
        check("a/b/c/ledger:read", None);
        check("cluster:read", None);
        check("cluster:admin", None);
        check("cluster:write", Some("write NAMESPACE/FAMILY:LEVEL"));
        check("shop", Some("write NAMESPACE/FAMILY:LEVEL"));
        check("shop/limiter", Some("write NAMESPACE/FAMILY:LEVEL"));
        check("shop/limits:use", Some("the family must be"));
        check("shop/limiter:write", Some("the level must be"));
        check("/limiter:use", Some("the namespace must not be empty"));
        check("shop/limiter:use ", Some("the level must be"));
    }

    #[test]
    fn a_level_includes_those_before_it() {
        #[track_caller]
        fn check(right: &str, need: Need<'_>, expect: bool) {
            assert_eq!(right.parse::<Right>().unwrap().allows(need), expect, "{right} for {need}");
        }
        use Family::{Ledger, Limiter};
        use Level::{Manage, Read, Use};
        check("shop/limiter:use", Need::Family("shop", Limiter, Read), true);
        check("shop/limiter:use", Need::Family("shop", Limiter, Use), true);
        check("shop/limiter:use", Need::Family("shop", Limiter, Manage), false);
        check("shop/limiter:use", Need::Family("shop", Ledger, Read), false);
        check("shop/limiter:use", Need::Family("other", Limiter, Read), false);
        check("shop/*:use", Need::Family("shop", Ledger, Use), true);
        check("shop/*:use", Need::Namespace("shop", Use), true);
        check("shop/*:use", Need::Namespace("shop", Manage), false);
        check("shop/limiter:manage", Need::Namespace("shop", Manage), false);
        check("s*/*:manage", Need::Namespace("shop", Manage), true);
        check("*/*:manage", Need::ClusterRead, false);
        check("cluster:read", Need::ClusterRead, true);
        check("cluster:read", Need::ClusterAdmin, false);
        check("cluster:read", Need::Family("shop", Limiter, Read), false);
        check("cluster:admin", Need::ClusterRead, true);
        check("cluster:admin", Need::Namespace("shop", Manage), true);
        check("shop/limiter:use", Need::AnyFamily("shop", Use), true);
        check("shop/limiter:use", Need::AnyFamily("shop", Manage), false);
        check("s*/limiter:use", Need::AnyFamily("other", Read), false);
        check("shop/limiter:use", Need::Anywhere(Read), true);
        check("shop/*:use", Need::Anywhere(Manage), false);
        check("cluster:admin", Need::Anywhere(Manage), true);
        check("cluster:read", Need::Anywhere(Read), false);
        check("cluster:read", Need::AnyFamily("shop", Read), false);
        // A namespace may be called like the word `cluster`.
        check("cluster/*:read", Need::Family("cluster", Ledger, Read), true);
        check("cluster/*:read", Need::ClusterRead, false);
    }
}
