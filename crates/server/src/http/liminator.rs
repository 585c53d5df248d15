//! Liminator's Thrift interface over HTTP: `POST /liminator/v1`.
//!
//! Liminator's clients send the headers `woody.*`, and read from such headers which kind of error an answer is.

use super::{
    App,
    extract::{MAX_BODY, Namespace, NoQuery, read_body},
    from_wire::name,
    problem::{Code, Failure},
    status::{
        self,
        liminator::{MEDIA_TYPE, Unsuccessful, thrift, undeclared},
    },
};
use crate::{
    access::admit_namespace,
    liminator::messages::{
        Call, Exception, LimitChange, LimitRequest, LimitResponse, Reply, read_call, write_reply,
    },
};
use axum::{
    extract::{FromRequestParts, Request, State},
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{CONTENT_ENCODING, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
};
use limina_access::Level;
use limina_engine::{
    Command, Invalid, Outcome,
    ledger::{
        self, AsOf, Change, Context, Finalization, FinalizationChange, Finish, Hold, Refusal, Transfer,
        Values,
    },
};
use limina_node::Unavailable;

/// The headers that trace a request through Liminator's services. A request must have them, and its answer has them too.
const TRACE: [HeaderName; 3] = [
    HeaderName::from_static("woody.trace-id"),
    HeaderName::from_static("woody.span-id"),
    HeaderName::from_static("woody.parent-id"),
];

/// Executes one function of Liminator.
pub(super) async fn call(State(app): State<App>, request: Request) -> Response {
    let trace: Vec<(HeaderName, HeaderValue)> = TRACE
        .into_iter()
        .filter_map(|name| request.headers().get(&name).cloned().map(|value| (name, value)))
        .collect();
    let mut response = match answer(app, request).await {
        Ok(bytes) => thrift(bytes),
        Err(unsuccessful) => unsuccessful.into_response(),
    };
    response.headers_mut().extend(trace);
    response
}

async fn answer(app: App, request: Request) -> Result<Vec<u8>, Unsuccessful> {
    let (mut parts, body) = request.into_parts();
    // The body is read first, because an error that leaves it unread closes the connection.
    let bytes = read_body(&parts, body, MAX_BODY, app.body_timeout()).await?;
    let Namespace(scope) = Namespace::from_request_parts(&mut parts, &app).await?;
    NoQuery::from_request_parts(&mut parts, &app).await?;
    check_headers(&parts.headers)?;
    let (head, call) = read_call(&bytes).map_err(|error| Failure::invalid("body", error.to_string()))?;
    let Some(command) = command(&call)? else {
        return Ok(write_reply(head, &nothing_to_do(&call)));
    };
    if command.is_write() {
        scope.require(Level::Use)?;
        admit_namespace(&app, &scope).await?;
    }
    let reply = match app.ask(scope, None, command).await {
        Ok(Outcome::Ledger(Ok(reply))) => successful(reply)?,
        Ok(Outcome::Ledger(Err(refusal))) => match declared(&call, &refusal) {
            Some(exception) => {
                let bytes = write_reply(head, &Reply::Exception(exception));
                return Err(Unsuccessful::Declared(bytes, exception));
            }
            None => return Err(undeclared(status::ledger::refusal(refusal))),
        },
        Err(Unavailable::OutcomeUnknown) => {
            return Err(Unsuccessful::Unknown(status::unavailable(Unavailable::OutcomeUnknown)));
        }
        Err(unavailable) => return Err(Unsuccessful::Unavailable(status::unavailable(unavailable))),
        Ok(other) => match status::answer(Ok(other), StatusCode::OK) {
            Err(failure) => return Err(undeclared(failure)),
            // No other answer belongs to a command of the ledger.
            Ok(_) => return Err(Unsuccessful::Unexpected(status::unreadable())),
        },
    };
    Ok(write_reply(head, &reply))
}

fn check_headers(headers: &HeaderMap) -> Result<(), Failure> {
    let media_type = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let is_thrift = media_type.is_none_or(|text| {
        let essence = text.split(';').next().unwrap_or_default();
        essence.trim().eq_ignore_ascii_case(MEDIA_TYPE)
    });
    if !is_thrift || headers.contains_key(CONTENT_ENCODING) {
        let detail = format!("The body must be declared as {MEDIA_TYPE}, and must not be compressed.");
        return Err(Failure::new(Code::UnsupportedMediaType, detail));
    }
    match TRACE.iter().find(|name| headers.get(*name).is_none_or(HeaderValue::is_empty)) {
        Some(missing) => Err(Failure::invalid_header(missing.as_str(), "is required")),
        None => Ok(()),
    }
}

/// The answer to a call that names no limit.
fn nothing_to_do(call: &Call) -> Reply {
    match call {
        Call::Hold(_) | Call::Get(_) | Call::GetLastLimitsValues(_) => Reply::Values(Vec::new()),
        Call::Commit(_) | Call::Rollback(_) => Reply::Nothing,
    }
}

/// The command of a call. `None` if the call names no limit.
pub(crate) fn command(call: &Call) -> Result<Option<Command>, Failure> {
    let transfer = |transfer| Some(Command::Ledger(ledger::Command::Transfer(transfer)));
    Ok(match call {
        Call::Hold(request) | Call::Commit(request) | Call::Rollback(request) | Call::Get(request)
            if request.limit_changes.is_empty() =>
        {
            None
        }
        Call::Hold(request) => transfer(hold(request)?),
        Call::Commit(request) => transfer(finish(Finish::Commit, request)?),
        Call::Rollback(request) => transfer(finish(Finish::Rollback, request)?),
        Call::Get(request) => {
            let operation_id = name("operation_id", &request.operation_id)?;
            let limit_names = request.limit_changes.iter().map(|change| &change.limit_name);
            Some(values(limit_names, AsOf::Operation(operation_id))?)
        }
        Call::GetLastLimitsValues(names) if names.is_empty() => None,
        Call::GetLastLimitsValues(names) => Some(values(names.iter(), AsOf::Now)?),
    })
}

/// Liminator creates the limits that are missing, and accepts the same hold again.
fn hold(request: &LimitRequest) -> Result<Transfer, Failure> {
    let change = |change: &LimitChange| {
        Ok(Change {
            limit_id: change.limit_id.as_ref().map(|id| name("limit_id", id)).transpose()?,
            context: change.context.clone().map_or_else(|| Ok(Context::default()), Context::new)?,
            ..Change::new(name("limit_name", &change.limit_name)?, change.value)
        })
    };
    let hold = Hold::new(name("operation_id", &request.operation_id)?, changes(request, change)?)?;
    Ok(Transfer::Hold(hold.with_skip_existing_holds(true).with_create_missing(true)))
}

fn finish(finish: Finish, request: &LimitRequest) -> Result<Transfer, Failure> {
    let change = |change: &LimitChange| {
        let limit_name = name("limit_name", &change.limit_name)?;
        Ok(FinalizationChange { limit_name, value: Some(change.value) })
    };
    let operation_id = name("operation_id", &request.operation_id)?;
    Ok(Transfer::Finish(finish, Finalization::new(operation_id, Some(changes(request, change)?))?))
}

fn changes<C>(
    request: &LimitRequest,
    change: impl Fn(&LimitChange) -> Result<C, Invalid>,
) -> Result<Vec<C>, Invalid> {
    let changes = request.limit_changes.iter().enumerate();
    let changes =
        changes.map(|(index, given)| change(given).map_err(|invalid| invalid.within_item("changes", index)));
    changes.collect()
}

fn values<'n>(limit_names: impl Iterator<Item = &'n String>, as_of: AsOf) -> Result<Command, Failure> {
    let names = limit_names.enumerate();
    let names = names
        .map(|(index, text)| name("", text).map_err(|invalid| invalid.within_item("limit_names", index)));
    let values = Values::new(names.collect::<Result<_, _>>()?, as_of)?;
    Ok(Command::Ledger(ledger::Command::Values(values)))
}

