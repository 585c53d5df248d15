//! How clients follow a stream, by server-sent events or by STOMP: the right, the default streams, and how a message is encoded.

use super::{App, extract::default_namespace, from_wire, problem::Failure, status, to_wire};
use crate::access::{Scope, admit_namespace};
use bytes::Bytes;
use limina_access::{
    Family,
    Level::{Read, Use},
    Need,
};
use limina_engine::{
    Name,
    events::{Mode, StreamTerms},
};
use limina_node::{FollowError, Follower, StreamUpdate};
use limina_stomp::Payload;

/// A longer message is not copied for each follower.
pub(crate) const LARGE: usize = 8 << 10;

/// The right that following a stream of this namespace needs.
pub(crate) fn right_to_follow(namespace: &Name) -> Need<'_> {
    Need::Family(namespace.as_str(), Family::Events, Read)
}

/// Fails if following the stream might create a namespace that the client's token has no room for.
pub(crate) async fn admit_follower(app: &App, scope: &Scope, stream: &Name) -> Result<(), Failure> {
    match made_by_following(scope, stream) {
        Some(_) => admit_namespace(app, scope).await,
        None => Ok(()),
    }
}

/// Follows a stream. Creates it if it is missing and one of the two default streams, and the client may use them.
pub(crate) async fn follow(
    app: &App,
    scope: &Scope,
    stream: Name,
    resume_after: Option<u64>,
) -> Result<Follower, FollowError> {
    let make = made_by_following(scope, &stream);
    app.backend().follow(scope.namespace.clone(), stream, resume_after, make).await
}

/// The answer to a client that cannot follow the stream.
pub(crate) fn not_followed(stream: &Name, reason: FollowError) -> Failure {
    match reason {
        FollowError::StreamNotFound => status::events::stream_not_found(stream),
        FollowError::QuotaExceeded(exceeded) => status::quota_exceeded(exceeded),
        FollowError::Unavailable(reason) => status::unavailable(reason),
    }
}

/// The terms of a default stream, if the client may create it by following it.
fn made_by_following(scope: &Scope, stream: &Name) -> Option<StreamTerms> {
    let may_create = scope.identity.allows(Need::Family(scope.as_str(), Family::Events, Use));
    made_by_use(scope, stream).filter(|_| may_create)
}

/// The name of the default stream of this mode.
pub(super) fn default_stream(mode: Mode) -> &'static str {
    match mode {
        Mode::OnlyOnce => "only-once",
        Mode::StrictlyOnce => "strictly-once",
    }
}

/// The settings with which a missing stream is created by its first use; `None` for all but the two default streams.
pub(super) fn made_by_use(namespace: &Name, stream: &Name) -> Option<StreamTerms> {
    let is_of_mode = |mode: &Mode| default_stream(*mode) == stream.as_str();
    let mode = [Mode::OnlyOnce, Mode::StrictlyOnce].into_iter().find(is_of_mode)?;
    (*namespace == default_namespace()).then(|| from_wire::events::made_by_use(mode))
}

/// Encodes a message as STOMP sends it. Server-sent events send only its body.
pub(crate) fn encode(message: &StreamUpdate) -> Bytes {
    let body = serde_json::to_vec(&to_wire::events::message(message)).expect("written to memory");
    Payload::new("application/json;charset=utf-8", &body).bytes().clone()
}
