//! The guard of a route: it checks the right that the route needs before the handler runs, and counts the request.

use super::{
    Identity, Needs, Scope, forbidden,
    identity::token_overloaded,
    origin::{Passed, add_headers},
    unauthorized,
};
use crate::http::{
    App, ClientConnection, Recorder, RequestMemory,
    extract::{discard_body, path_namespace},
    problem::{Code, Failure},
    visible_namespaces,
};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, header::AUTHORIZATION, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use limina_access::{Exceeded, Resource};
use std::sync::Arc;

/// The guard of one route.
pub(crate) struct Guard {
    pub(crate) app: App,
    pub(crate) needs: Needs,
    pub(crate) recorder: Arc<Recorder>,
}

/// Runs a request, if it may pass.
pub(crate) async fn enter(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let recorder = guard.recorder.clone();
    recorder.record(guard.run(request, next)).await
}

impl Guard {
    async fn run(&self, request: Request, next: Next) -> Response {
        let (mut parts, body) = request.into_parts();
        let origin = match self.app.policy().check_headers(&parts) {
            Ok(Passed::On(origin)) => origin,
            Ok(Passed::Answered(response)) => return response,
            Err(failure) => {
                self.log(&Identity::anyone(address(&parts)), &failure);
                discard_body(body, self.app.body_timeout()).await;
                return failure.into_response();
            }
        };
        let mut response = match self.admit(&mut parts).await {
            Ok(()) => next.run(Request::from_parts(parts, body)).await,
            Err(failure) => {
                // An error that leaves the body unread closes the connection.
                discard_body(body, self.app.body_timeout()).await;
                failure.into_response()
            }
        };
        if let Some(origin) = origin {
            add_headers(response.headers_mut(), origin);
        }
        response
    }

    /// Checks the token and its right. The handler finds the scope among the extensions of the request.
    async fn admit(&self, parts: &mut Parts) -> Result<(), Failure> {
        if self.needs == Needs::Nothing {
            return Ok(());
        }
        let policy = self.app.policy();
        let address = address(parts);
        let presented = presented(&parts.headers);
        let identity = match policy.identify(presented, address) {
            Some(identity) => identity,
            // The token comes with the CONNECT frame.
            None if presented.is_none() && self.needs == Needs::Frames => return Ok(()),
            None => {
                let failure = unauthorized(presented.is_some());
                self.log(&Identity::anyone(address), &failure);
                return Err(failure);
            }
        };
        self.take_connection(&identity, parts)?;
        let namespace = path_namespace(parts, &self.app).await?;
        let need = self.needs.right(namespace.as_str());
        let is_allowed = match (self.needs, need) {
            (Needs::AnyFamily(level), _) => identity.sees(namespace.as_str(), level),
            (_, Some(need)) => identity.token().is_none_or(|token| token.allows(need)),
            (_, None) => true,
        };
        if let (false, Some(need)) = (is_allowed, need) {
            let failure = forbidden(need);
            self.log(&identity, &failure);
            return Err(failure);
        }
        let scope = Scope::of_route(namespace, identity, self.needs);
        if self.needs.may_create_namespace() {
            admit_namespace(&self.app, &scope).await?;
        }
        parts.extensions.insert(scope);
        Ok(())
    }

    /// Counts the connection and the memory of the request for the token.
    fn take_connection(&self, identity: &Identity, parts: &Parts) -> Result<(), Failure> {
        let Some(token) = identity.token() else { return Ok(()) };
        if token.maxima.connections.is_some()
            && let Some(connection) = parts.extensions.get::<ClientConnection>()
        {
            let counted = connection.count_for(token);
            counted.map_err(|exceeded| token_overloaded(Resource::Connections, exceeded))?;
        }
        if token.maxima.in_flight_bytes.is_some()
            && let Some(memory) = parts.extensions.get::<RequestMemory>()
        {
            let counted = memory.count_for(token);
            counted.map_err(|exceeded| token_overloaded(Resource::InFlightBytes, exceeded))?;
        }
        Ok(())
    }

    fn log(&self, identity: &Identity, failure: &Failure) {
        self.app.policy().log_denial(identity, self.recorder.operation(), failure);
    }
}

/// Fails if a request that writes might create one namespace too many. Counted are the namespaces that exist and that the token
/// may read.
pub(crate) async fn admit_namespace(app: &App, scope: &Scope) -> Result<(), Failure> {
    let Scope { namespace, identity, .. } = scope;
    let Some(token) = identity.token().filter(|token| !token.has_room_for(namespace)) else {
        return Ok(());
    };
    let max = token.maxima.namespaces.unwrap_or(u64::MAX);
    let count = usize::try_from(max).unwrap_or(usize::MAX).saturating_add(1);
    let existing = visible_namespaces(app, identity, count).await?;
    token.admit_namespace(existing, namespace).map_err(|Exceeded { limit }| {
        let detail = format!("The token may use {limit} namespaces, and as many exist. Nothing was done.");
        Failure::new(Code::QuotaExceeded, detail)
            .with("quota", "namespaces")
            .with("limit", limit)
            .with("used", limit)
    })
}

fn address(parts: &Parts) -> Option<std::net::IpAddr> {
    parts.extensions.get::<ClientConnection>().and_then(ClientConnection::address)
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
