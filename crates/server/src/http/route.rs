//! What a route is: a path and a method, the right that the call needs, and its handler. The routes themselves are in `routes.rs`
//! and in the files of their handlers.

use super::App;
use crate::access::Needs;
use axum::{extract::Request, handler::Handler, http::Method, response::Response};
use std::pin::Pin;

/// One call: its path below the path of its family, its `operation` label in metrics, and its method with the right that it
/// needs.
pub(crate) type Route = (&'static str, &'static str, Call);

/// The method of a call, the right that the call needs, and its handler.
pub(crate) struct Call {
    pub(super) method: Method,
    pub(super) needs: Needs,
    pub(super) handler: Handle,
    /// Whether answers get the form of gRPC.
    pub(super) is_grpc: bool,
}

/// A handler with its extractors.
pub(super) type Handle = Box<dyn Fn(Request, App) -> Answer + Send + Sync>;

/// The future of an answer.
pub(super) type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

macro_rules! methods {
    ($($name:ident $method:ident)*) => {$(
        /// A call with this method, which needs this right.
        pub(crate) fn $name<H, T>(needs: impl Into<Needs>, handler: H) -> Call
        where
            H: Handler<T, App, Future = Answer> + Sync,
            T: 'static,
        {
            Call { method: Method::$method, needs: needs.into(), handler: handle(handler), is_grpc: false }
        }
    )*};
}

methods! { get GET post POST put PUT patch PATCH delete DELETE }

impl Call {
    /// The same over gRPC.
    pub(crate) fn over_grpc(self) -> Call {
        Call { is_grpc: true, ..self }
    }
}

/// A function with extractors, as a handler of a route.
pub(super) fn handle<H, T>(handler: H) -> Handle
where
    H: Handler<T, App, Future = Answer> + Sync,
    T: 'static,
{
    Box::new(move |request, app| handler.clone().call(request, app))
}
