//! What can go wrong, and what it says about the request.

use limina_api::{Problem, RequestId};
use serde::de::DeserializeOwned;
use std::{fmt, time::Duration};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Every kind has a [`Failure`] with the problem document, if the server sent one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The request is wrong. [`Failure::field`] names the part of it.
    #[error("{0}")]
    Invalid(Box<Failure>),
    /// The server needs a token, or does not know this one.
    #[error("{0}")]
    Unauthorized(Box<Failure>),
    /// The token lacks a right. [`Failure::needs`] names the right.
    #[error("{0}")]
    Forbidden(Box<Failure>),
    /// What the request names does not exist, or no longer exists.
    #[error("{0}")]
    NotFound(Box<Failure>),
    /// The request contradicts what exists.
    #[error("{0}")]
    Conflict(Box<Failure>),
    /// The answer is no: a limit, a ceiling, a lock or an earlier event is in the way. It may be yes later.
    #[error("{0}")]
    Refused(Box<Failure>),
    /// The server could not be reached, could not answer, or did not answer in time.
    #[error("{failure}{}", if *done == Done::Unknown { " (it may have been executed)" } else { "" })]
    Unavailable {
        /// Whether the request may have been executed.
        done: Done,
        /// What happened last.
        failure: Box<Failure>,
    },
}

/// Whether a request that failed may have been executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// Certainly nothing was done.
    No,
    /// It may have been done.
    Unknown,
}

/// The details of an [`Error`].
#[derive(Debug, Clone)]
pub struct Failure {
    /// What happened, for people.
    pub message: String,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// The problem document, if the server sent one.
    pub problem: Option<Problem>,
    /// When the server says that a repetition makes sense, counted from the answer.
    pub retry_after: Option<Duration>,
}

impl Error {
    /// The details: the message, the problem document, the status.
    pub fn failure(&self) -> &Failure {
        match self {
            Error::Invalid(failure)
            | Error::Unauthorized(failure)
            | Error::Forbidden(failure)
            | Error::NotFound(failure)
            | Error::Conflict(failure)
            | Error::Refused(failure)
            | Error::Unavailable { failure, .. } => failure,
        }
    }

    /// The stable word for what happened, such as `RuleNotFound`.
    pub fn code(&self) -> Option<&str> {
        self.failure().code()
    }

    /// The kind of the error as a word, which is the same in all clients.
    pub fn kind(&self) -> &'static str {
        match self {
            Error::Invalid(_) => "Invalid",
            Error::Unauthorized(_) => "Unauthorized",
            Error::Forbidden(_) => "Forbidden",
            Error::NotFound(_) => "NotFound",
            Error::Conflict(_) => "Conflict",
            Error::Refused(_) => "Refused",
            Error::Unavailable { .. } => "Unavailable",
        }
    }

    /// The answer to a heartbeat says that the grant no longer exists. Every other failure says nothing about the grant.
    pub(crate) fn says_gone(&self) -> bool {
        matches!(self, Error::NotFound(_) | Error::Conflict(_) | Error::Refused(_))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(Box::new(Failure::new(message)))
    }

    pub(crate) fn unavailable(done: Done, message: impl Into<String>) -> Error {
        Error::Unavailable { done, failure: Box::new(Failure::new(message)) }
    }

    /// An answer that this client cannot read. The request may have been executed.
    pub(crate) fn unreadable(status: u16, why: impl fmt::Display) -> Error {
        let mut failure = Failure::new(format!("the answer cannot be read: {why}"));
        failure.status = Some(status);
        Error::Unavailable { done: Done::Unknown, failure: Box::new(failure) }
    }

    /// What an answer with an error status means.
    pub(crate) fn of(status: u16, problem: Option<Box<Problem>>, retry_after: Option<Duration>) -> Error {
        let code = problem.as_ref().map_or("", |problem| &problem.code);
        let done = unavailability(status, code);
        let refused = REFUSALS.contains(&code);
        let failure = Box::new(Failure {
            message: match &problem {
                Some(problem) if problem.detail.is_empty() => format!("{}: {}", problem.code, problem.title),
                Some(problem) => format!("{}: {}", problem.code, problem.detail),
                None => format!("the server answered with status {status}"),
            },
            status: Some(status),
            retry_after: problem.as_deref().and_then(retry_after_of).or(retry_after),
            problem: problem.map(|problem| *problem),
        });
        match (done, status) {
            (Some(done), _) => Error::Unavailable { done, failure },
            _ if refused => Error::Refused(failure),
            (None, 401) => Error::Unauthorized(failure),
            (None, 403) => Error::Forbidden(failure),
            (None, 404) => Error::NotFound(failure),
            (None, 409) => Error::Conflict(failure),
            (None, _) => Error::Invalid(failure),
        }
    }
}

/// The `done` of the [`Error::Unavailable`] that an answer means, or `None` if the answer is the server's word on the request.
pub(crate) fn unavailability(status: u16, code: &str) -> Option<Done> {
    match (status, code) {
        (..400, _) => None,
        (_, code) if REFUSALS.contains(&code) => None,
        (_, "OutcomeUnknown" | "IdempotencyKeyInUse") => Some(Done::Unknown),
        (_, "ClientHungUp") | (408 | 429 | 503, _) => Some(Done::No),
        (500.., _) => Some(Done::Unknown),
        _ => None,
    }
}

const REFUSALS: [&str; 8] = [
    "LimitReached",
    "LimitExceeded",
    "LockHeld",
    "LockWaitTimeout",
    "EventConflict",
    "Refused",
    "StreamFull",
    "QuotaExceeded",
];

fn retry_after_of(problem: &Problem) -> Option<Duration> {
    problem.extensions.get("retry_after_ms")?.as_u64().map(Duration::from_millis)
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: None, problem: None, retry_after: None }
    }

    /// The stable word for what happened, such as `RuleNotFound`.
    pub fn code(&self) -> Option<&str> {
        self.problem.as_ref().map(|problem| &*problem.code)
    }

    /// The problem document as a type, such as [`RefusedDecision`](crate::types::RefusedDecision) or
    /// [`LimitReached`](crate::types::LimitReached); `None` if there is none, or if it is of another type.
    pub fn document<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::to_value(self.problem.as_ref()?).and_then(serde_json::from_value).ok()
    }

    /// The id of the request, by which the server's log and audit name it.
    pub fn request_id(&self) -> Option<&str> {
        self.problem.as_ref()?.request_id.as_ref().map(RequestId::as_str)
    }

    /// The part of the request that is wrong.
    pub fn field(&self) -> Option<&str> {
        self.text("field")
    }

    /// The right that the token lacks.
    pub fn needs(&self) -> Option<&str> {
        self.text("needs")
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.problem.as_ref()?.extensions.get(name)?.as_str()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
