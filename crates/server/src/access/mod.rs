//! Access: who asks, from where, and whether the request may pass.
//!
//! `http/routes.rs` names the right that each route needs, and `guard` checks it before the handler runs. STOMP checks its frames
//! with the same [`Identity`]. Rights and tokens themselves are in [`limina_access`].
//!
//! `guard` and `namespaces` know requests and the server. The other files know neither.

mod denials;
mod guard;
mod identity;
mod namespaces;
mod needs;
mod origin;
mod policy;

pub(crate) use guard::{Guard, Verdict};
pub(crate) use identity::{Identity, Scope, forbidden, unauthorized};
pub(crate) use namespaces::{admit_namespace, visible_namespaces};
pub(crate) use needs::Needs;
pub(crate) use origin::expose_to;
pub use origin::{InvalidOrigin, Origin};
pub use policy::Policy;
