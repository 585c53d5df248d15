//! The client of Limina.
//!
//! What the server promises depends on what its clients do: a retry must have the same id, a heartbeat must come in time, the
//! deadline of a lock must count from the right moment. This client does so. `docs/clients.md` has the rules, which the clients in
//! other languages follow too, and `clients/conformance` has the scripts that test them.
//!
//! ```no_run
//! use limina_client::{Limina, key_values};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<(), limina_client::Error> {
//! let client = Limina::new("http://localhost:7070")?;
//!
//! // A refusal is a value, not an error.
//! let decision = client.check(key_values! {"tenant": "acme", "route": "/search"}).hits(2).await?;
//! if !decision.allowed {
//!     println!("try again in {:?} ms", decision.retry_after_ms.map(|after| after.0));
//! }
//!
//! // The guard sends heartbeats. Dropping it releases the lock.
//! let lock = client.lock([("job", "nightly")], Duration::from_secs(30)).wait(Duration::from_secs(10)).await?;
//! tokio::select! {
//!     () = work(lock.fencing_token()) => lock.release().await?,
//!     () = lock.lost().cancelled() => println!("somebody else may have the lock now"),
//! }
//! # Ok(())
//! # }
//! # async fn work(_fencing_token: u64) {}
//! ```
//!
//! Every reply is a [`Reply`]: the typed fields, and the JSON that the server sent. Calls need a tokio runtime, because batches,
//! heartbeats and releases run in tasks of their own.

mod batch;
mod body;
mod breaker;
mod call;
mod client;
mod decisions;
mod error;
mod events;
mod guard;
mod ledger;
mod limiter;
mod locks;
mod pages;
mod reply;
mod rules;
mod server;
mod sse;
#[cfg(feature = "tls")]
mod tls;
mod transport;
pub mod types;

#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "tower")]
mod undecided;

pub use breaker::Breaker;
pub use call::Call;
pub use client::{Builder, Limina};
pub use decisions::{Commit, Decide, DecisionGuard, Decisions};
pub use error::{Done, Error, Failure, Result};
pub use events::{Events, Follow, Refusals};
pub use guard::Guard;
pub use ledger::{Finalize, Hold, Ledger, Limits};
pub use limiter::{Check, Counters, Lease, Leases, Wait};
pub use locks::{Lock, Locks};
pub use pages::Pages;
pub use reply::Reply;
pub use reqwest::Method;
pub use rules::{Overrides, RuleSets, Rules};
pub use server::Server;
pub use tokio_util::sync::CancellationToken;
pub use types::{KeyValue, KeyValues, Keys};
#[cfg(feature = "tower")]
pub use undecided::Undecided;

/// Key-values of any types: `key_values! {"tenant": "acme", "attempt": 3, "beta": true}`.
///
/// Where all values have one type, an array does as well: `[("tenant", "acme"), ("route", "/search")]`.
#[macro_export]
macro_rules! key_values {
    ($($key:literal : $value:expr),* $(,)?) => {
        $crate::Keys::new()$(.with($key, $value))*
    };
}

/// The examples of the README are compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
