//! The guard of a route: it checks the right that the route needs before the handler runs.

use super::{
    Identity, Needs, Scope,
    identity::token_overloaded,
    origin::{Passed, check_host},
    unauthorized,
};
use crate::http::{App, RequestContext, extract::path_namespace, problem::Failure};
use axum::{
    http::{HeaderMap, HeaderValue, header::AUTHORIZATION, request::Parts},
    response::Response,
};
use limina_access::Resource;
use limina_engine::Caller;

/// The guard of one route.
pub(crate) struct Guard {
    pub(crate) app: App,
    pub(crate) needs: Needs,
    /// The name of the operation, for the log.
    pub(crate) operation: &'static str,
}

/// Whether a request may pass.
pub(crate) enum Verdict {
    Passed,
    /// It passes if [`admit_namespace`](super::admit_namespace) succeeds.
    PassedIfRoom(Scope),
    /// It was a preflight request of a browser, and this is its answer.
    Answered(Response),
    Refused(Failure),
}

impl Guard {
    /// Checks which host the request names, where it comes from, its token, and the right of the token. The handler finds the scope in the context
    /// of the request. Also returns the origin of the page that may read the answer.
    pub(crate) fn check(&self, parts: &mut Parts) -> (Verdict, Option<HeaderValue>) {
        if let Err(failure) = check_host(parts) {
            return (Verdict::Refused(failure), None);
        }
        let origin = match self.app.policy().check_headers(parts) {
            Ok(Passed::On(origin)) => origin,
            Ok(Passed::Answered(response)) => return (Verdict::Answered(response), None),
            Err(failure) => {
                self.log(&Identity::anyone(caller(parts)), &failure);
                return (Verdict::Refused(failure), None);
            }
        };
        (self.admit(parts).unwrap_or_else(Verdict::Refused), origin)
    }

    fn admit(&self, parts: &mut Parts) -> Result<Verdict, Failure> {
        if self.needs == Needs::Nothing {
            return Ok(Verdict::Passed);
        }
        let policy = self.app.policy();
        let presented = presented(&parts.headers);
        let identity = match policy.identify(presented, caller(parts)) {
            Some(identity) => identity,
            // The token comes with the CONNECT frame.
            None if presented.is_none() && self.needs == Needs::Frames => return Ok(Verdict::Passed),
            None => {
                let failure = unauthorized(presented.is_some());
                self.log(&Identity::anyone(caller(parts)), &failure);
                return Err(failure);
            }
        };
        take_connection(&identity, parts)?;
        let namespace = path_namespace(parts)?;
        let need = self.needs.right(namespace.as_str());
        if let Some(need) = need {
            identity.require(need).inspect_err(|failure| self.log(&identity, failure))?;
        }
        let scope = Scope::of_route(namespace, identity, self.needs);
        let context = RequestContext::of_mut(&mut parts.extensions);
        let scope = context.scope.insert(scope);
        let has_room = !self.needs.may_create_namespace() || has_room(scope);
        Ok(if has_room { Verdict::Passed } else { Verdict::PassedIfRoom(scope.clone()) })
    }

    fn log(&self, identity: &Identity, failure: &Failure) {
        self.app.policy().log_denial(identity, self.operation, failure);
    }
}

/// Counts the connection and the memory of the request for the token.
fn take_connection(identity: &Identity, parts: &Parts) -> Result<(), Failure> {
    let Some(token) = identity.token() else { return Ok(()) };
    let context = RequestContext::of(&parts.extensions);
    if token.maxima.connections.is_some() {
        let counted = context.client().count_for(token);
        counted.map_err(|exceeded| token_overloaded(Resource::Connections, exceeded))?;
    }
    if token.maxima.in_flight_bytes.is_some() {
        let counted = context.memory.count_for(token);
        counted.map_err(|exceeded| token_overloaded(Resource::InFlightBytes, exceeded))?;
    }
    Ok(())
}

/// Whether the token may use the namespace, as far as that is known without counting the namespaces that exist.
fn has_room(scope: &Scope) -> bool {
    scope.identity.token().is_none_or(|token| token.has_room_for(&scope.namespace))
}

fn caller(parts: &Parts) -> Caller {
    RequestContext::of(&parts.extensions).caller()
}

/// The token of the header `Authorization: Bearer TOKEN`. An empty one if there are several headers, or another scheme.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let first = values.next()?.as_bytes();
    if values.next().is_some() {
        return Some(&[]);
    }
    match first.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => Some(token.trim_ascii()),
        _ => Some(&[]),
    }
}
