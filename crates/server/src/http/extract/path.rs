//! Namespaces, names and ids in paths.

use super::super::{App, RequestContext, problem::Failure};
use crate::access::{Scope, unauthorized};
use axum::{extract::FromRequestParts, http::request::Parts};
use limina_engine::Name;
use std::sync::LazyLock;

static DEFAULT_NAMESPACE: LazyLock<Name> =
    LazyLock::new(|| Name::new("default").expect("the default namespace has a valid name"));

/// The namespace that the path names, or the default one, with the client who asks. The guard of the route has checked that the
/// client may do so.
pub(crate) struct Namespace(pub(crate) Scope);

impl FromRequestParts<App> for Namespace {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Namespace, Failure> {
        // A route that needs nothing has no scope, and must not reach a namespace.
        let scope = RequestContext::of(&parts.extensions).scope.clone();
        scope.map(Namespace).ok_or_else(|| unauthorized(false))
    }
}

/// The namespace that the path names, or the default one.
pub(crate) fn path_namespace(parts: &Parts) -> Result<Name, Failure> {
    Ok(path_name(parts, "namespace")?.unwrap_or_else(default_namespace))
}

/// The namespace of paths without `/ns/{namespace}`.
pub(crate) fn default_namespace() -> Name {
    DEFAULT_NAMESPACE.clone()
}

/// Extractors of names in paths: how each is read, and the parameter that it is.
macro_rules! path_names {
    ($($(#[$doc:meta])* $name:ident: $read:ident($parameter:literal);)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) Name);

        impl FromRequestParts<App> for $name {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<$name, Failure> {
                $read(parts, $parameter).map($name)
            }
        }
    )*};
}

path_names! {
    /// The `{name}` of the path.
    LimitName: required("name");
    /// The `{operation_id}` of the path.
    OperationId: required("operation_id");
    /// The id of a decision: the `{operation_id}` of the path, or `batch` if the decision has that id.
    DecisionId: name_or_segment("operation_id");
    /// The name of a rule: the `{name}` of the path. A rule may have the name of a fixed path, such as `match` or `query`;
    /// then the last segment of the path is its name.
    RuleName: name_or_segment("name");
    /// The name of an override: the `{override}` of the path, or `query` if the override has that name.
    OverrideName: name_or_segment("override");
    /// The `{set}` of the path: the name of a rule set.
    RuleSetName: required("set");
    /// The `{lease_id}` of the path.
    LeaseId: required("lease_id");
    /// The `{stream}` of the path.
    StreamName: required("stream");
    /// The id of a lock: the `{lock_id}` of the path, or `query` if the lock has that id.
    LockId: name_or_segment("lock_id");
}

/// The decoded parameter of the path.
fn required(parts: &Parts, parameter: &str) -> Result<Name, Failure> {
    path_name(parts, parameter)?.ok_or_else(|| empty_name(parameter))
}

/// The decoded parameter of the path. If the router matched a fixed path instead, the last segment of the path.
fn name_or_segment(parts: &Parts, parameter: &str) -> Result<Name, Failure> {
    if let Some(name) = path_name(parts, parameter)? {
        return Ok(name);
    }
    let segment = parts.uri.path().rsplit('/').next().unwrap_or_default();
    Name::new(segment).map_err(|error| Failure::invalid_path(parameter, error.to_string()))
}

/// The answer to a path in which a name is empty.
pub(crate) fn empty_name(parameter: &str) -> Failure {
    Failure::invalid_path(parameter, limina_engine::InvalidName::Empty.to_string())
}

/// The decoded parameter of the path; `None` if the route has no such parameter.
fn path_name(parts: &Parts, parameter: &str) -> Result<Option<Name>, Failure> {
    let text = RequestContext::of(&parts.extensions).parameter(parts.uri.path(), parameter)?;
    let Some(text) = text else { return Ok(None) };
    Name::new(&text).map(Some).map_err(|error| Failure::invalid_path(parameter, error.to_string()))
}
