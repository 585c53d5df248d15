//! Errors as they are told: every code with its status and its explanation, and the problem document around it.

use axum::{
    http::{
        StatusCode,
        header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use limina_wire::{Problem, problem::MEDIA_TYPE};
use serde_json::Value;
use std::borrow::Cow;

/// One line per code: its status, its title, and what the reference says about it.
macro_rules! codes {
    ($($code:ident $status:ident $title:literal $help:literal)*) => {
        /// The kinds of problems, as stable words for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code { $($code),* }

        impl Code {
            /// All of them, in the order of the reference.
            pub(crate) const ALL: &[Code] = &[$(Code::$code),*];

            /// The word itself.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Code::$code => stringify!($code)),* }
            }

            pub(crate) fn status(self) -> StatusCode {
                match self { $(Code::$code => StatusCode::$status),* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(Code::$code => $title),* }
            }

            /// What it means and what to do, for the reference.
            pub(crate) fn help(self) -> &'static str {
                match self { $(Code::$code => $help),* }
            }
        }
    };
}

codes! {
    InvalidRequest BAD_REQUEST "The request is not valid"
        "The body, a name, a header or a query parameter does not parse or validate. The member field says which; detail says why. Nothing was done."
    NotFound NOT_FOUND "There is no such path"
        "The path is not one of this reference."
    MethodNotAllowed METHOD_NOT_ALLOWED "Method not allowed on this path"
        "The header Allow names the methods that it knows."
    RequestTimeout REQUEST_TIMEOUT "The body did not arrive in time"
        "The whole body must arrive within 30 seconds. Nothing was done, and the connection is closed."
    PayloadTooLarge PAYLOAD_TOO_LARGE "The body is too large"
        "Bodies may have 1 MiB, those of batches 16 MiB. Nothing was done, and the connection is closed."
    AnswerTooLarge PAYLOAD_TOO_LARGE "The answer would be too large"
        "So many rules, overrides, holds or events would stand in the answer that it could have more than max_bytes. Nothing was done. Ask for less at a time: a smaller batch, or fewer overrides that apply to the same key-values."
    UnsupportedMediaType UNSUPPORTED_MEDIA_TYPE "The body is not declared as JSON"
        "Content-Type must be application/json or absent, and the body must not be compressed."
    IdempotencyKeyReused UNPROCESSABLE_ENTITY "The Idempotency-Key belongs to another request"
        "The key was used within the last 24 hours with another method, path or body. Nothing was done. Draw a new key for a new request."
    IdempotencyKeyInUse CONFLICT "A request with this Idempotency-Key is under way"
        "The first request with this key waits for its answer. Repeat it a little later to get the same answer."
    NamespaceNotFound NOT_FOUND "There is no such namespace"
        "A namespace comes into being with its first write."
    DuplicateLimitName CONFLICT "There is a limit of that name already"
        "The member limit_name says which."
    LimitNotFound NOT_FOUND "A limit does not exist"
        "The member limit_names lists all that are missing, limit_name the first of them."
    OperationNotFound NOT_FOUND "The operation has no such hold"
        "The operation is not known, has no hold in limit_name, or was finished in another way: then state says how."
    OperationAlreadyInFinalState CONFLICT "The operation is finished already"
        "In the limits of limit_names the operation was committed or rolled back; it cannot be held there again."
    DuplicateOperation CONFLICT "The operation has an open hold already"
        "The member limit_names lists the limits. With skip_existing_holds such limits are passed over."
    LimitExceeded CONFLICT "A ceiling would be exceeded"
        "What is committed plus all positive open holds must not pass the ceiling. The member limits lists each limit that refuses, with its ceiling."
    ValueOverflow CONFLICT "A value would leave the range of a 64-bit integer"
        "The member limit_names lists the limits."
    CommitExceedsHold CONFLICT "The commit is larger than the hold"
        "A commit may take what is held or less, of the same sign. The member held_value says what is held, value what was asked."
    RuleNotFound NOT_FOUND "There is no such rule"
        "The member rule says which."
    RuleAlreadyExists CONFLICT "There is a rule of that name already"
        "The member rule says which. PUT replaces it, PATCH changes parts of it."
    RuleManagedByFile CONFLICT "The rule is managed by the rules file"
        "The member rule says which. Only the file changes it and its overrides."
    OverridesConflict CONFLICT "An override lacks a key of the new group_by"
        "The member override names one such override of rule. Change or delete it first."
    OverrideNotFound NOT_FOUND "There is no such override"
        "The members rule and override say which."
    OverrideAlreadyExists CONFLICT "There is an override of that name, or with these key-values, already"
        "The member override names the one that is there."
    LimitReached TOO_MANY_REQUESTS "A limit is reached"
        "The members violated-policies and limits say which limits refuse, retry_after_ms when the same check would pass if nothing else happened. Nothing was taken. The status is 409 for a counter."
    LeaseNotFound NOT_FOUND "There is no such lease"
        "It was released, or its time has run out, or there never was one. The member lease_id says which."
    LockHeld CONFLICT "A lock is held, or an earlier request waits for it"
        "The member key_values says which lock; lock_id, owner and expires_in_ms who holds it, if anybody does, and waiting how many wait for it. Nothing is held. With a wait the request would have waited."
    LockWaitTimeout CONFLICT "A lock was not free in time"
        "The request has waited for as long as its wait says. The members are those of LockHeld. Nothing is held."
    ClientHungUp BAD_REQUEST "The client closed the connection before it was answered"
        "Closing the sending side of a connection counts as hanging up: the request waits no more, and holds nothing. Keep the connection open until the answer."
    LockNotFound NOT_FOUND "There is no such lock"
        "It was released, or its time has run out, or there never was one. The member lock_id says which. A holder that sees this does not hold the lock any more."
    SessionMismatch CONFLICT "The lock is held by another session"
        "The session_id is not the one that was granted with this lock_id."
    StreamNotFound NOT_FOUND "There is no such stream"
        "The member stream says which. PUT makes it."
    StreamModeConflict CONFLICT "The stream has another mode"
        "A stream's mode stays what it is. Delete the stream, or use another name."
    EventConflict CONFLICT "The same event has happened within the duration"
        "The member conflicting_time says when; invalidated whether that event will not be published because of this one."
    StreamFull INSUFFICIENT_STORAGE "The stream has reached max_events"
        "The member max_events says how many. Room comes by itself as their duration passes. Nothing was done."
    LimitsValuesReadingException SERVICE_UNAVAILABLE "Stored history could not be read"
        "The values could not be read from storage. Try again; if it stays, the operator has to look at the storage."
    Overloaded SERVICE_UNAVAILABLE "The server is overloaded"
        "The queue is full. Nothing was done; try again after Retry-After."
    ShuttingDown SERVICE_UNAVAILABLE "The server is shutting down"
        "Nothing was done; try again after Retry-After."
    StorageFull SERVICE_UNAVAILABLE "The storage is full"
        "Nothing was done. Reads go on; writes do when the operator has made room."
    ShardUnavailable SERVICE_UNAVAILABLE "The namespace is not available at the moment"
        "It is being opened, or its storage does not answer. Nothing was done; try again after Retry-After."
    OutcomeUnknown SERVICE_UNAVAILABLE "It is not known whether this was done"
        "Repeat it with the same Idempotency-Key or operation id to find out."
}

