//! Errors of the HTTP API: every code with its status and its explanation, and the problem document that carries it.

use super::{json::json, request_id};
use axum::{
    http::{
        StatusCode,
        header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use limina_api::{Problem, problem::MEDIA_TYPE};
use serde_json::Value;
use std::borrow::Cow;

/// Each code has a status, a title, and an explanation with `code` in backquotes, which `/docs` shows.
macro_rules! codes {
    ($($code:ident $status:ident $title:literal $help:literal)*) => {
        /// The stable words by which programs tell problems apart.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code { $($code),* }

        impl Code {
            /// All codes, in the order in which `/docs` lists them.
            pub(crate) const ALL: &[Code] = &[$(Code::$code),*];

            /// The code as the field `code` contains it.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Code::$code => stringify!($code)),* }
            }

            pub(crate) fn status(self) -> StatusCode {
                match self { $(Code::$code => StatusCode::$status),* }
            }

            pub(crate) fn title(self) -> &'static str {
                match self { $(Code::$code => $title),* }
            }

            /// What the code means and what a client can do, for `/docs`.
            pub(crate) fn help(self) -> &'static str {
                match self { $(Code::$code => $help),* }
            }
        }
    };
}

codes! {
    InvalidRequest BAD_REQUEST "The request is not valid"
        "The body, a name, a header or a query parameter does not parse or is outside its limits. The field `field` says which part is wrong, and `detail` says why. Nothing was done."
    Unauthorized UNAUTHORIZED "The request needs a valid token"
        "Send the header `Authorization: Bearer TOKEN` with a token that the server knows. A token that has expired, or is not valid yet, counts as unknown. Nothing was done."
    Forbidden FORBIDDEN "The request is not allowed"
        "The token does not have the right that the field `needs` names. A namespace that the token may not use gives this answer whether it exists or not. On a server without tokens: the header `Host` or `Origin` is that of another site. Nothing was done."
    NotFound NOT_FOUND "The path does not exist"
        "This reference lists all paths. Names in paths must be percent-encoded: `/` is `%2F`."
    MethodNotAllowed METHOD_NOT_ALLOWED "The path does not support this method"
        "The header `Allow` lists the methods that the path supports."
    RequestTimeout REQUEST_TIMEOUT "The body did not arrive in time"
        "The whole body must arrive within 30 seconds. Nothing was done. Over HTTP/1.1 the server closes the connection."
    PayloadTooLarge PAYLOAD_TOO_LARGE "The body is too large"
        "A body may have 1 MiB, on a batch path 16 MiB. Nothing was done. Over HTTP/1.1 the server closes the connection. Split the batch."
    AnswerTooLarge PAYLOAD_TOO_LARGE "The answer would be too large"
        "The answer could have more than `max_bytes`, because so many rules, overrides, holds or events belong to it. Nothing was done. Ask for less at a time: send a smaller batch, or have fewer overrides that apply to the same key-values."
    UnsupportedMediaType UNSUPPORTED_MEDIA_TYPE "The body is not declared as JSON"
        "The header `Content-Type` must be `application/json` or absent, and the body must not be compressed."
    IdempotencyKeyReused UNPROCESSABLE_ENTITY "The Idempotency-Key belongs to another request"
        "The key was used within the last 24 hours with another method, path or body. Nothing was done. Use a new key for each new request."
    IdempotencyKeyInUse CONFLICT "The first request with this Idempotency-Key is not answered yet"
        "Retry the same request a little later. It then returns the answer of the first request."
    NamespaceNotFound NOT_FOUND "The namespace does not exist"
        "The first write to a namespace creates it."
    DuplicateLimitName CONFLICT "The limit already exists"
        "The field `limit_name` names the limit. PATCH changes it."
    LimitNotFound NOT_FOUND "A limit does not exist"
        "The field `limit_names` lists all limits that do not exist; `limit_name` is the first of them. Create them, or send `create_missing` with the hold."
    OperationNotFound NOT_FOUND "There is no such operation, or it has ended"
        "In the ledger: the operation is not known, has no hold in `limit_name`, or was finished in another way. A decision: it is not known, still waits, or has ended in another way. The field `state` says so where it is known."
    OperationAlreadyInFinalState CONFLICT "The operation is already finished"
        "In the ledger: the operation was committed or rolled back in the limits of `limit_names`, and cannot hold there again. A decision: it ended at `position`, with `state`. Use a new operation id."
    DuplicateOperation CONFLICT "The operation already has an open hold"
        "The field `limits` lists each limit in which it has one, with the `held_value`. With `skip_existing_holds` the server leaves holds of the same value as they are; the error then lists only holds of another value."
    LimitExceeded CONFLICT "A ceiling would be exceeded"
        "The committed value plus all positive open holds must not exceed the ceiling. The field `limits` lists each limit that refuses, with `ceiling`, `commit_value`, `hold_value` and `available`, the largest value that could be held now."
    LimitInUse CONFLICT "A hold is open in the limit"
        "A limit cannot be deleted while a hold is open in it. The field `open_holds` says how many there are. Commit them or roll them back first; `GET /operations?state=held&limit_name=` lists them."
    ValueOverflow CONFLICT "A value would not fit into a 64-bit integer"
        "The field `limit_names` lists the limits."
    CommitExceedsHold CONFLICT "The commit is larger than the hold"
        "A commit may have at most the held value, with the same sign. The field `held_value` is the held value, `value` the requested one."
    Refused CONFLICT "The decision is refused"
        "Nothing has moved, and the id is free. The field `refused_by` lists what refuses, and `limits`, `holds`, `locks` and `event` say why, each with its own `code`. `retry_after_ms` is the time after which all of it would be allowed if nothing else happened; it is `null` if a slot, a ceiling or a lock refuses. The status is 429 if a limit of the limiter refuses."
    OperationReused UNPROCESSABLE_ENTITY "The operation id belongs to another request"
        "A decision is open or waits under this id, with another request, or an operation of the ledger has it. Nothing was done. Use a new id for each new request."
    OperationWaits CONFLICT "The same request waits again"
        "The same decision was asked for again while this request waited. The later request has taken its place."
    RuleNotFound NOT_FOUND "The rule does not exist"
        "The field `rule` names it."
    RuleAlreadyExists CONFLICT "The rule already exists"
        "The field `rule` names it. PUT replaces the rule, PATCH changes parts of it."
    RuleSetNotFound NOT_FOUND "The rule set does not exist"
        "The field `rule_set` names it. PUT creates it."
    RuleSetManagedByServer CONFLICT "The rule set is the server's own"
        "Only the server's configuration can change the rule sets `file` and `envoy`. The field `rule_set` names the set."
    RuleManagedBySet CONFLICT "The rule belongs to a rule set"
        "Only a PUT or DELETE of its set can change the rule. The field `rules` lists each such rule with the set in `managed_by`; `rule` and `managed_by` are those of the first one."
    OverridesConflict CONFLICT "An override lacks a key of the new group_by"
        "The field `override` names one such override of `rule`. Change or delete it first."
    OverrideNotFound NOT_FOUND "The override does not exist"
        "The fields `rule` and `override` name it."
    OverrideAlreadyExists CONFLICT "An override with this name or these key-values already exists"
        "The field `override` names the existing one. PUT replaces it, PATCH changes parts of it."
    LimitReached TOO_MANY_REQUESTS "A limit is reached"
        "Nothing was taken. The fields `violated-policies` and `limits` say which limits refuse. `retry_after_ms` is the time after which the same check would pass if nothing else happened. The status is 409 for a counter."
    NoRuleApplies UNPROCESSABLE_ENTITY "No rule applies"
        "The check or the lease has `require_match`, and no rule applies to its key-values, which the field `key_values` repeats. Nothing was taken. Look for a misspelt key, or create the rule."
    LeaseNotFound NOT_FOUND "The lease does not exist"
        "It was released, has expired, or never existed. The field `lease_id` names it."
    LockHeld CONFLICT "The lock is held, or an earlier request waits for it"
        "Nothing was granted. The field `key_values` names the lock; `lock_id`, `owner` and `expires_in_ms` describe its holder, if it has one; `waiting` is the number of requests that wait for it. Retry later, or send a `wait`."
    LockWaitTimeout CONFLICT "The lock was not free in time"
        "The request waited for its whole `wait`. Nothing was granted. The fields are those of `LockHeld`."
    ClientHungUp BAD_REQUEST "The client closed the connection before the answer"
        "A client that closes its sending side has hung up: its request stops waiting and holds nothing. Keep the connection open until the answer."
    LockNotFound NOT_FOUND "The lock is not held"
        "It was released, has expired, or was never granted. A holder that gets this answer no longer holds the lock. The field `lock_id` names it."
    SessionMismatch CONFLICT "The lock or the lease is held by another session"
        "The `session_id` is not the one that was granted together with this `lock_id` or `lease_id`. Nothing was changed."
    PartOfOperation CONFLICT "It is a part of an open decision"
        "Only the decision as a whole can be committed, rolled back or extended. The field `operation_id` names it."
    StreamNotFound NOT_FOUND "The stream does not exist"
        "The field `stream` names it. PUT creates it."
    StreamModeConflict CONFLICT "The stream has another mode"
        "The mode of a stream cannot change. Delete the stream first, or use another name."
    EventConflict CONFLICT "The same event happened within the duration"
        "The field `conflicting_time` is the time of the earlier event, in epoch milliseconds. `invalidated` says whether this request invalidated it, so that it will not be published."
    StreamFull INSUFFICIENT_STORAGE "The stream is full"
        "The stream remembers `max_events` keys. It forgets each one after its duration. Nothing was done; retry later."
    QuotaExceeded INSUFFICIENT_STORAGE "The namespace has reached a quota"
        "The field `quota` names it, `limit` is the most that the namespace may have, and `used` is what it has. Nothing was done. Release, delete or wait for the expiry of something, or ask the operator for a larger quota. Requests that only release, finish, extend or delete are never refused for a quota, except that a request with a new Idempotency-Key needs room for its reply, and a hold that gets its first expiry needs room for a timer."
    LimitsValuesReadingException SERVICE_UNAVAILABLE "Stored history could not be read"
        "Retry. If the error persists, the operator must check the storage."
    Overloaded SERVICE_UNAVAILABLE "The server is overloaded"
        "The request would have to wait too long, or a queue or the memory budget of the server is full. Nothing was done; retry after `Retry-After`."
    ShuttingDown SERVICE_UNAVAILABLE "The server is shutting down"
        "Nothing was done; retry after `Retry-After`."
    StorageFull SERVICE_UNAVAILABLE "The storage is full"
        "Nothing was done. Reads still work. Writes work again when the operator has freed space."
    ShardUnavailable SERVICE_UNAVAILABLE "The namespace is temporarily unavailable"
        "Its shard is being opened, or its storage does not respond. Nothing was done; retry after `Retry-After`."
    OutcomeUnknown SERVICE_UNAVAILABLE "The request may have been executed"
        "The server does not know whether it was. Send it again with the same Idempotency-Key or operation id: then it is executed at most once."
}

