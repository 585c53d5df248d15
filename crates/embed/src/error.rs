//! Errors: a refusal is a decision, a failure is the absence of one.

use limina_engine::{Invalid, Name, Reason};
use limina_node::{NoRandomNumbers, Unavailable};
use std::{error, fmt};

/// Why a call did not do what it was asked for.
///
/// The two cases need different reactions, so they are apart:
///
/// - [`Error::Refused`]: Limina decided *no*, for example because a limit is reached or a lock is held. The refusal is the
///   family's own enum ([`ledger::Refusal`](crate::ledger::Refusal), …) and carries the facts of the decision. The decision
///   is as durable as a success.
/// - [`Error::Failed`]: there is no decision. See [`Failure`] for what may have happened and whether to retry.
///
/// ```
/// use limina_embed::{Error, Limina, limiter::{Limit, Refusal, Rule}};
/// # use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limina::in_memory().await?.namespace("shop")?.limiter();
/// let per_user = Rule::new("per-user", Limit::AtMost(1)).group_by(["user"]);
/// limiter.create_rule(per_user.fixed_window(Duration::from_secs(60))).await?;
///
/// limiter.check([("user", "ann")]).await?;
/// match limiter.check([("user", "ann")]).await {
///     Ok(_) => unreachable!("the limit is 1"),
///     Err(Error::Refused(Refusal::LimitReached(decision))) => {
///         println!("retry in {:?}", decision.retry_after);
///     }
///     Err(Error::Refused(other)) => return Err(other.code().into()),
///     Err(Error::Failed(failure)) => return Err(failure.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Error<R> {
    /// Limina decided against it.
    Refused(R),
    /// There is no decision.
    Failed(Failure),
}

impl<R> Error<R> {
    /// The refusal, if the call was refused.
    pub fn refusal(&self) -> Option<&R> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            Error::Failed(_) => None,
        }
    }

    /// The failure, if there is no decision.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Refused(_) => None,
            Error::Failed(failure) => Some(failure),
        }
    }
}

impl<R: fmt::Debug> fmt::Display for Error<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(refusal) => write!(f, "refused: {refusal:?}"),
            Error::Failed(failure) => failure.fmt(f),
        }
    }
}

impl<R: fmt::Debug> error::Error for Error<R> {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Error::Refused(_) => None,
            // The failure's text is this error's text, so its source comes next.
            Error::Failed(failure) => failure.source(),
        }
    }
}

impl<R> From<Failure> for Error<R> {
    fn from(failure: Failure) -> Error<R> {
        Error::Failed(failure)
    }
}

impl<R> From<Invalid> for Error<R> {
    fn from(invalid: Invalid) -> Error<R> {
        Error::Failed(Failure::Invalid(invalid))
    }
}

/// Why there is no decision. Nothing was done, except perhaps after [`Failure::OutcomeUnknown`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// An argument is not valid. The same call fails again.
    #[error("invalid argument")]
    Invalid(#[source] Invalid),
    /// The request would wait too long for its shard, or too many requests of this kind wait in the namespace. Retry later.
    #[error("overloaded: too many requests are waiting")]
    Overloaded,
    /// The disk is almost full. Reads and most removals still work; writes work again once there is space.
    #[error("the storage is full")]
    StorageFull,
    /// The shard is being opened, its store does not answer, or a stored record cannot be read. Retry later.
    #[error("the namespace is not available at the moment")]
    Unavailable,
    /// The instance was closed.
    #[error("this instance is closed")]
    Closed,
    /// The store failed while the request was being written: it may or may not have been done. Repeat the request under
    /// the same idempotency key or operation id to find out.
    #[error("it is not known whether this was done")]
    OutcomeUnknown,
    /// The answer would be larger than Limina returns at once. Ask for less.
    #[error("the answer would have more than {max_bytes} bytes")]
    AnswerTooLarge {
        /// The most bytes that an answer may have.
        max_bytes: u64,
    },
    /// The idempotency key was used for a different request within the last day.
    #[error("the idempotency key was used for another request")]
    IdempotencyKeyReused,
    /// Another request with the same idempotency key is still waiting for its answer.
    #[error("a request with this idempotency key is in progress")]
    IdempotencyKeyInUse,
    /// The operating system returned no random numbers, and the call needs a new id.
    #[error(transparent)]
    NoRandomNumbers(#[from] NoRandomNumbers),
}

impl Failure {
    /// Whether the same call may succeed later without any other change.
    pub fn is_temporary(&self) -> bool {
        match self {
            Failure::Overloaded
            | Failure::StorageFull
            | Failure::Unavailable
            | Failure::OutcomeUnknown
            | Failure::IdempotencyKeyInUse
            | Failure::NoRandomNumbers(_) => true,
            Failure::Invalid(_)
            | Failure::Closed
            | Failure::AnswerTooLarge { .. }
            | Failure::IdempotencyKeyReused => false,
        }
    }
}

impl From<Unavailable> for Failure {
    fn from(unavailable: Unavailable) -> Failure {
        match unavailable {
            Unavailable::Overloaded { .. } | Unavailable::MemoryFull => Failure::Overloaded,
            Unavailable::ShuttingDown => Failure::Closed,
            Unavailable::StorageFull => Failure::StorageFull,
            Unavailable::ShardUnavailable => Failure::Unavailable,
            Unavailable::OutcomeUnknown => Failure::OutcomeUnknown,
        }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Failure {
        Failure::Invalid(invalid)
    }
}

/// The name in this argument.
pub(crate) fn name(field: &str, text: &str) -> Result<Name, Invalid> {
    Name::new(text).map_err(|reason| Invalid::new(field, Reason::Name(reason)))
}
