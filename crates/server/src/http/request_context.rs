//! What the server knows about a request besides its bytes.

use super::{
    App, connection::Connection, memory::RequestMemory, problem::Failure, router::Found,
    socket::ClientConnection,
};
use crate::access::Scope;
use axum::{
    extract::FromRequestParts,
    http::{Extensions, request::Parts},
};
use limina_api::RequestId;
use limina_engine::Caller;
use std::{borrow::Cow, convert::Infallible, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// What the server knows about a request besides its bytes. Every request has one among its extensions.
#[derive(Clone)]
pub(crate) struct RequestContext {
    connection: Arc<Connection>,
    found: Found,
    request_id: RequestId,
    pub(crate) memory: RequestMemory,
    /// What the guard has let the request pass for. None if the endpoint needs no token.
    pub(crate) scope: Option<Scope>,
}

impl RequestContext {
    /// The context of a request before the guard has let it pass.
    pub(super) fn new(
        connection: Arc<Connection>,
        found: Found,
        request_id: RequestId,
        memory: RequestMemory,
    ) -> RequestContext {
        RequestContext { connection, found, request_id, memory, scope: None }
    }

    pub(crate) fn of(extensions: &Extensions) -> &RequestContext {
        extensions.get().expect("every request has a context")
    }

    pub(crate) fn of_mut(extensions: &mut Extensions) -> &mut RequestContext {
        extensions.get_mut().expect("every request has a context")
    }

    /// The client, before its token says its name.
    pub(crate) fn caller(&self) -> Caller {
        let (address, request_id) = (self.client().address(), Some(self.request_id.clone()));
        Caller { actor: None, address, request_id }
    }

    /// The connection on which the request came.
    pub(crate) fn client(&self) -> &ClientConnection {
        &self.connection.client
    }

    /// A permit for one more watch of the server's health on the connection. None if it has the most watches.
    pub(crate) fn take_watch(&self) -> Option<OwnedSemaphorePermit> {
        self.connection.activity.take_watch()
    }

    /// The decoded value of a parameter in the path; `None` if the route has no such parameter.
    pub(crate) fn parameter<'p>(
        &self,
        path: &'p str,
        parameter: &str,
    ) -> Result<Option<Cow<'p, str>>, Failure> {
        self.connection.router.parameter(self.found, path, parameter).map_err(|not_utf8| {
            Failure::invalid_path(not_utf8.parameter, "must be UTF-8 when percent-decoded")
        })
    }
}

impl FromRequestParts<App> for ClientConnection {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<ClientConnection, Infallible> {
        Ok(RequestContext::of(&parts.extensions).client().clone())
    }
}