/// A request that is answered by a problem document.
#[derive(Debug)]
pub(crate) struct Failure {
    problem: Box<Problem>,
    closes: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Failure {
        let problem = Problem {
            kind: format!("/docs#{}", code.word()),
            title: Cow::Borrowed(code.title()),
            status: code.status().as_u16(),
            detail: detail.into(),
            code: Cow::Borrowed(code.word()),
            extensions: serde_json::Map::new(),
        };
        Failure { problem: Box::new(problem), closes: false }
    }

    /// The request does not parse or validate, because of this field, parameter or header.
    pub(crate) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidRequest, detail).with("field", field.into())
    }

    /// Adds a member for programs.
    pub(crate) fn with(mut self, member: &str, value: impl Into<Value>) -> Failure {
        self.problem.extensions.insert(member.to_owned(), value.into());
        self
    }

    /// The same, of a field of an object that stands there.
    pub(crate) fn within(mut self, object: &str) -> Failure {
        if let Some(Value::String(field)) = self.problem.extensions.get_mut("field") {
            field.insert_str(0, &format!("{object}."));
        }
        self
    }

    /// The rest of the request is not read, so the connection cannot be used again.
    pub(crate) fn closing(mut self) -> Failure {
        self.closes = true;
        self
    }

    /// The document alone, as it stands in a batch.
    pub(crate) fn into_problem(self) -> Problem {
        *self.problem
    }
}

impl From<limina_node::NoRandomNumbers> for Failure {
    fn from(error: limina_node::NoRandomNumbers) -> Failure {
        Failure::new(Code::ShardUnavailable, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = super::json(status, &*self.problem);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