fn successful(reply: ledger::Reply) -> Result<Reply, Unsuccessful> {
    let values = |values: Vec<ledger::LimitValue>| {
        let response = |value: &ledger::LimitValue| LimitResponse {
            limit_id: value.limit_id.as_ref().map(ToString::to_string),
            limit_name: value.limit_name.to_string(),
            commit_value: value.commit_value,
            total_value: value.total_value,
        };
        Reply::Values(values.iter().map(response).collect())
    };
    match reply {
        ledger::Reply::Hold(reply) => Ok(values(reply.values)),
        ledger::Reply::Values(reply) => Ok(values(reply.values)),
        ledger::Reply::Finalization(_) => Ok(Reply::Nothing),
        _ => Err(Unsuccessful::Unexpected(status::unreadable())),
    }
}

/// The exception that the function declares for this refusal.
fn declared(call: &Call, refusal: &Refusal) -> Option<Exception> {
    let exception = |id, name| Some(Exception { id, name });
    match (call, refusal) {
        (_, Refusal::LimitNotFound { .. }) => exception(1, "LimitNotFound"),
        (Call::Hold(_), Refusal::DuplicateOperation { .. }) => exception(2, "DuplicateOperation"),
        (Call::Hold(_), Refusal::OperationAlreadyInFinalState { .. }) => {
            exception(3, "OperationAlreadyInFinalState")
        }
        (
            Call::Commit(_) | Call::Rollback(_),
            Refusal::OperationNotFound { .. } | Refusal::CommitExceedsHold { .. },
        ) => exception(2, "OperationNotFound"),
        (Call::Get(_) | Call::GetLastLimitsValues(_), Refusal::LimitsValuesReadingException) => {
            exception(2, "LimitsValuesReadingException")
        }
        _ => None,
    }
}
