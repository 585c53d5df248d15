//! The state machine that decides.
//!
//! [`Engine`] is the state machine of one shard. It takes a [`Request`] and the time, and returns an [`Outcome`].
//! [`Engine::seal`] returns the after-images that must be durable before any of these outcomes, or any [`Effect`], is
//! released. The engine is deterministic: the same requests at the same times give the same bytes.
//!
//! The crate must never have a clock, files, threads or randomness: it is `no_std`, so the compiler checks this. It must
//! never know how records are stored, which protocol a client uses, or how an answer looks on the wire.
//!
//! Read in this order: [`request`], [`outcome`], [`engine`], then a family's folder ([`ledger`], [`limiter`], [`locks`],
//! [`events`]), then [`decisions`], which are made about all of them.

#![no_std]

extern crate alloc;

pub mod answer_size;
pub mod audit;
pub mod decisions;
pub mod effect;
pub mod engine;
pub mod events;
pub mod ids;
pub mod ledger;
pub mod limiter;
pub mod lists;
pub mod locks;
pub mod options;
pub mod outcome;
pub mod quotas;
pub mod reads;
pub mod record;
pub mod request;
pub mod sweep;
pub mod timers;

mod idempotency;
mod job;
mod leftovers;
mod recent;
mod resident;
mod slab;
mod turn;

pub use effect::Effect;
pub use engine::{Applied, Due, Engine, Loading, Sealed, Sizes, Stats};
pub use ids::{NamespaceId, WaitId};
pub use job::Job;
pub(crate) use limina_api::ByteBuffer;
pub use limina_api::{
    Invalid, InvalidName, KeyValues, Keys, Listed, MAX_BATCH, Millis, Name, Position, Reason, RequestId,
    Time, key_values, selection,
};
pub use lists::Page;
pub use options::Options;
pub use outcome::Outcome;
pub use quotas::{Quota, QuotaExceeded, QuotaTable};
pub use reads::{Fetched, Missing, Read, ReadResult};
pub use recent::{Write, Writes};
pub use request::{Caller, Command, Idempotency, Request, UncheckedRequest};
