//! The HTTP front end.
//!
//! A file uses only files of its own layer and of those below it. From below:
//!
//! 1. `request_id`, `json` and `problem` are the form of answers. `to_wire` and `status` make an answer from what the engine has decided.
//! 2. `app` is what every handler knows about its server.
//! 3. `socket` and `connection` are a client's connection, `memory` is what a request reserves, and `router` finds the endpoint of
//!    a request. `request_context` is what handlers see of all this.
//! 4. `extract` and `from_wire` make a command of the engine from a request.
//! 5. `route`, `lists`, `forced` and `following` are what several handlers share.
//! 6. The handlers have a file or a folder for each family. The other handlers are in `audit`, `console`, `docs`, `health`,
//!    `liminator`, `namespaces` and `refusals`.
//! 7. `routes` is the table of all routes. `openapi` describes them.
//! 8. `endpoints` gives each route its guard and its metrics. `service` is the way of a request to its handler and back.
//! 9. `serve` accepts connections.

mod acceptor;
mod app;
mod audit;
pub(crate) mod audit_place;
mod connection;
mod console;
mod decisions;
mod docs;
mod endpoints;
mod events;
pub(crate) mod extract;
pub(crate) mod following;
mod forced;
pub(crate) mod from_wire;
mod handshakes;
mod health;
mod json;
mod ledger;
pub(crate) mod liminator;
mod limiter;
mod lists;
mod locks;
pub(crate) mod memory;
mod metrics;
mod namespaces;
#[cfg(feature = "openapi")]
mod openapi;
pub(crate) mod problem;
mod rate_limit;
mod refusals;
mod request_context;
mod request_id;
pub(crate) mod route;
mod router;
mod routes;
mod serve;
mod service;
mod socket;
mod stalls;
pub(crate) mod status;
mod streams;
mod to_wire;
mod transport;

pub use app::{App, AppOptions};
pub use docs::OPENAPI_JSON;
pub(crate) use memory::REQUEST;
pub use metrics::Metrics;
pub(crate) use metrics::Recorder;
#[cfg(feature = "openapi")]
pub use openapi::generated_openapi;
pub(crate) use request_context::RequestContext;
pub use routes::rights_table;
pub use serve::{Serving, Shutdown, serve, serve_envoy, serve_peers};
pub(crate) use socket::ClientConnection;