/// A request that is answered with a problem document.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    problem: Box<Problem>,
    /// Set for an invalid request: which kind of thing `field` names. The problem's `detail` is then only a predicate, such as
    /// "must not be empty", until [`Failure::into_problem`] makes it a sentence.
    invalid: Option<Part>,
    /// A sentence that is added to `detail`.
    hint: Option<String>,
    closes: bool,
    /// The header `Retry-After` of a 503, in seconds.
    retry_after: u64,
}

/// A part of a request that can be invalid.
#[derive(Debug, Clone, Copy)]
enum Part {
    Field,
    Header,
    PathParameter,
    QueryParameter,
}

impl Failure {
    /// `detail` is one or more whole sentences.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Failure {
        let problem = Problem {
            kind: format!("/docs#{}", code.word()),
            title: Cow::Borrowed(code.title()),
            status: code.status().as_u16(),
            detail: detail.into(),
            code: Cow::Borrowed(code.word()),
            request_id: None,
            extensions: serde_json::Map::new(),
        };
        Failure { code, problem: Box::new(problem), invalid: None, hint: None, closes: false, retry_after: 1 }
    }

    /// A field of the body is invalid; `field` is its path, or `body` for the body as a whole. `reason` is a predicate, such as
    /// "must not be empty".
    pub(crate) fn invalid(field: impl Into<String>, reason: impl Into<String>) -> Failure {
        Failure::invalid_part(Part::Field, field.into(), reason.into())
    }

    /// Like [`Failure::invalid`], for a header.
    pub(crate) fn invalid_header(name: impl Into<String>, reason: impl Into<String>) -> Failure {
        Failure::invalid_part(Part::Header, name.into(), reason.into())
    }

    /// Like [`Failure::invalid`], for a name or id in the path.
    pub(crate) fn invalid_path(parameter: impl Into<String>, reason: impl Into<String>) -> Failure {
        Failure::invalid_part(Part::PathParameter, parameter.into(), reason.into())
    }

    /// Like [`Failure::invalid`], for a query parameter.
    pub(crate) fn invalid_parameter(name: impl Into<String>, reason: impl Into<String>) -> Failure {
        Failure::invalid_part(Part::QueryParameter, name.into(), reason.into())
    }

    fn invalid_part(part: Part, field: String, reason: String) -> Failure {
        let failure = Failure::new(Code::InvalidRequest, reason).with("field", field);
        Failure { invalid: Some(part), ..failure }
    }

    /// The code of the problem.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The same problem with another status than that of its code.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Failure {
        self.problem.status = status.as_u16();
        self
    }

    /// Adds a field for programs.
    pub(crate) fn with(mut self, field: &str, value: impl Into<Value>) -> Failure {
        self.problem.extensions.insert(field.to_owned(), value.into());
        self
    }

    /// Adds a sentence for people.
    pub(crate) fn hinting(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The same mistake, seen from an object that has the invalid object at this path.
    pub(crate) fn within(self, path: &str) -> Failure {
        match self.field().map(str::to_owned) {
            Some(field) => self.with("field", format!("{path}.{field}")),
            None => self,
        }
    }

    /// Closes the connection after the answer, because the rest of the request is not read.
    pub(crate) fn closing(mut self) -> Failure {
        self.closes = true;
        self
    }

    /// The same request may succeed after this time.
    pub(crate) fn retry_after(mut self, millis: u64) -> Failure {
        self.retry_after = millis.div_ceil(1000).max(1);
        self
    }

    /// The path of the invalid field, if the request is invalid.
    pub(crate) fn field(&self) -> Option<&str> {
        self.field_text("field")
    }

    /// A field for programs, if it is there and a text.
    pub(crate) fn field_text(&self, field: &str) -> Option<&str> {
        self.problem.extensions.get(field).and_then(Value::as_str)
    }

    /// What is wrong, without the name of the field and without a hint.
    pub(crate) fn reason(&self) -> &str {
        &self.problem.detail
    }

    /// The problem document with its final `detail`.
    pub(crate) fn into_problem(mut self) -> Problem {
        if let Some(part) = self.invalid {
            self.problem.detail = sentence(part, self.field().unwrap_or("body"), self.reason());
        }
        if let Some(hint) = &self.hint {
            self.problem.detail.push(' ');
            self.problem.detail.push_str(hint);
        }
        *self.problem
    }
}

/// "The field `limit` must be an integer." A reason that is not a predicate follows after a colon.
fn sentence(part: Part, field: &str, reason: &str) -> String {
    let subject = match part {
        Part::Field if field == "body" => "The body".to_owned(),
        Part::Field => format!("The field `{field}`"),
        Part::Header => format!("The header `{field}`"),
        Part::PathParameter => format!("The path parameter `{field}`"),
        Part::QueryParameter => format!("The query parameter `{field}`"),
    };
    let is_predicate = ["must ", "is ", "has ", "does "].iter().any(|verb| reason.starts_with(verb));
    let link = if is_predicate { "" } else { "is not valid: " };
    let end = if reason.ends_with(['.', '…']) { "" } else { "." };
    format!("{subject} {link}{reason}{end}")
}

impl From<limina_node::NoRandomNumbers> for Failure {
    fn from(error: limina_node::NoRandomNumbers) -> Failure {
        Failure::new(Code::ShardUnavailable, error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let (closes, retry_after) = (self.closes, self.retry_after);
        let problem = Problem { request_id: request_id::current(), ..self.into_problem() };
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = json(status, &problem);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from(retry_after));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
